# SPDX-License-Identifier: BSD-3-Clause
"""Salt water by particle-mesh Ewald: its energy is minimised, then it moves at constant energy.

The box of 3182 atoms comes with the library. Water is flexible: springs for bonds and angles, charges without those
within a molecule, and Lennard-Jones potentials whose tail is summed over all images. Units are those of GROMACS: nm,
ps, kJ/mol, e and u.

    python examples/water_box.py
    python examples/water_box.py --steps 10000 --step 0.05
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from importlib.resources import files

import numpy as np

from particlemesh.apps.pme import PME, Dispersion

COULOMB = 138.935458  # kJ/mol nm / e**2
BOLTZMANN = 0.00831446262  # kJ/mol / K
MASS = {"O": 15.999, "H": 1.008, "Na": 22.990, "Cl": 35.453}
SIGMA_EPSILON = {"O": (0.315075, 0.635968), "Na": (0.2439281, 0.365846), "Cl": (0.4477657, 0.1489127)}
BOND, BOND_SPRING = 0.09572, 462750.4  # nm, kJ/mol / nm**2
ANGLE, ANGLE_SPRING = np.deg2rad(104.52), 836.8  # radian, kJ/mol / radian**2


class Water:
    """Energy and forces of the box: charges, Lennard-Jones potentials, and springs."""

    def __init__(self, accuracy: float = 1e-5, cutoff: float = 0.9) -> None:
        data = np.load(str(files("particlemesh") / "data" / "water.npz"))
        self.positions, self.charges, self.box = data["positions"], data["charges"], np.diag(data["box"])
        names = np.char.capitalize(data["elements"])
        self.masses = np.array([MASS[name] for name in names])[:, None]
        oxygen = np.flatnonzero(names == "O")  # two hydrogens follow each
        o, a, b = oxygen, oxygen + 1, oxygen + 2
        self.molecules = o, a, b
        pairs = np.concatenate([np.stack(pair, 1) for pair in ((o, a), (o, b), (a, b))])
        self.coulomb = PME(
            self.box, accuracy, cutoff=cutoff, coulomb_constant=COULOMB, exclusions=pairs, skin=0.08
        )  # fmt: skip
        self.heavy = np.flatnonzero(names != "H")
        self.sigma, self.epsilon = np.array([SIGMA_EPSILON[name] for name in names[self.heavy]]).T
        self.attraction = Dispersion(self.box, accuracy, cutoff=cutoff, mixing="lorentz-berthelot", shift=True)

    def __call__(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the energy and the forces (N, 3)."""
        result = self.coulomb(x, self.charges, virial=False)
        energy, forces = float(result.energy), result.forces
        result = self.attraction(x[self.heavy], sigma=self.sigma, epsilon=self.epsilon)
        forces[self.heavy] += result.forces
        return energy + float(result.energy) + self.springs(x, forces), forces

    def springs(self, x: np.ndarray, forces: np.ndarray) -> float:
        """Return the energy of bonds and angles, and add their forces."""
        o, a, b = self.molecules
        arms = [x[h] - x[o] for h in (a, b)]
        arms = [d - np.rint(d / self.box) * self.box for d in arms]
        lengths = [np.linalg.norm(d, axis=1, keepdims=True) for d in arms]
        units = [d / r for d, r in zip(arms, lengths, strict=True)]
        cosine = (units[0] * units[1]).sum(1, keepdims=True)
        angle = np.arccos(cosine)
        bend = ANGLE_SPRING * (angle - ANGLE) / np.sqrt(1 - cosine**2)
        energy = ANGLE_SPRING / 2 * float(((angle - ANGLE) ** 2).sum())
        for h, along, other, r in ((a, *units, lengths[0]), (b, *units[::-1], lengths[1])):
            pull = -BOND_SPRING * (r - BOND) * along + bend / r * (other - cosine * along)
            forces[h] += pull
            forces[o] -= pull
            energy += BOND_SPRING / 2 * float(((r - BOND) ** 2).sum())
        return energy


def minimise(water: Water, x: np.ndarray, steps: int) -> tuple[np.ndarray, list[float]]:
    """Go downhill: shorter steps after a rise, longer ones after a fall; return positions and energies."""
    reach = 0.002  # nm, of the atom that moves most
    energy, forces = water(x)
    energies = [energy]
    for _ in range(steps):
        trial = x + reach * forces / np.sqrt((forces**2).sum(1).max())
        energy, pulls = water(trial)
        if energy < energies[-1]:
            x, forces, reach = trial, pulls, 1.2 * reach
            energies.append(energy)
        else:
            reach /= 2
    return x, energies


def run(
    water: Water, x: np.ndarray, steps: int, step: float, temperature: float, every: int
) -> tuple[np.ndarray, np.ndarray]:
    """Move at constant energy by velocity Verlet; return times, and rows of potential and kinetic energy."""
    rng, m = np.random.default_rng(1), water.masses
    v = rng.normal(size=x.shape) * np.sqrt(BOLTZMANN * temperature / m)
    v -= (m * v).sum(0) / m.sum()
    energy, forces = water(x)
    rows = []
    for n in range(steps + 1):
        kinetic = float((m * v**2).sum()) / 2
        rows.append((energy, kinetic))
        if n % every == 0:
            kelvin = 2 * kinetic / (3 * len(x) * BOLTZMANN)
            print(f"{n * step:>10.4f}{energy:>18.4f}{kinetic:>16.4f}{energy + kinetic:>20.6f}{kelvin:>10.1f}")
        v += step / 2 * forces / m
        x = x + step * v
        energy, forces = water(x)
        v += step / 2 * forces / m
    return np.arange(steps + 1) * step, np.array(rows)


def main(words: Sequence[str] | None = None) -> dict[str, float]:
    """Minimise and run, print tables, and return what was found."""
    parser = argparse.ArgumentParser(description="salt water: minimisation and a run at constant energy")
    parser.add_argument("--minimise", type=int, default=60, help="steps downhill")
    parser.add_argument("--steps", type=int, default=1000, help="steps of the run")
    parser.add_argument("--step", type=float, default=0.1, help="length of a step in fs")
    parser.add_argument("--temperature", type=float, default=300.0, help="of the first velocities, in K")
    parser.add_argument("--accuracy", type=float, default=1e-5, help="of the forces")
    chosen = parser.parse_args(words)
    water = Water(chosen.accuracy)
    x, energies = minimise(water, water.positions, chosen.minimise)
    print(f"{len(x)} atoms in {water.box[0]:.3f} nm; {water.coulomb!r}\n")
    print(f"minimised in {chosen.minimise} steps: {energies[0]:.1f} -> {energies[-1]:.1f} kJ/mol\n")
    print(f"{'time / ps':>10}{'potential':>18}{'kinetic':>16}{'total / kJ/mol':>20}{'T / K':>10}")
    start = time.perf_counter()
    times, rows = run(water, x, chosen.steps, chosen.step / 1000, chosen.temperature, max(1, chosen.steps // 10))
    total = rows.sum(1)
    drift = float(np.polyfit(times, total, 1)[0] / abs(total.mean())) if chosen.steps > 1 else 0.0
    wander = float(total.std() / abs(total.mean()))
    took = (time.perf_counter() - start) / (chosen.steps + 1)
    print(f"\ntotal energy: drift {drift:+.1e} per ps, fluctuation {wander:.1e}; {1e3 * took:.0f} ms per step")
    return {"fall": energies[0] - energies[-1], "drift": drift, "fluctuation": wander}


if __name__ == "__main__":
    main()
