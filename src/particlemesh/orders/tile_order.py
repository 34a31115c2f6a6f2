# SPDX-License-Identifier: BSD-3-Clause
"""The particles of a plan in the order of tiles, on CUDA and OpenCL: made once per configuration, shared by methods."""

from __future__ import annotations

import math

import numpy as np

from particlemesh.particles.workspace import Workspace
from particlemesh.sorting import Order, counting
from particlemesh.sorting.scan import Allocate

BITS = 3  # tiles of 8 nodes an axis
MOST_TILES = 2**24  # beyond, tiles grow: clearing and scanning counts would cost more than they save


def tile_order(workspace: Workspace) -> Order:
    """Return all particles of ``workspace`` by tile; those without weight come last."""
    order = workspace.orders.get("tiles")
    if order is None:
        order = workspace.orders["tiles"] = _order(workspace)
    return order


def reserve(workspace: Workspace) -> None:
    """Allocate for the workspace's capacity, so that ordering will not."""
    _, tiles = _tiles(workspace)
    counting.reserve(workspace.backend, workspace.capacity, math.prod(tiles) + 1, _allocate(workspace))
    workspace.scratch("tiles.keys", (max(workspace.capacity, 1),), np.dtype(np.int32))


def _tiles(workspace: Workspace) -> tuple[int, list[int]]:
    bits = BITS
    while True:
        tiles = [-(-axis.extent >> bits) + 1 for axis in workspace.axes]
        if math.prod(tiles) < MOST_TILES:
            return bits, tiles
        bits += 1


def _allocate(workspace: Workspace) -> Allocate:
    return lambda name, shape, dtype: workspace.scratch(f"tiles.{name}", shape, dtype)


def _order(workspace: Workspace) -> Order:
    bits, tiles = _tiles(workspace)
    backend, count, particles = workspace.backend, workspace.count, workspace.particles
    keys = workspace.scratch("tiles.keys", (max(count, 1),), np.dtype(np.int32))
    if count:
        run = backend.kernel("orders/tile_order.c", "tile_keys", {"REAL_IS_DOUBLE": 0})
        lows = [axis.low for axis in workspace.axes]
        run(count, particles.node, keys, count, particles.rows, *lows, *tiles, bits)
    bins = math.prod(tiles) + 1
    start, order, rank = counting.counting_sort(backend, keys, count, bins, stable=False, allocate=_allocate(workspace))
    return Order(start, order, rank)
