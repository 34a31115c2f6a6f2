# SPDX-License-Identifier: BSD-3-Clause
"""Lists of pairs on GPUs: rows that follow each other, or rows of one width.

The kernel of pairs.c searches and lists. Marks take two steps: a bit per candidate (mark_pairs.c), then the pairs
(list_marks.c).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from particlemesh.arrays.kinds import allocate
from particlemesh.backends.base import Unread
from particlemesh.grid.checks import FIELDS, array_types, wants
from particlemesh.grid.queries.search import SMALL_GROUP, WORDS, Question, Search
from particlemesh.grid.results import Pairs
from particlemesh.sorting.scan import allocate_counts, scan

_I32, _I64, _U32, _U64 = (np.dtype(kind) for kind in (np.int32, np.int64, np.uint32, np.uint64))
_FOLLOWING, _PLACED, _DENSE = range(3)  # as PLACE in pairs.c
# Pairs of a row that are collected, and lanes that write a row. With turns there is room for the first three.
_COLLECTED = ((16, 8), (32, 8), (48, 8), (88, 16))
_REMEMBERED = 256  # kinds of searches
_SPARE, _FEW = 1.05, 1024  # room for more pairs than there were last time: so many times, and these
_LEAST_USED = 0.8  # of that room: with fewer pairs the next search has less

ROWS_AT_ONCE = 2**20  # rows whose marks are in memory; a multiple of every group's size
# Points in an open box. With more the one kernel that collects pairs is faster (H100, 4 M points). In a periodic
# box that kernel also waits for the images of other rows: there marks serve any number.
MOST_POINTS = 2**20
# Rows by the particles' indices: of more, each write of a list goes elsewhere in memory, and that kernel writes longer
# pieces (H200, 2 M rows in open and periodic boxes: 0.73 to 0.84 of the time).
MOST_BY_INDEX = 2**20
# Rows from which a work-item has two neighbouring ones (PAIRED in mark_pairs.c); fewer leave the device idle. In
# float64 a search takes longer, so half as many are enough. Half lists in periodic boxes have none: registers spill.
LEAST_PAIRED = 2**18
MARKING_GROUPS_PERIODIC = 8  # of mark_pairs.c on a multiprocessor, for float32: a few registers spill (sm_90)
LISTING_GROUP = 128  # work-items of list_marks.c, at most: larger groups wait longer for their longest rows
_MOST_MARKS = 16  # of a row in an open box, where most rows need fewer
_MOST_OF_IMAGES = 20  # in a periodic box, where a strip of cells may be in two parts
_CANDIDATES = 32  # of a mark
_LONG = 128  # pairs of a row that a whole warp names (H200: 52 and 305)


class PairLists:
    """One search for lists."""

    def __init__(
        self, search: Search, question: Question, form: str, quantities: str, by_index: bool, rows_by_index: bool,
        check: bool,
    ) -> None:  # fmt: skip
        self.search, self.question, self.form, self.check = search, question, form, check
        self.backend, self.rows, self.cells = search.backend, question.rows, question.cloud.cells
        self.words = question.words[:WORDS]  # for `search.verdict_of`
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
        if capacity is None and not self.check:
            raise ValueError("check=False allocates nothing: give the capacity to reserve.")
        start, arrays = self.submit(capacity)
        if self.check:
            return self.conclude(start, arrays, self.search.verdict(self.words)[0])
        return Pairs(start=start[: self.rows + 1] if self.form == "csr" else None, **arrays)

    def submit(self, capacity: int | None) -> tuple[Any, dict[str, Any]]:
        """Make the lists, and return where rows begin and the arrays, with room for ``self.capacity`` pairs.

        By default that is room for a few more pairs than a search of this kind had. The first one waits for their
        number.
        """
        mean = self.search.means.get(self.key)
        made = None if capacity is not None or mean is None else self._as_before(mean)
        start, arrays, self.capacity = self._made(capacity, mean) if made is None else made
        return start, arrays

    def conclude(self, start: Any, arrays: dict[str, Any], total: int) -> Pairs:
        """Return lists of ``total`` pairs, from what a submission made; it is repeated if it had too little room."""
        mean = self.search.means.get(self.key)
        if mean is None or not _LEAST_USED * (self.capacity - _FEW) <= total <= self.capacity:
            self._learn(total / self.rows)  # else the next search repeats this one
        if 2 * total < self.capacity - _FEW:  # a slice would hold all of it
            large, arrays = arrays, self._arrays((total,))
            for name, array in arrays.items():
                if total:
                    self.backend.copy(array, large[name][:total])
        if total > self.capacity:  # the last search had fewer pairs; where rows begin is right
            arrays = self._fill(_PLACED, start, total, total / self.rows)
        arrays = {name: array[:total] for name, array in arrays.items()}
        return Pairs(start=start[: self.rows + 1] if self.form == "csr" else None, **arrays)

    def _as_before(self, mean: float) -> tuple[Any, dict[str, Any], int] | None:
        """Make lists with room for a few more pairs than a search of this kind had; None if there is no memory.

        Another search of the same kind in the same memory is a replay.
        """
        capacity = int(mean * self.rows * _SPARE) + _FEW

        def submitted() -> tuple[Any, ...]:
            start, arrays, _ = self._made(capacity, mean)
            return (start, *arrays.values())

        question, tapes = self.question, self.search.room.tapes
        number = question.cloud.number * (question.points is None and not question.reach_is and question.some is None)
        what = "pairs", number, self.key, self.form, self.letters, self.by_index, capacity, mean
        try:
            if number:
                new = functools.partial(allocate, self.backend, what="lists of pairs")
                start, *lists = tapes.again(self.search, what, (), submitted, new_array=new)
            else:
                start, *lists = submitted()
        except MemoryError:
            return None  # there may be room for as many as there are
        return start, self.named(lists), capacity

    def named(self, lists: Sequence[Any]) -> dict[str, Any]:
        """Return lists by the names of what they hold."""
        return dict(zip(self._types((0,)), lists, strict=True))

    def _made(self, capacity: int | None, mean: float | None) -> tuple[Any, dict[str, Any], int]:
        """Return where rows begin, lists with room for ``capacity`` pairs, and that; wait only if it is None."""
        groups = -(-self.rows // self.backend.group_size)  # which write whole
        start = self._room("start", (groups * self.backend.group_size + 1,), _I64)
        place, marked = _FOLLOWING, None
        if capacity is None or self.rows_by_index or self.question.members:
            place = _PLACED
            marked = self._count_starts(start, capacity / self.rows if mean is None and capacity else mean)
            if capacity is None:
                capacity = int(self.backend.download(start[self.rows : self.rows + 1])[0])
                mean = capacity / self.rows
        arrays = self._fill(place, start, capacity, capacity / self.rows if mean is None else mean, marked)
        return start, arrays, capacity

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
            defines = {**question.defines(), **self._defines(_DENSE, 0, 32)}
            blank = self.search.program("grid/queries/pairs.c", "blank_rows", question.cloud, defines)
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
        self.search.learned += 1
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
        if mean is None or set(self.letters) - set("ij") or self.question.members:
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
        self, place: int, start: Any, capacity: int, mean: float, marked: Marks | None = None
    ) -> dict[str, Any]:  # fmt: skip
        """Write the lists; ``marked`` are the marks of all rows, if the search is done."""
        arrays = self._arrays((capacity,))
        marks = marked or self._marks(mean)
        if marks is not None:
            marks.write(self._defines(place, 1, 8), mean, start, arrays, capacity, marked=marked is not None)
            return arrays
        if self.question.members:
            self._list_clusters(start, arrays, capacity)
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
            "PLACE": place, "CAP": cap, "SPAN": span, "BY_INDEX": int(self.by_index),
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
        defines, cloud = {**self._defines(place, cap, span), **self._ways()}, question.cloud
        outputs = (arrays.get(name, none) for name in FIELDS.values())
        self.search.launch(
            question, "grid/queries/pairs.c", "list_pairs", defines, self.rows, cloud.turns, cloud.status, start,
            counts, *outputs, question.words, self.rows, cloud.bins, capacity, width,
        )  # fmt: skip

    def _list_clusters(self, start: Any, arrays: dict[str, Any], capacity: int) -> None:
        """Write rows that begin at ``start``."""
        question, none = self.question, Unread(self.question.words)
        lanes = 8 if capacity < _LONG * self.rows else 32
        defines = {**question.defines(), **self._defines(_PLACED, 0, 0), "MEMBERS": question.members, "LISTS": 1,
                   "NAMING": lanes}  # fmt: skip
        cloud, outputs = question.cloud, (arrays.get(name, none) for name in FIELDS.values())
        names, kernel = (
            self.search.program("grid/queries/cluster_pairs.c", name, cloud, defines)
            for name in ("name_rows", "list_pairs")
        )
        if "i" in arrays and not self.swaps:
            names(lanes * self.rows, cloud.records, start, arrays["i"], self.rows, capacity)
        if "shift" in arrays:
            self.backend.clear(arrays["shift"])  # the kernel writes those that are not 0
        kernel(
            question.warps, *question.systems, cloud.records, cloud.start, cloud.turns, cloud.status, start, *outputs,
            question.words, self.rows, cloud.bins, capacity, *self.search.records(question),
        )  # fmt: skip

    def _types(self, shape: tuple[int, ...]) -> dict[str, Any]:
        """Return shape and type of the array of each quantity that is requested."""
        return array_types(self.letters, shape, self.cells.box.ndim, self.cells.dtype)

    def _arrays(self, shape: tuple[int, ...]) -> dict[str, Any]:
        return {field: self._room(field, size, dtype) for field, (size, dtype) in self._types(shape).items()}

    def _room(self, name: str, shape: tuple[int, ...], dtype: Any) -> Any:
        """Return memory for a result: new if the search is checked, else reserved."""
        if self.check:
            array = allocate(self.backend, shape, dtype, f"{name} of pairs")
            self.backend.returns(array)  # before a kernel writes to it
            return array
        array = self.search.room(f"pairs_{name}", shape, dtype)
        return array if tuple(array.shape) == shape else array[: shape[0]]


def marks_of_row(question: Question, mean: float, rows_by_index: bool = False) -> int:
    """Return how many marks a row of about ``mean`` pairs has room for, or 0 if marks do not serve.

    They serve one radius on one level of cells in their order, with few strips of few candidates. Many points in an
    open box have none, nor have many rows by index.
    """
    if rows_by_index and question.rows > MOST_BY_INDEX:
        return 0
    cloud, cells = question.cloud, question.cloud.cells
    if cloud.ends is not None or cloud.occupied is not None or cells.levels > 1 or question.reach_is:
        return 0
    if question.points is not None and question.rows > MOST_POINTS and not any(cells.box.periodic):
        return 0
    reach = question.radius * cells.per  # fractions of the box
    if cells.box.ndim == 3 and max(reach) < 1:
        ball = 4 / 3 * math.pi * question.radius**3 * abs(np.linalg.det(cells.box.inverse))
    elif max(reach) < 1:
        ball = float(np.prod(2 * reach))
    else:
        return 0
    if not ball > 0:
        return 0
    searched = 2 * reach + 1 / np.array(cells.shape)
    strips = float(np.prod(searched[:-1] * cells.shape[:-1]))
    candidates = (mean + 1) * (1 + bool(question.half)) * float(np.prod(searched)) / ball / strips  # of a strip
    fits = candidates + 2 * math.sqrt(candidates) <= _CANDIDATES  # most strips have one mark
    expected = strips * (1 if fits else 1 + candidates / _CANDIDATES)
    most = _MOST_OF_IMAGES if any(cells.box.periodic) else _MOST_MARKS
    return most if expected <= 0.8 * _MOST_MARKS else 0


class Marks:
    """The marks of one search."""

    def __init__(self, search: Search, question: Question, words: int) -> None:
        self.search, self.question, self.words = search, question, words
        cells = question.cloud.cells
        periodic, double = any(cells.box.periodic), cells.dtype.itemsize == 8
        particles, self.rows = not (question.points or question.systems or question.some), question.rows
        enough = self.rows >= (LEAST_PAIRED // 2 if double else LEAST_PAIRED)
        self.paired = particles and enough and not (periodic and question.half)
        self.resident = {}
        if particles and periodic and not double:
            self.resident = {"RESIDENT_GROUPS": MARKING_GROUPS_PERIODIC}
        self.stride = min(ROWS_AT_ONCE, -(-self.rows // 1024) * 1024)
        self._marks = search.room("pair_marks", (words * self.stride,), _U64)
        self._infos = search.room("pair_infos", (self.stride,), _U32)

    @property
    def at_once(self) -> bool:
        """Whether there is room for the marks of all rows."""
        return self.rows <= self.stride

    def mark(self, first: int = 0, counts: Any = None, by_index: bool = False, *, record: bool = True) -> None:
        """Search for the rows from ``first`` on, and write the pairs of each row to ``counts``, uint64, which are 0.

        Points that are wrong are counted, unless another search of the question has counted them.
        """
        question = self.question
        defines = {
            "WORDS": self.words, "COUNTED": int(counts is not None), "ROWS_BY_INDEX": int(by_index), "IMAGES": 2,
            "RECORD": int(record and question.points is not None), "PAIRED": int(self.paired), **self.resident,
        }  # fmt: skip
        rows = min(self.stride, self.rows - first)
        self.search.launch(
            question, "grid/queries/mark_pairs.c", "mark_pairs", defines, -(-rows // 2) if self.paired else rows,
            self._marks, self._infos, Unread(question.words) if counts is None else counts, question.words, first,
            self.rows, question.cloud.bins, self.stride,
        )  # fmt: skip

    def write(
        self, defines: dict[str, int], mean: float, start: Any, arrays: dict[str, Any], capacity: int, *,
        marked: bool,
    ) -> None:  # fmt: skip
        """Write lists as ``defines`` says; ``marked`` if :meth:`mark` has been called for all rows."""
        question, cloud, none = self.question, self.question.cloud, Unread(self.question.words)
        # Pairs of a row that a group has room for. Most groups need little more than the mean.
        room = 16 * min(max(math.ceil(1.7 * mean / 16), 1), 4)
        size = min(LISTING_GROUP, self.search.backend.group_size)
        defines = {**defines, "GROUP_SIZE": size, "ROOM": room * size}
        for first in range(0, self.rows, self.stride):
            if not marked:
                self.mark(first, record=not defines["PLACE"])
            self.search.launch(
                question, "grid/queries/list_marks.c", "list_marks", defines, min(self.stride, self.rows - first),
                cloud.turns, cloud.status, self._marks, self._infos, start, arrays.get("i", none),
                arrays.get("j", none), question.words, first, self.rows, cloud.bins, self.stride, capacity,
            )  # fmt: skip
