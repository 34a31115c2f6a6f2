# SPDX-License-Identifier: BSD-3-Clause
"""The sizes of a grid, and the input of a build."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from particlemesh.arrays import operands
from particlemesh.arrays.kinds import Kind, kind_of
from particlemesh.arrays.positions import Coordinates
from particlemesh.backends.base import Backend
from particlemesh.box import Box
from particlemesh.grid import checks
from particlemesh.grid.builders.job import Problem
from particlemesh.grid.checks import levels_of
from particlemesh.grid.systems import SystemBoxes
from particlemesh.sorting.keys import Cells, cells_in


@dataclass(frozen=True)
class Sizes:
    """A box cut into cells, and how a grid is built: all that is known before particles come."""

    box: Box
    shape: tuple[int, ...]  # cells of the finest level
    levels: int
    follows_radii: bool  # each build on the CPU makes the levels that its radii take
    deterministic: bool
    queries: bool
    threads: int | None  # on the CPU
    options: dict[str, Any]  # of the builder
    systems: int | None = None

    @functools.cached_property
    def cells(self) -> int:
        """Cells of all levels and systems."""
        return cells_in(self.shape, self.levels) * (self.systems or 1)

    @functools.cached_property
    def edge(self) -> float:
        """What level 0 is for: no wider than its cells, across their faces."""
        return float((1 / np.linalg.norm(self.box.inverse, axis=1) / np.array(self.shape)).min())

    @functools.cached_property
    def _geometries(self) -> dict[np.dtype, Cells]:
        types = (np.dtype(np.float32), np.dtype(np.float64))
        return {t: Cells(self.box, self.shape, self.levels, self.edge, t) for t in types}

    def geometry(self, dtype: np.dtype, boxes: SystemBoxes | None = None) -> Cells:
        """Return the cells for positions of one type; without systems the same object every time."""
        cells = self._geometries[dtype]
        return cells if boxes is None else replace(cells, systems=boxes.count, most_per=tuple(boxes.per.tolist()))

    def fitted(self, radii: np.ndarray | None) -> Sizes:
        """Return sizes with cells for the largest of radii (N,) or half edges (N, d) on the last level, if it follows.

        None stands for no radii, or one number for all: these take one level.
        """
        if not self.follows_radii:
            return self
        largest = 0.0 if radii is None else 2 * float(radii.max(initial=0))
        return self.on_levels(levels_of(self.shape, self.edge, largest, self.systems or 1))

    def on_levels(self, levels: int) -> Sizes:
        """Return the sizes with another number of levels; the same object if there are as many already."""
        return self if levels == self.levels else replace(self, levels=levels)

    def problem(self, backend: Backend, count: int, dtype: Any, extents: int, buckets: int) -> Problem:
        """Return the problem that builders decide on; with ``buckets`` the items are keys without positions."""
        return Problem(
            backend, buckets or self.cells, 0 if buckets else self.box.ndim, count,
            np.dtype(np.float32) if dtype is None else dtype, self.queries and not buckets, self.deterministic, extents,
            self.levels, self.shape, self.options, systems=self.systems or 0,
        )  # fmt: skip


class Input(NamedTuple):
    """What a user gives to a build: positions and radii, or keys of buckets."""

    kind: Kind  # of the first array
    array: Any  # positions as they were given, or keys
    x: Coordinates | None  # None for keys
    radii: Any
    buckets: int  # 0 for positions
    upload: bool  # host arrays are copied to the backend
    check: bool
    boxes: SystemBoxes | None = None  # of systems
    system: Any = None  # of each particle, native

    @property
    def dtype(self) -> Any:
        """Type of the positions, None for keys."""
        return None if self.x is None else self.x.dtype

    def extents(self, ndim: int, backend: Backend) -> tuple[Any, int]:
        """Return the radii: a number for all or a native array in a type that holds them, and how many each has.

        Raises
        ------
        ValueError, TypeError
            If they are not one number, (N,) or (N, d), or have more precision than the positions.
        """
        assert self.x is not None
        radii = self.radii
        if np.isscalar(radii) or (kind_of(radii) is not None and not radii.shape):
            return checks.radius(radii), 1
        kind, array = operands.adopt(radii, "radii")
        axes = checks.radii_shape(tuple(array.shape), self.x.count, ndim)
        upload = self.upload or kind.home != self.kind.home
        native = operands.to_backend(kind, array, backend, "radii", upload=upload)
        checks.narrow_enough(native.dtype, self.x.dtype, listed=array is not radii)
        return native, axes


def spread_evenly(box: Box, count: int) -> np.ndarray:
    """Return positions (count, d) that are spread evenly over a box."""
    fractions = np.arange(count)[:, None] * np.array((0.618033988749895, 0.754877666246693, 0.8191725133961645))
    return (fractions % 1)[:, : box.ndim] @ box.matrix + box.origin
