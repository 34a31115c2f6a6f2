# SPDX-License-Identifier: BSD-3-Clause
"""Spreading by a stored matrix whose rows are taken by groups of neighbouring nodes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from particlemesh.arrays import Layout, View
from particlemesh.backends.base import As
from particlemesh.methods.by_tile import matrix_seconds
from particlemesh.methods.contract import Option, Problem
from particlemesh.methods.launches import NO_LANES, SINGLE, KernelMethod, field_record, groups, kernel, values_record
from particlemesh.sorting.scan import allocate_counts, scan

if TYPE_CHECKING:
    from particlemesh.plan import Plan

_FILE = "spread/group_mesh.c"

_WIDE_COUNT = 2**31  # entries from which on they are counted in 64 bits
_WIDE_ENTRY = 2**32  # particles times nodes of a group from which on an entry takes 64 bits


class GroupMesh(KernelMethod):
    """Weights stored by groups of neighbouring nodes; a group's sums are made in local memory."""

    name = "group_mesh"
    stores_weights = True
    cite = "guo2015"
    backends = frozenset({"cpu", "cuda", "opencl"})
    options: ClassVar = {
        "group_size": Option(64, (16, 32, 64, 128, 256), "neighbouring nodes whose entries lie together"),
        "warps": Option(1, (1, 2, 4), "warps that share a group, on GPUs"),
    }

    @classmethod
    def declines(cls, problem: Problem) -> str | None:
        return "2**31 particles or more" if problem.count >= 2**31 else None

    @classmethod
    def scratch_bytes(cls, problem: Problem) -> int:
        entries = problem.count * problem.window.support**problem.mesh.ndim
        nodes = math.prod(problem.mesh.field_shape)
        wide = problem.count * cls.option(problem, "group_size") > _WIDE_ENTRY
        if problem.backend.name == "cpu":  # entries with their nodes, starts, values in the order of tiles
            values = problem.count * problem.components * problem.dtype.itemsize
            return entries * (6 + problem.dtype.itemsize) + 8 * (nodes + 1) + values
        counter = 8 if entries >= _WIDE_COUNT else 4
        return entries * (4 + 4 * wide + problem.dtype.itemsize) + 2 * counter * (
            nodes // cls.option(problem, "group_size") + 1
        )

    @classmethod
    def cost(cls, problem: Problem) -> tuple[float, float]:
        entries = problem.count * problem.stencil
        if problem.backend.name == "cpu":
            built, applied = matrix_seconds(problem, 1.7e-8, 2.4e-9)
            return built, applied + problem.nodes * problem.components * 6e-10
        slow = 1.0 if problem.dtype.itemsize == 4 else 1.6
        idle = max(1.0, 4096 * cls.option(problem, "group_size") / problem.nodes)  # groups too few for all of a GPU
        # H200 (benchmarks/results/guo-long_totals-nvidia-h200.csv, guo-added_clouds-nvidia-h200.csv)
        added = entries * (1.2e-12 + 2.2e-12 * problem.components) * slow * idle
        return 7e-5 + entries * 2.3e-11, 8e-6 + added + problem.nodes * 5e-12

    def __init__(self) -> None:
        super().__init__()
        self._built: set[int] = set()
        self._host: Any = None
        self._known: dict[str, int] = {}  # what kernels were compiled for

    def reserve(self, plan: Plan) -> None:
        if plan.backend.name == "cpu":
            from particlemesh.spread import matrix_entries

            matrix_entries.reserve(plan, "matrix.groups", self._entries(plan), size=self.option(plan, "group_size"))
        else:  # slopes only if they are wanted: they are three times as large
            self._room(plan, 0)

    def prepare(self, plan: Plan) -> None:
        """Build the matrix of values; that of the gradient's adjoint is built when it is first wanted."""
        if plan.backend.name == "cpu":
            from particlemesh.spread import matrix_cpu

            self._host = matrix_cpu.by_groups(plan, self.option(plan, "group_size"))
            return
        self._built.clear()
        known = self._defines(plan, 0)  # more particles may need wider words
        if known != self._known:
            self._known = known
            self._launches.clear()
        if plan.count:
            self._matrix(plan, 0)

    def _defines(self, plan: Plan, kind: int) -> dict[str, int]:
        size = self.option(plan, "group_size")
        bins = self._groups(plan)
        return {
            **NO_LANES, "SHIFT": size.bit_length() - 1, "SLOPES": kind * plan.mesh.ndim,
            "WIDE_ENTRY": int(plan.capacity * size > _WIDE_ENTRY),
            "COUNT_IS_64": int(self._entries(plan) >= _WIDE_COUNT), "KEY_IS_64": int(bins >= 2**31),
        }  # fmt: skip

    def _groups(self, plan: Plan) -> int:
        return -(-math.prod(axis.size for axis in plan.axes) // self.option(plan, "group_size"))

    @staticmethod
    def _entries(plan: Plan) -> int:
        return max(plan.capacity, 1) * math.prod(axis.support for axis in plan.axes)

    def _room(self, plan: Plan, kind: int) -> tuple[Any, Any, Any, Any, int]:
        """Return counts, where groups end, entries, their weights, and how far apart planes of weights are."""
        known = self._defines(plan, kind)
        counter, entry = (np.dtype(np.uint64 if known[n] else np.uint32) for n in ("COUNT_IS_64", "WIDE_ENTRY"))
        bins, plane = self._groups(plan), -(-self._entries(plan) // 4) * 4  # entries are read by fours

        def allocate(name: str, shape: tuple[int, ...], dtype: Any) -> Any:
            return plan.scratch(f"group.{name}{kind}", shape, dtype)

        counts = allocate_counts(plan.backend, bins, counter, allocate)
        ends = allocate("ends", (bins + 1,), counter)
        entries = allocate("entries", (plane,), entry)
        return counts, ends, entries, allocate("weights", (max(known["SLOPES"], 1) * plane,), plan.dtype), plane

    def _matrix(self, plan: Plan, kind: int) -> tuple[Any, Any, Any, int]:
        counts, ends, entries, weights, plane = self._room(plan, kind)
        if kind not in self._built:
            particles, count, bins = plan.particles, plan.count, self._groups(plan)
            known, backend = self._defines(plan, kind), plan.backend
            layout = Layout(0, (1, *(a.size for a in plan.axes), 1), (0, 0, 0, 0, 0), 1)
            nodes = field_record(SINGLE, layout, plan.axes)
            items = -(-count // 32) * backend.group_size  # a group has 32 particles
            backend.clear(counts)
            if count:
                run = kernel(plan, _FILE, "group_count", SINGLE, 1, **known, TEAM=32)
                run(items, particles.node, As(counts, ends.dtype), count, particles.rows, nodes)
            scan(backend, counts, ends, bins)
            if count:
                run = kernel(plan, _FILE, "group_collect", SINGLE, 1, **known, TEAM=32)
                run(
                    items, particles.node, particles.fraction, ends, entries, weights, count, particles.rows, plane,
                    bins, nodes, plan.window_record, plan.jacobian_record,
                )  # fmt: skip
            self._built.add(kind)
        return ends, entries, weights, plane

    def build(self, plan: Plan, kind: int, field: Layout, *values: Layout | None) -> list[Any]:
        team = min(32 * self.option(plan, "warps"), plan.backend.group_size)
        return [
            (
                team,
                kernel(plan, _FILE, "group_apply", group, 1, **self._defines(plan, kind), TEAM=team),
                values_record(group, values[0]),
                field_record(group, field, plan.axes),
            )
            for group in groups(field)
        ]

    def apply(self, plan: Plan, values: View, field: View, gradient: bool = False, **_: Any) -> None:
        if self._host is not None:
            self._host.apply(plan, values, field, gradient)
            return
        if not plan.count:
            return
        ends, entries, weights, plane = self._matrix(plan, int(gradient))
        bins, nodes = self._groups(plan), math.prod(axis.size for axis in plan.axes)
        for team, run, value_layout, field_layout in self.launches(plan, int(gradient), field, values):
            run(
                bins * team, ends, entries, weights, values.array, field.array, bins, nodes, plane, value_layout,
                field_layout,
            )  # fmt: skip
