# SPDX-License-Identifier: BSD-3-Clause
r"""
A silo and its walls
====================

Grains rest in a silo. Friction with the wall carries a part of their weight, so that the floor bears less than all of
it. Then the outlet opens, and grains flow out at a steady rate. You weigh the grains by the forces on walls, and find
the rate of Beverloo's law.
"""

import dataclasses

import matplotlib.pyplot as plt
import numpy as np

from particlemesh.apps.dem import Cylinder, Disc, Hertz, Simulation, relaxed_positions

# %%
# A silo with an outlet
# ---------------------
# The silo is a cylinder over a disc with a hole. A second disc closes the hole. Grains have a diameter of about 5 mm:
# equal ones would order in layers. A random start has deep overlaps, and ``relaxed_positions`` moves grains apart.

radius, outlet, count, gravity = 0.032, 0.016, 2400, 9.81
random = np.random.default_rng(5)
radii = random.uniform(0.0022, 0.0028, count)
law = Hertz(young=1e6, restitution=0.5, friction=0.5)


def walls(speed=0.0, plug=0.0):
    """Return the silo with a floor that moves down, and its plug at a height."""
    down = {"velocity": (0, 0, -speed)}
    side = Cylinder((0, 0, -0.01), (0, 0, 1), radius, length=0.6)
    floor = Disc((0, 0, 0), (0, 0, 1), radius, hole=outlet, **down)
    return [side, floor, Disc((0, 0, plug), (0, 0, 1), outlet, **down)]


angle, distance = (
    random.uniform(0, 2 * np.pi, count),
    (radius - 0.003) * np.sqrt(random.random(count)),
)
start = np.stack(
    [distance * np.cos(angle), distance * np.sin(angle), random.uniform(0.004, 0.2, count)], 1
)
start = relaxed_positions(start, radii, walls=walls())
silo = Simulation(start, radii, density=2500.0, contact=law, walls=walls(), gravity=gravity)
silo.run(int(0.35 / silo.time_step))

# %%
# The weight
# ----------
# The floor moves down by 0.2 mm, so that grains slide along the wall. ``wall_forces`` has the force on each wall.
# Together they carry the weight. The column still swings by half a percent, so you take the mean of ten times.

silo.walls = walls(speed=0.01)
silo.run(int(0.02 / silo.time_step))
silo.walls = [dataclasses.replace(wall, velocity=(0, 0, 0)) for wall in silo.walls]
silo.run(int(0.1 / silo.time_step))
weight, samples = silo.masses.sum() * gravity, []
for _ in range(10):
    silo.run(int(0.01 / silo.time_step))
    samples.append(-silo.wall_forces.force[:, 2] / weight)
down = np.mean(samples, axis=0)
print(
    f"all walls carry {down.sum():.4f} of the weight, expected 1; the floor carries {down[1:].sum():.3f}"
)
assert abs(down.sum() - 1) < 0.005, "the walls do not carry the weight"
assert down[1:].sum() < 0.85, "friction with the side carries nothing"

# %%
# The flow
# --------
# The plug goes far away. What has left the silo is counted and removed.

x, middle = silo.positions, (0.02, 0.06)
inside = (x[:, 2] > middle[0]) & (x[:, 2] < middle[1])
bulk_density = silo.masses[inside].sum() / (np.pi * radius**2 * (middle[1] - middle[0]))
silo.walls = [*silo.walls[:2], Disc((0, 0, -10), (0, 0, 1), outlet)]
every = int(0.01 / silo.time_step)
times, left = every * silo.time_step * np.arange(46), np.zeros(46)
for n in range(1, len(times)):
    silo.run(every)
    gone = silo.positions[:, 2] < -0.02
    left[n] = left[n - 1] + silo.masses[gone].sum()
    silo.remove(gone)
    if n == 25:
        x, v, r = silo.positions, silo.velocities, silo.radii

# %%
# Beverloo's law for the rate has constants from experiments, which scatter by ten percent or two:
#
# .. math::
#
#    W = 0.58\, \rho_b \sqrt{g}\, (D - 1.5\, d)^{5/2},
#
# with the bulk density :math:`\rho_b`, the diameter D of the outlet and that of the grains, d.

beverloo = 0.58 * bulk_density * gravity**0.5 * (2 * outlet - 1.5 * 2 * radii.mean()) ** 2.5
steady = times > 0.15
rate = np.polyfit(times[steady], left[steady], 1)[0]

fig, (cut, flow) = plt.subplots(1, 2, figsize=(7.2, 4), width_ratios=(1, 1.3))
shown = np.abs(x[:, 1]) < 0.004
dots = cut.scatter(
    1e3 * x[shown, 0], 1e3 * x[shown, 2], s=18, c=-v[shown, 2], cmap="viridis", vmin=0, vmax=0.5
)
cut.plot(
    [-32, -32],
    [0, 110],
    "k",
    [32, 32],
    [0, 110],
    "k",
    [-32, -16],
    [0, 0],
    "k",
    [16, 32],
    [0, 0],
    "k",
)
cut.set(
    title=f"A cut at time {times[25]:.2f} s",
    xlabel="x / mm",
    ylabel="z / mm",
    aspect="equal",
    ylim=(-25, 112),
)
fig.colorbar(dots, label="speed downwards / (m/s)")
flow.plot(times, 1e3 * left, label="simulation")
first = np.argmax(steady)
flow.plot(
    times[first:],
    1e3 * (left[first] + beverloo * (times[first:] - times[first])),
    "--",
    label="Beverloo's law",
)
flow.set(title="Mass that has left", xlabel="time / s", ylabel="mass / g")
flow.legend()
plt.show()

print(f"rate {1e3 * rate:.0f} g/s, expected {1e3 * beverloo:.0f} g/s")
assert abs(rate / beverloo - 1) < 0.2, "the rate is not that of Beverloo's law"
