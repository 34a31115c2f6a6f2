# SPDX-License-Identifier: BSD-3-Clause
"""All pairs of points and images by brute force in float64: what searches of neighbours must find."""

import itertools

import numpy as np


def near(x, y, radius, rows=None, periodic=False, strict=False, turns=3):
    """Return ``{(i, j, shift): distance}`` of the images of points x[j] within a distance of the points y[i]."""
    x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
    axes = x.shape[1]
    rows = np.eye(axes) if rows is None else np.asarray(rows, np.float64)
    pairs = {}
    for shift in itertools.product(*(range(-turns, turns + 1) if p else (0,)
                                     for p in np.broadcast_to(periodic, axes))):  # fmt: skip
        d = np.linalg.norm(x[None] + np.array(shift) @ rows - y[:, None], axis=-1)
        for i, j in np.argwhere(d < radius if strict else d <= radius).tolist():
            pairs[i, j, shift] = d[i, j]
    return pairs


def nearest(pairs, k):
    """Return the pairs of which each i keeps k, by distance, then by j."""
    kept = []
    for _, group in itertools.groupby(sorted(pairs, key=lambda p: (p[0], pairs[p], p[1])), key=lambda p: p[0]):
        kept += list(group)[:k]
    return kept
