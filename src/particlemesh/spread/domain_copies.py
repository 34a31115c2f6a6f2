# SPDX-License-Identifier: BSD-3-Clause
"""Spreading block by block, in step: every work-item owns a cell, and all go through the stencil together."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

from particlemesh.arrays.views import Layout, View
from particlemesh.methods.contract import Option, Problem
from particlemesh.methods.launches import MOST, Group, KernelMethod, field_record, groups, kernel, values_record
from particlemesh.orders import domain_copies, node_order
from particlemesh.orders.domain_copies import Blocks, fullest
from particlemesh.particles.workspace import Sizes, Workspace
from particlemesh.spread.particle import LANES

# Local memory that every GPU gives a group without being asked twice.
_MOST_LOCAL = 48 * 1024


class InBlocks(KernelMethod):
    """What both directions share: options, memory, the extended mesh."""

    options: ClassVar = {
        "block": Option(None, tuple, "cells of a block along each axis; by default 512, 16 x 32, 4 x 4 x 32"),
        "copies": Option(
            None, range(1, 2**20), "domain copies in memory; by default what the fullest cell of a uniform cloud needs"
        ),
        "ranks": Option(
            "stable", ("stable", "atomic"), "which particle of a cell goes to which copy: by index, or as atomics count"
        ),
    }
    cite = "buyukkececi2013"
    deterministic = True

    @classmethod
    def blocks(cls, sizes: Sizes, count: int) -> Blocks:
        """Return how the mesh is cut into blocks, and how many copies ``count`` particles get."""
        return domain_copies.blocks_of(sizes, count, cls.option(sizes, "block"), cls.option(sizes, "copies"))

    @classmethod
    def declines(cls, problem: Problem) -> str | None:
        shape = cls.option(problem, "block")
        if shape is not None and len(shape) != problem.mesh.ndim:
            return f"blocks of {len(shape)} lengths; the mesh has {problem.mesh.ndim} axes"
        if math.prod(cls.blocks(problem, problem.count).room) >= 2**31:
            return "a block that reaches 2**31 nodes or more"
        return node_order.declines(problem)

    @classmethod
    def scratch_bytes(cls, problem: Problem) -> int:
        """Return the bytes for values; vectors and gradients take a segment of the copies for each axis more."""
        blocks, reals = cls.blocks(problem, problem.count), min(problem.components, MOST)
        carried = reals * (blocks.copies * blocks.places + blocks.nodes) * problem.dtype.itemsize
        return domain_copies.memory_bytes(problem, blocks) + carried

    @classmethod
    def steps(cls, problem: Problem) -> float:
        """Return the predicted additions to nodes or from them, those for dummies included.

        With fewer than 512 blocks part of a large GPU would be idle, as if there were more to do.
        """
        blocks = cls.blocks(problem, problem.count)
        mean = problem.count / node_order.cells(problem)
        taken = blocks.places * fullest(mean, blocks.group)
        idle = max(1.0, 512 / math.prod(blocks.blocks))
        return taken * problem.stencil * problem.components * idle

    @classmethod
    def preparation(cls, problem: Problem) -> float:
        # Sorting, and positions to their places: H200 (benchmarks/results/guo-long_totals-nvidia-h200.csv).
        return 3e-5 + problem.count * 2.3e-10 + problem.nodes * 1.7e-11

    def __init__(self) -> None:
        super().__init__()
        self._last: tuple[Any, int] | None = None

    def segments(self, workspace: Workspace) -> int:
        """Return the most segments of the copies that a call takes."""
        raise NotImplementedError

    def reserve(self, workspace: Workspace) -> None:
        blocks = self.blocks(workspace, workspace.capacity)
        domain_copies.reserve(workspace, blocks, stable=self._stable(workspace))
        self.carried(workspace, blocks, self.segments(workspace))
        self.extended(workspace, blocks, min(workspace.components, MOST))

    def carried(self, workspace: Workspace, blocks: Blocks, segments: int) -> Any:
        """Return memory for what particles bring or get, in copies."""
        return workspace.scratch("copies.carried", (segments * blocks.copies * blocks.places,), workspace.dtype)

    def extended(self, workspace: Workspace, blocks: Blocks, reals: int) -> Any:
        """Return memory for the extended mesh."""
        return workspace.scratch("copies.extended", (reals * blocks.nodes,), workspace.dtype)

    def prepare(self, workspace: Workspace) -> None:
        """Put particles into domain copies."""
        if workspace.count:
            self._copies(workspace)

    def _copies(self, workspace: Workspace) -> domain_copies.DomainCopies:
        return domain_copies.domain_copies(
            workspace, self.blocks(workspace, workspace.count), stable=self._stable(workspace)
        )

    def _stable(self, workspace: Workspace) -> bool:
        return bool(self.option(workspace, "ranks") == "stable")

    def compiled(
        self, workspace: Workspace, file: str, names: tuple[str, ...], group: Group, **wanted: int
    ) -> tuple[int, int, list[Any]]:
        """Return the reals of a group of channels, the bytes of local memory they take, and the kernels."""
        reals = group.parts * group.channels
        local = reals * math.prod(self.blocks(workspace, 0).room) * workspace.dtype.itemsize
        within = local <= _MOST_LOCAL
        runs = [kernel(workspace, file, n, group, 1, WITHIN=int(within), **wanted, **LANES) for n in names]
        return reals, local if within else 0, runs

    def extended_blocks(self, workspace: Workspace) -> tuple[np.ndarray, np.ndarray]:
        """Return the extended mesh of the last call, of its last group of channels; waits for the device.

        Returns
        -------
        blocks : (reals, *blocks, *nodes of an extended block)
            What each block has for each node that its cells reach: added up at each node, after spreading it is the
            field.
        first : (*blocks, d) int
            The first node of each; on an axis that wraps, nodes are to be taken modulo its size.
        """
        if self._last is None or workspace.orders.get("extended mesh") is not self:
            raise RuntimeError("there is no extended mesh of this method: its last call was not the plan's last one.")
        array, reals = self._last
        b, d = self.blocks(workspace, workspace.count), workspace.mesh.ndim
        host = workspace.backend.download(array).ravel()[: reals * b.nodes].reshape(reals, *b.blocks, *b.room)
        host = host[..., : b.extended[0], : b.extended[1], : b.extended[2]].reshape(
            reals, *b.blocks[3 - d :], *b.extended[3 - d :]
        )
        along = [low + n * np.arange(k) for low, n, k in zip(b.low, b.cells, b.blocks, strict=True)]
        return host, np.stack(np.meshgrid(*along[3 - d :], indexing="ij"), -1)


class DomainCopies(InBlocks):
    """Particles of a cell in copies of the domain; a group per block adds them in step, without atomics."""

    name = "domain_copies"

    @classmethod
    def declines(cls, problem: Problem) -> str | None:
        if problem.deterministic and cls.option(problem, "ranks") == "atomic":
            return "ranks='atomic' is not deterministic"
        return super().declines(problem)

    @classmethod
    def cost(cls, problem: Problem) -> tuple[float, float]:
        slow = 1.0 if problem.dtype.itemsize == 4 else 1.5
        # H200 (benchmarks/results/guo-long_totals-nvidia-h200.csv, guo-added_clouds-nvidia-h200.csv)
        adds = cls.steps(problem) * (0.15e-12 / problem.components + 0.3e-12) * slow
        return cls.preparation(problem), 4e-5 + problem.nodes * problem.components * 6.5e-11 * slow + adds

    def segments(self, workspace: Workspace) -> int:
        return min(workspace.components, MOST) * workspace.mesh.ndim

    def build(self, workspace: Workspace, kind: int, field: Layout, *values: Layout | None) -> list[Any]:
        names = ("copies_store", "copies_spread", "copies_stitch")
        return [
            (
                *self.compiled(workspace, "spread/domain_copies.c", names, group, GRADIENT=kind),
                values_record(group, values[0]), field_record(group, field, workspace.axes),
            )
            for group in groups(field)
        ]  # fmt: skip

    def apply(self, workspace: Workspace, values: View, field: View, gradient: bool = False, **_: Any) -> None:
        found = self._copies(workspace)
        blocks, order = found.blocks, found.order
        lattice, record, nodes = order.lattice, blocks.record, math.prod(a.size for a in workspace.axes)
        vectors = workspace.mesh.ndim if gradient else 1
        for reals, local, (store, spread, stitch), value_layout, layout in self.launches(
            workspace, int(gradient), field, values
        ):
            strength = self.carried(workspace, blocks, reals * vectors)
            extended = self.extended(workspace, blocks, reals)
            store(
                blocks.places, order.start, order.order, found.fullest, values.array, strength, lattice, record,
                value_layout, workspace.jacobian_record,
            )  # fmt: skip
            spread(
                blocks.count * blocks.group, found.position, strength, extended, found.fullest, order.start,
                order.order, order.fraction, values.array, order.rows, lattice, record, value_layout,
                workspace.window_record, workspace.jacobian_record, local_bytes=local,
            )  # fmt: skip
            stitch(nodes, extended, field.array, nodes, lattice, record, layout)
            self._last, workspace.orders["extended mesh"] = (extended, reals), self
