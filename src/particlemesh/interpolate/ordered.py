# SPDX-License-Identifier: BSD-3-Clause
"""Interpolation, particle by particle, in the order by blocks."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from particlemesh.interpolate.particle import Particle
from particlemesh.interpolate.shares import WEIGHTLESS, reading, weightless
from particlemesh.methods.contract import Problem
from particlemesh.methods.launches import Form
from particlemesh.particles.workspace import Workspace
from particlemesh.walk.by_block import ByBlock

# Many neighbours have each other's rows in the cache: one or two lanes per particle then read faster than several.
# Lanes per particle, the particles from which on, and the most nodes per particle: if the registers of a lane hold its
# stencil, and if they do not (H200; benchmarks/results/limit-thresholds-nvidia-h200.csv).
NARROW, WIDE = (1, 2**16, 32), (2, 2**17, 4)


class Ordered(ByBlock, Particle):
    """The particle method over particles sorted by block once: neighbours find each other's rows in the cache."""

    name = "ordered"
    derivatives = 1
    cut_independent = True  # with as many lanes as `particle`, whose bits these are then
    file: ClassVar[str] = "interpolate/ordered.c"

    @classmethod
    def cost(cls, problem: Problem) -> tuple[float, float]:
        # H200 (choosing/cuda-nvidia-h200.csv)
        return cls.ordering(problem), 3e-6 + reading(problem, 3.5e-12, 1.1e-13, 2.5e12, shared=True)

    def lanes(self, workspace: Workspace, reals: int) -> dict[str, int]:
        narrow = workspace.window.support <= 5 and workspace.dtype.itemsize == 4
        lanes, particles, nodes = NARROW if narrow else WIDE
        crowded = workspace.count >= particles and workspace.count * nodes >= math.prod(
            axis.size for axis in workspace.axes
        )
        many = crowded and not workspace.in_parts
        return {"LANES_ALL": lanes, "LANES_ROW": 1} if many else super().lanes(workspace, reals)

    def form(self, workspace: Workspace) -> Form:
        unplaced, *_ = weightless(workspace)
        return Form(variant=unplaced)

    def facts(self, workspace: Workspace) -> dict[str, int]:
        return WEIGHTLESS[weightless(workspace)[0]]

    def particles(self, workspace: Workspace) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        order = self.order(workspace)
        _, *stencils = weightless(workspace)  # read for the particles without weight only
        return (order.records, order.start, *stencils), (order.blocks.record,)
