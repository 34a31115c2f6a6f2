# SPDX-License-Identifier: BSD-3-Clause
"""Pairs of particles within reach of each other, on GPUs: counts and lists, with or without waiting for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from particlemesh.arrays.positions import Coordinates
from particlemesh.backends.base import Backend, allocate
from particlemesh.grid.queries.cloud import Cloud
from particlemesh.grid.queries.pair_lists import PairLists
from particlemesh.grid.queries.search import Extents, Search
from particlemesh.grid.results import Pairs
from particlemesh.grid.room import Room
from particlemesh.sorting.scan import Allocate

_I32 = np.dtype(np.int32)


@dataclass
class PairSearch:
    """The result of a search, in native arrays.

    Attributes
    ----------
    pairs : Pairs
    total : int or None
        Number of pairs; None for dense lists and for unchecked searches.
    words : uint64
        Counts that the device recorded: see :meth:`Search.verdict`.
    """

    pairs: Pairs
    total: int | None
    words: Any


_QUESTIONS = 64


class Unread:
    """What unchecked searches recorded on the device, by question."""

    def __init__(self, searcher: Searcher) -> None:
        self._searcher = searcher
        self._known: dict[Any, tuple[Any, int | None, int | None]] = {}  # words, capacity, width
        self._places: dict[Any, int] = {}
        self._read: set[Any] = set()
        self._raised: set[Any] = set()  # until they are searched again

    def place(self, question: Any) -> str:
        """Return the place of a question's record; the place of a checked one may be reused.

        Raises
        ------
        RuntimeError
            If too many questions are unchecked.
        """
        if question not in self._places:
            place = next(n for n in range(_QUESTIONS + 1) if n not in self._places.values())
            if place == _QUESTIONS:
                checked = next((q for q in self._places if q in self._read), None)
                if checked is None:
                    raise RuntimeError(f"{_QUESTIONS} different searches with check=False are unread: call check().")
                place = self._places.pop(checked)
                if isinstance(self._searcher.room, Room):  # a tape of that search writes to the reused place
                    self._searcher.room.forget_tapes()
                self._known.pop(checked, None)
                self._read.discard(checked)
                self._raised.discard(checked)
            self._places[question] = place
        return str(self._places[question])

    def keep(self, question: Any, words: Any, capacity: int | None, width: int | None) -> None:
        """Keep where a search records its counts."""
        self._known[question] = words, capacity, width
        self.again(question)

    def again(self, question: Any) -> None:
        """Mark a search as repeated."""
        self._read.discard(question)
        self._raised.discard(question)

    def forget(self) -> None:
        """Say that what was searched is gone: only searches that are made again count."""
        self._raised.update(self._known)

    def check(self) -> None:
        """Raise the error of each failed search once; waits for the device.

        A search without an error is read again at the next call: a graph may have repeated it.
        """
        for question, (words, capacity, width) in self._known.items():
            if question in self._raised:
                continue
            self._read.add(question)
            try:
                self._searcher.verdict(words, capacity=capacity, width=width)
            except Exception:
                self._raised.add(question)
                raise


class Searcher(Search):
    """Counts and lists of pairs."""

    def __init__(self, backend: Backend, room: Allocate | None = None) -> None:
        super().__init__(backend, room)
        self.unread = Unread(self)

    def count(
        self, cloud: Cloud, radius: float | Extents, *, points: Coordinates | None = None, half: bool = False,
        order: str = "input", check: bool = True,
    ) -> Any:  # fmt: skip
        """Return how many pairs each particle or point has, (rows,) int32; waits only to check points and radii."""
        by_index = order == "input" and points is None
        question = self.ask(cloud, radius, points, half, by_index)
        self.check_rows(question, "", check, counted=True)
        counts = allocate(self.backend, (question.rows,), _I32, "counts of pairs")
        if by_index and question.rows:
            self.backend.clear(counts)  # particles that were left out have none
        self.count_rows(question, counts, by_index)
        if check and (points is not None or question.reach_is):
            self.verdict(question.words)
        return counts

    def find(
        self, cloud: Cloud, radius: float | Extents, *, points: Coordinates | None = None, half: bool = True,
        order: str = "input", form: str = "csr", quantities: str = "j", width: int | None = None,
        capacity: int | None = None, check: bool = True, notes: str = "", system: Any = None,
        some: tuple[int, int] | None = None,
    ) -> PairSearch:  # fmt: skip
        """Return lists of pairs; arguments as for :meth:`particlemesh.UniformGrid.pairs`.

        The :class:`Extents` of two particles add up. With ``points`` rows are those of the points, of a ``system`` each
        if particles have one, and ``half`` must be False. With ``check=False`` nothing waits, arrays have the length
        ``capacity``, the next search reuses their memory, and :meth:`verdict` reports what is wrong. ``notes`` names
        the place of the counts on the device. With ``some`` only particles with indices from the first to the second
        number have rows that are not empty.
        """
        by_index = order == "input" or points is not None
        rows_by_index = order == "input" and points is None and form != "coo"
        question = self.ask(cloud, radius, points, half, rows_by_index, notes, system)
        question.some = some
        self.check_rows(question, quantities, check)
        lists = PairLists(self, question, form, quantities, by_index, rows_by_index, check)
        pairs, total = lists.dense(width) if form == "dense" else lists.compact(capacity)
        return PairSearch(pairs, total, question.words)
