# SPDX-License-Identifier: BSD-3-Clause
"""The particles of a plan in the order of tiles, on CUDA and OpenCL: made once a configuration, shared by methods."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from particlemesh.sorting import Order, counting
from particlemesh.sorting.scan import Allocate

if TYPE_CHECKING:
    from particlemesh.plan import Plan

BITS = 3  # tiles of 8 nodes an axis
MOST_TILES = 2**24  # beyond, tiles grow: clearing and scanning counts would cost more than they save


def tile_order(plan: Plan) -> Order:
    """Return all particles of ``plan`` by tile; those without weight come last."""
    found = plan.shared.get("tiles")
    if found is None:
        found = plan.shared["tiles"] = _order(plan)
    return found


def reserve(plan: Plan) -> None:
    """Allocate for the plan's capacity, so that ordering will not."""
    _, tiles = _tiles(plan)
    counting.reserve(plan.backend, plan.capacity, math.prod(tiles) + 1, _allocate(plan))
    plan.scratch("tiles.keys", (max(plan.capacity, 1),), np.dtype(np.int32))


def _tiles(plan: Plan) -> tuple[int, list[int]]:
    bits = BITS
    while True:
        tiles = [-(-axis.extent >> bits) + 1 for axis in plan.axes]
        if math.prod(tiles) < MOST_TILES:
            return bits, tiles
        bits += 1


def _allocate(plan: Plan) -> Allocate:
    return lambda name, shape, dtype: plan.scratch(f"tiles.{name}", shape, dtype)


def _order(plan: Plan) -> Order:
    bits, tiles = _tiles(plan)
    backend, count, particles = plan.backend, plan.count, plan.particles
    keys = plan.scratch("tiles.keys", (max(count, 1),), np.dtype(np.int32))
    if count:
        run = backend.kernel("orders/tile_order.c", "tile_keys", {"REAL_IS_DOUBLE": 0})
        lows = [axis.low for axis in plan.axes]
        run(count, particles.node, keys, count, particles.rows, *lows, *tiles, bits)
    bins = math.prod(tiles) + 1
    found = counting.counting_sort(backend, keys, count, bins, stable=False, allocate=_allocate(plan))
    return Order(*found)
