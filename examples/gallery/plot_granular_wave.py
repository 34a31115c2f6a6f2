# SPDX-License-Identifier: BSD-3-Clause
"""
A granular wave
===============

A column of spheres collapses, runs along the floor of a box, and climbs a beach. Without friction and losses at
contacts, the sum of kinetic, potential and elastic energy is conserved. With them, about a third is left when the wave
has climbed.

:class:`particlemesh.apps.dem.Simulation` moves the spheres. Lengths are in metres, and energies in joules.
"""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.collections import EllipseCollection

from particlemesh.apps.dem import Hertz, Plane, Simulation

RADIUS, SITE, GRAVITY = 0.005, 0.0105, 9.81
DEEP, WIDE, HIGH = 4, 10, 20  # spheres of the column, along y, x and z
BOX = (3.5 * WIDE * SITE, DEEP * SITE, 1.25 * HIGH * SITE)

# %%
# The box has walls at the ends of x and z, and repeats along y. The beach is one more wall, a tilted plane. The
# column starts at rest with a little disorder.

random = np.random.default_rng(1)
cells = np.stack(np.meshgrid(*map(np.arange, (WIDE, DEEP, HIGH))), axis=-1).reshape(-1, 3)
start = (cells + 0.5) * SITE + random.uniform(-0.02, 0.02, cells.shape) * RADIUS
FOOT, SLOPE = 0.6 * BOX[0], np.radians(20)
beach = Plane(point=(FOOT, 0, 0), normal=(-np.sin(SLOPE), 0, np.cos(SLOPE)))


def column(restitution, friction):
    """Return the column at rest, of a material with losses at contacts."""
    law = Hertz(young=2e6, poisson=0.3, restitution=restitution, friction=friction)
    return Simulation(
        start, RADIUS, density=2500.0, contact=law, gravity=GRAVITY,
        box=BOX, periodic=(False, True, False), walls=[beach],
    )  # fmt: skip


# %%
# Two materials
# -------------
#
# One material loses nothing. The other loses half of the energy in head-on impacts, and rubs.

STEPS, PIECES = 5000, 50
views, energies = {}, {}
for name, restitution, friction in (("lossless", 1.0, 0.0), ("lossy", 0.7, 0.05)):
    spheres = column(restitution, friction)
    views[name], energies[name] = [], []
    for piece in range(PIECES + 1):
        if piece:
            spheres.run(STEPS // PIECES)
        energy = spheres.energy
        energies[name].append((spheres.time, energy.translation + energy.rotation, energy.total))
        speeds = np.linalg.norm(spheres.velocities, axis=1)
        views[name].append((spheres.time, spheres.positions, speeds))
    energies[name] = np.array(energies[name]).T

start_energy = energies["lossless"][2, 0]
change = np.ptp(energies["lossless"][2]) / start_energy
left = energies["lossy"][2] / start_energy
print(f"lossless: the energy changes by {change:.1e} of itself, expected below 1e-3")
print(f"lossy: {left[-1]:.3f} of the energy is left")
assert change < 1e-3, "energy is not conserved"
assert (np.diff(left) < 1e-4).all(), "contacts with losses create energy"

# %%
# The lossy wave from the side. Colours are speeds.

figure, axes = plt.subplots(2, 2, figsize=(7.2, 4.3), sharex=True, sharey=True)
chosen = [views["lossy"][n] for n in (0, 14, 24, PIECES)]
fastest = max(speeds.max() for _, _, speeds in chosen)
for panel, (time, x, speeds) in zip(axes.flat, chosen, strict=True):
    near = np.argsort(-x[:, 1])  # the nearest last, on top
    discs = EllipseCollection(
        *np.full((2, len(x)), 2 * RADIUS), 0, units="xy",
        offsets=x[near][:, [0, 2]], offset_transform=panel.transData,
        array=speeds[near], clim=(0, 0.8 * fastest), cmap="YlGnBu_r",
        edgecolor="0.15", linewidth=0.25,
    )  # fmt: skip
    panel.add_collection(discs)
    panel.plot([FOOT, BOX[0]], [0, (BOX[0] - FOOT) * np.tan(SLOPE)], color="0.3")
    panel.set(aspect="equal", xlim=(0, BOX[0]), ylim=(0, 0.9 * BOX[2]), title=f"{time:.2f} s")
plt.setp(axes[1], xlabel="x / m")
plt.setp(axes[:, 0], ylabel="z / m")
figure.colorbar(discs, ax=axes, label="speed / (m/s)", extend="max", aspect=30)
plt.show()

# %%
# The lossless spheres keep their energy, and more of it stays in motion.

figure, axes = plt.subplots(figsize=(7.2, 3))
for name, color in (("lossless", "C0"), ("lossy", "C1")):
    time, kinetic, total = energies[name]
    axes.plot(time, total, color=color, label=f"total, {name}")
    axes.plot(time, kinetic, "--", color=color, label=f"kinetic, {name}")
axes.set(xlim=(0, time[-1]), ylim=(0, None), xlabel="time / s", ylabel="energy / J")
axes.legend(loc="center left", bbox_to_anchor=(1, 0.5))
plt.show()
