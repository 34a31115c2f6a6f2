# SPDX-License-Identifier: BSD-3-Clause
r"""
Learning positions from a density
=================================

Where are the particles, if only their density on a mesh is known? Spreading is differentiable by the positions: torch
follows the slope of the difference between two densities. 81 particles leave a lattice and find their places.

The loss is :math:`\sum_m |G_w * (\rho - \rho_\mathrm{given})|^2`, a sum over nodes. The Gaussian :math:`G_w` of width w
lets particles feel differences that are farther away than their window.
"""

import matplotlib.pyplot as plt
import numpy as np
import torch
from scipy.optimize import linear_sum_assignment

import particlemesh as pm

# %%
# The density
# -----------
#
# The particles lie on a spiral. Only the density of their unit masses goes on from here.

torch.set_num_threads(1)  # in so small operations threads would wait for each other
SIDE, NODES = 9, 48
turn = np.sqrt(np.linspace(0.03, 1, SIDE**2))
angle = 6 * np.pi * turn
spiral = 0.5 + 0.42 * turn[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)

mesh = pm.Mesh((NODES, NODES), (1.0, 1.0))
plan = pm.Plan(mesh, "bspline4")
masses = torch.ones(SIDE**2, dtype=torch.float64)
given = plan.set_positions(torch.tensor(spiral)).spread(masses)

# %%
# The loss
# --------
#
# With tensors that require grad, the plan's calls are steps of torch's graph. The Gaussian acts in Fourier space.

k2 = torch.tensor(sum(k**2 for k in mesh.wavenumbers(real=True)))


def loss(x, width):
    """Return the squared difference of both densities, smoothed over ``width``."""
    difference = plan.set_positions(x).spread(masses) - given
    modes = torch.fft.rfftn(difference) * torch.exp(-k2 * width**2 / 2)
    return torch.fft.irfftn(modes, s=difference.shape).square().sum()


# %%
# From coarse to fine
# -------------------
#
# Gradient descent with momentum starts from a lattice, with a little disorder. The width of the Gaussian shrinks, and
# the steps shrink with it. Then L-BFGS follows the loss without a Gaussian down to rounding.

STEPS = 400
sites = 0.15 + 0.7 * (np.arange(SIDE) + 0.5) / SIDE
lattice = np.stack(np.meshgrid(sites, sites, indexing="ij"), axis=-1).reshape(-1, 2)
start = lattice + np.random.default_rng(1).normal(0, 0.002, lattice.shape)
x = torch.tensor(start, requires_grad=True)
path, motion = [start], torch.zeros_like(x)
for width in np.geomspace(0.15, 0.02, STEPS):
    (slope,) = torch.autograd.grad(loss(x, width), x)
    motion = 0.8 * motion - 0.004 * width * slope / slope.norm(dim=1).square().mean().sqrt()
    with torch.no_grad():
        x += motion
    path.append(x.detach().numpy().copy())

optimizer = torch.optim.LBFGS(
    [x], max_iter=200, line_search_fn="strong_wolfe", history_size=50,
    tolerance_grad=1e-12, tolerance_change=1e-15,
)  # fmt: skip


def closure():
    """Return the loss, with its slope in ``x.grad``."""
    path.append(x.detach().numpy().copy())
    optimizer.zero_grad()
    value = loss(x, 0.0)
    value.backward()
    return value


optimizer.step(closure)
path.append(x.detach().numpy().copy())

# %%
# Particles have no names. Learnt positions and the spiral are matched so that the sum of distances is least.


def errors(learnt):
    """Return the distance of each particle of the spiral from its learnt position."""
    distances = np.linalg.norm(spiral[:, None] - learnt, axis=-1)
    return distances[linear_sum_assignment(distances)]


largest = [errors(learnt).max() for learnt in path]
print(f"largest error of a position: {largest[-1]:.1e}, expected below 1e-6")
assert largest[-1] < 1e-6, "the density does not lead to the positions"

# %%
path = np.array(path)
figure, (left, right) = plt.subplots(1, 2, figsize=(7.2, 3.7), width_ratios=(1.2, 1))
edges = np.array([0, 1, 0, 1]) - 0.5 / NODES  # of the squares around nodes
left.imshow((given.T / given.max()).numpy(), extent=edges, cmap="Greys", vmax=1.5)
left.plot(path[:, :, 0], path[:, :, 1], color="C0", linewidth=0.9)
left.plot(*path[0].T, ".", color="C0", markersize=5, label="start")
left.plot(*path[-1].T, "o", color="C1", markersize=4, label="learnt")
left.set(aspect="equal", xlim=(0.02, 0.98), ylim=(0.02, 0.98), xlabel="x", ylabel="y")
left.set_title("Paths over the given density")
left.legend(ncols=2, loc="upper left")
right.semilogy(largest)
right.axvline(STEPS, color="0.7", linewidth=0.8, zorder=0)
right.text(STEPS - 10, 1e-7, "L-BFGS from here on", ha="right")
right.set(xlim=(0, len(largest) - 1), xlabel="step", title="Largest error of a position")
plt.show()
