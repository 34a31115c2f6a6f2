# SPDX-License-Identifier: BSD-3-Clause
"""Spreading into 64-bit integers: bit-identical for any order of particles and any parts of a mesh."""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import fields, replace
from typing import Any, ClassVar

import numpy as np

from particlemesh.arrays.operands import Layout, View
from particlemesh.backends.base import As, Kernel, Record
from particlemesh.backends.cpu import threads_for
from particlemesh.methods.contract import Option, Problem
from particlemesh.methods.launches import (
    LANES,
    MOST,
    NO_WINDOW,
    SINGLE,
    Form,
    Group,
    Launch,
    field_record,
    groups,
    kernel,
)
from particlemesh.orders.block_order import blocks_of
from particlemesh.particles.stencil import MISSING
from particlemesh.particles.workspace import Sizes, Workspace
from particlemesh.spread.colouring import Colouring
from particlemesh.spread.walk import Walk
from particlemesh.walk import patch as patches
from particlemesh.walk.patch import Patch
from particlemesh.walk.walking import Pace
from particlemesh.window import Window

_FILE = "spread/fixed_point.c"
NO_BOUND = 2**20  # the exponent of values that are not finite
_UNSIGNED = np.dtype(np.uint32)
_MANY = 2**18  # work-items that search numbers for the largest
_ADDED = 0.65  # products that a walk rounds in the time of an addition in memory
# Of walks, by the bytes of a real: H200 (benchmarks/distributed/same_bits.py, 10^8 particles, 256^3 nodes)
_PACE = {size: Pace(7e-6, 1.4e-11, each, 1e11 * size, 9e-8, 3.6e-7, 2.0) for size, each in ((4, 0.97), (8, 1.1))}


class FixedPoint(Walk):
    """Sums in 64-bit integers, scaled by a power of two; independent of order and of cuts, for any window.

    The unit follows from the largest value and the fullest cell, so that no sum can overflow. On the CPU, tiles of
    integers take the place of atomic additions, and a contribution has 51 bits. On GPUs warps add the integers of many
    particles in registers, as walks do, and those of few particles in memory. Results are bit-identical. A walk takes
    windows of more than eight nodes along an axis in two pieces along it, each with half of their weights.
    """

    name = "fixed_point"
    confines_non_finite = False
    cite = "eastman2017"
    backends = frozenset({"cpu", "cuda", "opencl"})
    derivatives = 2
    deterministic = True
    order_independent = True
    cut_independent = True
    integers = True
    fills = True
    reads_stencils = True
    sorts = False
    prepares_orders = False  # it has sums to clear
    longer = 4  # integers do not drift, and fewer patches are added
    options: ClassVar[dict[str, Option]] = {
        "form": Option(None, ("registers", "memory"), "GPUs: where integers are added; by default where it is fast"),
        **{name: patches.OPTIONS[name] for name in ("patch", "chunk")},
    }

    def __init__(self) -> None:
        super().__init__()
        self._walks, self._decided = False, 0  # on a GPU, and for how many particles
        self._workspace: Workspace | None = None  # of the last configuration
        self._host: Any = None  # on the CPU

    @classmethod
    def scratch_bytes(cls, problem: Problem) -> int:
        sums = 8 * problem.nodes * min(problem.components, MOST)
        if problem.backend.name == "cpu":
            return sums
        order = 0 if cls._by_particle(problem) else super().scratch_bytes(problem)
        return sums + 4 * math.prod(_cells(problem)) + order

    @classmethod
    def declines(cls, problem: Problem) -> str | None:
        if problem.backend.name == "cpu":
            return "its options are for GPUs" if cls.name in problem.options else None
        return cls.refusal(problem) if cls.option(problem, "form") == "registers" else None

    @classmethod
    def note(cls, sizes: Sizes) -> str:
        if sizes.backend.name == "cpu":
            return ""
        reason = cls._by_particle(sizes)
        return f"adds in memory, particle by particle: {reason}" if reason else "adds in registers, by a walk"

    # ---- sums in registers ---------------------------------------------------------------------------------

    @classmethod
    def _by_particle(cls, sizes: Sizes) -> str | None:
        """Return why a GPU adds integers in memory, particle by particle, or None if warps walk."""
        chosen = cls.option(sizes, "form")
        if chosen:
            return None if chosen == "registers" else "by option"
        reason = cls.refusal(sizes)
        if not sizes.backend.facts()["HAS_WARP"]:
            reason = "lanes of this device exchange no registers"
        if reason:
            return reason
        problem, times = Problem(**{f.name: getattr(sizes, f.name) for f in fields(Sizes)}), sizes.applications
        order, walk = cls._walking(problem)
        return "predicted to be faster" if order + times * walk > times * cls._adding(problem) else None

    @classmethod
    def _pieces(cls, sizes: Sizes) -> tuple[int, int]:
        """Return the nodes of a piece of the window along an axis, and how many pieces a walk takes."""
        support = sizes.window.support
        count = -(-support // patches.SUPPORTS[-1])
        return -(-support // count), count

    @classmethod
    def patch_for(cls, sizes: Sizes, count: int) -> Patch:
        supports = [min(axis.support, cls._pieces(sizes)[0]) for axis in sizes.axes]
        # With the levels of walks that interpolate: particles are sorted once for both.
        options, width = {"form": None, "levels": None}, cls.option(sizes, "patch")
        narrow, wide = (patches.patch_of(sizes, {**options, "patch": n}, count, supports) for n in (8, 16))
        extents = [axis.extent for axis in sizes.axes]
        crowd = count * math.prod(min(n, e) / e for n, e in zip(narrow.cells, extents, strict=True))
        # A narrow patch rounds half the products of each particle, and more sums are added.
        more = 64 * narrow.cells[0] * (1 - 2 * narrow.cells[2] / wide.cells[2])
        patch = narrow if width == 8 or (width is None and crowd * narrow.levels >= _ADDED * more) else wide
        return replace(patch, matrix=False, levels=patch.levels if supports[0] > 1 else 1)

    @classmethod
    def refusal(cls, sizes: Sizes, *, stable: bool = False) -> str | None:
        if sizes.window.support == 1:
            return "windows of one node"
        return patches.unordered(sizes, cls.patch_for(sizes, sizes.count), stable=stable)

    @classmethod
    def _walking(cls, problem: Problem) -> tuple[float, float]:
        """Return the predicted seconds of ordering particles, and of additions in registers."""
        patch, pieces = cls.patch_for(problem, problem.count), cls._pieces(problem)[1] ** problem.mesh.ndim
        seconds = cls.seconds(problem, patch, _PACE[problem.dtype.itemsize], spreads=True)
        return cls.ordering(problem), cls.slowed(problem) * pieces * seconds

    def _compile_walk(self, workspace: Workspace, form: Form, group: Group, field: Layout) -> Launch:
        (nodes, count), axes, table = self._pieces(workspace), workspace.axes, workspace.window.table
        supports = {f"SUPPORT_{name}": min(axis.support, nodes) for name, axis in zip("XYZ", axes, strict=True)}
        walk = self._walk(
            workspace, "spread/fixed_walk.c", group, 1, field, form, **supports, SUPPORT=nodes, PIECES=count,
            SYMMETRIC=0, FIELD_IS_WIDE=1,
        )  # fmt: skip  # weights as in stencil.h; fields of any size
        blocks, rows = blocks_of(axes, self.patch(workspace).cells), np.zeros((count * nodes, table.shape[1]))
        rows[: len(table)] = table
        pieces = []
        for first in itertools.product(*(range(0, axis.support, nodes) for axis in axes)):
            x, y, z = (b + n for b, n in zip(blocks.base, first, strict=True))
            window = Record(f"=3q{rows.size}{workspace.dtype.char}", *first, *rows.ravel())
            pieces.append((replace(blocks, base=(x, y, z)).record, window if count > 1 else workspace.window_record))
        return walk, pieces

    # ---- times and memory ----------------------------------------------------------------------------------

    @classmethod
    def cost(cls, problem: Problem) -> tuple[float, float]:
        sums = 8 * problem.nodes * problem.components
        if problem.backend.name == "cpu":
            used = threads_for(problem.threads, problem.count)
            # EPYC, one thread, 72 problems of 1, 2 and 3 axes, 300 to 10^6 particles. float32 is summed in float64.
            prepare, reals = Colouring.cost(problem)
            reals *= 1.2 if problem.dtype.itemsize == 8 else 1.45
            nodes = 1.25e-9 * problem.nodes * problem.components
            return prepare + 3e-5 + problem.count * 2.5e-9 / used, 1e-4 + reals + nodes / used
        order, adds = (0.0, cls._adding(problem)) if cls._by_particle(problem) else cls._walking(problem)
        prepare = 1e-5 + problem.count * 2e-11 + 8 * problem.nodes / 3e12 + order
        return prepare, 1.3e-5 + adds + 3 * sums / 3e12

    @classmethod
    def _adding(cls, problem: Problem) -> float:
        """Return the predicted seconds of additions in memory."""
        # H200 (benchmarks/results/guo-long_totals-nvidia-h200.csv, guo-added_clouds-nvidia-h200.csv)
        rate = 2.5e11 if 8 * problem.nodes * problem.components < 40e6 else 0.9e11
        return problem.count * problem.stencil * problem.components / rate

    def reserve(self, workspace: Workspace) -> None:
        if workspace.backend.name != "cpu":
            if not self._by_particle(replace(workspace, count=workspace.capacity)):
                super().reserve(workspace)
            self._cells_of(workspace)
            self._integers(workspace, Group(1, min(workspace.components, MOST), 0))
            self._numbers(workspace)

    def prepare(self, workspace: Workspace) -> None:
        """Find the fullest cell; forget that values were not finite."""
        self._workspace = workspace
        if workspace.backend.name == "cpu":
            from particlemesh.spread.cpu.integers import HostSums

            self._host = HostSums(workspace, NO_BOUND)
            return
        if workspace.count != self._decided:  # models take as long as a launch
            self._walks, self._decided = not self._by_particle(workspace), workspace.count
        if self._walks and workspace.count:
            self.order(workspace)
        cells, particles, numbers = self._cells_of(workspace), workspace.particles, self._numbers(workspace)
        extents = _cells(workspace)
        for array in (cells, numbers["crowd"], numbers["not_finite"]):
            workspace.backend.clear(array)
        if workspace.count:
            lows = [axis.low for axis in workspace.axes]
            count = kernel(workspace, _FILE, "fixed_crowd", SINGLE, 1, **NO_WINDOW)
            count(workspace.count, particles.node, cells, workspace.count, particles.rows, *lows, *extents[1:])
            self._find_fullest(workspace)

    def non_finite_values(self) -> bool:
        workspace = self._workspace
        if workspace is None or self._host is not None:
            return self._host is not None and self._host.not_finite
        return bool(workspace.backend.download(self._numbers(workspace)["not_finite"])[0])

    def _find_fullest(self, workspace: Workspace, others: Any = None) -> None:
        """Find the most particles in one cell, or in one cell and the same one of others."""
        size, cells, crowd = math.prod(_cells(workspace)), self._cells_of(workspace), self._numbers(workspace)["crowd"]
        workspace.backend.clear(crowd)
        most = kernel(workspace, "spread/fixed.c", "fixed_most", SINGLE, 1, **NO_WINDOW)
        most(min(size, _MANY), cells, cells if others is None else others, crowd, size, int(others is not None))

    def _cells_of(self, workspace: Workspace) -> Any:
        return workspace.scratch("integers.cells", _cells(workspace), _UNSIGNED)

    def _integers(self, workspace: Workspace, group: Group) -> View:
        layout = _beside(workspace, group.channels, group.parts)
        count = group.channels * layout.strides[0]
        return View(workspace.scratch("integers.sums", (count,), np.dtype(np.int64)), layout)

    def _numbers(self, workspace: Workspace) -> dict[str, Any]:
        sizes = {"crowd": 1, "largest": MOST, "not_finite": 1}
        numbers = {name: workspace.scratch(f"integers.{name}", (size,), _UNSIGNED) for name, size in sizes.items()}
        return {**numbers, "bounds": workspace.scratch("integers.bounds", (1 + MOST,), np.dtype(np.int32))}

    # ---- sums in integers ----------------------------------------------------------------------------------

    def compile(self, workspace: Workspace, form: Form, group: Group, field: Layout, *values: Layout | None) -> Launch:
        facts = form.facts()
        find = kernel(workspace, "spread/fixed.c", "fixed_largest", group, 1, **NO_WINDOW | facts)
        exponents = kernel(workspace, _FILE, "fixed_value_bounds", group, 1, **NO_WINDOW)
        if self._walks and not form.hessian:
            add: Any = self._compile_walk(workspace, form, group, field)
        else:
            add = kernel(workspace, _FILE, "fixed_spread", group, 1, **LANES, **facts)
        return group, find, exponents, add, self._converting(workspace, group)

    def groups(self, workspace: Workspace, field: Layout) -> list[Group]:
        return list(groups(field, 2 if self._walks else MOST))  # a sum takes two registers

    @staticmethod
    def _converting(workspace: Workspace, group: Group) -> Kernel:
        return kernel(workspace, _FILE, "fixed_convert", group, 1, **NO_WINDOW)

    def _for_values(self, workspace: Workspace, values: View, form: Form) -> list[Launch]:
        # The kernels for a value depend on the values only, not on the memory of the field.
        layout = values.layout
        return self.launches(workspace, form, View(None, _beside(workspace, layout.channels, layout.parts)), values)

    def _bound_nodes(self, workspace: Workspace, form: Form, bounds: Any) -> None:
        run = kernel(workspace, _FILE, "fixed_node_bound", SINGLE, 1, **NO_WINDOW)
        run(1, self._numbers(workspace)["crowd"], bounds, share_of_node(workspace.window, workspace.mesh.ndim, form))

    def _bound_values(self, workspace: Workspace, values: View, launch: Launch, bounds: Any, first: int) -> None:
        find, exponents, layout = launch[1], launch[2], launch[5]
        largest, particles, count = self._numbers(workspace)["largest"], workspace.particles, workspace.count
        workspace.backend.clear(largest)
        if count:
            find(
                min(count, _MANY), particles.node, values.array, largest, count, particles.rows, layout,
                workspace.jacobian_record,
            )  # fmt: skip
        exponents(1, largest, bounds, first)

    def _add(
        self, workspace: Workspace, values: View, launch: Launch, bounds: Any, first: int, sums: Any, target: Record
    ) -> None:
        add, layout = launch[3], launch[5]
        particles, count = workspace.particles, workspace.count
        to = As(sums, np.uint64), bounds, first
        if isinstance(add, tuple):
            walk, pieces = add
            for piece in pieces:
                self._launch(workspace, walk, values, to, layout, target, piece=piece)
            return
        add(
            LANES["LANES_ALL"] * count, particles.node, particles.fraction, values.array, *to, count, particles.rows,
            layout, target, workspace.window_record, workspace.jacobian_record,
        )  # fmt: skip

    def _convert(
        self, workspace: Workspace, run: Kernel, group: Group, sums: Any, source: Record, bounds: Any, first: int,
        field: View, *, adds: bool,
    ) -> None:  # fmt: skip
        nodes = field.layout.shape[1:4]
        run(
            32 * group.channels * nodes[0] * nodes[1], As(sums, np.uint64), field.array, bounds,
            self._numbers(workspace)["not_finite"], first, int(adds), source, _record(group, field.layout),
        )  # fmt: skip

    def fullness(self, workspace: Workspace) -> Any:
        """Return how many particles each cell has, on a GPU."""
        return self._cells_of(workspace)

    def bounds(
        self, workspace: Workspace, values: View, bounds: Any, *others: Any, gradient: bool, hessian: bool
    ) -> None:
        """Write bounds of sums. On a GPU a cell has the particles of ``others``, too: see `fullness`."""
        form = Form(gradient, hessian=hessian)
        if self._host is not None:
            bounds[:] = self._bounds_of(workspace, values, form)
            return
        for cells in others:
            self._find_fullest(workspace, cells)
        self._bound_nodes(workspace, form, bounds)
        for launch in self._for_values(workspace, values, form):
            first = 1 + launch[0].first * values.layout.parts
            self._bound_values(workspace, values, launch, bounds, first)

    def _bounds_of(self, workspace: Workspace, values: View, form: Form) -> Any:
        """Return bounds on the CPU."""
        of = workspace.window, workspace.mesh.ndim, form
        return self._host.bounds(values, _order(form), share_of_node(*of), peak_of(*of))

    def add_integers(
        self, workspace: Workspace, values: View, bounds: Any, sums: View, *, gradient: bool, hessian: bool
    ) -> None:
        form = Form(gradient, hessian=hessian)
        if self._host is not None:
            self._host.add(values, _order(form), bounds, sums.numpy())
            return
        for launch in self._for_values(workspace, values, form):
            group = launch[0]
            target = field_record(group, sums.layout, workspace.axes)
            self._add(workspace, values, launch, bounds, 1 + group.first * group.parts, sums.array, target)

    def convert(self, workspace: Workspace, sums: View, bounds: Any, field: View) -> None:
        if self._host is not None:
            self._host.convert(sums.numpy(), bounds, field.numpy(), adds=False)
            return
        for group in groups(_beside(workspace, field.layout.channels, field.layout.parts)):
            source = _record(group, sums.layout)
            self._convert(
                workspace, self._converting(workspace, group), group, sums.array, source, bounds,
                1 + group.first * group.parts, field, adds=False,
            )  # fmt: skip

    def apply(
        self, workspace: Workspace, values: View, field: View, gradient: bool = False, hessian: bool = False,
        fresh: bool = False, **_: Any,
    ) -> None:  # fmt: skip
        form = Form(gradient, hessian=hessian)
        if self._host is not None:
            bounds = self._bounds_of(workspace, values, form)
            whole = np.empty(field.layout.shape, np.int64)
            self._host.add(values, _order(form), bounds, whole, fresh=True)
            self._host.convert(whole, bounds, field.numpy(), adds=not fresh)
            return
        bounds = self._numbers(workspace)["bounds"]
        self._bound_nodes(workspace, form, bounds)
        for launch in self._for_values(workspace, values, form):
            group = launch[0]
            sums = self._integers(workspace, group)
            workspace.backend.clear(sums.array)
            self._bound_values(workspace, values, launch, bounds, 1)
            target = field_record(replace(group, first=0), sums.layout, workspace.axes)
            self._add(workspace, values, launch, bounds, 1, sums.array, target)
            self._convert(workspace, launch[4], group, sums.array, target, bounds, 1, field, adds=not fresh)


def _order(form: Form) -> int:
    return 2 if form.hessian else int(form.gradient)


def _cells(sizes: Any) -> tuple[int, ...]:
    return tuple(axis.extent for axis in sizes.axes)


@functools.lru_cache(maxsize=64)
def _beside_of(sizes: tuple[int, int, int], channels: int, parts: int) -> Layout:
    x, y, z = sizes
    # One more than the nodes: then channels never count as parts, not even on a mesh of one node.
    return Layout(0, (channels, x, y, z, parts), (x * y * z * parts + 1, y * z * parts, z * parts, parts, 1), 16)


def _beside(workspace: Workspace, channels: int, parts: int) -> Layout:
    """Return where integers lie whose parts are side by side, on all nodes of a plan."""
    x, y, z = (axis.size for axis in workspace.axes)
    return _beside_of((x, y, z), channels, parts)


def _record(group: Group, layout: Layout) -> Record:
    """Return the kernels' ``Field`` of an array with any number of nodes."""
    return field_record(group, layout, [replace(MISSING, size=n) for n in layout.shape[1:4]])


@functools.lru_cache(maxsize=64)
def share_of_node(window: Window, ndim: int, form: Form) -> int:
    """Return 256 times what a node gets at most of one particle in each cell around it, with values or slopes of 1."""
    value, slope, curvature = _largest(window, np.sum)
    most = ndim * slope * value ** (ndim - 1) if form.gradient else value**ndim
    if form.hessian:
        most = ndim * curvature * value ** (ndim - 1) + ndim * (ndim - 1) * slope**2 * value ** max(ndim - 2, 0)
    return math.ceil(256 * most)


@functools.lru_cache(maxsize=64)
def peak_of(window: Window, ndim: int, form: Form) -> int:
    """Return the exponent of the largest number that `spread_tiles` adds to a node at once."""
    value, slope, curvature = _largest(window, np.max)
    most = value**ndim
    if form.gradient:
        most = (1, 1, 2)[ndim - 1] * slope * value ** (ndim - 1)
    if form.hessian:
        most = curvature if ndim == 1 else max(curvature * value, slope**2)
        most = value * (slope**2 + most) if ndim == 3 else most
    return math.frexp(most)[1]


def _largest(window: Window, total: Any) -> list[float]:
    """Return the ``total`` of the largest weights of a stencil's nodes, of slopes, and of second derivatives.

    Weights are polynomials, sampled between their ends; one per cent covers what lies between samples.
    """
    z = np.linspace(-0.5, 0.5, 257)
    weights = window.weights(z), window.derivative_weights(z), window.derivative_weights(z, 2)
    return [1.01 * float(total(np.abs(some).max(0))) for some in weights]
