# SPDX-License-Identifier: BSD-3-Clause
"""Ratios on a GPU: fixed point beside ``particle``, OpenCL beside CUDA, standard OpenCL beside its PTX form, overhead.

Writes ``results/gpu-ratios-DEVICE.csv``. Complex values unless ``reals`` is 1, uniform particles, 128^3 nodes, p = 6;
plain calls back to back. ``ratio`` is ``b_s`` over ``a_s``. Rows ``host`` are the host's time of a call of 1000
particles, beside 15 µs. OpenCL beside CUDA is measured with ``--backend cuda`` only.

    python benchmarks/core/gpu.py [--backend cuda] [--small] [--out DIR]
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # the folder of benchmarks, when this file runs

import particlemesh as pm
from harness import clouds, runs
from harness.bench import Bench
from harness.cases import Case, Job
from harness.clock import Clock

HOST = 15e-6  # seconds beside which the overhead is shown
DTYPES = ("float32", "float64")


def row(what: str, case: Case, a: float, b: float) -> dict[str, Any]:
    """Return a row of the CSV file."""
    return dict(what=what, dtype=case.dtype, reals=case.reals, a_s=a, b_s=b, ratio=b / a)


def seconds(bench: Bench, case: Case, method: str, batch: int = 20) -> float:
    """Return the seconds of a plain call."""
    with bench.setup(Job(case, method)) as made:
        return bench.clock.calls(made.call, batch)


def fixed_point(bench: Bench, case: Case) -> Iterator[dict[str, Any]]:
    """Yield the time of fixed point beside that of ``particle``, for complex and for real values."""
    for kind in ("real", "complex"):
        one = replace(case, values=kind)
        a, b = (seconds(bench, one, method, 10) for method in ("fixed_point", "particle"))
        yield row("fixed_point/particle", one, a, b)


def overhead(bench: Bench, case: Case) -> Iterator[dict[str, Any]]:
    """Yield the host's time of small calls."""
    for direction in ("spread", "interpolate"):
        one = replace(case, direction=direction, count=1000, nodes=32, support=4)
        with bench.setup(Job(one, "particle")) as made:
            made.call()
            yield row(f"host {direction}", one, bench.clock.host(made.call), HOST)


def opencl(cuda: Bench, other: Bench, case: Case) -> Iterator[dict[str, Any]]:
    """Yield OpenCL's times beside CUDA's."""
    for count in (case.count // 10, case.count):
        for operation, direction, method in (
            ("spread", "spread", "particle"), ("interp", "interpolate", "particle"),
            ("interp", "interpolate", "ordered"),
        ):  # fmt: skip
            one = replace(case, direction=direction, count=count)
            a, b = seconds(other, one, method, 50), seconds(cuda, one, method)
            yield row(f"opencl/cuda {operation} {method} {count}", one, a, b)


def portable(case: Case) -> Iterator[dict[str, Any]]:
    """Yield the time with standard OpenCL only, without PTX: atomics by compare-and-swap, warps by local memory."""
    import pyopencl as cl
    import pyopencl.array as cla

    from particlemesh.backends import opencl as library

    device, times = library.devices()[0], []
    for standard in (False, True):
        context = cl.Context([device])
        queue = cl.CommandQueue(context, device)
        clock = Clock(library.backend(context, device, portable=standard))
        clock.wait = queue.finish
        x = cla.to_device(queue, clouds.positions(case.cloud, case.count, case.dtype))
        q = cla.to_device(queue, clouds.values(case.count, case.dtype, case.values))
        field = cla.zeros(queue, (case.nodes,) * 3, case.kind)
        mesh = pm.Mesh(field.shape, (1.0,) * 3)
        with pm.Plan(mesh, f"bspline{case.support}", dtype=case.dtype, components=2, method="particle") as plan:
            plan.set_positions(x)
            times.append(clock.calls(lambda plan=plan, q=q, field=field: plan.spread(q, out=field), 5))
    yield row(f"portable/ptx spread {case.count}", case, times[1], times[0])


def main() -> None:
    """Measure what the command line asks for."""
    asked = runs.parser(__doc__).parse_args()
    bench = Bench(asked.backend, asked.small)
    count, nodes, support = (2000, 16, 4) if asked.small else (10**6, 128, 6)
    cases = [Case("spread", count, nodes, support, dtype) for dtype in DTYPES]
    with runs.Run(bench.place, asked.out) as run:
        rows: list[dict[str, Any]] = []
        if {"fixed_point", "particle"} <= set(bench.names("spread")):
            rows += run.measure("fixed point", cases, lambda case: fixed_point(bench, case))
        if "particle" in bench.names("spread"):
            rows += run.measure("overhead", cases[:1], lambda case: overhead(bench, case))
        if asked.backend == "cuda":
            other = Bench("opencl")
            rows += run.measure("OpenCL", cases, lambda case: opencl(bench, other, case))
        if asked.backend != "cpu":
            rows += run.measure("portable", cases, portable)
        run.write(bench.place.file("gpu", "ratios"), rows)
    run.finish()


if __name__ == "__main__":
    main()
