# SPDX-License-Identifier: BSD-3-Clause
r"""
A network that passes messages
==============================

Learned potentials see atoms as a graph: neighbours within a cutoff are its edges. Here a small network learns the
forces in a hot Lennard-Jones crystal. The list of neighbours is a step of torch's graph, so that forces are derivatives
of the energy. Learning takes second derivatives. At the end the network is compiled and exported.

Each atom has a vector :math:`h_i`. In a round every neighbour j within the cutoff R sends a message, and the sum of
messages changes the atom's vector:

.. math:: h_i \leftarrow h_i + g\left(\sum_{j,\, d_{ij} < R} f(d_{ij}) \odot U h_j\right)

After two rounds the energy is a sum over atoms of a function of :math:`h_i`.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import torch

from particlemesh.autograd.torch import neighbour_list

torch.set_num_threads(1)
torch.manual_seed(1)
CUTOFF = 1.8  # in units of the atoms' diameter: the first two shells

# %%
# The crystal
# -----------
#
# Atoms of a face-centred lattice are displaced at random. The pair energy goes to zero smoothly at the cutoff. Its
# forces are what the network has to learn, and it knows nothing of pairs or of Lennard and Jones.

SIDE = 1.58  # of a cell of four atoms


def crystal(cells, heat, generator):
    """Return positions (4 cells³, 3) of a crystal and its lattice vectors (3, 3)."""
    corner = torch.cartesian_prod(*[torch.arange(cells, dtype=torch.float32)] * 3)
    base = torch.tensor([[0, 0, 0], [0.5, 0.5, 0], [0.5, 0, 0.5], [0, 0.5, 0.5]])
    x = SIDE * (corner[:, None] + base).reshape(-1, 3)
    return x + heat * torch.randn(x.shape, generator=generator), SIDE * cells * torch.eye(3)


def smooth(d):
    """Return the factor that ends an interaction at the cutoff."""
    return (1 - (d / CUTOFF) ** 2).clamp(min=0) ** 2


class LennardJones(torch.nn.Module):
    """The energy of atoms in a periodic box."""

    def forward(self, x, cell):
        """Return half the sum over all pairs, since a list has both ends of each."""
        d = neighbour_list("d", x, cell, CUTOFF)
        return 2 * ((d**-12 - d**-6) * smooth(d)).sum()


def forces(energy, x, *others):
    """Return minus the derivatives of an energy by positions."""
    x = x.detach().requires_grad_()
    return -torch.autograd.grad(energy(x, *others), x)[0]


# %%
# A compiled function has the same forces: the list is one operator, of which torch knows the derivatives. The backend
# ``aot_eager`` needs no C++ compiler; the default one also fuses the arithmetic around the list.

generator = torch.Generator().manual_seed(2)
truth = LennardJones()
x, cell = crystal(3, 0.04, generator)
compiled = torch.compile(truth, fullgraph=True, backend="aot_eager")
right = forces(truth, x, cell)
difference = (forces(compiled, x, cell) - right).abs().max() / right.abs().max()
print(f"compiled: forces differ by {difference:.0e} of the largest, expected below 1e-5")
assert difference < 1e-5, "the compiled function has other forces"

# %%
# The network
# -----------
#
# Distances become sixteen bell curves. ``i`` and ``j`` are plain indices; only ``d`` has derivatives.

FEATURES = 16


class Messages(torch.nn.Module):
    """Two rounds of messages; the energy is the sum of what all atoms say at the end."""

    def __init__(self):
        super().__init__()
        self.register_buffer("centres", torch.linspace(0.85, CUTOFF, 16))
        self.start = torch.nn.Parameter(torch.randn(FEATURES))
        self.filters = torch.nn.ModuleList(
            torch.nn.Linear(16, FEATURES, bias=False) for _ in range(2)
        )
        self.mixers = torch.nn.ModuleList(torch.nn.Linear(FEATURES, FEATURES) for _ in range(2))
        self.updates = torch.nn.ModuleList(
            torch.nn.Sequential(
                torch.nn.Linear(FEATURES, FEATURES),
                torch.nn.SiLU(),
                torch.nn.Linear(FEATURES, FEATURES),
            )
            for _ in range(2)
        )
        self.readout = torch.nn.Sequential(
            torch.nn.Linear(FEATURES, 16), torch.nn.SiLU(), torch.nn.Linear(16, 1)
        )

    def forward(self, x, cell):
        """Return the energy of atoms in a periodic box."""
        return self.of_edges(x.shape[0], *neighbour_list("ijd", x, cell, CUTOFF))

    def of_edges(self, count, i, j, d):
        """Return the energy of a graph."""
        bells = torch.exp(-((d[:, None] - self.centres) ** 2) / 0.01) * smooth(d)[:, None]
        h = self.start.expand(count, FEATURES)
        for weigh, mix, update in zip(self.filters, self.mixers, self.updates, strict=True):
            sent = weigh(bells) * mix(h).index_select(0, j)
            h = h + update(torch.zeros_like(h).index_add(0, i, sent) / 4)
        return self.readout(h).sum()


# %%
# Eight crystals at a time are one graph: ``system`` keeps them apart, and one search serves all. The loss compares
# forces, which are derivatives already, so that each step of learning differentiates the list twice.

BATCH, STEPS = 8, 500
network = Messages()
optimizer = torch.optim.Adam(network.parameters(), lr=1e-2)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
boxes = cell.expand(BATCH, 3, 3)
system = torch.arange(BATCH, dtype=torch.int32).repeat_interleave(len(x))
losses = []
for _ in range(STEPS):
    batch = torch.cat([crystal(3, 0.04, generator)[0] for _ in range(BATCH)]).requires_grad_()
    edges = neighbour_list("ijd", batch, (1.0, 1.0, 1.0), CUTOFF, system=system, boxes=boxes)
    d = edges[2]
    energy = 2 * ((d**-12 - d**-6) * smooth(d)).sum()
    aim = torch.autograd.grad(energy, batch, retain_graph=True)[0]
    learned = torch.autograd.grad(network.of_edges(len(batch), *edges), batch, create_graph=True)[0]
    loss = (learned - aim).square().mean() / aim.square().mean()
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(network.parameters(), 0.5)
    optimizer.step()
    schedule.step()
    losses.append(loss.sqrt().item())

# %%
# Exported, for a larger crystal
# ------------------------------
#
# The exported program is a file without the network's Python code. Its number of atoms is free: it gets a crystal of
# eight times as many atoms, displaced in another way.

shapes = ({0: torch.export.Dim("atoms")}, None)
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "messages.pt2"
    torch.export.save(torch.export.export(network, (x, cell), dynamic_shapes=shapes), path)
    exported = torch.export.load(path).module()

large, its_cell = crystal(6, 0.04, torch.Generator().manual_seed(3))
right, learned = (forces(energy, large, its_cell) for energy in (truth, exported))
error = ((learned - right).norm() / right.norm()).item()
print(
    f"forces on {len(large)} atoms never seen: error {error:.3f} of their size, expected below 0.08"
)
assert error < 0.08, "the network has not learned the forces"

# %%
figure, (left, middle) = plt.subplots(1, 2, figsize=(7.2, 3.5), width_ratios=(1.15, 1))
layer = (large[:, 2] - SIDE).abs() < 0.3
px, py = large[layer, :2].T
for shown, color, width, label in (
    (right, "C0", 0.012, "Lennard-Jones"),
    (learned, "C1", 0.005, "learned"),
):
    fx, fy = shown[layer, :2].T
    left.quiver(px, py, fx, fy, color=color, width=width, scale=200, label=label)
left.plot(px, py, "o", color="0.75", markersize=4, zorder=0)
left.set(aspect="equal", xlabel="x / diameter", ylabel="y / diameter", ylim=(-0.8, 10.6))
left.set_title("Forces in a layer of the crystal")
left.legend(loc="upper center", ncols=2)
middle.semilogy(losses)
middle.axhline(error, color="C1", linestyle="--", label="larger crystal, exported")
middle.set(xlabel="step", title="Error of forces / their size")
middle.legend()
plt.show()
