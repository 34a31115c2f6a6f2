# SPDX-License-Identifier: BSD-3-Clause
"""A box with regular nodes."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from particlemesh import checks
from particlemesh.box import Box
from particlemesh.ghosts import Ghosted
from particlemesh.window import Window, transforms, window_of


@dataclass(frozen=True, init=False, repr=False)
class Mesh(Ghosted):
    """A box with regular nodes: node i of an axis is at ``origin + (i + offset) h``.

    The spacing h is ``length / K`` on a periodic axis of K nodes. An open axis with `offset` 0.5 has its
    nodes at the centres of K cells, with the same h. With `offset` 0 it has nodes on both faces, and
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
        Nodes added to the field beyond both ends of an axis, up to 2**31 - 1 nodes in all. An axis with ghosts never
        wraps: call `fold_ghosts` after spreading and `fill_ghosts` before interpolating.

    Attributes
    ----------
    box : Box
    shape : tuple of int
    offset : tuple of float
    ghosts : tuple of (int, int)
    start : tuple of int
        First node in the whole mesh; zeros unless this is a :meth:`part`.
    whole : Mesh
        The mesh that this is a part of, or itself.

    Raises
    ------
    ValueError
        If the number of axes differs between arguments, a number is out of range, or `offset` of an open axis
        is not 0 or 0.5. If `periodic` or `origin` is given beside a `Box`.
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
    start: tuple[int, ...]
    _whole: Mesh | None  # of a part

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
        offsets, widths = tuple(x + 0.0 for x in offsets), checks.ghost_widths(ghosts, nodes)
        self._set(shape=nodes, box=box, offset=offsets, ghosts=widths, start=(0,) * box.ndim, _whole=None)

    def _set(self, **values: Any) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)
        _ = self.ndim, self.periodic  # torch cannot compile their locks, which Python 3.11 has

    def __repr__(self) -> str:
        if self._whole is not None:
            stop = tuple(first + nodes for first, nodes in zip(self.start, self.shape, strict=True))
            return f"{self._whole!r}.part({self.start}, {stop}, {self.ghosts})"
        parts = [repr(self.shape), repr(self.box)]
        if any(self.offset):
            parts.append(f"offset={self.offset}")
        if any(map(any, self.ghosts)):
            parts.append(f"ghosts={self.ghosts}")
        return f"Mesh({', '.join(parts)})"

    def part(self, start: Any, stop: Any, ghosts: Any = 0) -> Mesh:
        """Return the part of this mesh that has the nodes from ``start`` up to ``stop``, with ghosts around them.

        Positions, box and spacing are those of the whole mesh. A particle has the same fraction and the same nodes in
        every part, bit by bit. An axis that is not cut and has no ghosts is as in the whole mesh; no other axis wraps.

        A plan takes the particles whose stencils end within the ghosts of a part. Along an axis that is cut without
        ghosts, it takes those whose stencils reach a node of the part, and their weights elsewhere are lost. All other
        particles are outside. A periodic axis folds positions into the images nearest to the part.

        Parameters
        ----------
        start, stop : int or sequence of d ints
            Nodes of this mesh; ``stop`` is not included.
        ghosts : int, or for each axis an int or a pair (lower, upper), default 0
            Nodes beyond both ends: other parts have them, or they are images, or beyond an open face. A window of
            support s needs ``((s - 1) // 2, s // 2)``.

        Raises
        ------
        ValueError
            If a part has no node, or nodes that this mesh does not have.

        Examples
        --------
        >>> part = Mesh(8, 2.0).part(2, 5, ghosts=[(1, 2)])
        >>> part.nodes(0), part.field_shape
        (array([0.5 , 0.75, 1.  ]), (6,))
        """
        first, shape = checks.node_range(start, stop, self.shape)
        part, widths = object.__new__(type(self)), checks.ghost_widths(ghosts, shape)
        first = tuple(a + b for a, b in zip(first, self.start, strict=True))
        part._set(shape=shape, box=self.box, offset=self.offset, ghosts=widths, start=first, _whole=self.whole)
        return part

    @property
    def whole(self) -> Mesh:
        """The mesh that this is a part of, without ghosts; itself if it is no part and has none."""
        if self._whole is not None:
            return self._whole
        return Mesh(self.shape, self.box, offset=self.offset) if any(map(any, self.ghosts)) else self

    @property
    def is_part(self) -> bool:
        """Whether :meth:`part` made this mesh."""
        return self._whole is not None

    def cut(self, axis: int) -> bool:
        """Return whether an axis of a :meth:`part` has fewer nodes than that of the whole mesh, or has ghosts."""
        return self._whole is not None and (any(self.ghosts[axis]) or self.shape[axis] < self._whole.shape[axis])

    @functools.cached_property
    def ndim(self) -> int:
        """Number of axes, 1 to 3."""
        return len(self.shape)

    @functools.cached_property
    def periodic(self) -> tuple[bool, ...]:
        """Whether each axis of the box repeats."""
        return self.box.periodic

    @functools.cached_property
    def intervals(self) -> tuple[int, ...]:
        """Number of spacings per axis of the box: K, or K - 1 where an open axis has nodes on both faces."""
        whole = self if self._whole is None else self._whole
        return tuple(
            nodes - (not periodic and offset == 0)
            for nodes, periodic, offset in zip(whole.shape, self.periodic, self.offset, strict=True)
        )

    @property
    def spacing(self) -> NDArray[np.float64]:
        """Distance h between neighbouring nodes along each lattice vector, shape (d,), read-only."""
        spacing = self.box.lengths / np.array(self.intervals)
        spacing.setflags(write=False)
        return spacing

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
        index = self.start[axis] + np.arange(-lower, self.shape[axis] + upper)
        fraction = (index + self.offset[axis]) / self.intervals[axis]
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
        checks.not_a_part(self, "wavenumbers")
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
        checks.not_a_part(self, "compensation")
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
            Added to `offset`, in units of h. A periodic axis allows any number. An open axis allows 0 and two
            more. Adding 0.5 makes K - 1 nodes in the cells of K on the faces. Adding -0.5 makes K + 1 on the faces of
            K in the cells.

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
        if self._whole is not None:
            whole, stop = self._whole.shifted(offsets), []
            for first, nodes, before, after in zip(self.start, self.shape, self._whole.shape, whole.shape, strict=True):
                stop.append(after if first + nodes == before else first + nodes)  # the last part has the other nodes
            return whole.part(self.start, stop, self.ghosts)
        shifts = checks.per_axis(offsets, self.ndim, "offsets")
        moved = [offset + shift for offset, shift in zip(self.offset, shifts, strict=True)]
        shape = list(self.shape)
        for axis in range(self.ndim):
            if not self.periodic[axis]:
                checks.open_shift(axis, self.offset[axis], shifts[axis])
                shape[axis] = self.intervals[axis] + (moved[axis] == 0)
        return Mesh(shape, self.box, offset=moved, ghosts=self.ghosts)


def mesh_of(mesh: Any) -> Mesh:
    """Return an argument that has to be a mesh.

    Raises
    ------
    TypeError
        If it is none.
    """
    if not isinstance(mesh, Mesh):
        raise TypeError(f"mesh is of type {type(mesh).__name__}; give a particlemesh.Mesh.")
    return mesh
