# SPDX-License-Identifier: BSD-3-Clause
"""Kept lists of pairs on the CPU: who has moved too far, and which kept pairs are within the radius now.

The numbers of a system are those of `TABLE` in grid/skin.py. Vectors of pairs are computed as by searches.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from particlemesh.arrays.positions import INDEX, Coordinates
from particlemesh.backends.base import Backend
from particlemesh.backends.cpu import ranges, run, threads_for
from particlemesh.backends.jit import compiled
from particlemesh.backends.memory import empty
from particlemesh.backends.simd import fetch_add
from particlemesh.grid.checks import FIELDS, array_types
from particlemesh.grid.cpu.search import image_shift, squared
from particlemesh.grid.neighbour_list import neighbour_list

_SHARE = 512  # rows that a thread claims at once
_FAR = 2.0**20  # turns, beyond which searches do not fold


class Kept(NamedTuple):
    """Pairs of rows, as they were when the list was made."""

    start: np.ndarray  # (N + 1,) int64
    code: np.ndarray  # (P,) int32: j, or ~j with a shift that is not 0
    shift: np.ndarray  # (P, d) int32
    hits: np.ndarray  # (P,) int32: pairs within reach, written by each call
    squares: np.ndarray  # (P,): of their lengths


@compiled
def _moves(now, before, system, table, turns, moved, turned, counter):
    """Write whole turns since the list was made; flag the systems of particles that have moved too far."""
    real = table.dtype.type
    move = np.empty(3, now.dtype)
    turn = np.empty(3, now.dtype)
    for begin, end in ranges(counter, now.shape[0], _SHARE):
        any_turn = False
        for k in range(begin, end):
            s = system[k]
            t = table[s]
            for b in range(3):
                move[b] = now[k, b] - before[k, b]
            if t[0] != 0:  # the box has changed: places in it are compared
                for b in range(3):
                    place = real(0)
                    for a in range(3):
                        place += (before[k, a] - t[2 + a]) * t[5 + 3 * a + b]
                    move[b] = (now[k, b] - t[2 + b]) - place
            far = False
            for a in range(3):
                turn[a] = np.rint(move[0] * t[14 + 3 * a] + move[1] * t[15 + 3 * a] + move[2] * t[16 + 3 * a])
                far = far or not abs(turn[a]) <= real(_FAR)
            if turn[0] != 0 or turn[1] != 0 or turn[2] != 0:
                any_turn = True
                for b in range(3):
                    move[b] -= image_shift(t[23:32].reshape(3, 3), turn[0], turn[1], turn[2], b)
            if far or not squared(move[0], move[1], move[2]) <= t[1]:
                moved[s] = True
                turn[:] = 0
            for a in range(3):
                turns[k, a] = np.int32(turn[a])
        if any_turn:
            fetch_add(turned, 0, 1)


@compiled
def _within(now, system, table, turns, turned, start, partners, images, square, radii, counts, hits, squares, counter):
    """Write which kept pairs of each row are within reach, from the row's beginning on, and their squared lengths."""
    axes = images.shape[1]
    first, real = 3 - axes, now.dtype.type
    s = np.zeros(3, np.int32)
    for begin, end in ranges(counter, start.size - 1, _SHARE):
        for k in range(begin, end):
            rows = table[system[k], 23:32].reshape(3, 3)
            x, y, z = now[k, 0], now[k, 1], now[k, 2]
            at = start[k]
            for p in range(start[k], start[k + 1]):
                code = partners[p]
                other = np.int64(code ^ (code >> 31))
                dx, dy, dz = now[other, 0] - x, now[other, 1] - y, now[other, 2] - z
                if turned or code < 0:
                    for a in range(axes):
                        s[first + a] = images[p, a]
                    if turned:
                        for a in range(3):
                            s[a] += turns[k, a] - turns[other, a]
                    dx += image_shift(rows, real(s[0]), real(s[1]), real(s[2]), 0)
                    dy += image_shift(rows, real(s[0]), real(s[1]), real(s[2]), 1)
                    dz += image_shift(rows, real(s[0]), real(s[1]), real(s[2]), 2)
                length = squared(dx, dy, dz)
                # Without a branch, which would be guessed wrong for every third pair. What is no hit is written over.
                hits[at], squares[at] = p, length
                if radii.size:
                    at += np.sqrt(length) <= radii[k] + radii[other]
                else:
                    at += length <= square
            counts[k] = at - start[k]


@compiled
def _write(now, system, table, turns, turned, start, partners, images, hits, squares, places, i, j, shift, distance,
           vector, counter):  # fmt: skip
    """Write the arrays of pairs within reach, one array after the other, so that each loop is a short one."""
    axes = images.shape[1]
    first, real = 3 - axes, now.dtype.type
    s = np.zeros(3, np.int32)
    for begin, end in ranges(counter, start.size - 1, _SHARE):
        for k in range(begin, end):
            at, last, back = places[k], places[k + 1], start[k] - places[k]
            if i.size:
                i[at:last] = k
            if j.size:
                for n in range(at, last):
                    code = partners[hits[n + back]]
                    j[n] = code ^ (code >> 31)
            if distance.size:
                for n in range(at, last):
                    distance[n] = np.sqrt(squares[n + back])
            if shift.size:
                for n in range(at, last):
                    for a in range(axes):
                        shift[n, a] = images[hits[n + back], a]
                if turned:
                    for n in range(at, last):
                        code = partners[hits[n + back]]
                        for a in range(axes):
                            shift[n, a] += turns[k, first + a] - turns[code ^ (code >> 31), first + a]
            if vector.size:
                rows = table[system[k], 23:32].reshape(3, 3)
                for n in range(at, last):
                    code = partners[hits[n + back]]
                    other = code ^ (code >> 31)
                    for a in range(axes):
                        s[first + a] = images[hits[n + back], a]
                        if turned:
                            s[first + a] += turns[k, first + a] - turns[other, first + a]
                    for a in range(axes):
                        vector[n, a] = (now[other, first + a] - now[k, first + a]) + image_shift(
                            rows, real(s[0]), real(s[1]), real(s[2]), first + a
                        )


class CpuLists:
    """The kept pairs of particles on the CPU."""

    together = False  # systems are searched one by one

    def __init__(
        self, home: Backend, x: Coordinates, ids: np.ndarray, radii: np.ndarray | None, systems: int,
        threads: int | None,
    ) -> None:  # fmt: skip
        self.ids, self._threads = ids, threads
        self._radii = np.empty(0, x.dtype) if radii is None else radii
        self._now = self._before = _rows_of(x)
        self._turns, self._turned = np.zeros((x.count, 3), np.int32), False
        self._kept: Any = None

    def moves(self, x: Coordinates, table: np.ndarray) -> np.ndarray:
        """Take positions, and return which systems (S,) have a particle that has moved too far."""
        self._now = _rows_of(x)
        moved, turned = np.zeros(len(table), np.bool_), np.zeros(1, np.int64)
        run(
            _moves, threads_for(self._threads, x.count), self._now, self._before, self.ids, table, self._turns, moved,
            turned, steps=10.0 * x.count,
        )  # fmt: skip
        self._turned = bool(turned[0])
        return moved

    def search(
        self, positions: Any, x: Coordinates, moved: np.ndarray, box: Any, reach: float, skin: float, size: float,
        options: dict[str, Any],
    ) -> None:  # fmt: skip
        """Make the lists of systems that have moved; ``size`` is that of all boxes, for what rounding takes."""
        members = np.flatnonzero(moved[self.ids])
        given = self._now[members, 3 - len(x.arrays) :]
        spread = float(np.abs(given).max(initial=0.0, where=np.isfinite(given)))
        skin += 32 * np.finfo(x.dtype).eps * (spread + size + reach + skin)
        radius = reach + skin if not self._radii.size else self._radii[members] + x.dtype.type(skin / 2)
        if "system" in options:
            numbers = np.cumsum(moved) - 1
            options |= {"system": numbers[self.ids[members]], "boxes": options["boxes"][moved]}
        if "periodic" in options:
            options["periodic"] = options["periodic"][moved]
        j, shift, start = neighbour_list("jSs", given, box, radius, **options)
        code = np.where(shift.any(1), ~j, j)
        if len(members) < x.count:
            start, code, shift = _merged(self._kept, start, code, shift, members)
        room = np.empty(len(code), np.int64 if len(code) >= 2**31 else INDEX), np.empty(len(code), x.dtype)
        self._kept = Kept(start, code, shift, *room)
        before = self._before.copy()
        before[members] = self._now[members]
        self._before = before
        self._turns[members] = 0

    def pairs(self, letters: str, table: np.ndarray, square: float, exact: bool) -> dict[str, np.ndarray]:
        """Return the arrays of letters, of kept pairs within the radius now, or of all if not ``exact``."""
        kept, now, turns = self._kept, self._now, self._turns if self._turned else self._turns[:0]
        count, axes, threads = len(now), kept.shift.shape[1], threads_for(self._threads, len(now))
        radii = self._radii if exact else self._radii[:0]
        question = now, self.ids, table, turns, self._turned, kept.start, kept.code, kept.shift
        counts, places = np.zeros(count, np.int64), np.zeros(count + 1, np.int64)
        steps = 3.0 * len(kept.code)
        run(
            _within, threads, *question, table.dtype.type(square), radii, counts, kept.hits, kept.squares, steps=steps
        )  # fmt: skip
        np.cumsum(counts, out=places[1:])
        total = int(places[-1])
        none = {field: np.empty((0,) * (1 + len(shape)), dtype)
                for field, (shape, dtype) in array_types("ijSdD", (), axes, now.dtype).items()}  # fmt: skip
        made = {
            field: empty((total, *shape), dtype, f"{total:,} pairs")
            for field, (shape, dtype) in array_types(letters, (), axes, now.dtype).items()
        }
        if total and made:
            run(_write, threads, *question, kept.hits, kept.squares, places, *(none | made).values(), steps=steps)
        by_letter = {letter: made[FIELDS[letter]] for letter in letters if letter in FIELDS}
        return by_letter | {"n": counts.astype(INDEX), "s": places}


def _rows_of(x: Coordinates) -> np.ndarray:
    """Return positions (N, 3), missing axes first."""
    rows = np.zeros((x.count, 3), x.dtype)
    for axis, column in enumerate(x.arrays):
        rows[:, 3 - len(x.arrays) + axis] = column
    return rows


def _merged(
    old: Kept, start: np.ndarray, code: np.ndarray, shift: np.ndarray, members: np.ndarray
) -> tuple[np.ndarray, ...]:
    """Return a list with the given rows in the place of those of ``members``, in whose numbers their partners are."""
    counts = np.diff(old.start)
    before, fresh = counts.copy(), np.zeros_like(counts)
    before[members], fresh[members] = 0, np.diff(start)
    starts = np.concatenate([[0], np.cumsum(before + fresh)])
    kept, there = np.repeat(before > 0, counts), np.repeat(before > 0, before + fresh)
    codes, shifts = np.empty(len(there), old.code.dtype), np.empty((len(there), shift.shape[1]), shift.dtype)
    codes[there], shifts[there] = old.code[kept], old.shift[kept]
    codes[~there], shifts[~there] = (
        np.where(code < 0, ~members[code ^ (code >> 31)], members[code ^ (code >> 31)]),
        shift,
    )
    return starts, codes, shifts
