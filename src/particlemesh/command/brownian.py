# SPDX-License-Identifier: BSD-3-Clause
"""The computation of ``particlemesh brownian``: a suspension of spheres that diffuse and interact through the fluid.

Lengths are in radii a, energies in kT, times in a^2 / D, where D is the diffusion coefficient of one sphere alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from particlemesh.apps.brownian import RPY, WCA, BrownianDynamics, Drag

MOBILITIES = ("rpy", "drag")
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


def run(
    count: int, fraction: float, steps: int, time_step: float, mobility: str, integrator: str, backend: str,
    accuracy: float, seed: int, progress: Callable[[], None],
) -> Suspension:  # fmt: skip
    """Return what a suspension does; ``progress`` is called after each step.

    Parameters
    ----------
    count, fraction
        Spheres, and the part of the volume that they fill.
    steps, time_step, integrator, seed
        As for BrownianDynamics.
    mobility : {"rpy", "drag"}
        With or without hydrodynamic interactions.
    backend : {"cpu", "cuda", "opencl"}
        Where forces and hydrodynamic interactions are computed.
    accuracy : float
        Of the mobility.
    progress : callable

    Returns
    -------
    Suspension
    """
    positions, edge = start(count, fraction, seed)
    box = (edge,) * 3
    where = "opencl" if backend == "opencl" else None  # NumPy arrays are copied there and back
    if backend == "cuda":
        import cupy

        positions = cupy.asarray(positions)
    spheres: Any = RPY(box, accuracy=accuracy, backend=where) if mobility == "rpy" else Drag(box=box)
    forces = WCA(box, backend=where)
    motion = BrownianDynamics(positions, spheres, forces, time_step=time_step, integrator=integrator, seed=seed)
    traced = slice(None, None, max(1, math.ceil(count / MOST_TRACED)))

    def place() -> np.ndarray:
        x = motion.positions
        return x if isinstance(x, np.ndarray) else x.get()

    first = place()
    path = [first[traced]]
    for _ in range(steps):
        motion.run(1)
        path.append(place()[traced])
        progress()
    folded = motion.folded
    return Suspension(
        edge, law(mobility, edge), *squared_displacements(np.array(path), time_step),
        folded if isinstance(folded, np.ndarray) else folded.get(), np.linalg.norm(place() - first, axis=1),
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
