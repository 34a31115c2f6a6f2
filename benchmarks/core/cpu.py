# SPDX-License-Identifier: BSD-3-Clause
"""Spreading and interpolation on the CPU beside FINUFFT, in the same run.

Writes ``results/cpu-DEVICE.csv``. Ratios are the peer's time over ours: above 1 ours is faster. Complex values in the
caller's order, periodic mesh of K^3 nodes, plan reused, field cleared by both; B-splines of the width that FINUFFT
takes for its tolerance. Calls of both alternate; times are medians. ``setpts`` is all work that depends on positions
only: ``set_positions`` here, ``Plan.setpts`` there. ``clustered`` is nine tenths of the particles in a small ball.

    python benchmarks/core/cpu.py [--small] [--threads 2 16] [--count 1000000] [--nodes 128] [--repeats 15] [--out DIR]
"""

from __future__ import annotations

import importlib.util
import itertools
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))  # the folder of benchmarks, when this file runs

# OpenMP's threads would keep spinning after FINUFFT's calls, on the cores of ours.
os.environ["OMP_WAIT_POLICY"] = "passive"

import particlemesh as pm
from harness import clouds, runs
from harness.clock import turns
from harness.inside import available_threads
from harness.place import Place
from harness.tables import geometric_mean, show

TOLERANCES = {4: 1e-3, 6: 1e-5}  # for which FINUFFT 2.5.1 takes these widths at upsampling 2
CLOUDS = {"uniform": "uniform", "clustered": "ball"}  # by the names in the file


class Case(NamedTuple):
    """One problem on some threads."""

    count: int
    threads: int
    cloud: str
    dtype: str
    width: int


def rows(case: Case, nodes: int, repeats: int) -> Iterator[dict[str, Any]]:
    """Yield a row for spreading and one for interpolation."""
    import finufft

    x = clouds.positions(CLOUDS[case.cloud], case.count, case.dtype)
    values, field = (make(n, case.dtype, "complex") for make, n in ((clouds.values, case.count), (clouds.field, nodes)))
    kind, shape = values.dtype, (nodes,) * 3
    plan = pm.Plan(pm.Mesh(shape, (1.0,) * 3), pm.bspline(case.width), dtype=case.dtype, components=2,
                   threads=case.threads)  # fmt: skip
    columns = [np.ascontiguousarray((2 * np.pi * (x[:, a] - 0.5)).astype(case.dtype)) for a in range(3)]
    options = {"eps": TOLERANCES[case.width], "dtype": kind.name, "spreadinterponly": 1, "upsampfac": 2.0}
    to_mesh, to_points = (finufft.Plan(way, shape, nthreads=case.threads, **options) for way in (1, 2))
    fields, results = ([np.empty(shape, kind) for _ in range(2)], [np.empty(case.count, kind) for _ in range(2)])
    positions = turns(repeats, lambda: plan.set_positions(x), lambda: to_mesh.setpts(*columns))
    to_points.setpts(*columns)
    pairs = {
        "spread": (lambda: plan.spread(values, out=fields[0]), lambda: to_mesh.execute(values, out=fields[1])),
        "interpolate": (
            lambda: plan.interpolate(field, out=results[0]), lambda: to_points.execute(field, out=results[1]),
        ),
    }  # fmt: skip
    for operation, calls in pairs.items():
        ours, peer = turns(repeats, *calls)
        yield {
            "operation": operation, "dtype": case.dtype, "width": case.width, "cloud": case.cloud, "N": case.count,
            "K": nodes, "threads": case.threads, "ours_s": f"{ours:.4e}", "peer_s": f"{peer:.4e}",
            "ratio": round(peer / ours, 2), "setpts_ours_s": f"{positions[0]:.4e}",
            "setpts_peer_s": f"{positions[1]:.4e}",
        }  # fmt: skip


def summary(table: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    """Return mean and least ratio of each operation, cloud, size and number of threads."""
    lines = []
    keys = ("operation", "cloud", "N", "threads")
    for key in dict.fromkeys(tuple(row[k] for k in keys) for row in table):
        ratios = [float(row["ratio"]) for row in table if tuple(row[k] for k in keys) == key]
        lines.append((*map(str, key), f"{geometric_mean(ratios):.2f}", f"{min(ratios):.2f}"))
    return lines


def main() -> None:
    """Measure what the command line asks for."""
    parser = runs.parser(__doc__, backend=None)
    parser.add_argument("--threads", type=int, nargs="+", default=[available_threads()])
    parser.add_argument("--count", type=int, nargs="+", default=[10**6])
    parser.add_argument("--nodes", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=15)
    asked = parser.parse_args()
    if not importlib.util.find_spec("finufft"):
        raise SystemExit("finufft is not installed: pip install finufft==2.5.1")
    counts, nodes, repeats = ([1000], 16, 1) if asked.small else (asked.count, asked.nodes, asked.repeats)
    cases = [Case(*c) for c in itertools.product(counts, asked.threads, CLOUDS, ("float32", "float64"), TOLERANCES)]
    with runs.Run(Place("cpu"), asked.out) as run:
        table = run.measure("FINUFFT", cases, lambda case: rows(case, nodes, repeats))
        run.write("cpu", table)
    show("FINUFFT's time over ours", ("operation", "cloud", "N", "threads", "mean", "least"), summary(table))
    run.finish()


if __name__ == "__main__":
    main()
