# SPDX-License-Identifier: BSD-3-Clause
"""What lists and counts of pairs on GPUs share: the question, its kernels, and what the device recorded."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from particlemesh.arrays.positions import Coordinates
from particlemesh.backends.base import Backend, Kernel, Record
from particlemesh.grid import checks
from particlemesh.grid.checks import (
    MOST_COUNTED,
    bytes_per_pair,
    check_squares,
    least_images,
    most_images,
    square_within,
    too_many,
)
from particlemesh.grid.queries import clusters
from particlemesh.grid.queries.cloud import Cloud, kernel_radius
from particlemesh.grid.room import Room

SMALL_GROUP = 64  # work-items of some searches
WORDS = 8  # that a search records (grid/queries/within.h), before those of its tiles
_NOT_FINITE, _OUTSIDE, _FIRST, _BAD_RADIUS, _TOTAL, _LONGEST = range(6)
# Neighbours for which lists are made by clusters: in periodic boxes, in open ones, and half lists by slots there, whose
# single searches see half of the cells (H200).
_LEAST_CLUSTERED = 40, 64, 128
_MANY_ROWS = 2**18  # which keep the device busy with a work-item for two of them
_U64 = np.dtype(np.uint64)
_QUESTIONS = 64  # that may be unchecked


@dataclass(frozen=True)
class Extents:
    """How far each particle reaches: a radius (N,), or half an edge for each axis (N, 3), missing axes first.

    In the type of the positions, C order. ``axes`` is 1 or 3.
    """

    array: Any
    axes: int


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
    systems: tuple[Any, ...] = ()  # of rows, and the numbers of all systems
    some: tuple[int, int] | None = None  # the least and the largest index of a particle with a row, if not all have one
    by_index: bool = True  # rows are named by particles' indices, not slots

    @property
    def rows(self) -> int:
        """Particles, or points."""
        return self.cloud.count if self.points is None else self.points.count

    @property
    def pairs_rows(self) -> bool:
        """Whether a work-item can search for two neighbouring rows at once (PAIRED in within.h)."""
        one_level = self.cloud.ends is None and self.cloud.cells.levels == 1
        return one_level and not (self.reach_is or self.points or self.half or self.systems or self.some)

    @functools.cached_property
    def members(self) -> int:
        """Particles that a warp searches for together, or 0."""
        if self.points is not None or self.reach_is or self.some:
            return 0
        least = _LEAST_CLUSTERED[0 if any(self.cloud.cells.box.periodic) else 1 + (self.half == 1)]
        # Rows by slots need no count before, which suits few particles.
        return clusters.members_of(self.cloud, self.radius, least, clusters.FEW_NEIGHBOURS if self.by_index else least)

    @property
    def counts_by_clusters(self) -> bool:
        """Whether clusters, where they serve, also count the pairs of rows faster than a work-item for two rows.

        It has no half rows by index and no systems. Few rows wait for images, and for many cells of few particles.
        """
        cells = self.cloud.cells
        if self.half == 2 or self.systems or self.members == 4:
            return True
        waits = any(cells.box.periodic) or self.rows < 2 * math.prod(cells.shape)
        return waits and self.rows < _MANY_ROWS

    @property
    def warps(self) -> int:
        """Work-items of the warps of all clusters."""
        return -(-self.rows // self.members) * 32

    def defines(self) -> dict[str, int]:
        """Return what kernels over rows are compiled with, beside what they are over a cloud."""
        facts = {"ROWS_ARE_POINTS": int(self.points is not None), "REACH_IS": self.reach_is, "HALF": self.half}
        return facts if self.some is None else {**facts, "SOME_ROWS": 1}

    def cells(self) -> tuple[Any, ...]:
        """Return the first arrays of a kernel: points if there are any, particles, cells, what they reach."""
        cloud = self.cloud
        points = () if self.points is None else self.points.arguments()
        ends = cloud.occupied if cloud.occupied is not None else cloud.start if cloud.ends is None else cloud.ends
        return (*points, *self.systems, cloud.records, cloud.start, ends, self.reaches, self.largest)


@dataclass
class _Unread:
    """What an unchecked search recorded on the device, and how much room it had."""

    place: int
    words: Any = None
    capacity: int | None = None
    width: int | None = None
    is_read: bool = False
    is_raised: bool = False  # until it is searched again


class Search:
    """What searches of a grid keep from one build to the next: programs, memory, the mean lengths of former rows.

    ``room`` has scratch memory and the results of ``check=False``.
    """

    def __init__(self, backend: Backend, room: Room) -> None:
        self.backend, self.room = backend, room
        self.means: dict[Any, float] = {}  # pairs of a row, by question
        self.learned = 0  # how often any of them changed
        self._programs: dict[tuple[Any, ...], Kernel] = {}
        self._known: tuple[Any, ...] = ()  # what the records are of
        self._records: tuple[Record, ...] = ()
        self._short_rows: tuple[Any, ...] = ()  # box, radius and count whose rows need no check
        self._unread: dict[Any, _Unread] = {}  # what unchecked searches recorded, by question

    def follow(self) -> Any:
        """Return the token of the current stream: the grid orders its work after that of its last call."""
        return self.backend.follow(None)

    def program(self, file: str, name: str, cloud: Cloud, defines: dict[str, int]) -> Kernel:
        """Return a kernel over a cloud."""
        cells = cloud.cells
        all_defines = {
            **cloud.defines(), "ONE_LEVEL": int(cells.levels == 1), "NO_IMAGES": int(not any(cells.box.periodic)),
            "IMAGES_APART": 1, **defines,
        }  # fmt: skip
        key = (file, name, *all_defines.values())
        kernel = self._programs.get(key)
        if kernel is None:
            kernel = self._programs[key] = self.backend.kernel(file, name, all_defines)
        return kernel

    def launch(
        self, question: Question, file: str, name: str, defines: dict[str, int], items: int, *arguments: Any
    ) -> None:
        """Launch a kernel over rows; its other arguments lie between particles and the records."""
        kernel = self.program(file, name, question.cloud, {**question.defines(), **defines})
        kernel(items, *question.cells(), *arguments, *self.records(question))

    def records(self, question: Question) -> tuple[Record, ...]:
        """Return the records that end a kernel's arguments; the same objects as before if they are the same."""
        cells = question.cloud.cells
        # Cells compare by what they are, boxes by their identity.
        known = (cells.box, cells.shape, cells.levels, cells.edge, cells.dtype, cells.systems, question.radius,
                 question.some)  # fmt: skip
        if not self._known or self._known[0] is not cells.box or self._known[1:] != known[1:]:
            self._known = known
            some = question.some or ()
            limit = 0.0 if question.reach_is else square_within(question.radius, cells.dtype)
            ask = Record(f"=2{cells.dtype.char}{'i' * len(some)}", question.radius, limit, *some)
            self._records = (*question.cloud.geometry(), ask)
        return self._records if question.points is None else (question.points.record(), *self._records)

    def count_rows(
        self, question: Question, counts: Any, by_index: bool, longest: bool = False, wide: bool = False
    ) -> None:  # fmt: skip
        """Write the pairs of each row, int32 or uint64, by slots or by indices."""
        if not question.rows:
            return
        cloud = question.cloud
        if members := question.members * (not longest and not wide and question.counts_by_clusters):
            self.backend.clear(counts)  # those of particles that were left out
            facts = {"MEMBERS": members, "COUNT_IS_64": counts.dtype.itemsize // 8, "ROWS_BY_INDEX": int(by_index)}
            kernel = self.program("grid/queries/cluster_pairs.c", "count_pairs", cloud, {**question.defines(), **facts})
            kernel(
                question.warps, *question.systems, cloud.records, cloud.start, counts, cloud.bins,
                *self.records(question),
            )  # fmt: skip
            return
        paired = question.pairs_rows and not wide
        words = counts.dtype.itemsize // 8
        defines = {
            "PAIRED": int(paired), "ROWS_BY_INDEX": int(by_index), "COUNT_IS_64": words, "WANT_LONGEST": int(longest),
            "WIDE_ROWS": int(wide),
        }  # fmt: skip
        if paired:
            defines["IMAGES"] = 1
            if cloud.cells.dtype.itemsize == 4:  # no registers for more groups than these without spills
                defines["RESIDENT_GROUPS"] = 7 if any(cloud.cells.box.periodic) else 9
        items = -(-question.rows // 2) if paired else question.rows
        given = counts, question.words, question.rows, cloud.bins
        self.launch(question, "grid/queries/count_pairs.c", "count_pairs", defines, items, *given)

    def check_rows(self, question: Question, quantities: str, check: bool, *, counted: bool = False) -> None:
        """Refuse rows that kernels cannot count and lists that no memory holds, before anything wraps or is written."""
        cloud, box = question.cloud, question.cloud.cells.box
        uniform = (box, question.radius, cloud.count)
        if not question.reach_is and self._short_rows == uniform:
            return
        images = 0
        if question.reach_is:
            if not (check and any(box.periodic) and cloud.count):
                return
            reach = 2 * self._largest(question)
        else:
            reach = question.radius
            if not cloud.cells.systems:  # else some particles may have none
                images = least_images(reach, box.matrix, box.periodic)
            least = images * (cloud.count - (question.points is None)) // (1 + bool(question.half))
            least_bytes = least * question.rows * bytes_per_pair(quantities, box.ndim, cloud.cells.dtype.itemsize)
            if counted and least > MOST_COUNTED:
                raise too_many(least, at_least=True)
            if least_bytes and least_bytes > (free := self.backend.free_bytes()):
                raise MemoryError(f"cannot allocate at least {least_bytes:,} bytes for pairs: {free:,} are free.")
        if cloud.count * most_images(reach, cloud.cells.per, box.periodic) <= MOST_COUNTED:
            if not (question.reach_is or images or cloud.cells.systems):
                self._short_rows = uniform
            return
        if not check:
            raise ValueError(
                f"a particle may have 2**31 neighbours within {reach:g}: check=False cannot count them: use check=True."
            )
        scratch = self.room("wide_counts", (max(question.rows, 1),), _U64)
        self.count_rows(question, scratch, by_index=False, longest=True, wide=True)
        _, longest = self.verdict(question.words)
        if longest > MOST_COUNTED:
            raise too_many(longest)
        self.backend.clear(question.words)

    def _largest(self, question: Question) -> float:
        """Return the largest radius or half diagonal of all particles; waits for the device."""
        bits = self.backend.download(question.largest)[: 3 * question.cloud.cells.levels]
        real = question.cloud.cells.dtype
        sizes = bits.view(np.float64) if real.itemsize == 8 else bits.astype(np.uint32).view(np.float32)
        return float(np.sqrt((sizes.reshape(-1, 3).astype(np.float64) ** 2).sum(1)).max())

    def ask(
        self, cloud: Cloud, radius: float | Extents, points: Coordinates | None, half: bool, by_index: bool,
        notes: str = "", system: Any = None,
    ) -> Question:  # fmt: skip
        backend, dtype = self.backend, cloud.cells.dtype
        tiles = -(-(cloud.count if points is None else points.count) // min(SMALL_GROUP, backend.group_size))
        words = self.room(f"pair_words{notes}", (WORDS + tiles,), _U64)
        backend.clear(words)
        code = 0 if not half else 2 if by_index else 1
        if not isinstance(radius, Extents):
            number = kernel_radius(radius, cloud.cells, points=points is not None)
            systems = cloud.rows(system)
            return Question(cloud, points, number, 0, code, cloud.records, cloud.status, words, systems, None, by_index)
        check_squares(0.0, cloud.cells.box.matrix, dtype, bounded=True)
        count = max(cloud.count, 1)
        reaches = self.room("reaches", (count,) if radius.axes == 1 else (count, 4), dtype)
        largest = self.room("largest_reaches", (3 * cloud.cells.levels,), _U64)
        backend.clear(largest)
        question = Question(cloud, None, 0.0, radius.axes, code, reaches, largest, words, cloud.rows())
        if cloud.count:
            gather = self.program("grid/queries/gather_reaches.c", "gather_reaches", cloud, {"EXTENTS": radius.axes})
            gather(
                cloud.count, *cloud.rows(), cloud.records, cloud.start, question.cells()[-3], radius.array, reaches,
                largest, words, cloud.count, cloud.bins, *self.records(question)[:-1],
            )  # fmt: skip
        return question

    def verdict(self, words: Any, *, capacity: int | None = None, width: int | None = None) -> tuple[int, int]:
        """Return the pairs, and those of the longest row if a dense list was too narrow for it. Waits for the device.

        Raises what is wrong with points or radii, and what did not fit.
        """
        return verdict_of(self.backend.download(words[:WORDS]), capacity, width)

    # ---- searches with check=False ------------------------------------------------------------------------

    def place(self, question: Any) -> str:
        """Return the place of an unchecked question's record; the place of a checked one may be reused.

        Raises
        ------
        RuntimeError
            If too many questions are unchecked.
        """
        if question not in self._unread:
            place = len(self._unread)
            if place == _QUESTIONS:
                checked = next((q for q, record in self._unread.items() if record.is_read), None)
                if checked is None:
                    raise RuntimeError(f"{_QUESTIONS} different searches with check=False are unread: call check().")
                place = self._unread.pop(checked).place
                self.room.forget_tapes()  # a tape of that search writes to the reused place
            self._unread[question] = _Unread(place)
        return str(self._unread[question].place)

    def keep(self, question: Any, words: Any, capacity: int | None, width: int | None) -> None:
        """Keep where an unchecked search records its counts."""
        self._unread[question] = _Unread(self._unread[question].place, words, capacity, width)

    def asked_again(self, question: Any) -> None:
        """Mark an unchecked search as repeated: a tape or a graph did it."""
        record = self._unread[question]
        record.is_read = record.is_raised = False

    def forget(self) -> None:
        """Say that what was searched is gone: only searches that are made again count."""
        for record in self._unread.values():
            record.is_raised = True

    def check(self) -> None:
        """Raise the error of each failed search once; waits for the device.

        A search without an error is read again at the next call: a graph may have repeated it.
        """
        for record in self._unread.values():
            if record.is_raised or record.words is None:
                continue
            record.is_read = True
            try:
                self.verdict(record.words, capacity=record.capacity, width=record.width)
            except Exception:
                record.is_raised = True
                raise


def verdict_of(words: np.ndarray, capacity: int | None = None, width: int | None = None) -> tuple[int, int]:
    """Return what `Search.verdict` does, from the words on the host."""
    read = words.tolist()
    first = 2**64 - 1 - read[_FIRST]
    if read[_BAD_RADIUS]:
        raise ValueError(
            f"{read[_BAD_RADIUS]} radii are negative, not finite, reach past 2**29 cells of a periodic axis, or "
            "have squares that their type does not hold in this unit of length; the first is that of particle "
            f"{first}."
        )
    checks.good_points(read[_NOT_FINITE], read[_OUTSIDE], first)
    total, longest = read[_TOTAL], read[_LONGEST]
    if capacity is not None and total > capacity:
        raise OverflowError(f"there are {total:,} pairs and room for {capacity:,}: give capacity={total} or more.")
    checks.wide_enough(longest, width)
    return total, longest
