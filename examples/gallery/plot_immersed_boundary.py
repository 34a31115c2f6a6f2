# SPDX-License-Identifier: BSD-3-Clause
"""
Immersed boundaries in Stokes flow
==================================

A rigid cylinder and an elastic ring in a viscous fluid, by Peskin's immersed boundary method. The drag of the cylinder
is compared with a series for square arrays, and the area in the ring with its start.

Markers on the boundary spread forces to a mesh with the window ``peskin4``. A solver in Fourier space finds the flow,
and markers interpolate their velocities from it. The box is periodic with edges of length 1, and the viscosity is 1.
"""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.collections import LineCollection
from scipy.sparse.linalg import LinearOperator, cg

import particlemesh as pm
from particlemesh.fourier import VectorSolver


def stokes(nodes):
    """Return the operator from forces on markers to velocities of markers."""
    mesh = pm.Mesh((nodes, nodes), (1.0, 1.0))
    # The transverse part has no divergence. The mean velocity stays zero: a pressure gradient balances all forces.
    return VectorSolver(mesh, "peskin4", lambda k2: 1 / k2, onto="transverse", compensation=None)


def ring(radius, angles):
    """Return markers (N, 2) around the centre of the box."""
    return 0.5 + np.stack([radius * np.cos(angles), radius * np.sin(angles)], axis=1)


# %%
# The drag of a cylinder
# ----------------------
#
# All markers of a rigid ring move at velocity 1 along x. The method of conjugate gradients finds their forces: the
# operator is symmetric and positive, as interpolation is the adjoint of spreading. Markers are 1.5 mesh spacings apart.

FRACTION = 0.1  # of the box, in the cylinder
RADIUS = np.sqrt(FRACTION / np.pi)


def rigid(nodes):
    """Return the solver, the markers and the forces on them."""
    count = round(2 * np.pi * RADIUS * nodes / 1.5)
    markers = ring(RADIUS, 2 * np.pi * np.arange(count) / count)
    solver = stokes(nodes).set_positions(markers)
    size = 2 * count

    def product(forces):
        return solver.field(forces.reshape(2, count)).ravel()

    operator = LinearOperator((size, size), product, dtype=np.float64)
    forces, failure = cg(operator, np.repeat([1.0, 0.0], count), rtol=1e-5)
    assert failure == 0, "the iteration for the forces does not converge"
    return solver, markers, forces.reshape(2, count)


drags = {}
for nodes in (64, 128, 256):
    solver, markers, forces = rigid(nodes)
    drags[nodes] = forces[0].sum()
    print(f"{nodes} nodes: drag {drags[nodes]:.2f}")

# %%
# The window makes the cylinder thicker by a part of the mesh spacing, so that the error is of first order. A parabola
# through the three drags leads to spacing 0. The series is that of Sangani and Acrivos (1982).

c = FRACTION
series = 4 * np.pi / (-0.5 * np.log(c) - 0.738 + c - 0.887 * c**2 + 2.038 * c**3)
drag = np.polyfit([1 / nodes for nodes in drags], list(drags.values()), 2)[-1]
print(f"drag at spacing 0: {drag:.2f}, expected {series:.2f}")
assert abs(drag / series - 1) < 0.01, "the drag is not that of a square array of cylinders"

# %%
# Tracers are markers without forces. They show the flow. Reversed and seen from the cylinder, it runs along x.

PLACES = 96
edge = np.arange(PLACES) / (PLACES - 1)
tracers = np.stack(np.meshgrid(edge, edge, indexing="ij"), axis=-1).reshape(-1, 2)
solver.set_positions(np.concatenate([markers, tracers]))
flow = solver.field(np.pad(forces, ((0, 0), (0, len(tracers)))))[:, len(markers) :]
flow = (np.array([[1.0], [0.0]]) - flow).reshape(2, PLACES, PLACES)
speed = np.hypot(*flow)
inside = np.linalg.norm(tracers - 0.5, axis=1).reshape(PLACES, PLACES) < RADIUS
flow[:, inside] = np.nan  # no lines there

# %%
# An elastic ring
# ---------------
#
# Springs of rest length 0 join neighbouring markers. The ring pulls itself into a circle, which is the shape of least
# length around its area. The fluid inside cannot leave. Steps are those of the midpoint rule.

COUNT, STEPS, TIME_STEP, STIFFNESS = 400, 400, 1e-3, 2.5


def velocity(x):
    """Return the velocities (N, 2) of markers."""
    pull = STIFFNESS * COUNT * (np.roll(x, 1, axis=0) - 2 * x + np.roll(x, -1, axis=0))
    return solver.set_positions(x).field(np.ascontiguousarray(pull.T)).T


def area(x):
    """Return the area of a polygon."""
    after = np.roll(x, -1, axis=0)
    return 0.5 * (x[:, 0] * after[:, 1] - x[:, 1] * after[:, 0]).sum()


angles = 2 * np.pi * np.arange(COUNT) / COUNT
x = ring(0.24 * (1 + 0.45 * np.cos(5 * angles)), angles)
solver = stokes(128)
shapes = [x]
for _ in range(STEPS):
    x = x + TIME_STEP * velocity(x + 0.5 * TIME_STEP * velocity(x))
    shapes.append(x)

radii = np.linalg.norm(x - 0.5, axis=1)
print(f"radius of the ring: {radii.min():.4f} to {radii.max():.4f}")
print(f"area in the ring: {area(x):.5f}, expected {area(shapes[0]):.5f}")
assert abs(area(x) / area(shapes[0]) - 1) < 0.01, "the ring leaks"
assert np.ptp(radii) < 0.01 * radii.mean(), "the ring is not a circle at the end"

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(7.2, 4.5))
image = left.imshow(speed.T, extent=(0, 1, 0, 1), vmin=0, interpolation="bilinear")
style = {"color": "white", "linewidth": 0.7, "arrowsize": 0.7, "density": 0.9}
left.streamplot(edge, edge, flow[0].T, flow[1].T, **style)
left.fill(*markers.T, facecolor="0.92", edgecolor="0.2")
left.set(xlim=(0, 1), ylim=(0, 1), xlabel="x", ylabel="y", title="Flow past an array of cylinders")
figure.colorbar(image, ax=left, label="speed / speed of the cylinder", location="bottom")
chosen = STEPS * np.arange(17) ** 2 // 16**2
closed = [np.append(shapes[n], shapes[n][:1], axis=0) for n in chosen]
lines = LineCollection(closed, array=TIME_STEP * chosen, linewidth=1.2)
right.add_collection(lines)
right.set(aspect="equal", xlim=(0, 1), ylim=(0, 1), xlabel="x", ylabel="y")
right.set_title("A star becomes a circle")
figure.colorbar(lines, ax=right, label="time", location="bottom")
plt.show()
