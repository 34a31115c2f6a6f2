# SPDX-License-Identifier: BSD-3-Clause
"""Overhead: calls for a hundred particles, and one axis with two nodes per particle beside NumPy; on a GPU, time steps.

Writes ``results/overhead-DEVICE.csv``. ``limit_s`` is what a call may take: a fixed time for small problems; for one
axis the least time of NumPy's two ``bincount`` in the same run. ``positions to field`` includes the work that depends
on positions only, on both sides; ``values to field`` does not. Calls that are compared alternate. Small calls have wall
times, those on one axis processor times. Other processes make both longer and never shorter: on a busy machine the
least times and the lowest tenth are to be compared.

On a GPU (``--backend cuda`` or ``opencl``) there are calls for 10^4 particles instead, outside of graphs: the
host's time of a call whose arrays are those of the calls before.

    python benchmarks/core/overhead.py [--backend cpu] [--small] [--threads 1] [--repeats 1000] [--out DIR]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))  # the folder of benchmarks, when this file runs

import particlemesh as pm
from harness import clouds, runs
from harness.clock import times
from harness.place import Place
from harness.tables import short, show

WINDOW, NODES, PARTICLES = "bspline4", 16, 100
LIMIT, SINGLE_LIMIT = 1e-4, 3e-4  # seconds: of a call with a plan, and of one without
LINES = (1024, 10**6)  # nodes of one axis
Call = Callable[[], Any]


def row(call: str, particles: int, nodes: int, window: str, taken: list[float], limit: float) -> dict[str, Any]:
    """Return the row of a call."""
    taken = sorted(taken)
    return {
        "call": call, "N": particles, "nodes": nodes, "window": window, "repeats": len(taken),
        "least_s": short(taken[0]), "tenth_s": short(taken[len(taken) // 10]),
        "median_s": short(taken[len(taken) // 2]), "limit_s": short(limit),
    }  # fmt: skip


def small_calls() -> dict[str, tuple[Call, float]]:
    """Return the calls for few particles in three dimensions, and what they may take."""
    mesh = pm.Mesh((NODES,) * 3, (1.0,) * 3)
    x, values = clouds.positions("uniform", PARTICLES, "float64"), clouds.values(PARTICLES, "float64", "real")
    plan = pm.Plan(mesh, WINDOW).set_positions(x)
    field = plan.spread(values)
    return {
        "plan.set_positions": (lambda: plan.set_positions(x), LIMIT),
        "plan.spread": (lambda: plan.spread(values), LIMIT),
        "plan.interpolate": (lambda: plan.interpolate(field), LIMIT),
        "plan.value_and_gradient": (lambda: plan.value_and_gradient(field), LIMIT),
        "mesh.compensation": (lambda: mesh.compensation(WINDOW), LIMIT),
        "mesh.wavenumbers": (mesh.wavenumbers, LIMIT),
        "pm.spread": (lambda: pm.spread(x, values, mesh, window=WINDOW), SINGLE_LIMIT),
        "pm.interpolate": (lambda: pm.interpolate(field, x, mesh, window=WINDOW), SINGLE_LIMIT),
        "neighbour_list": (lambda: pm.neighbour_list("ij", x, (1.0,) * 3, 0.2), SINGLE_LIMIT),
    }


def small(call: str, repeats: int) -> Iterator[dict[str, Any]]:
    """Yield the row of a small call."""
    function, limit = small_calls()[call]
    yield row(call, PARTICLES, NODES, WINDOW, times(repeats, function)[0], limit)


def steps(place: Place, nodes: int, window: str, particles: int, repeats: int) -> Iterator[dict[str, Any]]:
    """Yield rows of calls on a GPU whose arrays stay in place."""
    x, values = (
        place.upload(host)
        for host in (clouds.positions("uniform", particles), clouds.values(particles, "float32", "real"))
    )
    mesh = pm.Mesh((nodes,) * 3, (1.0,) * 3)
    plan = pm.Plan(mesh, window, backend=place.name, dtype="float32", applications=100).set_positions(x)
    field = plan.spread(values)
    plan.interpolate(field)
    plan.reserve(particles)
    rho, out = plan.spread(values), plan.interpolate(field)

    def step() -> None:
        plan.set_positions(x, check=False)
        plan.spread(values, out=rho)
        plan.interpolate(field, out=out)

    calls: dict[str, tuple[Call, float]] = {
        "plan.set_positions": (lambda: plan.set_positions(x), 3.5e-5),
        "plan.set_positions(check=False)": (lambda: plan.set_positions(x, check=False), 3.5e-5),
        "plan.spread(out=)": (lambda: plan.spread(values, out=rho), 3.5e-5),
        "plan.interpolate(out=)": (lambda: plan.interpolate(field, out=out), 3.5e-5),
        "all three": (step, LIMIT),
    }
    for call, (function, limit) in calls.items():
        for _ in range(8):  # the first ones are worked out
            function()
        place.wait()
        taken = []
        for n in range(repeats):
            taken += times(1, function)[0]
            if n % 20 == 19:
                place.wait()  # the queue stays short
        yield row(call, particles, nodes, window, taken, limit)
    plan.close()


def line(nodes: int, particles: int, threads: int, repeats: int) -> Iterator[dict[str, Any]]:
    """Yield rows of one axis with the window ``cic``; both fields are compared."""
    rng = np.random.default_rng(clouds.SEED)
    x, values = rng.random(particles), rng.random(particles)
    plan, out = pm.Plan(pm.Mesh(nodes, 1.0), "cic", threads=threads).set_positions(x), np.empty(nodes)

    def cells() -> tuple[np.ndarray, np.ndarray]:
        u = x * nodes
        cell = u.astype(np.int64)
        return cell, u - cell

    def add(cell: np.ndarray, upper: np.ndarray) -> np.ndarray:
        ends = np.bincount(cell, values * (1 - upper), nodes + 1) + np.bincount(cell + 1, values * upper, nodes + 1)
        ends[0] += ends[-1]
        return ends[:-1]

    known = cells()
    np.testing.assert_allclose(plan.spread(values), add(*known), atol=1e-9 * particles)
    pairs: dict[str, tuple[Call, Call]] = {
        "positions to field": (lambda: plan.set_positions(x).spread(values, out=out), lambda: add(*cells())),
        "values to field": (lambda: plan.spread(values, out=out), lambda: add(*known)),
    }
    for call, (ours, peer) in pairs.items():
        taken = times(repeats, ours, peer, clock=time.process_time)
        yield row(call, particles, nodes, "cic", taken[0], min(taken[1]))


def main() -> None:
    """Measure what the command line asks for."""
    parser = runs.parser(__doc__, backend="cpu")
    parser.add_argument("--threads", type=int, default=1, help="threads of one axis; NumPy has one")
    parser.add_argument("--repeats", type=int, default=1000, help="of small calls; of one axis a twentieth of it")
    asked = parser.parse_args()
    repeats, particles, lines = (asked.repeats, 10**6, LINES) if not asked.small else (20, 1000, LINES[:1])
    place = Place(asked.backend)
    with runs.Run(place, asked.out) as run:
        if place.name == "cpu":
            table = run.measure("small calls", small_calls(), lambda call: small(call, repeats))
            table += run.measure("one axis", lines, lambda n: line(n, particles, asked.threads, max(1, repeats // 20)))
        else:
            meshes = ((64, "bspline4"), (128, "bspline6")) if not asked.small else ((16, "cic"),)
            count = 10**4 if not asked.small else 100
            table = run.measure("time steps", meshes, lambda mesh: steps(place, *mesh, count, repeats))
        run.write("overhead" if place.name != "opencl" else "overhead-opencl", table)
    columns = ("call", "nodes", "least_s", "tenth_s", "median_s", "limit_s")
    show("seconds", columns, [tuple(str(made[c]) for c in columns) for made in table])
    run.finish()


if __name__ == "__main__":
    main()
