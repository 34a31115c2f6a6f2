# SPDX-License-Identifier: BSD-3-Clause
"""A step of particle-mesh Ewald at the density of water: both halves alone, and the whole step.

On a GPU: float32, B-splines of order 5, cutoff 0.9, 100 charges in a volume of 1, about 9 nodes in a length of 1.
``graph_s`` are seconds of captured CUDA graphs. With CUDA both halves run at once; the row "step, one by one" is the
same with one stream. The rows "step, prolate" and "step, gaussian" choose their parameters from an accuracy that makes
the ``error`` below about 5e-5. On the CPU: 20,000 ions, whole steps without a list and with one that is kept.

Where torch and torch-pme are installed, its `PMECalculator` runs on the same device, in turns with our step. Its list
of pairs is not timed, and ours is. So do nvalchemi-toolkit-ops, with its list, and OpenMM's CPU platform, beside our
step with a list, as OpenMM keeps one.
``ratio`` is the median of their time over ours, calls and waits for each included; ``ratio_graph`` is their call over
our graph. ``error`` is the root-mean-square error of forces over their root mean square, against float64 with an
accuracy of 1e-9, up to 100,000 charges. Each row of ``results/pme-DEVICE.csv`` is written as soon as it is measured.

    python benchmarks/apps/pme.py [--backend cuda] [--small] [--out DIR]
"""

from __future__ import annotations

import functools
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # the folder of benchmarks, when this file runs

import numpy as np

import particlemesh as pm
from apps import pme_peers
from apps.pme_peers import Peer, Problem
from harness import runs
from harness.place import Place
from harness.tables import short
from particlemesh.apps.pme import PME, Result

DENSITY, CUTOFF, SPLITTING, ORDER, SPACING = 100.0, 0.9, 3.123, 5, 0.115
EXACT_UP_TO = 100_000
ACCURACY = 3e-4  # of typical forces; the root mean square of forces is larger, since few charges are close


@dataclass(frozen=True)
class Case:
    """A problem: charges, real type, and whether the virial is computed."""

    count: int
    dtype: str
    virial: bool = False

    def __str__(self) -> str:
        return f"{self.count:,} charges, {self.dtype}{', virial' * self.virial}"


CASES = [Case(92_224, "float32"), Case(92_224, "float32", True), Case(424_000, "float32"), Case(1_066_628, "float32")]
HOST = [Case(20_000, "float32"), Case(20_000, "float64"), Case(20_000, "float64", True)]
SMALL = [Case(300, "float32"), Case(300, "float64", True)]


def water(case: Case) -> tuple[float, np.ndarray, np.ndarray]:
    """Return the box's length, positions on a disturbed lattice, and charges of both signs without a sum."""
    rng = np.random.default_rng(1)
    length, side = (case.count / DENSITY) ** (1 / 3), math.ceil(case.count ** (1 / 3))
    sites = rng.permutation(side**3)[: case.count]
    lattice = np.stack(np.unravel_index(sites, (side,) * 3), -1) + rng.uniform(0.2, 0.8, (case.count, 3))
    charges = rng.standard_normal(case.count)
    return length, (lattice * length / side).astype(case.dtype), (charges - charges.mean()).astype(case.dtype)


@functools.lru_cache(maxsize=1)
def exact_forces(count: int, dtype: str) -> np.ndarray:
    """Return forces in float64 with an accuracy of 1e-9, on the host."""
    length, positions, charges = water(Case(count, dtype))
    wide = positions.astype(np.float64), charges.astype(np.float64)
    return np.asarray(PME((length,) * 3, accuracy=1e-9)(*wide, virial=False).forces)


def rows(place: Place, case: Case) -> Iterator[dict[str, Any]]:
    """Yield a row for each half, and for the whole step."""
    length, positions, charges = water(case)
    nodes = pm.fourier.good_size(math.ceil(length / SPACING))
    sizes: dict[str, Any] = dict(cutoff=CUTOFF, splitting=SPLITTING, shape=nodes, window=f"bspline{ORDER}")
    common: dict[str, Any] = dict(sizes, dtype=case.dtype, backend=place.name)
    x, q = place.upload(positions), place.upload(charges)
    pme = PME((length,) * 3, **common).reserve(case.count, virial=case.virial)
    empty = place.backend.empty
    shapes = ((1,), (1, case.count), (1, case.count, 3), (1, 3, 3))
    out = Result(*(empty(shape, case.dtype) for shape in shapes))
    sets = q.reshape(1, case.count)
    exact = exact_forces(case.count, case.dtype) if case.count <= EXACT_UP_TO else None

    def row(stage: str, call: Callable[[], Any], forces: Any = None, made: PME = pme) -> dict[str, Any]:
        call()
        once = place.clock.seconds(call)
        error = math.nan
        if forces is not None and exact is not None:
            forces_here = place.download(forces).reshape(exact.shape)
            error = short(float(np.linalg.norm(forces_here - exact) / np.linalg.norm(exact)))
        return dict(
            count=case.count, nodes=made.parameters.shape[0], cutoff=short(made.parameters.cutoff),
            window=made.parameters.window.name, dtype=case.dtype, virial=case.virial, stage=stage, call_s=short(once),
            graph_s=short(place.clock.captured(call, once)), ratio="", ratio_graph="", error=error,
            nbytes=made.nbytes if stage.startswith("step") else "", device=place.device, backend=place.name,
        )  # fmt: skip

    def step(made: PME = pme) -> None:
        made(x, sets, virial=case.virial, check=False, out=out)

    step()
    core = pme._core
    assert core is not None
    function = core.function(1, case.virial, case.count)
    sums = empty((case.count, function.results), case.dtype)
    potential, gradient = empty((1, case.count), case.dtype), empty((1, case.count, 3), case.dtype)
    virial = empty((1, 3, 3), case.dtype)

    def reciprocal() -> None:
        core.solver.set_positions(x, check=False)
        if case.virial:
            core.solver.potential_gradient_virial(sets, out=(potential, gradient, virial))
        else:
            core.solver.potential_and_gradient(sets, out=(potential, gradient))

    def build() -> None:
        core.grid.build(x, check=False)

    def real() -> None:
        build()
        core.grid.stream(CUTOFF, function, q, out=sums)

    yield row("reciprocal", reciprocal)
    yield row("build", build)
    yield row("real", real)
    ours = row("step", step, out.forces)
    yield ours
    if core.branch is not None:
        branch, core.branch = core.branch, None
        yield row("step, one by one", step, out.forces)
        core.branch = branch
    for splitting in ("prolate", "gaussian"):
        free = PME((length,) * 3, ACCURACY, splitting=splitting, dtype=case.dtype, backend=place.name)
        free.reserve(case.count, virial=case.virial)
        yield row(f"step, {splitting}", functools.partial(step, free), out.forces, free)
    if case.virial:
        if place.name == "cpu":
            listed = PME((length,) * 3, **common, skin=0.1)
            forces = listed(x, sets).forces
            yield row("step, list", lambda: listed(x, sets), forces)
        return
    problem = Problem(length, positions, charges, nodes, CUTOFF, SPLITTING, ORDER)

    def beside(made: Peer | str, step: Callable[[], Any], graph: float) -> Iterator[dict[str, Any]]:
        if isinstance(made, str):
            print(made)
            return
        theirs, ratio = turns(place, step, made)
        error = math.nan
        if exact is not None:
            error = short(float(np.linalg.norm(made.forces() - exact) / np.linalg.norm(exact)))
        yield {
            **ours, "stage": made.name, "call_s": short(theirs), "graph_s": math.nan, "ratio": short(ratio),
            "ratio_graph": short(theirs / graph), "error": error, "nbytes": "",
        }  # fmt: skip

    if place.name == "cpu":
        listed = PME((length,) * 3, **common, skin=0.1)
        calls = {"list": lambda: listed(x, sets, virial=False)}
        yield row("step, list", calls["list"], calls["list"]().forces)
        if case.dtype == "float32":  # OpenMM's CPU platform has no other
            yield from beside(pme_peers.openmm(problem, place.threads), calls["list"], math.nan)
    for peer in (pme_peers.torch_pme, pme_peers.nvalchemi):
        yield from beside(peer(problem, place.name == "cuda"), step, ours["graph_s"])


def turns(place: Place, step: Callable[[], Any], peer: Peer) -> tuple[float, float]:
    """Return the median seconds of the peer's step, and the median of its ratios to ours, each in turn."""
    theirs, ratios = [], []
    for turn in range(12):
        times = []
        for call, wait in ((step, place.wait), (peer.call, peer.wait)):
            start = time.perf_counter()
            call()
            wait()
            times.append(time.perf_counter() - start)
        if turn > 1:  # the first ones allocate
            theirs.append(times[1])
            ratios.append(times[1] / times[0])
    return statistics.median(theirs), statistics.median(ratios)


def main() -> None:
    """Measure what the command line asks for."""
    asked = runs.parser(__doc__).parse_args()
    place = Place(asked.backend)
    cases = SMALL if asked.small else HOST if place.name == "cpu" else CASES
    with runs.Run(place, asked.out) as run:
        run.write("pme", run.measure("PME", cases, lambda case: rows(place, case), "pme"))
    run.finish()


if __name__ == "__main__":
    main()
