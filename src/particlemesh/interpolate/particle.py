# SPDX-License-Identifier: BSD-3-Clause
"""Interpolation, particle by particle."""

from __future__ import annotations

from typing import Any, ClassVar

from particlemesh.arrays.views import Layout, View
from particlemesh.methods.contract import Problem
from particlemesh.methods.launches import KernelMethod, field_record, groups, kernel, values_record, vector
from particlemesh.particles.workspace import Workspace

# Lanes of a particle, and of one row of its stencil (H200; benchmarks/results/limit-thresholds-nvidia-h200.csv)
LANES = {"LANES_ALL": 4, "LANES_ROW": 2}


def reading(problem: Problem, row: float, byte: float, far: float, *, shared: bool = False) -> float:
    """Return the seconds in which all stencils are read.

    Each row of a stencil takes ``row``, each of its bytes ``byte``; what is past the second-level cache comes in
    ``far`` bytes a second, and a sector of 32 bytes more than was wanted; all of it once at most where particles find
    it ``shared`` with their neighbours. The first stencil is waited for.
    """
    size = problem.components * problem.dtype.itemsize
    rows, width = problem.stencil / problem.window.support, problem.window.support * size
    field = problem.nodes * problem.filled * size
    fetched = problem.count * rows * (32 + width)
    missed = problem.beyond_cache * (min(fetched, field) if shared else fetched)
    return 1.9e-7 * rows + problem.count * rows * (row + byte * width) + missed / far


class Particle(KernelMethod):
    """Each particle's stencil read by a few neighbouring lanes, no preparation."""

    name = "particle"
    cite = "guo2015"
    deterministic = True
    file: ClassVar[str] = "interpolate/particle.c"
    order_independent = True  # a particle's value does not depend on the others

    @classmethod
    def cost(cls, problem: Problem) -> tuple[float, float]:
        # H200 (choosing/cuda-nvidia-h200.csv)
        return 0.0, 1.5e-6 + reading(problem, 7.3e-12, 1e-13, 3.3e12, shared=problem.in_order)

    def lanes(self, workspace: Workspace, reals: int) -> dict[str, int]:
        """Return how many lanes a particle has, and a row of its stencil."""
        return LANES

    def kind(self, workspace: Workspace) -> int:
        """Return what tells kernels for the same arrays from each other."""
        return 0

    def facts(self, workspace: Workspace) -> dict[str, int]:
        """Return what the kernel must know beside."""
        return {}

    def particles(self, workspace: Workspace) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """Return what the kernel reads of the particles, and the records behind all others."""
        return (workspace.particles.node, workspace.particles.fraction), ()

    def build(self, workspace: Workspace, kind: int, field: Layout, *values: Layout | None) -> list[Any]:
        built = []
        wanted = {"VALUE": int(values[0] is not None), "GRADIENT": int(values[1] is not None)}
        for group in groups(field):
            width = vector(group, field, workspace.dtype.itemsize, 4 if workspace.dtype.itemsize == 4 else 2)
            lanes = self.lanes(workspace, group.parts * group.channels)
            run = kernel(
                workspace, self.file, "interpolate_particle", group, width, **wanted, **lanes, **self.facts(workspace)
            )
            records = (*(values_record(group, v) for v in values), field_record(group, field, workspace.axes))
            built.append((run, lanes["LANES_ALL"], *records))
        return built

    def apply(
        self, workspace: Workspace, field: View, values: View | None, gradient: View | None = None, **_: Any
    ) -> None:
        outputs = [v.array for v in (values, gradient) if v is not None]
        first, last = outputs[0], outputs[-1]  # an output that is not wanted is not written
        particles, more = self.particles(workspace)
        for run, lanes, value_layout, gradient_layout, field_layout in self.launches(
            workspace, self.kind(workspace), field, values, gradient
        ):
            run(
                lanes * workspace.count, *particles, field.array, first, last, workspace.count,
                workspace.particles.rows, value_layout, gradient_layout, field_layout, workspace.window_record,
                workspace.jacobian_record, *more,
            )  # fmt: skip
