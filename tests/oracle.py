# SPDX-License-Identifier: BSD-3-Clause
"""The plainest possible spreading and interpolation: float64 loops over particles, nothing shared with the library.

The window is evaluated as a function of the distance between particle and node, not through its table;
a node is any integer whose distance is within the support, its place found by true modulo.
"""

from __future__ import annotations

import itertools
import math

import numpy as np


def node_coordinates(mesh, positions):
    """Return float64 node coordinates (N, d) within the field, ghosts counted."""
    x = np.asarray(positions, np.float64)
    s = (x - mesh.box.origin) @ np.linalg.inv(np.asarray(mesh.box.matrix, np.float64))
    s = np.where(mesh.periodic, s - np.floor(s), s)
    lower = np.array([g[0] for g in mesh.ghosts])
    return s * np.array(mesh.intervals) - np.array(mesh.offset) + lower


def stencil(mesh, window, u, axis, derivative=False):
    """Return (place in the field or None, weight) of every node within the support of coordinate ``u``."""
    half = window.support / 2
    size = mesh.field_shape[axis]
    wraps = mesh.periodic[axis] and mesh.ghosts[axis] == (0, 0)
    found = []
    for node in range(math.floor(u - half) - 1, math.ceil(u + half) + 2):
        weight = -float(window.derivative(node - u)) if derivative else float(window(node - u))
        if weight != 0:
            place = node % size if wraps else (node if 0 <= node < size else None)
            found.append((place, weight))
    return found


def contributions(mesh, window, u, slope_axis=None):
    """Yield (index in the field, weight) of one particle; ``slope_axis`` takes the slope along that axis."""
    axes = [stencil(mesh, window, u[a], a, a == slope_axis) for a in range(mesh.ndim)]
    for nodes in itertools.product(*axes):
        if all(place is not None for place, _ in nodes):
            yield tuple(place for place, _ in nodes), math.prod(weight for _, weight in nodes)


def spread(mesh, window, positions, values):
    values = np.asarray(values)
    wide = np.result_type(values.dtype, np.float64)
    field = np.zeros(values.shape[:-1] + mesh.field_shape, wide)
    for p, u in enumerate(node_coordinates(mesh, positions)):
        for index, weight in contributions(mesh, window, u):
            field[(..., *index)] += weight * values[..., p].astype(wide)
    return field


def interpolate(mesh, window, positions, field):
    field = np.asarray(field).astype(np.result_type(field.dtype, np.float64))
    u = node_coordinates(mesh, positions)
    values = np.zeros(field.shape[: field.ndim - mesh.ndim] + (len(u),), field.dtype)
    for p in range(len(u)):
        for index, weight in contributions(mesh, window, u[p]):
            values[..., p] += weight * field[(..., *index)]
    return values


def _slopes(mesh):
    """d(node coordinate a) / d(position b)."""
    return np.array(mesh.intervals)[:, None] * np.linalg.inv(np.asarray(mesh.box.matrix, np.float64)).T


def gradient(mesh, window, positions, field):
    field = np.asarray(field).astype(np.result_type(field.dtype, np.float64))
    u, slopes = node_coordinates(mesh, positions), _slopes(mesh)
    result = np.zeros(field.shape[: field.ndim - mesh.ndim] + u.shape, field.dtype)
    for p in range(len(u)):
        for a in range(mesh.ndim):
            for index, weight in contributions(mesh, window, u[p], slope_axis=a):
                for b in range(mesh.ndim):
                    result[..., p, b] += slopes[a, b] * weight * field[(..., *index)]
    return result


def spread_gradient(mesh, window, positions, vectors):
    vectors = np.asarray(vectors)
    wide = np.result_type(vectors.dtype, np.float64)
    field = np.zeros(vectors.shape[:-2] + mesh.field_shape, wide)
    u, slopes = node_coordinates(mesh, positions), _slopes(mesh)
    for p in range(len(u)):
        for a in range(mesh.ndim):
            along = vectors[..., p, :].astype(wide) @ slopes[a]
            for index, weight in contributions(mesh, window, u[p], slope_axis=a):
                field[(..., *index)] += weight * along
    return field
