# SPDX-License-Identifier: BSD-3-Clause
"""The queries of a grid on a GPU, with or without waiting for them."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from particlemesh.arrays.kinds import allocate
from particlemesh.arrays.positions import Coordinates
from particlemesh.backends.base import Record
from particlemesh.grid import checks
from particlemesh.grid.queries import same_bits
from particlemesh.grid.queries.cloud import Cloud, kernel_radius
from particlemesh.grid.queries.pair_function import PairFunction
from particlemesh.grid.queries.pair_lists import PairLists
from particlemesh.grid.queries.search import Extents, Question, Search
from particlemesh.grid.queries.sums import sums
from particlemesh.grid.results import Pairs
from particlemesh.sorting.keys import FIRST, NOT_FINITE, OUTSIDE, STATUS_WORDS

_I32 = np.dtype(np.int32)


class DeviceQueries:
    """The queries of one build; every method takes and returns native arrays."""

    def __init__(self, cloud: Cloud, search: Search) -> None:
        self.cloud, self.search = cloud, search

    def pairs(
        self, radius: Any, half: bool, order: str = "input", form: str = "csr", quantities: str = "j",
        width: int | None = None, capacity: int | None = None, check: bool = True,
    ) -> Pairs:  # fmt: skip
        """Return lists of pairs, see `UniformGrid.pairs`; ``radius`` is a number or an array of radii.

        With ``check=False`` nothing waits, arrays have the length ``capacity``, the next search reuses their memory,
        and :meth:`check` reports what is wrong.
        """
        asked = (radius, half, order, form, quantities, width, capacity, check)
        notes = "" if check else self.search.place(asked)
        by_index = order == "input"
        question = self._ask(radius, half=half, rows_by_index=by_index and form != "coo", notes=notes)
        pairs = self._list(question, form, quantities, by_index, width, capacity, check=check)
        if not check:
            self.search.keep(asked, question.words, capacity, width)
        return pairs

    def check(self) -> None:
        """Raise the errors of searches with ``check=False``; waits for the device."""
        self.search.check()

    def asked_again(self, *asked: Any) -> None:
        """Mark lists with ``check=False`` as repeated: a tape or a graph did it."""
        self.search.asked_again(asked)

    def rows_of(self, radius: float, quantities: str, least: int, most: int) -> Pairs:
        """Return the half list in which only particles with indices from ``least`` to ``most`` have rows."""
        question = self._ask(radius, half=True, rows_by_index=True)
        question.some = least, most
        return self._list(question, "csr", quantities)

    def count(self, radius: Any, order: str, check: bool) -> Any:
        """Return how many pairs each particle has, (rows,) int32; waits only to check radii."""
        by_index, search = order == "input", self.search
        question = self._ask(radius, half=False, rows_by_index=by_index)
        search.check_rows(question, "", check, counted=True)
        counts = allocate(search.backend, (question.rows,), _I32, "counts of pairs")
        if by_index and question.rows:
            search.backend.clear(counts)  # particles that were left out have none
        search.count_rows(question, counts, by_index)
        if check and question.reach_is:
            search.verdict(question.words)
        return counts

    def neighbours(self, radius: float, quantities: str, points: Coordinates, system: Any) -> Pairs:
        """Return the particles near each point. Points have a ``system`` each, if particles have one."""
        return self._list(self.search.ask(self.cloud, radius, points, False, False, system=system), "csr", quantities)

    def nearest(self, k: int, radius: float, points: Coordinates | None, system: Any) -> tuple[Any, Any]:
        """Return indices and distances (rows, k) of the nearest particles of each particle or point.

        A particle is not its own neighbour, but its images are; each image counts separately. Equal squared distances
        go by index, so that the result does not depend on the order of particles within cells. Each k is compiled
        separately. Points have a ``system`` each, if particles have one. Waits only to check points.
        """
        cloud, cells, backend = self.cloud, self.cloud.cells, self.search.backend
        dtype, reach = cells.dtype, kernel_radius(radius, cells, points=points is not None)
        guess = checks.first_radius(k, cells.box.volume, cells.shape, cloud.count / max(cells.systems, 1))
        search = Record(f"=5{dtype.char}", reach, checks.square_within(reach, dtype), *guess)
        rows, bins = cloud.count if points is None else points.count, cells.count
        indices = allocate(backend, (rows, k), np.int32, "the nearest particles")
        distances = allocate(backend, (rows, k), dtype, "the distances of the nearest particles")
        if not rows:
            return indices, distances
        defines = {**cloud.defines(), "EXTENTS": 0, "K": k, "POINTS": int(points is not None)}
        if points is None:
            empty = backend.kernel("grid/queries/nearest.c", "no_neighbours", defines)
            empty(rows * k, cloud.start, indices, distances, rows, bins)
            status, x, strides = cloud.status, (cloud.records,) * 3, Record("=6q", *[0] * 6)
        else:
            status, x, strides = backend.empty((STATUS_WORDS,), np.uint64), points.arguments(), points.record()
            backend.clear(status)
        backend.kernel("grid/queries/nearest.c", "nearest", defines)(
            rows, *cloud.rows(system), cloud.records, cloud.start, cloud.start if cloud.ends is None else cloud.ends,
            *x, status, indices, distances, rows, bins, strides, *cloud.geometry(), search,
        )  # fmt: skip
        if points is not None:
            words = backend.download(status)
            checks.good_points(int(words[NOT_FINITE]), int(words[OUTSIDE]), int(~words[FIRST]))
        return indices, distances

    def overlaps(self, shape: str | None, quantities: str) -> Pairs:
        """Return the pairs of particles that overlap, each once."""
        cloud, backend = self.cloud, self.search.backend
        extents, axes = cloud.extents, cloud.extent_axes
        if shape == "box" and axes == 1:  # cubes
            edges = self.search.room("cubes", (cloud.count, 3), cloud.cells.dtype)
            if cloud.count:
                backend.clear(edges)
                for axis in range(3 - cloud.cells.box.ndim, 3):
                    backend.copy(edges[: cloud.count, axis], extents[: cloud.count])
            extents, axes = edges, 3
        question = self._ask(Extents(extents, axes), half=True, rows_by_index=False)
        return self._list(question, "coo", quantities)

    def stream(self, radius: float, function: PairFunction, values: Any, out: Any, *, exact: bool) -> Any:
        """Return the sums of a pair function over each particle's neighbours, exact ones in any order; never waits."""
        cloud, room = self.cloud, self.search.room
        made = functools.partial(sums, cloud, radius, allocate=room)
        if not exact or not cloud.count:
            return made(function, values, out)
        dtype = cloud.cells.dtype
        if out is None:
            out = allocate(cloud.backend, (cloud.count, function.results), dtype, "sums over neighbours")
        return same_bits.on_device(made, cloud.backend, function, values, out, cloud.count, dtype, room)

    def _ask(self, radius: Any, *, half: bool, rows_by_index: bool, notes: str = "") -> Question:
        """Return what is asked about particles within one radius, the sum of two, or the extents of both."""
        one = isinstance(radius, (int, float, np.number, Extents))
        return self.search.ask(self.cloud, radius if one else Extents(radius, 1), None, half, rows_by_index, notes)

    def _list(
        self, question: Question, form: str, quantities: str, by_index: bool = True, width: int | None = None,
        capacity: int | None = None, *, check: bool = True,
    ) -> Pairs:  # fmt: skip
        lists = self._lists(question, form, quantities, by_index, check=check)
        return lists.dense(width) if form == "dense" else lists.compact(capacity)

    def _lists(self, question: Question, form: str, quantities: str, by_index: bool, *, check: bool) -> PairLists:
        self.search.check_rows(question, quantities, check)
        rows_by_index = by_index and question.points is None and form != "coo"
        return PairLists(self.search, question, form, quantities, by_index, rows_by_index, check)


def lists_of(queries: DeviceQueries, radius: Any, half: bool, quantities: str) -> PairLists:
    """Return the search for rows of particles by their indices, to be submitted and concluded apart."""
    question = queries._ask(radius, half=half, rows_by_index=True)
    return queries._lists(question, "csr", quantities, by_index=True, check=True)
