# SPDX-License-Identifier: BSD-3-Clause
"""Lattice vectors of a cell that is given by lengths and angles."""

from __future__ import annotations

import math

import numpy as np


def lattice(lengths: np.ndarray, angles: np.ndarray) -> np.ndarray:
    """Return lattice vectors (3, 3) in rows, a along x and b in the plane of x and y.

    Parameters
    ----------
    lengths : (3,) ndarray
    angles : (3,) ndarray
        Alpha between b and c, beta between a and c, gamma between a and b, in degrees.

    Raises
    ------
    ValueError
        If there is no such cell.
    """
    if not ((angles > 0) & (angles < 180)).all():
        raise ValueError(f"angles are {', '.join(f'{x:g}' for x in angles)}; give 3 angles between 0 and 180 degrees")
    # 90 degrees gives exact zeros.
    cosines = np.where(angles == 90, 0.0, np.cos(np.radians(angles)))
    alpha, beta, gamma = cosines
    sine = math.sqrt(max(0.0, 1 - gamma**2))
    if sine == 0:
        raise ValueError(f"angles are {', '.join(f'{x:g}' for x in angles)}; no cell has these")
    across = (alpha - beta * gamma) / sine
    height = 1 - beta**2 - across**2
    if not height > 0:
        raise ValueError(f"angles are {', '.join(f'{x:g}' for x in angles)}; no cell has these")
    a, b, c = lengths
    return np.array([[a, 0, 0], [b * gamma, b * sine, 0], [c * beta, c * across, c * math.sqrt(height)]])
