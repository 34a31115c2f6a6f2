# SPDX-License-Identifier: BSD-3-Clause
"""A box with regular nodes."""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from particlemesh import checks
from particlemesh.box import Box
from particlemesh.window import Window, transforms, window_of


@dataclass(frozen=True, init=False, repr=False)
class Mesh:
    """A box with regular nodes: node i of an axis is at ``origin + (i + offset) h``.

    The spacing h is ``length / K`` on a periodic axis of K nodes. An open axis with `offset` 0.5 has its
    nodes at the centres of K cells, with the same h; with `offset` 0 it has nodes on both faces, and
    ``h = length / (K - 1)``. A value object: frozen, hashable, comparable, picklable. Lengths have any unit.

    Parameters
    ----------
    shape : int or sequence of d ints
        Nodes per axis without ghosts, from 1 to 2**31 - 1; d is 1, 2 or 3.
    box : Box, float, sequence or matrix
        A `Box`, or the first argument of its constructor.
    periodic : bool or sequence of d bools, optional
        Periodic axes, True by default. Not allowed if `box` is a `Box`.
    origin : float or sequence of d floats, optional
        Corner of the box. Not allowed if `box` is a `Box`.
    offset : float or sequence of d floats, default 0
        Position of node 0 in units of h: any number on a periodic axis, 0 or 0.5 on an open one.
    ghosts : int, or for each axis an int or a pair (lower, upper), default 0
        Nodes added to the field beyond both ends of an axis. An axis with ghosts never wraps: call
        `fold_ghosts` after spreading and `fill_ghosts` before interpolating.

    Attributes
    ----------
    box : Box
    shape : tuple of int
    offset : tuple of float
    ghosts : tuple of (int, int)

    Raises
    ------
    ValueError
        If the number of axes differs between arguments, a number is out of range, `offset` of an open axis is
        not 0 or 0.5, or `periodic` or `origin` is given beside a `Box`.
    TypeError
        If a number of nodes is not an integer.

    Examples
    --------
    >>> mesh = Mesh((4, 5), (2.0, 2.0), periodic=(True, False), ghosts=((1, 2), 0))
    >>> mesh.spacing, mesh.field_shape
    (array([0.5, 0.5]), (7, 5))
    """

    shape: tuple[int, ...]
    box: Box
    offset: tuple[float, ...]
    ghosts: tuple[tuple[int, int], ...]

    def __init__(
        self,
        shape: Any,
        box: Any,
        *,
        periodic: Any = None,
        origin: ArrayLike | None = None,
        offset: ArrayLike = 0.0,
        ghosts: Any = 0,
    ) -> None:
        nodes = checks.mesh_shape(shape)
        if isinstance(box, Box):
            checks.not_beside_a_box(periodic=periodic, origin=origin)
        else:
            box = Box(box, origin, True if periodic is None else periodic)
        checks.same_axes(nodes, box.ndim)
        offsets = checks.per_axis(offset, box.ndim, "offset")
        for axis in range(box.ndim):
            if not box.periodic[axis]:
                checks.open_offset(axis, offsets[axis], nodes[axis])
        object.__setattr__(self, "shape", nodes)
        object.__setattr__(self, "box", box)
        object.__setattr__(self, "offset", tuple(x + 0.0 for x in offsets))
        object.__setattr__(self, "ghosts", checks.ghost_widths(ghosts, box.ndim))

    def __repr__(self) -> str:
        parts = [repr(self.shape), repr(self.box)]
        if any(self.offset):
            parts.append(f"offset={self.offset}")
        if any(map(any, self.ghosts)):
            parts.append(f"ghosts={self.ghosts}")
        return f"Mesh({', '.join(parts)})"

    @property
    def ndim(self) -> int:
        """Number of axes, 1 to 3."""
        return len(self.shape)

    @property
    def periodic(self) -> tuple[bool, ...]:
        """Whether each axis of the box repeats."""
        return self.box.periodic

    @property
    def intervals(self) -> tuple[int, ...]:
        """Number of spacings per axis of the box: K, or K - 1 where an open axis has nodes on both faces."""
        return tuple(
            nodes - (not periodic and offset == 0)
            for nodes, periodic, offset in zip(self.shape, self.periodic, self.offset, strict=True)
        )

    @property
    def spacing(self) -> NDArray[np.float64]:
        """Distance h between neighbouring nodes along each lattice vector, shape (d,), read-only."""
        spacing = self.box.lengths / np.array(self.intervals)
        spacing.setflags(write=False)
        return spacing

    @property
    def field_shape(self) -> tuple[int, ...]:
        """Shape of a field: nodes per axis, ghosts included."""
        return tuple(lower + nodes + upper for nodes, (lower, upper) in zip(self.shape, self.ghosts, strict=True))

    @property
    def size(self) -> int:
        """Number of nodes without ghosts."""
        return math.prod(self.shape)

    @property
    def node_volume(self) -> float:
        """Length, area or volume per node; the same for every node."""
        return self.box.volume / math.prod(self.intervals)

    def nodes(self, axis: int, *, ghosts: bool = False) -> NDArray[np.float64]:
        """Return the coordinates of an axis's nodes.

        Parameters
        ----------
        axis : int
            Counted from 0; negative numbers count from the last.
        ghosts : bool, default False
            Whether to include the ghosts, so that each node of a field has a coordinate.

        Returns
        -------
        (n,) float64 ndarray
            Ascending. In a triclinic box these are distances along the lattice vector from the box's origin.

        Raises
        ------
        ValueError
            If the mesh has no such axis.

        Examples
        --------
        >>> Mesh(4, 2.0, offset=0.5).nodes(0)
        array([0.25, 0.75, 1.25, 1.75])
        """
        axis = checks.integer(axis, "axis", -self.ndim, self.ndim - 1) % self.ndim
        lower, upper = self.ghosts[axis] if checks.flag(ghosts, "ghosts") else (0, 0)
        # The division comes first: it is exactly 1 at the last node of an open axis, which is on the face.
        fraction = (np.arange(-lower, self.shape[axis] + upper) + self.offset[axis]) / self.intervals[axis]
        distance = fraction * self.box.lengths[axis]
        return distance + self.box.origin[axis] if self.box.orthorhombic else distance

    def wavenumbers(self, *, real: bool = False) -> tuple[NDArray[np.float64], ...]:
        """Return the Cartesian components of the wave vectors of the mesh's Fourier modes.

        Parameters
        ----------
        real : bool, default False
            Whether the last axis has the modes of ``rfftn`` (0 to K/2) instead of those of ``fftn``.

        Returns
        -------
        tuple of d float64 ndarrays
            Angular wavenumbers in radians per length. They broadcast against each other and against a transformed
            field. In an orthorhombic box component a varies along axis a only.

        Raises
        ------
        ValueError
            If an axis is open.

        Examples
        --------
        >>> kx, ky = Mesh((4, 6), (1.0, 1.0)).wavenumbers(real=True)
        >>> kx.shape, ky.shape, (kx[:, 0] / (2 * np.pi)).round(12)
        ((4, 1), (1, 4), array([ 0.,  1., -2., -1.]))
        """
        modes = self._modes(real)
        components = []
        for b in range(self.ndim):
            terms = [2 * np.pi * self.box.inverse[a, b] * n for a, n in enumerate(modes) if self.box.inverse[a, b]]
            components.append(np.asarray(sum(terms[1:], start=terms[0])))
        return tuple(components)

    def _modes(self, real: bool) -> list[NDArray[np.float64]]:
        """Return the mode numbers of each axis, shaped to broadcast along that axis."""
        checks.all_periodic(self.periodic)
        half = checks.flag(real, "real")
        return [
            self._along(axis, transforms.modes(nodes, half and axis == self.ndim - 1))
            for axis, nodes in enumerate(self.shape)
        ]

    def _along(self, axis: int, numbers: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the numbers of an axis's modes so that they broadcast against those of other axes."""
        return numbers.reshape([-1 if a == axis else 1 for a in range(self.ndim)])

    def compensation(
        self, window: str | Window, kind: str = "continuous", *, power: int = 1, real: bool = False
    ) -> NDArray[np.float64]:
        """Return the factors that undo a window in Fourier space, ``1 / W(k)**power``.

        Parameters
        ----------
        window : Window or str
            The window of the spreading or interpolation.
        kind : {"continuous", "discrete"}
            Transform W to divide by: of the window itself (`Window.fourier`), or of its samples at the nodes
            (`Window.symbol`).
        power : {1, 2}
            1 compensates for spreading or for interpolation, 2 for both.
        real : bool, default False
            As in `wavenumbers`.

        Returns
        -------
        (K1, ..., Kd) float64 ndarray
            Factors of a field transformed by ``fftn``, or by ``rfftn`` with `real`, without the phase of an `offset`.

        Raises
        ------
        ValueError
            If an axis is open, `kind` or `power` is not among its choices, or the transform vanishes at a mode.

        Examples
        --------
        >>> Mesh(2, 1.0).compensation("cic").round(6)
        array([1.      , 2.467401])
        """
        window = window_of(window)
        checks.one_of(kind, "kind", ("continuous", "discrete"))
        checks.one_of(power, "power", (1, 2))
        checks.all_periodic(self.periodic)
        half, product = checks.flag(real, "real"), np.ones(())
        for axis, nodes in enumerate(self.shape):
            divisor = transforms.divisor(window, kind, int(power), nodes, half and axis == self.ndim - 1, axis)
            product = product / self._along(axis, divisor)
        return product

    def shifted(self, offsets: ArrayLike) -> Mesh:
        """Return the staggered mesh: the same box, intervals, spacing and ghosts, with shifted nodes.

        Parameters
        ----------
        offsets : float or sequence of d floats
            Added to `offset`, in units of h. A periodic axis allows any number. An open axis allows 0, +0.5 from
            K nodes on the faces to K - 1 in the cells, and -0.5 from K nodes in the cells to K + 1 on the faces.

        Raises
        ------
        ValueError
            If an open axis has any other shift.

        Examples
        --------
        >>> faces = Mesh(5, 2.0, periodic=False)
        >>> cells = faces.shifted(0.5)
        >>> cells.shape, cells.nodes(0), cells.shifted(-0.5) == faces
        ((4,), array([0.25, 0.75, 1.25, 1.75]), True)
        """
        shifts = checks.per_axis(offsets, self.ndim, "offsets")
        moved = [offset + shift for offset, shift in zip(self.offset, shifts, strict=True)]
        shape = list(self.shape)
        for axis in range(self.ndim):
            if not self.periodic[axis]:
                checks.open_shift(axis, self.offset[axis], shifts[axis])
                shape[axis] = self.intervals[axis] + (moved[axis] == 0)
        return Mesh(shape, self.box, offset=moved, ghosts=self.ghosts)

    def fold_ghosts(self, field: Any) -> Any:
        """Return a field without ghosts: the value of each ghost is added to the node that it is an image of.

        Ghosts of an open axis are dropped. Ghost layers may be wider than the axis.

        Parameters
        ----------
        field : (..., *field_shape) array
            NumPy, CuPy or torch, of any dtype with addition, or a sequence of numbers. It is not changed.

        Returns
        -------
        (..., *shape) array
            A new array of the same kind, dtype and device; a NumPy array for a sequence.

        Raises
        ------
        ValueError
            If the last axes are not `field_shape`.
        TypeError
            If `field` is not an array of these kinds.

        Examples
        --------
        >>> Mesh(3, 1.0, ghosts=1).fold_ghosts(np.array([10.0, 1.0, 2.0, 3.0, 20.0]))
        array([21.,  2., 13.])
        """
        field = _field(field, self.field_shape)
        return self._along_axes(field, self.shape, fold=True)

    def fill_ghosts(self, field: Any) -> Any:
        """Return a field with ghosts: each ghost has the value of the node that it is an image of.

        This is the exact adjoint of `fold_ghosts`: ghosts of an open axis are zero.

        Parameters
        ----------
        field : (..., *shape) array
            NumPy, CuPy or torch, or a sequence of numbers. It is not changed.

        Returns
        -------
        (..., *field_shape) array
            A new array of the same kind, dtype and device; a NumPy array for a sequence.

        Raises
        ------
        ValueError
            If the last axes are not `shape`.
        TypeError
            If `field` is not an array of these kinds.

        Examples
        --------
        >>> Mesh(3, 1.0, ghosts=1).fill_ghosts(np.array([1.0, 2.0, 3.0]))
        array([3., 1., 2., 3., 1.])
        """
        field = _field(field, self.shape)
        return self._along_axes(field, self.field_shape, fold=False)

    def _along_axes(self, field: Any, shape: tuple[int, ...], *, fold: bool) -> Any:
        for axis in range(self.ndim):
            after = (slice(None),) * (self.ndim - 1 - axis)
            sizes = list(field.shape)
            sizes[len(sizes) - self.ndim + axis] = shape[axis]
            result = _zeros_like(field, tuple(sizes))
            for ghosted, plain in self._runs(axis):
                source, target = (ghosted, plain) if fold else (plain, ghosted)
                result[(..., target, *after)] += field[(..., source, *after)]
            field = result
        return field

    def _runs(self, axis: int) -> Iterator[tuple[slice, slice]]:
        """Yield runs of nodes of an axis with ghosts, and the runs of plain nodes that they are images of."""
        nodes, (lower, upper) = self.shape[axis], self.ghosts[axis]
        if not self.periodic[axis]:
            yield slice(lower, lower + nodes), slice(0, nodes)
            return
        for image in range(-math.ceil(lower / nodes), math.ceil(upper / nodes) + 1):
            first = max(image * nodes, -lower)
            last = min((image + 1) * nodes, nodes + upper)
            yield slice(first + lower, last + lower), slice(first - image * nodes, last - image * nodes)


def _field(field: Any, shape: tuple[int, ...]) -> Any:
    """Return an array that `_zeros_like` supports, with its last axes checked; sequences become NumPy arrays."""
    if not hasattr(checks.unmasked(field), "shape"):
        field = checks.number_array(field, "field")
    elif not isinstance(field, np.ndarray) and not hasattr(field, "new_zeros"):
        checks.has_zeros(_namespace(field), field, "field")
    checks.trailing_shape(field.shape, shape, "field")
    return field


def _namespace(array: Any) -> Any:
    # Not imported: the module of an existing array is loaded.
    return sys.modules.get(type(array).__module__.partition(".")[0])


def _zeros_like(field: Any, shape: tuple[int, ...]) -> Any:
    if isinstance(field, np.ndarray):
        return np.zeros(shape, field.dtype)
    if hasattr(field, "new_zeros"):
        return field.new_zeros(shape)
    device: Any = getattr(field, "device", None)
    with device if hasattr(device, "__enter__") else contextlib.nullcontext():
        return _namespace(field).zeros(shape, dtype=field.dtype)
