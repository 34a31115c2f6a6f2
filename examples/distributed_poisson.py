# SPDX-License-Identifier: BSD-3-Clause
"""Gravity on a periodic particle mesh, over any number of ranks: density, potential, forces, and a leapfrog step.

A cold, uniform cloud is unstable: a plane wave of displacements from rest grows as cosh(t), in units of 1/sqrt(4 pi G
rho). The program follows one wave and compares its amplitude with this law. It begins with particles on any rank. They
travel to the owners of their cells once, and in later steps only strays move.

    python examples/distributed_poisson.py
    mpiexec -n 4 python -m mpi4py examples/distributed_poisson.py --particles 1000000 --mesh 64
    mpiexec -n 2 python -m mpi4py examples/distributed_poisson.py --backend cuda --particles 100000000 --mesh 512
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np

import particlemesh as pm
from particlemesh import distributed as pmd

WINDOW = pm.bspline(4)
AMPLITUDE = 0.02  # of displacements, in wave lengths over 2 pi: particles do not cross
DRIFT = (0.2, 0.3, 0.1)  # velocity of the whole cloud, box lengths per time: particles change their ranks


def world_of_all() -> pmd.World:
    """Return the world of all processes that mpiexec started; without MPI, of this one."""
    try:
        from mpi4py import MPI
    except ImportError:
        return pmd.World()
    return pmd.World(MPI.COMM_WORLD)


class Gravity:
    """Accelerations of particles by their own gravity: spread, transform, multiply by i k / k^2, transform back."""

    def __init__(self, domain: pmd.Domain, world: pmd.World, xp: ModuleType) -> None:
        self.plan = pmd.Plan(domain, world, WINDOW)
        self.fft = pmd.FFT(domain, world)
        self.volume = domain.mesh.node_volume
        k = self.fft.wavenumbers()
        k2 = np.asarray(sum(component**2 for component in k))
        # Of this rank's modes. The window smooths twice, when it spreads and when it interpolates.
        smooth = np.ones(())
        for component, h in zip(k, domain.mesh.spacing, strict=True):
            smooth = smooth * WINDOW.fourier(component * h) ** 2
        green = -1 / (np.where(k2, k2, np.inf) * smooth)  # of laplace(phi) = density; the mean has no force
        # Slopes on the mesh: with the slope of the window each particle would pull itself. Highest modes have none.
        self.slopes = [
            xp.asarray(1j * np.where(abs(component) * h < np.pi - 1e-9, component, 0) * green, np.complex64)
            for component, h in zip(k, domain.mesh.spacing, strict=True)
        ]
        self.xp = xp

    def __call__(self, x: Any, masses: Any) -> Any:
        """Return accelerations (N, 3) of this rank's particles, for 4 pi G = 1."""
        self.plan.set_positions(x)
        density = self.plan.spread(masses) / masses.dtype.type(self.volume)
        modes = self.fft.forward(density)
        parts = [self.plan.interpolate(self.fft.inverse(modes * slope)) for slope in self.slopes]
        return -self.xp.stack(parts, -1)


def lattice(count: int, world: pmd.World, xp: ModuleType) -> Any:
    """Return this rank's share of a lattice in the unit cube, at random."""
    edge = round(count ** (1 / 3))
    mine = np.random.default_rng(7).permutation(edge**3)[world.rank :: world.size]
    sites = np.stack(np.unravel_index(mine, (edge,) * 3), axis=-1)
    return xp.asarray((sites + 0.5) / edge, np.float32)


def main(arguments: Sequence[str] | None = None) -> dict[str, float]:
    """Run the program; return what it found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--particles", type=int, default=32**3, help="about so many, a cube of a number")
    parser.add_argument("--mesh", type=int, default=16, help="nodes along each axis")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--time", type=float, default=1.5, help="in units of 1/sqrt(4 pi G rho)")
    parser.add_argument("--backend", default="cpu", choices=("cpu", "cuda"))
    asked = parser.parse_args(arguments)

    world = world_of_all()  # before arrays: it gives each rank of a host a GPU
    xp = importlib.import_module({"cpu": "numpy", "cuda": "cupy"}[asked.backend])
    mesh = pm.Mesh((asked.mesh,) * 3, (1.0, 1.0, 1.0))
    domain = pmd.Domain(mesh, world.size)
    gravity = Gravity(domain, world, xp)

    home = lattice(asked.particles, world, xp)  # where particles would be without the wave

    def summed(*numbers: Any) -> list[float]:
        return [float(number) for number in world.allreduce(np.array([float(number) for number in numbers]))]

    (total,) = map(int, summed(home.shape[0]))
    k = 2 * np.pi

    drift = xp.asarray([DRIFT], np.float32)

    def wave(home: Any, time: float) -> Any:
        return xp.sin(k * (home - drift * time)[:, :1])

    direction = xp.asarray([[1.0, 0.0, 0.0]], np.float32)
    x = home + AMPLITUDE / k * wave(home, 0) * direction
    v = xp.zeros_like(x) + drift
    gravity.plan.set_positions(x)
    x, v, home = gravity.plan.route.send(x, v, home)  # for good: from here on each rank has what it owns

    step = asked.time / asked.steps
    moved = 0
    for _ in range(asked.steps):  # drift, kick, drift
        x = x + v * (step / 2)
        masses = xp.full(x.shape[0], 1 / total, np.float32)
        v = v + gravity(x, masses) * step
        x, v, home = gravity.plan.route.send(x, v, home)  # strays change their owner
        moved += gravity.plan.route.moved
        x, home = x + v * (step / 2), home + drift * step

    # The displacement is A sin(k home): its projection on the wave is A / 2.
    displacement = ((x - home) * direction).sum(1) * wave(home, asked.time)[:, 0]
    v = v - drift
    grown, momentum, energy, moved = summed(displacement.sum(), v[:, 0].sum(), (v * v).sum(), moved)
    rows = dict(
        growth=2 * k * grown / total / AMPLITUDE, expected=float(np.cosh(asked.time)), momentum=abs(momentum) / total,
        speed=(energy / total) ** 0.5, strays=moved / (total * asked.steps),
    )  # fmt: skip
    if world.rank == 0:
        parts = " ".join("x".join(map(str, part.shape)) for part in domain.parts()[:4])
        print(f"{total:,} particles, {asked.mesh}^3 nodes, {world.size} ranks ({world.transport}): parts {parts}")
        print(f"the wave grew by {rows['growth']:.4f} in {asked.steps} steps; theory says {rows['expected']:.4f}")
        print(f"momentum per particle {rows['momentum']:.1e}, speed {rows['speed']:.1e}")
        print(f"{rows['strays']:.2%} of the particles changed their rank in a step")
    return rows


if __name__ == "__main__":
    main()
