# SPDX-License-Identifier: BSD-3-Clause
"""Every kernel on small meshes and grids, for compute-sanitizer; writes nothing itself.

compute-sanitizer --tool memcheck python benchmarks/sanitize.py
compute-sanitizer --tool racecheck python benchmarks/sanitize.py [spread] [orders] [grids]
"""

from __future__ import annotations

import itertools
import sys
from typing import Any

import cupy
import numpy as np

import particlemesh as pm
from particlemesh import backends
from particlemesh.grid.builders import METHODS as BUILDERS
from particlemesh.grid.queries import pair_lists as marks
from particlemesh.interpolate import METHODS as INTERPOLATE
from particlemesh.interpolate import ordered
from particlemesh.orders import block_order
from particlemesh.sorting import counting, radix, scan
from particlemesh.spread import METHODS as SPREAD
from particlemesh.walk.walking import Walking
from variants import INTERPOLATING, SPREADING


def grids(rng: np.random.Generator) -> int:
    """Build grids in every way, and ask everything of them; return how many calls that were."""
    calls = 0
    boxes = (
        pm.Box((1.0, 1.0, 1.0)),
        pm.Box((1.0, 1.2), periodic=(True, False)),
        pm.Box((1.0, 1.0, 1.0), periodic=False),
    )
    total = pm.PairFunction("sum[0] += r2 + b[0];", None, results=1, values=1)
    cases = itertools.product([(b, np.float32) for b in boxes] + [(boxes[0], np.float64)], (0, 33, 700))
    for (box, real), count in cases:
        x = cupy.asarray(rng.random((count, box.ndim)).astype(real))
        x[: count // 4] = x[:1]  # a crowd
        radii = cupy.asarray((0.12 * rng.random(count)).astype(real))
        for method in BUILDERS:
            options = [{"curve": "linear"}, {"curve": "morton"}] if method.name == "sort" else [{}]
            for option in [*options, {"deterministic": True}] if method.name == "scan" else options:
                grid = pm.UniformGrid(box, cell_size=0.25, method=method.name, **option).build(x, radii)
                grid.order, grid.rank, grid.cell_start, grid.overlaps()
                calls += 5
        grid = pm.UniformGrid(box, cell_size=0.1, levels=3).build(x, radii)
        for half, order, form, quantities in (
            (True, "input", "csr", "ijdDS"),
            (False, "grid", "csr", "j"),
            (True, "grid", "coo", "ijdDS"),
            (False, "input", "dense", "j"),
        ):
            grid.pairs(0.2, half=half, order=order, format=form, quantities=quantities)
            calls += 1
        grid.pairs(radii, half=False)
        grid.overlaps(shape="box", quantities="ijdDS")
        grid = pm.UniformGrid(box, cell_size=0.2).build(x)
        for order in ("input", "grid"):
            grid.count(0.2, order=order)
            for _ in range(2):  # the second time from what was learned
                grid.pairs(0.2, half=False, order=order)
        grid.neighbours(x + 0.3, 0.15, quantities="ijdDS")
        grid.nearest(3, 0.3), grid.nearest(20, 0.4, x)
        grid.stream(0.2, total, radii)
        grid.build_keys(cupy.asarray(rng.integers(-1, 9, count)), 9)
        calls += 14
    return calls + lists(rng)


def lists(rng: np.random.Generator) -> int:
    """Make lists by marks, with one row and with two rows of a work-item; return how many calls that were."""
    calls = 0
    for least, periodic, real in itertools.product((0, marks.LEAST_PAIRED), (True, False), (np.float32, np.float64)):
        marks.LEAST_PAIRED = least
        x = cupy.asarray(rng.random((601, 3)).astype(real))
        grid = pm.UniformGrid(pm.Box((1.0,) * 3, periodic=periodic), cell_size=(0.2, 0.2, 0.05)).build(x)
        for half, order in itertools.product((False, True), ("grid", "input")):
            for _ in range(2):  # the second time by marks, from the mean that was learned
                grid.pairs(0.2, half=half, order=order)
                calls += 1
    return calls


def main() -> None:
    rng = np.random.default_rng(3)
    parts = {"spread": spreads, "orders": orders, "grids": grids}
    calls = sum(parts[name](rng) for name in sys.argv[1:] or parts)
    cupy.cuda.Device().synchronize()
    print(f"{calls} calls")


Way = dict[str, Any]  # options of a plan


def values(rng: np.random.Generator, case: tuple[Any, ...], spreading: list[Way], interpolating: list[Way]) -> int:
    """Spread and interpolate one problem in several ways; return how many calls that were."""
    mesh, window, dtype, kind, count = case
    calls = 0
    x = cupy.asarray(rng.random((count, mesh.ndim)))
    x[: count // 4] = x[:1]  # a crowd
    q = cupy.asarray(rng.normal(size=(3, count)).astype(kind))
    v = cupy.asarray(rng.normal(size=(count, mesh.ndim)).astype(kind))
    field = cupy.asarray(rng.normal(size=(3, *mesh.field_shape)).astype(kind))
    for way in spreading:
        plan = pm.Plan(mesh, window, dtype=dtype, **way)
        plan.set_positions(x)
        plan.spread(q)
        plan.spread_gradient(v)
        plan.spread(q, out=plan.empty_field(3, layout="interleaved", dtype=kind))
        calls += 3
    for way in interpolating:
        plan = pm.Plan(mesh, window, dtype=dtype, **way)
        plan.set_positions(x)
        plan.interpolate(field)
        interleaved = plan.empty_field(3, layout="interleaved", dtype=kind)
        interleaved[...] = field
        plan.value_and_gradient(interleaved)
        calls += 2
    print(f"{mesh.shape}, {window}, {dtype}, {count} particles of {kind}: {calls} calls", flush=True)
    return calls


def spreads(rng: np.random.Generator) -> int:
    """Spread and interpolate by every method; return how many calls that were."""
    periodic = pm.Mesh((7, 5, 9), (1.0, 1.0, 1.0))
    mixed = pm.Mesh((8, 6, 4), pm.Box((1.0, 1.0, 1.0), periodic=(True, False, True)), offset=0.5)
    open_2d = pm.Mesh((6, 7), pm.Box((1.0, 1.0), periodic=False))
    ghosts_1d = pm.Mesh(11, 1.0, ghosts=4)
    cases = [
        (periodic, "bspline6", "float32", "float32", 500),
        (periodic, "bspline6", "float64", "complex128", 33),
        (periodic, "cic", "float64", "float64", 1),
        (mixed, "cic", "float32", "complex64", 500),
        (open_2d, "bspline6", "float64", "float64", 500),
        (ghosts_1d, "tsc", "float32", "complex64", 33),
    ]
    spreading = [*({"method": m.name} for m in SPREAD if "cuda" in m.backends), *SPREADING]
    interpolating = [*({"interpolation": m.name} for m in INTERPOLATE if "cuda" in m.backends), *INTERPOLATING]
    calls = 0
    for case in cases:
        calls += values(rng, case, spreading, interpolating)
    # Windows of other widths, which walks hold otherwise.
    odd = pm.Mesh((12, 11, 13), (1.0, 1.0, 1.0))
    walks = [{"method": m.name} for m in SPREAD if issubclass(m, Walking)]
    walks_back = [{"interpolation": m.name} for m in INTERPOLATE if issubclass(m, Walking)]
    for support, dtype, kind in (
        (4, "float32", "complex64"), (5, "float64", "float64"), (7, "float32", "float32"), (8, "float64", "complex128"),
    ):  # fmt: skip
        calls += values(rng, (odd, f"bspline{support}", dtype, kind, 300), walks, walks_back)
    return calls


def orders(rng: np.random.Generator) -> int:
    """Order, scan and sort in every way; return how many calls that were."""
    calls, odd = 0, pm.Mesh((12, 11, 13), (1.0, 1.0, 1.0))
    # Few particles are dealt to buckets, and read by one lane or two, as only many are.
    block_order.STAGED_FROM = dict.fromkeys(block_order.STAGED_FROM, 0)
    ordered.NARROW, ordered.WIDE = (1, 0, 2**40), (2, 0, 2**40)
    for support, dtype, kind in ((4, "float32", "complex64"), (6, "float64", "float64")):
        calls += values(rng, (odd, f"bspline{support}", dtype, kind, 300), [], [{"interpolation": "ordered"}])
    for dtype, count in itertools.product(("float32", "float64"), (1, 700, 5000)):
        x = cupy.asarray(rng.random((count, 3)))
        x[: count // 4] = x[:1]
        for nodes, options in itertools.product((8, 40), ({}, {"order": "sorted"})):
            plan = pm.Plan(pm.Mesh((nodes,) * 3, (1.0,) * 3), "cic", dtype=dtype, method="walk", **options)
            for _ in range(2):  # the second time counted on the way, and nearly sorted where the plan sorts
                plan.set_positions(x)
                plan.spread(cupy.ones(count, dtype))
                x = x[plan.order] if options else x
                calls += 1
    backend = backends.current("cuda")
    for count, bins, stable in itertools.product((0, 1, 5000), (1, 7, 300_000), (False, True)):
        for kind in (np.int32, np.int64):
            keys = cupy.asarray(rng.integers(-1, bins, count).astype(kind))
            counting.counting_sort(
                backend, keys, count, bins, stable=stable, allocate=lambda _, *of: backend.empty(*of)
            )
            calls += 1
    for count, bits in itertools.product((1, 2559, 2560, 2561, 30_000), (1, 9, 18, 32)):
        keys = cupy.asarray(rng.integers(0, 2**bits, count).astype(np.uint32))
        radix.sort(backend, keys, count, bits, lambda _, *of: backend.empty(*of))
        calls += 1
    for bins, kind in itertools.product((0, 1, 2047, 2048, 300_001), (np.uint32, np.uint64)):
        control = scan.allocate_control(backend, bins, lambda _, *of: backend.empty(*of))
        scan.scan(backend, cupy.ones(max(bins, 1), kind), cupy.empty(bins + 1, kind), bins, control)
        calls += 1
    return calls


if __name__ == "__main__":
    main()
