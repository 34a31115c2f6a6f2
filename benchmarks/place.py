# SPDX-License-Identifier: BSD-3-Clause
"""A backend as benchmarks see it: arrays there and back, seconds of calls, of a plan's phases and of its kernels."""

from __future__ import annotations

import contextlib
import math
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from unittest import mock

import numpy as np

from measure import device_name, facts, prepare_again
from particlemesh import backends
from particlemesh.backends.cpu import available_threads
from particlemesh.configuration import METHODS, Configuration

NO_TIME = math.nan
BUDGET = 0.015  # seconds that the repeats of one measurement take together, about
WAITED = 0.02  # seconds of a batch beside which the wait at its end counts little
SPIN = """extern "C" __global__ void spin(long long cycles)
{ const long long begin = clock64(); while (clock64() - begin < cycles) {} }"""


class Phases(NamedTuple):
    """Seconds of a call, phase by phase."""

    locate: float  # set_positions
    prepare: float  # what the method makes of the positions
    apply: float  # the call alone
    total: float  # new positions and the call, measured together


class Place:
    """Where a benchmark runs: ``cpu``, ``cuda`` or ``opencl``."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.backend = backends.current(name)
        self.device = device_name() if name == "cpu" else str(self.backend.device)
        self.failed: list[str] = []  # what could not be measured, in words
        self.threads: Any = available_threads() if name == "cpu" else ""
        self.facts = {**facts(self.backend), "device": self.device}

    def methods(self, direction: str) -> list[Any]:
        """Return the methods that run here."""
        return [m for m in METHODS[direction] if self.name in m.backends]

    @contextlib.contextmanager
    def attempt(self, what: str) -> Iterator[None]:
        """Go on after an error inside, and keep its words: one method shall not spoil the figures of the others."""
        try:
            yield
        except (ValueError, TypeError, RuntimeError, MemoryError, OSError) as error:
            self.failed.append(f"{what}, {self.name}: {type(error).__name__}: {error}"[:400])

    def wait(self) -> None:
        """Wait until the device has done everything."""
        self.backend.synchronize()

    def upload(self, host: np.ndarray) -> Any:
        """Return a native array with the content of ``host``."""
        return self.backend.upload(host)

    def download(self, array: Any) -> np.ndarray:
        """Return a NumPy array with a native array's content."""
        return self.backend.download(array)

    def wall(self, call: Callable[[], Any], repeats: int = 3) -> float:
        """Return the median wall time of a call that is waited for."""
        times = []
        for turn in range(repeats + 1):  # the first warms up
            begin = time.perf_counter()
            call()
            self.wait()
            if turn:
                times.append(time.perf_counter() - begin)
        return statistics.median(times)

    def seconds(self, call: Callable[[], Any], budget: float = BUDGET, repeats: int = 5) -> float:
        """Return the seconds of a call, back to back: the median over batches, by events on CUDA.

        The batches together take about ``budget``; a call that takes longer is measured twice.
        """
        once = self.wall(call, 1)
        repeats = max(2, min(repeats, int(budget / once)))
        batch = max(1, min(50, int(budget / once / repeats)))
        if self.name == "opencl":  # its batches end with a wait, which takes as long as a short call
            batch = max(batch, min(20, int(WAITED / once)))
        return statistics.median(self._batch(call, batch) for _ in range(repeats))

    def _batch(self, call: Callable[[], Any], batch: int) -> float:
        """Return the seconds of a call of a batch."""
        begin = self._mark()
        for _ in range(batch):
            call()
        return self._between(begin, self._mark()) / batch

    def _mark(self) -> Any:
        """Return an event on CUDA's stream; elsewhere the time at which all is done."""
        if self.name == "cuda":
            from cupy.cuda import Event

            event = Event()
            event.record()
            return event
        self.wait()
        return time.perf_counter()

    def _between(self, begin: Any, end: Any) -> float:
        """Return the seconds between two marks."""
        if self.name == "cuda":
            from cupy.cuda import get_elapsed_time

            end.synchronize()
            return float(get_elapsed_time(begin, end)) / 1e3
        return float(end - begin)

    def phases(
        self, plan: Any, direction: str, positions: Any, call: Callable[[], Any], budget: float = BUDGET
    ) -> Phases:
        """Return the seconds of the phases of ``call``, which spreads or interpolates as ``direction`` says.

        The plan takes the positions unchecked, so that nothing is waited for.
        """

        def locate() -> None:
            plan.set_positions(positions, check=False)

        def total() -> None:
            locate()
            call()

        whole, apply = self.seconds(total, budget), self.seconds(call, budget)
        prepare = self.seconds(lambda: prepare_again(plan, direction), budget)
        return Phases(self.seconds(locate, budget), prepare, apply, whole)

    def stages(
        self, plan: Any, positions: Any, call: Callable[[], Any], repeats: int = 5
    ) -> dict[tuple[str, str], float]:
        """Return the seconds of what a backend with kernels is given from new positions on, by phase and name.

        ``call`` must give no ``out=``: what is played from a tape starts no kernels of its own.
        """
        turns = []
        for _ in range(repeats + 1):
            self._delay()
            with self._watch() as spans:
                plan.set_positions(positions, check=False)
                call()
            sums: dict[tuple[str, str], float] = {}
            for phase, name, seconds in spans:
                sums[phase, name] = sums.get((phase, name), 0.0) + seconds
            turns.append(sums)
        measured = turns[1:]  # the first may have compiled
        return {key: statistics.median(turn.get(key, 0.0) for turn in measured) for key in measured[0]}

    def _delay(self) -> None:
        """Keep a GPU busy while the host gets ahead: events would else see how long the host takes for a launch."""
        if self.name == "cuda":
            import cupy

            cupy.RawKernel(SPIN, "spin")((1,), (1,), (np.int64(8_000_000),))

    @contextlib.contextmanager
    def _watch(self) -> Iterator[list[tuple[str, str, float]]]:
        """Note phase, name and seconds of each kernel, clear and copy inside; filled in when all is done."""
        spans: list[tuple[str, str, float]] = []
        marks: list[tuple[str, str, Any, Any]] = []
        phase, inside = ["apply"], [0]

        def watched(verb: Any, name_of: Callable[[Any], str]) -> Any:
            def run(owner: Any, *arguments: Any, **options: Any) -> Any:
                if inside[0]:  # a clear that is a kernel
                    return verb(owner, *arguments, **options)
                inside[0] += 1
                begin = self._mark()
                try:
                    return verb(owner, *arguments, **options)
                finally:
                    inside[0] -= 1
                    marks.append((phase[-1], name_of(owner), begin, self._mark()))

            return run

        def phased(verb: Any, name: str) -> Any:
            def run(*arguments: Any, **options: Any) -> Any:
                phase.append(name)
                try:
                    return verb(*arguments, **options)
                finally:
                    phase.pop()

            return run

        kernel, backend = _kernel_class(self.name), type(self.backend)
        with (
            mock.patch.object(kernel, "__call__", watched(kernel.__call__, _kernel_name)),
            mock.patch.object(backend, "clear", watched(backend.clear, lambda _: "clear")),
            mock.patch.object(backend, "copy", watched(backend.copy, lambda _: "copy")),
            mock.patch.object(Configuration, "set_positions", phased(Configuration.set_positions, "locate")),
            mock.patch.object(Configuration, "_prepare", phased(Configuration._prepare, "prepare")),
        ):
            yield spans
        spans += [(where, name, self._between(begin, end)) for where, name, begin, end in marks]


def _kernel_class(backend: str) -> Any:
    if backend == "cuda":
        from particlemesh.backends.cuda import CudaKernel

        return CudaKernel
    from particlemesh.backends.opencl import OpenClKernel

    return OpenClKernel


def _kernel_name(kernel: Any) -> str:
    """Return the name of a backend's kernel."""
    return str(kernel._kernel.function_name if hasattr(kernel, "_kernel") else kernel._raw.name)


def short(number: float) -> float:
    """Return a number as it is written to a file, with five digits."""
    return float(f"{number:.5g}")
