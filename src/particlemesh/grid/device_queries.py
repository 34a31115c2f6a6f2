# SPDX-License-Identifier: BSD-3-Clause
"""The queries of a grid on a GPU: arguments that users give, to the searches that take native arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from particlemesh.arrays.positions import Coordinates
from particlemesh.grid import nearest, stream, tight
from particlemesh.grid.cloud import Cloud
from particlemesh.grid.method import Room
from particlemesh.grid.pair_function import PairFunction
from particlemesh.grid.pairs import Extents, Searcher
from particlemesh.grid.results import Pairs
from particlemesh.grid.storage import Storage, TightLists
from particlemesh.sorting.keys import FIRST, NOT_FINITE, OUTSIDE


class DeviceQueries:
    """What one build answers; every method takes and returns native arrays."""

    def __init__(self, cloud: Cloud, storage: Storage, searcher: Searcher, scratch: Room) -> None:
        self.cloud, self.storage, self.searcher, self.scratch = cloud, storage, searcher, scratch

    def check(self) -> None:
        """Raise what searches with ``check=False`` found wrong; waits for the device."""
        self.searcher.unread.check()

    def asked_again(self, *question: Any) -> None:
        """Say that lists were made again without this object."""
        self.searcher.unread.again(question)

    def pairs(
        self, radius: Any, half: bool, order: str, form: str, quantities: str, width: int | None,
        capacity: int | None, check: bool,
    ) -> Pairs:  # fmt: skip
        question = (radius, half, order, form, quantities, width, capacity, check)
        unread = self.searcher.unread
        found = self.searcher.find(
            self.cloud, self._reach(radius), half=half, order=order, form=form, quantities=quantities, width=width,
            capacity=capacity, check=check, notes="" if check else unread.place(question),
        )  # fmt: skip
        if not check:
            unread.keep(question, found.words, capacity, width)
        return found.pairs

    def count(self, radius: Any, order: str, check: bool) -> Any:
        return self.searcher.count(self.cloud, self._reach(radius), order=order, check=check)

    def neighbours(self, points: Coordinates, radius: float, quantities: str) -> Pairs:
        return self.searcher.find(self.cloud, radius, points=points, half=False, quantities=quantities).pairs

    def nearest(self, k: int, radius: float, points: Coordinates | None) -> tuple[Any, Any]:
        found = nearest.nearest(self.cloud, k, radius, points)
        if found.status is not None:
            words = self.cloud.backend.download(found.status)
            if words[NOT_FINITE] or words[OUTSIDE]:
                raise ValueError(
                    f"{int(words[NOT_FINITE])} points are not finite and {int(words[OUTSIDE])} are 2**20 boxes away or "
                    f"more; the first is point {int(~words[FIRST])}."
                )
        return found.indices, found.distances

    def overlaps(self, shape: str | None, quantities: str) -> Pairs:
        cloud = self.cloud
        if isinstance(self.storage, TightLists):
            return tight.overlaps(
                cloud.backend, cloud.cells, cloud.count, self.storage, cloud.status,
                cloud.extents if cloud.extent_axes == 3 else None, cloud.extent_axes, shape=shape,
                quantities=quantities, allocate_scratch=self.scratch,
            )  # fmt: skip
        extents, axes = cloud.extents, cloud.extent_axes
        if shape == "box" and axes == 1:  # cubes
            edges = self.scratch("cubes", (cloud.count, 3), cloud.cells.dtype)
            if cloud.count:
                missing = 3 - cloud.cells.box.ndim
                cloud.backend.clear(edges)
                for axis in range(missing, 3):
                    cloud.backend.copy(edges[: cloud.count, axis], extents[: cloud.count])
            extents, axes = edges, 3
        found = self.searcher.find(
            cloud, Extents(extents, axes), half=True, order="input", form="coo", quantities=quantities
        )
        return found.pairs

    def stream(self, radius: float, function: PairFunction, values: Any) -> Any:
        return stream.stream(self.cloud, radius, function, values, allocate=self.scratch)

    def _reach(self, radius: Any) -> float | Extents:
        return float(radius) if isinstance(radius, (int, float, np.number)) else Extents(radius, 1)
