# SPDX-License-Identifier: BSD-3-Clause
"""Errors of particle-mesh Ewald by both splits: what is reached for what is asked, and nodes per axis for an error.

Errors are root-mean-square errors of forces over a typical force, as in the documentation of `PME`. Exact forces are
those of the Gaussian split with an accuracy of 1e-11, which tests compare with direct sums.

``pme-errors-DEVICE.csv``: for clouds of many kinds, ``asked`` is the accuracy given, ``expected`` the error by
formulae, ``reached`` the error measured, ``energy`` the relative error of the energy.

``pme-nodes-DEVICE.csv``: fewest nodes per axis with which 2,000 ions in a box of 3 have an error at a cutoff of 0.9,
for each window; none if 139 are too few. Pairs leave about 0.8 of the error.

``pme-dipoles-DEVICE.csv``: errors of forces and fields of 500 ions with dipoles, over a typical force and field, beside
the accuracy that was asked for charges.

    python benchmarks/apps/pme_errors.py [--small] [--clouds 8] [--first 0] [--only clouds nodes dipoles]
"""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))  # the folder of benchmarks, when this file runs

import particlemesh as pm
from harness import runs
from harness.place import Place
from harness.tables import short
from particlemesh.apps.pme import PME
from particlemesh.apps.pme.parameters import CPU, SHARE, choose
from particlemesh.apps.pme.split import SPLITS as NAMES

ACCURACIES = (1e-2, 1e-3, 1e-4, 1e-6)
SPLITS = tuple(NAMES)
WINDOWS = tuple(f"bspline{p}" for p in (4, 5, 6, 8, 10)) + tuple(f"prolate{p}" for p in (7, 8, 10, 12))
LENGTH, IONS, CUTOFF = 3.0, 2000, 0.9


class Cloud(NamedTuple):
    """Lattice vectors as rows, positions and charges."""

    box: np.ndarray
    positions: np.ndarray
    charges: np.ndarray


def signs(rng: np.random.Generator, n: int) -> np.ndarray:
    """Return as many charges 1 as -1."""
    return rng.permutation(np.where(np.arange(n) % 2, 1.0, -1.0))


def even(rng: np.random.Generator, n: int = 600, box: Any = (1.0, 1.2, 0.9)) -> Cloud:
    """Return ions at random places."""
    return Cloud(np.diag(box), rng.random((n, 3)) * box, signs(rng, n))


def normal(rng: np.random.Generator) -> Cloud:
    """Return charges of a normal distribution."""
    return even(rng)._replace(charges=rng.normal(size=600))


def tilted(rng: np.random.Generator) -> Cloud:
    """Return ions in a triclinic box."""
    box = np.array([(1.0, 0.0, 0.0), (0.4, 1.1, 0.0), (-0.3, 0.2, 0.9)])
    return Cloud(box, rng.random((600, 3)) @ box, signs(rng, 600))


def salt(rng: np.random.Generator) -> Cloud:
    """Return rock salt whose ions are off their places."""
    sites = np.stack(np.meshgrid(*[np.arange(8)] * 3, indexing="ij"), -1).reshape(-1, 3)
    return Cloud(8 * np.eye(3), sites + rng.normal(scale=0.1, size=sites.shape), (-1.0) ** sites.sum(1))


def water(rng: np.random.Generator) -> Cloud:
    """Return 216 molecules of three charges, on a disturbed lattice, each turned at random; in nm."""
    places = np.stack(np.meshgrid(*[np.arange(6)] * 3, indexing="ij"), -1).reshape(-1, 3) * 0.311
    frames = np.linalg.qr(rng.normal(size=(216, 3, 3)))[0]
    hydrogens = np.array([(0.0816, 0.0577, 0.0), (-0.0816, 0.0577, 0.0)]) @ frames
    oxygens = places[:, None] + rng.normal(scale=0.02, size=(216, 1, 3))
    return Cloud(
        6 * 0.311 * np.eye(3), np.concatenate([oxygens, oxygens + hydrogens], 1).reshape(-1, 3),
        np.tile([-0.82, 0.41, 0.41], 216),
    )  # fmt: skip


def clusters(rng: np.random.Generator) -> Cloud:
    """Return ten heaps of ions."""
    centres = np.repeat(rng.random((10, 3)), 60, 0)
    return Cloud(np.eye(3), centres + rng.normal(scale=0.03, size=(600, 3)), signs(rng, 600))


def slab(rng: np.random.Generator) -> Cloud:
    """Return ions in a third of the height."""
    return even(rng, box=(1.0, 1.0, 3.0))._replace(positions=rng.random((600, 3)))


def dilute(rng: np.random.Generator) -> Cloud:
    """Return a few ions."""
    return even(rng, 12)


def one_species(rng: np.random.Generator) -> Cloud:
    """Return charges of one sign, with a background."""
    return even(rng)._replace(charges=np.ones(600))


KINDS: dict[str, Callable[[np.random.Generator], Cloud]] = {
    "ions": even, "normal charges": normal, "triclinic": tilted, "salt": salt, "water": water, "clusters": clusters,
    "slab": slab, "dilute": dilute, "one species": one_species,
}  # fmt: skip


def error(forces: np.ndarray, exact: np.ndarray, cloud: Cloud) -> float:
    """Return the root-mean-square error of forces over a typical one."""
    distance = (np.linalg.det(cloud.box) / len(exact)) ** (1 / 3)
    return float(np.sqrt(((forces - exact) ** 2).sum(1).mean()) / (cloud.charges**2).mean() * distance**2)


def clouds(asked: Any, case: tuple[str, int]) -> Iterator[dict[str, Any]]:
    """Return rows of a cloud: each split and accuracy."""
    kind, seed = case
    cloud = KINDS[kind](np.random.default_rng(seed))
    exact = PME(cloud.box, 1e-11, splitting="gaussian")(*cloud[1:])
    for accuracy in ACCURACIES[:1] if asked.small else ACCURACIES:
        for split in SPLITS:
            pme = PME(cloud.box, accuracy, splitting=split)
            result = pme(*cloud[1:])
            p = pme.parameters
            reached = error(result.forces, exact.forces, cloud)
            yield dict(
                cloud=kind, seed=seed, particles=len(cloud.charges), split=split, asked=accuracy,
                expected=short(p.error), reached=short(reached), ratio=short(reached / accuracy),
                energy=short(abs(result.energy / exact.energy - 1)), nodes=max(p.shape), window=p.window.name,
                cutoff=short(p.cutoff),
            )  # fmt: skip


@functools.lru_cache(maxsize=1)
def box_of_ions() -> tuple[Cloud, np.ndarray]:
    """Return ions and their exact forces."""
    cloud = even(np.random.default_rng(1), IONS, (LENGTH,) * 3)
    return cloud, PME(cloud.box, 1e-11, splitting="gaussian")(*cloud[1:], virial=False).forces


def nodes(asked: Any, case: tuple[float, str]) -> Iterator[dict[str, Any]]:
    """Return the row of an error and a window."""
    limit, window = case
    cloud, exact = box_of_ions()
    row: dict[str, Any] = dict(error=limit, window=window)
    for split in SPLITS:
        p = choose(pm.Box(cloud.box), IONS, 0.8 * limit / SHARE, CPU, split=NAMES[split], cutoff=CUTOFF)[0]
        number = {"bandwidth": p.bandwidth} if p.bandwidth else {"splitting": p.splitting}

        def reached(count: int, number: dict[str, Any] = number) -> float:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # some meshes are too coarse
                pme = PME(cloud.box, cutoff=CUTOFF, shape=count, window=window, **number)
                return error(pme(*cloud[1:], virial=False).forces, exact, cloud)

        # From below: windows that do not sum to 1 make larger errors on finer meshes.
        count = next((n for n in range(6, 140) if reached(n) <= limit), 0)
        row |= {
            f"{split}_nodes": count or "",
            f"{split}_error": short(reached(count)) if count else "",
            f"{split}_number": short(*number.values()),
        }
    both = row["gaussian_nodes"] and row["prolate_nodes"]
    yield row | {"ratio": short((row["gaussian_nodes"] / row["prolate_nodes"]) ** 3) if both else ""}


def dipoles(asked: Any, case: tuple[float, int]) -> Iterator[dict[str, Any]]:
    """Return rows of an accuracy and a seed: each split."""
    accuracy, seed = case
    rng = np.random.default_rng(seed)
    cloud = even(rng, 500, (1.0,) * 3)
    moments = rng.normal(size=(500, 3)) * 500 ** (-1 / 3) / 3**0.5
    exact = PME(cloud.box, 1e-12, splitting="gaussian")(*cloud[1:], dipoles=moments)
    for split in SPLITS:
        pme = PME(cloud.box, accuracy, splitting=split)
        result = pme(*cloud[1:], dipoles=moments)
        errors = error(result.forces, exact.forces, cloud), error(result.fields, exact.fields, cloud)
        yield dict(
            seed=seed, split=split, asked=accuracy, forces=short(errors[0]), fields=short(errors[1]),
            ratio=short(errors[0] / accuracy), seconds_predicted=short(pme.parameters.seconds),
        )  # fmt: skip


def main() -> None:
    """Measure what the command line asks for."""
    parser = runs.parser(__doc__, ("clouds", "nodes", "dipoles"), "cpu")
    parser.add_argument("--clouds", type=int, default=8, help="of each kind")
    parser.add_argument("--first", type=int, default=0, help="the seed of the first cloud of each kind")
    asked = parser.parse_args()
    with runs.Run(Place(asked.backend), asked.out) as run:
        for part in asked.only:
            if part == "clouds":
                seeds = range(asked.first, asked.first + (1 if asked.small else asked.clouds))
                cases: list[Any] = [(k, s) for s in seeds for k in KINDS]
            elif part == "dipoles":
                cases = [(a, s) for a in ACCURACIES for s in range(1, 4)][: 1 if asked.small else None]
            else:
                cases = [(e, w) for e in (5e-4, 5e-5, 1e-6) for w in WINDOWS][: 1 if asked.small else None]
            file = {"clouds": "pme-errors", "nodes": "pme-nodes", "dipoles": "pme-dipoles"}[part]
            rows_of = {"clouds": clouds, "nodes": nodes, "dipoles": dipoles}[part]
            run.write(file, run.measure(part, cases, functools.partial(rows_of, asked), file))
    run.finish()


if __name__ == "__main__":
    main()
