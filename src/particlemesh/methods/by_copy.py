# SPDX-License-Identifier: BSD-3-Clause
"""Methods over domain copies: what both directions have in common, options, memory, the extended mesh."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

from particlemesh.methods.contract import Option, Problem
from particlemesh.methods.launches import LANES, MOST, Group, KernelMethod, kernel
from particlemesh.orders import domain_copies, node_order
from particlemesh.orders.domain_copies import Blocks, Copies, fullest
from particlemesh.particles.workspace import Sizes, Workspace

# Local memory that every GPU gives a group by default.
_MOST_LOCAL = 48 * 1024


class ByCopy(KernelMethod):
    """A method over domain copies (``orders/domain_copies.py``), block by block of cells."""

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
            return f"block {shape} for a {problem.mesh.ndim}-D mesh: it needs one length per axis"
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
        """Return the predicted additions to nodes or from them, dummies included.

        With fewer than 512 blocks part of a large GPU is idle, which counts as more additions.
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
        """Return memory for the values of particles, in copies."""
        return workspace.scratch("copies.carried", (segments * blocks.copies * blocks.places,), workspace.dtype)

    def extended(self, workspace: Workspace, blocks: Blocks, reals: int) -> Any:
        """Return memory for the extended mesh."""
        return workspace.scratch("copies.extended", (reals * blocks.nodes,), workspace.dtype)

    def prepare(self, workspace: Workspace) -> None:
        """Put particles into domain copies."""
        if workspace.count:
            self._copies(workspace)

    def _copies(self, workspace: Workspace) -> Copies:
        return domain_copies.domain_copies(
            workspace, self.blocks(workspace, workspace.count), stable=self._stable(workspace)
        )

    def _stable(self, workspace: Workspace) -> bool:
        return bool(self.option(workspace, "ranks") == "stable")

    def kernels(
        self, workspace: Workspace, file: str, names: tuple[str, ...], group: Group, **facts: int
    ) -> tuple[Any, ...]:
        """Return the reals of a group of channels, the bytes of local memory they take, and the kernels."""
        local = group.reals * math.prod(self.blocks(workspace, 0).room) * workspace.dtype.itemsize
        within = local <= _MOST_LOCAL
        runs = (kernel(workspace, file, n, group, 1, WITHIN=int(within), **facts, **LANES) for n in names)
        return group.reals, local if within else 0, *runs

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
