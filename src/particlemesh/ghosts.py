# SPDX-License-Identifier: BSD-3-Clause
"""Fields with ghosts and fields without: which node a ghost is an image of."""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from particlemesh import checks


class Line(NamedTuple):
    """The nodes of one axis, and the ghosts beyond its ends."""

    nodes: int
    lower: int
    upper: int
    periodic: bool

    def runs(self) -> Iterator[tuple[slice, slice]]:
        """Yield runs of nodes with ghosts, and the runs of plain nodes that they are images of."""
        nodes, lower, upper, periodic = self
        if not periodic:
            yield slice(lower, lower + nodes), slice(0, nodes)
            return
        for image in range(-math.ceil(lower / nodes), math.ceil(upper / nodes) + 1):
            first = max(image * nodes, -lower)
            last = min((image + 1) * nodes, nodes + upper)
            yield slice(first + lower, last + lower), slice(first - image * nodes, last - image * nodes)


class Ghosted:
    """A mesh's fields with ghosts and without."""

    shape: tuple[int, ...]
    ghosts: tuple[tuple[int, int], ...]

    @property
    def periodic(self) -> tuple[bool, ...]:
        """Whether each axis of the box repeats."""
        raise NotImplementedError

    @property
    def field_shape(self) -> tuple[int, ...]:
        """Shape of a field: nodes per axis, ghosts included."""
        return tuple(lower + nodes + upper for nodes, (lower, upper) in zip(self.shape, self.ghosts, strict=True))

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
        >>> import numpy as np, particlemesh as pm
        >>> pm.Mesh(3, 1.0, ghosts=1).fold_ghosts(np.array([10.0, 1.0, 2.0, 3.0, 20.0]))
        array([21.,  2., 13.])
        """
        checks.not_a_part(self, "fold_ghosts")
        return _along_axes(_field(field, self.field_shape), self._lines(), self.shape, fold=True)

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
            If the last axes are not ``shape``.
        TypeError
            If `field` is not an array of these kinds.

        Examples
        --------
        >>> import numpy as np, particlemesh as pm
        >>> pm.Mesh(3, 1.0, ghosts=1).fill_ghosts(np.array([1.0, 2.0, 3.0]))
        array([3., 1., 2., 3., 1.])
        """
        checks.not_a_part(self, "fill_ghosts")
        return _along_axes(_field(field, self.shape), self._lines(), self.field_shape, fold=False)

    def _lines(self) -> list[Line]:
        return [
            Line(nodes, *widths, periodic)
            for nodes, widths, periodic in zip(self.shape, self.ghosts, self.periodic, strict=True)
        ]


def _along_axes(field: Any, lines: Sequence[Line], shape: tuple[int, ...], *, fold: bool) -> Any:
    """Return a field without ghosts (``fold``) or with them, axis after axis."""
    for axis, line in enumerate(lines):
        after = (slice(None),) * (len(lines) - 1 - axis)
        sizes = list(field.shape)
        sizes[len(sizes) - len(lines) + axis] = shape[axis]
        result = _zeros_like(field, tuple(sizes))
        for ghosted, plain in line.runs():
            source, target = (ghosted, plain) if fold else (plain, ghosted)
            result[(..., target, *after)] += field[(..., source, *after)]
        field = result
    return field


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


def check_enough(mesh: Any, support: int) -> None:
    """Check that ghosts cover the stencils of ``support`` nodes that they are for."""
    for axis, (lower, upper) in enumerate(mesh.ghosts):
        if not (lower or upper) or not (mesh.periodic[axis] or mesh.is_part):
            continue
        if mesh.is_part:
            need, where = ((support - 1) // 2, support // 2), "axis of a part: give as many, or none to lose weights"
            if not mesh.periodic[axis]:  # no nodes beyond its ends
                start, stop = mesh.start[axis], mesh.start[axis] + mesh.shape[axis]
                need = min(need[0], start), min(need[1], mesh.whole.shape[axis] - stop)
        else:
            intervals, where = mesh.intervals[axis], "periodic axis: give as many, or none so that the axis wraps"
            offset = math.fmod(mesh.offset[axis], intervals)  # as for stencils
            # first = floor(u - support/2 + 1) for node coordinates u of -offset to intervals - offset
            need_low = -math.floor(-offset - support / 2 + 1)
            last = math.floor(np.nextafter(intervals, 0) - offset - support / 2 + 1) + support - 1
            need = max(need_low, 0), max(last - mesh.shape[axis] + 1, 0)
        if lower < need[0] or upper < need[1]:
            raise ValueError(
                f"ghosts[{axis}] is {(lower, upper)}; a window of support {support} needs {need} ghosts beyond "
                f"the ends of this {where}."
            )
