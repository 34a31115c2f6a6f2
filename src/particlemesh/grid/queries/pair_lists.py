# SPDX-License-Identifier: BSD-3-Clause
"""Lists of pairs on GPUs: rows that follow each other, or rows of one width."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from particlemesh.backends.base import Unread, allocate
from particlemesh.grid.checks import FIELDS, array_types, wants
from particlemesh.grid.queries.marks import Marks, marks_of_row
from particlemesh.grid.queries.search import SMALL_GROUP, Question, Search
from particlemesh.grid.results import Pairs
from particlemesh.sorting.scan import allocate_counts, scan

_I32, _I64, _U64 = np.dtype(np.int32), np.dtype(np.int64), np.dtype(np.uint64)
_FOLLOWING, _PLACED, _DENSE = range(3)  # as PLACE in pairs.c
# Pairs of a row that are collected, and lanes that write a row. With turns there is room for the first three.
_COLLECTED = ((16, 8), (32, 8), (48, 8), (88, 16))
_REMEMBERED = 256  # kinds of searches
_SPARE = 1.05  # room for more pairs than there were last time


class PairLists:
    """One search for lists."""

    def __init__(
        self, search: Search, question: Question, form: str, quantities: str, by_index: bool, rows_by_index: bool,
        check: bool,
    ) -> None:  # fmt: skip
        self.search, self.question, self.form, self.check = search, question, form, check
        self.backend, self.rows, self.cells = search.backend, question.rows, question.cloud.cells
        self.letters = quantities + ("i" if form == "coo" and "i" not in quantities else "")
        self.by_index, self.rows_by_index = by_index, rows_by_index
        # Half a list by slots finds each pair once: the smaller index is put first when it is written.
        self.swaps = form == "coo" and by_index and bool(question.half)
        self.key = (bool(question.half), question.points is None, question.radius, question.reach_is,
                    question.some is None)  # fmt: skip

    def compact(self, capacity: int | None) -> Pairs:
        """Return rows that follow each other."""
        if not self.rows:
            return self._nothing((0,))
        mean = self.search.means.get(self.key)
        if capacity is None and not self.check:
            raise ValueError("check=False allocates nothing: give the capacity to reserve.")
        arrays: dict[str, Any] | None = None
        if capacity is None and mean is not None:
            capacity = int(mean * self.rows * _SPARE) + 1024
            try:
                arrays = self._arrays((capacity,))
            except MemoryError:
                capacity = None  # there may be room for as many as there are
        groups = -(-self.rows // self.backend.group_size)  # which write whole
        start = self._room("start", (groups * self.backend.group_size + 1,), _I64)[: self.rows + 1]
        place, marked = _FOLLOWING, None
        if capacity is None or self.rows_by_index:
            place = _PLACED
            marked = self._count_starts(start, capacity / self.rows if mean is None and capacity else mean)
            if capacity is None:
                capacity = int(self.backend.download(start[self.rows : self.rows + 1])[0])
                mean = capacity / self.rows
        if mean is None:
            mean = capacity / self.rows
        arrays = self._fill(place, start, capacity, mean, arrays, marked)
        if self.check:
            total, _ = self.search.verdict(self.question.words)
            mean = total / self.rows
            self._learn(mean)
            if 2 * total < capacity:  # a slice would hold all of it
                large, arrays = arrays, self._arrays((total,))
                for name, array in arrays.items():
                    if total:
                        self.backend.copy(array, large[name][:total])
            if total > capacity:  # the last search had fewer pairs; where rows begin is right
                arrays = self._fill(_PLACED, start, total, mean)
            arrays = {name: array[:total] for name, array in arrays.items()}
        return Pairs(start=start if self.form == "csr" else None, **arrays)

    def dense(self, width: int | None) -> Pairs:
        """Return rows of one width, -1 where they have fewer pairs."""
        if width is None:
            if not self.check:
                raise ValueError("check=False allocates nothing: give the width to reserve.")
            scratch = self.search.room("pair_counts", (max(self.rows, 1),), _U64)
            self.search.count_rows(self.question, scratch, self.rows_by_index, longest=True)
            width = max(self.search.verdict(self.question.words)[1], 1)
        if not self.rows:
            return self._nothing((0, width))
        question, none = self.question, Unread(self.question.words)
        counts = self._room("count", (self.rows,), _I32)
        arrays = self._arrays((self.rows, width))
        if self.rows_by_index:  # rows of particles that were left out
            for array in (counts, *arrays.values()):
                self.backend.clear(array)
            blank = self.search.program(
                "grid/queries/pairs.c", "blank_rows", question.cloud, self._defines(_DENSE, 0, 32)
            )
            blank(
                self.rows * width, question.cloud.start, arrays.get("i", none), arrays.get("j", none), self.rows,
                question.cloud.bins, width,
            )  # fmt: skip
        self._launch(_DENSE, none, counts, arrays, self.rows * width, width, *self._collected(width))
        if self.check:
            self.search.verdict(question.words, width=width)
        return Pairs(count=counts, **arrays)

    def _learn(self, mean: float) -> None:
        """Remember the pairs of a row for the next search of this kind; a radius that always changes is no kind."""
        means = self.search.means
        if len(means) >= _REMEMBERED:
            means.clear()
        means[self.key] = mean

    def _nothing(self, shape: tuple[int, ...]) -> Pairs:
        start = counts = None
        if self.form == "csr":
            start = self._room("start", (1,), _I64)
            self.backend.clear(start)
        elif self.form == "dense":
            counts = self._room("count", (0,), _I32)
        return Pairs(start=start, count=counts, **self._arrays(shape))

    def _marks(self, mean: float | None) -> Marks | None:
        """Return room for the marks of rows of about ``mean`` pairs; None if the search collects pairs instead."""
        if mean is None or set(self.letters) - set("ij"):
            return None
        words = marks_of_row(self.question, mean, self.rows_by_index)
        try:
            return Marks(self.search, self.question, words) if words else None
        except MemoryError:
            return None  # pairs are collected in local memory

    def _count_starts(self, start: Any, mean: float | None) -> Marks | None:
        """Write where each row begins, and return the marks of all rows if that was their search."""
        counts = allocate_counts(self.backend, self.rows, _U64, self.search.room, "pair_counts")
        self.backend.clear(counts)
        marks = self._marks(mean)
        if marks is not None and not marks.at_once:
            marks = None
        if marks is None:
            self.search.count_rows(self.question, counts, self.rows_by_index)
        else:
            marks.mark(0, counts, self.rows_by_index)
        scan(self.backend, counts, start, self.rows)
        return marks

    def _fill(
        self, place: int, start: Any, capacity: int, mean: float, arrays: dict[str, Any] | None = None,
        marked: Marks | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        """Write the lists; ``marked`` are the marks of all rows, if the search is done."""
        arrays = self._arrays((capacity,)) if arrays is None else arrays
        marks = marked or self._marks(mean)
        if marks is not None:
            marks.write(self._defines(place, 1, 8), mean, start, arrays, capacity, marked=marked is not None)
            return arrays
        # Rows spread about their mean as counts of independent particles do: nearly all rows fit.
        collected = self._collected(mean + 4.2 * math.sqrt(mean), mean)
        self._launch(place, start, Unread(self.question.words), arrays, capacity, 0, *collected)
        return arrays

    def _collected(self, pairs: float, mean: float = 0) -> tuple[int, int]:
        """Return CAP and SPAN for rows of up to ``pairs`` pairs; CAP is 0 where most rows would find no room."""
        turns = bool(set("dDS") & set(self.letters)) and any(self.cells.box.periodic)
        # Where a group is a warp nothing is gained by more programs.
        # The points are in local memory if vectors are returned.
        most = 2 if self.question.points is not None and set("dDS") & set(self.letters) else 3 if turns else 4
        choices = _COLLECTED[:most] if self.backend.group_size > 32 else _COLLECTED[1:2]
        for choice in choices:
            if pairs <= choice[0]:
                return choice
        return choices[-1] if mean <= choices[-1][0] else (0, 32)

    def _defines(self, place: int, cap: int, span: int) -> dict[str, int]:
        return {
            **self.question.defines(), "PLACE": place, "CAP": cap, "SPAN": span, "BY_INDEX": int(self.by_index),
            "ROWS_BY_INDEX": int(self.rows_by_index), "SWAP": int(self.swaps), **wants(self.letters),
        }  # fmt: skip

    def _ways(self) -> dict[str, int]:
        """Return how half lists of indices search: images apart, then the box, with registers for more groups.

        Wider rows would spill, and full lists take longer with it. In periodic boxes, where some warps have far more to
        do than others, fewer of them wait for each other (H200; benchmarks/results/grid-pairs-nvidia-h200.csv).
        """
        if self.question.half != 1 or self.letters != "j" or self.cells.dtype.itemsize == 8:
            return {}
        if any(self.cells.box.periodic) and self.backend.group_size > SMALL_GROUP:
            return {"BY_ONE": 1, "IMAGES": 2, "GROUP_SIZE": SMALL_GROUP, "RESIDENT_GROUPS": 18}
        return {"BY_ONE": 1, "IMAGES": 2, "RESIDENT_GROUPS": 9}

    def _launch(
        self, place: int, start: Any, counts: Any, arrays: dict[str, Any], capacity: int, width: int, cap: int,
        span: int,
    ) -> None:  # fmt: skip
        question, none = self.question, Unread(self.question.words)
        defines = {**self._defines(place, cap, span), **self._ways()}
        kernel = self.search.program("grid/queries/pairs.c", "list_pairs", question.cloud, defines)
        outputs = (arrays.get(name, none) for name in FIELDS.values())
        kernel(
            self.rows, *question.cells(), question.cloud.turns, question.cloud.status, start, counts, *outputs,
            question.words, self.rows, question.cloud.bins, capacity, width, *self.search.records(question),
        )  # fmt: skip

    def _arrays(self, shape: tuple[int, ...]) -> dict[str, Any]:
        """Return an array for each quantity that is requested."""
        types = array_types(self.letters, shape, self.cells.box.ndim, self.cells.dtype)
        return {field: self._room(field, size, dtype) for field, (size, dtype) in types.items()}

    def _room(self, name: str, shape: tuple[int, ...], dtype: Any) -> Any:
        """Return memory for a result: new if the search is checked, else reserved."""
        if self.check:
            return allocate(self.backend, shape, dtype, f"{name} of pairs")
        array = self.search.room(f"pairs_{name}", shape, dtype)
        return array if tuple(array.shape) == shape else array[: shape[0]]
