# SPDX-License-Identifier: BSD-3-Clause
"""The queries of a grid on a GPU: arguments that users give, to the searches that take native arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from particlemesh.arrays.positions import Coordinates
from particlemesh.grid import checks
from particlemesh.grid.queries.cloud import Cloud
from particlemesh.grid.queries.nearest import nearest
from particlemesh.grid.queries.pair_function import PairFunction
from particlemesh.grid.queries.pairs import Searcher
from particlemesh.grid.queries.search import Extents
from particlemesh.grid.queries.sums import sums
from particlemesh.grid.results import Pairs
from particlemesh.sorting.keys import FIRST, NOT_FINITE, OUTSIDE


class DeviceQueries:
    """The queries of one build; every method takes and returns native arrays."""

    def __init__(self, cloud: Cloud, searcher: Searcher, overlaps_in_storage: Callable[..., Pairs] | None) -> None:
        self.cloud, self.searcher, self._overlaps_in_storage = cloud, searcher, overlaps_in_storage

    def check(self) -> None:
        """Raise the errors of searches with ``check=False``; waits for the device."""
        self.searcher.unread.check()

    def asked_again(self, *question: Any) -> None:
        """Mark lists as repeated: a tape or a graph did it."""
        self.searcher.unread.again(question)

    def pairs(
        self, radius: Any, half: bool, order: str, form: str, quantities: str, width: int | None,
        capacity: int | None, check: bool,
    ) -> Pairs:  # fmt: skip
        question = (radius, half, order, form, quantities, width, capacity, check)
        unread = self.searcher.unread
        search = self.searcher.find(
            self.cloud, self._reach(radius), half=half, order=order, form=form, quantities=quantities, width=width,
            capacity=capacity, check=check, notes="" if check else unread.place(question),
        )  # fmt: skip
        if not check:
            unread.keep(question, search.words, capacity, width)
        return search.pairs

    def rows_of(self, radius: float, quantities: str, least: int, most: int) -> Pairs:
        """Return the half list in which only particles with indices from ``least`` to ``most`` have rows."""
        return self.searcher.find(
            self.cloud, radius, half=True, order="input", quantities=quantities, some=(least, most)
        ).pairs

    def count(self, radius: Any, order: str, check: bool) -> Any:
        return self.searcher.count(self.cloud, self._reach(radius), order=order, check=check)

    def neighbours(self, points: Coordinates, radius: float, quantities: str, system: Any) -> Pairs:
        return self.searcher.find(
            self.cloud, radius, points=points, half=False, quantities=quantities, system=system
        ).pairs

    def nearest(self, k: int, radius: float, points: Coordinates | None, system: Any) -> tuple[Any, Any]:
        rows = nearest(self.cloud, k, radius, points, system)
        if rows.status is not None:
            words = self.cloud.backend.download(rows.status)
            checks.good_points(int(words[NOT_FINITE]), int(words[OUTSIDE]), int(~words[FIRST]))
        return rows.indices, rows.distances

    def overlaps(self, shape: str | None, quantities: str) -> Pairs:
        if self._overlaps_in_storage is not None:
            return self._overlaps_in_storage(shape, quantities)
        cloud = self.cloud
        extents, axes = cloud.extents, cloud.extent_axes
        if shape == "box" and axes == 1:  # cubes
            edges = self.searcher.room("cubes", (cloud.count, 3), cloud.cells.dtype)
            if cloud.count:
                missing = 3 - cloud.cells.box.ndim
                cloud.backend.clear(edges)
                for axis in range(missing, 3):
                    cloud.backend.copy(edges[: cloud.count, axis], extents[: cloud.count])
            extents, axes = edges, 3
        return self.searcher.find(
            cloud, Extents(extents, axes), half=True, order="input", form="coo", quantities=quantities
        ).pairs

    def stream(self, radius: float, function: PairFunction, values: Any, out: Any) -> Any:
        return sums(self.cloud, radius, function, values, out, allocate=self.searcher.room)

    def _reach(self, radius: Any) -> float | Extents:
        return float(radius) if isinstance(radius, (int, float, np.number)) else Extents(radius, 1)
