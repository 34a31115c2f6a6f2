# SPDX-License-Identifier: BSD-3-Clause
"""The queries of a grid on the CPU: arguments that users give, to the searches."""

from __future__ import annotations

from typing import Any

import numpy as np

from particlemesh.arrays.positions import Coordinates
from particlemesh.grid import checks
from particlemesh.grid.cpu.queries.cloud import CpuCloud
from particlemesh.grid.cpu.queries.nearest import nearest
from particlemesh.grid.cpu.queries.pairs import count, neighbours, overlaps, pairs
from particlemesh.grid.cpu.queries.sums import sums
from particlemesh.grid.queries.pair_function import PairFunction
from particlemesh.grid.results import Pairs


class CpuQueries:
    """The queries of one build, in NumPy arrays."""

    def __init__(self, cloud: CpuCloud, threads: int | None, *, scattered: bool) -> None:
        self.cloud, self.threads = cloud, threads
        self.scattered = scattered  # the grid's order is not that of the cells' numbers, in which searches go

    def pairs(
        self, radius: Any, half: bool, order: str, form: str, quantities: str, width: int | None,
        capacity: int | None, check: bool,
    ) -> Pairs:  # fmt: skip
        self._linear(order)
        return pairs(
            self.cloud, radius, half=half, order=order, form=form, quantities=quantities, width=width,
            threads=self.threads,
        )  # fmt: skip

    def count(self, radius: Any, order: str, check: bool) -> np.ndarray:
        self._linear(order)
        return count(self.cloud, radius, order=order, threads=self.threads)

    def neighbours(self, points: Coordinates, radius: float, quantities: str, system: Any) -> Pairs:
        rows, faults = neighbours(
            self.cloud, points.arrays, radius, system, quantities=quantities, threads=self.threads
        )
        checks.good_points(faults.not_finite, faults.outside, faults.first)
        return rows

    def nearest(self, k: int, radius: float, points: Coordinates | None, system: Any) -> tuple[np.ndarray, np.ndarray]:
        x = None if points is None else points.arrays
        indices, distances, faults = nearest(self.cloud, k, radius, x, system, threads=self.threads)
        if faults is not None:
            checks.good_points(faults.not_finite, faults.outside, faults.first)
        return indices, distances

    def overlaps(self, shape: str | None, quantities: str) -> Pairs:
        return overlaps(self.cloud, shape=shape, quantities=quantities, threads=self.threads)

    def stream(self, radius: float, function: PairFunction, values: Any, out: Any) -> np.ndarray:
        totals = sums(
            self.cloud, radius, function.on_cpu, function.results, values, function.parameters, threads=self.threads
        )
        if out is None:
            return totals
        out[...] = totals
        return out

    def asked_again(self, *question: Any) -> None:
        """Searches wait."""

    def _linear(self, order: str) -> None:
        if order == "grid" and self.scattered:
            raise ValueError("order='grid' on the CPU needs curve='linear': searches go along the cells' numbers.")
