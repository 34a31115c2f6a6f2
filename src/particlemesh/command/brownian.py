# SPDX-License-Identifier: BSD-3-Clause
"""The computation of ``particlemesh brownian``: a suspension of spheres that diffuse and interact through the fluid.

Lengths are in radii a, energies in kT, times in a^2 / D, where D is the diffusion coefficient of one sphere alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from particlemesh.apps.brownian import RPY, WCA, BrownianDynamics, Drag
from particlemesh.apps.brownian.arrays import to_host

MOBILITIES = ("rpy", "drag")
# What a checkpoint holds of the options.
STORED = ("count", "fraction", "time_step", "mobility", "integrator", "accuracy", "seed", "backend")
DENSEST = 0.4  # volume fraction that spheres on a lattice with gaps can start from
MELTING = 1000  # steps, in which spheres alone move by 2.4 radii
MOST_TRACED = 2000  # particles whose path is kept
LAGS = 24


class Suspension(NamedTuple):
    """What a run found."""

    edge: float  # of the cubic box
    law: float  # short-time diffusion coefficient / that of one sphere alone
    times: np.ndarray  # (K,)
    squared: np.ndarray  # (K,): mean square displacements
    errors: np.ndarray  # (K,): their standard errors
    folded: np.ndarray  # (N, 3) at the end
    moved: np.ndarray  # (N,): distances from the start


def start(count: int, fraction: float, seed: int) -> tuple[np.ndarray, float]:
    """Return positions (N, 3) of spheres that do not overlap much, in disorder, and the edge of their box.

    They begin on random sites of a face-centred lattice, which Brownian motion without hydrodynamic interactions melts.
    """
    edge = (count * 4 * math.pi / (3 * fraction)) ** (1 / 3)
    cells = math.ceil((count / 4) ** (1 / 3) - 1e-9)
    corners = np.stack(np.meshgrid(*[np.arange(cells)] * 3, indexing="ij"), -1).reshape(-1, 1, 3)
    sites = (corners + [[0, 0, 0], [0, 0.5, 0.5], [0.5, 0, 0.5], [0.5, 0.5, 0]]).reshape(-1, 3) * (edge / cells)
    chosen = np.random.default_rng(seed).choice(len(sites), count, replace=False)
    box = (edge,) * 3
    melting = BrownianDynamics(sites[chosen], Drag(box=box), WCA(box), time_step=0.001, seed=seed)
    melting.run(MELTING)
    return melting.folded, edge


def law(mobility: str, edge: float) -> float:
    """Return the mobility of a sphere of radius 1 without neighbours in a periodic cube / that without images."""
    return 1.0 if mobility == "drag" else 1 - 2.83729747948062 / edge + 4 * math.pi / 3 / edge**3


def simulation(options: Mapping[str, Any]) -> BrownianDynamics:
    """Return the simulation of a start.

    Parameters
    ----------
    options : mapping
        Those of the command by name, all in ``STORED`` among them.
    """
    positions, edge = start(options["count"], options["fraction"], options["seed"])
    box, backend = (edge,) * 3, options["backend"]
    where = "opencl" if backend == "opencl" else None  # NumPy arrays are copied there and back
    if backend == "cuda":
        import cupy

        positions = cupy.asarray(positions)
    spheres: Any = Drag(box=box)
    if options["mobility"] == "rpy":  # the same bits in each run, and after a restart
        spheres = RPY(box, accuracy=options["accuracy"], backend=where, deterministic=True)
    forces = WCA(box, backend=where)
    others = {name: options[name] for name in ("time_step", "integrator", "seed")}
    return BrownianDynamics(positions, spheres, forces, **others)


def loaded(path: Path) -> BrownianDynamics:
    """Return the simulation of a checkpoint.

    Raises
    ------
    ValueError
        If it has other spheres than this command, or is no checkpoint.
    """
    motion = BrownianDynamics.load(path)
    spheres = motion.mobility
    radii = np.atleast_1d(spheres.radii if isinstance(spheres, RPY) else spheres.radius)
    cube = motion.box is not None and np.array_equal(motion.box.matrix, np.eye(3) * motion.box.matrix[0, 0])
    alone = np.allclose(6 * math.pi * spheres.viscosity, 1)
    if not ((radii == 1).all() and cube and alone and motion.temperature == 1):
        raise ValueError(
            f"{path} has other spheres, another box or temperature than particlemesh brownian: give a file that it has "
            "written, or go on with BrownianDynamics.load."
        )
    return motion


def mobility_of(motion: BrownianDynamics) -> str:
    """Return the name of a simulation's mobility, of ``MOBILITIES``."""
    return "rpy" if isinstance(motion.mobility, RPY) else "drag"


class Trace:
    """Where some of the spheres have been since the start of a run.

    Parameters
    ----------
    motion : BrownianDynamics
    """

    def __init__(self, motion: BrownianDynamics) -> None:
        self._motion = motion
        self._first = to_host(motion.positions)
        self._some = slice(None, None, max(1, math.ceil(len(self._first) / MOST_TRACED)))
        self._path = [self._first[self._some]]

    def take(self) -> None:
        """Take the present positions."""
        self._path.append(to_host(self._motion.positions)[self._some])

    def suspension(self) -> Suspension:
        """Return what the run did."""
        motion = self._motion
        edge = float(motion.box.matrix[0, 0])
        return Suspension(
            edge, law(mobility_of(motion), edge), *squared_displacements(np.array(self._path), motion.time_step),
            to_host(motion.folded), np.linalg.norm(to_host(motion.positions) - self._first, axis=1),
        )  # fmt: skip


def squared_displacements(path: np.ndarray, time_step: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return times, mean square displacements over all starts in a path (T, N, 3), and standard errors.

    Displacements count as independent if they are of two particles, or do not overlap in time.
    """
    steps, count = len(path) - 1, path.shape[1]
    # Beyond half of the path the starts are few, and close to each other.
    lags = np.unique(np.geomspace(1, max(steps // 2, 1), LAGS).round().astype(int))
    means = np.array([np.mean(np.sum((path[lag:] - path[:-lag]) ** 2, axis=-1)) for lag in lags])
    independent = count * np.maximum(steps // lags, 1)
    return lags * time_step, means, means * np.sqrt(2 / (3 * independent))
