# SPDX-License-Identifier: BSD-3-Clause
"""How benchmarks measure and write: medians, one run, CSV named by device."""

from __future__ import annotations

import contextlib
import csv
import importlib.metadata
import os
import platform
import re
import shutil
import statistics
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


def device_slug(device: str) -> str:
    """Return a device's name as part of a file name."""
    return re.sub(r"[^a-z0-9]+", "-", device.lower()).strip("-")


def write(name: str, device: str, rows: list[dict[str, Any]], folder: Path = RESULTS) -> Path:
    """Write rows as CSV, named by benchmark and device."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{device_slug(device)}.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def device_name() -> str:
    """Return the processor's name and its threads."""
    from particlemesh.backends.cpu import available_threads

    facts = Path("/proc/cpuinfo")
    lines = facts.read_text().splitlines() if facts.exists() else []
    names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return f"{names[0] if names else 'processor'} {available_threads()} threads"


def commit() -> str:
    """Return the commit that is measured: $PARTICLEMESH_COMMIT, or what git says, or nothing."""
    given, git = os.environ.get("PARTICLEMESH_COMMIT"), shutil.which("git")
    if given or git is None:
        return given or ""
    asked = [git, "-C", str(RESULTS.parent), "rev-parse", "--short", "HEAD"]
    return subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()


def facts(backend: Any) -> dict[str, str]:
    """Return what every row of a CSV says of the device and of the software, for one of the library's backends."""
    versions = dict.fromkeys(("cupy", "cuda_runtime", "cuda_driver"), "")
    if backend.name == "cuda":
        import cupy

        runtime = cupy.cuda.runtime
        versions = dict(cupy=cupy.__version__, cuda_runtime=runtime.runtimeGetVersion(),
                        cuda_driver=runtime.driverGetVersion())  # fmt: skip
    return dict(
        device=backend.device, backend=backend.name, python=platform.python_version(),
        numpy=importlib.metadata.version("numpy"), **{name: str(v) for name, v in versions.items()}, commit=commit(),
    )  # fmt: skip


def prepare_again(plan: Any, direction: str = "spread") -> None:
    """Do again what the plan's method prepares for the positions that it has: all between locating and applying.

    A plan prepares lazily, in the first call after ``set_positions``; here that is done apart from both, as that call
    does it. Orders that methods share are made anew, since a single method would have to make them; memory that the
    plan holds is kept. Nothing is waited for.
    """
    plan.workspace.orders.clear()
    with plan.backend.scope():
        plan.token = plan.backend.follow(plan.token)
        plan._method(direction).prepare(plan.workspace)
    plan._prepared.add(direction)


def host_median(call: Callable[[], Any], repeats: int = 7) -> float:
    """Return the median wall time of a call that returns when it is done."""
    call()
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


class Cuda:
    """Times on a CUDA device by events, through CuPy."""

    def __init__(self) -> None:
        import cupy

        self.cupy = cupy

    def calls(self, call: Callable[[], Any], batch: int = 20, repeats: int = 7) -> float:
        """Return the seconds of one plain call: median over batches of back-to-back calls."""
        cupy = self.cupy
        for _ in range(3):
            call()
        times = []
        for _ in range(repeats):
            begin, end = cupy.cuda.Event(), cupy.cuda.Event()
            begin.record()
            for _ in range(batch):
                call()
            end.record()
            end.synchronize()
            times.append(cupy.cuda.get_elapsed_time(begin, end) / 1e3 / batch)
        return statistics.median(times)

    def graph(self, call: Callable[[], Any], batch: int = 10, repeats: int = 7) -> float:
        """Return the GPU's seconds of one call: a captured graph of ``batch`` calls, replayed."""
        cupy = self.cupy
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
                    stream.end_capture()  # else the stream is of no use to those who still hold it
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

    def host(self, call: Callable[[], Any], calls: int = 300) -> float:
        """Return the seconds a call keeps the host, on work small enough not to fill the queue."""
        cupy = self.cupy
        times = []
        for _ in range(calls):
            begin = time.perf_counter()
            call()
            times.append(time.perf_counter() - begin)
            if len(times) % 50 == 0:
                cupy.cuda.get_current_stream().synchronize()
        return statistics.median(times)


class OpenCl:
    """Times on an OpenCL device: batches of calls between two waits."""

    def __init__(self, queue: Any) -> None:
        self.queue = queue

    def calls(self, call: Callable[[], Any], batch: int = 50, repeats: int = 7) -> float:
        """Return the seconds of one call: median over batches of back-to-back calls."""
        call()
        self.queue.finish()
        times = []
        for _ in range(repeats):
            begin = time.perf_counter()
            for _ in range(batch):
                call()
            self.queue.finish()
            times.append((time.perf_counter() - begin) / batch)
        return statistics.median(times)
