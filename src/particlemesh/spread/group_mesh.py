# SPDX-License-Identifier: BSD-3-Clause
"""Spreading by a stored matrix whose rows are taken by groups of neighbouring nodes."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import numpy as np

from particlemesh.arrays.operands import Layout, View
from particlemesh.backends.base import As
from particlemesh.methods.contract import Option, Problem
from particlemesh.methods.launches import NO_LANES, SINGLE, Form, Group, Launch, field_record, kernel
from particlemesh.methods.stored_matrix import StoredMatrix
from particlemesh.particles.workspace import Workspace
from particlemesh.sorting.scan import allocate_counts, scan
from particlemesh.spread.cpu.matrix import Groups

_FILE = "spread/group_mesh.c"
_WIDE_ENTRY = 2**32  # particles times nodes of a group from which on an entry takes 64 bits


class _Entries(NamedTuple):
    """Where the matrix lies; planes of weights are ``plane`` apart."""

    counts: Any  # of each group, with the books of their scan
    ends: Any  # of each group's entries
    entries: Any
    weights: Any
    plane: int


class GroupMesh(StoredMatrix):
    """Weights stored by groups of neighbouring nodes; a group's sums are made in local memory."""

    name = "group_mesh"
    backends = frozenset({"cpu", "cuda", "opencl"})
    deterministic = False
    host = Groups
    narrow = 2**31
    options: ClassVar = {
        "group_size": Option(64, (16, 32, 64, 128, 256), "neighbouring nodes whose entries lie together"),
        "warps": Option(1, (1, 2, 4), "warps that share a group, on GPUs"),
    }

    @classmethod
    def device_declines(cls, problem: Problem) -> str | None:
        return "2**31 particles or more" if problem.count >= 2**31 else None

    @classmethod
    def device_bytes(cls, problem: Problem) -> int:
        entries, size = cls.entries(problem, problem.count), cls.option(problem, "group_size")
        wide_entry = problem.count * size > _WIDE_ENTRY
        counter = 8 if entries >= cls.narrow else 4
        return entries * (4 + 4 * wide_entry + problem.dtype.itemsize) + 2 * counter * (problem.nodes // size + 1)

    @classmethod
    def device_cost(cls, problem: Problem) -> tuple[float, float]:
        entries, slow = problem.count * problem.stencil, 1.0 if problem.dtype.itemsize == 4 else 1.6
        idle = max(1.0, 4096 * cls.option(problem, "group_size") / problem.nodes)  # groups too few for all of a GPU
        # H200 (benchmarks/results/guo-long_totals-nvidia-h200.csv, guo-added_clouds-nvidia-h200.csv)
        added = entries * (1.2e-12 + 2.2e-12 * problem.components) * slow * idle
        return 7e-5 + entries * 2.3e-11, 8e-6 + added + problem.nodes * 5e-12

    def allocate(self, workspace: Workspace) -> None:
        self._entries(workspace, slopes=False)

    def _groups(self, workspace: Workspace) -> int:
        return -(-workspace.nodes // int(self.option(workspace, "group_size")))

    def _form(self, workspace: Workspace, gradient: bool) -> Form:
        wide_entry = workspace.capacity * self.option(workspace, "group_size") > _WIDE_ENTRY
        return Form(gradient, self.wide(workspace), wide_entry)

    def _facts(self, workspace: Workspace, form: Form) -> dict[str, int]:
        return {
            **NO_LANES, "SHIFT": self.option(workspace, "group_size").bit_length() - 1,
            "SLOPES": workspace.mesh.ndim if form.gradient else 0, "WIDE_ENTRY": int(bool(form.variant)),
            "COUNT_IS_64": int(form.wide), "KEY_IS_64": int(self._groups(workspace) >= 2**31),
        }  # fmt: skip

    def _entries(self, workspace: Workspace, *, slopes: bool) -> _Entries:
        wide_entry = self._form(workspace, slopes).variant
        groups, counter = self._groups(workspace), self.counter(workspace)
        plane = -(-self.most(workspace) // 4) * 4  # entries are read by fours
        planes = workspace.mesh.ndim if slopes else 1

        def allocate(what: str, shape: tuple[int, ...], dtype: Any) -> Any:
            return workspace.scratch(f"{self.name}.{'slopes.' if slopes else ''}{what}", shape, dtype)

        return _Entries(
            allocate_counts(workspace.backend, groups, counter, allocate),
            allocate("ends", (groups + 1,), counter),
            allocate("entries", (plane,), np.dtype(np.uint64 if wide_entry else np.uint32)),
            allocate("weights", (planes * plane,), workspace.dtype),
            plane,
        )

    def fill(self, workspace: Workspace, slopes: bool) -> None:
        """Build the matrix of weights, or that of slopes. Their entries are in different orders."""
        counts, ends, entries, weights, plane = self._entries(workspace, slopes=slopes)
        particles, count, groups = workspace.particles, workspace.count, self._groups(workspace)
        facts, backend = self._facts(workspace, self._form(workspace, slopes)), workspace.backend
        layout = Layout(0, (1, *(a.size for a in workspace.axes), 1), (0, 0, 0, 0, 0), 1)
        nodes = field_record(SINGLE, layout, workspace.axes)
        items = -(-count // 32) * backend.group_size  # a group has 32 particles
        backend.clear(counts)
        kernel(workspace, _FILE, "group_count", SINGLE, 1, **facts, TEAM=32)(
            items, particles.node, As(counts, ends.dtype), count, particles.rows, nodes
        )
        scan(backend, counts, ends, groups)
        kernel(workspace, _FILE, "group_collect", SINGLE, 1, **facts, TEAM=32)(
            items, particles.node, particles.fraction, ends, entries, weights, count, particles.rows, plane, groups,
            nodes, workspace.window_record, workspace.jacobian_record,
        )  # fmt: skip

    def compile(self, workspace: Workspace, form: Form, group: Group, field: Layout, *values: Layout | None) -> Launch:
        team = min(32 * self.option(workspace, "warps"), workspace.backend.group_size)
        return team, kernel(workspace, _FILE, "group_apply", group, 1, **self._facts(workspace, form), TEAM=team)

    def multiply(self, workspace: Workspace, values: View, field: View, gradient: bool = False, **_: Any) -> None:
        _, ends, entries, weights, plane = self._entries(workspace, slopes=gradient)
        self.filled(workspace, slopes=gradient)
        groups, nodes = self._groups(workspace), workspace.nodes
        for team, run, *layouts in self.launches(workspace, self._form(workspace, gradient), field, values):
            run(groups * team, ends, entries, weights, values.array, field.array, groups, nodes, plane, *layouts)
