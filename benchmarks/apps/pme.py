# SPDX-License-Identifier: BSD-3-Clause
"""A step of particle-mesh Ewald at the density of water: both halves alone, and the whole step.

On a GPU: float32, B-splines of order 5, cutoff 0.9, 100 charges in a volume of 1, about 9 nodes in a length of 1.
``graph_s`` are seconds of captured CUDA graphs. On the CPU: 20,000 ions, whole steps without a list and with one that
is kept, beside torch-pme's `PMECalculator` where it is installed, in turns; its neighbour list is not timed. ``error``
is the root-mean-square error of forces over their root mean square, against float64 with an accuracy of 1e-9, up to
100,000 charges. Writes ``results/pme-DEVICE.csv``.

    python benchmarks/apps/pme.py [--backend cuda] [--small] [--out DIR]
"""

from __future__ import annotations

import importlib.util
import math
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # the folder of benchmarks, when this file runs

import numpy as np

import particlemesh as pm
from harness import runs
from harness.place import Place
from harness.tables import short
from particlemesh.apps.pme import PME, Result

DENSITY, CUTOFF, SPLITTING, ORDER, SPACING = 100.0, 0.9, 3.123, 5, 0.115
EXACT_UP_TO = 100_000


@dataclass(frozen=True)
class Case:
    """A problem: charges, real type, and whether the virial is wanted."""

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
    exact = None
    if case.count <= EXACT_UP_TO:
        wide = positions.astype(np.float64), charges.astype(np.float64)
        exact = PME((length,) * 3, accuracy=1e-9)(*wide, virial=False).forces

    def row(stage: str, call: Callable[[], Any], forces: Any = None) -> dict[str, Any]:
        call()
        once = place.clock.seconds(call)
        error = math.nan
        if forces is not None and exact is not None:
            found = place.download(forces).reshape(exact.shape)
            error = short(float(np.linalg.norm(found - exact) / np.linalg.norm(exact)))
        return dict(
            count=case.count, nodes=nodes, dtype=case.dtype, virial=case.virial, stage=stage, call_s=short(once),
            graph_s=short(place.clock.captured(call, once)), ratio="", error=error,
            nbytes=pme.nbytes if stage == "step" else "", device=place.device, backend=place.name,
        )  # fmt: skip

    def step() -> None:
        pme(x, sets, virial=case.virial, check=False, out=out)

    step()
    core = pme._core
    assert core is not None
    function = core.function(1, case.virial)
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
    yield row("step", step, out.forces)
    if place.name == "cpu":
        calls = {"step, list": PME((length,) * 3, **common, skin=0.1)}
        listed = calls["step, list"](x, sets, virial=case.virial)
        yield row("step, list", lambda: calls["step, list"](x, sets, virial=case.virial), listed.forces)
        yield from beside_torch_pme(case, length, positions, charges, nodes, step)


def beside_torch_pme(
    case: Case, length: float, positions: np.ndarray, charges: np.ndarray, nodes: int, step: Callable[[], Any]
) -> Iterator[dict[str, Any]]:
    """Yield the row of torch-pme: energy and forces, with our list of pairs, in turns with our step."""
    if case.virial or not importlib.util.find_spec("torchpme"):
        return
    import torch
    from torchpme import CoulombPotential, PMECalculator

    i, j, shift = pm.neighbour_list("ijS", positions, (length,) * 3, CUTOFF, half=True)
    calculator = PMECalculator(
        CoulombPotential(smearing=1 / (math.sqrt(2) * SPLITTING)), mesh_spacing=length / nodes, interpolation_nodes=5
    ).to(getattr(torch, case.dtype))
    cell = torch.eye(3, dtype=getattr(torch, case.dtype)) * length
    x = torch.tensor(positions, requires_grad=True)
    q, pairs = torch.tensor(charges)[:, None], torch.tensor(np.stack([i, j], -1).astype(np.int64))
    turns = torch.tensor(shift.astype(case.dtype)) @ cell

    def theirs() -> None:
        x.grad = None
        distances = (x[pairs[:, 1]] - x[pairs[:, 0]] + turns).norm(dim=1)
        potential = calculator(q, cell, x, pairs, distances)
        (q * potential).sum().backward()

    times: dict[str, list[float]] = {"ours": [], "theirs": []}
    for turn in range(6):
        for name, call in (("ours", step), ("theirs", theirs)):
            start = time.perf_counter()
            call()
            if turn:
                times[name].append(time.perf_counter() - start)
    ratio = float(np.median(np.divide(times["theirs"], times["ours"])))
    yield dict(
        count=case.count, nodes=nodes, dtype=case.dtype, virial=False, stage="torch-pme",
        call_s=short(float(np.median(times["theirs"]))), graph_s=math.nan, ratio=f"{ratio:.1f}", error=math.nan,
        nbytes="", device="", backend="cpu",
    )  # fmt: skip


def main() -> None:
    """Measure what the command line asks for."""
    asked = runs.parser(__doc__).parse_args()
    place = Place(asked.backend)
    cases = SMALL if asked.small else HOST if place.name == "cpu" else CASES
    with runs.Run(place, asked.out) as run:
        run.write("pme", run.measure("PME", cases, lambda case: rows(place, case)))
    run.finish()


if __name__ == "__main__":
    main()
