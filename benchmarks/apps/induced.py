# SPDX-License-Identifier: BSD-3-Clause
"""Many applications of a mesh at the same positions, as conjugate gradients of dipoles and charges make them.

``induced-spread-DEVICE.csv``: seconds of ``set_positions`` and ``applications`` times ``spread``, by every method of
spreading, prepared for so many applications. The row of "auto" says in ``chosen`` which method was taken; ``ratio`` is
the time over that of the fastest method. A method that declines says why in ``note``.

``induced-solve-DEVICE.csv``: whole calls of :class:`InducedDipoles` and :class:`ChargeEquilibration`, their iterations,
and seconds of a call of :class:`PME` at the same positions: with dipoles, or with charges.

    python benchmarks/apps/induced.py [--backend cpu] [--small] [--only spread solve] [--out DIR]
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))  # the folder of benchmarks, when this file runs

import particlemesh as pm
from harness import clouds, runs
from harness.place import Place
from harness.tables import short
from particlemesh.apps.pme import PME, ChargeEquilibration, InducedDipoles

APPLICATIONS = (10, 30)


class Case(NamedTuple):
    """Particles, nodes per axis, and the real type."""

    count: int
    nodes: int
    dtype: str

    def __str__(self) -> str:
        return f"{self.count:,} particles, {self.nodes}^3, {self.dtype}"


SMALL = [Case(200, 12, "float32")]
HOST = [Case(n, nodes, t) for n, nodes in ((4_000, 32), (30_000, 64)) for t in ("float32", "float64")]
GPU = [
    Case(n, nodes, t) for n, nodes in ((30_000, 64), (250_000, 128), (2_000_000, 256)) for t in ("float32", "float64")
]


def spread(place: Place, case: Case) -> Iterator[dict[str, Any]]:
    """Return rows of a case: each method and number of applications."""
    x = place.upload(clouds.positions("uniform", case.count, case.dtype))
    values = place.upload(clouds.values(case.count, case.dtype, "real"))
    mesh = pm.Mesh((case.nodes,) * 3, (1.0,) * 3)
    field = place.backend.empty(mesh.shape, case.dtype)
    for applications in APPLICATIONS:
        rows = []
        for method in ("auto", *place.names("spread")):
            plan = pm.Plan(
                mesh, "bspline5", method=method, applications=applications, backend=place.name, dtype=case.dtype
            )

            def step(plan: pm.Plan = plan, applications: int = applications) -> None:
                plan.set_positions(x, check=False)
                for _ in range(applications):
                    plan.spread(values, out=field)

            row = dict(
                particles=case.count, nodes=case.nodes, dtype=case.dtype, applications=applications, method=method,
                chosen="", seconds="", ratio="", note="",
            )  # fmt: skip
            try:
                seconds = place.clock.wall(step)
            except ValueError as error:  # the method declines
                rows.append(row | dict(note=str(error).splitlines()[0]))
                continue
            rows.append(row | dict(chosen=plan.methods.of("spread").name, seconds=seconds))
        best = min(row["seconds"] for row in rows if row["seconds"])
        for row in rows:
            if row["seconds"]:
                row |= dict(seconds=short(row["seconds"]), ratio=short(row["seconds"] / best))
            yield row


def solve(place: Place, case: Case) -> Iterator[dict[str, Any]]:
    """Return rows of a case: dipoles and charges."""
    edge = round(case.count ** (1 / 3))
    sites = np.stack(np.meshgrid(*[np.arange(edge)] * 3, indexing="ij"), -1).reshape(-1, 3)
    rng = np.random.default_rng(1)
    x = place.upload((sites + rng.uniform(0.3, 0.7, sites.shape)).astype(case.dtype))
    charges = rng.normal(size=len(sites))
    q = place.upload((charges - charges.mean()).astype(case.dtype))
    mu = place.upload(0.1 * rng.normal(size=sites.shape).astype(case.dtype))
    pme = PME((float(edge),) * 3, 1e-4, backend=place.name, dtype=case.dtype)
    induced, equilibrated = InducedDipoles(pme, 1e-5, thole=0.39), ChargeEquilibration(pme, 1e-5)
    calls = {
        "dipoles": (lambda: induced(x, q, 0.05), lambda: pme(x, q, dipoles=mu)),
        "charges": (lambda: equilibrated(x, q, 6.0), lambda: pme(x, q)),
    }
    for what, (call, plain) in calls.items():
        iterations = call().iterations
        seconds, once = place.clock.wall(call), place.clock.wall(plain)
        yield dict(
            particles=len(sites), dtype=case.dtype, what=what, iterations=iterations, seconds=short(seconds),
            pme_s=short(once), ratio=short(seconds / once),
        )  # fmt: skip


def main() -> None:
    """Measure what the command line asks for."""
    parser = runs.parser(__doc__, ("spread", "solve"), "cpu")
    asked = parser.parse_args()
    place = Place(asked.backend)
    cases = SMALL if asked.small else HOST if asked.backend == "cpu" else GPU
    with runs.Run(place, asked.out) as run:
        for part in asked.only:
            rows_of = {"spread": spread, "solve": solve}[part]
            file = place.file("induced", part)
            run.write(file, run.measure(part, cases, functools.partial(rows_of, place), file))
    run.finish()


if __name__ == "__main__":
    main()
