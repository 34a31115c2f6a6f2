# SPDX-License-Identifier: BSD-3-Clause
"""Interpolation by stored weights on the processor: tasks of neighbouring particles, shared among threads."""

from __future__ import annotations

from typing import Any

import numpy as np

from particlemesh.arrays.operands import View
from particlemesh.backends.cpu import claimed, plain, run, threads_for
from particlemesh.backends.jit import compiled
from particlemesh.backends.simd import fma, keep, load, splat, sums
from particlemesh.methods.by_tile import CALL, box_of, cold, corner_of, factors_at, place_of, rows_of, slopes_of
from particlemesh.methods.contract import Problem
from particlemesh.particles.workspace import Workspace

_SPARE = 32  # numbers that a vector may read past the last weight


class Weights:
    """The weights of every particle side by side, in the order of tiles."""

    def __init__(self, workspace: Workspace) -> None:
        self._weight = self._filled(workspace, slopes=False)
        self._slope: np.ndarray | None = None

    @classmethod
    def scratch_bytes(cls, method: Any, problem: Problem) -> int:
        # A gradient takes d times as much again.
        return int(method.entries(problem, problem.count)) * problem.dtype.itemsize

    @classmethod
    def cost(cls, method: Any, problem: Problem) -> tuple[float, float]:
        entries, used = problem.count * problem.stencil, threads_for(problem.threads, problem.count)
        # One thread, as the constants of `tiles`
        each = (0.73e-9 if problem.dtype.itemsize == 4 else 1.14e-9) * problem.components
        # Parts of complex numbers are taken apart first.
        numbers = problem.nodes * problem.components if problem.components % 2 == 0 else 0
        apart = numbers * problem.dtype.itemsize * 2.4e-10
        read = problem.count * (3e-8 + cold(problem) * 7.4e-9) + entries * each
        return 2 * CALL + (problem.count * 6.9e-8 + entries * 1.8e-9) / used, CALL + read / used + apart

    @classmethod
    def reserve(cls, method: Any, workspace: Workspace) -> None:
        cls._room(workspace, slopes=False)

    @classmethod
    def build(cls, method: Any, workspace: Workspace) -> Weights:
        return cls(workspace)

    @staticmethod
    def _room(workspace: Workspace, *, slopes: bool) -> np.ndarray:
        name, planes = ("stored.slopes", workspace.mesh.ndim) if slopes else ("stored.weights", 1)
        weights = workspace.capacity * planes * workspace.stencil
        array: np.ndarray = workspace.scratch(name, (weights + _SPARE,), workspace.dtype)
        return array

    def _filled(self, workspace: Workspace, *, slopes: bool) -> np.ndarray:
        """Return the weights, or slopes, of all particles in the order of tiles."""
        ordering, weight = workspace.particles.ordering, self._room(workspace, slopes=slopes)
        table, terms, _, lanes, _ = rows_of(workspace.window, workspace.axes, 1, workspace.dtype)
        run(
            _store, threads_for(workspace.threads, workspace.count), ordering.tiling.support, ordering.begin,
            ordering.end, ordering.records, table, terms, len(lanes), workspace.jacobian, slopes, weight,
            steps=workspace.count * workspace.stencil,
        )  # fmt: skip
        return weight

    def apply(
        self, workspace: Workspace, field: View, values: View | None, gradient: View | None = None, **_: Any
    ) -> None:
        """Interpolate values, gradients, or both."""
        if gradient is not None and self._slope is None:
            self._slope = self._filled(workspace, slopes=True)
        slope = self._weight if self._slope is None else self._slope
        ordering, ndim = workspace.particles.ordering, workspace.mesh.ndim
        without = ordering.order[ordering.kept :]
        width = rows_of(workspace.window, workspace.axes, 1, workspace.dtype).width
        targets = [None if view is None else view.numpy() for view in (values, gradient)]
        results = [
            np.empty(0 if t is None else workspace.count * n, workspace.dtype)
            for t, n in zip(targets, (1, ndim), strict=True)
        ]
        source = field.numpy()
        for c, part in np.ndindex(source.shape[0], source.shape[-1]):
            run(
                _read, threads_for(workspace.threads, workspace.count), ordering.tiling, ordering.tile, ordering.begin,
                ordering.end, ordering.packed, ordering.order, self._weight, slope, ndim,
                plain(np.ascontiguousarray(source[c, ..., part])), *results, width,
                steps=workspace.count * workspace.stencil,
            )  # fmt: skip
            for target, result in zip(targets, results, strict=True):
                if target is not None:
                    result = result.reshape(target.shape[1:-1])
                    result[without] = 0
                    target[c, ..., part] = result


@compiled
def _store(
    support, begin, end, records, table, terms, lanes, jacobian, slopes, weight, counter
):  # fmt: skip
    """Write the weights of each particle side by side, or ``slopes``, a coordinate after the other."""
    sx, sy, sz = support
    entries, planes = sx * sy * sz, jacobian.shape[1]
    factors, across = np.empty(6 * lanes, weight.dtype), np.empty(6, weight.dtype)
    for task in claimed(counter, begin.size):
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


@compiled(inline="always")
def _product(tiling, corner, field, weight, at, nodes, width):
    """Return the sum of a stencil's nodes times the weights from ``at`` on; nodes that do not exist are not read.

    A vector is as long as a row or longer. Its lanes beyond the row are dropped at the end.
    """
    (nx, ny, nz), wraps, (sx, sy, sz) = tiling.size, tiling.wraps, tiling.support
    whole = corner[2] >= 0 and corner[2] + sz <= nz
    total = splat(field.dtype.type(0), width)
    for i in range(sx):
        x = place_of(corner[0] + i, nx, wraps[0])
        for j in range(sy):
            y = place_of(corner[1] + j, ny, wraps[1])
            if x >= 0 and y >= 0:
                row = (x * ny + y) * nz
                if whole and row + corner[2] + len(width) <= field.size:
                    total = fma(load(weight, at, width), load(field, row + corner[2], width), total)
                else:
                    for m in range(sz):
                        z = place_of(corner[2] + m, nz, wraps[2])
                        nodes[m] = field[row + z] if z >= 0 else field.dtype.type(0)
                    total = fma(load(weight, at, width), load(nodes, 0, width), total)
            at += sz
    even, odd = sums(keep(total, sz))
    return even + odd


@compiled
def _read(
    tiling, tile, begin, end, packed, order, weight, slope, planes, field, values, gradients, width, counter
):  # fmt: skip
    """Interpolate values, gradients, or both (arrays that are not empty), until no task is left."""
    sx, sy, sz = tiling.support
    entries, nodes = sx * sy * sz, np.zeros(len(width), field.dtype)
    for task in claimed(counter, tile.size):
        low, _ = box_of(tiling, tile[task])
        for k in range(begin[task], end[task]):
            corner = corner_of(low, packed[4 * k + 3])
            if values.size:
                values[order[k]] = _product(tiling, corner, field, weight, k * entries, nodes, width)
            if gradients.size:
                for b in range(planes):
                    at = (planes * k + b) * entries
                    gradients[planes * order[k] + b] = _product(tiling, corner, field, slope, at, nodes, width)
