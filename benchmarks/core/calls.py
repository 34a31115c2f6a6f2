# SPDX-License-Identifier: BSD-3-Clause
"""Plain calls of every verb and application: the host's time, the time with the device, and Python's calls.

Writes ``results/plain-calls-DEVICE.csv``. Each row is one call on 2,000 particles, for which kernels are nearly empty,
or on ``--count``. ``host_s`` is the time until a call returns, ``whole_s`` the time until the device is done, both of
the lowest tenth of calls: other processes make them longer and never shorter. ``graph_s`` is the GPU's time in a
captured graph, where a call can be captured. ``python_calls`` counts functions of the library that one call enters.
``style``: ``plain`` gets other arrays each time and returns new ones; ``out`` writes to arrays of the caller.

    python benchmarks/core/calls.py [--backend cuda] [--kind native torch] [--count 2000] [--small] [--out DIR]
"""

from __future__ import annotations

import itertools
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))  # the folder of benchmarks, when this file runs

import particlemesh as pm
from harness import clouds, runs
from harness.place import Place
from harness.tables import short, show, span
from particlemesh.apps import brownian, dem, nufft
from particlemesh.apps.pme import PME, PMEBatch
from particlemesh.fourier import Solver

PACKAGE = str(Path(pm.__file__).parent)
REPEATS = 200
TIMES = "host_s", "whole_s", "graph_s"
Call = Callable[[], Any]


class Arrays:
    """Arrays of one kind on a backend, in turns: no call gets those of the call before."""

    def __init__(self, place: Place, kind: str) -> None:
        self._place, self._kind = place, kind

    def one(self, host: np.ndarray) -> Any:
        if self._kind == "native":
            return self._place.upload(host)
        import torch

        return torch.tensor(host, device="cuda" if self._place.name == "cuda" else "cpu")

    def turns(self, *hosts: np.ndarray) -> Callable[[], Any]:
        """Return a function that returns the next of the arrays."""
        return itertools.cycle([self.one(host) for host in hosts]).__next__


@dataclass(frozen=True)
class Verb:
    """A call to be measured."""

    name: str
    style: str
    call: Call

    def __str__(self) -> str:
        return f"{self.name}, {self.style}"


def verbs(place: Place, kind: str, count: int) -> Iterator[Verb]:
    """Yield the calls of all verbs."""
    arrays = Arrays(place, kind)
    clouds_of = [clouds.positions("uniform", count, "float32", seed=n) for n in range(3)]
    charges = [np.random.default_rng(n).normal(size=count).astype("f4") for n in range(3)]
    x, q = arrays.turns(*clouds_of), arrays.turns(*(c - c.mean() for c in charges))
    nodes = max(16, 2 * round((count / 8) ** (1 / 3)))
    plan = pm.Plan(pm.Mesh((nodes,) * 3, (1.0,) * 3), "bspline4", dtype="float32").set_positions(x())
    field = arrays.turns(*(np.random.default_rng(n).normal(size=(nodes,) * 3).astype("f4") for n in range(3)))
    out, values = field(), arrays.one(charges[0])
    yield Verb("Plan.set_positions", "plain", lambda: plan.set_positions(x()))
    yield Verb("Plan.spread", "plain", lambda: plan.spread(q()))
    yield Verb("Plan.spread", "out", lambda: plan.spread(q(), out=out))
    yield Verb("Plan.interpolate", "plain", lambda: plan.interpolate(field()))
    yield Verb("Plan.interpolate", "out", lambda: plan.interpolate(field(), out=values))
    yield Verb("Plan.gradient", "plain", lambda: plan.gradient(field()))
    radius = float((30 / count / 4.2) ** (1 / 3))
    grid = pm.UniformGrid((1.0,) * 3, cell_size=radius)
    yield Verb("UniformGrid.build", "plain", lambda: grid.build(x()))
    grid.build(x())
    yield Verb("UniformGrid.pairs", "plain", lambda: grid.pairs(radius, half=True))
    yield Verb("neighbour_list", "plain", lambda: pm.neighbour_list("ijS", x(), (1.0,) * 3, radius))
    solver = Solver(plan.mesh, "bspline4", green="ewald", alpha=8.0).set_positions(x())
    yield Verb("Solver.set_positions", "plain", lambda: solver.set_positions(x()))
    yield Verb("Solver.potential", "plain", lambda: solver.potential(q()))
    pme = PME((1.0,) * 3, 1e-4)
    yield Verb("PME", "plain", lambda: pme(x(), q()))
    batch, system = PMEBatch((1.0,) * 3, 10, 1e-4), arrays.one(np.arange(count, dtype="i4") % 10)
    boxes = arrays.turns(*(np.full((10, 3), 1 - 0.01 * n, "f4") for n in range(3)))
    yield Verb("PMEBatch", "plain", lambda: batch(x(), q(), system, boxes=boxes()))
    transform = nufft.Plan(1, (nodes,) * 3, eps=1e-5, dtype="complex64")
    points = [arrays.turns(*(((c[:, a] - 0.5) * 6.28).copy() for c in clouds_of)) for a in range(3)]
    strengths = arrays.turns(*(c.astype("c8") for c in charges))
    yield Verb("nufft.Plan.setpts", "plain", lambda: transform.setpts(*(p() for p in points)))
    transform.setpts(*(p() for p in points))
    yield Verb("nufft.Plan.execute", "plain", lambda: transform.execute(strengths()))
    if kind == "native":
        side = int(np.ceil(count ** (1 / 3)))
        lattice = np.stack(np.meshgrid(*[np.arange(side)] * 3, indexing="ij"), -1).reshape(-1, 3)[:count] * 2.02 + 1.1
        grains = dem.Simulation(
            arrays.one(lattice), 1.0, density=1.0, contact=dem.Hertz(1e4, 0.3), box=(2.1 * side,) * 3, gravity=1.0
        )
        yield Verb("dem step", "plain", lambda: grains.run(1))
        spheres = arrays.one(lattice)
        mobility = brownian.RPY((2.02 * side + 0.2,) * 3, radius=1.0, accuracy=1e-3)
        motion = brownian.BrownianDynamics(spheres, mobility, time_step=1e-4, seed=1)
        yield Verb("Brownian step", "plain", lambda: motion.run(1))


def python_calls(call: Call) -> int:
    """Return how many functions of the library a call enters."""
    entered = 0

    def note(frame: Any, event: str, _: Any) -> None:
        nonlocal entered
        entered += event == "call" and frame.f_code.co_filename.startswith(PACKAGE)

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return entered


def measured(place: Place, kind: str, verb: Verb, count: int, repeats: int) -> dict[str, Any]:
    """Return the row of a call."""
    call = verb.call
    for _ in range(20):
        call()
    place.wait()
    host, whole = [], []
    stop = time.perf_counter() + 2.0
    for _ in range(repeats):
        begin = time.perf_counter()
        call()
        host.append(time.perf_counter() - begin)
        place.wait()
        whole.append(time.perf_counter() - begin)
        if time.perf_counter() > stop:
            break
    calls = python_calls(call)  # before a capture, which ends what was kept for lists
    capturable = kind == "native" and "step" not in verb.name
    graph = place.clock.captured(call, statistics.median(whole)) if capturable else np.nan
    tenth = len(host) // 10
    return {
        "call": verb.name, "kind": kind, "style": verb.style, "N": count, "host_s": short(sorted(host)[tenth]),
        "whole_s": short(sorted(whole)[tenth]), "graph_s": short(graph), "python_calls": calls,
    }  # fmt: skip


def main() -> None:
    parser = runs.parser(__doc__)
    parser.add_argument("--kind", nargs="+", choices=("native", "torch"), default=["native"])
    parser.add_argument("--count", type=int, default=2000, help="particles")
    parser.add_argument("--repeats", type=int, default=REPEATS)
    options = parser.parse_args()
    place = Place(options.backend)
    count, repeats = (200, 3) if options.small else (options.count, options.repeats)
    rows: list[dict[str, Any]] = []
    with runs.Run(place, options.out) as run:
        for kind in options.kind:
            rows += run.measure(
                kind, verbs(place, kind, count), lambda verb, kind=kind: [measured(place, kind, verb, count, repeats)]
            )
        run.write(place.file("plain", "calls"), rows)
    head = ("call", "arrays", "style", "host", "whole", "graph", "calls")
    shown = [
        [r["call"], r["kind"], r["style"], *(span(r[k]) if r[k] == r[k] else "" for k in TIMES), f"{r['python_calls']}"]
        for r in rows
    ]
    show(f"{count} particles, {place.device}", head, shown)
    run.finish()


if __name__ == "__main__":
    main()
