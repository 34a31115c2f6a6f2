# SPDX-License-Identifier: BSD-3-Clause
"""Visits of the particles of a plan to windows of its mesh, on CUDA and OpenCL: made once per configuration.

Windows cut the field into parts. A particle visits every window that its stencil reaches, so that one warp can sum all
that a window gets. Visits are sorted by window, then by the node along x at which stencils begin, and then by index.
Where visits are many, nodes along y come before the index. So the order of sums is always the same
(``orders/visits.h``).
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from particlemesh.backends.base import As, Record, Unread, kept
from particlemesh.particles.stencil import Axis, base_of
from particlemesh.particles.workspace import Sizes, Workspace
from particlemesh.sorting.scan import allocate_counts, scan

_FILE = "orders/visits.c"
SIDE = 8  # nodes of a window along y and z
MOST_ALONG_X = 2**20  # nodes of a window along x, for which a visit has bits
_SMALL = 24  # as in visits.c
_CROWDED_GROUPS = 512  # that sort crowded bins
_LEAST = 256  # visits of a piece
_MOST_BINS = 2**32 - 2**8
_FULL = 8  # visits of a bin, in the mean: one work-item sorts nearly all bins
_WORDS = 2  # 64-bit words of `work` before the counts, as in visits.h
_U32, _U64 = np.dtype(np.uint32), np.dtype(np.uint64)


@dataclass(frozen=True)
class Windows:
    """How the nodes of a field are cut into windows; three axes, missing ones first.

    Attributes
    ----------
    length : (3,) ints
        Nodes of a window.
    counts : (3,) ints
        Windows along each axis.
    total, bins : int
        Windows in all; bins of all windows: some for each node along x at which stencils that reach it may begin.
    most : int
        The most windows that a stencil reaches, counted as often as it comes round.
    height : int
        Nodes along y, at which stencils may begin, of a bin.
    """

    length: tuple[int, int, int]
    counts: tuple[int, int, int]
    total: int
    bins: int
    most: int
    height: int
    record: Record


def windows_for(axes: tuple[Axis, Axis, Axis], parts: int, count: int) -> Windows:
    """Return the windows of a field that is cut into about ``parts`` parts along x, for ``count`` particles."""
    height = 1 << (_begins(axes[1]) - 1).bit_length()
    while True:
        windows, half = windows_of(axes, parts, height), height // 2
        few = count * visited(axes, windows.length) <= _FULL * windows.bins
        if few or not half or windows_of(axes, parts, half).bins >= _MOST_BINS:
            return windows
        height = half


def _begins(axis: Axis) -> int:
    """Return the number of first nodes along y whose stencils reach a window."""
    return min(SIDE, axis.size) + axis.support - 1


def visited(axes: tuple[Axis, Axis, Axis], length: tuple[int, ...]) -> float:
    """Return how many windows of ``length`` nodes a stencil reaches in the mean."""
    return math.prod(1 + (axis.support - 1) / min(n, axis.size) for axis, n in zip(axes, length, strict=True))


@functools.lru_cache(maxsize=64)
def windows_of(axes: tuple[Axis, Axis, Axis], parts: int, height: int) -> Windows:
    """Return the windows of a field that is cut into about ``parts`` parts along x, with bins of ``height`` nodes."""
    along_x = -(-axes[0].size // max(1, min(parts, axes[0].size)))
    length = along_x, SIDE, SIDE
    counts = tuple(-(-axis.size // n) for axis, n in zip(axes, length, strict=True))
    total = math.prod(counts)
    before = axes[2].support - 1  # no missing axis
    rows = -(-_begins(axes[1]) // height)
    record = Record(
        "=21i", *base_of(axes), *(a.size for a in axes), *(int(a.wraps) for a in axes), *(a.support for a in axes),
        *length, *counts, before, height, rows,
    )  # fmt: skip
    bins = total * (along_x + axes[0].support - 1) * rows
    most = math.prod(_reached(axis, n) for axis, n in zip(axes, length, strict=True))
    return Windows(length, (counts[0], counts[1], counts[2]), total, bins, most, height, record)


def _reached(axis: Axis, length: int) -> int:
    """Return how many windows of ``length`` nodes a stencil reaches at most along an axis."""
    count = -(-axis.size // length)
    inside = -(-(axis.support - 1) // length) + 1
    if not axis.wraps:
        return min(inside, count)
    if axis.size < axis.support:
        return -(-(axis.size - 1 + axis.support) // axis.size) * count
    return min(inside + (axis.size % length > 0), count + 1)  # where it comes round, the last window may be narrow


def declines(sizes: Sizes, windows: Windows) -> str | None:
    """Return why particles of ``sizes`` cannot visit these windows, or None."""
    if sizes.count * windows.most >= 2**32:
        return "2**32 visits or more"
    if windows.length[0] > MOST_ALONG_X:
        return f"windows of more than {MOST_ALONG_X} nodes along x"
    return "nearly 2**32 bins of visits or more" if windows.bins >= _MOST_BINS else None


def order_bytes(sizes: Sizes, windows: Windows, pieces: int) -> int:
    """Return the bytes that the order takes."""
    visits = sizes.count * windows.most
    return visits * 8 + 4 * (visits // _SMALL) + sizes.count * 4 * sizes.dtype.itemsize + 8 * windows.bins + 16 * pieces


def seconds(sizes: Sizes, windows: Windows, filled: float) -> float:
    """Return the predicted seconds of ordering, with particles in a part ``filled`` of the mesh."""
    visits = sizes.count * visited(sizes.axes, windows.length)
    # H200: 51 to 63 us for 10^5 particles, 170 to 250 for 10^6. Full bins take a sort of a group each: 6.5 ms for 10^7.
    each = 7e-11 if visits <= _SMALL * windows.bins * filled else 2.4e-10
    return 3.5e-5 + visits * each + windows.bins * 2e-11


@dataclass(frozen=True)
class Visits:
    """Visits by window.

    Attributes
    ----------
    visits : (V,) uint64
        As orders/visits.h has them.
    start : (bins + 1,) uint32
        Where the visits of each bin begin.
    records : (words * N,) uint32
        The particles' fractions, in the caller's order, as particles/packed.h has them.
    work : uint32
        ``WORK_PIECES`` and ``WORK_LIMIT`` of orders/visits.h.
    pieces : (4 * most,) uint32
        Pieces of windows with many visits, other than the first: the window, the first visit, the end, and the number.
    """

    visits: Any
    start: Any
    records: Any
    work: Any
    pieces: Any


def visits_of(workspace: Workspace, windows: Windows, pieces: int) -> Visits:
    """Return the visits of the particles of ``workspace``, sorted now if they are not yet.

    At most ``pieces`` pieces are cut off windows with many visits.
    """
    key = "visits", windows, pieces
    order: Visits | None = workspace.orders.get(key)
    if order is None:
        order = workspace.orders[key] = _order(workspace, windows, pieces)
    return order


def reserve(workspace: Workspace, windows: Windows, pieces: int) -> None:
    """Allocate for the workspace's capacity, so that ordering will not."""
    _memory(workspace, windows, pieces, max(workspace.capacity, 1))
    _records(workspace, max(workspace.capacity, 1))
    if workspace.sorted:
        workspace.particles.make_stencils()  # which are not kept as they are read here


def _memory(workspace: Workspace, windows: Windows, pieces: int, count: int) -> tuple[Any, ...]:
    def allocate(what: str, shape: tuple[int, ...], dtype: Any) -> Any:
        return workspace.scratch(f"visits.{what}", shape, dtype)

    most = count * windows.most
    work = allocate_counts(workspace.backend, windows.bins, _U32, allocate, "work", _WORDS)
    start = allocate("start", (windows.bins + 1,), _U32)
    return (
        work, start, allocate("visits", (most,), _U64), allocate("queue", (most // _SMALL + 1,), _U32),
        allocate("pieces", (4 * pieces,), _U32),
    )  # fmt: skip


def _records(workspace: Workspace, count: int) -> Any:
    return workspace.scratch("visits.records", (count * workspace.dtype.itemsize,), _U32)


def _order(workspace: Workspace, windows: Windows, most: int) -> Visits:
    backend, count = kept(workspace.backend, workspace.memory.kernels), workspace.count
    work, start, visits, queue, pieces = _memory(workspace, windows, most, max(count, 1))
    packed, node, fraction = workspace.particles.located()
    records = node if packed else _records(workspace, max(count, 1))
    particles = (As(node, np.int32), Unread(fraction)) if packed else (node, fraction)
    defines = {"REAL_IS_DOUBLE": int(workspace.dtype.itemsize == 8), "PACKED": int(packed)}
    words, rows, record = As(work, _U32), workspace.particles.rows, windows.record

    def run(name: str, items: int, *arguments: Any) -> None:
        backend.kernel(_FILE, name, defines)(items, *arguments)

    backend.clear(work)
    if count:
        run("count_visits", count, *particles, words, Unread(records) if packed else records, count, rows, record)
    scan(backend, work, start, windows.bins, skip=_WORDS)
    if count:
        run("place_visits", count, *particles, start, words, visits, count, rows, record)
        run("settle_visits", windows.bins, start, words, visits, queue, windows.bins)
        run("settle_crowded_visits", _CROWDED_GROUPS * backend.group_size, start, words, visits, queue)
    run("cut_windows", windows.total, start, words, pieces, windows.total, most, _LEAST, record)
    return Visits(visits, start, records, words, pieces)
