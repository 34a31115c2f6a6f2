# SPDX-License-Identifier: BSD-3-Clause
"""Lists of pairs with a skin, for the CPU: kept until a particle has moved by half of the skin."""

from __future__ import annotations

from typing import Any

import numpy as np

import particlemesh as pm
from particlemesh.apps.pme.direct import smooth_part
from particlemesh.kernels import Coordinates
from particlemesh.kernels.cpu import fetch_add, loop_with, ranges, run, threads_for

_SHARE = 64  # rows that a thread claims at once


class SkinList:
    """Pairs within the cutoff and a skin, each once, with the lattice vector between both.

    Particles are listed in the order of the grid's cells, so that neighbours are near each other in memory. Moves are
    those of the nearest images: a particle that leaves the box and is folded has not moved.

    Parameters
    ----------
    grid : UniformGrid
        Finds the pairs.
    cutoff, skin : float

    Attributes
    ----------
    builds : int
        How often the list was made.
    """

    def __init__(self, grid: pm.UniformGrid, cutoff: float, skin: float) -> None:
        self.grid, self.cutoff, self.skin = grid, cutoff, skin
        self.builds = 0
        self._given: Any = None  # positions when the list was made
        self._base = np.empty((0, 3))  # the same, folded, in the order of cells
        self._order = np.empty(0, np.int32)
        self._now = np.empty((0, 3))

    def update(self, x: Coordinates) -> None:
        """Take positions; make the list again if a particle has moved too far."""
        given = np.stack(x.arrays, 1)
        if self._moved(given):
            return
        self.grid.build(given)
        self._order, self._base = self.grid.order, self.grid.positions
        found = self.grid.build(self._base).pairs(self.cutoff + self.skin, half=True, quantities="jS")
        self._given, self._now = given, self._base
        self._start, self._partners = np.asarray(found.start), found.j
        low = found.shift.min(0, initial=0)
        sizes = found.shift.max(0, initial=0) - low + 1
        self._codes = np.ravel_multi_index(tuple((found.shift - low).T), tuple(sizes)).astype(np.int32)
        shifts = np.stack(np.unravel_index(np.arange(np.prod(sizes)), tuple(sizes)), 1) + low
        self._shifts = (shifts @ self.grid.box.matrix).astype(given.dtype)
        self._longest = int(np.diff(self._start).max(initial=0))
        self.builds += 1

    def _moved(self, given: np.ndarray) -> bool:
        """Return whether the list serves these positions, and move its particles there if so."""
        if self._given is None or given.shape != self._given.shape or given.dtype != self._given.dtype:
            return False
        box = self.grid.box
        moves = given - self._given
        turns = np.rint(moves @ box.inverse.T.astype(given.dtype))
        if turns.any():
            moves -= turns @ box.matrix.astype(given.dtype)
        if not (np.einsum("ia,ia->i", moves, moves).max(initial=0) <= (self.skin / 2) ** 2 * (1 - 1e-5)):
            return False
        self._now = self._base + moves[self._order]
        return True

    def sums(self, function: pm.PairFunction, charges: np.ndarray, sums: np.ndarray, threads: int | None) -> None:
        """Write the sums (N, sets * columns + 1) of a Coulomb pair function."""
        count, results = sums.shape
        sets = charges.shape[0]
        parameters = np.array(function.parameters, sums.dtype)
        terms = (len(parameters) - 3) // round(function.parameters[2] + 0.5) - 1
        used = max(1, min(threads_for(threads, count), -(-count // _SHARE)))
        partial = np.zeros((used, count, results), sums.dtype)
        rooms = np.empty((used, 6, self._longest + 1), sums.dtype)
        called = np.empty((used, self._longest + 1), np.int32)
        values = np.ascontiguousarray(charges[:, self._order].T)
        run(
            loop_with(_rows, "polynomials", smooth_part(terms)), used, self._now, values, self._start, self._partners,
            self._codes, self._shifts, parameters, sums.dtype.type(self.cutoff**2), (results - 1) // max(sets, 1),
            partial, rooms, called, _SHARE, steps=5.0 * len(self._partners),
        )  # fmt: skip
        sums[self._order] = partial.sum(0)


def polynomials(r2, p):
    """Stand for the smooth part, which takes this name when the loop is compiled."""
    raise NotImplementedError


def _rows(x, values, start, partners, codes, shifts, p, square, width, partial, rooms, called, share, counter):
    """Add up over pairs of shares of rows, for both particles of each pair, in the memory of this thread."""
    worker = fetch_add(counter, 1, 1)
    totals, room, name = partial[worker], rooms[worker], called[worker]
    sets, last = values.shape[1], partial.shape[2] - 1
    for begin, end in ranges(counter, x.shape[0], share):
        for i in range(begin, end):
            a, b, c = x[i, 0], x[i, 1], x[i, 2]
            n = 0
            for k in range(start[i], start[i + 1]):
                j, s = partners[k], codes[k]
                dx, dy, dz = x[j, 0] - a + shifts[s, 0], x[j, 1] - b + shifts[s, 1], x[j, 2] - c + shifts[s, 2]
                r2 = dx * dx + dy * dy + dz * dz
                room[0, n], room[1, n], room[2, n], room[3, n], name[n] = dx, dy, dz, r2, j
                n += r2 <= square
            for k in range(n):
                r2 = room[3, k]
                value, slope = polynomials(r2, p)
                inverse = p[1] / np.sqrt(r2) if r2 > 0 else r2
                room[4, k], room[5, k] = inverse - value, -inverse * inverse * inverse - slope
            for k in range(n):
                j = name[k]
                dx, dy, dz, u, g = room[0, k], room[1, k], room[2, k], room[4, k], room[5, k]
                if not room[3, k] > 0:
                    totals[i, last] += 1
                    totals[j, last] += 1
                for m in range(sets):
                    at = m * width
                    q, own = values[j, m], values[i, m]
                    totals[i, at] += q * u
                    totals[j, at] += own * u
                    fx, fy, fz = g * dx, g * dy, g * dz
                    totals[i, at + 1] += q * fx
                    totals[i, at + 2] += q * fy
                    totals[i, at + 3] += q * fz
                    totals[j, at + 1] -= own * fx
                    totals[j, at + 2] -= own * fy
                    totals[j, at + 3] -= own * fz
                    if width > 4:
                        # Both particles' products are needed together only: one of them keeps them.
                        totals[i, at + 4] += 2 * q * (fx * dx)
                        totals[i, at + 5] += 2 * q * (fy * dy)
                        totals[i, at + 6] += 2 * q * (fz * dz)
                        totals[i, at + 7] += 2 * q * (fy * dz)
                        totals[i, at + 8] += 2 * q * (fz * dx)
                        totals[i, at + 9] += 2 * q * (fx * dy)
