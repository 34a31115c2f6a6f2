# SPDX-License-Identifier: BSD-3-Clause
"""Sort the particles by the number of their cell, then find where each cell begins."""

from __future__ import annotations

from typing import Any

import numpy as np

from particlemesh import checks
from particlemesh.backends.jit import compiled
from particlemesh.grid.builders.builder import Builder
from particlemesh.grid.sizes import U32, CpuJob, Job, Problem, cpu_bytes
from particlemesh.grid.storage import SortedCells
from particlemesh.sorting import radix

MOST_BITS, MOST_BITS_AN_AXIS = 31, 20  # of a place along a Morton curve


def curve_bits(shape: tuple[int, ...]) -> int:
    """Return the bits of a place along the Morton curve through a grid."""
    return sum((n - 1).bit_length() for n in shape)


class Sort(Builder):
    """A stable radix sort of cell numbers, on as many bits as they have; particles of a cell keep their order.

    Option: ``curve``, the order of the cells: ``"linear"``, or ``"morton"``, which keeps cells that are near each
    other in space near each other in memory.
    """

    name = "sort"
    cite = "green2008"
    options = {"curve": "linear"}  # noqa: RUF012 - never written

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        checks.one_of(self.chosen["curve"], "curve", ("linear", "morton"))
        self.morton = self.one_level = self.chosen["curve"] == "morton"

    @classmethod
    def declines(cls, problem: Problem) -> str | None:
        if problem.options.get("curve") != "morton":
            return None
        if not problem.ndim:
            return "keys lie along no curve"
        if problem.systems:
            return "one Morton curve goes through one box: it takes no systems"
        if curve_bits(problem.shape) > MOST_BITS or max(problem.shape) > 2**MOST_BITS_AN_AXIS:
            return f"a place along the Morton curve has {MOST_BITS} bits at most, {MOST_BITS_AN_AXIS} an axis"
        return "one Morton curve goes through one level" if problem.levels > 1 else None

    @classmethod
    def scratch_bytes(cls, problem: Problem) -> int:
        if not problem.gpu:
            n, cells, morton = problem.count, problem.cells, int(problem.options.get("curve") == "morton")
            order = 12 * n + 16 * cells if morton else 0  # searches go along another curve
            return cpu_bytes(problem, 4 * n + (8 + 8 * morton) * cells, max((19 + 8 * morton) * n, 16 * cells), order)
        records = 4 * problem.dtype.itemsize + 8 if problem.queries and problem.ndim else 4
        return problem.count * (16 + records) + 8 * problem.cells

    @classmethod
    def seconds(cls, problem: Problem) -> tuple[float, float]:
        if not problem.gpu:
            return 20e-9 * problem.count + 1e-9 * problem.cells, 4e-9 * problem.count
        return 30e-6 + 3.5e-11 * problem.count + 4e-12 * problem.cells, 3e-11 * problem.count

    def build(self, job: Job) -> SortedCells:
        backend, items, room = job.backend, job.items, job.room
        count, bins = items.count, items.bins
        status = job.clear_status()
        bits = curve_bits(job.cells.shape) if self.morton and job.cells is not None else (bins - 1).bit_length()
        last = (1 << bits) - 1 if self.morton else bins - 1
        # Positions without a cell get the last one's key, which saves a bit, and are expelled; keys go behind all.
        expels = job.cells is not None
        curve = {"CURVE_IS_MORTON": int(self.morton)}
        keys = room("keys", (count,), U32)
        if count:
            job.kernel("grid/builders/sort.c", "sort_keys", **curve)(
                count, *items.arrays, status, keys, count, bins, last if expels else last + 1, *items.records
            )
        keys, order = radix.sort(backend, keys, count, max(bits if expels else (last + 1).bit_length(), 1), room)
        if count and expels and not job.checked:
            job.kernel("grid/builders/sort.c", "expel", **curve)(
                1, *items.arrays, status, keys, order, count, bins, last, *items.records
            )
        start = room("start", (bins + 1,), U32)
        if not self.morton:
            job.kernel("grid/builders/sort.c", "cell_starts", **curve)(bins // 2 + 1, keys, start, count, bins)
            return SortedCells(start, order)
        ends = room("ends", (bins,), U32)
        backend.clear(start)
        backend.clear(ends)
        if count:
            bounds = job.kernel("grid/builders/sort.c", "cell_bounds", **curve)
            bounds(count, keys, start, ends, count, bins, last + 1, items.records[-1])
        return SortedCells(start, order, ends)

    def build_cpu(self, job: CpuJob) -> SortedCells:
        shape = (1, 1, job.bins) if job.cells is None or not self.morton else job.cells.shape
        return along_curve(job.keys, shape, job.bins, self.chosen["curve"])

    def order_cpu(self, job: CpuJob, storage: SortedCells) -> SortedCells:
        return storage


# ---- on the CPU: along a line or a Morton curve ---------------------------------------------------------------------


@compiled
def spread_bits(number, axes):
    """Return the bits of a number with ``axes - 1`` zeros between them."""
    spread = 0
    for bit in range(21):
        spread |= (number >> bit & 1) << bit * axes
    return spread


@compiled
def _morton_keys(keys, n0, n1, n2, axes, curve):
    """Write the place of each cell along a Morton curve, -1 for particles left out; one level only."""
    for k in range(keys.size):
        key = keys[k]
        if key < 0:
            curve[k] = -1
            continue
        c0, c1, c2 = key // n2 // n1, key // n2 % n1, key % n2
        code = spread_bits(c2, axes)
        shift = 1
        if n1 > 1:
            code |= spread_bits(c1, axes) << shift
            shift += 1
        if n0 > 1:
            code |= spread_bits(c0, axes) << shift
        curve[k] = code


@compiled
def _bounds(keys, order, start, ends):
    """Write where the particles of each cell begin and end."""
    for k in range(order.size):
        key = keys[order[k]]
        if k == 0 or keys[order[k - 1]] != key:
            start[key] = k
        ends[key] = k + 1


def along_curve(keys: np.ndarray, shape: tuple[int, int, int], cells: int, curve: str = "linear") -> SortedCells:
    """Return particles sorted by cell with NumPy's stable sort.

    Along a Morton curve (``"morton"``, one level), cells keep their linear numbers in ``start`` and ``ends``.
    """
    along: np.ndarray = keys
    if curve == "morton":
        along = np.empty(len(keys), np.int64)
        n0, n1, n2 = shape
        _morton_keys(keys, n0, n1, n2, max(1, sum(n > 1 for n in shape)), along)
    largest = int(along.max(initial=0)) + 1
    left_out = along < 0
    # The narrowest unsigned type: NumPy sorts 16 bits by radix.
    unsigned = np.where(left_out, largest, along).astype(np.min_scalar_type(largest))
    kept = len(keys) - int(np.count_nonzero(left_out))
    order = np.argsort(unsigned, kind="stable")[:kept].astype(np.int32)
    if curve == "linear":
        counts = np.bincount(keys[~left_out] if kept < len(keys) else keys, minlength=cells)
        return SortedCells(np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)]), order)
    start, ends = np.zeros(cells + 1, np.int64), np.zeros(cells, np.int64)
    _bounds(keys, order, start, ends)
    start[-1] = len(order)
    return SortedCells(start, order, ends)
