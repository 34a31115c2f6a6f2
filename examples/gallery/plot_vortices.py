# SPDX-License-Identifier: BSD-3-Clause
r"""
Vortex sheets that roll up
==========================

A vortex method moves particles with the flow that their own circulation drives. Two thin shear layers in a periodic box
roll up. Taylor–Green vortices, whose decay is known, and the balance of energy check the method.
"""

import matplotlib.pyplot as plt
import numpy as np

import particlemesh as pm
from particlemesh.fourier import Solver, Transform

# %%
# A step of the method
# --------------------
# The vorticity :math:`\omega = \partial_x u_y - \partial_y u_x` is carried by the flow and diffuses. The stream
# function solves :math:`-\nabla^2 \psi = \omega`, and the velocity is :math:`(\partial_y \psi, -\partial_x \psi)`.
# One step
#
# - moves particles by the midpoint rule, with the velocity of a :class:`~particlemesh.fourier.Solver`,
# - replaces them by particles at the nodes: the window M'4 conserves circulation and its first two moments,
# - multiplies each mode by its exact decay through viscosity.
#
# There is no limit on the step by the spacing of nodes: here particles pass up to two nodes in a step.


class Flow:
    """Vorticity on a periodic square mesh, moved by particles."""

    def __init__(self, nodes, length, viscosity, step):
        self.mesh = pm.Mesh((nodes, nodes), (length, length))
        self.solver = Solver(self.mesh, "m4prime", green="poisson", compensation="continuous")
        self.transform = Transform(self.mesh)
        self.decay = np.exp(-viscosity * self.transform.k2 * step)
        self.step, self.viscosity = step, viscosity
        self.x, self.y = np.meshgrid(self.mesh.nodes(0), self.mesh.nodes(1), indexing="ij")
        self.nodes = np.stack([self.x.ravel(), self.y.ravel()], axis=-1)

    def velocity(self, positions, circulation):
        """Return the velocity (N, 2) of particles."""
        slope = self.solver.set_positions(positions).gradient(circulation)
        return np.stack([slope[:, 1], -slope[:, 0]], axis=-1)

    def advance(self, vorticity):
        """Return the vorticity on the mesh after one step."""
        circulation = vorticity.ravel() * self.mesh.node_volume
        half = self.nodes + self.step / 2 * self.velocity(self.nodes, circulation)
        moved = self.nodes + self.step * self.velocity(half, circulation)
        remeshed = pm.spread(moved, circulation, self.mesh, window="m4prime")
        return self.transform.apply(remeshed / self.mesh.node_volume, self.decay)

    def energy_and_enstrophy(self, vorticity):
        """Return the integrals of half of the velocity squared and of the vorticity squared."""
        stream = self.transform.apply(vorticity, self.transform.green("poisson"))
        volume = self.mesh.node_volume
        return (vorticity * stream).sum() * volume / 2, (vorticity**2).sum() * volume


# %%
# Taylor–Green vortices
# ---------------------
# The vorticity :math:`2 \cos(x) \cos(y)` keeps its shape and decays as :math:`e^{-2 \nu t}`.

viscosity, end = 0.02, 10.0
vortices = Flow(nodes=64, length=2 * np.pi, viscosity=viscosity, step=0.1)
start = vorticity = 2 * np.cos(vortices.x) * np.cos(vortices.y)
for _ in range(100):
    vorticity = vortices.advance(vorticity)
exact = np.exp(-2 * viscosity * end) * start
difference = np.linalg.norm(vorticity - exact) / np.linalg.norm(exact)

# %%
# Two shear layers
# ----------------
# Fluid flows to the right in the middle and to the left outside, so that there are two layers of vorticity. A small
# wave across the layers grows and rolls them up.

flow = Flow(nodes=192, length=1.0, viscosity=2e-4, step=0.01)
lower, upper = (1 - np.tanh(30 * (flow.y - place)) ** 2 for place in (0.25, 0.75))
vorticity = 30 * (upper - lower) + 0.05 * 2 * np.pi * np.sin(2 * np.pi * flow.x)
circulation = [vorticity.sum() * flow.mesh.node_volume]
history, shown = [flow.energy_and_enstrophy(vorticity)], {}
for n in range(1, 121):
    vorticity = flow.advance(vorticity)
    history.append(flow.energy_and_enstrophy(vorticity))
    circulation.append(vorticity.sum() * flow.mesh.node_volume)
    if n in (60, 90, 120):
        shown[n * flow.step] = vorticity

fig, axes = plt.subplots(1, 3, figsize=(7.2, 3.4), sharey=True)
colours = {"cmap": "RdBu_r", "vmin": -30, "vmax": 30, "interpolation": "bicubic"}
for ax, (time, field) in zip(axes, shown.items(), strict=True):
    image = ax.imshow(field.T, extent=(0, 1, 0, 1), **colours)
    ax.set(title=f"time {time:.1f}", xlabel="x", xticks=(0, 0.5, 1), yticks=(0, 0.5, 1))
axes[0].set_ylabel("y")
fig.colorbar(image, ax=axes, label="vorticity", location="bottom", shrink=0.5, aspect=40)
plt.show()

# %%
# Viscosity takes energy at the rate of :math:`\nu` times the enstrophy, the integral of :math:`\omega^2`. The shear
# layers lose this energy, and circulation is conserved to rounding.

energy, enstrophy = np.array(history).T
lost = energy[0] - energy[-1]
viscous = flow.viscosity * np.trapezoid(enstrophy, dx=flow.step)
drift = np.ptp(circulation) / (np.abs(vorticity).sum() * flow.mesh.node_volume)
print(f"Taylor-Green vorticity: relative error {difference:.4f}, expected below 0.01")
print(f"energy lost by the layers: {lost:.5f}, expected {viscous:.5f}")
print(f"change of circulation: {drift:.0e} of the whole, expected below 1e-12")
assert difference < 0.01, "Taylor-Green vortices do not decay as the exact solution"
assert abs(lost / viscous - 1) < 0.02, "the energy lost is not that of viscosity"
assert drift < 1e-12, "remeshing does not conserve circulation"
