# SPDX-License-Identifier: BSD-3-Clause
r"""
Charge density and Ewald sum of salt water
==========================================

A box of 3182 atoms, water with sodium and chloride, comes with the library. You draw its charge density and its
potential, and compare the energy and forces of particle-mesh Ewald with a converged Ewald sum.
"""

from importlib.resources import files

import matplotlib.pyplot as plt
import numpy as np

import particlemesh as pm
from particlemesh.apps.pme import PME
from particlemesh.fourier import Transform

COULOMB = 138.93545764438198  # kJ/mol nm / e²
VOLT = 0.010364270  # of 1 kJ/mol/e

water = np.load(str(files("particlemesh") / "data" / "water.npz"))
positions, charges, box = water["positions"], water["charges"], water["box"]

# %%
# Density and potential
# ---------------------
# The charges are drawn as Gaussians with a standard deviation of :math:`1 / (\sqrt{2} \alpha)` = 0.07 nm. A
# :class:`~particlemesh.fourier.Transform` makes them from the density on the mesh, and solves Poisson's equation. The
# slice goes between the sodium ion and the chloride ion whose heights are most alike.

mesh = pm.Mesh((96, 96, 96), box)
transform = Transform(mesh, "bspline8")
spread = pm.spread(positions, charges, mesh, window="bspline8") / mesh.node_volume
green = transform.green("ewald", alpha=10.0, compensation="spread")
potential = 4 * np.pi * COULOMB * VOLT * transform.apply(spread, green)
density = transform.apply(spread, transform.k2 * green)

sodium, chloride = (positions[water["elements"] == name] for name in ("Na", "Cl"))
apart = np.abs(sodium[:, None, 2] - chloride[:, 2])
i, j = np.unravel_index(apart.argmin(), apart.shape)
height = (sodium[i, 2] + chloride[j, 2]) / 2
node = round(height / mesh.spacing[2]) % mesh.shape[2]

fig, axes = plt.subplots(1, 2, figsize=(7.2, 4.2), sharey=True)
for ax, field, title in (
    (axes[0], density, "Charge density / (e/nm³)"),
    (axes[1], potential, "Electrostatic potential / V"),
):
    limit = np.quantile(np.abs(field[:, :, node]), 0.985)
    colours = {"cmap": "RdBu_r", "vmin": -limit, "vmax": limit, "interpolation": "bicubic"}
    image = ax.imshow(field[:, :, node].T, extent=(0, box[0, 0], 0, box[1, 1]), **colours)
    for name, ions in (("Na⁺", sodium), ("Cl⁻", chloride)):
        for x, y, _ in ions[np.abs(ions[:, 2] - height) < 0.11]:
            ax.text(x, y, name, color="white", fontsize=8, ha="center", va="center")
    ax.set(title=title, xlabel="x / nm", xticks=range(4), yticks=range(4))
    fig.colorbar(image, ax=ax, location="bottom", extend="both", shrink=0.9)
axes[0].set_ylabel("y / nm")
plt.show()

# %%
# Energy and forces
# -----------------
# :class:`~particlemesh.apps.pme.PME` chooses the cutoff, the splitting and the mesh from the accuracy: the
# root-mean-square error of the forces, relative to the force of two typical charges at their mean distance.

reference, forces = float(water["reference_energy"]), water["reference_forces"]
distance = (np.linalg.det(box) / len(charges)) ** (1 / 3)
typical = COULOMB * np.mean(charges**2) / distance**2
accuracies = 10.0 ** -np.arange(2, 8)
errors = []
for accuracy in accuracies:
    pme = PME(box, accuracy, window="bspline8", coulomb_constant=COULOMB)
    result = pme(positions, charges, virial=False)
    errors.append(np.sqrt(((result.forces - forces) ** 2).sum(1).mean()) / typical)
    print(f"accuracy {accuracy:.0e}: forces {errors[-1]:.1e}, {pme!r}")

fig, ax = plt.subplots(figsize=(7.2, 3.2))
ax.loglog(accuracies, accuracies, color="0.6", label="error = accuracy")
ax.loglog(accuracies, errors, "o", label="measured")
ax.set(title="Error of the forces", xlabel="accuracy asked for", ylabel="error / typical force")
ax.invert_xaxis()
ax.legend()
plt.show()

energy = float(result.energy)
print(f"energy: {energy:.4f} kJ/mol, expected {reference:.4f} kJ/mol")
assert abs(energy / reference - 1) < 1e-8, "the energy is not that of the Ewald sum"
assert (np.array(errors) < 2 * accuracies).all(), "forces are less accurate than asked for"
