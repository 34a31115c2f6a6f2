# SPDX-License-Identifier: BSD-3-Clause
r"""
A rotating drum
===============

Grains in a drum that turns slowly flow down a slope, whose angle is the dynamic angle of repose. You measure it from
the surface and from the centre of mass, and balance the torque of the drum with the weight of the grains.
"""

import matplotlib.pyplot as plt
import numpy as np

from particlemesh.apps.dem import Cylinder, Hertz, Simulation, relaxed_positions

# %%
# The drum
# --------
# The drum is a rough cylinder along y, and the box repeats along this axis. Grains have a diameter of about 9 mm, and
# fill nearly half of it. The Froude number :math:`\Omega^2 R / g` is 0.005, for which the surface is flat.

radius, width, count, gravity, density = 0.1, 0.04, 700, 9.81, 2500.0
turn = np.sqrt(0.005 * gravity / radius)
random = np.random.default_rng(2)
radii = random.uniform(0.004, 0.005, count)
grains = Hertz(young=1e6, restitution=0.5, friction=0.5)
rough = Hertz(young=1e6, restitution=0.5, friction=0.9)
drum = Cylinder((0, -width, 0), (0, 1, 0), radius, length=3 * width, spin=turn, contact=rough)
inner = radius - 0.006
angle, distance = random.uniform(0, 2 * np.pi, count), inner * np.sqrt(random.random(count))
start = np.stack(
    [distance * np.cos(angle), random.uniform(0, width, count), distance * np.sin(angle)], 1
)
space = {"box": (np.inf, width, np.inf), "periodic": (False, True, False)}
start = relaxed_positions(start, radii, walls=[drum], **space)
mill = Simulation(
    start, radii, density=density, contact=grains, walls=[drum], gravity=gravity, **space
)

# %%
# A steady flow
# -------------
# After one second grains flow down the slope. Then you take 200 samples in the next two seconds.


def middle(x):
    """Return x and z of the centre of mass."""
    return (mill.masses @ x[:, [0, 2]]) / mill.masses.sum()


mill.run(int(1.0 / mill.time_step))
every, middles, torques, tops = int(0.01 / mill.time_step), [], [], []
edges = np.linspace(-0.6 * radius, 0.6 * radius, 13)
for _ in range(200):
    mill.run(every)
    x = mill.positions
    middles.append(middle(x))
    torques.append(mill.wall_forces.torque[0, 1])
    where = np.digitize(x[:, 0], edges)
    tops.append([x[where == n, 2].max(initial=-radius) for n in range(1, len(edges))])

# %%
# Two angles and a torque
# -----------------------
# In a circle the centre of mass lies below the middle of the surface, across the slope. So its direction has the angle
# of the surface. The torque of grains on the drum is that of their weight, :math:`M g x`, once the flow is steady.

across, down = np.mean(middles, axis=0)
from_middle = np.degrees(np.arctan(across / -down))
slope = np.polyfit((edges[1:] + edges[:-1]) / 2, np.mean(tops, axis=0), 1)[0]
from_surface = np.degrees(np.arctan(slope))
expected = mill.masses.sum() * gravity * across
print(f"angle of repose: {abs(from_surface):.1f} degrees from the surface")
print(f"from the centre of mass: {abs(from_middle):.1f}, expected the same")
print(f"torque on the drum: {np.mean(torques):.4f} N m, expected {expected:.4f}")
assert abs(from_surface - from_middle) < 2, "the surface is not across the centre of mass"
assert abs(np.mean(torques) / expected - 1) < 0.03, "the drum does not carry the weight's torque"

# %%
# Grains flow fast in a thin layer, and turn with the drum below it.

fig, (left, right) = plt.subplots(1, 2, figsize=(7.2, 3.6))
speeds = np.linalg.norm(mill.velocities, axis=1)
order = np.argsort(x[:, 1])
dots = left.scatter(x[order, 0], x[order, 2], c=speeds[order], s=22, cmap="viridis")
line = 0.8 * radius * np.array([-1, 1])
left.plot(line, np.mean(tops) + slope * line, color="C3", label=f"{abs(from_surface):.0f}°")
left.add_patch(plt.Circle((0, 0), radius, fill=False, color="0.4"))
left.plot(across, down, "o", color="C3", markeredgecolor="white", label="centre of mass")
left.set(aspect="equal", xlabel="x / m", ylabel="z / m", xticks=(-0.1, 0, 0.1))
left.set(yticks=(-0.1, 0, 0.1), ylim=(-0.11, 0.16))
left.legend(loc="upper right", fontsize="small")
fig.colorbar(dots, ax=left, label="speed / (m/s)", location="bottom")
right.plot(every * mill.time_step * np.arange(len(torques)), torques, label="measured")
right.axhline(expected, color="C3", label="of the weight")
right.set(xlabel="time / s", ylabel="torque on the drum / (N m)")
right.margins(y=0.25)
right.legend(loc="lower right", fontsize="small")
plt.show()
