# SPDX-License-Identifier: BSD-3-Clause
"""Drift of the total energy of a water box, by our electrostatics and by OpenMM's, at equal measured errors of forces.

216 flexible molecules move by velocity Verlet in NumPy. Springs and Lennard-Jones forces are the same for all: only the
Coulomb forces differ. The start is a disturbed lattice that a thermostat has melted. Parameters are the coarsest ones
whose measured error of forces is at most the limit. OpenMM has cutoff, splitting and mesh of our Gaussian split, and
B-splines of order 5 as well. Its CPU platform works in single precision, its Reference platform in double precision.

``pme-drift-DEVICE.csv``: ``error`` is the measured root-mean-square error of forces over their root mean square,
``drift`` the slope of the total energy in kT / ns for each degree of freedom, ``uncertainty`` its standard error from
blocks, and ``fluctuation`` the standard deviation of what a straight line leaves, in kT for each degree of freedom.

    python benchmarks/apps/pme_drift.py [--small] [--time 2.0] [--step 0.5] [--error 3e-4]
"""

from __future__ import annotations

import functools
import importlib.util
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numba
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))  # the folder of benchmarks, when this file runs

from harness import runs
from harness.place import Place
from harness.tables import short
from particlemesh.apps.pme import PME

COULOMB, BOLTZMANN, TEMPERATURE = 138.93545764438206, 0.00831446262, 300.0  # kJ/mol, nm, e, K
SIDE, SPACING, CUTOFF, SKIN = 6, 0.3104, 0.85, 0.1  # molecules along the box, nm
CHARGES, MASSES = np.array([-0.82, 0.41, 0.41]), np.array([15.999, 1.008, 1.008])  # e, u: SPC
BOND, SPRING, ACROSS, ACROSS_SPRING = 0.1, 345000.0, 0.16330, 100000.0  # nm, kJ/mol/nm**2
SIGMA, EPSILON = 0.31656, 0.65017  # nm, kJ/mol, of oxygen
METHODS = ("prolate", "gaussian", "prolate float32", "OpenMM Reference", "OpenMM CPU")

Force = Callable[[np.ndarray], tuple[float, np.ndarray]]


@numba.njit(cache=True)
def others(x: np.ndarray, length: float, forces: np.ndarray) -> float:
    """Add the forces of springs and of Lennard-Jones potentials, whose forces end smoothly at 0.9 nm; return energy."""
    energy, square, cut = 0.0, SIGMA * SIGMA, (SIGMA / 0.9) ** 6
    slope = 4 * EPSILON * (12 * cut * cut - 6 * cut) / 0.81  # of the energy by r**2 / 2 at the cutoff
    for m in range(0, len(x), 3):
        for i, j, rest, spring in (
            (m, m + 1, BOND, SPRING),
            (m, m + 2, BOND, SPRING),
            (m + 1, m + 2, ACROSS, ACROSS_SPRING),
        ):
            d = x[j] - x[i]
            r = np.sqrt((d * d).sum())
            energy += spring / 2 * (r - rest) ** 2
            pull = spring * (1 - rest / r) * d
            forces[i] += pull
            forces[j] -= pull
        for n in range(0, m, 3):
            d = x[n] - x[m]
            d -= length * np.rint(d / length)
            r2 = (d * d).sum()
            if r2 < 0.81:
                s6 = (square / r2) ** 3
                energy += 4 * EPSILON * (s6 * s6 - s6 - cut * cut + cut) + slope / 2 * (r2 - 0.81)
                pull = (slope - 4 * EPSILON * (12 * s6 * s6 - 6 * s6) / r2) * d
                forces[m] += pull
                forces[n] -= pull
    return energy


def box() -> float:
    """Return the edge in nm."""
    return SIDE * SPACING


def pairs() -> np.ndarray:
    """Return the pairs within molecules."""
    first = np.arange(0, 3 * SIDE**3, 3)[:, None, None]
    return (first + np.array([(0, 1), (0, 2), (1, 2)])).reshape(-1, 2)


def ours(**options: Any) -> Force:
    """Return Coulomb energy and forces by our PME."""
    dtype = options.pop("dtype", "float64")
    pme = PME((box(),) * 3, coulomb_constant=COULOMB, exclusions=pairs(), skin=SKIN, cutoff=CUTOFF, **options)
    charges = np.tile(CHARGES, SIDE**3).astype(dtype)

    def call(x: np.ndarray) -> tuple[float, np.ndarray]:
        result = pme(x.astype(dtype), charges, virial=False)
        return float(result.energy), result.forces.astype(np.float64)

    call.pme = pme  # type: ignore[attr-defined]
    return call


def openmm(platform: str, splitting: float, nodes: int) -> Force:
    """Return Coulomb energy and forces by OpenMM."""
    import openmm as mm

    system, force = mm.System(), mm.NonbondedForce()
    force.setNonbondedMethod(mm.NonbondedForce.PME)
    force.setCutoffDistance(CUTOFF)
    force.setPMEParameters(splitting, nodes, nodes, nodes)
    force.setUseDispersionCorrection(False)
    for charge in np.tile(CHARGES, SIDE**3):
        system.addParticle(1.0)
        force.addParticle(float(charge), 0.1, 0.0)
    for i, j in pairs():
        force.addException(int(i), int(j), 0.0, 0.1, 0.0)
    system.addForce(force)
    system.setDefaultPeriodicBoxVectors(*(mm.Vec3(*row) for row in box() * np.eye(3)))
    context = mm.Context(system, mm.VerletIntegrator(0.0), mm.Platform.getPlatformByName(platform))

    def call(x: np.ndarray) -> tuple[float, np.ndarray]:
        context.setPositions(x)
        state = context.getState(getEnergy=True, getForces=True)
        return state.getPotentialEnergy()._value, state.getForces(asNumpy=True)._value

    return call


def move(coulomb: Force, x: np.ndarray, v: np.ndarray, steps: int, step: float, thermostat: bool) -> tuple[Any, ...]:
    """Return positions, velocities and total energies (steps,) of velocity Verlet; a thermostat scales velocities."""
    masses, energies = np.tile(MASSES, SIDE**3)[:, None], np.zeros(steps)

    def pull(x: np.ndarray) -> tuple[float, np.ndarray]:
        energy, forces = coulomb(x)
        forces = forces.copy()
        return energy + others(x, box(), forces), forces

    forces = pull(x)[1]
    for n in range(steps):
        v = v + step / 2 * forces / masses
        x = x + step * v
        energy, forces = pull(x)
        v = v + step / 2 * forces / masses
        kinetic = float((masses * v**2).sum()) / 2
        energies[n] = energy + kinetic
        if thermostat:
            v *= (1 + 0.02 * (TEMPERATURE * BOLTZMANN * 1.5 * len(x) / kinetic - 1)) ** 0.5
    return x, v, energies


@functools.cache
def start(steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Return positions and velocities of molten water."""
    rng = np.random.default_rng(1)
    places = np.stack(np.meshgrid(*[np.arange(SIDE)] * 3, indexing="ij"), -1).reshape(-1, 1, 3) * SPACING
    frames = np.linalg.qr(rng.normal(size=(SIDE**3, 3, 3)))[0]
    arms = np.array([(0.0, 0, 0), (ACROSS / 2, 0.0577, 0.0), (-ACROSS / 2, 0.0577, 0.0)])
    x = (places + rng.normal(scale=0.005, size=(SIDE**3, 1, 3)) + arms @ frames).reshape(-1, 3)
    v = rng.normal(size=x.shape) * np.sqrt(BOLTZMANN * TEMPERATURE / np.tile(MASSES, SIDE**3))[:, None]
    v -= (v * np.tile(MASSES, SIDE**3)[:, None]).sum(0) / (MASSES.sum() * SIDE**3)
    coulomb = ours(accuracy=1e-3)
    for length in (0.0001, 0.0002, 0.0005):  # ps: a lattice of random frames is steep at first
        x, v, _ = move(coulomb, x, v, steps, length, True)
    return x, v


def error(coulomb: Force, x: np.ndarray) -> float:
    """Return the error of forces over their root mean square."""
    exact = ours(accuracy=1e-9, splitting="gaussian")(x)[1]
    return float(np.linalg.norm(coulomb(x)[1] - exact) / np.linalg.norm(exact))


def coarsest(limit: float, x: np.ndarray, **options: Any) -> Force:
    """Return our forces with the fewest digits asked for that have this error."""
    for accuracy in 10.0 ** np.arange(-1.0, -7, -0.05):
        coulomb = ours(accuracy=accuracy, **options)
        if error(coulomb, x) <= limit:
            return coulomb
    raise RuntimeError(f"no accuracy gives an error of {limit}: give a larger --error.")


@functools.cache
def gaussian(limit: float, steps: int) -> Force:
    """Return our forces by Gaussians and B-splines of OpenMM's order."""
    return coarsest(limit, start(steps)[0], splitting="gaussian", window="bspline5")


def drift(asked: Any, method: str) -> Iterator[dict[str, Any]]:
    """Return the row of a method."""
    steps, melting = (20, 20) if asked.small else (round(1000 * asked.time / asked.step), 1500)
    x, v = start(melting)
    p = gaussian(asked.error, melting).pme.parameters  # type: ignore[attr-defined]
    if method.startswith("OpenMM"):
        coulomb = openmm(method.split()[1], p.splitting, max(p.shape))
    elif method == "gaussian":
        coulomb = gaussian(asked.error, melting)
    else:
        coulomb = coarsest(asked.error, x, splitting="prolate", dtype="float32" if "32" in method else "float64")
        p = coulomb.pme.parameters  # type: ignore[attr-defined]
    begin = time.perf_counter()
    energies = move(coulomb, x, v, steps, asked.step / 1000, False)[2]
    each = (time.perf_counter() - begin) / steps
    unit, at = BOLTZMANN * TEMPERATURE * 3 * len(x), np.arange(steps) * asked.step / 1000
    line = np.polyfit(at, energies, 1)
    slopes = [np.polyfit(t, e, 1)[0] for t, e in zip(np.array_split(at, 5), np.array_split(energies, 5), strict=True)]
    yield dict(
        method=method, molecules=SIDE**3, picoseconds=short(steps * asked.step / 1000), step_fs=asked.step,
        error=short(error(coulomb, x)), nodes=max(p.shape), cutoff=CUTOFF, drift=short(1000 * line[0] / unit),
        uncertainty=short(1000 * float(np.std(slopes)) / 5**0.5 / unit),
        fluctuation=short(float((energies - np.polyval(line, at)).std()) / unit), ms_per_step=short(1000 * each),
    )  # fmt: skip


def main() -> None:
    """Measure what the command line asks for."""
    parser = runs.parser(__doc__, (), None)
    parser.add_argument("--time", type=float, default=2.0, help="ps")
    parser.add_argument("--step", type=float, default=0.5, help="fs")
    parser.add_argument("--error", type=float, default=3e-4, help="of forces, at most")
    asked = parser.parse_args()
    with runs.Run(Place("cpu"), asked.out) as run:
        methods = [m for m in METHODS if importlib.util.find_spec("openmm") or not m.startswith("OpenMM")]
        if len(methods) < len(METHODS):
            run.say("openmm not installed: no rows of it.")
        run.write("pme-drift", run.measure("drift", methods, functools.partial(drift, asked), "pme-drift"))
    run.finish()


if __name__ == "__main__":
    main()
