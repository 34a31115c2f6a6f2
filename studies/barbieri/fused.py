# SPDX-License-Identifier: BSD-3-Clause
"""Steps in which the kernel of the forces also moves the spheres and begins the next build."""

from __future__ import annotations

from typing import Any

import numpy as np

from particlemesh.kernels import As, Unread, allocate_counts, scan
from studies.barbieri.steps import DeviceSteps, Setup

_SORT, _LIST = "sort.c", "list.c"
_QUEUE = 16  # places of a work-item that follows lists
_RESIDENT = 8  # groups of a multiprocessor that follow lists: 64 registers, where the compiler takes a few more


class _Sorting(DeviceSteps):
    """Spheres in two buffers, and the counting sort between them."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.positions = [self.spheres(), self.spheres()]
        self.velocities = [self.spheres(), self.spheres()]
        self.starts = self.words(setup.bins + 1)
        self.rank = self.words(setup.count)
        self.counts = allocate_counts(self.backend, setup.bins, np.uint32, self.empty)
        self.backend.clear(self.counts)
        self.reached = self.words(setup.count)

    def count(self, at: int) -> None:
        """Count the spheres of buffer ``at`` in each cell."""
        setup, counts = self.setup, As(self.counts, np.uint32)
        kernel = self.kernel(_SORT, "count_cells", LANES=1, QUEUE=0, WITH_LISTS=0)
        kernel(setup.count, self.positions[at], counts, self.rank, setup.count, setup.cells)

    def place(self, at: int, heads: Any = None) -> None:
        """Scan the counts, and put the spheres of buffer ``at`` in order into the other one, if asked with lists."""
        setup, to = self.setup, 1 - at
        scan(self.backend, self.counts, self.starts, setup.bins)
        kernel = self.kernel(_SORT, "place", LANES=1, QUEUE=0, WITH_LISTS=int(heads is not None))
        kernel(
            setup.count, self.positions[at], self.velocities[at], self.rank, self.starts, self.positions[to],
            self.velocities[to], self.counts, Unread(self.rank) if heads is None else heads, setup.count, setup.cells,
            int(self.counts.shape[0]),
        )  # fmt: skip


class FusedSort(_Sorting):
    """Three kernels a step: forces with motion and counts, scan, places.

    Parameters
    ----------
    setup : Setup
    lanes : int
        Work-items that share a sphere.
    queue : int
        Places for spheres in reach, which collide after the tests; 0: at once.
    """

    def __init__(self, setup: Setup, lanes: int = 1, queue: int = 32) -> None:
        super().__init__(setup)
        self._shape = {"LANES": lanes, "QUEUE": queue, "WITH_LISTS": 0}

    def state(self) -> tuple[Any, Any]:
        return self.positions[0], self.velocities[0]

    def start(self) -> None:
        self.backend.clear(self.counts)  # an interrupted step leaves some
        if self.setup.count:
            self.count(0)
            self.place(0)
            self.backend.copy(self.positions[0], self.positions[1])
            self.backend.copy(self.velocities[0], self.velocities[1])

    def submit(self, steps: int) -> None:
        setup = self.setup
        kernel = self.kernel(_SORT, "step_sorted", **self._shape)
        for _ in range(steps if setup.count else 0):
            kernel(
                setup.count * self._shape["LANES"], self.positions[0], self.velocities[0], self.starts,
                self.positions[1], self.velocities[1], As(self.counts, np.uint32), self.rank, self.status, setup.count,
                setup.cells, self.record,
            )  # fmt: skip
            self.place(1)

    def build(self) -> None:
        if self.setup.count:
            self.count(0)
            self.place(0)

    def reach(self) -> None:
        setup = self.setup
        kernel = self.kernel(_SORT, "reach_sorted", LANES=1, QUEUE=0, WITH_LISTS=0)
        kernel(setup.count, self.positions[1], self.velocities[1], self.starts, self.reached, setup.count, setup.cells)

    def in_reach(self) -> np.ndarray:
        counts = self.backend.download(self.reached)[: self.setup.count]
        return self.by_number(counts.astype(np.int32), self.velocities[1])


class FusedList(_Sorting):
    """One kernel a step over linked lists; every ``period`` steps the spheres are sorted, so that lists are local."""

    def __init__(self, setup: Setup, lanes: int = 1, period: int = 24) -> None:
        super().__init__(setup)
        self._lanes, self._period = lanes, period
        self.heads = [self.words(setup.bins) for _ in range(3)]
        self.phase = 0, 0, 0  # the buffer and the heads in use, steps since the last sort

    def state(self) -> tuple[Any, Any]:
        return self.positions[self.phase[0]], self.velocities[self.phase[0]]

    def rewind(self) -> None:
        self.phase = 0, 0, 0

    def start(self) -> None:
        for array in (self.counts, *self.heads):  # an interrupted step leaves some
            self.backend.clear(array)
        if self.setup.count:
            self._sort()

    def _sort(self) -> None:
        now, head, _ = self.phase
        self.count(now)
        self.backend.clear(self.heads[head])
        self.place(now, self.heads[head])
        self.phase = 1 - now, head, 0

    def submit(self, steps: int) -> None:
        setup = self.setup
        narrow = setup.dtype == np.float32 and self._lanes >= 4
        bound = {"RESIDENT_GROUPS": _RESIDENT} if narrow else {}
        kernel = self.kernel(_LIST, "step_lists", LANES=self._lanes, QUEUE=_QUEUE, **bound)
        for _ in range(steps if setup.count else 0):
            if self.phase[2] >= self._period:
                self._sort()
            now, head, since = self.phase
            to, following, cleared = 1 - now, (head + 1) % 3, (head + 2) % 3
            kernel(
                setup.count * self._lanes, self.positions[now], self.velocities[now], self.heads[head],
                self.positions[to], self.velocities[to], self.heads[following], self.heads[cleared], self.status,
                setup.count, setup.cells, self.record,
            )  # fmt: skip
            self.phase = to, following, since + 1

    def build(self) -> None:
        setup, (now, head, _) = self.setup, self.phase
        if setup.count:
            self.backend.clear(self.heads[head])
            kernel = self.kernel(_LIST, "enter_lists", LANES=1, QUEUE=_QUEUE)
            kernel(setup.count, self.positions[now], self.heads[head], setup.count, setup.cells)

    def reach(self) -> None:
        setup, (now, head, _) = self.setup, self.phase
        kernel = self.kernel(_LIST, "reach_lists", LANES=self._lanes, QUEUE=_QUEUE)
        kernel(
            setup.count * self._lanes, self.positions[now], self.velocities[now], self.heads[head], self.reached,
            setup.count, setup.cells,
        )  # fmt: skip

    def in_reach(self) -> np.ndarray:
        counts = self.backend.download(self.reached)[: self.setup.count]
        return self.by_number(counts.astype(np.int32), self.state()[1])
