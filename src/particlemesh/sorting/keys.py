# SPDX-License-Identifier: BSD-3-Clause
"""The source of bins for kernels (sorting/cells.h): an array of keys, or positions in cells."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from particlemesh.arrays.positions import Coordinates, frame_record, geometry_record
from particlemesh.backends.base import Record
from particlemesh.box import Box

STATUS_WORDS = 8
NOT_FINITE, OUTSIDE, FIRST, BAD_RADIUS, FULLEST, FOLDED = range(6)


@dataclass
class Keys:
    """Items with a bin each: leading arrays and trailing records of kernel arguments, and defines."""

    count: int
    bins: int
    arrays: tuple[Any, ...]
    records: tuple[Record, ...] = ()
    defines: dict[str, Any] = field(default_factory=dict)


def array_keys(keys: Any, count: int, bins: int) -> Keys:
    """Return the items of an integer array; negative keys are left out."""
    wide = int(keys.dtype.itemsize == 8)
    return Keys(count, bins, (keys,), (), {"REAL_IS_DOUBLE": 0, "KEYS_ARE_POSITIONS": 0, "KEY_IS_64": wide})


def level_shapes(shape: tuple[int, ...], levels: int) -> list[tuple[int, ...]]:
    """Return the cells per axis of every level: each level has half as many as the previous, at least one."""
    return [tuple(max(1, n >> level) for n in shape) for level in range(levels)]


def cells_in(shape: tuple[int, ...], levels: int) -> int:
    """Return the number of cells of all levels."""
    return sum(math.prod(s) for s in level_shapes(shape, levels))


@dataclass(frozen=True)
class Cells:
    """A box divided into cells, on one or several levels, for positions of one type."""

    box: Box
    shape: tuple[int, ...]  # of the finest level
    levels: int
    edge: float  # the widest item of level 0; it doubles with each level
    dtype: np.dtype
    systems: int = 0  # each with as many cells, in a box of its own; 0: one box
    most_per: tuple[float, ...] = ()  # of systems: the most fractions that a distance of one spans

    @functools.cached_property
    def each(self) -> int:
        """The number of cells of all levels of one box."""
        return cells_in(self.shape, self.levels)

    @functools.cached_property
    def count(self) -> int:
        """The number of cells of all levels and systems."""
        return self.each * max(self.systems, 1)

    @functools.cached_property
    def per(self) -> np.ndarray:
        """Fractions that a distance of one spans across the faces of each axis, (d,), in any box."""
        return np.array(self.most_per) if self.systems else np.sqrt((self.box.inverse**2).sum(1))

    @property
    def padded(self) -> tuple[int, ...]:
        """The cells along three axes; missing axes come first."""
        return (1,) * (3 - len(self.shape)) + self.shape

    def records(self) -> tuple[Record, ...]:
        """Return ``Geometry``, ``Frame`` and ``Cells``."""
        return self._records

    @functools.cached_property
    def _records(self) -> tuple[Record, ...]:
        several = (self.systems, self.each) if self.systems else ()
        cells = Record(f"={4 + len(several)}i{self.dtype.char}", *self.padded, self.levels, *several, self.edge)
        return geometry_record(self.box, self.dtype), frame_record(self.box), cells

    def keys(self, x: Coordinates, extents: Any = None, extent_axes: int = 0, systems: tuple[Any, ...] = ()) -> Keys:
        """Return the items at positions; ``extents`` are radii (N,) or half edges (N, 3), by ``extent_axes``.

        ``systems`` are the system of each item and the numbers of all systems, if there are several.
        """
        wide = int(self.dtype.itemsize == 8)
        defines = {
            "REAL_IS_DOUBLE": wide, "COORDINATE_IS_DOUBLE": wide, "KEYS_ARE_POSITIONS": 1, "KEY_IS_64": 0,
            "EXTENTS": extent_axes, "NARROW_ITEMS": int(max(x.count, *map(abs, x.strides)) < 2**31),
        }  # fmt: skip
        if systems:
            defines["SYSTEMS"] = 1
        x0, x1, x2 = x.arguments()
        last = x2 if extents is None else extents
        return Keys(x.count, self.count, (x0, x1, x2, last, *systems), (x.record(), *self.records()), defines)
