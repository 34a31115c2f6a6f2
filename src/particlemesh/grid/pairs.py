# SPDX-License-Identifier: BSD-3-Clause
"""Pairs of particles within reach of each other, on GPUs: counts and lists."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from particlemesh.backends.base import Backend, Kernel, Record, allocate
from particlemesh.binning.scan import Allocate, allocate_counts, scan
from particlemesh.geometry import Coordinates
from particlemesh.grid.cloud import Cloud
from particlemesh.grid.results import Pairs

QUANTITIES = "ijdDS"
# Words of `found` (grid/within.h).
_NOT_FINITE, _OUTSIDE, _FIRST, _BAD_RADIUS, _TOTAL, _LONGEST, _WORDS = 0, 1, 2, 3, 4, 5, 8
_MOST_CELLS_AWAY = 2**29  # as in gather_reaches.c
_I32, _I64, _U64 = np.dtype(np.int32), np.dtype(np.int64), np.dtype(np.uint64)
# Pairs of a row that are collected, and lanes that write a row.
_COLLECTED = ((16, 8), (32, 16), (48, 32), (88, 32))
_SPARE = 1.05  # room for more pairs than there were last time


@dataclass(frozen=True)
class Extents:
    """How far each particle reaches: a radius (N,), or half an edge for each axis (N, 3), missing axes first."""

    array: Any
    axes: int


@dataclass(frozen=True)
class Verdict:
    """What the device found: pairs, those of the longest row if a dense list is too narrow, and what was bad."""

    total: int
    longest: int
    not_finite: int
    outside: int
    bad_radius: int
    first_bad: int


@dataclass
class Found:
    """What a search left, in native arrays: the pairs, how many (None if nobody waited), what the device noted."""

    pairs: Pairs
    total: int | None
    words: Any


@dataclass
class _Question:
    """What is asked, as kernels take it."""

    cloud: Cloud
    points: Coordinates | None
    radius: float
    extents: Extents | None
    half: int  # as HALF in within.h
    reaches: Any
    largest: Any
    words: Any

    @property
    def rows(self) -> int:
        return self.cloud.count if self.points is None else self.points.count

    @property
    def reach_is(self) -> int:
        return 0 if self.extents is None else self.extents.axes


class Searcher:
    """Searches on one backend: their programs, their scratch memory, and what was learned for the next one.

    Parameters
    ----------
    backend : Backend
        CUDA or OpenCL.
    room : callable (name, shape, dtype), optional
        Where scratch memory comes from, and results of ``check=False``; by default it is new every time.
    """

    def __init__(self, backend: Backend, room: Allocate | None = None) -> None:
        self.backend = backend
        self.room: Allocate = room or (lambda name, shape, dtype: backend.empty(shape, dtype))
        self._programs: dict[tuple[Any, ...], Kernel] = {}
        self._means: dict[Any, float] = {}  # pairs of a row, by what was asked
        self._geometry: tuple[Any, tuple[Record, ...]] = (None, ())

    # ---- what users want ------------------------------------------------------------------------------

    def count(
        self, cloud: Cloud, radius: float | Extents, *, points: Coordinates | None = None, half: bool = False,
        order: str = "input", check: bool = True,
    ) -> Any:  # fmt: skip
        """Return how many pairs each particle or point has, (rows,) int32; waits only to check points and radii."""
        asked = self._ask(cloud, radius, points, 0 if not half else 2 if order == "input" else 1)
        counts = allocate(self.backend, (max(asked.rows, 1),), _I32, "counts of pairs")
        if points is None and order == "input":
            self.backend.clear(counts)
        self._count(asked, counts, order == "input" and points is None)
        if check and (points is not None or asked.extents is not None):
            self.verdict(asked.words)
        return counts[: asked.rows]

    def find(
        self, cloud: Cloud, radius: float | Extents, *, points: Coordinates | None = None, half: bool = True,
        order: str = "input", format: str = "csr", quantities: str = "j", width: int | None = None,  # noqa: A002
        capacity: int | None = None, check: bool = True,
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
            Particles are named, and rows are, by their indices (``"input"``) or by their places (``"grid"``).
        format
            ``"csr"``, ``"coo"`` or ``"dense"``.
        quantities
            Letters of "ijdDS".
        width
            Pairs of each row of a dense list; by default as many as the longest has.
        capacity
            Room for so many pairs; by default as many as there are.
        check
            Wait, return exactly what there is, and raise what is wrong. Otherwise nothing waits, arrays have the
            length ``capacity``, their memory belongs to the next search, too, and :meth:`verdict` tells the rest.
        """
        by_index = order == "input" or points is not None
        rows_by_index = order == "input" and points is None and format != "coo"
        code = 0 if not half else 2 if rows_by_index else 1
        asked = self._ask(cloud, radius, points, code)
        run = _Run(self, asked, format, quantities, by_index, rows_by_index, half and by_index, check)
        if format == "dense":
            return run.dense(width)
        return run.list(capacity)

    def verdict(self, words: Any, capacity: int | None = None, width: int | None = None) -> Verdict:
        """Read what a search left; raise if anything was wrong with it. Waits for the device."""
        read = [int(w) for w in self.backend.download(words[:_WORDS])]
        bad = read[_NOT_FINITE] + read[_OUTSIDE] + read[_BAD_RADIUS]
        first = 2**64 - 1 - read[_FIRST] if bad else -1
        if read[_BAD_RADIUS]:
            raise ValueError(
                f"{read[_BAD_RADIUS]} radii are negative, not finite, or reach past 2**29 cells; the first is that of "
                f"particle {first}."
            )
        if bad:
            raise ValueError(
                f"{read[_NOT_FINITE]} points are not finite and {read[_OUTSIDE]} are 2**20 boxes away or more; the "
                f"first is point {first}."
            )
        if capacity is not None and read[_TOTAL] > capacity:
            raise OverflowError(f"{read[_TOTAL]:,} pairs and room for {capacity:,}: give capacity={read[_TOTAL]}.")
        if width is not None and read[_LONGEST] > width:
            raise OverflowError(f"a row has {read[_LONGEST]} pairs and room for {width}: give width={read[_LONGEST]}.")
        return Verdict(read[_TOTAL], read[_LONGEST], read[_NOT_FINITE], read[_OUTSIDE], read[_BAD_RADIUS], first)

    # ---- kernels --------------------------------------------------------------------------------------

    def program(self, file: str, name: str, cloud: Cloud, *key: int, **defines: int) -> Kernel:
        """Return a kernel over a cloud; ``defines`` are what it is told apart by."""
        known = (name, cloud.cells.dtype.char, cloud.ends is None, *defines.values())
        found = self._programs.get(known)
        if found is None:
            found = self._programs[known] = self.backend.kernel(file, name, {**cloud.defines(), **defines})
        return found

    def geometry(self, cloud: Cloud) -> tuple[Record, ...]:
        """Return the cloud's records; the same objects as before if they are the same."""
        cells = cloud.cells
        known = (cells.shape, cells.levels, cells.edge, cells.dtype)
        if self._geometry[0] is None or self._geometry[0][0] is not cells.box or self._geometry[0][1] != known:
            self._geometry = ((cells.box, known), cloud.geometry())
        return self._geometry[1]

    def _ask(self, cloud: Cloud, radius: float | Extents, points: Coordinates | None, half: int) -> _Question:
        backend, dtype = self.backend, cloud.cells.dtype
        if points is not None and half:
            raise ValueError("points are not particles: every pair of theirs counts, half=False.")
        if points is not None and points.dtype != dtype:
            raise TypeError(f"points have dtype {points.dtype}, the particles {dtype}: convert the points.")
        tiles = -(-(cloud.count if points is None else points.count) // backend.group_size)
        words = self.room("pairs_found", (_WORDS + tiles,), _U64)
        backend.clear(words)
        if not isinstance(radius, Extents):
            return _Question(cloud, points, _checked(radius, cloud), None, half, cloud.records, cloud.status, words)
        if points is not None:
            raise ValueError("points have no extents: give one radius.")
        assert cloud.ends is None or cloud.cells.levels == 1  # a level's slots follow each other
        reaches = self.room("reaches", (max(cloud.count, 1),) if radius.axes == 1 else (max(cloud.count, 1), 4), dtype)
        largest = self.room("largest", (3 * cloud.cells.levels,), _U64)
        backend.clear(largest)
        if cloud.count:
            gather = self.program("grid/gather_reaches.c", "gather_reaches", cloud, EXTENTS=radius.axes)
            gather(
                cloud.count, cloud.records, cloud.start, radius.array, reaches, largest, words, cloud.count,
                cloud.cells.count, *self.geometry(cloud),
            )  # fmt: skip
        return _Question(cloud, points, 0.0, radius, half, reaches, largest, words)

    def _count(self, asked: _Question, counts: Any, rows_by_index: bool, longest: bool = False) -> None:
        cloud, points = asked.cloud, asked.points
        if not asked.rows:
            return
        paired = (
            points is None and not asked.half and not asked.reach_is and cloud.ends is None and cloud.cells.levels == 1
        )
        kernel = self.program(
            "grid/count_pairs.c", "count_pairs", cloud, ROWS_ARE_POINTS=int(points is not None),
            REACH_IS=asked.reach_is, HALF=asked.half, PAIRED=int(paired), ROWS_BY_INDEX=int(rows_by_index),
            COUNT_IS_64=int(counts.dtype.itemsize == 8), WANT_LONGEST=int(longest),
        )  # fmt: skip
        items = -(-asked.rows // 2) if paired else asked.rows
        ends = cloud.start if cloud.ends is None else cloud.ends
        kernel(
            items, *self.leading(asked), cloud.records, cloud.start, ends, asked.reaches, asked.largest, counts,
            asked.words, asked.rows, cloud.cells.count, *self.trailing(asked),
        )  # fmt: skip

    def leading(self, asked: _Question) -> tuple[Any, ...]:
        """Return the arrays of points, if there are any."""
        return () if asked.points is None else asked.points.arguments()

    def trailing(self, asked: _Question) -> tuple[Record, ...]:
        """Return the records that end a kernel's arguments."""
        strides = () if asked.points is None else (asked.points.record(),)
        return (*strides, *self.geometry(asked.cloud), Record(f"={asked.cloud.cells.dtype.char}", asked.radius))


class _Run:
    """One search for lists."""

    def __init__(
        self, searcher: Searcher, asked: _Question, form: str, quantities: str, by_index: bool, rows_by_index: bool,
        swaps: bool, check: bool,
    ) -> None:  # fmt: skip
        self.searcher, self.asked, self.check = searcher, asked, check
        self.backend, self.rows = searcher.backend, asked.rows
        self.wanted = quantities + ("i" if form == "coo" and "i" not in quantities else "")
        self.by_index, self.rows_by_index = by_index, rows_by_index
        self.swaps = swaps and form == "coo"
        self.form = form
        self.key = (asked.half, asked.points is None, asked.radius, asked.reach_is)

    def list(self, capacity: int | None) -> Found:
        """Return rows that follow each other."""
        known = self.searcher._means.get(self.key)
        if not self.rows:
            return self._nothing()
        if capacity is None:
            if not self.check:
                raise ValueError("check=False takes what was reserved: give a capacity.")
            if known is not None:
                capacity = int(known * self.rows * _SPARE) + 1024
        start = self._room("start", (self.rows + 1,), _I64)
        if self.rows_by_index or capacity is None:
            self._starts(start)
            if capacity is None:
                capacity = self._total(start)
                known = capacity / self.rows
            mean = capacity / self.rows if known is None else known
            arrays = self._fill(1, start, capacity, mean)
        else:
            mean = capacity / self.rows if known is None else known
            arrays = self._fill(0, start, capacity, mean)
        total = None
        if self.check:
            total = self.searcher.verdict(self.asked.words).total
            self.searcher._means[self.key] = total / self.rows
            if total > capacity:
                capacity = total
                arrays = self._fill(1, start, capacity, total / self.rows)
            arrays = {name: array[:total] for name, array in arrays.items()}
        start = start[: self.rows + 1] if self.form == "csr" else None
        return Found(Pairs(start=start, **arrays), total, self.asked.words)

    def dense(self, width: int | None) -> Found:
        """Return rows of one width."""
        if not self.rows:
            return self._nothing(width or 0)
        backend, asked = self.backend, self.asked
        if width is None:
            if not self.check:
                raise ValueError("check=False takes what was reserved: give a width.")
            scratch = self.searcher.room("pair_counts", (self.rows,), _U64)
            self.searcher._count(asked, scratch, self.rows_by_index, longest=True)
            width = max(self.searcher.verdict(asked.words).longest, 1)
        counts = self._room("count", (self.rows,), _I32)
        arrays = self._arrays((self.rows, width))
        if self.rows_by_index:
            for array in (counts, *arrays.values()):
                backend.clear(array)
            blank = self.searcher.program("grid/pairs.c", "blank_rows", asked.cloud, **self._defines(2, 0, 32))
            blank(
                self.rows * width, asked.cloud.start, arrays.get("i", asked.words), arrays.get("j", asked.words),
                self.rows, asked.cloud.cells.count, width,
            )  # fmt: skip
        self._launch(2, asked.words, counts, arrays, self.rows * width, width, *self._collected(None, width))
        total = None
        if self.check:
            self.searcher.verdict(asked.words, width=width)
        return Found(Pairs(count=counts[: self.rows], **arrays), total, asked.words)

    def _nothing(self, width: int | None = None) -> Found:
        arrays = self._arrays((0,) if width is None else (0, width))
        start = counts = None
        if self.form == "csr":
            start = self._room("start", (1,), _I64)
            self.backend.clear(start)
        elif self.form == "dense":
            counts = self._room("count", (0,), _I32)
        if self.check:
            self.searcher.verdict(self.asked.words)
        return Found(Pairs(start=start, count=counts, **arrays), 0, self.asked.words)

    def _starts(self, start: Any) -> None:
        """Count the pairs of each row and write where rows begin."""
        counts = allocate_counts(self.backend, self.rows, _U64, self.searcher.room, "pair_counts")
        self.backend.clear(counts)
        self.searcher._count(self.asked, counts, self.rows_by_index)
        scan(self.backend, counts, start, self.rows)

    def _total(self, start: Any) -> int:
        return int(self.backend.download(start[self.rows : self.rows + 1])[0])

    def _fill(self, place: int, start: Any, capacity: int, mean: float) -> dict[str, Any]:
        arrays = self._arrays((capacity,))
        self._launch(place, start, self.asked.words, arrays, capacity, 0, *self._collected(mean))
        return arrays

    def _collected(self, mean: float | None, most: int = 0) -> tuple[int, int]:
        """Return CAP and SPAN for rows of ``mean`` pairs, nearly all of which shall fit, or of ``most``."""
        wanted = most if mean is None else mean + 4.2 * math.sqrt(mean)
        turns = bool(set("dDS") & set(self.wanted)) and any(self.asked.cloud.cells.box.periodic)
        choices = _COLLECTED[:3] if turns else _COLLECTED
        for cap, span in choices:
            if wanted <= cap:
                return cap, span
        if mean is not None and mean > choices[-1][0]:
            return 0, 32
        return choices[-1]

    def _defines(self, place: int, cap: int, span: int) -> dict[str, int]:
        asked, wanted = self.asked, self.wanted
        return {
            "ROWS_ARE_POINTS": int(asked.points is not None), "REACH_IS": asked.reach_is, "HALF": asked.half,
            "PLACE": place, "CAP": cap, "SPAN": span, "BY_INDEX": int(self.by_index),
            "ROWS_BY_INDEX": int(self.rows_by_index), "SWAP": int(self.swaps),
            "IMAGES": int(any(asked.cloud.cells.box.periodic)), "WANT_I": int("i" in wanted),
            "WANT_J": int("j" in wanted), "WANT_SHIFT": int("S" in wanted), "WANT_DISTANCE": int("d" in wanted),
            "WANT_VECTOR": int("D" in wanted),
        }  # fmt: skip

    def _launch(
        self, place: int, start: Any, counts: Any, arrays: dict[str, Any], capacity: int, width: int, cap: int,
        span: int,
    ) -> None:  # fmt: skip
        asked = self.asked
        cloud, none = asked.cloud, asked.words
        kernel = self.searcher.program("grid/pairs.c", "list_pairs", cloud, **self._defines(place, cap, span))
        ends = cloud.start if cloud.ends is None else cloud.ends
        outputs = (arrays.get(name, none) for name in ("i", "j", "shift", "distance", "vector"))
        kernel(
            self.rows, *self.searcher.leading(asked), cloud.records, cloud.start, ends, asked.reaches, asked.largest,
            cloud.turns, cloud.status, start, counts, *outputs, asked.words, self.rows, cloud.cells.count, capacity,
            width, *self.searcher.trailing(asked),
        )  # fmt: skip

    def _arrays(self, shape: tuple[int, ...]) -> dict[str, Any]:
        """Return arrays for what is wanted."""
        axes, real = (self.asked.cloud.cells.box.ndim,), self.asked.cloud.cells.dtype
        kinds = {
            "i": ("i", _I32, ()), "j": ("j", _I32, ()), "S": ("shift", _I32, axes), "d": ("distance", real, ()),
            "D": ("vector", real, axes),
        }  # fmt: skip
        return {
            name: self._room(name, shape + inner, dtype)
            for letter, (name, dtype, inner) in kinds.items() if letter in self.wanted
        }  # fmt: skip

    def _room(self, name: str, shape: tuple[int, ...], dtype: Any) -> Any:
        """Return memory for a result: the caller's own, or reserved if nobody waits."""
        if self.check:
            return allocate(self.backend, shape, dtype, f"{name} of pairs")
        array = self.searcher.room(f"pairs_{name}", shape, dtype)
        return array if array.shape == shape else array[: shape[0]]


def _checked(radius: float, cloud: Cloud) -> float:
    """Return a radius that kernels can take."""
    value = float(radius)
    if not (0 <= value < math.inf):
        raise ValueError(f"radius is {radius!r}; a finite number of at least zero is needed.")
    cells = cloud.cells
    per = np.sqrt((cells.box.inverse**2).sum(1)) * cells.shape
    if any(p and value * n >= _MOST_CELLS_AWAY for p, n in zip(cells.box.periodic, per, strict=True)):
        raise ValueError(f"radius is {radius!r}: that is 2**29 cells or more along a periodic axis.")
    return min(value, float(np.finfo(cells.dtype).max))
