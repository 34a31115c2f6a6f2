# SPDX-License-Identifier: BSD-3-Clause
"""Overlaps from tight linked lists, on CUDA and OpenCL."""

from __future__ import annotations

from typing import Any

import numpy as np

from particlemesh.backends.base import Backend, Unread, allocate
from particlemesh.grid import checks
from particlemesh.grid.limits import check_squares
from particlemesh.grid.queries.cloud import reach_record
from particlemesh.grid.queries.quantities import FIELDS, array_types, wants
from particlemesh.grid.results import Pairs
from particlemesh.grid.storage import TightLists
from particlemesh.sorting.keys import Cells
from particlemesh.sorting.scan import Allocate, allocate_counts, scan

MOST = 2**29 - 1  # particles: an entry is one of eight, and is counted from 1 in 32 bits
_WIDE, _WIDEST = 6, 7  # words of the status, as the builder's kernel has them
_U64 = np.dtype(np.uint64)


def too_wide(status: np.ndarray, dtype: np.dtype) -> tuple[int, float] | None:
    """Return the first particle wider than a cell, and half the cell thickness that holds all; None if there is none.

    ``status`` holds the words of a build on the host; ``dtype`` is the type of its positions.
    """
    if not status[_WIDEST]:
        return None
    bits = np.array([status[_WIDEST]], np.uint64)
    reach = bits.view(np.float64) if dtype.itemsize == 8 else bits.astype(np.uint32).view(np.float32)
    return int(~status[_WIDE]), float(reach[0])


def overlaps_of_lists(
    backend: Backend, cells: Cells, count: int, lists: TightLists, status: Any, extents: Any = None,
    extent_axes: int = 1, *, shape: str | None = None, quantities: str = "ij", allocate_scratch: Allocate,
) -> Pairs:  # fmt: skip
    """Return every pair of overlapping particles once, images included; waits once, for the number of pairs.

    ``i < j`` in the caller's numbering, or i is j and S is lexicographically positive. Pairs come by ascending i, those
    of one particle in any order. ``extents`` (count, 3) are half edges, missing axes first; without them the lists hold
    radii.

    Raises
    ------
    ValueError
        If the lists cannot serve this shape, or the type does not hold squares of the box or of a radius.
    """
    boxes = checks.compares_boxes(extent_axes, shape)
    checks.lists_suffice(extent_axes, boxes=boxes, orthorhombic=cells.box.orthorhombic)
    dtype, total = cells.dtype, 0
    check_squares(0.0, cells.box.matrix, dtype, bounded=True)
    defines = {
        "REAL_IS_DOUBLE": int(dtype.itemsize == 8), "COORDINATE_IS_DOUBLE": int(dtype.itemsize == 8),
        "KEYS_ARE_POSITIONS": 1, "EXTENTS": 0, "BOXES": int(boxes), "HALF_EDGES": int(extent_axes == 3),
    }  # fmt: skip
    inputs = (
        lists.heads, lists.next, lists.bounds, lists.bounds if extents is None else extents, lists.turns, status,
    )  # fmt: skip
    geometry = (*cells.records(), reach_record(cells))
    place = counts = None
    if count:
        counts = allocate_counts(backend, count, _U64, allocate_scratch, "overlap_counts")
        place = allocate_scratch("overlap_place", (count + 2,), _U64)  # the last word is for a fault
        backend.clear(counts)
        backend.clear(place[count + 1 :])
        run = backend.kernel("grid/queries/overlaps.c", "overlaps", {**defines, "LISTS": 0, **wants("")})
        run(count, *inputs, counts, *(Unread(status),) * 5, place, count, *geometry)
        scan(backend, counts, place, count)
        total, fault = (int(word) for word in backend.download(place[count : count + 2]))
        if fault:
            raise ValueError(
                f"particle {2**64 - 1 - fault} has a radius or half edge whose square {dtype.name} does not hold: use "
                f"another unit of length{', or float64' * (dtype.itemsize < 8)}."
            )
    types = array_types(quantities, (total,), cells.box.ndim, dtype)
    arrays = {field: allocate(backend, size, type_, "overlaps") for field, (size, type_) in types.items()}
    if total:
        run = backend.kernel("grid/queries/overlaps.c", "overlaps", {**defines, "LISTS": 1, **wants(quantities)})
        outputs = (arrays.get(field, Unread(status)) for field in FIELDS.values())
        run(count, *inputs, place, *outputs, Unread(status), count, *geometry)
    return Pairs(**arrays)
