# SPDX-License-Identifier: BSD-3-Clause
"""Interpolation by stored weights: a sparse matrix whose columns the first node of a stencil gives."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from particlemesh.arrays.operands import Layout, View
from particlemesh.interpolate.cpu.stored import Weights
from particlemesh.methods.contract import Option, Problem
from particlemesh.methods.launches import (
    MOST,
    NO_LANES,
    SINGLE,
    VALUES,
    Form,
    Group,
    Launch,
    kernel,
    reading_width,
    targets,
    written,
)
from particlemesh.methods.stored_matrix import StoredMatrix
from particlemesh.orders import node_order
from particlemesh.particles.workspace import Sizes, Workspace

_NODES = 4  # of a stencil per lane, by default: enough loads at once, and neighbouring lanes read whole rows
_MOST_LANES = 32
_ROUNDS = 8  # particles that lanes take one after the other, if there are enough: they share addresses
_RESIDENT = 2**18  # threads that an H200 runs at once, about


class Stored(StoredMatrix):
    """Every particle's weights stored once, then read in one stretch; no polynomials when it is applied."""

    name = "stored"
    backends = frozenset({"cpu", "cuda", "opencl"})
    order_independent = True  # a particle's value does not depend on the others
    host = Weights
    options: ClassVar = {
        "lanes": Option(
            None, (1, 2, 4, 8, 16, 32), "lanes that share a particle, on GPUs; by default one for four nodes"
        ),
    }

    @classmethod
    def device_declines(cls, problem: Problem) -> str | None:
        return "2**31 particles or more" if problem.count >= 2**31 else None

    @classmethod
    def device_bytes(cls, problem: Problem) -> int:
        # Beside the weights, places and order; a gradient takes d times the weights again.
        real = problem.dtype.itemsize
        return problem.count * (problem.stencil * real + 4 * real + 12)

    @classmethod
    def device_cost(cls, problem: Problem) -> tuple[float, float]:
        entries, slow = problem.count * problem.stencil, 1.0 if problem.dtype.itemsize == 4 else 1.25
        passes = -(-problem.components // MOST)
        # H200: a million particles with supports 4 and 6 (benchmarks/results/buyukkececi-times-nvidia-h200.csv)
        return 5e-5 + entries * 3e-12 * slow, 5e-6 + passes * entries * 2.3e-12 * slow

    def allocate(self, workspace: Workspace) -> None:
        node_order.reserve_tiles(workspace)
        self._places(workspace)
        self._weights(workspace, slopes=False)

    @staticmethod
    def _places(workspace: Workspace) -> Any:
        return workspace.scratch("stored.places", (4 * max(workspace.capacity, 1),), workspace.dtype)

    @staticmethod
    def _weights(workspace: Workspace, *, slopes: bool) -> Any:
        name, planes = ("stored.slopes", workspace.mesh.ndim) if slopes else ("stored.weights", 1)
        count = max(workspace.capacity, 1) * planes * workspace.stencil
        return workspace.scratch(name, (count,), workspace.dtype)

    def fill(self, workspace: Workspace, slopes: bool) -> None:
        particles, count = workspace.particles, workspace.count
        facts = {**NO_LANES, "SLOPES": workspace.mesh.ndim if slopes else 0}
        run = kernel(workspace, "interpolate/stored_build.c", "store_weights", SINGLE, 1, **facts)
        run(
            4 * count, particles.node, particles.fraction, node_order.tile_order(workspace),
            self._places(workspace), self._weights(workspace, slopes=slopes), count, particles.rows,
            workspace.window_record, workspace.jacobian_record,
        )  # fmt: skip

    def lanes(self, sizes: Sizes) -> int:
        """Return how many lanes share a particle: a power of two."""
        lanes, chosen = 1, self.option(sizes, "lanes")
        while lanes < _MOST_LANES and lanes * _NODES < sizes.stencil:
            lanes *= 2
        return int(chosen or lanes)

    def compile(self, workspace: Workspace, form: Form, group: Group, field: Layout, *values: Layout | None) -> Launch:
        # A node's reals in one go; neighbouring nodes are other lanes'.
        width = min(group.parts, reading_width(workspace, group, field))
        facts = {**NO_LANES, **written(*values), "TEAM": self.lanes(workspace)}
        return (kernel(workspace, "interpolate/stored.c", "interpolate_stored", group, width, **facts),)

    def multiply(
        self, workspace: Workspace, field: View, values: View | None, gradient: View | None = None, **_: Any
    ) -> None:
        count = workspace.count
        weights = slopes = self._weights(workspace, slopes=False)
        if gradient is not None:
            slopes = self._weights(workspace, slopes=True)
            self.filled(workspace, slopes=True)
        lanes = self.lanes(workspace)
        rounds = max(1, min(_ROUNDS, count * lanes // _RESIDENT))
        for run, *layouts in self.launches(workspace, VALUES, field, values, gradient):
            run(
                lanes * math.ceil(count / rounds), self._places(workspace), weights, slopes, field.array,
                *targets(values, gradient), count, rounds, *layouts,
            )  # fmt: skip
