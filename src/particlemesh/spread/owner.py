# SPDX-License-Identifier: BSD-3-Clause
"""Spreading by warps that own windows of the mesh, and store every node once."""

from __future__ import annotations

import functools
import math
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

from particlemesh.arrays.operands import Layout, View
from particlemesh.backends.base import Kernel
from particlemesh.methods.contract import Option, Problem
from particlemesh.methods.launches import MOST, Form, Group, KernelMethod, Launch, vector
from particlemesh.orders import visits
from particlemesh.orders.visits import SIDE, Windows
from particlemesh.particles.workspace import Sizes, Workspace
from particlemesh.walk import patch as patches
from particlemesh.walk.patch import Patch

SUPPORTS = range(2, 17)
_WARPS = 16  # of a multiprocessor that windows keep busy
# With fewer particles of a column than this, little but stores takes time. Beyond the second-level cache they take less
# in the order of memory, with windows as long as the mesh.
_FEW, _STORING_WARPS = 16, 8
# Wide stencils: two rows of levels. Registers hold fewer warps, and fewer reals of a node.
_NARROW = patches.SUPPORTS[-1]
_WIDE_WARPS = 2  # of a group
_WIDE_REALS = {4: 4, 8: 2}  # of a node in one launch, by their bytes
# Groups of a multiprocessor, by levels, with reals of so many bytes and so many of them a node; 4 elsewhere.
_RESIDENT = {
    (4, 1): {10: 10, 12: 10, 14: 8, 16: 6}, (4, 2): {10: 8, 12: 8, 14: 6},
    (8, 1): {10: 8, 12: 8, 14: 6}, (8, 2): {10: 6},
}  # fmt: skip
_LOCAL_BYTES = 48_000  # of the 48 KB that a group may have
_LEAST_LEVELS = 4  # of a window, where others would do as well
_SECTOR = 32  # bytes
_BUSY = 5.5  # windows of a multiprocessor: fewer leave the device idle
_SLABS = 2**26  # bytes that slabs may take, or half of what the field takes


class _Owner(NamedTuple):
    spread: Kernel
    add: Kernel
    items: int  # of a warp
    reals: int  # of a node


class Owner(KernelMethod):
    """A warp owns a window of the mesh, visits all particles that reach it, and stores every node once.

    Nothing is added in memory and nothing is cleared. Windows are 8 x 8 nodes of a part of the x axis. Particles near
    the edge of a window are visited by its neighbours as well. Products are those of the walk. Windows with many
    particles are cut into pieces, which are added in a fixed order, so that results are reproducible.

    A value that is not finite spoils nodes that are fewer than 8 from its stencil. All other nodes are right.
    """

    name = "owner"
    cite = "particlemesh2026"
    deterministic = True
    prepares_orders = True
    confines_non_finite = False
    reads_stencils = False
    fills = True
    options: ClassVar[dict[str, Option]] = {
        "form": Option(None, ("matrix", "multiply"), "matrix instructions, or multiply and add; by default by device"),
        "parts": Option(None, range(1, 2**20), "of the x axis; by default as many as keep the device busy"),
        "resident": Option(None, range(1, 17), "groups of a multiprocessor, for which registers are bounded"),
        "alone": Option(2, range(8), "float32: so many visits left over are multiplied and added one by one"),
    }

    @classmethod
    def at_once(cls, sizes: Sizes) -> int:
        return MOST if sizes.axes[0].support <= _NARROW else _WIDE_REALS[sizes.dtype.itemsize]

    @classmethod
    def windows(cls, sizes: Sizes, count: int | None = None) -> Windows:
        """Return the windows of the mesh, for ``count`` particles; by default those that there are."""
        x, y, z = sizes.axes
        count = sizes.count if count is None else count
        columns = -(-y.size // SIDE) * -(-z.size // SIDE)
        parts = cls.option(sizes, "parts")
        if parts is None and x.support > _NARROW:
            reals, size = min(sizes.components, cls.at_once(sizes)), sizes.dtype.itemsize
            at_once = sizes.backend.units * _WIDE_WARPS * _resident(x.support, reals, size)
            parts = _parts_of(columns, x.size, x.support, at_once)
        elif parts is None:
            field = math.prod(sizes.mesh.field_shape) * sizes.components * sizes.dtype.itemsize
            storing = count < _FEW * columns and field > patches.CACHED
            warps = sizes.backend.units * (_STORING_WARPS if storing else _WARPS)
            parts = min(round(warps / columns), x.size // _LEAST_LEVELS)
        parts = max(1, parts, -(-x.size // visits.MOST_ALONG_X))
        return visits.windows_for(sizes.axes, parts, count)

    @classmethod
    def pieces(cls, sizes: Sizes, count: int | None = None) -> int:
        """Return how many pieces are cut off windows at most: each takes a slab."""
        windows, reals = cls.windows(sizes, count), min(sizes.components, cls.at_once(sizes))
        slab = windows.length[0] * SIDE**2 * reals * sizes.dtype.itemsize
        field = math.prod(sizes.mesh.field_shape) * reals * sizes.dtype.itemsize
        return max(1, min(windows.total, max(_SLABS, field // 2) // slab))

    @classmethod
    def declines(cls, problem: Problem) -> str | None:
        if problem.window.support not in SUPPORTS:
            return f"supports of {SUPPORTS[0]} to {SUPPORTS[-1]} nodes"
        return visits.declines(problem, cls.windows(problem))

    @classmethod
    def scratch_bytes(cls, problem: Problem) -> int:
        order = visits.order_bytes(problem, cls.windows(problem), cls.pieces(problem))
        return order + cls._slab_reals(problem) * problem.dtype.itemsize

    @classmethod
    def cost(cls, problem: Problem) -> tuple[float, float]:
        windows, size = cls.windows(problem), problem.dtype.itemsize
        mean = visits.visited(problem.axes, windows.length)
        # H200 and H100: visits, each with a product of levels; levels stored. Half of the times are 0.8 to 1.2 of this.
        first, level = (3.3e-11, 0.065) if size == 4 else (3.0e-11, 0.12)
        each = first * (1 + level * problem.axes[0].support * problem.components)
        # Rows that are no whole sectors share some with other rows: those are read before they are written.
        shared = problem.mesh.field_shape[-1] * problem.components * size % _SECTOR
        everywhere = replace(problem, filled=1.0)  # all nodes are stored, wherever particles are
        byte = 5.5e-13 + 4.9e-13 * everywhere.beyond_cache if shared else 3.1e-13
        slow = 1.0 if problem.backend.facts()["HAS_WARP"] else 1000.0
        busy = min(1.0, windows.total / (_BUSY * problem.backend.units))
        return visits.seconds(problem, windows, problem.filled), slow * (
            7e-6 + problem.nodes * problem.components * size * byte + problem.count * mean * each / busy
        )

    def reserve(self, workspace: Workspace) -> None:
        most = workspace.capacity  # with fewer particles, neither windows nor slabs are more
        visits.reserve(workspace, self.windows(workspace, most), self.pieces(workspace, most))
        self._slabs(workspace, self._slab_reals(workspace, most))

    @classmethod
    def _together(cls, sizes: Sizes, count: int | None = None) -> int:
        """Return how many groups of channels one launch handles at most: each has its slabs."""
        slab = cls.windows(sizes, count).length[0] * SIDE**2 * cls.at_once(sizes) * sizes.dtype.itemsize
        return max(1, _SLABS // (cls.pieces(sizes, count) * slab))

    @classmethod
    def _slab_reals(cls, sizes: Sizes, count: int | None = None) -> int:
        """Return the reals of all slabs for the plan's components."""
        reals, most = sizes.components, cls.at_once(sizes)
        each = cls.pieces(sizes, count) * cls.windows(sizes, count).length[0] * SIDE**2
        return each * (reals if reals < most else most * min(-(-reals // most), cls._together(sizes, count)))

    def _slabs(self, workspace: Workspace, reals: int) -> Any:
        return workspace.scratch("owner.slabs", (max(reals, self._slab_reals(workspace)),), workspace.dtype)

    def _order(self, workspace: Workspace) -> visits.Visits:
        return visits.visits_of(workspace, self.windows(workspace), self.pieces(workspace))

    def prepare(self, workspace: Workspace) -> None:
        self._order(workspace)

    @classmethod
    def patch(cls, sizes: Sizes) -> Patch:
        """Return what a warp keeps in registers."""
        x, single = sizes.axes[0].support, sizes.dtype.itemsize == 4
        form = cls.option(sizes, "form")
        matrix = form == "matrix" if form else bool(sizes.backend.facts()["HAS_MMA" if single else "HAS_WIDE_MMA"])
        return Patch(matrix, x + x % 2 if matrix else x, 1, (1, 1, 1), single, few=False)

    def compile(self, workspace: Workspace, form: Form, group: Group, field: Layout, *values: Layout | None) -> Launch:
        patch, reals, size = self.patch(workspace), group.reals, workspace.dtype.itemsize
        width = vector(group, field, size, 16 // size)
        along_x = -(-patch.levels // 8)
        rows = (2 * along_x + 2 + 3 * reals) if form.gradient else (along_x + 1 + reals)
        more: dict[str, Any] = {"ALONE": self.option(workspace, "alone") if size == 4 else 0}
        pairs = not form.gradient and values[0] is not None and paired(group, values[0], size)
        more |= {"ADDS": int(form.variant), "VALUES_PAIRED": int(pairs)}
        more |= patches.room_of(workspace, rows, 1 + form.gradient)[0]
        facts = patches.patch_defines(workspace, patch, group, width, field, int(form.gradient), **more)
        file, backend = "spread/owner.c", workspace.backend
        threads = backend.group_size
        if along_x > 1:
            threads = min(threads, 32 * _WIDE_WARPS) if backend.facts()["HAS_WARP"] else threads
            facts |= {"GROUP_SIZE": threads, **_batch(size, rows, threads // 32)}
        resident = self.option(workspace, "resident")
        if resident is None and not form.gradient:
            resident = _resident(patch.levels, reals, size)
        if resident is not None:
            facts["RESIDENT_GROUPS"] = resident
        items = -(-threads // facts["WARPS"])
        return (
            _Owner(backend.kernel(file, "spread_owner", facts), backend.kernel(file, "add_slabs", facts), items, reals),
        )

    def apply(
        self, workspace: Workspace, values: View, field: View, gradient: bool = False, fresh: bool = False, **_: Any
    ) -> None:
        order, windows, pieces = self._order(workspace), self.windows(workspace), self.pieces(workspace)
        most = self._together(workspace)
        runs = self.batches(workspace, Form(gradient, variant=not fresh), field, values, most=most)
        for owner, value_layout, layout, batches, together in runs:
            slab = pieces * windows.length[0] * SIDE**2 * owner.reals
            slabs = self._slabs(workspace, together * slab)
            owner.spread(
                owner.items * (windows.total + pieces) * together, order.records, order.visits, order.start, order.work,
                order.pieces, values.array, field.array, slabs, windows.total, slab, windows.record,
                value_layout, layout, batches, workspace.window_record, workspace.jacobian_record,
            )  # fmt: skip
            owner.add(
                8 * workspace.backend.units * workspace.backend.group_size, order.visits, order.start, order.work,
                order.pieces, slabs, field.array, slab, windows.record, layout, batches,
            )  # fmt: skip


def paired(group: Group, values: Layout, real_bytes: int) -> bool:
    """Return whether one instruction may read both parts of a value: they are side by side and aligned."""
    channel, particle, *_, part = values.strides
    if group.parts != values.parts:  # real channels counted as parts
        channel, part = group.first, channel
    return group.parts == 2 and part == 1 and not (channel % 2 or particle % 2 or values.alignment % (2 * real_bytes))


def _resident(levels: int, reals: int, size: int) -> int:
    """Return for how many groups registers are bounded: the most with few spills, as sm_90 is compiled."""
    if levels > _NARROW:
        return _RESIDENT.get((size, reals), {}).get(levels + levels % 2, 4)
    held = levels * reals
    if size == 4:  # windows keep 16 warps busy, and products of three pairs of levels at once take many registers
        return 5 if held <= 8 else 4 if held <= 16 else 3
    return 4 if held <= 12 else 3 if held <= 16 else 2


def _batch(size: int, rows: int, warps: int) -> dict[str, int]:
    """Return how many visits of a warp have their rows in local memory at a time, as :func:`patches.batch_of`."""
    pitch, left = (8 * rows + 4, 4) if size == 8 else (8 * (rows | 1), 8)
    bytes_of = {batch: (batch + left) * pitch * size for batch in (32, 16, 8)}
    batch = next((b for b in (32, 16) if warps * bytes_of[b] <= _LOCAL_BYTES), 8)
    return {"BATCH": batch, "WARPS": min(warps, _LOCAL_BYTES // bytes_of[batch])}


@functools.lru_cache(maxsize=64)
def _parts_of(columns: int, nodes: int, support: int, at_once: int) -> int:
    """Return the fastest number of parts of the x axis, where ``at_once`` windows are walked at a time."""

    def levels(parts: int) -> int:
        return -(-columns * parts // at_once) * (-(-nodes // parts) + support - 1)

    return min(range(1, max(2, nodes // _LEAST_LEVELS)), key=levels)
