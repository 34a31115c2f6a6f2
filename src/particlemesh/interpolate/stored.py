# SPDX-License-Identifier: BSD-3-Clause
"""Interpolation by stored weights: a sparse matrix whose columns the first node of a stencil gives."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from particlemesh.arrays import Layout, View
from particlemesh.backends.cpu import threads_for
from particlemesh.interpolate import stored_cpu
from particlemesh.methods.by_tile import CALL, cold
from particlemesh.methods.contract import Option, Problem
from particlemesh.methods.launches import (
    MOST,
    SINGLE,
    KernelMethod,
    field_record,
    groups,
    kernel,
    values_record,
    vector,
)
from particlemesh.orders import tile_order

if TYPE_CHECKING:
    from particlemesh.plan import Plan

_LANES = {"LANES_ALL": 1, "LANES_ROW": 1}  # what shared functions ask for; none of them is called
_NODES = 4  # of a stencil for each lane, by default: enough loads at once, and neighbouring lanes read whole rows
_MOST_LANES = 32
_ROUNDS = 8  # particles that lanes take one after the other, if there are enough: they share what is worked out once
_RESIDENT = 2**18  # threads that an H200 runs at once, about


def _entries(asked: Problem | Plan) -> int:
    return int(asked.window.support**asked.mesh.ndim)


class Stored(KernelMethod):
    """Every particle's weights stored once, then read in one stretch; no polynomials when it is applied."""

    name = "stored"
    stores_weights = True
    cite = "guo2015"
    backends = frozenset({"cpu", "cuda", "opencl"})
    deterministic = True
    order_independent = True  # a particle's value does not depend on the others
    options: ClassVar[Mapping[str, Option]] = {
        "lanes": Option(
            None, (1, 2, 4, 8, 16, 32), "lanes that share a particle, on GPUs; by default one for four nodes"
        ),
    }

    @classmethod
    def declines(cls, problem: Problem) -> str | None:
        return "2**31 particles or more" if problem.count >= 2**31 else None

    @classmethod
    def scratch_bytes(cls, problem: Problem) -> int:
        size = problem.dtype.itemsize
        beside = 0 if problem.backend.name == "cpu" else 4 * size + 12  # places, order
        return problem.count * (_entries(problem) * size + beside)  # a gradient takes d times as much again

    @classmethod
    def cost(cls, problem: Problem) -> tuple[float, float]:
        entries = problem.count * _entries(problem)
        if problem.backend.name == "cpu":
            used = threads_for(problem.threads, problem.count)
            # One thread, as the constants of `tiles`
            each = (0.7e-9 if problem.dtype.itemsize == 4 else 1.1e-9) * problem.components
            # Parts of complex numbers are taken apart first.
            apart = problem.nodes * problem.components * 2e-9 if problem.components % 2 == 0 else 0.0
            read = problem.count * (2e-8 + cold(problem) * 6e-9) + entries * each
            return CALL + (problem.count * 6e-8 + entries * 1.6e-9) / used, 3 * CALL + read / used + apart
        slow = 1.0 if problem.dtype.itemsize == 4 else 1.25
        passes = -(-problem.components // MOST)
        # H200: a million particles with supports 4 and 6 (benchmarks/results/buyukkececi-times-nvidia-h200.csv)
        return 5e-5 + entries * 3e-12 * slow, 5e-6 + passes * entries * 2.3e-12 * slow

    def __init__(self) -> None:
        super().__init__()
        self._sloped = False  # whether slopes are stored for the configuration

    def reserve(self, plan: Plan) -> None:
        if plan.backend.name != "cpu":
            tile_order.reserve(plan)
            self._places(plan, plan.capacity)
        self._weights(plan, plan.capacity, 0)  # slopes only if they are wanted: they are d times as large

    @staticmethod
    def _places(plan: Plan, count: int) -> Any:
        return plan.scratch("stored.places", (4 * max(count, 1),), plan.dtype)

    @staticmethod
    def _weights(plan: Plan, count: int, slopes: int) -> Any:
        name, planes = ("stored.slopes", slopes) if slopes else ("stored.weights", 1)
        return plan.scratch(name, (max(count, plan.capacity) * planes * _entries(plan) + stored_cpu.SPARE,), plan.dtype)

    def prepare(self, plan: Plan) -> None:
        self._sloped = False
        self._store(plan, 0)

    def _store(self, plan: Plan, slopes: int) -> None:
        """Write weights, or ``slopes`` of them an entry."""
        weights = self._weights(plan, plan.count, slopes)
        if plan.backend.name == "cpu":
            stored_cpu.store(plan, weights, slopes=bool(slopes))
        elif plan.count:
            particles, count = plan.particles, plan.count
            order = tile_order.tile_order(plan).order
            run = kernel(
                plan, "interpolate/stored_build.c", "store_weights", SINGLE, 1, GRADIENT=0, SLOPES=slopes, **_LANES
            )  # fmt: skip
            run(
                4 * count, particles.node, particles.fraction, order, self._places(plan, count), weights, count,
                particles.rows, plan.window_record, plan.jacobian_record,
            )  # fmt: skip

    def lanes(self, plan: Plan) -> int:
        """Return how many lanes share a particle: a power of two."""
        lanes, chosen = 1, self.option(plan, "lanes")
        while lanes < _MOST_LANES and lanes * _NODES < _entries(plan):
            lanes *= 2
        return int(chosen or lanes)

    def build(self, plan: Plan, kind: int, field: Layout, *values: Layout | None) -> list[Any]:
        built = []
        wanted = {"VALUE": int(values[0] is not None), "GRADIENT": int(values[1] is not None)}
        for group in groups(field):
            # A node's reals in one go; neighbouring nodes are other lanes'.
            width = min(group.parts, vector(group, field, plan.dtype.itemsize, 4 if plan.dtype.itemsize == 4 else 2))
            run = kernel(
                plan, "interpolate/stored.c", "interpolate_stored", group, width, **wanted, **_LANES,
                TEAM=self.lanes(plan),
            )  # fmt: skip
            built.append((run, *(values_record(group, v) for v in values), field_record(group, field, plan.axes)))
        return built

    def apply(self, plan: Plan, field: View, values: View | None, gradient: View | None = None, **_: Any) -> None:
        count, ndim = plan.count, plan.mesh.ndim
        if gradient is not None and not self._sloped:
            self._store(plan, ndim)
            self._sloped = True
        weights = self._weights(plan, count, 0)
        slopes = weights if gradient is None else self._weights(plan, count, ndim)
        if plan.backend.name == "cpu":
            stored_cpu.read(plan, weights, slopes, field, values, gradient)
            return
        outputs = [v.array for v in (values, gradient) if v is not None]
        first, last = outputs[0], outputs[-1]  # an output that is not wanted is not written
        lanes = self.lanes(plan)
        rounds = max(1, min(_ROUNDS, count * lanes // _RESIDENT))
        for run, value_layout, gradient_layout, field_layout in self.launches(plan, 0, field, values, gradient):
            run(
                lanes * math.ceil(count / rounds), self._places(plan, count), weights, slopes, field.array, first, last,
                count, rounds, value_layout, gradient_layout, field_layout,
            )  # fmt: skip
