# SPDX-License-Identifier: BSD-3-Clause
"""Kept lists of pairs on a GPU: lists as long as there are pairs, and rows of one width that no call waits for."""

from __future__ import annotations

from typing import Any

import numpy as np

from particlemesh.arrays.kinds import allocate, kind_of
from particlemesh.arrays.positions import INDEX, Coordinates, frame_record
from particlemesh.backends.base import Backend, Record, Unread
from particlemesh.box import Box
from particlemesh.grid import checks
from particlemesh.grid.neighbour_list import neighbour_list
from particlemesh.grid.uniform_grid import UniformGrid
from particlemesh.sorting.scan import allocate_counts, scan

_FILE, _I64, _U64 = "grid/queries/skin.c", np.dtype(np.int64), np.dtype(np.uint64)


class DeviceLists:
    """The kept pairs of particles on a GPU."""

    together = True  # all systems are searched again at once

    def __init__(
        self, home: Backend, x: Coordinates, ids: np.ndarray, radii: np.ndarray | None, systems: int,
        threads: int | None,
    ) -> None:  # fmt: skip
        self.backend, self.ids, self.x, self.axes = home, ids, x, len(x.arrays)
        self._frame = frame_record(Box((1.0,) * self.axes))
        self._system, self._turns = home.upload(ids), home.upload(np.zeros(3 * x.count, INDEX))
        self._radii = None if radii is None else home.upload(radii)
        self._before, self.moved = home.empty((max(3 * x.count, 1),), x.dtype), home.empty((systems,), INDEX)
        self._pairs: tuple[Any, ...] = ()  # start, j and shift
        self._host: Any = None
        self._table: Any = None

    def moves(self, x: Coordinates, table: np.ndarray) -> np.ndarray:
        """Take positions, and return which systems (S,) have a particle that has moved too far."""
        self._find_moves(x, table)
        return self.backend.download(self.moved).astype(bool)

    def _find_moves(self, x: Coordinates, table: np.ndarray) -> None:
        self.x = x
        self.backend.clear(self.moved)
        self._run("moves", self._before, self._system, self._sent(table), self._turns, self.moved)

    def search(
        self, positions: Any, x: Coordinates, moved: np.ndarray, box: Any, reach: float, skin: float, size: float,
        options: dict[str, Any],
    ) -> None:  # fmt: skip
        """Make the lists of all systems; ``size`` is that of all boxes, for what rounding takes."""
        kind, home = kind_of(positions[0] if isinstance(positions, tuple) else positions), self.backend
        host = np.concatenate([home.download(array).ravel() for array in {id(a): a for a in x.arrays}.values()])
        spread = float(np.abs(host).max(initial=0.0, where=np.isfinite(host)))
        skin += 32 * np.finfo(x.dtype).eps * (spread + size + reach + skin)
        local = kind is not None and kind.home == home.name
        radius: Any = reach + skin
        if self._radii is not None:
            radius = home.download(self._radii) + x.dtype.type(skin / 2)
            radius = home.upload(radius) if local else radius
        if "system" in options:
            options["system"] = self._system if local else self.ids
        answer = neighbour_list("sjS", positions, box, radius, **options)
        self._pairs = tuple(_native(array) if local else home.upload(array) for array in answer)
        self.x = x
        self._run("renew", self._before, self._system, self._ones(), self._turns, *[Unread(self._system)] * 6, 0)

    def pairs(self, letters: str, table: np.ndarray, square: float, exact: bool) -> dict[str, Any]:
        """Return the arrays of letters, of kept pairs within the radius now, or of all if not ``exact``."""
        backend, count = self.backend, self.x.count

        def room(name: str, shape: tuple[int, ...], dtype: Any) -> Any:
            return allocate(backend, shape, dtype, f"{name} of pairs")

        counts = allocate_counts(backend, count, _U64, room, "counts")
        places = room("places", (count + 2,), _I64)[: count + 1]
        backend.clear(counts)
        start, j, shift = self._pairs
        kept = start, Unread(start), j, shift
        none = Unread(start)
        total = 0
        if count:
            facts = self._facts("", exact, writes=0)
            self._filter(facts, table, square, kept, counts, none, none, [none] * 5, 0)
            scan(backend, counts, places, count)
            total = int(backend.download(places[count:])[0])
        else:
            backend.clear(places)
        listed = "".join(letter for letter in letters if letter in checks.FIELDS)
        made = {
            field: room(field, shape, dtype)
            for field, (shape, dtype) in checks.array_types(listed, (total,), self.axes, self.x.dtype).items()
        }
        if total and made:
            outputs = [made.get(field, none) for field in checks.FIELDS.values()]
            facts = self._facts(listed, exact, writes=1)
            self._filter(facts, table, square, kept, Unread(counts), places, none, outputs, 0)
        arrays = {letter: made[checks.FIELDS[letter]] for letter in listed}
        if "n" in letters:
            arrays["n"] = backend.upload(backend.download(counts.view(_U64)[:count]).astype(INDEX))
        return arrays | {"s": places}

    def _filter(
        self, facts: dict[str, int], table: np.ndarray, square: float, kept: tuple[Any, ...], counts: Any, places: Any,
        out_count: Any, outputs: list[Any], width: int,
    ) -> None:  # fmt: skip
        radii = Unread(self._before) if self._radii is None else self._radii
        limit = Record(f"={self.x.dtype.char}", square)
        self._run(
            "kept_pairs", radii, self._system, self._sent(table), self._turns, *kept, counts, places, out_count,
            *outputs, width, limit, facts=facts,
        )  # fmt: skip

    def _run(self, name: str, *arguments: Any, facts: dict[str, int] | None = None) -> None:
        """Launch a kernel over particles; what follows the arrays are the width and records."""
        if not self.x.count:
            return
        arrays = [a for a in arguments if not isinstance(a, (int, Record))]
        numbers = [a for a in arguments if isinstance(a, int)]
        records = [a for a in arguments if isinstance(a, Record)]
        kernel = self.backend.kernel(_FILE, name, facts or self._facts("", False, writes=0))
        kernel(
            self.x.count, *self.x.arguments(), *arrays, self.x.count, *numbers, self.x.record(), self._frame, *records
        )  # fmt: skip

    def _facts(self, letters: str, exact: bool, *, writes: int, dense: int = 0) -> dict[str, int]:
        wide = int(self.x.dtype.itemsize == 8)
        return {
            "REAL_IS_DOUBLE": wide, "COORDINATE_IS_DOUBLE": wide, "AXES": self.axes, "DENSE": dense,
            "FILTERS": int(exact), "RADII": int(self._radii is not None), "WRITES": writes, **checks.wants(letters),
        }  # fmt: skip

    def _ones(self) -> Any:
        return self.backend.upload(np.ones(self.moved.shape[0], INDEX))

    def _sent(self, table: np.ndarray) -> Any:
        """Return the table on the device, where it is sent when it changes."""
        if self._host is not table:
            self._host, self._table = table, self.backend.upload(table)
        return self._table


class FixedLists(DeviceLists):
    """Kept rows of one width: what is searched again is decided on the device, and no call waits.

    Each call builds and searches a grid of the particles whose systems have moved too far; the others are left out of
    it. So a graph that has captured a call can be replayed.
    """

    together = False

    def __init__(
        self, home: Backend, x: Coordinates, ids: np.ndarray, grid: UniformGrid, width: int, letters: str
    ) -> None:
        super().__init__(home, x, ids, None, grid.systems, None)
        self.grid, self.width = grid, width
        grid.reserve(x.count)
        size = max(x.count, 1), width
        self._searched = home.empty((max(x.count, 1),), INDEX)
        self.rebuilds = home.upload(np.zeros(grid.systems, INDEX))
        self._all = self._ones()
        self._kept = (
            home.upload(np.zeros(size[0], INDEX)),
            home.empty(size, INDEX),
            home.empty((*size, self.axes), INDEX),
        )
        types = checks.array_types(letters, size, self.axes, x.dtype)
        self._out = {field: home.empty(shape, dtype)[: x.count] for field, (shape, dtype) in types.items()}
        self._counts = home.empty((size[0],), INDEX)[: x.count]

    def update(
        self, positions: Any, x: Coordinates, table: np.ndarray, boxes: Any, reach: float, *, half: bool, force: bool
    ) -> None:
        """Take positions, and search again for systems that have moved too far, or for all if ``force``."""
        if force:
            self.x = x
            self.backend.copy(self.moved, self._all)
        else:
            self._find_moves(x, table)
        count, systems = x.count, self.grid.systems
        self.backend.kernel(_FILE, "chosen", self._facts("", False, writes=0))(
            max(count, systems), self._system if count else Unread(self.moved), self.moved, self._searched,
            self.rebuilds, count, systems,
        )  # fmt: skip
        if not count:
            return
        self.grid.build(positions, system=self._searched[:count], boxes=boxes, check=False)
        pairs = self.grid.pairs(reach, half=half, format="dense", quantities="jS", width=self.width, check=False)
        fresh = [_native(array) for array in (pairs.count, pairs.j, pairs.shift)]
        facts = self._facts("", False, writes=0, dense=1)
        self._run(
            "renew", self._before, self._system, self.moved, self._turns, *fresh, *self._kept, self.width, facts=facts
        )  # fmt: skip

    def pairs(self, letters: str, table: np.ndarray, square: float, exact: bool) -> dict[str, Any]:
        """Return rows of one width, in memory that the next call overwrites."""
        none = Unread(self._system)
        outputs = [self._out.get(field, none) for field in checks.FIELDS.values()]
        facts = self._facts("".join(letter for letter in letters if letter in checks.FIELDS), exact, writes=1, dense=1)
        self._filter(facts, table, square, (none, *self._kept), none, none, self._counts, outputs, self.width)
        return {letter: self._counts if letter == "n" else self._out[checks.FIELDS[letter]] for letter in letters}

    def check(self) -> None:
        """Raise what was wrong with the last search, and rows that were too long; waits for the device."""
        skipped = int((self.backend.download(self._searched)[: self.x.count] < 0).sum())
        status = self.grid.status
        if status.not_finite + status.outside > skipped:
            raise ValueError(
                f"{status.not_finite} of {self.x.count} particles are not finite and {status.outside - skipped} are "
                "outside the box; they have no pairs."
            )
        longest = int(self.backend.download(self._kept[0])[: self.x.count].max(initial=0))
        checks.wide_enough(longest, self.width)


def _native(array: Any) -> Any:
    kind = kind_of(array)
    assert kind is not None
    return kind.native(array)
