# SPDX-License-Identifier: BSD-3-Clause
"""Lists of pairs with a skin, for the CPU: kept until a particle has moved by half of the skin."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numba
import numpy as np

import particlemesh as pm
from particlemesh.apps.pme import close
from particlemesh.apps.pme.direct import smooth_part
from particlemesh.kernels import Coordinates
from particlemesh.kernels.cpu import fetch_add, loop_with, ranges, run, threads_for

_SHARE = 64  # rows that a thread claims at once


class SkinList:
    """Pairs within the cutoff and a skin, each once.

    Particles are listed in the order of the grid's cells, so that neighbours are near each other in memory. Images
    that a pair needs follow the particles, so that the list has an index for each pair and nothing else. Moves are
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
        pairs = self.grid.build(self._base).pairs(self.cutoff + self.skin, half=True, quantities="jS")
        self._given, self._now = given, self._base
        self._start = np.asarray(pairs.start)
        self._partners, self._images, shifts = with_images(np.asarray(pairs.j), pairs.shift, len(given))
        self._shifts = (shifts @ self.grid.box.matrix).astype(given.dtype)
        self._longest = int(np.diff(self._start).max(initial=0))
        self.builds += 1

    def _moved(self, given: np.ndarray) -> bool:
        """Return whether the list serves these positions, and move its particles there if so."""
        if self._given is None or given.shape != self._given.shape or given.dtype != self._given.dtype:
            return False
        box = self.grid.box
        moves = given - self._given
        turns = np.rint(moves @ box.inverse.T.astype(given.dtype)) * np.array(box.periodic, given.dtype)
        if turns.any():
            moves -= turns @ box.matrix.astype(given.dtype)
        if not (np.einsum("ia,ia->i", moves, moves).max(initial=0) <= (self.skin / 2) ** 2 * (1 - 1e-5)):
            return False
        self._now = self._base + moves[self._order]
        return True

    def sums(self, function: pm.PairFunction, table: Any, charges: Any, sums: np.ndarray, threads: int | None) -> None:
        """Write the sums (N, sets * columns + 1) of a Coulomb pair function; a table has close excluded pairs."""
        count, results = sums.shape
        sets = charges.shape[0]
        parameters, table = function.parameters_as(sums.dtype), np.asarray(table, sums.dtype)
        intervals = round(function.parameters[2] + 0.5)
        terms = (len(parameters) - 3) // intervals - 1
        smooth = by_one_polynomial if intervals == 1 else by_intervals(terms)
        used = max(1, min(threads_for(threads, count), -(-count // _SHARE)))
        x = np.concatenate([self._now, self._now[self._images] + self._shifts])
        values = charges[:, self._order].T
        values = np.ascontiguousarray(np.concatenate([values, values[self._images]]))
        partial = np.zeros((used, len(x), results), sums.dtype)
        names = np.concatenate([self._order, self._order[self._images]])
        rooms = np.empty((used, 10, self._longest + 1), sums.dtype)
        called = np.empty((used, 2, self._longest + 1), np.uint32)
        run(
            loop_with(_rows, "potential_and_slope", smooth), used, x, names, values, self._start, self._partners,
            parameters, table, sums.dtype.type(self.cutoff**2), (results - 1) // max(sets, 1), partial, rooms, called,
            count, _SHARE, steps=5.0 * len(self._partners),
        )  # fmt: skip
        totals = partial.sum(0)
        for column in range(results):  # what images got belongs to their particles
            more = np.bincount(self._images, totals[count:, column], count)
            totals[:count, column] += more.astype(sums.dtype)
        sums[self._order] = totals[:count]


def with_images(j: np.ndarray, shift: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return partners as indices of particles and images, the particle of each image, and its lattice vector.

    Parameters
    ----------
    j : integers (M,)
        Partners of pairs.
    shift : integers (M, 3)
        Lattice vectors to add to them.
    count : int
        Number of particles.

    Examples
    --------
    >>> with_images(np.array([1, 0, 1]), np.array([[0, 0, 0], [0, 0, 1], [0, 0, 0]]), 2)
    (array([1, 2, 1], dtype=uint32), array([0]), array([[0, 0, 1]]))
    """
    partners, away = j.astype(np.uint32), shift.any(1)
    if not away.any():
        return partners, np.empty(0, np.int64), np.empty((0, 3), np.int64)
    far = shift[away].astype(np.int64)
    low = far.min(0)
    sizes = tuple(far.max(0) - low + 1)
    codes = np.ravel_multi_index(tuple((far - low).T), sizes)
    keys, images = np.unique(j[away].astype(np.int64) * np.prod(sizes) + codes, return_inverse=True)
    partners[away] = count + images
    of, code = np.divmod(keys, np.prod(sizes))
    return partners, of, np.stack(np.unravel_index(code, sizes), 1) + low


# ---- loops over a row's pairs, compiled with the loop over rows -------------------------------------------


HEAD, _whole = close.HEAD, close.compiled(close.NEIGHBOURS, 0)


def by_one_polynomial(squares, n, p, potentials, slopes):
    """Write ``1 / r`` minus the smooth part and its slope over r, for n squares of distances; return how many are 0.

    Loops over the row, with a few coefficients each, are what compilers vectorise.
    """
    m = p.shape[0] - 4
    scale, middle, top, zero = p[0], p[m + 3], p[m + 2], p[1] - p[1]
    for k in range(n):
        potentials[k] = top
        slopes[k] = zero
    m -= 2  # the next coefficient, counted from the lowest
    while m >= 3:
        c3, c2, c1, c0 = p[m + 3], p[m + 2], p[m + 1], p[m]
        for k in range(n):
            s = squares[k] * scale - middle
            u, g = potentials[k], slopes[k]
            g = g * s + u
            u = u * s + c3
            g = g * s + u
            u = u * s + c2
            g = g * s + u
            u = u * s + c1
            slopes[k] = g * s + u
            potentials[k] = u * s + c0
        m -= 4
    while m >= 0:
        c0 = p[m + 3]
        for k in range(n):
            s = squares[k] * scale - middle
            u, g = potentials[k], slopes[k]
            slopes[k] = g * s + u
            potentials[k] = u * s + c0
        m -= 1
    touching = 0
    for k in range(n):
        r2 = squares[k]
        apart = r2 > 0
        touching += not apart
        inverse = p[1] / np.sqrt(r2) if apart else zero
        potentials[k] = inverse - potentials[k]
        slopes[k] = -inverse * inverse * inverse - slopes[k] * (scale + scale)
    return touching


@functools.cache
def by_intervals(terms: int) -> Callable[..., Any]:
    """Return the same for polynomials of intervals, of so many coefficients each."""
    smooth = smooth_part(terms)

    def by_table(squares, n, p, potentials, slopes):
        touching = 0
        for k in range(n):
            r2 = squares[k]
            value, slope = smooth(r2, p)
            apart = r2 > 0
            touching += not apart
            inverse = p[1] / np.sqrt(r2) if apart else r2
            potentials[k], slopes[k] = inverse - value, -inverse * inverse * inverse - slope
        return touching

    return numba.njit(nogil=True, error_model="numpy", forceinline=True)(by_table)


def potential_and_slope(squares, n, p, potentials, slopes):
    """Stand for one of these, which takes this name when the loop is compiled."""
    raise NotImplementedError


def _rows(x, names, values, start, partners, p, table, square, width, partial, rooms, called, count, share, counter):
    """Add up over pairs of shares of rows, for both particles of each pair, in the memory of this thread."""
    worker = fetch_add(counter, 1, 1)
    totals, room, name, places = partial[worker], rooms[worker], called[worker, 0], called[worker, 1]
    ex, ey, ez, squares, potentials, slopes = room[0], room[1], room[2], room[3], room[4], room[5]
    last, zero = partial.shape[2] - 1, square - square
    some, shares, rest, steep, smooth = room[6], room[7], room[8], room[9], p.copy()
    smooth[1] = zero  # without 1 / r
    for begin, end in ranges(counter, count, share):
        for i in range(begin, end):
            a, b, c = x[i, 0], x[i, 1], x[i, 2]
            n = 0
            for k in range(start[i], start[i + 1]):
                j = partners[k]  # unsigned: a signed index could count from the end, which takes as long as a load
                dx, dy, dz = x[j, 0] - a, x[j, 1] - b, x[j, 2] - c
                r2 = dx * dx + dy * dy + dz * dz
                ex[n], ey[n], ez[n], squares[n], name[n] = dx, dy, dz, r2, j
                n += r2 <= square
            if potential_and_slope(squares, n, p, potentials, slopes):
                for k in range(n):
                    if not squares[k] > 0:
                        totals[i, last] += 1
                        totals[name[k], last] += 1
            m = 0
            for k in range(n if table.shape[0] > HEAD else 0):
                if squares[k] < table[1]:
                    whole = _whole(squares[k], names[i], names[name[k]], table)
                    if whole != p[1]:
                        some[m], shares[m], places[m] = squares[k], whole, k
                        m += 1
            if m:
                potential_and_slope(some, m, smooth, rest, steep)
            for e in range(m):  # a pair that is left out is not multiplied: powers of 1 / r may overflow
                k, whole = places[e], shares[e]
                if whole == zero and not squares[k] > 0:
                    totals[i, last] -= 1
                    totals[name[k], last] -= 1
                potentials[k] = whole * potentials[k] + (p[1] - whole) * rest[e] if whole != zero else rest[e]
                slopes[k] = whole * slopes[k] + (p[1] - whole) * steep[e] if whole != zero else steep[e]
            for m in range(values.shape[1]):
                at, value = m * width, values[i, m]
                s0, s1, s2, s3 = zero, zero, zero, zero  # in registers: a sum in memory waits for itself
                for k in range(n):
                    j, u, g = name[k], potentials[k], slopes[k]
                    q, fx, fy, fz = values[j, m], g * ex[k], g * ey[k], g * ez[k]
                    s0 += q * u
                    s1 += q * fx
                    s2 += q * fy
                    s3 += q * fz
                    totals[j, at] += value * u
                    totals[j, at + 1] -= value * fx
                    totals[j, at + 2] -= value * fy
                    totals[j, at + 3] -= value * fz
                totals[i, at] += s0
                totals[i, at + 1] += s1
                totals[i, at + 2] += s2
                totals[i, at + 3] += s3
                if width > 4:
                    # Both particles' products are needed together only: one of them keeps them.
                    s0, s1, s2, s3, s4, s5 = zero, zero, zero, zero, zero, zero
                    for k in range(n):
                        w = values[name[k], m] * slopes[k]
                        w += w
                        x0, x1, x2 = w * ex[k], w * ey[k], w * ez[k]
                        s0 += x0 * ex[k]
                        s1 += x1 * ey[k]
                        s2 += x2 * ez[k]
                        s3 += x1 * ez[k]
                        s4 += x2 * ex[k]
                        s5 += x0 * ey[k]
                    totals[i, at + 4] += s0
                    totals[i, at + 5] += s1
                    totals[i, at + 6] += s2
                    totals[i, at + 7] += s3
                    totals[i, at + 8] += s4
                    totals[i, at + 9] += s5
