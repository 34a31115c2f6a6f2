# SPDX-License-Identifier: BSD-3-Clause
"""Cutoff, splitting, window and mesh of sums of r**-6 from a target accuracy."""

from __future__ import annotations

import math

import numpy as np

import particlemesh as pm
from particlemesh.apps.pme import parameters
from particlemesh.fourier import good_size


def real_error(beta: float, cutoff: float, distance: float) -> float:
    """Return the root mean square of the forces beyond the cutoff, over that of a pair at the mean distance.

    Particles at random places, of ``distance**-3`` per volume, pull with the force of the real-space part.
    """
    x2 = (beta * cutoff) ** 2
    force = math.exp(-min(x2, 700.0)) * (6 + 6 * x2 + 3 * x2**2 + x2**3) / cutoff**7
    return force * math.sqrt(math.pi / x2) * (cutoff / distance) ** 1.5 * distance**7 / 6


def splitting_for(error: float, cutoff: float, distance: float) -> float:
    """Return the splitting with which the cutoff makes an error."""
    low, high = 0.1 / cutoff, 26.0 / cutoff
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if real_error(middle, cutoff, distance) > error else (low, middle)
    return high


def mesh_share(beta: float, distance: float) -> float:
    """Return the error of the mesh over that of charges with the same splitting, at most.

    At every wave vector the transform is at most that of charges times ``sqrt(pi) beta**5 / 2``.
    """
    return math.sqrt(math.pi) * (beta * distance) ** 5 / 12


def choose(
    box: pm.Box, count: int, accuracy: float, costs: parameters.Costs, *, cutoff: float | None,
    splitting: float | None, shape: tuple[int, ...] | None, window: pm.Window | None,
) -> parameters.Parameters:  # fmt: skip
    """Return the cheapest parameters that reach an accuracy; those given are kept."""
    distance = (box.volume / max(count, 1)) ** (1 / 3)
    lengths = box.lengths  # the window is a function of the product of wave and lattice vectors
    share, best = accuracy / math.sqrt(2), None
    reach = max(2 * distance, min(20 * distance, 4 * float(lengths.max())))
    for rc in [cutoff] if cutoff is not None else np.geomspace(0.7 * distance, reach, 16):
        pairs = 4 / 3 * math.pi * (rc / distance) ** 3
        if best is not None and (False, costs.seconds(count, pairs, 0, 1)) > best[0]:
            break  # the pairs alone take longer
        beta = splitting if splitting is not None else splitting_for(share, float(rc), distance)
        scale = mesh_share(beta, distance)
        for each in [window] if window is not None else map(pm.bspline, parameters.ORDERS):
            nodes = shape
            if nodes is None:
                h = parameters.spacing_for(each, beta, share / scale, distance)
                nodes = tuple(good_size(math.ceil(t / h)) for t in lengths)
            if math.prod(nodes) > 2**33:
                continue
            errors = (
                real_error(beta, rc, distance),
                scale * parameters.mesh_error(each, beta, (lengths / nodes).tolist(), distance),
            )
            seconds = costs.seconds(count, pairs, each.support, math.prod(nodes))
            candidate = parameters.Parameters(float(rc), beta, nodes, each, *errors, seconds)
            misses = candidate.error > 1.05 * accuracy
            rank = misses, candidate.error if misses else seconds
            if best is None or rank < best[0]:
                best = rank, candidate
    if best is None:
        raise ValueError(f"no mesh below 2**33 nodes reaches accuracy {accuracy:g} in {box!r}: give a larger cutoff.")
    return best[1]
