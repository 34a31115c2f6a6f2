# SPDX-License-Identifier: BSD-3-Clause
"""Windows as rows of lanes, from which a particle's weights are made with vector instructions; a stencil's nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.polynomial import polynomial

from particlemesh.backends.jit import compiled
from particlemesh.backends.simd import width_of

if TYPE_CHECKING:
    from particlemesh.particles.stencil import Axis

# Below so many stencil rows of particles per row of the tile's box, particles go without that box
# (EPYC 9005, 128^3 nodes).
SPARSE = 3.0


class Rows(NamedTuple):
    """A window for values of so many parts.

    Attributes
    ----------
    table
        Polynomials of the three axes, then of their slopes: ``terms`` rows each, highest power first. There is
        one lane per node, on the last axis one per part of a node. Lanes past the support are zero.
    terms
        Rows of each polynomial.
    parts
        Reals of a value.
    width
        Its length is the number of lanes.
    missing
        Axes that the mesh does not have: the first ones, whose only weight is 1.
    """

    table: np.ndarray
    terms: int
    parts: int
    width: tuple[int, ...]
    missing: int


def rows_of(
    window_table: np.ndarray, axes: Sequence[Axis], parts: int, dtype: np.dtype, along: int | None = None
) -> Rows:
    """Return the rows of a window's table (support, degree + 1), ascending powers, for the mesh's axes.

    With ``along``, an axis, they are those of the window's derivative along it: its slopes are second derivatives.
    """
    terms = window_table.shape[1]
    width = width_of(max(axis.support for axis in axes) * parts, np.dtype(dtype).itemsize)
    table = np.zeros((2, 3, terms, len(width)), dtype)
    missing = 0
    for a, axis in enumerate(axes):
        copies = parts if a == 2 else 1
        lanes = axis.support * copies
        if axis.size == 1 and axis.scale == 0:  # a missing axis: weight 1, slope 0
            table[0, a, -1, :lanes] = 1
            missing += 1
            continue
        for slope in (0, 1):
            derived = polynomial.polyder(window_table, slope + (a == along), axis=1)
            table[slope, a, terms - derived.shape[1] :, :lanes] = np.repeat(derived[:, ::-1].T, copies, axis=1)
    return Rows(table.reshape(-1), terms, parts, width, missing)


@compiled
def place_of(node, size, wraps):
    """Return the place of a node along one axis, or -1 if there is none."""
    if wraps:
        return node % size if node >= size else node
    return node if 0 <= node < size else -1


@compiled
def corner_of(low, local):
    """Return the first node of a particle's stencil, of its tile's first node and its place in the tile."""
    return low[0] + (local >> 20), low[1] + (local >> 10 & 1023), low[2] + (local & 1023)


# One particle's weights, for methods that store them: their time is not what counts.


@compiled
def factors_at(table, terms, lanes, x, y, z, slopes, factors):
    """Write the weights along the three axes, and if ``slopes`` then theirs, ``lanes`` numbers each.

    ``table``, ``terms`` and ``lanes`` are those of `Rows` for one part.
    """
    for number in range(6 if slopes else 3):
        axis = number % 3
        at = x if axis == 0 else y if axis == 1 else z
        out, row = number * lanes, number * terms * lanes
        for j in range(lanes):
            factors[out + j] = table[row + j]
        for _ in range(1, terms):
            row += lanes
            for j in range(lanes):
                factors[out + j] = factors[out + j] * at + table[row + j]


@compiled
def slopes_of(factors, lanes, i, j, jacobian, across):
    """Write what a node's weight and slope along z are multiplied by to give its slope in user coordinates.

    For each coordinate b: ``across[2 b] * wz + across[2 b + 1] * dz``.
    """
    wx, wy = factors[i], factors[lanes + j]
    dx, dy = factors[3 * lanes + i], factors[4 * lanes + j]
    for b in range(jacobian.shape[1]):
        across[2 * b] = jacobian[0, b] * dx * wy + jacobian[1, b] * wx * dy
        across[2 * b + 1] = jacobian[2, b] * wx * wy
