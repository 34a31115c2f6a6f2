# SPDX-License-Identifier: BSD-3-Clause
"""Spreading into 64-bit integers on the CPU, with the loops of `particlemesh.spread.colouring`.

A contribution is a product of one particle's numbers only, in float64, rounded to an integer. So sums depend neither on
the order of particles, nor on tiles, threads, or the rest of the mesh.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from particlemesh.arrays.operands import View
from particlemesh.backends.cpu import claimed, plain, ranges, run, threads_for
from particlemesh.backends.jit import compiled
from particlemesh.backends.simd import fetch_add
from particlemesh.methods.by_tile import Rows, box_of, rows_of
from particlemesh.particles.locate import SKIP
from particlemesh.particles.workspace import Workspace
from particlemesh.spread.colouring import add_channel, terms_of

_ROOM = 11  # bits of a sum beyond those of a contribution, which has 51 (`add_product`)
_BLOCK = 1 << 14  # numbers
_FAR = 1000  # powers of two that a factor in float64 holds


class HostSums:
    """Sums of one configuration. Values that are not finite have the exponent ``no_bound``.

    Attributes
    ----------
    not_finite : bool
        Whether any value was.
    """

    def __init__(self, workspace: Workspace, no_bound: int) -> None:
        self.not_finite = False
        self._workspace, self._no_bound = workspace, no_bound
        self._crowd = 0  # the most particles whose stencils begin at one node
        line = workspace.particles.line
        if workspace.count and line is not None:
            nodes = line.node[: workspace.count]
            nodes = nodes if nodes.min() != SKIP else nodes[nodes != SKIP]
            self._crowd = int(np.bincount(nodes - workspace.axes[2].low).max(initial=0))
        elif workspace.count:
            ordering = workspace.particles.ordering
            workers = min(threads_for(workspace.threads, workspace.count), len(ordering.ready))
            most = np.zeros(max(1, workers), np.int64)
            run(
                _crowd_tasks, workers, ordering.tiling, ordering.ready, ordering.kept, ordering.packed, most,
                steps=5 * workspace.count,
            )  # fmt: skip
            self._crowd = int(most.max())

    def _rows(self, parts: int, along: int | None) -> Rows:
        return rows_of(self._workspace.window, self._workspace.axes, parts, np.dtype(np.float64), along)

    @np.errstate(invalid="ignore", over="ignore")  # particles without weight may have any values
    def bounds(self, values: View, order: int, share: int, peak: int) -> np.ndarray:
        """Return exponents: of a node and of each part.

        A node gets up to ``share`` / 256 of one particle in each cell, and ``2**peak`` of each.
        """
        workspace, least = self._workspace, int(np.finfo(self._workspace.dtype).minexp)
        bounds = [max(peak + _ROOM, (self._crowd * share).bit_length() - 8)]
        for channel in values.numpy():
            largest = np.zeros(channel.shape[-1])
            for _, numbers in terms_of(self._rows, workspace.jacobian, channel, order):
                slopes = workspace.jacobian[3 - workspace.mesh.ndim :] if order else (None,)
                for along in slopes:
                    some = numbers if along is None else sum(a * numbers[:, b] for b, a in enumerate(along))
                    largest = np.maximum(largest, self._largest(some))
            for one in largest.tolist():
                exponent = max(math.frexp(one)[1], least) if one else least
                bounds.append(exponent if math.isfinite(one) else self._no_bound)
        return np.array(bounds, np.int32)

    def _largest(self, numbers: np.ndarray) -> np.ndarray:
        """Return the largest absolute value of each part of (N, parts); infinite or NaN if any value is."""
        particles, count = self._workspace.particles, len(numbers)
        if particles.line is not None:
            skipped = particles.line.node[:count] == SKIP
            numbers = numbers[~skipped] if skipped.any() else numbers
        elif particles.ordering.kept < count:
            numbers = numbers[particles.ordering.order[: particles.ordering.kept]]
        numbers = np.ascontiguousarray(numbers)
        whole = np.dtype(np.int32 if numbers.dtype == np.float32 else np.int64)
        used = threads_for(self._workspace.threads, len(numbers))
        most, mask = np.zeros((max(1, used), 2), whole), whole.type(2 ** (8 * whole.itemsize - 1) - 1)
        run(_largest_bits, used, plain(numbers).view(whole), mask, most, steps=numbers.size)
        most = most.max(0) if numbers.shape[1] == 2 else most.max(keepdims=True)[0]
        return most.view(numbers.dtype).astype(np.float64)

    @np.errstate(invalid="ignore", over="ignore")
    def add(self, values: View, order: int, bounds: Any, sums: np.ndarray, *, fresh: bool = False) -> None:
        """Add to integers (channels, nx, ny, nz, parts), in the units that ``bounds`` fix."""
        each = np.asarray(bounds, np.int64)[1:].reshape(len(sums), -1)
        for channel, exponents, target in zip(values.numpy(), each, sums, strict=True):
            bounded = exponents != self._no_bound
            powers = np.where(bounded, 62 - int(bounds[0]) - exponents, 0)
            numbers = channel if bounded.all() else np.where(bounded, channel, channel.dtype.type(0))
            if np.abs(powers).max() > _FAR:
                numbers, powers = np.ldexp(numbers.astype(np.float64), powers - powers // 2), powers // 2
            scale = 2.0 ** float(powers[0]), 2.0 ** float(powers[-1])
            add_channel(self._workspace, self._rows, numbers, order, target, fresh=fresh, scale=scale)

    def convert(self, sums: np.ndarray, bounds: Any, field: np.ndarray, *, adds: bool) -> None:
        """Write the field that integers stand for, or add it."""
        each = np.asarray(bounds, np.int64)[1:].reshape(len(field), -1)
        for source, exponents, target in zip(sums, each, field, strict=True):
            bounded = exponents != self._no_bound
            self.not_finite |= not bounded.all()
            powers = exponents + int(bounds[0]) - 62
            factors = [
                [np.nan if p > self._no_bound // 2 else 2.0 ** float(n) for n in (p // 2, p - p // 2)] for p in powers
            ]
            whole = target if target.flags.c_contiguous else np.array(target, order="C")
            numbers, reals = plain(np.ascontiguousarray(source)), whole.reshape(-1)
            used = threads_for(self._workspace.threads, numbers.size)
            run(_to_reals, used, numbers, tuple(factors[0]), tuple(factors[-1]), adds, reals, steps=numbers.size)
            if whole is not target:
                target[...] = whole


@compiled
def _to_reals(numbers, even, odd, adds, reals, counter):
    """Write integers times two powers of two, other ones for odd numbers, or add them."""
    (a, b), (c, d) = even, odd
    for begin, end in ranges(counter, (numbers.size + 1) // 2, _BLOCK):
        some, out = numbers[2 * begin : 2 * end], reals[2 * begin : 2 * end]
        for k in range(some.size):
            number = some[k] * a * b if k % 2 == 0 else some[k] * c * d
            out[k] = out[k] + number if adds else number


@compiled
def _largest_bits(numbers, mask, most, counter):
    """Write the largest bits without sign of even and of odd numbers; those of NaN exceed all others."""
    row = fetch_add(counter, 1, 1)
    for begin, end in ranges(counter, numbers.size // 2, _BLOCK):
        even, odd = numbers.dtype.type(0), numbers.dtype.type(0)
        for k in range(begin, end):
            even, odd = max(even, numbers[2 * k] & mask), max(odd, numbers[2 * k + 1] & mask)
        most[row, 0], most[row, 1] = max(most[row, 0], even), max(most[row, 1], odd)
    if row == 0 and numbers.size % 2:
        most[0, 0] = max(most[0, 0], numbers[-1] & mask)


@compiled
def _crowd_tasks(tiling, ready, kept, packed, most, counter):
    """Write the most particles of a cell, tile by tile until none is left."""
    row = fetch_add(counter, 1, 1)
    counts = np.zeros(0, np.int32)
    for this in claimed(counter, ready.shape[0]):
        begin, end = ready[this, 0], ready[this + 1, 0] if this + 1 < ready.shape[0] else kept
        if end - begin <= most[row]:
            continue
        _, nodes = box_of(tiling, this)
        cells = nodes[0] * nodes[1] * nodes[2]
        if counts.size < cells:
            counts = np.empty(cells, np.int32)
        counts[:cells] = 0
        for n in range(begin, end):
            local = packed[4 * n + 3]
            cell = ((local >> 20) * nodes[1] + (local >> 10 & 1023)) * nodes[2] + (local & 1023)
            counts[cell] += 1
        most[row] = max(most[row], counts[:cells].max())
