# SPDX-License-Identifier: BSD-3-Clause
"""
Brownian spheres in a fluid
===========================

A fluid kicks the spheres in it at random. Neighbours get similar kicks, because the fluid between them moves with both.
:class:`particlemesh.apps.brownian.BrownianDynamics` samples such kicks. Their mean squares and correlations are
compared with the mobility.

Lengths are in radii of a sphere, and energies in kT. With the default viscosity, the diffusion constant of a sphere
alone in infinite fluid is 1.
"""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.collections import EllipseCollection

import particlemesh as pm
from particlemesh.apps.brownian import RPY, WCA, BrownianDynamics, Drag

LENGTH, COUNT, STEPS, TIME_STEP = 20.0, 190, 300, 1e-4
BOX = (LENGTH,) * 3

# %%
# A suspension
# ------------
#
# A tenth of the volume is spheres. They start on sites of a lattice. Steps without hydrodynamic interactions mix them:
# ``Drag`` is the mobility, and the soft repulsion ``WCA`` keeps spheres apart.

random = np.random.default_rng(1)
sites = np.stack(np.meshgrid(*[np.arange(6)] * 3, indexing="ij"), axis=-1).reshape(-1, 3)
start = (random.permutation(sites)[:COUNT] + 0.5) * LENGTH / 6
repulsion = WCA(BOX, epsilon=1.0, sigma=2.0)
mixing = BrownianDynamics(start, Drag(box=BOX), repulsion, time_step=2e-3, seed=1)
mixing.run(2000)

# %%
# Kicks with hydrodynamic interactions
# ------------------------------------
#
# ``RPY`` is the mobility of Rotne, Prager and Yamakawa, summed over all periodic images. The steps are so short that
# the spheres stay almost where they are. Displacements are then kicks with the covariance of the mobility.

fluid = RPY(BOX, accuracy=1e-3)
motion = BrownianDynamics(mixing.folded, fluid, repulsion, time_step=TIME_STEP, seed=2)
edges = np.linspace(2.0, 10.0, 17)
along, across, distances, pairs = np.zeros((4, len(edges) - 1))
squares = 0.0
before = motion.positions
for _ in range(STEPS):
    i, j, vector, r = pm.neighbour_list("ijDd", before, BOX, edges[-1], half=True)
    motion.run(1)
    after = motion.positions
    kick = after - before
    before = after
    squares += (kick**2).sum()
    direction = vector / r[:, None]
    parallel = (kick[i] * direction).sum(axis=1) * (kick[j] * direction).sum(axis=1)
    perpendicular = ((kick[i] * kick[j]).sum(axis=1) - parallel) / 2
    along += np.histogram(r, edges, weights=parallel)[0]
    across += np.histogram(r, edges, weights=perpendicular)[0]
    distances += np.histogram(r, edges, weights=r)[0]
    pairs += np.histogram(r, edges)[0]
along, across = along / pairs / (2 * TIME_STEP), across / pairs / (2 * TIME_STEP)
distances = distances / pairs

# %%
# The images of a sphere slow it down. Hasimoto (1959) calculated by how much in a cubic box of length L:
# D = 1 − 2.837297 / L + 4π / (3 L³).

diffusion = squares / (6 * TIME_STEP * COUNT * STEPS)
expected = 1 - 2.837297 / LENGTH + 4 * np.pi / 3 / LENGTH**3
print(f"diffusion constant: {diffusion:.4f}, expected {expected:.4f}, and 1 for a sphere alone")
assert abs(diffusion / expected - 1) < 0.01, "diffusion is not that of a periodic box"

# %%
# Correlations against the mobility
# ---------------------------------
#
# The mobility of a pair depends on their distance and direction only. One force acts on a sphere at the origin, along
# each axis in turn. Spheres without forces lie around it in many directions, and their velocities are the mobility.

directions = random.normal(size=(400, 3))
directions /= np.linalg.norm(directions, axis=1)[:, None]
around = (distances[:, None, None] * directions).reshape(-1, 3)
mobility = RPY(BOX, accuracy=1e-6).set_positions(np.concatenate([[[0.0, 0.0, 0.0]], around]))
forces = np.zeros((3, len(around) + 1, 3))
forces[[0, 1, 2], 0, [0, 1, 2]] = 1.0
# By axis of the force, distance, direction of the neighbour, axis of the velocity.
blocks = mobility.velocity(forces)[:, 1:].reshape(3, len(distances), -1, 3)
along_expected = np.einsum("andb,da,db->n", blocks, directions, directions) / len(directions)
across_expected = (np.einsum("anda->n", blocks) / len(directions) - along_expected) / 2
error = max(np.abs(along - along_expected).max(), np.abs(across - across_expected).max())
print(f"largest difference of a correlation from the mobility: {error:.4f}, expected below 0.03")
assert error < 0.03, "correlations of kicks are not those of the mobility"

# %%
# Dashed lines are the mobility in infinite fluid. In the box correlations are smaller, because the mean flow is zero.

figure, (left, right) = plt.subplots(1, 2, figsize=(7.2, 3.7))
x = mixing.folded
slab = np.flatnonzero(np.abs(x[:, 1] - LENGTH / 2) < 2.5)
slab = slab[np.argsort(x[slab, 1])]
arrows = 5 * (motion.positions - x)[slab]
discs = EllipseCollection(
    *np.full((2, len(slab)), 2.0), 0, units="xy",
    offsets=x[slab][:, [0, 2]], offset_transform=left.transData,
    facecolor="#cfe3f2", edgecolor="0.5", linewidth=0.6,
)  # fmt: skip
left.add_collection(discs)
tails, shafts = x[slab][:, [0, 2]].T, arrows[:, [0, 2]].T
style = {"angles": "xy", "scale_units": "xy", "scale": 1, "color": "C1", "width": 0.007}
left.quiver(*tails, *shafts, **style)
left.set(aspect="equal", xlim=(0, LENGTH), ylim=(0, LENGTH))
left.set(xlabel="x / radius", ylabel="z / radius", title="Displacements in a slice, times five")
r = np.linspace(2, 10, 200)
right.plot(r, 1.5 / r - 1 / r**3, "--", color="C0", linewidth=1)
right.plot(r, 0.75 / r + 0.5 / r**3, "--", color="C1", linewidth=1)
right.plot(distances, along_expected, color="C0")
right.plot(distances, across_expected, color="C1")
right.plot(distances, along, "o", color="C0", markersize=5, label="along the line of centres")
right.plot(distances, across, "s", color="C1", markersize=5, label="across it")
right.axhline(0, color="0.7", linewidth=0.8, zorder=0)
right.set(xlim=(2, 10), xlabel="distance / radius", ylabel="correlation / (2 kT time)")
right.set_title("Kicks (symbols) and mobility (lines)")
right.legend()
plt.show()
