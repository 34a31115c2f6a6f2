# SPDX-License-Identifier: BSD-3-Clause
"""Where the time of one call over ranks goes: its stages on the host and on the device, and a profile of the host.

A stage ends where a message or a kernel of ours begins or ends. Its time on the device is that between two events.
Stages named "to ..." are all between: Python, kernels of CuPy, and times in which the device has nothing to do.
Events take a few microseconds of the host each, so a traced call is longer than others.
"""

from __future__ import annotations

import contextlib
import cProfile
import pstats
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from particlemesh.distributed.transports import Op, Transport

_SHOWN = 20  # functions of the profile
_LEAST = 2e-6  # seconds of a stage that is shown by itself


class Stages(Transport):
    """A transport that marks where each message begins and ends; with CuPy also on its stream."""

    name = "stages"

    def __init__(self, inner: Transport, cupy: Any = None) -> None:
        self.inner, self._cupy = inner, cupy
        self.rank, self.size = inner.rank, inner.size
        self._marks: list[tuple[str, float, Any]] = []
        self.on = False

    def note(self, name: str) -> None:
        """Mark the end of a stage."""
        if self.on:
            event = None
            if self._cupy is not None:
                event = self._cupy.cuda.Event()
                event.record()
            self._marks.append((name, time.perf_counter(), event))

    def _noted(self, name: str, work: Callable[[], Any]) -> Any:
        self.note(f"to {name}")
        result = work()
        self.note(name)
        return result

    def exchange(self, sends: Any, receives: Any) -> None:
        self.exchange_while(sends, receives)

    def mark(self, array: Any) -> Any:
        return self.inner.mark(array)

    def exchange_while(self, sends: Any, receives: Any, meanwhile: Any = None, since: Any = None) -> None:
        size = sum(array.nbytes for array in sends.values())
        self._noted(f"exchange {size:,} B", lambda: self.inner.exchange_while(sends, receives, meanwhile, since))

    def allreduce(self, array: Any, op: Op) -> Any:
        return self._noted(f"allreduce {op}", lambda: self.inner.allreduce(array, op))

    def alltoall(self, counts: Any) -> Any:
        return self._noted("counts", lambda: self.inner.alltoall(counts))

    def allgather(self, thing: Any) -> list[Any]:
        return list(self._noted("allgather", lambda: self.inner.allgather(thing)))

    @contextlib.contextmanager
    def _kernels(self) -> Iterator[None]:
        """Mark our kernels, too."""
        if self._cupy is None:
            yield
            return
        from particlemesh.backends.cuda import CudaKernel

        launch: Any = CudaKernel.__call__

        def noted(kernel: Any, *arguments: Any, **options: Any) -> None:
            self._noted(kernel._name, lambda: launch(kernel, *arguments, **options))

        CudaKernel.__call__ = noted  # type: ignore[method-assign]
        try:
            yield
        finally:
            CudaKernel.__call__ = launch  # type: ignore[method-assign]

    def traced(self, call: Callable[[], Any], wait: Callable[[], Any]) -> list[tuple[str, float, float]]:
        """Return the stages of a call: name, seconds of the host, and of the device (0 without one)."""
        self._marks.clear()
        with self._kernels():
            wait()
            self.on = True
            self.note("")
            call()
            self.note("to the end")
            wait()
            self.note("waiting for the device")
            self.on = False
        stages = []
        for (_, before, first), (name, after, last) in zip(self._marks, self._marks[1:], strict=False):
            device = 0.0 if first is None else self._cupy.cuda.get_elapsed_time(first, last) / 1e3
            stages.append((name, after - before, device))
        return stages


def table(stages: list[tuple[str, float, float]]) -> str:
    """Return stages as lines of text, in microseconds; short ones in a row are one line."""
    lines, few, total = [f"{'stage':44} {'host us':>9} {'device us':>9}"], [0.0, 0.0, 0], [0.0, 0.0]

    def line(name: str, host: float, device: float) -> None:
        lines.append(f"{name[:44]:44} {host * 1e6:9.1f} {device * 1e6:9.1f}")

    def flush() -> None:
        if few[2]:
            line(f"{few[2]} short stages", few[0], few[1])
        few[:] = [0.0, 0.0, 0]

    for name, host, device in stages:
        total = [total[0] + host, total[1] + device]
        if max(host, device) < _LEAST:
            few[:] = [few[0] + host, few[1] + device, few[2] + 1]
            continue
        flush()
        line(name, host, device)
    flush()
    line("all", *total)
    return "\n".join(lines)


def profile(call: Callable[[], Any]) -> str:
    """Return the functions in which the host spends most of a call's time, in microseconds, which profiling adds to."""
    profiler = cProfile.Profile()
    profiler.runcall(call)
    stats: dict[Any, Any] = pstats.Stats(profiler).stats  # type: ignore[attr-defined]
    rows = sorted(((row[2], row[3], row[0], where) for where, row in stats.items()), reverse=True)[:_SHOWN]
    lines = [f"{'function':52} {'calls':>6} {'own us':>8} {'with its calls':>15}"]
    for seconds, below, calls, (file, line, name) in rows:
        where = name if file == "~" else f"{Path(file).name}:{line} {name}"
        lines.append(f"{where[:52]:52} {calls:6d} {seconds * 1e6:8.1f} {below * 1e6:15.1f}")
    return "\n".join(lines)
