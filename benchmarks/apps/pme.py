# SPDX-License-Identifier: BSD-3-Clause
"""A step of particle-mesh Ewald at the density of water: both halves alone, and the whole step.

On a GPU: float32, B-splines of order 5, cutoff 0.9, 100 charges in a volume of 1, about 9 nodes in a length of 1.
``call_s`` are seconds of plain calls back to back. ``whole_s`` are those of one call and the
wait for it, the host's time included. ``graph_s`` are seconds of captured CUDA graphs. With CUDA both halves run at
once; the row "step, one by one" is the same with one stream. "step, and Lennard-Jones" has a second sum over the same
pairs. The rows "step, prolate" and "step, gaussian" choose their parameters from an accuracy that makes the ``error``
below about 5e-5. 23,558 charges are a protein in water, if its file is in ``../shared/data``. On the CPU: ions, whole
steps without a list and with one that is kept.

``batched-pme-DEVICE.csv``: 1,000 systems of 300 charges. Libraries share cutoff, splitting, mesh and window.

``dispersion-DEVICE.csv``: steps of ``Dispersion`` for the oxygens of water at usual cutoffs. ``share`` is what the
mesh takes of a step one half after the other: the most that a split with a coarser mesh could gain.

Where torch and torch-pme are installed, its `PMECalculator` runs on the same device, in turns with our step. Its list
of pairs is not timed, and ours is. So do nvalchemi-toolkit-ops, with its list, and OpenMM's CPU platform, beside our
step with a list, as OpenMM keeps one.
``ratio`` is the median of their time over ours, calls and waits for each included; ``ratio_graph`` is their call over
our graph. ``error`` is the root-mean-square error of forces over their root mean square, and ``accuracy`` over a
typical force, as `PME` defines it: both against float64 with an accuracy of 1e-9. ``pairs`` are neighbours of a charge
within the cutoff. Each row is written as soon as it is measured.

    python benchmarks/apps/pme.py [--backend cuda] [--only water batch dispersion] [--small] [--out DIR]
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
from particlemesh.apps.pme import PME, Dispersion, PMEBatch, Result

DENSITY, CUTOFF, SPLITTING, ORDER, SPACING = 100.0, 0.9, 3.123, 5, 0.115
ACCURACY = 3e-4  # of typical forces; the root mean square of forces is larger, since few charges are close
PROTEIN = Path(__file__).resolve().parents[3] / "shared" / "data" / "dhfr.npz"  # optional
SYSTEMS, EACH = 1000, 300
OXYGENS = 33.4  # in a volume of 1 nm^3


@dataclass(frozen=True)
class Case:
    """A problem: charges, real type, and whether the virial is computed."""

    count: int
    dtype: str
    virial: bool = False

    def __str__(self) -> str:
        return f"{self.count:,} charges, {self.dtype}{', virial' * self.virial}"


CASES = [
    *[Case(23_558, "float32")] * PROTEIN.is_file(), Case(92_224, "float32"), Case(92_224, "float32", True),
    Case(424_000, "float32"), Case(1_066_628, "float32"),
]  # fmt: skip
HOST = [Case(3_000, "float32"), Case(20_000, "float32"), Case(20_000, "float64"), Case(20_000, "float64", True)]
SMALL = [Case(300, "float32"), Case(300, "float64", True)]


def cloud(case: Case) -> tuple[float, np.ndarray, np.ndarray]:
    """Return the box's length, positions on a disturbed lattice, and charges of both signs without a sum.

    Those of 23,558 charges are the protein's.
    """
    if case.count == 23_558:
        with np.load(PROTEIN) as file:
            return float(file["box"][0, 0]), file["positions"].astype(case.dtype), file["charges"].astype(case.dtype)
    rng = np.random.default_rng(1)
    length, side = (case.count / DENSITY) ** (1 / 3), math.ceil(case.count ** (1 / 3))
    sites = rng.permutation(side**3)[: case.count]
    lattice = np.stack(np.unravel_index(sites, (side,) * 3), -1) + rng.uniform(0.2, 0.8, (case.count, 3))
    charges = rng.standard_normal(case.count)
    return length, (lattice * length / side).astype(case.dtype), (charges - charges.mean()).astype(case.dtype)


class Exact:
    """Forces in float64 with an accuracy of 1e-9, and errors against them; of systems with a box each if there are."""

    def __init__(self, place: Place, length: float, positions: np.ndarray, charges: np.ndarray, systems: int = 1):
        x, q = positions.astype(np.float64), charges.astype(np.float64)
        if systems == 1:
            exact = PME((length,) * 3, 1e-9, backend=place.name)(x, q, virial=False)
        else:
            exact = PMEBatch((length,) * 3, systems, 1e-9, backend=place.name)(x, q, owners(systems), virial=False)
        self.forces = np.asarray(exact.forces)
        count = len(charges) / systems
        self.typical = float((q**2).mean() * (count / length**3) ** (2 / 3))

    def errors(self, forces: np.ndarray) -> dict[str, float]:
        """Return columns of errors."""
        exact = self.forces[: len(forces)]  # a peer may compute some
        off, size = (float(np.sqrt((f**2).sum(1).mean())) for f in (forces - exact, exact))
        return dict(error=short(off / size), accuracy=short(off / self.typical))


@functools.lru_cache(maxsize=1)
def exact_of(place: Place, count: int, dtype: str) -> Exact:
    """Return the forces of a case."""
    return Exact(place, *cloud(Case(count, dtype)))


def owners(systems: int) -> np.ndarray:
    """Return the system of each charge."""
    return np.repeat(np.arange(systems, dtype=np.int32), EACH)


def pairs_of(pme: Any, count: float, length: float) -> float:
    """Return the neighbours of a charge within the cutoff."""
    return 4 / 3 * math.pi * pme.parameters.cutoff**3 * count / length**3


LENNARD_JONES = """
const real s2 = p[1] * p[1] / r2, s6 = s2 * s2 * s2, pull = 24 * p[0] * (s6 - 2 * s6 * s6) / r2;
sum[0] += 2 * p[0] * (s6 * s6 - s6);
for (int axis = 0; axis < 3; axis++) sum[1 + axis] += pull * d[axis];
"""  # energies and forces
NONE = dict(error=math.nan, accuracy=math.nan)


def rows(place: Place, case: Case) -> Iterator[dict[str, Any]]:
    """Yield a row for each half, and for the whole step."""
    length, positions, charges = cloud(case)
    nodes = pm.fourier.good_size(math.ceil(length / SPACING))
    sizes: dict[str, Any] = dict(cutoff=CUTOFF, splitting=SPLITTING, shape=nodes, window=f"bspline{ORDER}")
    common: dict[str, Any] = dict(sizes, dtype=case.dtype, backend=place.name)
    x, q = place.upload(positions), place.upload(charges)
    pme = PME((length,) * 3, **common).reserve(case.count, virial=case.virial)
    empty = place.backend.empty
    shapes = ((1,), (1, case.count), (1, case.count, 3), (1, 3, 3))
    out = Result(*(empty(shape, case.dtype) for shape in shapes))
    sets = q.reshape(1, case.count)
    exact = exact_of(place, case.count, case.dtype)

    def row(stage: str, call: Callable[[], Any], forces: Any = None, made: PME = pme) -> dict[str, Any]:
        call()
        errors = NONE if forces is None else exact.errors(place.download(forces).reshape(-1, 3))
        p = made.parameters
        return dict(
            count=case.count, nodes=p.shape[0], cutoff=short(p.cutoff), window=p.window.name,
            pairs=short(pairs_of(made, case.count, length)), dtype=case.dtype, virial=case.virial, stage=stage,
            **times(place, call), ratio="", ratio_graph="", **errors,
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
    if place.name != "cpu" and not case.virial:
        other = pm.PairFunction(LENNARD_JONES, results=4, parameters=(0.65, 0.316))
        sums_of_other = empty((case.count, 4), case.dtype)

        def both() -> None:
            step()
            core.grid.stream(CUTOFF, other, out=sums_of_other)

        yield row("step, and Lennard-Jones", both, out.forces)
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

    if place.name == "cpu":
        listed = PME((length,) * 3, **common, skin=0.1)
        calls = {"list": lambda: listed(x, sets, virial=False)}
        yield row("step, list", calls["list"], calls["list"]().forces)
        if case.dtype == "float32":  # OpenMM's CPU platform has no other
            yield from beside(place, pme_peers.openmm(problem, place.threads), calls["list"], ours, exact)
    for peer in (pme_peers.torch_pme, pme_peers.nvalchemi):
        yield from beside(place, peer(problem, place.name == "cuda"), step, ours, exact)


def beside(
    place: Place, made: Peer | str, step: Callable[[], Any], ours: dict[str, Any], exact: Exact
) -> Iterator[dict[str, Any]]:
    """Yield the row of a peer, beside a step of ours and its row; or print why there is none."""
    if isinstance(made, str):
        print(made)
        return
    theirs, ratio = turns(place, step, made)
    graph = ours["graph_s"] if place.name == "cuda" else math.nan
    yield {
        **ours, "stage": made.name, "call_s": math.nan, "whole_s": short(theirs), "graph_s": math.nan,
        "ratio": short(ratio), "ratio_graph": short(theirs / graph), **exact.errors(made.forces()), "nbytes": "",
    }  # fmt: skip


def batch(place: Place, systems: int) -> Iterator[dict[str, Any]]:
    """Yield rows of many systems in one call: libraries with the same parameters, and ours with those it chooses."""
    length, rng = (EACH / DENSITY) ** (1 / 3), np.random.default_rng(1)
    _, positions, charges = cloud(Case(EACH, "float32"))
    x = np.concatenate([(positions + rng.random(3) * length) % length for _ in range(systems)]).astype(np.float32)
    q = np.concatenate([rng.permutation(charges) for _ in range(systems)])
    exact, many = Exact(place, length, x, q, systems), owners(systems)
    here = place.upload(x), place.upload(q), place.upload(many)
    rows: dict[str, tuple[dict[str, Any], Any, Any]] = {}
    for splitting, given in (("gaussian", dict(window=f"bspline{ORDER}")), ("prolate", {})):
        pme = PMEBatch(
            (length,) * 3, systems, ACCURACY, splitting=splitting, dtype="float32", backend=place.name, **given
        )
        pme.reserve(len(q))
        out = pme(*here, virial=False)
        step = functools.partial(pme, *here, virial=False, check=False, out=out)
        step()
        p = pme.parameters
        row = dict(
            systems=systems, each=EACH, nodes=p.shape[0], cutoff=short(p.cutoff), window=p.window.name,
            pairs=short(pairs_of(pme, EACH, length)), stage=splitting, **times(place, step),
            ratio="", ratio_graph="",
            **exact.errors(place.download(out.forces)), nbytes=pme.nbytes, device=place.device, backend=place.name,
        )  # fmt: skip
        rows[splitting] = row, step, p
        yield row
    row, step, p = rows["gaussian"]
    problem = Problem(length, x, q, p.shape[0], p.cutoff, p.splitting, ORDER, many)
    for peer in (pme_peers.torch_pme, pme_peers.nvalchemi):
        yield from beside(place, peer(problem, place.name == "cuda"), step, row, exact)


def dispersion(place: Place, case: tuple[int, float, float]) -> Iterator[dict[str, Any]]:
    """Yield the row of a number of particles, a cutoff and an accuracy."""
    count, cutoff, accuracy = case
    _, positions, _ = cloud(Case(count, "float32"))
    length = (count / OXYGENS) ** (1 / 3)
    positions *= length / (count / DENSITY) ** (1 / 3)
    x, c = place.upload(positions), place.upload(np.ones(count, np.float32))
    model = Dispersion((length,) * 3, accuracy, cutoff=cutoff, dtype="float32", backend=place.name)
    model(x, c)
    core, p = model._core, model.parameters
    branch, core.branch = core.branch, None
    step = place.clock.seconds(lambda: model(x, c, check=False))
    core.branch = branch

    def mesh() -> None:
        core.solver.set_positions(x, check=False)
        core.solver.potential_gradient_virial(c)

    smooth = place.clock.seconds(mesh)
    yield dict(
        count=count, cutoff=cutoff, accuracy=accuracy, nodes=p.shape[0], window=p.window.name, mesh_s=short(smooth),
        step_s=short(step), share=short(smooth / step), device=place.device, backend=place.name,
    )  # fmt: skip


def times(place: Place, call: Callable[[], Any]) -> dict[str, float]:
    """Return columns of times."""
    once = place.clock.seconds(call)
    captured = place.clock.captured(call, once)
    return dict(call_s=short(once), whole_s=short(place.clock.wall(call, 9)), graph_s=short(captured))


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
            theirs.append(times[1] * peer.times)
            ratios.append(theirs[-1] / times[0])
    return statistics.median(theirs), statistics.median(ratios)


def main() -> None:
    """Measure what the command line asks for."""
    asked = runs.parser(__doc__, ("water", "batch", "dispersion")).parse_args()
    place = Place(asked.backend)
    cases = SMALL if asked.small else HOST if place.name == "cpu" else CASES
    systems = 3 if asked.small else 50 if place.name == "cpu" else SYSTEMS
    many = 500 if asked.small else 7_000 if place.name == "cpu" else 141_000
    sizes = [(many, cutoff, accuracy) for cutoff in (0.9, 1.0, 1.2) for accuracy in (1e-3, 1e-4)]
    parts: dict[str, tuple[str, list[Any], Any]] = {
        "water": ("pme", cases, rows), "batch": ("batched-pme", [systems], batch),
        "dispersion": ("dispersion", sizes[:1] if asked.small else sizes, dispersion),
    }  # fmt: skip
    with runs.Run(place, asked.out) as run:
        for name in asked.only:
            file, some, make = parts[name]
            run.write(file, run.measure(name, some, functools.partial(make, place), file))
    run.finish()


if __name__ == "__main__":
    main()
