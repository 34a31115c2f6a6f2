# SPDX-License-Identifier: BSD-3-Clause
"""One particle's stencil on the CPU, for methods that store its weights: their time is not what counts."""

from __future__ import annotations

from particlemesh.backends.jit import compiled


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


@compiled
def factors_at(table, terms, lanes, x, y, z, slopes, factors):
    """Write the weights along the three axes, and if ``slopes`` then theirs, ``lanes`` numbers each.

    ``table``, ``terms`` and ``lanes`` are those of `orders.cpu.rows.Rows` for one part.
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
