# SPDX-License-Identifier: BSD-3-Clause
"""Steps on the CPU: a grid, then compiled functions over its cells, or over its stream of pairs."""

from __future__ import annotations

from typing import Any

import numpy as np

from particlemesh import UniformGrid
from particlemesh.kernels.cpu import compiled, ranges, run, threads_for
from particlemesh.kernels.lanes import WIDTHS, load, store
from studies.barbieri.green import COINCIDENT, RADIUS
from studies.barbieri.grid import grid_of
from studies.barbieri.steps import BAD, FULLEST, LAST_BAD, STATUS, Setup, StepError

_SHARE = 512  # spheres that a thread takes at a time
_ROWS = 2  # rows of cells that a thread takes at a time
_ROOM = 512  # candidates of a cell, at first
PAD = 8  # spheres copied at once: so many numbers behind the last one are read


class CpuState:
    """Spheres on the CPU in two rooms: ``moved``, the present state, and ``ordered``, the same in the grid's order."""

    def __init__(self, setup: Setup, threads: int | None) -> None:
        self.setup = setup
        self.threads = threads_for(threads, setup.count)
        self.green = np.append(setup.green.numbers(setup.dtype), setup.dtype.type(COINCIDENT))
        self.status = np.zeros(STATUS, np.int64)
        self.moved, self.ordered = self._room(), self._room()
        self.reached = np.zeros(setup.count, np.int32)
        self._saved: Any = None

    def _room(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        shape = 3, self.setup.count + PAD
        return np.zeros(shape, self.setup.dtype), np.zeros(shape, self.setup.dtype), self._numbers()

    def spheres(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the present state without what is behind the last sphere."""
        x, v, numbers = self.moved
        return x[:, : self.setup.count], v[:, : self.setup.count], numbers

    def _numbers(self) -> np.ndarray:
        return np.arange(self.setup.count, dtype=np.int32)

    # ---- state ------------------------------------------------------------------------------------------------

    def load(self, positions: np.ndarray, velocities: np.ndarray) -> None:
        """Take a state (N, 3) each."""
        x, v, numbers = self.spheres()
        x[:], v[:], numbers[:] = positions.T, velocities.T, self._numbers()

    def download(self) -> tuple[np.ndarray, np.ndarray]:
        """Return positions and velocities (N, 3) in the order of the numbers."""
        x, v, numbers = self.spheres()
        both = np.empty((2, self.setup.count, 3), self.setup.dtype)
        both[0][numbers], both[1][numbers] = x.T, v.T
        return both[0], both[1]

    def save(self) -> None:
        """Keep the present state as the last good one."""
        self._saved = tuple(array.copy() for array in self.moved)

    def restore(self) -> None:
        """Return to the last good state."""
        for array, kept in zip(self.moved, self._saved, strict=True):
            array[:] = kept
        self.status[:] = 0

    def check(self) -> None:
        """Raise a StepError if a step since the last good state went wrong."""
        if self.status[BAD]:
            raise StepError(int(self.status[FULLEST]), int(self.status[BAD]), int(self.status[LAST_BAD]) - 1)

    def make_room(self, needed: int) -> bool:
        """Return False: a build makes room itself, or raises."""
        return False

    def rewind(self) -> None:
        """Do nothing: there are no phases."""

    def prepare(self, steps: int) -> None:
        """Do nothing: there are no graphs."""

    # ---- steps ------------------------------------------------------------------------------------------------

    def run(self, steps: int) -> None:
        """Take steps."""
        for _ in range(steps if self.setup.count else 0):
            self.step()

    def step(self) -> None:
        """Take a step."""
        raise NotImplementedError

    def in_reach(self) -> np.ndarray:
        """Return how many spheres are in reach of each, as ``reach`` has counted them, in the order of the numbers."""
        return self.reached

    def each(self, function: Any, *arguments: Any, share: int = _SHARE) -> None:
        """Call a compiled function from all threads."""
        run(function, self.threads, *arguments, share)


class CpuSteps(CpuState):
    """Steps over any builder. Spheres stay in the order of the last grid, which makes the next one cheaper."""

    def __init__(self, setup: Setup, builder: str, search: str, options: dict[str, Any], threads: int | None) -> None:
        super().__init__(setup, threads)
        self.search = search
        self._grid = grid_of(setup, builder, options, queries=search == "stream", threads=threads)
        self._radii = RADIUS if builder in UniformGrid.methods_with_radii else None
        self._function = setup.green.pair_function()

    def step(self) -> None:
        """Take a step."""
        self.build()
        cells, green, status = self.setup.cells, self.green, self.status
        if self.search == "stream":
            x, v, numbers = self.spheres()
            push = self._grid.stream(1.0, self._function, v.T)
            self.each(_move, x, v, numbers, push, cells, green, status)
            return
        start = self._by_cell()
        self.each(_step, start, *self.ordered, *self.moved, cells, green, status, WIDTHS[PAD], share=_ROWS)

    def build(self) -> None:
        """Build the grid of the present state."""
        self._grid.build(self.spheres()[0].T, self._radii)

    def reach(self) -> None:
        """Count the spheres in reach of each sphere, after :meth:`build`."""
        if self.search == "stream":
            self.reached = self._grid.count(1.0)[np.argsort(self.moved[2])]
            return
        start = self._by_cell()
        self.each(_reach, start, *self.ordered, self.reached, self.setup.cells, self.green, WIDTHS[PAD], share=_ROWS)

    def _by_cell(self) -> np.ndarray:
        """Put the present spheres in the order of cells; return where cells start."""
        self.each(_reorder, self._grid.order, *self.moved, *self.ordered)
        return self._grid.cell_start


@compiled
def _reorder(order, x, v, numbers, new_x, new_v, new_numbers, share, counter):
    for begin, end in ranges(counter, order.size, share):
        for k in range(begin, end):
            i = order[k]
            for a in range(3):
                new_x[a, k], new_v[a, k] = x[a, i], v[a, i]
            new_numbers[k] = numbers[i]


@compiled(inline="always")
def advanced(x, v, push, size, green):
    """Return position and velocity after a step, and whether the speed was finite; see green.h."""
    restitution, step, gravity, most = green[3], green[4], green[5], green[6]
    radius = green.dtype.type(RADIUS)
    far = green.dtype.type(size) - radius
    v0, v1, v2 = v[0] + push[0], v[1] + push[1] - gravity * step, v[2] + push[2]
    square = v0 * v0 + v1 * v1 + v2 * v2
    if not np.isfinite(square):
        return x, v, False
    if square > most * most:
        slower = most / np.sqrt(square)
        v0, v1, v2 = v0 * slower, v1 * slower, v2 * slower
    y0, y1, y2 = x[0] + v0 * step, x[1] + v1 * step, x[2] + v2 * step
    z0, z1, z2 = min(max(y0, radius), far), min(max(y1, radius), far), min(max(y2, radius), far)
    v0 = v0 * restitution if y0 != z0 else v0
    v1 = v1 * restitution if y1 != z1 else v1
    v2 = v2 * restitution if y2 != z2 else v2
    return (z0, z1, z2), (v0, v1, v2), True


@compiled(inline="always")
def put(x, v, numbers, k, place, velocity, finite, status):
    """Write what :func:`advanced` has returned for sphere k."""
    x[0, k], x[1, k], x[2, k] = place
    v[0, k], v[1, k], v[2, k] = velocity
    if not finite:
        status[BAD] += 1
        status[LAST_BAD] = max(status[LAST_BAD], numbers[k] + 1)


@compiled
def _move(x, v, numbers, push, cells, green, status, share, counter):
    for begin, end in ranges(counter, numbers.size, share):
        for k in range(begin, end):
            place, velocity, finite = advanced(
                (x[0, k], x[1, k], x[2, k]), (v[0, k], v[1, k], v[2, k]), (push[k, 0], push[k, 1], push[k, 2]), cells,
                green,
            )  # fmt: skip
            put(x, v, numbers, k, place, velocity, finite, status)


@compiled
def _candidates(start, x, v, room, a, b, c, cells, width):
    """Copy positions and velocities of the spheres in 27 cells to ``room``; return how many, or -1: no room.

    Whole vectors are copied: most strips of three cells are one.
    """
    x0, x1, x2, v0, v1, v2 = x[0], x[1], x[2], v[0], v[1], v[2]
    r0, r1, r2, r3, r4, r5 = room[0], room[1], room[2], room[3], room[4], room[5]
    low, high = max(c - 1, 0), min(c + 2, cells)
    filled = 0
    for i in range(max(a - 1, 0), min(a + 2, cells)):
        for j in range(max(b - 1, 0), min(b + 2, cells)):
            row = (i * cells + j) * cells
            first, last = np.int64(start[row + low]), np.int64(start[row + high])
            if filled + last - first + PAD > room.shape[1]:
                return -1
            for q in range(first, last, PAD):
                at = filled + q - first
                store(r0, at, load(x0, q, width))
                store(r1, at, load(x1, q, width))
                store(r2, at, load(x2, q, width))
                store(r3, at, load(v0, q, width))
                store(r4, at, load(v1, q, width))
                store(r5, at, load(v2, q, width))
            filled += last - first
    return filled


@compiled
def _near(room, candidates, x0, x1, x2, coincident, hits):
    """Write which of the candidates are in reach of a point; return how many."""
    squares = room[6]
    for h in range(candidates):  # compiles to vectors
        d0, d1, d2 = room[0, h] - x0, room[1, h] - x1, room[2, h] - x2
        squares[h] = d0 * d0 + d1 * d1 + d2 * d2
    near = 0
    for h in range(candidates):
        hits[near] = h
        near += int((squares[h] < 1) & (squares[h] > coincident))
    return near


@compiled
def _step(start, x, v, numbers, new_x, new_v, new_numbers, cells, green, status, width, share, counter):
    spring, dashpot, shear, coincident = green[0], green[1], green[2], green[7]
    friction, one = dashpot + shear, green.dtype.type(1)
    room, hits = np.empty((7, _ROOM), x.dtype), np.empty(_ROOM, np.int32)
    for begin, end in ranges(counter, cells * cells, share):
        for row in range(begin, end):
            if start[row * cells] == start[(row + 1) * cells]:
                continue
            for cell in range(row * cells, (row + 1) * cells):
                if start[cell] == start[cell + 1]:
                    continue
                candidates = -1
                while candidates < 0:
                    candidates = _candidates(
                        start, x, v, room, row // cells, row % cells, cell - row * cells, cells, width
                    )
                    if candidates < 0:
                        more = 2 * hits.size
                        room, hits = np.empty((7, more), x.dtype), np.empty(more, np.int32)
                for k in range(start[cell], start[cell + 1]):
                    x0, x1, x2, v0, v1, v2 = x[0, k], x[1, k], x[2, k], v[0, k], v[1, k], v[2, k]
                    p0 = p1 = p2 = x0 - x0
                    for n in range(_near(room, candidates, x0, x1, x2, coincident, hits)):
                        h = hits[n]
                        d0, d1, d2 = room[0, h] - x0, room[1, h] - x1, room[2, h] - x2
                        w0, w1, w2 = room[3, h] - v0, room[4, h] - v1, room[5, h] - v2
                        r = np.sqrt(room[6, h])
                        per_r = one / r
                        pull = (-spring * (one - r) - shear * ((w0 * d0 + w1 * d1 + w2 * d2) * per_r)) * per_r
                        p0 += pull * d0 + friction * w0
                        p1 += pull * d1 + friction * w1
                        p2 += pull * d2 + friction * w2
                    new_numbers[k] = numbers[k]
                    place, velocity, finite = advanced((x0, x1, x2), (v0, v1, v2), (p0, p1, p2), cells, green)
                    put(new_x, new_v, numbers, k, place, velocity, finite, status)


@compiled
def _reach(start, x, v, numbers, reached, cells, green, width, share, counter):
    room, hits = np.empty((7, _ROOM), x.dtype), np.empty(_ROOM, np.int32)
    for begin, end in ranges(counter, cells * cells, share):
        for cell in range(begin * cells, end * cells):
            if start[cell] == start[cell + 1]:
                continue
            row = cell // cells
            candidates = -1
            while candidates < 0:
                candidates = _candidates(start, x, v, room, row // cells, row % cells, cell - row * cells, cells, width)
                if candidates < 0:
                    more = 2 * hits.size
                    room, hits = np.empty((7, more), x.dtype), np.empty(more, np.int32)
            for k in range(start[cell], start[cell + 1]):
                reached[numbers[k]] = _near(room, candidates, x[0, k], x[1, k], x[2, k], green[7], hits)
