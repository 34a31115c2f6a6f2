# SPDX-License-Identifier: BSD-3-Clause
"""Pairs of particles within reach of each other, on GPUs: what can be asked, and how many there are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from particlemesh.arrays.geometry import Coordinates
from particlemesh.backends.base import Backend, Kernel, Record, allocate
from particlemesh.grid.cloud import Cloud, kernel_radius
from particlemesh.grid.limits import MOST_COUNTED, bytes_per_pair, least_images, most_images, too_many
from particlemesh.grid.method import Room
from particlemesh.grid.pair_lists import PairLists
from particlemesh.grid.results import Pairs
from particlemesh.sorting.scan import Allocate

_WORDS = 8  # of what a search notes (grid/within.h), before those of its tiles
_NOT_FINITE, _OUTSIDE, _FIRST, _BAD_RADIUS, _TOTAL, _LONGEST = range(6)
_I32, _U64 = np.dtype(np.int32), np.dtype(np.uint64)


@dataclass(frozen=True)
class Extents:
    """How far each particle reaches: a radius (N,), or half an edge for each axis (N, 3), missing axes first.

    In the type of the positions, C order. ``axes`` is 1 or 3.
    """

    array: Any
    axes: int


@dataclass
class Found:
    """What a search left, in native arrays.

    Attributes
    ----------
    pairs : Pairs
    total : int or None
        Pairs there are; None for dense lists, and where nobody waited for it.
    words : uint64
        What the device noted: see :meth:`Searcher.verdict`.
    """

    pairs: Pairs
    total: int | None
    words: Any


@dataclass
class Question:
    """What is asked, as kernels take it."""

    cloud: Cloud
    points: Coordinates | None
    radius: float
    reach_is: int  # as REACH_IS in within.h
    half: int  # as HALF there
    reaches: Any
    largest: Any
    words: Any

    @property
    def rows(self) -> int:
        """Particles, or points."""
        return self.cloud.count if self.points is None else self.points.count

    def defines(self) -> dict[str, int]:
        """Return what kernels over rows are compiled with, beside what they are over a cloud."""
        return {"ROWS_ARE_POINTS": int(self.points is not None), "REACH_IS": self.reach_is, "HALF": self.half}

    def cells(self) -> tuple[Any, ...]:
        """Return the first arrays of a kernel: points if there are any, particles, cells, what they reach."""
        cloud = self.cloud
        points = () if self.points is None else self.points.arguments()
        ends = cloud.occupied if cloud.occupied is not None else cloud.start if cloud.ends is None else cloud.ends
        return (*points, cloud.records, cloud.start, ends, self.reaches, self.largest)


_QUESTIONS = 64


class Unread:
    """What searches noted for which nobody waited, by what was asked."""

    def __init__(self, searcher: Searcher) -> None:
        self._searcher = searcher
        self._known: dict[Any, tuple[Any, int | None, int | None]] = {}  # words, capacity, width
        self._places: dict[Any, int] = {}
        self._read: set[Any] = set()
        self._raised: set[Any] = set()  # until they are asked again

    def place(self, question: Any) -> str:
        """Return where a question's search shall note what it finds; the place of one that was checked may go.

        Raises
        ------
        RuntimeError
            If there are too many questions that were not checked.
        """
        if question not in self._places:
            place = next(n for n in range(_QUESTIONS + 1) if n not in self._places.values())
            if place == _QUESTIONS:
                gone = next((q for q in self._places if q in self._read), None)
                if gone is None:
                    raise RuntimeError(f"{_QUESTIONS} different searches with check=False are unread: call check().")
                place = self._places.pop(gone)
                if isinstance(self._searcher.room, Room):  # that search would be played into another's place
                    self._searcher.room.forget_tapes()
                self._known.pop(gone, None)
                self._read.discard(gone)
                self._raised.discard(gone)
            self._places[question] = place
        return str(self._places[question])

    def keep(self, question: Any, words: Any, capacity: int | None, width: int | None) -> None:
        """Keep where a search noted what it found."""
        self._known[question] = words, capacity, width
        self.again(question)

    def again(self, question: Any) -> None:
        """Say that a search was made again."""
        self._read.discard(question)
        self._raised.discard(question)

    def forget(self) -> None:
        """Say that what was searched is gone: only searches that are made again count."""
        self._raised.update(self._known)

    def check(self) -> None:
        """Raise what searches found wrong, each once; waits for the device.

        What was found right is looked at again next time: a graph may have made the search anew without telling.
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


class Searcher:
    """Searches on one backend: their programs, their scratch memory, and what was learned for the next one.

    Parameters
    ----------
    backend : Backend
        CUDA or OpenCL.
    room : callable (name, shape, dtype), optional
        Where scratch memory comes from, and what is returned by ``check=False``; by default it is new every time.
    """

    def __init__(self, backend: Backend, room: Allocate | None = None) -> None:
        self.backend = backend
        self.room: Allocate = room or (lambda name, shape, dtype: backend.empty(shape, dtype))
        self.means: dict[Any, float] = {}  # pairs of a row, by what was asked
        self.unread = Unread(self)
        self._programs: dict[tuple[Any, ...], Kernel] = {}
        self._known: tuple[Any, ...] = ()  # what the records are of
        self._short: tuple[Any, ...] = ()  # box, radius and count whose rows need no check
        self._records: tuple[Record, ...] = ()

    def count(
        self, cloud: Cloud, radius: float | Extents, *, points: Coordinates | None = None, half: bool = False,
        order: str = "input", check: bool = True,
    ) -> Any:  # fmt: skip
        """Return how many pairs each particle or point has, (rows,) int32; waits only to check points and radii."""
        by_index = order == "input" and points is None
        asked = self._ask(cloud, radius, points, half, by_index)
        self._check_rows(asked, "", check, counted=True)
        counts = allocate(self.backend, (asked.rows,), _I32, "counts of pairs")
        if by_index and asked.rows:
            self.backend.clear(counts)  # particles that were left out have none
        self.count_rows(asked, counts, by_index)
        if check and (points is not None or asked.reach_is):
            self.verdict(asked.words)
        return counts

    def find(
        self, cloud: Cloud, radius: float | Extents, *, points: Coordinates | None = None, half: bool = True,
        order: str = "input", form: str = "csr", quantities: str = "j", width: int | None = None,
        capacity: int | None = None, check: bool = True, notes: str = "",
    ) -> Found:  # fmt: skip
        """Return lists of pairs.

        Parameters
        ----------
        cloud
            Particles by cell.
        radius
            One for all, or :class:`Extents`, which add up.
        points
            Rows are those of these points instead of the particles; then ``half`` must be False.
        half
            Each pair once: with the larger number second or, of images of one particle, forward.
        order
            ``"input"``: particles and rows are named by their indices; ``"grid"``: by their places.
        form
            ``"csr"``, ``"coo"`` (no order of pairs is promised) or ``"dense"``.
        quantities
            Letters of "ijdDS".
        width
            Room for the pairs of each row of a dense list; by default as many as the longest has.
        capacity
            Room for so many pairs; by default as many as there are.
        check
            Wait, return exactly what there is, and raise what is wrong. Otherwise nothing waits, arrays have the
            length ``capacity``, their memory belongs to the next search, too, and :meth:`verdict` tells the rest.
        notes
            Searches of different ``notes`` note what they find in different places.
        """
        by_index = order == "input" or points is not None
        rows_by_index = order == "input" and points is None and form != "coo"
        asked = self._ask(cloud, radius, points, half, rows_by_index, notes)
        self._check_rows(asked, quantities, check)
        lists = PairLists(self, asked, form, quantities, by_index, rows_by_index, check)
        found, total = lists.dense(width) if form == "dense" else lists.compact(capacity)
        return Found(found, total, asked.words)

    def verdict(self, words: Any, *, capacity: int | None = None, width: int | None = None) -> tuple[int, int]:
        """Return the pairs found, and those of the longest row if a dense list was too narrow for it.

        Raises what is wrong with points or radii, and if there was too little room. Waits for the device.
        """
        read = [int(w) for w in self.backend.download(words[:_WORDS])]
        first = 2**64 - 1 - read[_FIRST]
        if read[_BAD_RADIUS]:
            raise ValueError(
                f"{read[_BAD_RADIUS]} radii are negative, not finite, or reach past 2**29 cells of a periodic axis; "
                f"the first is that of particle {first}."
            )
        if read[_NOT_FINITE] or read[_OUTSIDE]:
            raise ValueError(
                f"{read[_NOT_FINITE]} points are not finite and {read[_OUTSIDE]} are 2**20 boxes away or more; the "
                f"first is point {first}."
            )
        total, longest = read[_TOTAL], read[_LONGEST]
        if capacity is not None and total > capacity:
            raise OverflowError(f"there are {total:,} pairs and room for {capacity:,}: give capacity={total} or more.")
        if width is not None and longest > width:
            raise OverflowError(f"a row has {longest:,} pairs and room for {width:,}: give width={longest} or more.")
        return total, longest

    # ---- what lists need, too -------------------------------------------------------------------------

    def program(self, file: str, name: str, cloud: Cloud, defines: dict[str, int]) -> Kernel:
        """Return a kernel over a cloud."""
        cells = cloud.cells
        all_defines = {
            **cloud.defines(), "ONE_LEVEL": int(cells.levels == 1), "NO_IMAGES": int(not any(cells.box.periodic)),
            "IMAGES_APART": 1,
            **defines,
        }  # fmt: skip
        key = (name, *all_defines.values())
        found = self._programs.get(key)
        if found is None:
            found = self._programs[key] = self.backend.kernel(file, name, all_defines)
        return found

    def records(self, asked: Question) -> tuple[Record, ...]:
        """Return the records that end a kernel's arguments; the same objects as before if they are the same."""
        cells = asked.cloud.cells
        # Cells compare by what they are, boxes by their identity.
        known = (cells.box, cells.shape, cells.levels, cells.edge, cells.dtype, asked.radius)
        if not self._known or self._known[0] is not cells.box or self._known[1:] != known[1:]:
            self._known = known
            self._records = (*asked.cloud.geometry(), Record(f"={cells.dtype.char}", asked.radius))
        return self._records if asked.points is None else (asked.points.record(), *self._records)

    def count_rows(
        self, asked: Question, counts: Any, by_index: bool, longest: bool = False, wide: bool = False
    ) -> None:  # fmt: skip
        """Write the pairs of each row, int32 or uint64, by slots or by indices."""
        if not asked.rows:
            return
        cells = asked.cloud.cells
        paired = not (
            wide or asked.points or asked.half or asked.reach_is or asked.cloud.ends is not None or cells.levels > 1
        )
        words = counts.dtype.itemsize // 8
        defines = {
            **asked.defines(), "PAIRED": int(paired), "ROWS_BY_INDEX": int(by_index), "COUNT_IS_64": words,
            "WANT_LONGEST": int(longest), "WIDE_ROWS": int(wide),
        }  # fmt: skip
        kernel = self.program("grid/count_pairs.c", "count_pairs", asked.cloud, defines)
        items = -(-asked.rows // 2) if paired else asked.rows
        kernel(items, *asked.cells(), counts, asked.words, asked.rows, asked.cloud.bins, *self.records(asked))

    def _check_rows(self, asked: Question, quantities: str, check: bool, *, counted: bool = False) -> None:
        """Refuse rows that kernels cannot count and lists that no memory holds, before anything wraps or is written."""
        cloud, box = asked.cloud, asked.cloud.cells.box
        question = (box, asked.radius, cloud.count)
        if not asked.reach_is and self._short == question:
            return
        images = 0
        if asked.reach_is:
            if not (check and any(box.periodic) and cloud.count):
                return
            reach = 2 * self._largest(asked)
        else:
            reach = asked.radius
            images = least_images(reach, box.matrix, box.periodic)
            least = images * (cloud.count - (asked.points is None)) // (1 + bool(asked.half))
            wanted = least * asked.rows * bytes_per_pair(quantities, box.ndim, cloud.cells.dtype.itemsize)
            if counted and least > MOST_COUNTED:
                raise too_many(least, at_least=True)
            if wanted and wanted > (free := self.backend.free_bytes()):
                raise MemoryError(f"cannot allocate at least {wanted:,} bytes for pairs: {free:,} are free.")
        if cloud.count * most_images(reach, box.inverse, box.periodic) <= MOST_COUNTED:
            if not asked.reach_is and not images:
                self._short = question
            return
        if not check:
            raise ValueError(f"a particle may have 2**31 neighbours within {reach:g}: check=False cannot tell; wait.")
        scratch = self.room("wide_counts", (max(asked.rows, 1),), _U64)
        self.count_rows(asked, scratch, by_index=False, longest=True, wide=True)
        _, longest = self.verdict(asked.words)
        if longest > MOST_COUNTED:
            raise too_many(longest)
        self.backend.clear(asked.words)

    def _largest(self, asked: Question) -> float:
        """Return the largest radius or half diagonal of all particles; waits for the device."""
        bits = self.backend.download(asked.largest)[: 3 * asked.cloud.cells.levels]
        real = asked.cloud.cells.dtype
        sizes = bits.view(np.float64) if real.itemsize == 8 else bits.astype(np.uint32).view(np.float32)
        return float(np.sqrt((sizes.reshape(-1, 3).astype(np.float64) ** 2).sum(1)).max())

    def _ask(
        self, cloud: Cloud, radius: float | Extents, points: Coordinates | None, half: bool, by_index: bool,
        notes: str = "",
    ) -> Question:  # fmt: skip
        backend, dtype = self.backend, cloud.cells.dtype
        if points is not None and half:
            raise ValueError("points are not particles: all their pairs are found, half=False.")
        if points is not None and points.dtype != dtype:
            raise TypeError(f"points have dtype {points.dtype}, the particles {dtype}: convert the points.")
        tiles = -(-(cloud.count if points is None else points.count) // backend.group_size)
        words = self.room(f"pair_words{notes}", (_WORDS + tiles,), _U64)
        backend.clear(words)
        code = 0 if not half else 2 if by_index else 1
        if not isinstance(radius, Extents):
            number = kernel_radius(radius, cloud.cells)
            return Question(cloud, points, number, 0, code, cloud.records, cloud.status, words)
        if points is not None:
            raise ValueError("points have no extents: give one radius.")
        if cloud.ends is not None and cloud.cells.levels > 1:
            raise NotImplementedError("several levels of cells in no order")  # no builder makes them
        count = max(cloud.count, 1)
        reaches = self.room("reaches", (count,) if radius.axes == 1 else (count, 4), dtype)
        largest = self.room("largest_reaches", (3 * cloud.cells.levels,), _U64)
        backend.clear(largest)
        asked = Question(cloud, None, 0.0, radius.axes, code, reaches, largest, words)
        if cloud.count:
            gather = self.program("grid/gather_reaches.c", "gather_reaches", cloud, {"EXTENTS": radius.axes})
            gather(
                cloud.count, cloud.records, cloud.start, asked.cells()[-3], radius.array, reaches, largest, words,
                cloud.count, cloud.bins, *self.records(asked)[:-1],
            )  # fmt: skip
        return asked
