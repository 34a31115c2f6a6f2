# SPDX-License-Identifier: BSD-3-Clause
"""Weak Landau damping in three dimensions over ranks, by public names only: the problem of IPPL.

Electrons of a Maxwellian, in a cube of one wave length per axis, have the density ``1 + 0.05 cos(k x)`` along each
axis. The field of this wave fades as linear theory says (arXiv 2205.11052). Lengths are in Debye lengths, times in
inverse plasma frequencies. Positions and velocities are numbers of one low-discrepancy sequence, by the number of the
electron: any number of ranks makes the same plasma.

    mpiexec -n 2 python -m mpi4py benchmarks/distributed/landau.py --electrons 200000 --nodes 16
"""

from __future__ import annotations

import argparse
import importlib
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import curve_fit

import particlemesh as pm
from particlemesh import distributed as pmd

WAVE, HEIGHT = 0.5, 0.05  # wave number and height of the density's wave
LENGTH = 2 * np.pi / WAVE
OMEGA, GAMMA = 1.4156618886, -0.1533594669  # root of the dispersion relation for this wave number
STEP, FIRST = 0.1, 2.0  # of time; when waves that are damped faster have gone
STEPS = 80
_BASE = 1.1127756842787055  # solves x^7 = x + 1: its powers are the steps of a sequence in six dimensions


class State(NamedTuple):
    """Sums over all electrons, the same on every rank."""

    field: float  # energies
    kinetic: float
    wave: float  # amplitude of the electric field along the first axis, by Gauss's law


class Plasma:
    """Electrons on the ranks that own their places.

    Parameters
    ----------
    shape : tuple of int
        Nodes of the whole mesh.
    world : World
    count : int
        Electrons of all ranks.
    xp, dtype
        Module and type of the arrays.
    """

    def __init__(
        self, shape: tuple[int, ...], world: pmd.World, count: int, xp: Any = np, dtype: Any = np.float64
    ) -> None:
        self.world, self.xp, self.charge = world, xp, -(LENGTH**3) / count
        domain = pmd.Domain(pm.Mesh(shape, (LENGTH,) * 3), world.size)
        self.solver = pmd.Solver(domain, world, "bspline4", green="poisson")
        first, stop = (count * rank // world.size for rank in (world.rank, world.rank + 1))
        self.x, self.v = electrons(first, stop, xp, dtype)
        self._solve()
        self._settle()

    def _solve(self) -> None:
        """Find potential and gradient at the electrons."""
        charges = self.xp.full(len(self.x), self.charge, self.x.dtype)
        potential, self.slope = self.solver.set_positions(self.x).potential_and_gradient(charges)
        self._energy = potential.sum(dtype=np.float64) * (self.charge / 2)

    def _settle(self) -> None:
        """Let strays go to their owners, with all that belongs to them."""
        self.x, self.v, self.slope = self.solver.plan.route.send(self.x, self.v, self.slope)

    def step(self) -> None:
        """Move all electrons by a time step: half a kick, a drift, half a kick."""
        real = self.x.dtype.type
        self.v += real(STEP / 2) * self.slope  # electrons go where the potential is high
        self.x += real(STEP) * self.v
        self._solve()
        self.v += real(STEP / 2) * self.slope
        self._settle()

    def state(self) -> State:
        """Return the sums of this time."""
        kinetic = (self.v * self.v).sum(dtype=np.float64) * (-self.charge / 2)
        wave = self.xp.cos(WAVE * self.x[:, 0]).sum(dtype=np.float64) * (-2 * self.charge / (WAVE * LENGTH**3))
        return State(*self.world.allreduce(np.array([float(self._energy), float(kinetic), float(wave)])).tolist())

    def run(self, steps: int = STEPS) -> tuple[float, float]:
        """Return the rate of the wave, and the largest change of the energy over the field's energy at first."""
        states = [self.state()]
        for _ in range(steps):
            self.step()
            states.append(self.state())
        field, kinetic, wave = np.array(states).T
        total = field + kinetic
        return rate(STEP * np.arange(steps + 1), wave), float(abs(total - total[0]).max() / field[0])


def electrons(first: int, stop: int, xp: Any = np, dtype: Any = np.float64) -> tuple[Any, Any]:
    """Return positions and velocities (N, 3) of the electrons with some numbers."""
    special = importlib.import_module("scipy.special" if xp is np else "cupyx.scipy.special")
    x, v = (xp.empty((stop - first, 3), dtype) for _ in range(2))
    for axis in range(3):
        u, w = ((xp.arange(first, stop) + 0.5) * _BASE ** -(n + 1) % 1 for n in (axis, axis + 3))
        place = LENGTH * u
        for _ in range(8):  # each gains more than a digit
            place = LENGTH * u - HEIGHT / WAVE * xp.sin(WAVE * place)
        w = xp.clip(w, 1e-9, 1 - 1e-9)  # of 10^8 numbers some round to 0, whose velocity is infinite
        x[:, axis], v[:, axis] = place, np.sqrt(2) * special.erfinv(2 * w - 1)
    return x, v


def rate(times: np.ndarray, wave: np.ndarray) -> float:
    """Return the rate of a damped cosine that fits a wave."""

    def damped(t: np.ndarray, height: float, omega: float, gamma: float, phase: float) -> np.ndarray:
        return height * np.exp(gamma * t) * np.cos(omega * t + phase)

    late = times >= FIRST
    guess, error = (2 * HEIGHT, OMEGA, GAMMA, 0.0), np.exp(GAMMA * times[late])
    return float(curve_fit(damped, times[late], wave[late], guess, error, maxfev=10_000)[0][2])


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--electrons", type=int, default=200_000, help="of all ranks")
    parser.add_argument("--nodes", type=int, default=16, help="along each axis")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--backend", choices=("cuda", "cpu"), default="cpu")
    asked = parser.parse_args()
    from mpi4py import MPI

    world = pmd.World(MPI.COMM_WORLD)
    xp = importlib.import_module({"cpu": "numpy", "cuda": "cupy"}[asked.backend])
    gamma, change = Plasma((asked.nodes,) * 3, world, asked.electrons, xp, np.float32).run(asked.steps)
    if world.rank == 0:
        print(
            f"{world.size} ranks: rate {gamma:.4f}, theory {GAMMA:.4f}; energy changed by {change:.1e} of the field's"
        )


if __name__ == "__main__":
    main()
