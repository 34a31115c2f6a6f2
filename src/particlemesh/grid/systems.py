# SPDX-License-Identifier: BSD-3-Clause
"""The boxes of systems that share a grid: particles of one never see those of another.

Each system has cells of its own, as many as every other. The cell of a particle is that in its box plus the cells of
the systems before. Builders see more cells and nothing else. Searches begin at the first cell of their system.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from particlemesh.arrays.lattices import DeviceBoxes
from particlemesh.arrays.positions import frame_record, lattices, tails_of
from particlemesh.backends.base import Record
from particlemesh.box import Box, faces
from particlemesh.grid.ends import Cloud, Lattice
from particlemesh.grid.room import Room

# Numbers of a system on a GPU, as sorting/cells.h has them: Geometry, whether the box is orthorhombic, Reach, scale.
GEOMETRY, FLAG, REACH, NUMBERS = slice(0, 37), 37, slice(38, 44), 45

_FAR = 2.0**60  # from zero: float32 holds squares of distances within it


class SystemBoxes:
    """Lattice vectors (S, d, d) and origins (S, d) of systems, in double precision; ``box`` has the periodic axes."""

    def __init__(self, box: Box, rows: np.ndarray, origins: np.ndarray) -> None:
        self.box, self.rows, self.origins = box, rows + 0.0, origins + 0.0
        self.count = len(rows)
        self._tables: dict[np.dtype, np.ndarray] = {}
        self.fitted_before: tuple[Any, Any] = None, None  # of the last call of `fitted`

    @functools.cached_property
    def orthorhombic(self) -> np.ndarray:
        """Whether each lattice is diagonal, (S,)."""
        return np.asarray((self.rows * (1 - np.eye(self.box.ndim)) == 0).all((1, 2)))

    @functools.cached_property
    def inverse(self) -> np.ndarray:
        """Matrices from positions to fractions (S, d, d), with the arithmetic of ``Box.inverse``."""
        inverse, straight = np.zeros_like(self.rows), self.orthorhombic
        for a in range(self.box.ndim):
            inverse[straight, a, a] = 1.0 / self.rows[straight, a, a]
        inverse[~straight] = np.linalg.inv(self.rows[~straight]).swapaxes(1, 2)
        return inverse

    @functools.cached_property
    def lattice(self) -> Lattice:
        """What a fit of open axes needs."""
        return Lattice(np.ascontiguousarray(self.origins.T), np.ascontiguousarray(self.inverse.transpose(1, 2, 0)))

    @functools.cached_property
    def wide(self) -> SystemBoxes | None:
        """The boxes with open axes that hold all particles, wherever they are; see `widened`."""
        wide = widened(self.rows, self.origins, np.array(self.box.periodic))
        return None if wide is None else SystemBoxes(self.box, *wide)

    @functools.cached_property
    def per(self) -> tuple[float, ...]:
        """The most fractions that a distance of one spans across the faces of each axis."""
        return tuple(np.sqrt((self.inverse**2).sum(2)).max(0).tolist())

    @functools.cached_property
    def thickness(self) -> tuple[float, ...]:
        """The mean distances between the faces of each axis."""
        return tuple((1 / np.linalg.norm(self.inverse, axis=2)).mean(0).tolist())

    @functools.cached_property
    def scale(self) -> np.ndarray:
        """Edges of cubes of each system's volume, relative to that of the grid's box, (S,)."""
        d = self.box.ndim  # roots first: products of lengths may be beyond float64
        if self.orthorhombic.all():
            edges = (np.diagonal(self.rows, axis1=1, axis2=2) ** (1 / d)).prod(1)
        else:
            edges = np.exp(np.linalg.slogdet(self.rows)[1] / d)
        return np.asarray(edges / self.box.volume ** (1 / d))

    def table(self, dtype: np.dtype) -> np.ndarray:
        """Return the numbers (S, NUMBERS) of all systems, the same array every time.

        Raises
        ------
        ValueError
            If a box is beyond the range of ``dtype``.
        """
        if dtype not in self._tables:
            self._tables[dtype] = self._table(dtype)
        return self._tables[dtype]

    def on(self, room: Room, dtype: np.dtype) -> Any:
        """Return the numbers of all systems in memory of a GPU."""
        return room.table("boxes", self.table(dtype))

    def _table(self, dtype: np.dtype) -> np.ndarray:
        d, inverse = self.box.ndim, self.inverse
        missing, most = 3 - d, float(np.finfo(dtype).max) / 16
        largest = np.maximum.reduce(
            [np.abs(a).reshape(self.count, -1).max(1) for a in (self.rows, inverse, self.origins)]
        )
        if (wrong := np.flatnonzero(~(largest <= most))).size:
            raise ValueError(
                f"boxes[{wrong[0]}] is beyond the range of {dtype.name}: lengths, origin and 1 / length must be below "
                f"{most:.2g}."
            )
        # As in arrays/positions.py, for all systems at once.
        size = np.abs(self.rows).sum(1) + 2 * np.abs(self.origins)
        slack = 4 * np.finfo(dtype).eps * np.einsum("sab,sb->sa", np.abs(inverse), size)
        straight = self.orthorhombic[:, None]
        lengths = np.diagonal(self.rows, axis1=1, axis2=2)
        table = np.zeros((self.count, NUMBERS))
        vectors = table[:, :3], table[:, 30:33], table[:, 33:36], table[:, 38:41], table[:, 41:44]
        per = np.sqrt((inverse**2).sum(2)) * (1 + 4 * np.finfo(dtype).eps)
        least, most_inside = faces(np.where(straight, self.origins, 0.0), np.where(straight, lengths, 1.0), dtype)
        periodic = np.array(self.box.periodic)
        lower = np.where(periodic, least, np.where(straight, self.origins, -slack))
        upper = np.where(periodic, most_inside, np.where(straight, self.origins + lengths, 1 + slack))
        numbers = self.origins, lower, upper, per, 4 * slack
        for columns, values in zip(vectors, numbers, strict=True):
            columns[:, missing:] = values
        for first, values in ((3, inverse), (12, self.rows), (21, tails_of(self.rows, dtype))):
            table[:, first : first + 9].reshape(self.count, 3, 3)[:, missing:, missing:] = values
        table[:, 36], table[:, FLAG], table[:, NUMBERS - 1] = 1, self.orthorhombic, self.scale
        return table.astype(dtype)


class DerivedBoxes:
    """Boxes of systems that are on a GPU, for one state of their bounds; ``box`` has the periodic axes."""

    def __init__(self, given: DeviceBoxes) -> None:
        self.given, self.box, self.count = given, given.box, given.count
        self.bounds, self.per = given.bounds, given.bounds.per

    def on(self, room: Room, dtype: np.dtype) -> Any:
        """Write the numbers of all systems to memory of a GPU, and return it.

        Raises
        ------
        ValueError
            If a box may be beyond the range of ``dtype``.
        """
        box, most = self.box, float(np.finfo(dtype).max) / 16
        largest = max(*self.per, *self.bounds.longest, *np.abs(box.origin))
        if not largest <= most:
            raise ValueError(
                f"boxes have lengths, an origin or 1 / length of size {largest:.2g}, beyond the range of {dtype.name}: "
                f"they must be below {most:.2g}."
            )
        table = room("derived boxes", (self.count, NUMBERS), dtype)
        origin = np.zeros(3)
        origin[3 - box.ndim :] = box.origin
        defines = {"REAL_IS_DOUBLE": 1, "COORDINATE_IS_DOUBLE": int(dtype.itemsize == 8)}
        room.backend.kernel("grid/systems.c", "numbers_of_systems", defines)(
            self.count, self.given.numbers, table, self.count, frame_record(box),
            Record("=5d", *origin, box.volume ** (1 / box.ndim), float(np.finfo(dtype).eps)),
        )  # fmt: skip
        return table


def boxes_of(given: Any, count: int, box: Box, before: Any) -> Any:
    """Return the boxes of ``count`` systems, all those of the grid if None is given; ``before`` if they are the same.

    Raises
    ------
    ValueError, TypeError
        If they are no boxes, or of another number; the first wrong one is named.
    """
    if isinstance(given, SystemBoxes):
        return given
    if isinstance(given, DeviceBoxes):
        same = isinstance(before, DerivedBoxes) and (before.given, before.bounds.per) == (given, given.bounds.per)
        return before if same else DerivedBoxes(given)
    if isinstance(before, DerivedBoxes):
        before = None
    if given is None:
        rows = np.broadcast_to(box.matrix, (count, box.ndim, box.ndim))
    else:
        rows = lattices(given, count, box.ndim)
    if before is not None and np.array_equal(before.rows, rows):
        return before
    return SystemBoxes(box, rows, np.broadcast_to(box.origin, (count, box.ndim)))


def widened(rows: np.ndarray, origins: np.ndarray, periodic: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """Return lattice vectors (S, d, d) and origins (S, d) whose open axes hold all particles; None of leaning boxes.

    Such an axis has one cell. Where it leans on a periodic one, the far origin would round positions.
    """
    lengths, unit = np.diagonal(rows, axis1=1, axis2=2), np.eye(len(periodic))
    if (rows != lengths[:, None] * unit).any():
        return None
    return np.where(periodic, lengths, 2 * _FAR)[:, None] * unit, np.where(periodic, origins, -_FAR)


def fitted(boxes: SystemBoxes, cloud: Cloud, reach: float, periodic: np.ndarray | None = None) -> SystemBoxes:
    """Return boxes whose open axes are as long as the particles of each system take; the same ones if they still are.

    ``periodic`` (S, d) are those of each system.
    """
    repeats = np.array(boxes.box.periodic)
    given = np.broadcast_to(repeats[:, None], (len(repeats), boxes.count)) if periodic is None else periodic.T
    fit = boxes.lattice.fit(cloud, reach, given, repeats)
    key = fit.tobytes()
    before, result = boxes.fitted_before
    if before != key:
        lengths, begins = np.ascontiguousarray(fit.swapaxes(1, 2))
        origins = boxes.origins + np.einsum("sa,sab->sb", begins, boxes.rows)
        result = SystemBoxes(boxes.box, boxes.rows * lengths[:, :, None], origins)
        boxes.fitted_before = key, result
    return result
