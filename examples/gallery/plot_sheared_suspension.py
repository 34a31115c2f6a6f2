# SPDX-License-Identifier: BSD-3-Clause
r"""
A sheared suspension
====================

Spheres diffuse in a fluid that is sheared. Shear spreads them along the flow much faster than diffusion alone, as
Taylor found. The periodic box leans with the flow (Lees and Edwards), and so does the mobility of the spheres.
"""

import matplotlib.pyplot as plt
import numpy as np

from particlemesh.apps.brownian import RPY, BrownianDynamics

# %%
# Spheres in a flow
# -----------------
# A volume fraction of 2 % of spheres of radius 1, in the flow :math:`u = (\dot\gamma y, 0, 0)`. The Péclet number
# :math:`\dot\gamma a^2 / D` is 2. Spheres drag each other along through the fluid.

count, fraction, rate, step = 1000, 0.02, 2.0, 0.02
edge = (count * 4 / 3 * np.pi / fraction) ** (1 / 3)
random = np.random.default_rng(1)
start = random.uniform(0, edge, (count, 3))
motion = BrownianDynamics(
    start, RPY((edge,) * 3, accuracy=1e-2), time_step=step, seed=2, shear_rate=rate
)
times, moments, shown = [], [], []
for _ in range(82):
    motion.run(1)
    # Displacements relative to the flow at the height where each sphere began.
    away = motion.positions - start
    away[:, 0] -= motion.strain * start[:, 1]
    times.append(motion.time)
    moments.append(np.mean(away**2, axis=0))
    if motion.step in (10, 82):
        shown.append((motion.strain, motion.box.matrix[:2, :2], motion.folded[:, :2]))

# %%
# Taylor's law
# ------------
# A sphere that diffuses across the flow gets into faster fluid:
#
# .. math::
#
#    \langle x^2 \rangle = 2 D t \left( 1 + \tfrac{1}{3} (\dot\gamma t)^2 \right), \qquad
#    \langle y^2 \rangle = \langle z^2 \rangle = 2 D t.
#
# D is the diffusion coefficient of a sphere in the periodic box, a little below that in unbounded fluid.

times, moments = np.array(times), np.array(moments)
diffusion = 1 - 2.837297 / edge + 4 / 3 * np.pi / edge**3
law = 2 * diffusion * times
along = law * (1 + (rate * times) ** 2 / 3)
print(f"strain {motion.strain:.1f}, the box leans by {motion.box.matrix[1, 0] / edge:.2f}")
print(f"across the flow: {moments[-1, 1:].mean():.2f}, expected {law[-1]:.2f}")
print(f"along the flow: {moments[-1, 0]:.2f}, expected {along[-1]:.2f}")
assert abs(moments[-1, 1:].mean() / law[-1] - 1) < 0.1, "spheres do not diffuse across the flow"
assert abs(moments[-1, 0] / along[-1] - 1) < 0.15, "dispersion is not that of Taylor"

fig, axes = plt.subplots(1, 3, figsize=(7.2, 3.2), width_ratios=(1, 1, 1.2))
for ax, (strain, rows, x) in zip(axes, shown, strict=False):
    corners = np.array([[0, 0], [1, 0], [1, 1], [0, 1], [0, 0]]) @ rows
    ax.plot(*corners.T, color="0.4")
    ax.plot(*x.T, ".", markersize=2)
    ax.set(aspect="equal", title=f"strain {strain:.1f}", xlabel="x", ylabel="y")
axes[2].loglog(times, moments[:, 0], "o", markersize=3, label="along the flow")
axes[2].loglog(times, moments[:, 1:].mean(1), "s", markersize=3, label="across")
axes[2].loglog(times, along, color="0.3", label="Taylor")
axes[2].loglog(times, law, color="0.3", linestyle=":", label="2 D t")
axes[2].set(xlabel="time", ylabel="mean square")
axes[2].legend(fontsize="small")
plt.show()
