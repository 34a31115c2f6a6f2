# SPDX-License-Identifier: BSD-3-Clause
"""Interpolation from the field itself, with many loads in flight, for particles in the order by blocks."""

from __future__ import annotations

from typing import Any, ClassVar

from particlemesh.arrays.operands import Layout, View
from particlemesh.backends.base import Record
from particlemesh.interpolate.shares import WEIGHTLESS, Lanes, reading, weightless
from particlemesh.methods.contract import Option, Problem
from particlemesh.methods.launches import Form, Group, Launch, defines, targets, vector, written
from particlemesh.orders.block_order import Cells, blocks_of
from particlemesh.particles.workspace import Sizes, Workspace
from particlemesh.walk import patch as patches
from particlemesh.walk.by_block import ByBlock

# Groups that a multiprocessor must have registers for, by the bytes of a real, for windows of up to so many nodes: of
# many particles, of fewer than _SPARSE per node, whose loads wait for memory, and with gradients. With fewer groups too
# few loads are in flight, with more nodes go to memory and back (benchmarks/results/forms-interpolate-nvidia-h200.csv).
_RESIDENT: dict[int, dict[int, tuple[int | None, int | None, int | None]]] = {
    4: {4: (8, 4, None), 6: (7, 5, None), 8: (5, 5, None), 16: (None, None, None)},
    8: {4: (8, 4, None), 5: (6, 5, 6), 6: (6, 5, 5), 7: (5, 4, 4), 16: (4, 4, 4)},
}
_PLANES = 5  # the most groups where a particle has several planes
_SPARSE = 0.01
_COLUMNS = (8, 8, 4)  # cells of a block where the field is beyond the cache
_WORDS = 72  # registers that hold nodes between their loads and their use


class Direct(ByBlock):
    """Lanes share a particle in block order; the loads of several levels are issued before the first is used.

    It copies nothing and needs no tile, so few particles are read as fast as memory answers.
    """

    name = "direct"
    cite = "particlemesh2026"
    deterministic = True
    order_independent = True  # a particle's value does not depend on the others
    options: ClassVar[dict[str, Option]] = {
        "lanes": Option(None, (1, 2, 4, 8), "lanes of a warp that share a particle"),
        "row": Option(None, (1, 2, 4, 8), "lanes that share a row of its stencil, at most"),
        "reads": Option(None, (1, 2, 4), "reals that a lane reads at a time, where the field is aligned"),
        "levels": Option(None, range(1, 17), "levels along x whose loads are issued at once"),
        "groups": Option(None, range(1, 17), "groups that a multiprocessor must have registers for"),
    }

    @classmethod
    def cells(cls, sizes: Sizes, count: int) -> Cells:
        # Where nodes come from memory, all work-items at once read a few levels: with lines along x they would read
        # from all levels (H100, 10⁵ particles, 256³: up to 1.2 times as long).
        field = sizes.nodes * sizes.components * sizes.dtype.itemsize
        far = sizes.mesh.ndim == 3 and field > patches.CACHED
        return _COLUMNS if far else super().cells(sizes, count)

    @classmethod
    def cost(cls, problem: Problem) -> tuple[float, float]:
        # H200 and H100: half of the times are 0.86 to 1.15 of this. A particle's record and weights take as long as
        # many rows; several rows are read at once.
        slow = 1 if problem.backend.facts()["HAS_WARP"] else 1000
        stencils = reading(problem, 1.3e-12, 6.5e-14, 3.9e12, shared=True, latency=3.4e-8)
        return cls.ordering(problem), slow * (2.1e-6 + 3e-11 * problem.count + stencils)

    def compile(self, workspace: Workspace, form: Form, group: Group, field: Layout, *values: Layout | None) -> Launch:
        size, axes, results = workspace.dtype.itemsize, workspace.axes, written(*values)
        # Eight lanes where the slots of two rows or of a wide one fill them, else four. They read a node each if each
        # then has one: pairs would need one slot more for those that begin at odd nodes, and an instruction for each.
        few = axes[2].support <= 4 or axes[2].support * group.parts * size <= 32
        widest = group.parts if few and group.parts * size == 8 and axes[2].support <= 4 else 16 // size
        most = min(self.option(workspace, "reads") or widest, 16 // size)
        reals = vector(group, field, size, most, pairs=most)
        shared, row = self.option(workspace, "lanes") or (4 if few else 8), self.option(workspace, "row") or 8
        lanes = Lanes.of(axes, group.parts, shared, reals, row)
        words = lanes.rows * lanes.each * reals * size // 4  # of a level
        fitting = max(1, _WORDS // words // (1 + results["GRADIENT"]))
        levels = min(self.option(workspace, "levels") or fitting, axes[0].support)
        along = axes[3 - workspace.mesh.ndim :]
        open_ = not all(axis.wraps for axis in along)
        once = not open_ and all(axis.support <= axis.size for axis in along)
        groups = self.option(workspace, "groups") or self._resident(workspace, group, results["GRADIENT"])
        facts = defines(
            workspace, group, reals, LANES_ALL=lanes.all, LANES_ROW=lanes.z, LEVELS=levels, OPEN=int(open_),
            ROUND=int(once), FIELD_IS_WIDE=patches.wide(field), SYMMETRIC=patches.symmetric(workspace.window),
            LINES_ALONG=blocks_of(axes, self.taken(workspace)).along, **results, **WEIGHTLESS[form.variant],
            **({"RESIDENT_GROUPS": groups} if groups else {}),
        )  # fmt: skip
        return workspace.backend.kernel("interpolate/direct.c", "interpolate_direct", facts), lanes.all

    @staticmethod
    def _resident(workspace: Workspace, group: Group, gradient: int) -> int | None:
        by_support = _RESIDENT[workspace.dtype.itemsize]
        many, few, with_gradient = by_support[min(n for n in by_support if n >= workspace.window.support)]
        if gradient:
            return with_gradient
        bound = few if workspace.count < _SPARSE * workspace.nodes else many
        return min(bound, _PLANES) if bound and group.channels > 1 else bound

    def apply(
        self, workspace: Workspace, field: View, values: View | None, gradient: View | None = None, **_: Any
    ) -> None:
        order = self.order(workspace)
        unplaced, located, node, _ = weightless(workspace)
        form = Form(variant=unplaced)
        even = Record(f"={workspace.dtype.char}", order.blocks.lines / max(workspace.count, 1))
        for run, lanes, *layouts, together in self.batches(workspace, form, field, values, gradient):
            run(
                lanes * workspace.count * together, order.records, order.start, located, node, field.array,
                *targets(values, gradient), workspace.count, workspace.particles.rows, order.blocks.record, *layouts,
                workspace.window_record, workspace.jacobian_record, even,
            )  # fmt: skip
