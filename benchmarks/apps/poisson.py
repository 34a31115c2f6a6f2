# SPDX-License-Identifier: BSD-3-Clause
"""A Poisson step: positions, spread, transform, multiply, transform back, value and gradient.

Each stage is timed alone on the solver's memory, then the whole step. Methods prepare for new positions in their first
call: "positions, spread" has the spread's. "step, sorted" takes and returns values in the plan's order. "by hand" is
the step of a program on the public `Plan` with the array library's transforms. ``graph_s`` are seconds of captured CUDA
graphs. ``error`` is the relative distance of the potential from that in float64. Writes ``results/poisson-DEVICE.csv``.

    python benchmarks/apps/poisson.py [--backend cuda] [--small] [--out DIR]
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # the folder of benchmarks, when this file runs

import numpy as np

import particlemesh as pm
from harness import clouds, runs
from harness.place import Place
from harness.tables import short
from particlemesh.fourier import Solver, Transform


@dataclass(frozen=True)
class Case:
    """A problem: charges, nodes per axis, order of the B-spline, real type, how gradients are made."""

    count: int
    nodes: int
    order: int
    dtype: str
    gradient: str = "window"

    @property
    def green(self) -> dict[str, Any]:
        """Poisson's equation for Gaussians of two spacings: smooth, so that either gradient serves."""
        return {"green": "ewald", "alpha": self.nodes / 2}

    def __str__(self) -> str:
        return f"{self.count:,} charges, {self.nodes}^3, p = {self.order}, {self.dtype}, {self.gradient}"


CASES = [
    Case(1_000_000, 216, 5, "float32"), Case(1_000_000, 216, 5, "float32", "ik"), Case(1_000_000, 216, 5, "float64"),
    Case(100_000, 96, 5, "float32"), Case(100_000, 96, 4, "float32"),
]  # fmt: skip
HOST = [Case(100_000, 96, 5, "float32"), Case(100_000, 96, 5, "float64")]
SMALL = [Case(500, 12, 4, "float32"), Case(500, 12, 4, "float32", "ik")]


def by_hand(place: Place, case: Case, x: Any, q: Any) -> tuple[Callable[[], Any], Any]:
    """Return the step as a program on the public plan makes it, and its potential."""
    mesh = pm.Mesh((case.nodes,) * 3, (1.0,) * 3)
    transform = Transform(mesh, f"bspline{case.order}")
    table = transform.green(**case.green) * transform.compensation("potential") / mesh.node_volume
    native = place.upload(table.astype(case.dtype))
    plan = pm.Plan(mesh, transform.window, backend=place.name, dtype=case.dtype)
    if place.name == "cuda":
        import cupy.fft as fft
    else:
        import scipy.fft as fft
    plan.reserve(case.count)
    field = place.backend.empty(mesh.shape, case.dtype)
    out = place.backend.empty((case.count,), case.dtype), place.backend.empty((case.count, 3), case.dtype)

    def step() -> None:
        plan.set_positions(x, check=False)
        plan.spread(q, out=field)
        potential = fft.irfftn(fft.rfftn(field) * native, s=mesh.shape)
        plan.value_and_gradient(potential, out=out)

    return step, out[0]


def rows(place: Place, case: Case) -> Iterator[dict[str, Any]]:
    """Yield a row for every stage, for the whole step, and for the step by hand."""
    x = place.upload(clouds.positions("uniform", case.count, case.dtype))
    host = clouds.values(case.count, case.dtype, "real")
    q = place.upload(host - host.mean(dtype=np.float64).astype(case.dtype))
    mesh = pm.Mesh((case.nodes,) * 3, (1.0,) * 3)
    window = f"bspline{case.order}"
    solver = Solver(mesh, window, **case.green, gradient=case.gradient, backend=place.name, dtype=case.dtype).reserve(
        case.count
    )
    solver.set_positions(x)
    out = place.backend.empty((case.count,), case.dtype), place.backend.empty((case.count, 3), case.dtype)

    def step() -> None:
        solver.set_positions(x, check=False)
        solver.potential_and_gradient(q, out=out)

    step()
    wide = Solver(mesh, window, **case.green, dtype="float64", backend=place.name).set_positions(x)
    exact = place.download(wide.potential(q.astype("float64")))

    def error(potential: Any) -> float:
        return short(float(np.linalg.norm(place.download(potential) - exact) / np.linalg.norm(exact)))

    def row(stage: str, call: Callable[[], Any], potential: Any = None) -> dict[str, Any]:
        call()
        once = place.clock.seconds(call)
        return dict(
            count=case.count, nodes=case.nodes, order=case.order, dtype=case.dtype, gradient=case.gradient,
            stage=stage, call_s=short(once), graph_s=short(place.clock.captured(call, once)),
            error=math.nan if potential is None else error(potential),
            nbytes=solver.nbytes if stage == "step" else "", device=place.device, backend=place.name,
        )  # fmt: skip

    work, plan = solver._work, solver.plan
    field = place.backend.empty(mesh.shape, case.dtype)
    spectrum = work.engine.forward(field, None)
    flat = spectrum.reshape(1, *spectrum.shape)
    yield row("spread", lambda: plan.spread(q, out=field))
    yield row("forward", lambda: work.engine.forward(field, None if work.on_cpu else spectrum))
    yield row("multiply", lambda: work.factors(flat, flat))
    place.backend.clear(spectrum)  # it was multiplied many times
    copies = 1 if case.gradient == "window" else 4
    many = place.backend.empty((copies, *spectrum.shape), spectrum.dtype)
    place.backend.clear(many)
    fields = None if work.on_cpu else place.backend.empty((copies, *mesh.shape), case.dtype)
    yield row("backward", lambda: work.engine.backward(many, fields))
    if case.gradient == "window":
        yield row("interpolate", lambda: plan.value_and_gradient(field, out=out))
    # Last: after a captured set_positions every call prepares anew.
    yield row("positions", lambda: solver.set_positions(x, check=False))

    def prepared() -> None:
        solver.set_positions(x, check=False)
        plan.spread(q, out=field)

    yield row("positions, spread", prepared)
    step()
    yield row("step", step, out[0])
    ordered = Solver(
        mesh, window, **case.green, gradient=case.gradient, backend=place.name, dtype=case.dtype, order="sorted"
    ).reserve(case.count)
    ordered.set_positions(x)

    def sorted_step() -> None:
        ordered.set_positions(x, check=False)
        ordered.potential_and_gradient(q, out=out)

    yield row("step, sorted", sorted_step)
    if case.gradient == "window" and place.name != "opencl":
        yield row("by hand", *by_hand(place, case, x, q))


def main() -> None:
    """Measure all cases of a backend."""
    asked = runs.parser(__doc__).parse_args()
    with runs.Run(Place(asked.backend), asked.out) as run:
        cases = SMALL if asked.small else CASES if asked.backend == "cuda" else HOST
        written = run.measure("Poisson", cases, lambda case: rows(run.place, case))
        for row in written:
            seconds = row["call_s"] if math.isnan(row["graph_s"]) else row["graph_s"]
            run.say(
                f"{row['nodes']:4d}^3 {row['dtype']} {row['gradient']:7s} {row['stage']:18s} {seconds * 1e3:9.4f} ms"
            )
        run.write("poisson", written)
    run.finish()


if __name__ == "__main__":
    main()
