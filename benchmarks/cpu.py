# SPDX-License-Identifier: BSD-3-Clause
"""Spreading and interpolation on the CPU beside FINUFFT, in the same run.

Writes ``results/cpu-DEVICE.csv`` and prints ratios (peer's time over ours, above 1 is faster than the peer).
Complex values in the caller's order, periodic mesh of K^3 nodes, plan reused, field cleared by both,
B-spline of the width that FINUFFT takes for its tolerance. Calls of both alternate; medians.
``setpts`` is all that depends on positions only:
``set_positions`` here, ``Plan.setpts`` there.

    python benchmarks/cpu.py [--threads 2 16] [--count 1000000] [--nodes 128] [--repeats 15]
    python benchmarks/cpu.py --read results/cpu-DEVICE.csv
"""

from __future__ import annotations

import argparse
import csv
import math
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

# OpenMP's threads would go on spinning after FINUFFT's calls, on the cores that ours are measured on.
os.environ["OMP_WAIT_POLICY"] = "passive"

import finufft

import particlemesh as pm
from measure import device_name, write
from particlemesh.backends.cpu import available_threads

TOLERANCES = {4: 1e-3, 6: 1e-5}  # widths that FINUFFT 2.5.1 takes for them at upsampling 2


def positions(cloud: str, count: int, rng: np.random.Generator) -> np.ndarray:
    """Return positions in the unit box: uniform, or nine tenths of them in a ball of radius 1/16."""
    x = rng.random((count, 3))
    if cloud == "clustered":
        dense = rng.random(count) < 0.9
        step = rng.standard_normal((count, 3))
        step *= (rng.random((count, 1)) ** (1 / 3)) / (16 * np.linalg.norm(step, axis=1, keepdims=True))
        x[dense] = 0.5 + step[dense]
    return x % 1.0


def medians(repeats: int, *calls: Callable[[], Any]) -> list[float]:
    """Return the median time of each call; they take turns, so that what disturbs one disturbs all."""
    times: list[list[float]] = [[] for _ in calls]
    for turn in range(repeats + 1):  # the first turn warms up
        for i, call in enumerate(calls):
            begin = time.perf_counter()
            call()
            if turn:
                times[i].append(time.perf_counter() - begin)
    return [statistics.median(t) for t in times]


def measure(
    dtype: str, width: int, cloud: str, count: int, nodes: int, threads: int, repeats: int
) -> list[dict[str, Any]]:
    """Return a row for spreading and one for interpolation."""
    rng = np.random.default_rng(1)
    x = positions(cloud, count, rng).astype(dtype)
    kind = np.result_type(np.dtype(dtype), np.complex64)
    values = (rng.standard_normal(count) + 1j * rng.standard_normal(count)).astype(kind)
    shape = (nodes,) * 3
    plan = pm.Plan(pm.Mesh(shape, (1.0,) * 3), pm.bspline(width), dtype=dtype, components=2, threads=threads)

    columns = [np.ascontiguousarray((2 * np.pi * (x[:, a] - 0.5)).astype(dtype)) for a in range(3)]
    options = {"eps": TOLERANCES[width], "dtype": kind.name, "spreadinterponly": 1, "upsampfac": 2.0}
    to_mesh, to_points = (finufft.Plan(direction, shape, nthreads=threads, **options) for direction in (1, 2))
    field, result = np.empty(shape, kind), np.empty(count, kind)
    their_field, their_result = np.empty(shape, kind), np.empty(count, kind)
    set_seconds = medians(repeats, lambda: plan.set_positions(x), lambda: to_mesh.setpts(*columns))
    to_points.setpts(*columns)
    pairs = {
        "spread": (lambda: plan.spread(values, out=field), lambda: to_mesh.execute(values, out=their_field)),
        "interpolate": (
            lambda: plan.interpolate(field, out=result), lambda: to_points.execute(field, out=their_result),
        ),
    }  # fmt: skip
    rows = []
    for operation, calls in pairs.items():
        ours, peer = medians(repeats, *calls)
        rows.append({
            "operation": operation, "dtype": dtype, "width": width, "cloud": cloud, "N": count, "K": nodes,
            "threads": threads, "ours_s": f"{ours:.4e}", "peer_s": f"{peer:.4e}",
            "ratio": round(peer / ours, 2),
            "setpts_ours_s": f"{set_seconds[0]:.4e}", "setpts_peer_s": f"{set_seconds[1]:.4e}",
        })  # fmt: skip
        print(*rows[-1].values(), sep="\t", flush=True)
    return rows


def report(rows: list[dict[str, Any]]) -> None:
    """Print what depends on several rows: positions against ``setpts``, and how well threads are used."""
    cases: dict[tuple[Any, ...], dict[int, dict[str, Any]]] = {}
    for row in rows:
        key = tuple(row[name] for name in ("operation", "cloud", "N", "dtype", "width"))
        cases.setdefault(key, {})[int(row["threads"])] = row
    for (operation, cloud, count, dtype, width), by_threads in cases.items():
        few, many = min(by_threads), max(by_threads)
        line = f"# {operation}, {cloud}, N {int(count):,}, {dtype}, width {width}:"
        if operation == "spread":
            ratios = (float(r["setpts_peer_s"]) / float(r["setpts_ours_s"]) for r in by_threads.values())
            line += f" setpts {', '.join(f'{r:.2f}' for r in ratios)};"
        if many > few:
            speedup = float(by_threads[few]["ours_s"]) / float(by_threads[many]["ours_s"])
            line += f" efficiency {few} to {many} threads {speedup * few / many:.2f};"
        if not line.endswith(":"):
            print(line.rstrip(";"))


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, nargs="+", default=[available_threads()])
    parser.add_argument("--count", type=int, nargs="+", default=[10**6])
    parser.add_argument("--nodes", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--clouds", nargs="+", default=["uniform", "clustered"])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--read", type=Path, help="print from a CSV instead of measuring")
    asked = parser.parse_args()
    if asked.read:
        with asked.read.open(newline="") as file:
            report(list(csv.DictReader(file)))
        return
    rows: list[dict[str, Any]] = []
    for count in asked.count:
        for threads in asked.threads:
            for cloud in asked.clouds:
                part = [
                    row
                    for dtype in ("float32", "float64")
                    for width in TOLERANCES
                    for row in measure(dtype, width, cloud, count, asked.nodes, threads, asked.repeats)
                ]
                for operation in ("spread", "interpolate"):
                    ratios = [row["ratio"] for row in part if row["operation"] == operation]
                    mean = math.exp(sum(math.log(r) for r in ratios) / len(ratios))
                    print(f"# {operation}, {cloud}, N {count:,}, {threads} threads: {mean:.2f} "
                          f"(geometric mean), {min(ratios):.2f} at least")  # fmt: skip
                rows += part
                write("cpu", device_name(), rows, asked.out)
    report(rows)


if __name__ == "__main__":
    main()
