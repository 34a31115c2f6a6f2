# SPDX-License-Identifier: BSD-3-Clause
r"""
Einstein's viscosity
====================

A few spheres in a fluid make it more viscous: a volume fraction :math:`\phi` raises the viscosity by the factor
:math:`1 + 2.5\, \phi`. You build a rigid sphere of beads, hold it in a shear flow, and find the number 2.5.
"""

import matplotlib.pyplot as plt
import numpy as np

from particlemesh.apps.brownian import FreeRPY

# %%
# A sphere of beads
# -----------------
# Beads lie on a spiral over the sphere, each as far from its neighbours as two bead radii. The fluid has viscosity 1
# and no boundary. Velocities of unit forces are the mobility matrix, 600 rows for 200 beads.


def sphere(count):
    """Return beads on a sphere of radius 1, and their radius."""
    k = np.arange(count) + 0.5
    polar, turn = np.arccos(1 - 2 * k / count), np.pi * (1 + 5**0.5) * k
    beads = np.stack([np.cos(turn) * np.sin(polar), np.sin(turn) * np.sin(polar), np.cos(polar)], 1)
    apart = np.linalg.norm(beads[:, None] - beads, axis=2) + 9 * np.eye(count)
    return beads, apart.min(1).mean() / 2


def mobility(beads, radius):
    """Return the mobility matrix."""
    size = 3 * len(beads)
    rpy = FreeRPY(radius, viscosity=1.0).set_positions(beads)
    return rpy.velocity(np.eye(size).reshape(size, -1, 3)).reshape(size, size)


# %%
# Forces of a rigid sphere
# ------------------------
# The beads' forces f on the fluid take away its velocity :math:`E x` relative to the sphere, where E is the rate of
# strain. Their first moment is the stresslet S, to which the viscosity of a dilute suspension is proportional:
#
# .. math::
#
#    \frac{\eta_\mathrm{eff}}{\eta} = 1 + \phi\, \frac{S_{xy}}{2 \eta V E_{xy}}.
#
# The volume V is that of the sphere with the same drag: beads stick out of the sphere on which they lie.

strain = np.array([[0.0, 0.5, 0.0], [0.5, 0.0, 0.0], [0.0, 0.0, 0.0]])
counts, numbers = (25, 50, 100, 200, 400), []
for count in counts:
    beads, size = sphere(count)
    matrix = mobility(beads, size)
    drag = np.linalg.solve(matrix, np.tile([1.0, 0.0, 0.0], count)).reshape(-1, 3).sum(0)[0]
    forces = np.linalg.solve(matrix, (beads @ strain).ravel()).reshape(-1, 3)
    stresslet = (forces.T @ beads + beads.T @ forces) / 2
    volume = 4 / 3 * np.pi * (drag / (6 * np.pi)) ** 3
    numbers.append(stresslet[0, 1] / (2 * volume * strain[0, 1]))
    if count == 200:
        shown = beads, forces

fig = plt.figure(figsize=(7.2, 3.4))
left = fig.add_subplot(121, projection="3d")
left.quiver(
    *shown[0].T, *(0.12 * shown[1] / np.abs(shown[1]).max() * 3).T, color="C1", linewidth=0.8
)
left.scatter(*shown[0].T, s=8)
left.set(title="Forces of 200 beads on the fluid", xticks=(), yticks=(), zticks=())
left.set_box_aspect((1, 1, 1))
right = fig.add_subplot(122)
right.semilogx(counts, numbers, "o-", label="sphere of beads")
right.axhline(2.5, color="0.5", linestyle=":", label="Einstein")
right.set(
    title="Rise of the viscosity",
    xlabel="beads",
    ylabel=r"$(\eta_\mathrm{eff} / \eta - 1)\ /\ \phi$",
)
right.minorticks_off()
right.set(ylim=(2.45, 2.65), xticks=counts, xticklabels=counts)
right.legend()
plt.show()

print(f"viscosity: {numbers[-1]:.3f} times the volume fraction, expected 2.5")
assert abs(numbers[-1] / 2.5 - 1) < 0.02, "this is not Einstein's number"
