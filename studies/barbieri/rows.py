# SPDX-License-Identifier: BSD-3-Clause
"""Steps on the CPU without a grid in three dimensions: rows of cells along the last axis, sorted along it, are swept.

A column with few spheres has many empty cells, and a grid spends its time on them. There are far fewer rows. The fewer
spheres there are, the higher is a row, in cells along the second axis: vectors are then better filled.
"""

from __future__ import annotations

import numpy as np

from particlemesh.kernels.cpu import compiled, ranges, run
from particlemesh.kernels.lanes import WIDTHS, add, below, div, fma, keep, load, mul, root, splat, store, sub, sums
from studies.barbieri.cpu import PAD, CpuState
from studies.barbieri.green import RADIUS
from studies.barbieri.steps import BAD, LAST_BAD, Setup

_SHARES = 512  # of the rows, each of which a thread takes at a time
# Spheres of 64^3 cells for which rows are one cell high; with half as many they are four times as high (EPYC).
_FILLED = 2**15
_SPHERES = 8192  # that a thread counts at a time, at least: waking it takes as long
_GAPS = np.array([1, 4, 10, 23, 57, 132, 301, 701])  # of Ciura's shell sort: nearly sorted rows take linear time
_LENGTHS = 8  # a row is at least so many gaps long, where the gap is taken


class CpuRows(CpuState):
    """Steps over sorted rows. Spheres stay in the order of the last step, so that rows are nearly sorted."""

    def __init__(self, setup: Setup, threads: int | None) -> None:
        super().__init__(setup, threads)
        count = setup.count
        self._bits = height_bits(count, setup.cells)
        rows = setup.cells * _rows_along(setup.cells, self._bits)
        self._share = max(1, rows // _SHARES)
        shares = max(1, min(self.threads, count // _SPHERES))
        self._start = np.zeros(rows + 1, np.int64)
        self._places = np.zeros((shares, rows), np.int64)
        self._row, self._order = np.zeros(count, np.int32), np.zeros(count, np.int32)
        self._along = np.zeros(count, setup.dtype)

    def step(self) -> None:
        """Take a step."""
        self.build()
        self.each(
            _sweep, self._start, *self.ordered, *self.moved, self.setup.cells, self.green, self.status, WIDTHS[PAD],
            share=self._share,
        )  # fmt: skip

    def build(self) -> None:
        """Sort the present spheres by row, and along rows."""
        x, cells = self.moved[0], self.setup.cells
        shares, by_row = len(self._places), (self._row, self._places)
        if shares == 1:  # calls take as long as a thousand spheres
            _by_row(x, *by_row, self._start, self._order, self._along, cells, self._bits)
        else:
            run(_count, shares, x, *by_row, cells, self._bits, 1)
            _scan(self._places, self._start)
            run(_place, shares, x, *by_row, self._order, self._along, 1)
        self.each(_sort, self._start, self._order, self._along, _GAPS, *self.moved, *self.ordered, share=self._share)

    def reach(self) -> None:
        """Count the spheres in reach of each sphere, after :meth:`build`."""
        x, _, numbers = self.ordered
        cells, green = self.setup.cells, self.green
        self.each(_reach, self._start, x, numbers, self.reached, cells, green, WIDTHS[PAD], share=self._share)


def height_bits(count: int, cells: int) -> int:
    """Return the height of rows for so many spheres, as a power of two of cells."""
    bits, most = 0, _FILLED * (cells / 64) ** 3
    while 2 * count <= most and 2**bits < cells:
        bits, most = bits + 2, most / 2
    return bits


def _rows_along(cells: int, bits: int) -> int:
    return ((cells - 1) >> bits) + 1


@compiled
def _part(count, shares, share):
    return count * share // shares, count * (share + 1) // shares


@compiled
def _count(x, row, counts, cells, bits, share, counter):
    shares, most = counts.shape[0], cells - 1
    along = counts.shape[1] // cells
    for begin, end in ranges(counter, shares, share):
        for part in range(begin, end):
            in_row = counts[part]
            in_row[:] = 0
            first, last = _part(row.size, shares, part)
            for i in range(first, last):
                r = min(int(x[0, i]), most) * along + (min(int(x[1, i]), most) >> bits)
                row[i] = r
                in_row[r] += 1


@compiled
def _scan(counts, start):
    total = 0
    for r in range(counts.shape[1]):
        start[r] = total
        for part in range(counts.shape[0]):
            here = counts[part, r]
            counts[part, r] = total
            total += here
    start[counts.shape[1]] = total


@compiled
def _place(x, row, places, order, along, share, counter):
    shares = places.shape[0]
    for begin, end in ranges(counter, shares, share):
        for part in range(begin, end):
            next_place = places[part]
            first, last = _part(row.size, shares, part)
            for i in range(first, last):
                at = next_place[row[i]]
                next_place[row[i]] = at + 1
                order[at], along[at] = i, x[2, i]


@compiled
def _by_row(x, row, places, start, order, along, cells, bits):
    """Do the three functions above in one call."""
    counter = np.zeros(2, np.int64)
    _count(x, row, places, cells, bits, 1, counter)
    _scan(places, start)
    counter[0] = 0
    _place(x, row, places, order, along, 1, counter)


@compiled
def _sort(start, order, along, gaps, x, v, numbers, new_x, new_v, new_numbers, share, counter):
    for begin, end in ranges(counter, start.size - 1, share):
        for r in range(begin, end):
            first, last = start[r], start[r + 1]
            if last - first < 2:
                continue
            n = gaps.size
            while n > 0:
                n -= 1
                gap = gaps[n]
                if n > 0 and last - first < _LENGTHS * gap:
                    continue
                for k in range(first + gap, last):
                    z, i, q = along[k], order[k], k
                    while q - gap >= first and along[q - gap] > z:
                        along[q], order[q] = along[q - gap], order[q - gap]
                        q -= gap
                    along[q], order[q] = z, i
        for k in range(start[begin], start[end]):
            i = order[k]
            for a in range(3):
                new_x[a, k], new_v[a, k] = x[a, i], v[a, i]
            new_numbers[k] = numbers[i]


@compiled
def _rows_around(start, r, cells, low, ends):
    """Write where the rows around a row, which are not empty, begin and end; return how many."""
    rows, along = 0, (start.size - 1) // cells
    for i in range(max(r // along - 1, 0), min(r // along + 2, cells)):
        for j in range(max(r % along - 1, 0), min(r % along + 2, along)):
            at = i * along + j
            if start[at] < start[at + 1]:
                low[rows] = start[at]
                ends[rows] = start[at + 1]
                rows += 1
    return rows


@compiled(inline="always")
def _passed(along, z, first, end):
    """Return the first place in a row, from ``first`` on, less than a diameter below z, which only increases."""
    one = along.dtype.type(1)
    while first < end and z - along[first] >= one:
        first += 1
    return first


@compiled(inline="always")
def _apart(x0, x1, x2, q, p0, p1, p2, width):
    """Return the vectors from points to sphere q, and their squares."""
    d0, d1, d2 = sub(splat(x0[q], width), p0), sub(splat(x1[q], width), p1), sub(splat(x2[q], width), p2)
    return d0, d1, d2, fma(d0, d0, fma(d1, d1, mul(d2, d2)))


@compiled(inline="always")
def _touch(square, one, none, coincident):
    """Return 1 for each square in reach, else 0."""
    return below(square, one, below(coincident, square, one, none), none)


@compiled(inline="always")
def _within(x, v, faster, step, radius, far, restitution, one, none, good):
    """Return coordinates and velocities after a step between two walls; those before it where it is not ``good``."""
    y = fma(faster, step, x)
    z = below(y, radius, radius, y)
    z = below(far, z, far, z)
    faster = mul(faster, below(y, z, restitution, below(z, y, restitution, one)))
    return below(none, good, z, x), below(none, good, faster, v)


@compiled(inline="always")
def _write(x0, x1, x2, v0, v1, v2, at, y0, y1, y2, c0, c1, c2):
    store(x0, at, y0)
    store(x1, at, y1)
    store(x2, at, y2)
    store(v0, at, c0)
    store(v1, at, c1)
    store(v2, at, c2)


@compiled
def _sweep(start, x, v, numbers, new_x, new_v, new_numbers, cells, green, status, width, share, counter):
    """Move all spheres. Lanes are spheres that follow each other in a row; the other ones come one by one."""
    real = green.dtype.type
    one, none, coincident = splat(real(1), width), splat(real(0), width), splat(green[7], width)
    spring, shear, friction = splat(green[0], width), splat(green[2], width), splat(green[1] + green[2], width)
    x0, x1, x2, v0, v1, v2 = x[0], x[1], x[2], v[0], v[1], v[2]
    low, ends = np.empty(9, np.int64), np.empty(9, np.int64)
    lanes = len(width)
    room = np.empty((6, lanes), x.dtype)
    r0, r1, r2, r3, r4, r5 = room[0], room[1], room[2], room[3], room[4], room[5]
    n0, n1, n2, u0, u1, u2 = new_x[0], new_x[1], new_x[2], new_v[0], new_v[1], new_v[2]
    restitution, step, fall = splat(green[3], width), splat(green[4], width), splat(green[5] * green[4], width)
    most, square_of_most = splat(green[6], width), splat(green[6] * green[6], width)
    radius, far = splat(real(RADIUS), width), splat(real(cells) - real(RADIUS), width)
    endless = splat(real(np.inf), width)
    for begin, end in ranges(counter, start.size - 1, share):
        for r in range(begin, end):
            last = start[r + 1]
            if start[r] == last:
                continue
            rows = _rows_around(start, r, cells, low, ends)
            for first in range(start[r], last, lanes):
                count = min(lanes, last - first)
                z, above = x2[first], x2[first + count - 1]
                a0, a1, a2 = load(x0, first, width), load(x1, first, width), load(x2, first, width)
                b0, b1, b2 = load(v0, first, width), load(v1, first, width), load(v2, first, width)
                p0, p1, p2 = none, none, none
                for n in range(rows):
                    q = low[n] = _passed(x2, z, low[n], ends[n])
                    while q < ends[n] and x2[q] - above < real(1):
                        d0, d1, d2, square = _apart(x0, x1, x2, q, a0, a1, a2, width)
                        touch = _touch(square, one, none, coincident)
                        distance = root(below(square, one, below(coincident, square, square, one), one))
                        per = div(touch, distance)
                        w0, w1 = sub(splat(v0[q], width), b0), sub(splat(v1[q], width), b1)
                        w2 = sub(splat(v2[q], width), b2)
                        along = mul(fma(w0, d0, fma(w1, d1, mul(w2, d2))), per)
                        pull = mul(fma(spring, sub(distance, one), mul(shear, sub(none, along))), per)
                        rub = mul(friction, touch)
                        p0, p1 = fma(pull, d0, fma(rub, w0, p0)), fma(pull, d1, fma(rub, w1, p1))
                        p2 = fma(pull, d2, fma(rub, w2, p2))
                        q += 1
                p0, p1, p2 = add(b0, p0), sub(add(b1, p1), fall), add(b2, p2)
                square = fma(p0, p0, fma(p1, p1, mul(p2, p2)))
                good = below(square, endless, one, none)  # 0 for NaN
                slower = below(square_of_most, square, div(most, root(square)), one)
                y0, c0 = _within(a0, b0, mul(p0, slower), step, radius, far, restitution, one, none, good)
                y1, c1 = _within(a1, b1, mul(p1, slower), step, radius, far, restitution, one, none, good)
                y2, c2 = _within(a2, b2, mul(p2, slower), step, radius, far, restitution, one, none, good)
                if count == lanes:
                    _write(n0, n1, n2, u0, u1, u2, first, y0, y1, y2, c0, c1, c2)
                else:  # what follows belongs to another row
                    _write(r0, r1, r2, r3, r4, r5, 0, y0, y1, y2, c0, c1, c2)
                    for lane in range(count):
                        k = first + lane
                        n0[k], n1[k], n2[k] = r0[lane], r1[lane], r2[lane]
                        u0[k], u1[k], u2[k] = r3[lane], r4[lane], r5[lane]
                for k in range(first, first + count):
                    new_numbers[k] = numbers[k]
                even, odd = sums(keep(good, count))
                if even + odd < count:
                    store(r0, 0, good)
                    for lane in range(count):
                        if r0[lane] == 0:
                            status[BAD] += 1
                            status[LAST_BAD] = max(status[LAST_BAD], numbers[first + lane] + 1)


@compiled
def _reach(start, x, numbers, reached, cells, green, width, share, counter):
    real = green.dtype.type
    one, none, coincident = splat(real(1), width), splat(real(0), width), splat(green[7], width)
    x0, x1, x2 = x[0], x[1], x[2]
    low, ends = np.empty(9, np.int64), np.empty(9, np.int64)
    lanes = len(width)
    counts = np.empty(lanes, x.dtype)
    for begin, end in ranges(counter, start.size - 1, share):
        for r in range(begin, end):
            last = start[r + 1]
            rows = _rows_around(start, r, cells, low, ends)
            for first in range(start[r], last, lanes):
                count = min(lanes, last - first)
                z, above = x2[first], x2[first + count - 1]
                a0, a1, a2 = load(x0, first, width), load(x1, first, width), load(x2, first, width)
                near = none
                for n in range(rows):
                    q = low[n] = _passed(x2, z, low[n], ends[n])
                    while q < ends[n] and x2[q] - above < real(1):
                        near = add(near, _touch(_apart(x0, x1, x2, q, a0, a1, a2, width)[3], one, none, coincident))
                        q += 1
                store(counts, 0, near)
                for lane in range(count):
                    reached[numbers[first + lane]] = int(counts[lane])
