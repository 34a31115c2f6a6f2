# SPDX-License-Identifier: BSD-3-Clause
"""The weight that each particle loses beyond open faces, computed on the host."""

from __future__ import annotations

import numpy as np

from particlemesh.particles.systems import Systems
from particlemesh.particles.workspace import Workspace


def lost_fraction(workspace: Workspace, systems: Systems | None = None, outside: float = 0.0) -> np.ndarray:
    """Return for each particle the sum of its weights at nodes outside the field; ``outside`` for bad particles."""
    particles, count = workspace.particles, workspace.count
    node = workspace.backend.download(particles.node)[:, :count]
    fraction = workspace.backend.download(particles.fraction)[:, :count].astype(np.float64)
    whole = np.ones(count)
    inside = np.ones(count)
    for a, axis in enumerate(workspace.axes):
        if axis.support == 1 and axis.size == 1 and axis.scale == 0:
            continue  # a missing axis
        weights = workspace.window.weights(fraction[a])
        at = node[a][:, None].astype(np.int64) + np.arange(axis.support)
        begin, end = 0, axis.size
        if systems is not None and a == 3 - workspace.mesh.ndim:
            at -= (node[a][:, None] - systems.axes[a].low) // systems.pitch * systems.pitch
            begin, end = systems.kept
        exists = np.ones_like(at, bool) if axis.wraps else (at >= begin) & (at < end)
        whole *= weights.sum(-1)
        # Where every node exists both sums are the same number, so that the loss is exactly zero.
        inside *= np.where(exists.all(-1), weights.sum(-1), (weights * exists).sum(-1))
    weighted = node[2] != -(2**31)
    return np.where(weighted, whole - inside, outside)
