# SPDX-License-Identifier: BSD-3-Clause
"""Particles by cell as kernels of queries take them, and what NumPy finds by comparing all with all."""

import itertools

import numpy as np

from particlemesh import Box
from particlemesh.arrays.positions import coordinates as coordinates_of
from particlemesh.grid.queries.cloud import Cloud
from particlemesh.sorting import counting as binning
from particlemesh.sorting.keys import Cells

TRICLINIC = [[4.0, 0.0, 0.0], [1.0, 3.5, 0.0], [-0.5, 0.75, 3.0]]
BOXES = {
    "open 3-D": Box((4.0, 3.0, 5.0), origin=(-1.0, 0.5, 2.0), periodic=False),
    "periodic 3-D": Box((4.0, 3.0, 5.0), origin=(-1.0, 0.5, 2.0)),
    "mixed 3-D": Box((4.0, 3.0, 5.0), periodic=(True, False, True)),
    "triclinic": Box(TRICLINIC),
    "triclinic mixed": Box(TRICLINIC, periodic=(False, True, False)),
    "periodic 2-D": Box((4.0, 3.0)),
    "triclinic 2-D": Box([[4.0, 0.0], [1.5, 3.0]], periodic=(True, False)),
    "periodic 1-D": Box(6.0),
}


def positions(box, count, dtype=np.float64, seed=0, turns=0):
    """Random positions in a box, up to ``turns`` images away along its periodic axes."""
    rng = np.random.default_rng(seed)
    s = rng.random((count, box.ndim))
    s += rng.integers(-turns, turns + 1, s.shape) * np.array(box.periodic)
    return np.ascontiguousarray(box.origin + s @ box.matrix, dtype)


def cells_of(box, shape, dtype, levels=1):
    thickness = 1 / np.linalg.norm(box.inverse, axis=1) / np.array(shape)
    return Cells(box, tuple(shape), levels, float(thickness.min()), np.dtype(dtype))


def coordinates(device, x, box):
    """Positions on a device as kernels take them."""
    return coordinates_of(device.array(x), box.ndim, device.library, upload=False)[2]


def allocator(library):
    return lambda name, shape, dtype: library.empty(shape, dtype)


def cloud_of(device, x, box, shape, levels=1, radii=None, scattered=False):
    """Particles by cell; ``scattered``: the cells in an order of their own, with an array of ends."""
    library, dtype = device.library, x.dtype
    cells = cells_of(box, shape, dtype, levels)
    extents, axes = None, 0
    if radii is not None:
        axes = 1 if radii.ndim == 1 else 3
        missing = np.zeros((len(x), 3 - box.ndim), dtype)
        extents = device.array(radii if axes == 1 else np.hstack([missing, radii]).astype(dtype))
    items = cells.keys(coordinates(device, x, box), extents, axes)
    status, start, rank = binning.count_items(library, items, allocator(library))
    records = library.empty((max(len(x), 1), 4), dtype)
    turns = library.empty((max(len(x), 1),), np.uint64)
    binning.place_items(library, items, status, start, rank, records=records, turns=turns)
    ends = None
    if scattered:
        begins, held = device.host(start).astype(np.int64)[: cells.count + 1], device.host(records)
        order = np.random.default_rng(5).permutation(cells.count)
        length = np.diff(begins)
        moved, first, last = held.copy(), np.zeros(cells.count + 1, np.uint32), np.zeros(cells.count, np.uint32)
        place = 0
        for cell in order:
            first[cell], last[cell] = place, place + length[cell]
            moved[place : last[cell]] = held[begins[cell] : begins[cell + 1]]
            place = last[cell]
        first[-1] = begins[-1]
        start, ends, records = device.array(first), device.array(last), device.array(moved)
    return Cloud(library, cells, len(x), records, start, ends, turns, status, extents, axes)


def images(box, reach):
    """Every S for which an image of a folded particle may be within ``reach`` of another."""
    spans = [range(-n, n + 1) if p else range(1) for n, p in zip(_most(box, reach), box.periodic, strict=True)]
    return np.array(list(itertools.product(*spans)))


def _most(box, reach):
    return [int(np.ceil(reach * np.linalg.norm(row))) + 1 for row in box.inverse]


def turns_of(x, box):
    s = (x.astype(np.float64) - box.origin) @ box.inverse.T
    return (np.floor(s) * np.array(box.periodic)).astype(np.int64)


def brute(x, box, reach, points=None):
    """Every pair within ``reach``, itself excluded: i, j, S of positions as they are, D, in float64.

    With points, i counts them, and nothing is excluded.
    """
    x = x.astype(np.float64)
    turns = turns_of(x, box)
    folded = x - turns @ box.matrix
    own = points is None
    p = x if own else points.astype(np.float64)
    p_turns = turns_of(p, box)
    p_folded = p - p_turns @ box.matrix
    found = []
    for shift in images(box, reach):
        d = folded[None] + shift @ box.matrix - p_folded[:, None]
        near = (d**2).sum(2) <= reach**2 * (1 + 1e-5)
        if own and not shift.any():
            near[np.arange(len(x)), np.arange(len(x))] = False
        i, j = np.nonzero(near)
        found.append((i, j, shift - turns[j] + p_turns[i], d[i, j]))
    i, j, s, d = (np.concatenate(part) for part in zip(*found, strict=True))
    return i, j, s, d
