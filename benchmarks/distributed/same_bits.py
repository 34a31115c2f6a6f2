# SPDX-License-Identifier: BSD-3-Clause
"""The same bits over ranks against the fastest plan: medians of calls that alternate, in one run.

``Plan(deterministic=True)`` of ``particlemesh.distributed`` stands beside the same plan without it, and ``fixed_point``
of a local plan beside the method that is chosen. With ``--pme`` so does a step of ``DistributedPME``. Rank 0 prints a
line for each call, and writes no file.

    python benchmarks/distributed/same_bits.py --backend cpu
    mpiexec -n 2 --bind-to none python -m mpi4py benchmarks/distributed/same_bits.py --particles 1e8
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))  # the folder of benchmarks, when this file runs

import particlemesh as pm
from particlemesh import backends
from particlemesh import distributed as pmd
from particlemesh.apps.pme import DistributedPME


def medians(calls: tuple[Callable[[], Any], ...], wait: Callable[[], None], repeats: int) -> list[float]:
    """Return the median seconds of each call; they take turns."""
    times: list[list[float]] = [[] for _ in calls]
    for turn in range(-2, repeats):
        for call, some in zip(calls, times, strict=True):
            wait()
            begin = time.perf_counter()
            call()
            wait()
            some += [time.perf_counter() - begin] * (turn >= 0)
    return [statistics.median(some) for some in times]


def main() -> None:
    """Measure one problem, as large on every rank."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", choices=["cpu", "cuda"], default="cuda")
    parser.add_argument("--particles", type=float, default=0, help="of a rank; by default one per node")
    parser.add_argument("--nodes", type=int, default=0, help="along an edge of a rank's part")
    parser.add_argument("--window", default="bspline4")
    parser.add_argument("--dtype", default="float64", help="of values: float32, float64, complex64 or complex128")
    parser.add_argument("--form", choices=["registers", "memory"], help="where a GPU adds integers")
    parser.add_argument("--pme", action="store_true", help="energy and forces of charges, real numbers")
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--small", action="store_true")
    asked = parser.parse_args()
    edge = asked.nodes or (16 if asked.small else 96 if asked.backend == "cpu" else 256)
    count, repeats = int(asked.particles) or edge**3, 2 if asked.small else asked.repeats
    xp: Any = np
    if asked.backend == "cuda":
        import cupy as xp
    world = pmd.World()
    if "mpi4py" in sys.modules:  # started by `python -m mpi4py`
        from mpi4py import MPI

        world = pmd.World(MPI.COMM_WORLD)
    mesh = pm.Mesh((edge * world.size, edge, edge), (1.0 * world.size, 1.0, 1.0))
    domain, rng = pmd.Domain(mesh, world.size, "slabs"), np.random.default_rng(world.rank)
    number = np.dtype(asked.dtype)
    real = np.zeros(0, number).real.dtype
    x = xp.asarray((rng.random((count, 3)) + np.array([world.rank, 0, 0])).astype(real))
    q = xp.asarray((rng.standard_normal(count) * (1 + 1j if number.kind == "c" else 1)).astype(number))
    wait = backends.current(asked.backend).synchronize

    def show(what: str, pair: tuple[Callable[[], Any], ...]) -> None:
        fastest, same = medians(pair, wait, repeats)
        if world.rank == 0:
            print(f"{what}: {fastest * 1e3:.2f} ms, same bits {same * 1e3:.2f} ms, ratio {same / fastest:.2f}")

    if asked.pme:
        made = (DistributedPME(world, mesh.box, deterministic=same, dtype=real) for same in (False, True))
        show("PME over ranks, a step", tuple(lambda p=p: p(x, q, virial=False, check=False) for p in made))
        return
    options: dict[str, Any] = {"threads": asked.threads, "dtype": real, "components": 1 + (number.kind == "c")}
    if asked.form:
        options["options"] = {"fixed_point": {"form": asked.form}}
    over = [pmd.Plan(domain, world, asked.window, deterministic=same, **options) for same in (False, True)]
    here = [pm.Plan(mesh, asked.window, method=method, **options) for method in ("auto", "fixed_point")]

    def step(plan: Any) -> None:
        plan.set_positions(x)
        plan.interpolate(plan.spread(q))

    rows = [("plan over ranks", over)] + [("local plan", here)] * (world.size == 1)
    for name, plans in rows:
        for plan in plans:
            plan.set_positions(x)
        fields = [plan.spread(q) for plan in plans]
        both = list(zip(plans, fields, strict=True))
        calls = {
            "set_positions": tuple(lambda p=p: p.set_positions(x) for p in plans),
            "spread": tuple(lambda p=p: p.spread(q) for p in plans),
            "interpolate": tuple(lambda p=p, f=f: p.interpolate(f) for p, f in both),
            "all three": tuple(lambda p=p: step(p) for p in plans),
        }  # fmt: skip
        for call, pair in calls.items():
            show(f"{name}, {call}", pair)


if __name__ == "__main__":
    main()
