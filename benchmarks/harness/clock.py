# SPDX-License-Identifier: BSD-3-Clause
"""The clock of all benchmarks: medians of batches of calls, by CUDA events, CUDA graphs or the host's clock."""

from __future__ import annotations

import contextlib
import math
import statistics
import time
from collections.abc import Callable
from typing import Any

NO_TIME = math.nan
BUDGET = 0.015  # seconds that all batches of one measurement take, about
WAIT = 0.02  # seconds of a batch that make the wait at its end negligible
LONG = 0.1  # seconds: a longer call is not captured, since launching it takes no noticeable part of it
GRAPH = 2e-3  # seconds of the calls in one graph: starting a graph is counted with them
Call = Callable[[], Any]


class Clock:
    """Times of calls on one of the library's backends, in seconds."""

    def __init__(self, backend: Any) -> None:
        self.name = backend.name
        self.wait = backend.synchronize

    # ---- batches ------------------------------------------------------------------------------------------

    def mark(self) -> Any:
        """Return an event on CUDA's stream; elsewhere wait and return the host's time."""
        if self.name == "cuda":
            from cupy.cuda import Event

            event = Event()
            event.record()
            return event
        self.wait()
        return time.perf_counter()

    def between(self, begin: Any, end: Any) -> float:
        """Return the seconds between two marks."""
        if self.name == "cuda":
            from cupy.cuda import get_elapsed_time

            end.synchronize()
            return float(get_elapsed_time(begin, end)) / 1e3
        return float(end - begin)

    def _batch(self, call: Call, count: int) -> float:
        begin = self.mark()
        for _ in range(count):
            call()
        return self.between(begin, self.mark()) / count

    # ---- ways to time a call ------------------------------------------------------------------------------

    def wall(self, call: Call, repeats: int = 3) -> float:
        """Return the median wall time of a call and the wait for it, after one call to warm up."""
        times = []
        for _ in range(repeats + 1):
            begin = time.perf_counter()
            call()
            self.wait()
            times.append(time.perf_counter() - begin)
        return statistics.median(times[1:])

    def calls(self, call: Call, batch: int = 20, repeats: int = 7) -> float:
        """Return the seconds of a call, back to back: the median of batches of a given size."""
        for _ in range(3):
            call()
        return statistics.median(self._batch(call, batch) for _ in range(repeats))

    def seconds(self, call: Call, budget: float = BUDGET, repeats: int = 5) -> float:
        """Return the seconds of a call, back to back: the median of batches that take ``budget`` together.

        A call that takes longer than ``budget`` is measured twice.
        """
        once = self.wall(call, 1)
        repeats = max(2, min(repeats, int(budget / once)))
        batch = max(1, min(50, int(budget / once / repeats)))
        if self.name != "cpu":  # the host's work before a batch, and the wait at its end, take as long as a short call
            batch = max(batch, min(20, int(WAIT / once)))
        return statistics.median(self._batch(call, batch) for _ in range(repeats))

    def graph(self, call: Call, batch: int = 10, repeats: int = 7) -> float:
        """Return the GPU's seconds of a call: a captured CUDA graph of ``batch`` calls, replayed."""
        import cupy

        call()
        stream = cupy.cuda.Stream(non_blocking=True)
        with stream:
            call()
            stream.begin_capture()
            try:
                for _ in range(batch):
                    call()
            except BaseException:
                with contextlib.suppress(cupy.cuda.runtime.CUDARuntimeError):
                    stream.end_capture()  # a stream that still captures is of no use to its other holders
                raise
            graph = stream.end_capture()
            graph.launch(stream)
            times = []
            for _ in range(repeats):
                begin, end = cupy.cuda.Event(), cupy.cuda.Event()
                begin.record(stream)
                graph.launch(stream)
                end.record(stream)
                end.synchronize()
                times.append(cupy.cuda.get_elapsed_time(begin, end) / 1e3 / batch)
        return statistics.median(times)

    def captured(self, call: Call, once: float, most: int = 20, repeats: int = 7) -> float:
        """Return the seconds of a call in a CUDA graph, or NaN: other backends, long calls, calls without capture.

        ``once`` is about what a call takes, ``most`` the largest number of calls in the graph.
        """
        if self.name != "cuda" or once > LONG:
            return NO_TIME
        try:
            return self.graph(call, int(min(most, max(2, GRAPH / once))), repeats)
        except (RuntimeError, NotImplementedError):
            self.wait()
            return NO_TIME

    def least(self, call: Call) -> tuple[float, str]:
        """Return the seconds of a call and how they were measured: in a graph, else back to back."""
        once = self.wall(call, 1)
        if once > LONG:
            return once, "one call"
        captured = self.captured(call, once)
        return (self.seconds(call), "calls") if math.isnan(captured) else (captured, "graph")

    def host(self, call: Call, calls: int = 300) -> float:
        """Return the host's seconds of a call on work that is too small to fill the queue."""
        times = []
        for _ in range(calls):
            begin = time.perf_counter()
            call()
            times.append(time.perf_counter() - begin)
            if len(times) % 50 == 0:
                self.wait()
        return statistics.median(times)


def times(repeats: int, *calls: Call, clock: Callable[[], float] | None = None) -> list[list[float]]:
    """Return all times of each call on the CPU, by default wall times.

    Calls alternate, so that a disturbance meets all of them.
    """
    clock = clock or time.perf_counter
    taken: list[list[float]] = [[] for _ in calls]
    for turn in range(repeats + 1):  # the first turn warms up
        for i, call in enumerate(calls):
            begin = clock()
            call()
            if turn:
                taken[i].append(clock() - begin)
    return taken


def turns(repeats: int, *calls: Call) -> list[float]:
    """Return the median wall time of each call, measured as :func:`times` does."""
    return [statistics.median(t) for t in times(repeats, *calls)]
