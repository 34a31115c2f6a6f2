# SPDX-License-Identifier: BSD-3-Clause
"""Parts of a mesh as ranks have them: which part owns a particle, and how fields of parts make the whole field."""

import itertools

import numpy as np

CUTS = {1: (1, 1, 1), 2: (2, 1, 1), 3: (1, 3, 1), 4: (2, 1, 2), 7: (7, 1, 1)}  # parts along each axis


def ghosts_for(window):
    """Return the ghosts that a window needs."""
    return (window.support - 1) // 2, window.support // 2


def cut(mesh, count, window):
    """Return ``count`` parts of a mesh with uneven cuts; axes that are not cut have no ghosts."""
    along = CUTS[count][: mesh.ndim]
    ends = [[round(nodes * (i / n) ** 1.2) for i in range(n + 1)] for nodes, n in zip(mesh.shape, along, strict=True)]
    parts = []
    for place in itertools.product(*map(range, along)):
        start = [ends[a][i] for a, i in enumerate(place)]
        stop = [ends[a][i + 1] for a, i in enumerate(place)]
        parts.append(mesh.part(start, stop, [ghosts_for(window) if n > 1 else 0 for n in along]))
    return parts


def owned(part, cells):
    """Return whether the cell of each particle (N, d) is of a part. Beyond an open face it is of the last one."""
    mine = np.ones(len(cells), bool)
    for a, (start, nodes) in enumerate(zip(part.start, part.shape, strict=True)):
        last = part.whole.shape[a] - 1
        cell = cells[:, a] if part.periodic[a] else np.clip(cells[:, a], 0, last)
        mine &= (cell >= start) & (cell < start + nodes)
    return mine


def places(part):
    """Return for each axis the node of the whole mesh at each node of a part's field, -1 where there is none."""
    result = []
    for a, nodes in enumerate(part.whole.shape):
        node = part.start[a] - part.ghosts[a][0] + np.arange(part.field_shape[a])
        result.append(node % nodes if part.periodic[a] else np.where((node >= 0) & (node < nodes), node, -1))
    return result


def add(part, field, whole):
    """Add a part's field (..., *field_shape) to that of the whole mesh."""
    at = places(part)
    inside = [np.flatnonzero(nodes >= 0) for nodes in at]
    target = np.ix_(*(nodes[some] for nodes, some in zip(at, inside, strict=True)))
    np.add.at(whole, (..., *target), field[(..., *np.ix_(*inside))])


def taken(part, whole):
    """Return a part's field, of which nodes beyond open faces are zero."""
    at = places(part)
    field = whole[(..., *np.ix_(*at))]
    for a, nodes in enumerate(at):
        field[(..., nodes < 0, *(slice(None),) * (len(at) - 1 - a))] = 0
    return field
