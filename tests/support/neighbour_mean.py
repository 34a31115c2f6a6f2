# SPDX-License-Identifier: BSD-3-Clause
"""A program beside the library, with a kernel and a loop of its own: it imports public names only."""

import threading
from pathlib import Path

import numpy as np

import particlemesh as pm
from particlemesh import kernels
from particlemesh.kernels import checks, cpu

FILE = Path(__file__).with_suffix(".c")


class NeighbourMean:
    """The moving average of values: over each particle and those within a radius.

    Parameters
    ----------
    box : Box or lengths
    radius : float
    self_weight : float
        Weight of the particle itself; each neighbour has weight 1.
    backend : str, optional
        By default where the positions are.
    threads : int, optional
    """

    def __init__(self, box, radius, *, self_weight=1.0, backend=None, threads=None):
        self.box = box if isinstance(box, pm.Box) else pm.Box(box)
        self.radius, self.self_weight = checks.positive(radius, "radius"), checks.positive(self_weight, "self_weight")
        self.threads = None if threads is None else checks.integer(threads, "threads", 1, 4096)
        self._home = None if backend is None else kernels.backend(backend)
        self._grid = pm.UniformGrid(self.box, cell_size=self.radius)
        self._in_order = kernels.InOrder()
        self._positions = None
        self.busy = threading.RLock()

    @kernels.alone
    def set_positions(self, positions):
        x = kernels.take(
            positions,
            (None, self.box.ndim),
            "positions",
            batch=False,
            backend=self._home,
            upload=self._home is not None,
        )
        with self._in_order(x):
            pairs = self._grid.build(x.native).pairs(self.radius)
            self._start, self._list, self._positions = pairs.start, pairs.j, x
            if x.backend.name != "cpu":
                self._status = kernels.allocate(x.backend, (1,), np.uint32, "the status")
                self._kernel = kernels.compile_kernel(x.backend, FILE, "neighbour_mean", x.dtype)
        return self

    @kernels.alone
    def __call__(self, values, out=None):
        x = self._positions
        if x is None:
            raise RuntimeError("there are no positions yet: call set_positions.")
        count = x.shape[0]
        v = kernels.take(values, (count,), "values", like=x)
        batch = int(np.prod(v.batch))
        with self._in_order(v, out):
            result = kernels.give(out, v, v.batch + v.shape)
            if x.backend.name == "cpu":
                cpu.run(
                    _mean, cpu.threads_for(self.threads, batch * count), self._start, self._list,
                    cpu.plain(v.native).reshape(batch, count), self.self_weight, result.native.reshape(batch, count),
                )  # fmt: skip
            else:
                x.backend.clear(self._status)
                largest = float(np.finfo(x.dtype).max)
                rule = kernels.Record(f"=2{x.dtype.char}", self.self_weight, largest)
                partners = self._list if self._list.size else kernels.Unread(self._start)
                self._kernel(
                    batch * count, self._start, partners, v.native, result.native, self._status, count, batch, rule
                )
            return result.finish()

    @kernels.alone
    def bad(self):
        """Return how many results of the last call were not finite, on a GPU; waits."""
        return int(self._positions.backend.download(self._status)[0])


@cpu.compiled
def _mean(start, neighbours, values, self_weight, means, counter):
    for begin, end in cpu.ranges(counter, start.size - 1, 256):
        for i in range(begin, end):
            for b in range(values.shape[0]):
                total = self_weight * values[b, i]
                for k in range(start[i], start[i + 1]):
                    total += values[b, neighbours[k]]
                means[b, i] = total / (self_weight + start[i + 1] - start[i])
