# SPDX-License-Identifier: BSD-3-Clause
"""Particles in the order of their cells, as queries on GPUs read them."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from particlemesh.arrays.positions import open_bounds
from particlemesh.backends.base import Backend, Record
from particlemesh.box import Box
from particlemesh.grid.checks import check_squares
from particlemesh.sorting.keys import Cells

MOST_IMAGES = 2**20  # of a particle within reach
MOST_CELLS_AWAY = 2**29  # two of them, and the box between, are fewer than 2**31


@dataclass
class Cloud:
    """What a build leaves for queries.

    Attributes
    ----------
    count : int
        Particles given to the build; ``start[cells.count]`` of them take part, a number on the device.
    records : (count, 4)
        Folded coordinates, missing axes first, and the particle's index as the bits of a real, by cell.
    start : (cells + 1,) uint32
        Where each cell starts.
    ends : (cells,) uint32 or None
        Where each cell ends, if cells are not in the order of their numbers.
    turns : (count,) uint64
        Whole turns that folding subtracted, in the caller's order; valid only if the status reports any.
    status : (8,) uint64
        See sorting/cells.h.
    extents : (count,) or (count, 3), or None
        Radii or half edges in the caller's order, missing axes first.
    extent_axes : int
        0, 1 or 3: what ``extents`` are.
    occupied : (occupied_cells,) uint64 or None
        Of sparse cells: the ascending numbers of the cells that ``start`` has.
    systems : (count,) int32 and (systems, NUMBERS), or nothing
        The system of each particle in the caller's order, and the numbers of all systems (grid/systems.py).
    number : int
        Of the build; 0 if searches of it are not repeated.
    """

    backend: Backend
    cells: Cells
    count: int
    records: Any
    start: Any
    ends: Any
    turns: Any
    status: Any
    extents: Any = None
    extent_axes: int = 0
    occupied: Any = None
    occupied_cells: int = 0
    systems: tuple[Any, ...] = ()
    number: int = 0

    @property
    def bins(self) -> int:
        """Cells that ``start`` has."""
        return self.cells.count if self.occupied is None else self.occupied_cells

    def defines(self) -> dict[str, int]:
        """Return what every kernel over a cloud is compiled with."""
        wide = int(self.cells.dtype.itemsize == 8)
        several = {"SYSTEMS": 1} if self.systems else {}
        return {
            "REAL_IS_DOUBLE": wide, "COORDINATE_IS_DOUBLE": wide, "KEYS_ARE_POSITIONS": 1,
            "CELLS_ARE_SCATTERED": int(self.ends is not None), "CELLS_ARE_SPARSE": int(self.occupied is not None),
            **several,
        }  # fmt: skip

    def rows(self, points: Any = None) -> tuple[Any, ...]:
        """Return the systems of rows and the numbers of all systems, the first arguments after those of points.

        Rows are those of particles, or of points with the systems ``points``. Nothing, if there are no systems.
        """
        return self.systems if points is None else (points, *self.systems[1:])

    def geometry(self) -> tuple[Record, ...]:
        """Return ``Geometry``, ``Frame``, ``Cells`` and ``Reach``, the last arguments of every kernel."""
        return (*self.cells.records(), reach_record(self.cells))


def reach_record(cells: Cells) -> Record:
    """Return ``Reach``: a distance in fractions, and what rounding may take from the difference of two."""
    box, dtype = cells.box, cells.dtype
    missing = 3 - box.ndim
    per, margin = np.zeros(3), np.zeros(3)
    per[missing:] = np.sqrt((box.inverse**2).sum(1)) * (1 + 4 * np.finfo(dtype).eps)
    margin[missing:] = margin_of(cells)
    return Record(f"=6{dtype.char}", *per, *margin)


def margin_of(cells: Cells) -> np.ndarray:
    """Return what rounding may take from the difference of two fractions of the box, (d,)."""
    box = cells.box
    lower, _ = open_bounds(box.origin, box.inverse, None, False, cells.dtype)
    return -4 * lower


@functools.lru_cache(maxsize=64)
def few_images(radius: float, box: Box, per: tuple[float, ...] | None = None) -> None:
    """Raise a ValueError if a particle has more than 2**20 images within reach.

    A distance of one spans ``per`` fractions across the faces of each axis; by default those of ``box``.
    """
    per = tuple(np.sqrt((box.inverse**2).sum(1))) if per is None else per
    turned = [p for p, periodic in zip(per, box.periodic, strict=True) if periodic]
    images = math.prod([int(2 * np.ceil(min(float(radius) * p, 2.0**40)) + 1) for p in turned])
    if images > MOST_IMAGES:
        raise ValueError(f"radius is {radius!r}: {images:,} images of every particle; {MOST_IMAGES:,} are the most.")


@functools.lru_cache(maxsize=64)
def kernel_radius(radius: float, cells: Cells, *, points: bool = False) -> float:
    """Return a radius that is finite in the positions' type and spans few cells of a periodic axis.

    ``points``: rows are of points anywhere, not of particles.

    Raises
    ------
    ValueError
        If the cells within reach, images included, could not be counted in 32 bits, or the type does not hold squares.
    """
    per = (cells.per * cells.shape)[np.array(cells.box.periodic)]
    if radius * per.max(initial=0) >= MOST_CELLS_AWAY:
        raise ValueError(f"radius is {radius!r}: that is 2**29 cells or more along a periodic axis.")
    check_squares(radius, cells.box.matrix, cells.dtype, bounded=not (points or any(cells.box.periodic)))
    return min(radius, float(np.finfo(cells.dtype).max))
