# SPDX-License-Identifier: BSD-3-Clause
"""Lists of pairs on GPUs in two steps: a bit per candidate (mark_pairs.c), then the pairs (list_marks.c)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from particlemesh.backends.base import Unread
from particlemesh.grid.queries.search import Question, Search

_U32, _U64 = np.dtype(np.uint32), np.dtype(np.uint64)
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
    if cells.box.ndim == 3 and all(r < 1 for r in reach):
        ball = 4 / 3 * math.pi * question.radius**3 * abs(np.linalg.det(cells.box.inverse))
    elif all(r < 1 for r in reach):
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
        particles = not (question.points or question.systems or question.some)
        enough = question.rows >= (LEAST_PAIRED // 2 if double else LEAST_PAIRED)
        self.paired = particles and enough and not (periodic and question.half)
        self.resident = {}
        if particles and periodic and not double:
            self.resident = {"RESIDENT_GROUPS": MARKING_GROUPS_PERIODIC}
        self.stride = min(ROWS_AT_ONCE, -(-question.rows // 1024) * 1024)
        self._marks = search.room("pair_marks", (words * self.stride,), _U64)
        self._infos = search.room("pair_infos", (self.stride,), _U32)

    @property
    def at_once(self) -> bool:
        """Whether there is room for the marks of all rows."""
        return self.question.rows <= self.stride

    def mark(self, first: int = 0, counts: Any = None, by_index: bool = False, *, record: bool = True) -> None:
        """Search for the rows from ``first`` on, and write the pairs of each row to ``counts``, uint64, which are 0.

        Points that are wrong are counted, unless another search of the question has counted them.
        """
        question = self.question
        defines = {
            **question.defines(), "WORDS": self.words, "COUNTED": int(counts is not None),
            "ROWS_BY_INDEX": int(by_index), "IMAGES": 2, "RECORD": int(record and question.points is not None),
            "PAIRED": int(self.paired), **self.resident,
        }  # fmt: skip
        kernel = self.search.program("grid/queries/mark_pairs.c", "mark_pairs", question.cloud, defines)
        rows = min(self.stride, question.rows - first)
        kernel(
            -(-rows // 2) if self.paired else rows, *question.cells(), self._marks, self._infos,
            Unread(question.words) if counts is None else counts, question.words, first, question.rows,
            question.cloud.bins, self.stride, *self.search.records(question),
        )  # fmt: skip

    def write(
        self, defines: dict[str, int], mean: float, start: Any, arrays: dict[str, Any], capacity: int, *,
        marked: bool,
    ) -> None:  # fmt: skip
        """Write lists as ``defines`` says; ``marked`` if :meth:`mark` has been called for all rows."""
        question, none = self.question, Unread(self.question.words)
        # Pairs of a row that a group has room for. Most groups need little more than the mean.
        room = next((n for n in (16, 32, 48) if 1.7 * mean <= n), 64)
        size = min(LISTING_GROUP, self.search.backend.group_size)
        kernel = self.search.program(
            "grid/queries/list_marks.c", "list_marks", question.cloud,
            {**defines, "GROUP_SIZE": size, "ROOM": room * size},
        )  # fmt: skip
        for first in range(0, question.rows, self.stride):
            if not marked:
                self.mark(first, record=not defines["PLACE"])
            kernel(
                min(self.stride, question.rows - first), *question.cells(), question.cloud.turns,
                question.cloud.status, self._marks, self._infos, start, arrays.get("i", none), arrays.get("j", none),
                question.words, first, question.rows, question.cloud.bins, self.stride, capacity,
                *self.search.records(question),
            )  # fmt: skip
