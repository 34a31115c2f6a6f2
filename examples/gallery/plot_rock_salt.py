# SPDX-License-Identifier: BSD-3-Clause
r"""
Rock salt at constant energy
============================

216 ions of sodium chloride move by velocity Verlet. :class:`~particlemesh.apps.pme.PME` has their Coulomb forces, a
neighbour list those of their repulsion. You watch the total energy, and find the distances of ions in the hot crystal.
"""

import matplotlib.pyplot as plt
import numpy as np

import particlemesh as pm
from particlemesh.apps.pme import PME

# %%
# Ions
# ----
# Lengths are in Å, energies in eV, masses in u. The unit of time is then 10.18 fs. Ions repel each other by
# :math:`A e^{(s_i + s_j - r) / d}`, with the numbers of Fumi and Tosi for sodium chloride.

side, edge = 6, 6 * 2.95
lattice = np.indices((side,) * 3).reshape(3, -1).T
positions = lattice * edge / side
charges = (-1.0) ** lattice.sum(1)
masses = np.where(charges > 0, 22.99, 35.45)[:, None]
size = np.where(charges > 0, 1.170, 1.585)
box = pm.Box((edge,) * 3)
pme = PME(box, accuracy=1e-5, coulomb_constant=14.3996454784255)


def forces_of(x):
    """Return the potential energy and the forces."""
    coulomb = pme(x, charges, virial=False)
    i, j, d, r = pm.neighbour_list("ijDd", x, box, 8.0, half=True)
    repulsion = (
        0.211 * (1 + (charges[i] + charges[j]) / 8) * np.exp((size[i] + size[j] - r) / 0.317)
    )
    pull = (repulsion / 0.317 / r)[:, None] * d
    mine = [
        np.bincount(j, pull[:, a], len(x)) - np.bincount(i, pull[:, a], len(x)) for a in range(3)
    ]
    return float(coulomb.energy) + repulsion.sum(), coulomb.forces + np.stack(mine, axis=1)


# %%
# Steps
# -----
# Ions begin on the lattice, with twice the kinetic energy that they keep. A step takes 1.5 fs. Every tenth
# configuration of the second half gives distances of ions.

kelvin, step, steps = 8.617333e-5, 1.5 / 10.18, 500
velocities = np.sqrt(2600 * kelvin / masses) * np.random.default_rng(1).standard_normal(
    positions.shape
)
velocities -= (masses * velocities).sum(0) / masses.sum()
potential, forces = forces_of(positions)
total, kinetic, alike, unlike = [], [], [], []
for n in range(steps):
    velocities += step / 2 * forces / masses
    positions = positions + step * velocities
    potential, forces = forces_of(positions)
    velocities += step / 2 * forces / masses
    kinetic.append((masses * velocities**2).sum() / 2)
    total.append(potential + kinetic[-1])
    if n >= steps // 2 and n % 10 == 0:
        i, j, r = pm.neighbour_list("ijd", positions, box, 8.0, half=True)
        same = charges[i] == charges[j]
        alike.append(r[same])
        unlike.append(r[~same])

temperature = 2 * np.array(kinetic) / (3 * len(positions) * kelvin)

# %%
# Energy and structure
# --------------------
# An ion has six neighbours of the other sign, and then twelve of its own sign at :math:`\sqrt{2}` times the distance.

bins = np.linspace(1.5, 8.0, 66)
shells = 4 * np.pi / 3 * np.diff(bins**3)
pairs_alike, pairs_unlike = 2 * (side**3 / 2) * (side**3 / 2 - 1) / 2, (side**3 / 2) ** 2
middle = (bins[1:] + bins[:-1]) / 2
curves = [
    np.histogram(np.concatenate(r), bins)[0] / len(r) / (pairs * shells / box.volume)
    for r, pairs in ((unlike, pairs_unlike), (alike, pairs_alike))
]

times = 1.5e-3 * np.arange(1, steps + 1)
fig, (left, right) = plt.subplots(1, 2, figsize=(7.2, 3.6))
begin = steps // 5
left.plot(
    times[begin:],
    1e6 * (np.array(total) - np.mean(total[begin:]))[begin:] / len(positions),
    color="C0",
)
left.set(title="Change of the total energy", xlabel="time / ps", ylabel="µeV per ion")
right.plot(middle, curves[0], color="C3", label="Na–Cl")
right.plot(middle, curves[1], color="C0", label="Na–Na and Cl–Cl")
right.axhline(1, color="0.7", linewidth=1)
right.set(
    title=f"Pairs at {temperature[steps // 2 :].mean():.0f} K",
    xlabel="r / Å",
    ylabel="g(r)",
)
right.legend()
plt.show()

fluctuation = np.std(total[begin:]) / len(positions) / (kelvin * temperature[begin:].mean())
peak, expected = middle[curves[1].argmax()], 2**0.5 * edge / side
print(f"fluctuation of the energy per ion: {fluctuation:.1e} kT, expected below 3e-4")
print(f"ions of one sign are at {peak:.2f} Å, expected {expected:.2f} of the lattice")
assert fluctuation < 3e-4, "the total energy is not conserved"
assert abs(peak - expected) < 0.15, "the ions have left the lattice"
