# SPDX-License-Identifier: BSD-3-Clause
"""Time cuFINUFFT's spreading and interpolation alone, for ``run.py --only peer`` to compare with.

Writes ``peers/cufinufft-VERSION-DEVICE.csv``: complex values at uniform points of a 3-D mesh of K^3 nodes, by each of
its methods. ``setpts_s`` is the median of several calls and ``call_s`` the mean of 20, both by events; the device is
idle before. ``kernel_s`` is the GPU time of the kernels and of clearing in one call, by PyTorch's profiler.

    python benchmarks/core/cufinufft_times.py [--small] [--out DIR]
"""

from __future__ import annotations

import itertools
import statistics
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))  # the folder of benchmarks, when this file runs

from harness import runs
from harness.place import Place
from harness.tables import PEERS, short

METHODS = {"spread": (1, 2, 3), "interp": (1, 2)}  # cuFINUFFT's numbers
TOLERANCES = {4: 1e-3, 6: 1e-5}  # by the width of the window
CALLS = 20


class Case(NamedTuple):
    """One method on one problem."""

    real: str
    width: int
    nodes: int
    count: int
    operation: str
    method: int


def cases(small: bool) -> list[Case]:
    """Return what is measured."""
    counts, meshes = ((10**4,), (64,)) if small else ((10**4, 10**5, 10**6, 10**7), (64, 128, 256))
    problems = itertools.product(("float32", "float64"), TOLERANCES, meshes, counts)
    return [Case(*problem, op, method) for problem in problems for op in METHODS for method in METHODS[op]]


def seconds(call: Callable[[], Any], calls: int) -> float:
    """Return the mean time of some calls by events."""
    import cupy

    begin, end = cupy.cuda.Event(), cupy.cuda.Event()
    cupy.cuda.Device().synchronize()
    begin.record()
    for _ in range(calls):
        call()
    end.record()
    end.synchronize()
    return cupy.cuda.get_elapsed_time(begin, end) / 1e3 / calls


def on_the_gpu(call: Callable[[], Any], calls: int = 5) -> float:
    """Return the GPU's time in kernels and memory operations of one call."""
    import cupy
    import torch

    activities = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        for _ in range(calls):
            call()
        cupy.cuda.Device().synchronize()
    events = [e for e in profile.events() if e.device_type == torch.autograd.DeviceType.CUDA]
    if not events:
        raise RuntimeError("The profiler recorded no kernels.")
    return sum(e.time_range.elapsed_us() for e in events) / 1e6 / calls


def rows(place: Place, case: Case) -> Iterable[dict[str, Any]]:
    """Yield the row of a case."""
    import cufinufft

    rng, real = np.random.default_rng(1), np.dtype(case.real)
    points = [place.upload(rng.uniform(-np.pi, np.pi, case.count).astype(real)) for _ in range(3)]
    kind, mesh = np.result_type(real, np.complex64), (case.nodes,) * 3
    shapes = [(case.count,), mesh]
    data, out = (shapes if case.operation == "spread" else shapes[::-1])[0], shapes[case.operation == "spread"]
    values = place.upload((rng.normal(size=data) + 1j * rng.normal(size=data)).astype(kind))
    result = place.backend.empty(out, kind)
    plan = cufinufft.Plan(
        1 if case.operation == "spread" else 2, mesh, 1, TOLERANCES[case.width], dtype=kind.name,
        gpu_method=case.method, gpu_spreadinterponly=1,
    )  # fmt: skip
    for _ in range(2):
        plan.setpts(*points)
    prepare = statistics.median(seconds(lambda: plan.setpts(*points), 1) for _ in range(5))

    def call() -> None:
        plan.execute(values, out=result)

    call()
    yield dict(
        operation=case.operation, real_dtype=case.real, width=case.width, K=case.nodes, N=case.count,
        method=case.method, setpts_s=short(prepare), call_s=short(seconds(call, CALLS)),
        kernel_s=short(on_the_gpu(call)),
    )  # fmt: skip


def main() -> None:
    """Measure all cases."""
    parser = runs.parser(__doc__, backend=None)
    parser.set_defaults(out=PEERS)
    asked = parser.parse_args()
    import cufinufft

    place = Place("cuda")
    with runs.Run(place, asked.out) as run:
        name = f"cufinufft-{cufinufft.__version__}"
        run.write(name, run.measure("cuFINUFFT", cases(asked.small), lambda case: rows(place, case), name))
    run.finish()


if __name__ == "__main__":
    main()
