# SPDX-License-Identifier: BSD-3-Clause
"""Steps on the CPU: a grid, then compiled functions over its cells, or over its stream of pairs."""

from __future__ import annotations

from typing import Any

import numpy as np

from particlemesh.apps.dem.column_grid import grid_of, needs_radii
from particlemesh.apps.dem.column_steps import BAD, FULLEST, LAST_BAD, STATUS, Setup, StepError
from particlemesh.apps.dem.green import COINCIDENT, RADIUS
from particlemesh.backends.cpu import ranges, run, threads_for
from particlemesh.backends.jit import compiled

_SHARE = 512  # spheres that a thread takes at a time
_HITS = 256  # candidates tested before those in reach collide


class CpuSteps:
    """Steps over any builder. Spheres stay in the order of the last grid, which makes the next one cheaper."""

    def __init__(self, setup: Setup, builder: str, search: str, options: dict[str, Any], threads: int | None) -> None:
        self.setup, self.search = setup, search
        self._threads = threads_for(threads, setup.count)
        self._grid = grid_of(setup, builder, options, queries=search == "stream", threads=threads)
        self._radii = RADIUS if needs_radii(builder) else None
        self._function = setup.green.pair_function()
        self._green = np.append(setup.green.numbers(setup.dtype), setup.dtype.type(COINCIDENT))
        self.status = np.zeros(STATUS, np.int64)
        self._state = self._room()
        self._next = self._room()
        self._saved: Any = None
        self._reached = np.zeros(setup.count, np.int32)

    def _room(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        real = self.setup.dtype
        return np.zeros((3, self.setup.count), real), np.zeros((3, self.setup.count), real), self._numbers()

    def _numbers(self) -> np.ndarray:
        return np.arange(self.setup.count, dtype=np.int32)

    # ---- state ------------------------------------------------------------------------------------------------

    def load(self, positions: np.ndarray, velocities: np.ndarray) -> None:
        """Take a state (N, 3) each."""
        x, v, numbers = self._state
        x[:], v[:], numbers[:] = positions.T, velocities.T, self._numbers()

    def download(self) -> tuple[np.ndarray, np.ndarray]:
        """Return positions and velocities (N, 3) in the order of the numbers."""
        x, v, numbers = self._state
        both = np.empty((2, self.setup.count, 3), self.setup.dtype)
        both[0][numbers], both[1][numbers] = x.T, v.T
        return both[0], both[1]

    def save(self) -> None:
        """Keep the present state as the last good one."""
        self._saved = tuple(array.copy() for array in self._state)

    def restore(self) -> None:
        """Return to the last good state."""
        for array, kept in zip(self._state, self._saved, strict=True):
            array[:] = kept
        self.status[:] = 0

    def check(self) -> None:
        """Raise a StepError if a step since the last good state went wrong."""
        if self.status[BAD]:
            raise StepError(int(self.status[FULLEST]), int(self.status[BAD]), int(self.status[LAST_BAD]) - 1)

    def make_room(self, needed: int) -> None:
        """Do nothing: a build on the CPU makes room itself."""

    def rewind(self) -> None:
        """Do nothing: there are no phases."""

    def prepare(self, steps: int) -> None:
        """Do nothing: there are no graphs."""

    # ---- steps ------------------------------------------------------------------------------------------------

    def run(self, steps: int) -> None:
        """Take steps."""
        for _ in range(steps if self.setup.count else 0):
            self.build()
            if self.search == "stream":
                x, v, numbers = self._state
                push = self._grid.stream(1.0, self._function, v.T)
                self._each(_move, x, v, numbers, push, self.setup.cells, self._green, self.status)
                continue
            start, x, v, numbers = self._by_cell()
            moved = self._state
            self._each(_step, start, x, v, numbers, *moved, self.setup.cells, self._green, self.status)

    def build(self) -> None:
        """Build the grid of the present state."""
        self._grid.build(self._state[0].T, self._radii)

    def reach(self) -> None:
        """Count the spheres in reach of each sphere, after :meth:`build`."""
        if self.search == "stream":
            self._reached = self._grid.count(1.0)[np.argsort(self._state[2])]
            return
        start, x, _, numbers = self._by_cell()
        self._each(_reach, start, x, numbers, self._reached, self.setup.cells, self._green)

    def in_reach(self) -> np.ndarray:
        """Return that count, in the order of the numbers."""
        return self._reached

    def _by_cell(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return where cells start, and the present spheres in their order."""
        self._each(_reorder, self._grid.order, *self._state, *self._next)
        return self._grid.cell_start, *self._next

    def _each(self, function: Any, *arguments: Any) -> None:
        run(function, self._threads, *arguments, _SHARE)


@compiled
def _reorder(order, x, v, numbers, new_x, new_v, new_numbers, share, counter):
    for begin, end in ranges(counter, order.size, share):
        for k in range(begin, end):
            i = order[k]
            for a in range(3):
                new_x[a, k], new_v[a, k] = x[a, i], v[a, i]
            new_numbers[k] = numbers[i]


@compiled
def _advance(x, v, numbers, k, p0, p1, p2, new_x, new_v, cells, green, status):
    """Move the sphere at place ``k``; see green.h."""
    restitution, step, gravity, most = green[3], green[4], green[5], green[6]
    radius = green.dtype.type(RADIUS)
    far = green.dtype.type(cells) - radius
    v0, v1, v2 = v[0, k] + p0, v[1, k] + p1 - gravity * step, v[2, k] + p2
    square = v0 * v0 + v1 * v1 + v2 * v2
    if not np.isfinite(square):
        status[BAD] += 1
        status[LAST_BAD] = max(status[LAST_BAD], numbers[k] + 1)
        for a in range(3):
            new_x[a, k], new_v[a, k] = x[a, k], v[a, k]
        return
    if square > most * most:
        slower = most / np.sqrt(square)
        v0, v1, v2 = v0 * slower, v1 * slower, v2 * slower
    for a, w in ((0, v0), (1, v1), (2, v2)):
        place = x[a, k] + w * step
        inside = min(max(place, radius), far)
        new_x[a, k] = inside
        new_v[a, k] = w * restitution if place != inside else w


@compiled
def _move(x, v, numbers, push, cells, green, status, share, counter):
    for begin, end in ranges(counter, numbers.size, share):
        for k in range(begin, end):
            _advance(x, v, numbers, k, push[k, 0], push[k, 1], push[k, 2], x, v, cells, green, status)


@compiled
def _near(start, x, k, from_, to, hits, coincident):
    """Write which of the places ``from_`` to ``to`` are in reach of place ``k``; return how many."""
    x0, x1, x2 = x[0, k], x[1, k], x[2, k]
    found = 0
    for q in range(from_, to):
        d0, d1, d2 = x[0, q] - x0, x[1, q] - x1, x[2, q] - x2
        square = d0 * d0 + d1 * d1 + d2 * d2
        hits[found] = q
        found += int((square < 1) & (square > coincident))
    return found


@compiled
def _step(start, x, v, numbers, new_x, new_v, new_numbers, cells, green, status, share, counter):
    spring, dashpot, shear, coincident = green[0], green[1], green[2], green[7]
    friction, one = dashpot + shear, green.dtype.type(1)
    hits = np.empty(_HITS, np.int64)
    for begin, end in ranges(counter, numbers.size, share):
        for k in range(begin, end):
            x0, x1, x2, v0, v1, v2 = x[0, k], x[1, k], x[2, k], v[0, k], v[1, k], v[2, k]
            p0 = p1 = p2 = x0 - x0
            c0, c1, c2 = min(int(x0), cells - 1), min(int(x1), cells - 1), min(int(x2), cells - 1)
            for a in range(max(c0 - 1, 0), min(c0 + 2, cells)):
                for b in range(max(c1 - 1, 0), min(c1 + 2, cells)):
                    row = (a * cells + b) * cells
                    last = start[row + min(c2 + 2, cells)]
                    for first in range(start[row + max(c2 - 1, 0)], last, _HITS):
                        for h in range(_near(start, x, k, first, min(first + _HITS, last), hits, coincident)):
                            q = hits[h]
                            d0, d1, d2 = x[0, q] - x0, x[1, q] - x1, x[2, q] - x2
                            w0, w1, w2 = v[0, q] - v0, v[1, q] - v1, v[2, q] - v2
                            r = np.sqrt(d0 * d0 + d1 * d1 + d2 * d2)
                            along = (w0 * d0 + w1 * d1 + w2 * d2) / r
                            pull = (-spring * (one - r) - shear * along) / r
                            p0 += pull * d0 + friction * w0
                            p1 += pull * d1 + friction * w1
                            p2 += pull * d2 + friction * w2
            new_numbers[k] = numbers[k]
            _advance(x, v, numbers, k, p0, p1, p2, new_x, new_v, cells, green, status)


@compiled
def _reach(start, x, numbers, reached, cells, green, share, counter):
    hits = np.empty(_HITS, np.int64)
    for begin, end in ranges(counter, numbers.size, share):
        for k in range(begin, end):
            c0, c1, c2 = min(int(x[0, k]), cells - 1), min(int(x[1, k]), cells - 1), min(int(x[2, k]), cells - 1)
            near = 0
            for a in range(max(c0 - 1, 0), min(c0 + 2, cells)):
                for b in range(max(c1 - 1, 0), min(c1 + 2, cells)):
                    row = (a * cells + b) * cells
                    last = start[row + min(c2 + 2, cells)]
                    for first in range(start[row + max(c2 - 1, 0)], last, _HITS):
                        near += _near(start, x, k, first, min(first + _HITS, last), hits, green[7])
            reached[numbers[k]] = near
