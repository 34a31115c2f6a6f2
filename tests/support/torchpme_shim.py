# SPDX-License-Identifier: BSD-3-Clause
"""A pytest plugin: torch-pme's `MeshInterpolator` spreads and interpolates with particlemesh, for torch-pme's tests.

The P3M windows are B-splines. Lagrange's are polynomials through the nodes of a particle's stencil.
"""

from fractions import Fraction

from torchpme.lib import MeshInterpolator

import particlemesh as pm
import particlemesh.autograd.torch as autograd


def lagrange(support):
    """Window of polynomials in the centred fraction that are 1 at one node of the stencil and 0 at the others."""
    nodes = [Fraction(2 * j - support + 1, 2) for j in range(support)]
    pieces = []
    for node in nodes:
        piece = [Fraction(1)]
        for other in nodes:
            if other != node:  # times (z - other) / (own - other)
                raised, scaled = [Fraction(0), *piece], [*(-other * c for c in piece), Fraction(0)]
                piece = [(a + b) / (node - other) for a, b in zip(raised, scaled, strict=True)]
        pieces.append(tuple(piece))
    return pm.Window(f"lagrange{support}", pieces)


def compute_weights(self, positions):
    if positions.device != self._device:
        raise ValueError(f"`positions` device {positions.device} is not the same as instance device {self._device}")
    if positions.shape != (len(positions), 3):
        raise ValueError(f"shape {list(positions.shape)} of `positions` has to be (N, 3)")
    support = self.interpolation_nodes
    window = pm.bspline(support) if self.method == "P3M" else lagrange(support)
    mesh = pm.Mesh(tuple(int(n) for n in self.ns_mesh), pm.Box(self.cell.detach().double().cpu().numpy()))
    self.call = (positions, mesh), {"window": window, "cell": self.cell}


def points_to_mesh(self, particle_weights):
    if particle_weights.device != self._device:
        raise ValueError(
            f"`particle_weights` device {particle_weights.device} is not the same as instance device {self._device}"
        )
    if particle_weights.dim() != 2:
        raise ValueError(f"`particle_weights` of dimension {particle_weights.dim()} has to be of dimension 2")
    (positions, mesh), options = self.call
    return autograd.spread(positions, particle_weights.T, mesh, **options)


def mesh_to_points(self, mesh_vals):
    if mesh_vals.dim() != 4:
        raise ValueError(f"`mesh_vals` of dimension {mesh_vals.dim()} has to be of dimension 4")
    (positions, mesh), options = self.call
    return autograd.interpolate(mesh_vals, positions, mesh, **options).T


MeshInterpolator.compute_weights = compute_weights
MeshInterpolator.points_to_mesh = points_to_mesh
MeshInterpolator.mesh_to_points = mesh_to_points
