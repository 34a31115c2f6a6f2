# SPDX-License-Identifier: BSD-3-Clause
r"""
Learning charges from forces
============================

Which charges do atoms have, if only forces are known? :func:`particlemesh.apps.pme.torch.energy` is differentiable by
charges and twice by positions. So a model of charges learns from forces, over all images of a periodic box.

The charge of an atom depends on its surroundings:
:math:`q_i = \sum_c w_{s_i c} \sum_{j \in c} f(r_{ij})`, with a sum over neighbours of each species c. Forces
include the derivative of charges by positions, as they do in neural networks of charges.
"""

import matplotlib.pyplot as plt
import numpy as np
import torch

import particlemesh as pm
from particlemesh.apps.pme import PME
from particlemesh.apps.pme.torch import energy

torch.set_num_threads(1)  # in so small operations threads would wait for each other
torch.manual_seed(1)
rng = np.random.default_rng(1)

# %%
# Boxes and neighbours
# --------------------
#
# Each of six boxes has 27 atoms of two species near a lattice. The pairs within a radius come from
# :func:`particlemesh.neighbour_list`. Distances follow from positions in torch, so that charges are differentiable.

LENGTH, RADIUS, SIDE = 6.0, 3.0, 3
sites = (
    (np.stack(np.meshgrid(*[np.arange(SIDE)] * 3, indexing="ij"), -1).reshape(-1, 3) + 0.5)
    * LENGTH
    / SIDE
)
species = torch.arange(SIDE**3) % 2
boxes = [torch.tensor(sites + rng.uniform(-0.4, 0.4, sites.shape)) for _ in range(6)]
lists = [
    [torch.tensor(a).long() for a in pm.neighbour_list("ijS", x.numpy(), (LENGTH,) * 3, RADIUS)]
    for x in boxes
]
pme = PME((LENGTH,) * 3, accuracy=1e-4)
CENTRES = torch.linspace(1.2, 2.8, 4, dtype=torch.float64)


def features(x, pairs):
    """Return sums over neighbours (N, 2 species x 4 distances) of smooth functions of the distance."""
    i, j, shifts = pairs
    r = (x[j] - x[i] + LENGTH * shifts).norm(dim=1)
    near = (
        torch.exp(-4 * (r[:, None] - CENTRES) ** 2)
        * torch.cos(torch.pi * r / (2 * RADIUS))[:, None] ** 2
    )
    sums = torch.zeros(2, len(x), len(CENTRES), dtype=x.dtype)
    return (
        sums.index_put((species[j], i), near, accumulate=True).permute(1, 0, 2).reshape(len(x), -1)
    )


def charges(x, pairs, weights):
    """Return charges that sum to zero: ``weights`` are (2, 8) for the species of the atom."""
    q = (weights[species] * features(x, pairs)).sum(1)
    return q - q.mean()


def forces(x, pairs, weights):
    """Return minus the derivative of the energy by positions, also through the charges."""
    x = x.clone().requires_grad_()
    (slope,) = torch.autograd.grad(energy(pme, x, charges(x, pairs, weights)), x, create_graph=True)
    return -slope


# %%
# A reference
# -----------
#
# Weights that nobody tells the model give the forces. The last two boxes are kept for the test.

truth = 0.4 * torch.randn(2, 8, dtype=torch.float64) + torch.tensor([[0.3], [-0.3]])
given = [forces(x, pairs, truth).detach() for x, pairs in zip(boxes, lists, strict=True)]
TRAINING, TESTED = range(4), range(4, 6)
size = torch.cat([given[n] for n in TRAINING]).square().mean()

# %%
# Training
# --------
#
# L-BFGS follows the squared error of forces. Charges of both signs give the same forces: the first charge decides.

START = torch.tensor([[0.1], [-0.1]], dtype=torch.float64).repeat(1, 8)
weights = START.clone().requires_grad_()
optimizer = torch.optim.LBFGS(
    [weights],
    max_iter=40,
    line_search_fn="strong_wolfe",
    history_size=20,
    tolerance_grad=1e-10,
    tolerance_change=1e-14,
)
losses = []


def closure():
    """Return the loss, with its slope in ``weights.grad``."""
    optimizer.zero_grad()
    parts = [(forces(boxes[n], lists[n], weights) - given[n]).square().mean() for n in TRAINING]
    loss = sum(parts) / len(parts) / size
    loss.backward()
    losses.append(loss.item())
    return loss


optimizer.step(closure)


# %%
# The charges of the boxes that training has not seen are those of the reference.


def tested(w):
    """Return the charges of the test's boxes."""
    return torch.cat([charges(boxes[n], lists[n], w) for n in TESTED]).detach()


expected, learnt, first = tested(truth), tested(weights), tested(START)
sign = torch.sign(learnt[0] * expected[0])
worst = float((sign * learnt - expected).abs().max() / expected.std())
print(f"error of forces: {losses[0] ** 0.5:.1e} -> {min(losses) ** 0.5:.1e}")
print(f"largest error of a charge over the spread of charges: {worst:.1e}, expected below 1e-4")
assert worst < 1e-4, "the forces do not lead to the charges"

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(7.2, 3.5), layout="constrained")
left.semilogy(np.sqrt(losses))
left.set(xlabel="evaluation", xlim=(0, len(losses) - 1), title="Error of the forces, relative")
right.axline((0, 0), slope=1, color="0.7", linewidth=0.8, zorder=0)
right.plot(expected, first, ".", color="0.5", label="start")
for n, name in enumerate("AB"):
    mine = species.repeat(len(TESTED)) == n
    right.plot(
        expected[mine],
        (sign * learnt)[mine],
        "o",
        color=f"C{n}",
        markersize=4,
        label=f"learnt, species {name}",
    )
right.set(
    xlabel="charge of the reference",
    ylabel="charge of the model",
    title="Boxes that training has not seen",
)
right.legend()
plt.show()
