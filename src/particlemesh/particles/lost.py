# SPDX-License-Identifier: BSD-3-Clause
"""The weight that each particle loses beyond open faces, computed on the host."""

from __future__ import annotations

import numpy as np

from particlemesh.particles.workspace import Workspace


def lost_fraction(workspace: Workspace) -> np.ndarray:
    """Return for each particle the sum of its weights at nodes outside the field."""
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
        exists = np.ones_like(at, bool) if axis.wraps else (at >= 0) & (at < axis.size)
        whole *= weights.sum(-1)
        # Where every node exists both sums are the same number, so that the loss is exactly zero.
        inside *= np.where(exists.all(-1), weights.sum(-1), (weights * exists).sum(-1))
    weighted = node[2] != -(2**31)
    return np.where(weighted, whole - inside, 0.0)
