# SPDX-License-Identifier: BSD-3-Clause
"""The particles of a plan by the first node of their stencils, or by tile, on CUDA and OpenCL: made once each.

The particles that reach a node have their first nodes within a support of it. By node they are a few runs, one for
each row along the last axis. Methods that work node by node use it (``spread/meeting.h``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from particlemesh.backends.base import Record
from particlemesh.particles.workspace import Sizes, Workspace
from particlemesh.sorting import counting, radix
from particlemesh.sorting.scan import Allocate

_FILE = "orders/node_order.c"
_BITS = 3  # tiles of 8 nodes an axis
_MOST_TILES = 2**24  # beyond, tiles grow: clearing and scanning counts would cost more than they save
_INT = np.dtype(np.int32)


@dataclass(frozen=True)
class NodeOrder:
    """Particles by cell, a cell being a node that stencils may begin at; equal cells keep the caller's order.

    Attributes
    ----------
    start : (cells + 1,) uint32
        Where the particles of each cell begin; those without weight come after the last cell.
    order : (N,) int32
        The particle at each place.
    rank : (N,) int32
        The place of each particle, -1 without weight.
    node : (3 * rows,) int32
    fraction : (3 * rows,) real
        As ``workspace.particles`` has them, in this order, axis after axis; only of particles with weight.
    lattice : Record
        ``Lattice`` of spread/meeting.h.
    """

    start: Any
    order: Any
    rank: Any
    node: Any
    fraction: Any
    rows: int
    lattice: Record


def cells(sizes: Sizes) -> int:
    """Return how many nodes stencils may begin at."""
    return math.prod(axis.extent for axis in sizes.axes)


def declines(sizes: Sizes) -> str | None:
    """Return why particles of ``sizes`` cannot be ordered like this, or None."""
    if sizes.count >= 2**31:
        return "2**31 particles or more"
    return "2**31 nodes or more" if cells(sizes) >= 2**31 - 1 else None


def order_bytes(sizes: Sizes) -> int:
    """Return the bytes that the order takes."""
    # keys, sortable keys, order, rank and two pairs of the sort; nodes and fractions; counts and starts
    return sizes.count * (4 * 8 + 3 * (4 + sizes.dtype.itemsize)) + 8 * (cells(sizes) + 1)


def seconds(sizes: Sizes) -> float:
    """Return the predicted seconds of ordering."""
    # H200: preparation of gather_list (benchmarks/results/guo-long_totals-nvidia-h200.csv)
    return 3e-5 + sizes.count * 2.1e-10 + cells(sizes) * 5e-12


def node_order(workspace: Workspace, *, stable: bool = True) -> NodeOrder:
    """Return the particles of ``workspace`` by first node; in a cell, if not ``stable``, as atomics happen to count."""
    name = _name(stable)
    order = workspace.orders.get(name)
    if order is None:
        order = workspace.orders[name] = _order(workspace, stable)
    return order


def _name(stable: bool) -> str:
    return "nodes" if stable else "counted"  # both may be there at once, in separate memory


def reserve(workspace: Workspace, *, stable: bool = True) -> None:
    """Allocate for the workspace's capacity, so that ordering will not."""
    count, allocate = max(workspace.capacity, 1), allocate_for(workspace, _name(stable))
    order = allocate("order", (count,), _INT)
    counting.reserve(workspace.backend, workspace.capacity, cells(workspace), allocate)
    allocate("keys", (count,), _INT)
    if stable:
        allocate("sortable", (count,), np.dtype(np.uint32))
        radix.reserve(workspace.backend, workspace.capacity, max(1, cells(workspace).bit_length()), allocate, order)
    _places(workspace, count, allocate)


def allocate_for(workspace: Workspace, what: str) -> Allocate:
    """Return what allocates memory of an order of the workspace's particles, by that order's name."""
    return lambda name, shape, dtype: workspace.scratch(f"{what}.{name}", shape, dtype)


def _places(workspace: Workspace, count: int, allocate: Allocate) -> tuple[Any, Any]:
    # One axis behind the other, so that a longer first axis would do for fewer particles.
    return allocate("node", (3 * count,), _INT), allocate("fraction", (3 * count,), workspace.dtype)


def _order(workspace: Workspace, stable: bool) -> NodeOrder:
    backend, count, particles = workspace.backend, workspace.count, workspace.particles
    defines = {"REAL_IS_DOUBLE": int(workspace.dtype.itemsize == 8)}
    lattice, allocate = lattice_record(workspace), allocate_for(workspace, _name(stable))
    rows = max(count, 1)
    keys = allocate("keys", (rows,), _INT)
    node, fraction = _places(workspace, rows, allocate)
    if count:
        backend.kernel(_FILE, "node_keys", defines)(count, particles.node, keys, count, particles.rows, 0, -1, lattice)
    start, order, rank = counting.counting_sort(
        backend, keys, count, cells(workspace), stable=stable, allocate=allocate
    )
    if count:
        place = backend.kernel(_FILE, "node_places", defines)
        place(
            count, start, order, particles.node, particles.fraction, node, fraction, cells(workspace), particles.rows,
            rows,
        )  # fmt: skip
    return NodeOrder(start, order, rank, node, fraction, rows, lattice)


def lattice_record(workspace: Workspace, cells: tuple[int, ...] | None = None) -> Record:
    """Return ``Lattice`` of three axes: nodes of the field, and those at which stencils may begin, or other cells."""
    axes = workspace.axes
    return Record(
        "=12i", *(a.size for a in axes), *(int(a.wraps) for a in axes), *(a.low for a in axes),
        *(cells or (a.extent for a in axes)),
    )  # fmt: skip


# ---- by tile -------------------------------------------------------------------------------------------


def tile_order(workspace: Workspace) -> Any:
    """Return the particles of ``workspace`` by tile, (N,) int32; those without weight come last."""
    order = workspace.orders.get("tiles")
    if order is None:
        (bits, tiles), count, particles = _tiles(workspace), workspace.count, workspace.particles
        bins, allocate = math.prod(tiles) + 1, allocate_for(workspace, "tiles")
        keys = workspace.scratch("tiles.keys", (max(count, 1),), _INT)
        if count:
            run = workspace.backend.kernel(_FILE, "node_keys", {"REAL_IS_DOUBLE": 0})
            run(count, particles.node, keys, count, particles.rows, bits, bins - 1, lattice_record(workspace, tiles))
        _, order, _ = counting.counting_sort(workspace.backend, keys, count, bins, stable=False, allocate=allocate)
        workspace.orders["tiles"] = order
    return order


def reserve_tiles(workspace: Workspace) -> None:
    """Allocate for the workspace's capacity, so that ordering by tile will not."""
    _, tiles = _tiles(workspace)
    counting.reserve(workspace.backend, workspace.capacity, math.prod(tiles) + 1, allocate_for(workspace, "tiles"))
    workspace.scratch("tiles.keys", (max(workspace.capacity, 1),), _INT)


def _tiles(workspace: Workspace) -> tuple[int, tuple[int, ...]]:
    """Return how wide tiles are, as a power of two, and how many there are along each axis."""
    bits = _BITS
    while True:
        tiles = tuple(-(-axis.extent >> bits) + 1 for axis in workspace.axes)
        if math.prod(tiles) < _MOST_TILES:
            return bits, tiles
        bits += 1
