# SPDX-License-Identifier: BSD-3-Clause
"""Errors of sums of r**-6, from which cutoff, splitting, window and mesh follow."""

from __future__ import annotations

import math

from particlemesh.apps.pme.parameters import Decay


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


DECAY = Decay(real_error, splitting_for, mesh_share)
