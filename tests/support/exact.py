# SPDX-License-Identifier: BSD-3-Clause
"""Where positions are on a mesh, in rational numbers: nothing is rounded, however far away they are."""

import math
from fractions import Fraction

import numpy as np


def _inverse(matrix):
    """Invert a matrix of rational numbers by elimination."""
    n = len(matrix)
    rows = [
        [Fraction(float(v)) for v in row] + [Fraction(int(i == j)) for j in range(n)] for i, row in enumerate(matrix)
    ]
    for c in range(n):
        pivot = next(r for r in range(c, n) if rows[r][c] != 0)
        rows[c], rows[pivot] = rows[pivot], rows[c]
        rows[c] = [v / rows[c][c] for v in rows[c]]
        for r in range(n):
            if r != c:
                rows[r] = [v - rows[r][c] * w for v, w in zip(rows[r], rows[c], strict=True)]
    return [row[n:] for row in rows]


def node_coordinates(mesh, positions):
    """Return for each particle its node coordinates, folded into the box where an axis is periodic."""
    inverse = _inverse(mesh.box.matrix)
    origin = [Fraction(float(o)) for o in mesh.box.origin]
    coordinates = []
    for position in np.asarray(positions).reshape(len(positions), -1):
        x = [Fraction(float(v)) - o for v, o in zip(position, origin, strict=True)]
        s = [sum(x[b] * inverse[b][a] for b in range(mesh.ndim)) for a in range(mesh.ndim)]
        s = [v - math.floor(v) if periodic else v for v, periodic in zip(s, mesh.periodic, strict=True)]
        coordinates.append([
            s[a] * mesh.intervals[a] - Fraction(mesh.offset[a]) + mesh.ghosts[a][0] for a in range(mesh.ndim)
        ])  # fmt: skip
    return coordinates


def distances(mesh, support, positions, node, fraction):
    """Return how many nodes each particle was moved, (d, N): periodic axes count modulo their nodes."""
    moved = np.empty(node.shape)
    for i, u in enumerate(node_coordinates(mesh, positions)):
        for a in range(mesh.ndim):
            away = int(node[a, i]) + Fraction(support - 1, 2) + Fraction(float(fraction[a, i])) - u[a]
            if mesh.periodic[a]:
                away -= round(away / mesh.shape[a]) * mesh.shape[a]
            moved[a, i] = float(away)
    return np.abs(moved)


def interpolate(mesh, window, positions, field):
    """Interpolate on a periodic mesh of one axis: rational positions, weights and sums in float64."""
    values = []
    for (u,) in node_coordinates(mesh, positions):
        first = math.floor(u - Fraction(window.support, 2)) + 1
        away = np.array([float(first + k - u) for k in range(window.support)])
        values.append(window(away) @ field[(first + np.arange(window.support)) % mesh.shape[0]].astype(np.float64))
    return np.array(values)


def unfolded(box, positions, folded):
    """Return how far folding took each particle off an image of it, (N, d), and the turns that it took off."""
    inverse, rows = _inverse(box.matrix), [[Fraction(float(v)) for v in row] for row in box.matrix]
    axes = range(box.ndim)
    moved, turns = np.empty(folded.shape), np.empty(folded.shape)
    for i, (given, inside) in enumerate(zip(positions, folded, strict=True)):
        step = [Fraction(float(v)) - Fraction(float(w)) for v, w in zip(given, inside, strict=True)]
        turn = [round(sum(step[b] * inverse[b][a] for b in axes)) for a in axes]
        moved[i] = [float(step[b] - sum(turn[a] * rows[a][b] for a in axes)) for b in axes]
        turns[i] = turn
    return np.abs(moved), turns
