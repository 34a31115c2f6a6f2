# SPDX-License-Identifier: BSD-3-Clause
"""
A Lennard-Jones fluid
=====================

500 atoms near the triple point of the Lennard-Jones fluid. A :class:`particlemesh.UniformGrid` finds the neighbours,
and :meth:`~particlemesh.UniformGrid.stream` sums a function of your own over them. The energy per atom is compared with
a reference value of NIST.

Lengths are in units of sigma, energies in epsilon, and masses are 1.
"""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.collections import EllipseCollection

import particlemesh as pm

COUNT, DENSITY, TEMPERATURE = 500, 0.776, 0.85
CUTOFF, TIME_STEP = 3.0, 0.005
# NIST Standard Reference Simulation Website, Lennard-Jones fluid, cutoff 3 with long-range corrections.
REFERENCE, REFERENCE_ERROR = -5.5121, 0.0005

# %%
# The pair function
# -----------------
#
# The function sees the squared distance ``r2`` and the vector ``d`` from atom i to atom j, and adds to the sums of atom
# i. Each pair is seen from both ends, so each end takes half of the energy. Numba compiles the function at its first
# use. For GPUs, :class:`particlemesh.PairFunction` takes the same in C.


def lennard_jones(r2, d, i, j, a, b, p, sums):
    """Add the energy, the energy that is zero at the cutoff, and the force."""
    s6 = 1 / r2**3
    energy = 2 * (s6 * s6 - s6)
    sums[0] += energy
    sums[1] += energy - p[0]
    pull = 24 * (s6 - 2 * s6 * s6) / r2
    for axis in range(3):
        sums[2 + axis] += pull * d[axis]


at_cutoff = 2 * (CUTOFF**-12 - CUTOFF**-6)
fluid = pm.PairFunction(None, lennard_jones, results=5, parameters=[at_cutoff])

length = (COUNT / DENSITY) ** (1 / 3)
# More threads do not pay for so few atoms.
grid = pm.UniformGrid((length,) * 3, cell_size=CUTOFF / 2, threads=1)


def energies_and_forces(x):
    """Return the cut energy, the shifted energy, and the forces."""
    sums = grid.build(x).stream(CUTOFF, fluid)
    return sums[:, 0].sum(), sums[:, 1].sum(), sums[:, 2:]


# %%
# Steps at constant temperature
# -----------------------------
#
# Langevin's equation keeps the temperature. The splitting BAOAB (Leimkuhler and Matthews 2013) samples positions well
# at large time steps. Without friction it is velocity Verlet, which keeps the energy.


def step(x, v, forces, friction=0.0):
    """Make one step in place, and return the energies and forces at its end."""
    v += 0.5 * TIME_STEP * forces
    x += 0.5 * TIME_STEP * v
    kept = np.exp(-friction * TIME_STEP)
    v *= kept
    v += np.sqrt((1 - kept**2) * TEMPERATURE) * random.normal(size=v.shape)
    x += 0.5 * TIME_STEP * v
    cut, shifted, forces = energies_and_forces(x)
    v += 0.5 * TIME_STEP * forces
    return cut, shifted, forces


random = np.random.default_rng(1)
sites = np.stack(np.meshgrid(*[np.arange(8)] * 3, indexing="ij"), axis=-1).reshape(-1, 3)
x = (random.permutation(sites)[:COUNT] + 0.5) * length / 8
v = np.sqrt(TEMPERATURE) * random.normal(size=x.shape)
forces = energies_and_forces(x)[2]
for _ in range(1500):
    *_, forces = step(x, v, forces, friction=1.0)

# %%
# The average goes over 37.5 time units. Its error follows from the scatter of 12 blocks. Atoms beyond the cutoff are
# taken as evenly spread, which adds a constant. Distances of pairs give the radial distribution function g(r).

potential, distances, frames = [], [], 0
for number in range(7_500):
    cut, _, forces = step(x, v, forces, friction=1.0)
    potential.append(cut / COUNT)
    if number % 100 == 0:
        distances.append(grid.pairs(4.0, half=True, format="coo", quantities="d").distance)
        frames += 1

correction = 8 * np.pi * DENSITY * (CUTOFF**-9 / 9 - CUTOFF**-3 / 3)
blocks = np.reshape(potential, (12, -1)).mean(axis=1) + correction
energy, error = blocks.mean(), blocks.std(ddof=1) / np.sqrt(len(blocks))
print(f"energy per atom: {energy:.4f} ± {error:.4f}, expected {REFERENCE} ± {REFERENCE_ERROR}")
assert error < 0.01, "the blocks of the average scatter too much"
assert abs(energy - REFERENCE) < 5 * error, "the energy per atom is not that of the reference"

# %%
# Steps at constant energy
# ------------------------
#
# Forces of a cut potential conserve the energy that is shifted to zero at the cutoff. Its fluctuation is of the second
# order in the time step, and small beside that of the potential energy.

v -= v.mean(axis=0)
total, kinetic = [], []
for _ in range(1000):
    _, shifted, forces = step(x, v, forces)
    kinetic.append(0.5 * (v**2).sum() / COUNT)
    total.append(shifted / COUNT + kinetic[-1])
total, kinetic = np.array(total), np.array(kinetic)
drift = np.polyfit(np.arange(len(total)) * TIME_STEP, total, 1)[0]
print(f"total energy: {total.mean():.4f} ± {total.std():.1e}, drift {drift:.1e} per time unit")
print(f"kinetic energy: {kinetic.mean():.4f} ± {kinetic.std():.1e}")
assert total.std() < 0.02 * kinetic.std(), "the total energy is not conserved"

# %%
edges = np.linspace(0, 4, 161)
counts = np.histogram(np.concatenate(distances), edges)[0]
shells = 4 / 3 * np.pi * np.diff(edges**3)
g = counts / (frames * COUNT / 2 * DENSITY * shells)

panels = [["atoms", "g"], ["energy", "energy"]]
figure, axes = plt.subplot_mosaic(panels, figsize=(7.2, 5.6), height_ratios=(3, 2))
folded = grid.box.fold(x)
folded = folded[np.argsort(-folded[:, 1])]  # the nearest last, on top
discs = EllipseCollection(
    *np.ones((2, COUNT)), 0, units="xy",
    offsets=folded[:, [0, 2]], offset_transform=axes["atoms"].transData,
    array=folded[:, 1], cmap="YlGnBu", edgecolor="0.2", linewidth=0.4,
)  # fmt: skip
axes["atoms"].add_collection(discs)
axes["atoms"].set(aspect="equal", xlim=(0, length), ylim=(0, length))
axes["atoms"].set(xlabel="x / sigma", ylabel="z / sigma", title="The atoms at the end")
axes["g"].plot((edges[1:] + edges[:-1]) / 2, g)
axes["g"].axhline(1, color="0.7", linewidth=0.8, zorder=0)
axes["g"].set(xlim=(0, 4), ylim=(0, None), xlabel="distance / sigma", ylabel="g")
axes["g"].set_title("Radial distribution function")
time = np.arange(len(total)) * TIME_STEP
axes["energy"].plot(time, kinetic - kinetic.mean(), color="C1", linewidth=1, label="kinetic")
axes["energy"].plot(time, total - total.mean(), label="total")
axes["energy"].set(xlim=(0, time[-1]), ylim=(-0.09, 0.11))
axes["energy"].set(xlabel="time", ylabel="energy per atom / epsilon")
axes["energy"].set_title("Differences from the mean, at constant energy")
axes["energy"].legend(ncols=2)
plt.show()
