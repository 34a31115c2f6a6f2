# SPDX-License-Identifier: BSD-3-Clause
"""The plainest possible spreading and interpolation: float64 loops over particles, nothing shared with the library.

The window is evaluated as a function of the distance between particle and node, not through its table;
a node is any integer whose distance is within the support, its place found by true modulo.
"""

from __future__ import annotations

import math

import numpy as np


def node_coordinates(mesh, positions):
    """Return float64 node coordinates (N, d) within the field, ghosts counted."""
    x = np.asarray(positions, np.float64)
    s = (x - mesh.box.origin) @ np.linalg.inv(np.asarray(mesh.box.matrix, np.float64))
    s = np.where(mesh.periodic, s - np.floor(s), s)
    lower = np.array([g[0] for g in mesh.ghosts])
    return s * np.array(mesh.intervals) - np.array(mesh.offset) + lower


def stencil(mesh, window, u, axis, derivative=0):
    """Return (place in the field or None, weight) of every node within the support of coordinate ``u``.

    ``derivative`` is the order of the weights' derivative by ``u``.
    """
    half = window.support / 2
    size = mesh.field_shape[axis]
    wraps = mesh.periodic[axis] and mesh.ghosts[axis] == (0, 0)
    nodes = np.arange(math.floor(u - half) - 1, math.ceil(u + half) + 2)
    weights = (-1) ** derivative * window.derivative(nodes - u, derivative) if derivative else window(nodes - u)
    terms = []
    for node, weight in zip(nodes.tolist(), weights.tolist(), strict=True):
        if weight != 0:
            place = node % size if wraps else (node if 0 <= node < size else None)
            terms.append((place, weight))
    return terms


def contributions(mesh, window, u, *along):
    """Return of one particle an index of the field's nodes and their weights, as many axes as the mesh has.

    ``along`` are the axes along which derivatives are taken. Where an axis wraps more than once a node may be there
    twice.
    """
    axes = [stencil(mesh, window, u[a], a, along.count(a)) for a in range(mesh.ndim)]
    inside = [[node for node in nodes if node[0] is not None] for nodes in axes]
    places = [np.array([place for place, _ in nodes], int) for nodes in inside]
    weights = np.ones(())
    for nodes in inside:
        weights = np.multiply.outer(weights, [weight for _, weight in nodes])
    return (..., *np.ix_(*places)), weights


def spread(mesh, window, positions, values):
    values = np.asarray(values)
    wide = np.result_type(values.dtype, np.float64)
    field = np.zeros(values.shape[:-1] + mesh.field_shape, wide)
    for p, u in enumerate(node_coordinates(mesh, positions)):
        index, weights = contributions(mesh, window, u)
        np.add.at(field, index, np.multiply.outer(values[..., p].astype(wide), weights))
    return field


def interpolate(mesh, window, positions, field):
    field = np.asarray(field).astype(np.result_type(field.dtype, np.float64))
    u = node_coordinates(mesh, positions)
    values = np.zeros(field.shape[: field.ndim - mesh.ndim] + (len(u),), field.dtype)
    for p in range(len(u)):
        index, weights = contributions(mesh, window, u[p])
        values[..., p] = np.tensordot(field[index], weights, mesh.ndim)
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
            index, weights = contributions(mesh, window, u[p], a)
            result[..., p, :] += np.multiply.outer(np.tensordot(field[index], weights, mesh.ndim), slopes[a])
    return result


def spread_gradient(mesh, window, positions, vectors):
    vectors = np.asarray(vectors)
    wide = np.result_type(vectors.dtype, np.float64)
    field = np.zeros(vectors.shape[:-2] + mesh.field_shape, wide)
    u, slopes = node_coordinates(mesh, positions), _slopes(mesh)
    for p in range(len(u)):
        for a in range(mesh.ndim):
            along = vectors[..., p, :].astype(wide) @ slopes[a]
            index, weights = contributions(mesh, window, u[p], a)
            np.add.at(field, index, np.multiply.outer(along, weights))
    return field


def curvatures(mesh, window, positions):
    """Return (N, d, d, *field_shape) second derivatives of each particle's weights, and bounds of their terms."""
    u, slopes, d = node_coordinates(mesh, positions), _slopes(mesh), mesh.ndim
    result, bound = np.zeros((2, len(u), d, d, *mesh.field_shape))
    for p in range(len(u)):
        for a in range(d):
            for b in range(d):
                index, weights = contributions(mesh, window, u[p], a, b)
                user = np.multiply.outer(slopes[a], slopes[b])
                for to, factors, terms in ((result, user, weights), (bound, np.abs(user), np.abs(weights))):
                    along = np.zeros(mesh.field_shape)
                    np.add.at(along, index, terms)
                    to[p] += np.multiply.outer(factors, along)
    return result, bound


def hessian(mesh, window, positions, field):
    field = np.asarray(field)
    nodes = int(np.prod(mesh.field_shape))
    flat = field.reshape(*field.shape[: field.ndim - mesh.ndim], nodes)
    by_node, _ = curvatures(mesh, window, positions)
    return np.einsum("...m,pabm->...pab", flat, by_node.reshape(*by_node.shape[:3], nodes))


def spread_hessian(mesh, window, positions, tensors):
    by_node, _ = curvatures(mesh, window, positions)
    return np.tensordot(tensors, by_node, 3)
