# SPDX-License-Identifier: BSD-3-Clause
"""The particle methods and fixed point on a GPU, beside cuFINUFFT's measured times on an H200.

Writes ``results/spread-DEVICE.csv``. Complex values, uniform random points, periodic mesh, ``out=`` given,
plan reused; ``call`` is a plain call, ``graph`` the same captured and replayed, the mesh cleared in both.
Peer: ``peers/cufinufft-2.5.1.nvidia-h200.csv``, same width, its window, its best of method 1 for spreading
and best kernel time of all methods for interpolation.

    python benchmarks/gpu.py [--quick] [--no-opencl]
"""

from __future__ import annotations

import argparse
import csv
import math
from pathlib import Path
from typing import Any

import cupy
import numpy as np

import particlemesh as pm
from measure import Cuda, OpenCl, write
from particlemesh.interpolate import METHODS

PEER = Path(__file__).parent / "peers" / "cufinufft-2.5.1.nvidia-h200.csv"


def peer_times() -> dict[tuple[str, str, int, int, int], dict[str, float]]:
    """Return the peer's times by (operation, real type, width, K, N) and method."""
    table: dict[Any, dict[str, float]] = {}
    with PEER.open() as file:
        for row in csv.DictReader(line for line in file if not line.startswith("#")):
            key = (row["operation"], row["real_dtype"], int(row["width"]), int(row["K"]), int(row["N"]))
            table.setdefault(key, {})[f"call{row['method']}"] = float(row["call_s"])
            table[key][f"kernel{row['method']}"] = float(row["kernel_s"])
    return table


def problem(dtype: str, nodes: int, count: int, backend: str, queue: Any = None, **options: Any) -> tuple[Any, ...]:
    """Return a plan with positions, values, a field and a result, as native arrays."""
    rng = np.random.default_rng(7)
    real = np.dtype(dtype)
    kind = np.result_type(real, np.complex64)
    x = rng.random((count, 3)).astype(real)
    q = (rng.normal(size=count) + 1j * rng.normal(size=count)).astype(kind)
    mesh = pm.Mesh((nodes,) * 3, (1.0,) * 3)
    plan = pm.Plan(mesh, dtype=dtype, components=2, **options)
    if backend == "cuda":
        plan.set_positions(cupy.asarray(x))
        values, field, out = cupy.asarray(q), cupy.zeros(mesh.shape, kind), cupy.zeros(count, kind)
        field.real = cupy.random.standard_normal(mesh.shape)
    else:
        import pyopencl.array as cla

        from particlemesh.backends import opencl

        queue = queue or opencl.current().queue
        plan.set_positions(cla.to_device(queue, x))
        values, out = cla.to_device(queue, q), cla.zeros(queue, count, kind)
        field = cla.to_device(queue, rng.normal(size=mesh.shape).astype(kind))
    return plan, values, field, out


def rows_against_peer(cuda: Cuda, quick: bool) -> list[dict[str, Any]]:
    peers, rows = peer_times(), []
    cases = [(d, w, k, n) for d in ("float32", "float64") for w in (4, 6) for k in (128, 256) for n in (10**4, 10**5)]
    runs = [("spread", "particle"), *(("interp", m.name) for m in METHODS if "cuda" in m.backends)]
    for dtype, width, nodes, count in cases[:: 4 if quick else 1]:
        automatic = problem(dtype, nodes, count, "cuda", window=f"bspline{width}", applications=20)[0]
        chosen = next(line for line in automatic.explain().split("interpolate")[1].splitlines() if line[:1] == "*")
        for operation, method in runs:
            which = {"method" if operation == "spread" else "interpolation": method}
            plan, values, field, out = problem(dtype, nodes, count, "cuda", window=f"bspline{width}", **which)
            call = (
                (lambda: plan.spread(values, out=field))
                if operation == "spread"
                else (lambda: plan.interpolate(field, out=out))
            )
            theirs = peers[operation, dtype, width, nodes, count]
            if operation == "spread":
                peer_call, peer_kernel = theirs["call1"], theirs["kernel1"]
            else:
                peer_call = min(v for k, v in theirs.items() if k.startswith("call"))
                peer_kernel = min(v for k, v in theirs.items() if k.startswith("kernel"))
            plain, graph = cuda.calls(call), cuda.graph(call)
            ratio = peer_call / plain if operation == "spread" else peer_kernel / graph
            auto = operation == "spread" or chosen.split()[1] == method
            rows.append(dict(
                operation=operation, method=method, auto=int(auto), dtype=dtype, width=width, K=nodes, N=count,
                call_s=plain, graph_s=graph, peer_call_s=peer_call, peer_kernel_s=peer_kernel,
                ratio=ratio, kernel_ratio=peer_kernel / graph,
            ))  # fmt: skip
            print(
                f"{operation:7s}{method:9s} {dtype} w={width} K={nodes:3d} N={count:7d} {'*' if auto else ' '} "
                f"call {plain * 1e6:6.1f} us  graph {graph * 1e6:6.1f} us  "
                f"peer {peer_call * 1e6:6.1f}/{peer_kernel * 1e6:6.1f}  ratio {ratio:5.2f}",
                flush=True,
            )
    return rows


def portable_price(timer_of: type[OpenCl]) -> list[dict[str, Any]]:
    """Time spreading with standard OpenCL only: adds by compare-and-swap, warps by local memory."""
    import pyopencl as cl

    from particlemesh.backends import opencl

    device, rows, times = opencl.devices()[0], [], {}
    for portable in (False, True):
        context = cl.Context([device])
        queue = cl.CommandQueue(context, device)
        opencl.backend(context, device, portable=portable)
        for dtype in ("float32", "float64"):
            plan, values, field, _ = problem(dtype, 128, 10**6, "opencl", queue, window="bspline6", method="particle")
            times[portable, dtype] = timer_of(queue).calls(
                lambda p=plan, v=values, f=field: p.spread(v, out=f), batch=5
            )
    for dtype in ("float32", "float64"):
        mine, theirs = times[True, dtype], times[False, dtype]
        rows.append(dict(what="portable/ptx spread 1000000", dtype=dtype, reals=2, a_s=mine, b_s=theirs,
                         ratio=theirs / mine))  # fmt: skip
        print(f"  portable OpenCL, {dtype}: {mine * 1e3:.3f} ms, {theirs / mine:.2f} of the inline form", flush=True)
    return rows


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--quick", action="store_true")
    arguments.add_argument("--no-opencl", action="store_true")
    chosen = arguments.parse_args()
    cuda = Cuda()
    name = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
    rows = rows_against_peer(cuda, chosen.quick)
    for operation, limit in (("spread", 1.0), ("interp", 1 / 1.5)):
        ratios = [r["ratio"] for r in rows if r["operation"] == operation and r["auto"]]
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        print(f"{operation}: geometric mean {mean:.2f}, least {min(ratios):.2f} (to reach: {limit:.2f})")
    path = write("spread", name, rows)
    print(path)

    print("\nfixed_point against particle, 1e6, 128^3, p = 6")
    others: list[dict[str, Any]] = []
    for dtype in ("float32", "float64"):
        for reals in (1, 2):
            times = {}
            for method in ("particle", "fixed_point"):
                plan, values, field, _ = problem(dtype, 128, 10**6, "cuda", window="bspline6", method=method)
                q, out = (values, field) if reals == 2 else (values.real.copy(), field.real.copy())
                times[method] = cuda.calls(lambda: plan.spread(q, out=out), batch=10)
            ratio = times["particle"] / times["fixed_point"]
            others.append(dict(what="fixed_point/particle", dtype=dtype, reals=reals, a_s=times["fixed_point"],
                               b_s=times["particle"], ratio=ratio))  # fmt: skip
            print(f"  {dtype} {reals} real(s): {times['particle'] * 1e3:.3f} ms, {times['fixed_point'] * 1e3:.3f} ms, "
                  f"ratio {ratio:.2f}")  # fmt: skip
    plan, values, field, out = problem("float32", 32, 1000, "cuda", window="bspline4", method="particle")
    host = cuda.host(lambda: plan.spread(values, out=field))
    host_i = cuda.host(lambda: plan.interpolate(field, out=out))
    others.append(dict(what="host spread", dtype="float32", reals=2, a_s=host, b_s=15e-6, ratio=15e-6 / host))
    others.append(dict(what="host interpolate", dtype="float32", reals=2, a_s=host_i, b_s=15e-6, ratio=15e-6 / host_i))
    print(f"host time of plan.spread {host * 1e6:.1f} us, of plan.interpolate {host_i * 1e6:.1f} us")
    if not chosen.no_opencl:
        from particlemesh.backends import opencl

        print(f"\nOpenCL on {opencl.current().device} ({opencl.current().platform}) against CUDA")
        timer = OpenCl(opencl.current().queue)
        for dtype in ("float32", "float64"):
            for count in (10**5, 10**6):
                for operation, interpolation in (("spread", "particle"), ("interp", "particle"), ("interp", "ordered")):
                    both = dict(window="bspline6", method="particle", interpolation=interpolation)
                    times = {}
                    for backend in ("cuda", "opencl"):
                        plan, values, field, out = problem(dtype, 128, count, backend, **both)
                        call = (
                            (lambda: plan.spread(values, out=field))
                            if operation == "spread"
                            else (lambda: plan.interpolate(field, out=out))
                        )
                        times[backend] = (cuda if backend == "cuda" else timer).calls(call)
                    ratio = times["cuda"] / times["opencl"]
                    others.append(dict(what=f"opencl/cuda {operation} {interpolation} {count}", dtype=dtype, reals=2,
                                       a_s=times["opencl"], b_s=times["cuda"], ratio=ratio))  # fmt: skip
                    print(f"  {operation} {interpolation} {dtype} N={count}: CUDA {times['cuda'] * 1e3:.3f} ms, "
                          f"OpenCL {times['opencl'] * 1e3:.3f} ms, ratio {ratio:.2f}", flush=True)  # fmt: skip
        others += portable_price(timer_of=OpenCl)
    print(write("gpu-ratios", name, others))


if __name__ == "__main__":
    main()
