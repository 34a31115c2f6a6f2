# SPDX-License-Identifier: BSD-3-Clause
"""The queries of a grid on the CPU: arguments that users give, to the searches."""

from __future__ import annotations

from typing import Any

import numpy as np

from particlemesh.arrays.geometry import Coordinates
from particlemesh.grid.cpu import search
from particlemesh.grid.cpu.cells import Cells, Found
from particlemesh.grid.cpu.cloud import CpuCloud
from particlemesh.grid.cpu.listing import Listed
from particlemesh.grid.cpu.lists import Lists
from particlemesh.grid.cpu.nearest import nearest
from particlemesh.grid.cpu.stream import stream
from particlemesh.grid.cpu.touching import overlaps_of_lists
from particlemesh.grid.pair_function import PairFunction
from particlemesh.grid.results import Pairs
from particlemesh.grid.storage import Storage, TightLists


class CpuQueries:
    """What one build answers, in NumPy arrays."""

    def __init__(
        self, cloud: CpuCloud, storage: Storage, cells: Cells, folded: np.ndarray, extents: np.ndarray | None,
        threads: int | None, *, scattered: bool,
    ) -> None:  # fmt: skip
        self.cloud, self.storage, self.cells, self.folded, self.extents = cloud, storage, cells, folded, extents
        self.threads = threads
        self.scattered = scattered  # the grid's order is not that of the cells' numbers, in which searches go

    def pairs(
        self, radius: Any, half: bool, order: str, form: str, quantities: str, width: int | None,
        capacity: int | None, check: bool,
    ) -> Pairs:  # fmt: skip
        self._linear(order)
        wanted = quantities + "i" if form == "coo" and "i" not in quantities else quantities
        found = search.pairs(
            self.cloud, radius, half=half, order=order, form=form, quantities=wanted, width=width,
            threads=self.threads,
        )  # fmt: skip
        return _pairs(found, form)

    def count(self, radius: Any, order: str, check: bool) -> np.ndarray:
        self._linear(order)
        return search.count(self.cloud, radius, order=order, threads=self.threads)

    def neighbours(self, points: Coordinates, radius: float, quantities: str) -> Pairs:
        found, wrong = search.neighbours(self.cloud, points.arrays, radius, quantities=quantities, threads=self.threads)
        _check_points(wrong)
        return _pairs(found, "csr")

    def nearest(self, k: int, radius: float, points: Coordinates | None) -> tuple[np.ndarray, np.ndarray]:
        x = None if points is None else points.arrays
        indices, distances, wrong = nearest(self.cloud, k, radius, x, threads=self.threads)
        if wrong is not None:
            _check_points(wrong)
        return indices, distances

    def overlaps(self, shape: str | None, quantities: str) -> Pairs:
        if not isinstance(self.storage, TightLists):
            found = search.overlaps(self.cloud, shape=shape, quantities=quantities, threads=self.threads)
            return _pairs(found, "coo")
        assert self.extents is not None
        found = overlaps_of_lists(
            Lists(self.storage.heads, self.storage.next), self.folded, self.cloud.turns, self.extents, self.cells,
            shape=shape, quantities=quantities, threads=self.threads,
        )  # fmt: skip
        return _pairs(found, "coo")

    def stream(self, radius: float, function: PairFunction, values: Any) -> np.ndarray:
        return stream(
            self.cloud, radius, function.on_cpu, function.results, values, function.parameters, threads=self.threads
        )

    def asked_again(self, *question: Any) -> None:
        """Searches wait."""

    def _linear(self, order: str) -> None:
        if order == "grid" and self.scattered:
            raise ValueError("order='grid' on the CPU needs curve='linear': searches go along the cells' numbers.")


def _pairs(found: Listed, form: str) -> Pairs:
    counts = found.counts if form == "dense" else None
    return Pairs(found.start, found.i, found.j, found.shift, found.distance, found.vector, counts)


def _check_points(wrong: Found) -> None:
    """Raise what is wrong with points."""
    if wrong.first >= 0:
        raise ValueError(
            f"{wrong.not_finite} points are not finite and {wrong.outside} are 2**20 boxes away or more; the first is "
            f"point {wrong.first}."
        )
