# SPDX-License-Identifier: BSD-3-Clause
"""Interpolation by stored weights on the processor: tasks of neighbouring particles, shared among threads."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from particlemesh.backends.cpu import run, threads_for
from particlemesh.backends.jit import compiled, plain
from particlemesh.backends.simd import fetch_add
from particlemesh.binning.rows import rows_of
from particlemesh.binning.stencils import corner_of, factors_at, place_of, slopes_of
from particlemesh.binning.tiles import box_of, ordering_of

if TYPE_CHECKING:
    from particlemesh.arrays import View
    from particlemesh.plan import Plan


@compiled
def _store(
    support, begin, end, records, table, terms, lanes, jacobian, slopes, weight, counter
):  # fmt: skip
    """Write the weights of each particle side by side, or ``slopes``, a coordinate after the other."""
    sx, sy, sz = support
    entries, planes = sx * sy * sz, jacobian.shape[1]
    factors, across = np.empty(6 * lanes, weight.dtype), np.empty(6, weight.dtype)
    while True:
        task = fetch_add(counter, 0, 1)
        if task >= begin.size:
            return
        for k in range(begin[task], end[task]):
            factors_at(table, terms, lanes, records[4 * k], records[4 * k + 1], records[4 * k + 2], slopes, factors)
            at = k * entries * (planes if slopes else 1)
            for i in range(sx):
                for j in range(sy):
                    if slopes:
                        slopes_of(factors, lanes, i, j, jacobian, across)
                        for b in range(planes):
                            for m in range(sz):
                                wz, dz = factors[2 * lanes + m], factors[5 * lanes + m]
                                weight[at + b * entries + m] = across[2 * b] * wz + across[2 * b + 1] * dz
                    else:
                        xy = factors[i] * factors[lanes + j]
                        for m in range(sz):
                            weight[at + m] = xy * factors[2 * lanes + m]
                    at += sz


@compiled
def _gather(tiling, corner, field, parts, part, nodes):
    """Copy the nodes of a stencil; those that do not exist are zero."""
    (nx, ny, nz), wraps, (sx, sy, sz) = tiling.size, tiling.wraps, tiling.support
    whole = corner[2] >= 0 and corner[2] + sz <= nz
    at = 0
    for i in range(sx):
        x = place_of(corner[0] + i, nx, wraps[0])
        for j in range(sy):
            y = place_of(corner[1] + j, ny, wraps[1])
            row = (x * ny + y) * nz
            if whole and x >= 0 and y >= 0:
                first = (row + corner[2]) * parts + part
                for m in range(sz):
                    nodes[at + m] = field[first + m * parts]
            else:
                for m in range(sz):
                    z = place_of(corner[2] + m, nz, wraps[2])
                    here = x >= 0 and y >= 0 and z >= 0
                    nodes[at + m] = field[(row + z) * parts + part] if here else field.dtype.type(0)
            at += sz


@compiled(fastmath={"reassoc", "contract", "nsz"})
def _dot(weight, begin, nodes):
    """Return the sum of products, in whatever order is fast: the same every time."""
    total = nodes.dtype.type(0)
    for e in range(nodes.size):
        total += weight[begin + e] * nodes[e]
    return total


@compiled
def _read(
    tiling, tile, begin, end, packed, order, weight, slope, planes, parts, field, values, gradients, counter
):  # fmt: skip
    """Interpolate values, gradients, or both (arrays that are not empty), until no task is left."""
    sx, sy, sz = tiling.support
    nodes = np.empty(sx * sy * sz, field.dtype)
    while True:
        task = fetch_add(counter, 0, 1)
        if task >= tile.size:
            return
        low, _ = box_of(tiling, tile[task])
        for k in range(begin[task], end[task]):
            corner = corner_of(low, packed[4 * k + 3])
            for part in range(parts):
                _gather(tiling, corner, field, parts, part, nodes)
                if values.size:
                    values[order[k] * parts + part] = _dot(weight, k * nodes.size, nodes)
                if gradients.size:
                    for b in range(planes):
                        at = (planes * order[k] + b) * parts + part
                        gradients[at] = _dot(slope, (planes * k + b) * nodes.size, nodes)


def store(plan: Plan, weight: np.ndarray, *, slopes: bool = False) -> None:
    """Write the weights, or slopes, of the plan's particles in the order of tiles."""
    ordering = ordering_of(plan)
    table, terms, _, lanes = rows_of(plan.window.table, plan.axes, 1, plan.dtype)
    run(
        _store, threads_for(plan.threads, plan.count), ordering.tiling.support, ordering.begin, ordering.end,
        ordering.records, table, terms, len(lanes), plan.jacobian, slopes, weight, np.zeros(1, np.int64),
    )  # fmt: skip


def read(
    plan: Plan, weight: np.ndarray, slope: np.ndarray | None, field: View, values: View | None, gradient: View | None
) -> None:  # fmt: skip
    """Interpolate values, gradients, or both."""
    ordering, parts = ordering_of(plan), field.layout.parts
    without = ordering.order[ordering.kept :]
    targets = [None if view is None else view.numpy() for view in (values, gradient)]
    for c, source in enumerate(field.numpy()):
        results = []
        for target in targets:
            shape = (0,) if target is None else target.shape[1:]
            result = np.empty(math.prod(shape), plan.dtype)
            results.append(result)
        run(
            _read, threads_for(plan.threads, plan.count), ordering.tiling, ordering.tile, ordering.begin, ordering.end,
            ordering.packed, ordering.order, weight, weight if slope is None else slope, plan.mesh.ndim, parts,
            plain(np.ascontiguousarray(source)), *results, np.zeros(1, np.int64),
        )  # fmt: skip
        for target, result in zip(targets, results, strict=True):
            if target is not None:
                whole = result.reshape(target.shape[1:])
                whole[without] = 0
                target[c] = whole
