# SPDX-License-Identifier: BSD-3-Clause
"""Steps on the CPU without a grid in three dimensions: rows of cells along the last axis, sorted along it, are swept.

A column with few spheres has many empty cells, and a grid spends its time on them. There are far fewer rows.
"""

from __future__ import annotations

import numpy as np

from particlemesh.apps.dem.column_cpu import PAD, CpuState, advanced, put
from particlemesh.apps.dem.column_steps import Setup
from particlemesh.kernels.cpu import compiled, ranges, run
from particlemesh.kernels.lanes import WIDTHS, add, below, div, fma, keep, load, mul, root, splat, sub, sums

_SHARE = 8  # rows that a thread takes at a time
_SPHERES = 8192  # that a thread counts at a time, at least: waking it takes as long
_GAPS = np.array([1, 4, 10, 23, 57, 132, 301, 701])  # of Ciura's shell sort: nearly sorted rows take linear time
_LENGTHS = 8  # a row is at least so many gaps long, where the gap is taken


class CpuRows(CpuState):
    """Steps over sorted rows. Spheres stay in the order of the last step, so that rows are nearly sorted."""

    def __init__(self, setup: Setup, threads: int | None) -> None:
        super().__init__(setup, threads)
        count, rows = setup.count, setup.cells**2
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
            share=_SHARE,
        )  # fmt: skip

    def build(self) -> None:
        """Sort the present spheres by row, and along rows."""
        x, cells = self.moved[0], self.setup.cells
        shares = len(self._places)
        run(_count, shares, x, self._row, self._places, cells, 1)
        _scan(self._places, self._start)
        run(_place, shares, x, self._row, self._places, self._order, self._along, 1)
        self.each(_sort, self._start, self._order, self._along, _GAPS, *self.moved, *self.ordered, share=_SHARE)

    def reach(self) -> None:
        """Count the spheres in reach of each sphere, after :meth:`build`."""
        x, _, numbers = self.ordered
        cells, green = self.setup.cells, self.green
        self.each(_reach, self._start, x, numbers, self.reached, cells, green, WIDTHS[PAD], share=_SHARE)


@compiled
def _part(count, shares, share):
    return count * share // shares, count * (share + 1) // shares


@compiled
def _count(x, row, counts, cells, share, counter):
    shares, most = counts.shape[0], cells - 1
    for begin, end in ranges(counter, shares, share):
        for part in range(begin, end):
            in_row = counts[part]
            in_row[:] = 0
            first, last = _part(row.size, shares, part)
            for i in range(first, last):
                r = min(int(x[0, i]), most) * cells + min(int(x[1, i]), most)
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
    rows = 0
    for i in range(max(r // cells - 1, 0), min(r // cells + 2, cells)):
        for j in range(max(r % cells - 1, 0), min(r % cells + 2, cells)):
            at = i * cells + j
            if start[at] < start[at + 1]:
                low[rows] = start[at]
                ends[rows] = start[at + 1]
                rows += 1
    return rows


@compiled(inline="always")
def _passed(along, z, first, end):
    """Return ``first``, or a place after it: spheres of a row that are a diameter below z, which only increases.

    Up to seven of them may be left: they do no harm, and branches that processors cannot predict cost more.
    """
    one = along.dtype.type(1)
    while first + PAD <= end and z - along[first + PAD - 1] >= one:
        first += PAD
    first += int((first < end) & (z - along[first] >= one))
    return first + int((first < end) & (z - along[first] >= one))


@compiled(inline="always")
def _apart(x0, x1, x2, q, p0, p1, p2, width):
    """Return the vectors from a point to the spheres from q on, and their squares."""
    d0, d1, d2 = sub(load(x0, q, width), p0), sub(load(x1, q, width), p1), sub(load(x2, q, width), p2)
    return d0, d1, d2, fma(d0, d0, fma(d1, d1, mul(d2, d2)))


@compiled(inline="always")
def _touch(square, count, one, none, coincident):
    """Return 1 for each sphere in reach among the first ``count``, else 0."""
    return keep(below(square, one, below(coincident, square, one, none), none), count)


@compiled
def _sweep(start, x, v, numbers, new_x, new_v, new_numbers, cells, green, status, width, share, counter):
    real = green.dtype.type
    one, none, coincident = splat(real(1), width), splat(real(0), width), splat(green[7], width)
    spring, shear, friction = splat(green[0], width), splat(green[2], width), splat(green[1] + green[2], width)
    x0, x1, x2, v0, v1, v2 = x[0], x[1], x[2], v[0], v[1], v[2]
    low, ends = np.empty(9, np.int64), np.empty(9, np.int64)
    for begin, end in ranges(counter, start.size - 1, share):
        for r in range(begin, end):
            if start[r] == start[r + 1]:
                continue
            rows = _rows_around(start, r, cells, low, ends)
            for k in range(start[r], start[r + 1]):
                z = x2[k]
                a0, a1, a2 = splat(x0[k], width), splat(x1[k], width), splat(z, width)
                b0, b1, b2 = splat(v0[k], width), splat(v1[k], width), splat(v2[k], width)
                p0, p1, p2 = none, none, none
                for n in range(rows):
                    q = low[n] = _passed(x2, z, low[n], ends[n])
                    while q < ends[n] and x2[q] - z < real(1):
                        d0, d1, d2, square = _apart(x0, x1, x2, q, a0, a1, a2, width)
                        touch = _touch(square, ends[n] - q, one, none, coincident)
                        distance = root(below(square, one, below(coincident, square, square, one), one))
                        per = div(touch, distance)
                        w0, w1 = sub(load(v0, q, width), b0), sub(load(v1, q, width), b1)
                        w2 = sub(load(v2, q, width), b2)
                        along = mul(fma(w0, d0, fma(w1, d1, mul(w2, d2))), per)
                        pull = mul(fma(spring, sub(distance, one), mul(shear, sub(none, along))), per)
                        rub = mul(friction, touch)
                        p0, p1 = fma(pull, d0, fma(rub, w0, p0)), fma(pull, d1, fma(rub, w1, p1))
                        p2 = fma(pull, d2, fma(rub, w2, p2))
                        q += len(width)
                push0, push1, push2 = sums(p0), sums(p1), sums(p2)
                new_numbers[k] = numbers[k]
                place, velocity, finite = advanced(
                    (x0[k], x1[k], x2[k]), (v0[k], v1[k], v2[k]),
                    (push0[0] + push0[1], push1[0] + push1[1], push2[0] + push2[1]), cells, green,
                )  # fmt: skip
                put(new_x, new_v, numbers, k, place, velocity, finite, status)


@compiled
def _reach(start, x, numbers, reached, cells, green, width, share, counter):
    real = green.dtype.type
    one, none, coincident = splat(real(1), width), splat(real(0), width), splat(green[7], width)
    x0, x1, x2 = x[0], x[1], x[2]
    low, ends = np.empty(9, np.int64), np.empty(9, np.int64)
    for begin, end in ranges(counter, start.size - 1, share):
        for r in range(begin, end):
            rows = _rows_around(start, r, cells, low, ends)
            for k in range(start[r], start[r + 1]):
                z = x2[k]
                a0, a1, a2 = splat(x0[k], width), splat(x1[k], width), splat(z, width)
                near = none
                for n in range(rows):
                    q = low[n] = _passed(x2, z, low[n], ends[n])
                    while q < ends[n] and x2[q] - z < real(1):
                        square = _apart(x0, x1, x2, q, a0, a1, a2, width)[3]
                        near = add(near, _touch(square, ends[n] - q, one, none, coincident))
                        q += len(width)
                both = sums(near)
                reached[numbers[k]] = int(both[0] + both[1])
