# SPDX-License-Identifier: BSD-3-Clause
"""Tiles and rings: one order for both directions, parts of crowded tiles, local memory; and lanes of ``direct``."""

import itertools
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import particlemesh as pm
from particlemesh.interpolate.direct import Direct
from particlemesh.interpolate.ring import Ring
from particlemesh.interpolate.shares import Lanes, Local
from particlemesh.interpolate.tile import Tile
from particlemesh.methods.contract import Problem
from particlemesh.orders import block_order, block_tiles
from particlemesh.window import window_of

MESH = pm.Mesh((17, 16, 20), (1.0, 1.0, 1.0))
GPU = SimpleNamespace(name="cuda", units=132, group_size=128, local_bytes=232_448,
                      facts=lambda: {"HAS_WARP": 1, "HAS_MMA": 1})  # fmt: skip


def problem(nodes, count, support, dtype, components, **options):
    mesh = pm.Mesh((nodes,) * 3, (1.0,) * 3)
    asked = Problem(mesh, window_of(f"bspline{support}"), np.dtype(dtype), components, 1, count, False, None)
    return replace(asked, backend=GPU, options={"tile": options, "ring": options})


def blocks_of(asked):
    return block_order.blocks_of(asked.axes, Tile.cells(asked, asked.count))


@pytest.mark.backends("cuda", "opencl")
@pytest.mark.parametrize("order", ["caller", "sorted"])
@pytest.mark.parametrize("method", ["tile", "ring"])
def test_spreading_and_interpolation_order_particles_once(backend, method, order):
    x = np.random.default_rng(3).random((400, 3)).astype("float32")
    with pm.Plan(MESH, "bspline5", dtype="float32", backend=backend.name, method="walk", interpolation=method,
                 order=order) as plan:  # fmt: skip
        plan.set_positions(backend.array(x))
        field = plan.spread(backend.array(np.ones(400, "float32")))
        plan.interpolate(field)
        kept = [o for o in plan.workspace.orders.values() if isinstance(o, block_order.BlockOrder)]
        assert len(kept) == (order == "caller")


@pytest.mark.backends("cuda", "opencl")
@pytest.mark.parametrize("method", ["tile", "ring", "direct"])
def test_a_crowd_has_many_parts_and_reads_the_same(backend, method):
    rng = np.random.default_rng(4)
    x = np.concatenate([0.5 + 0.01 * rng.random((700, 3)), rng.random((100, 3))]).astype("float32")
    x[-1] = np.array([1.2, 2.1, 3.3]) / MESH.shape
    x[::50] = np.nan  # without weight: zero
    field = rng.standard_normal(MESH.shape).astype("float32")
    field[1, 2, 3] = np.nan  # reaches only stencils that have it, such as the last particle's
    results = {}
    for name in (method, "particle"):
        with pm.Plan(MESH, "bspline5", dtype="float32", backend=backend.name, interpolation=name,
                     options={"tile": {"particles": 32, "shape": (4, 8, 12)},
                              "ring": {"particles": 32, "shape": (1, 8, 12), "steps": 4}}) as plan:  # fmt: skip
            plan.reserve(len(x))
            plan.set_positions(backend.array(x), check=False)
            native = backend.array(field)
            results[name] = [backend.host(a) for a in plan.value_and_gradient(native)]
            if name in ("tile", "ring"):
                _, parts = plan.methods.of("interpolate").parts(plan.workspace)
                listed = int(backend.host(parts.listed)[0])
                pieces = backend.host(parts.parts[: 4 * listed]).reshape(-1, 4)
                assert len(np.unique(pieces, axis=0)) == listed <= parts.most
                assert pieces[:, 3].max() >= 686 // 4 // 32  # the crowd lies in at most four tiles
    for result, expected in zip(results[method], results["particle"], strict=True):
        finite = np.isfinite(expected)
        assert 0 < (~finite).sum() < expected.size // 4
        np.testing.assert_array_equal(np.isfinite(result), finite)
        np.testing.assert_allclose(result[finite], expected[finite], rtol=0, atol=1e-5 * np.abs(expected[finite]).max())
        assert not result[::50].any()


@pytest.mark.backends("cuda", "opencl")
@pytest.mark.parametrize(
    ("method", "lanes", "reads"),
    [("tile", 2, 2), ("tile", 8, 1), ("ring", 2, 2), ("ring", 8, 1), ("direct", 1, 1), ("direct", 2, 4)],
)
def test_any_lanes_read_the_same(backend, method, lanes, reads):
    rng = np.random.default_rng(5)
    x = rng.random((90, 3)).astype("float32")
    field = (rng.standard_normal((*MESH.shape, 2)) @ [1, 1j]).astype("complex64")
    results = []
    for name in (method, "particle"):
        options = {method: {"lanes": lanes, "reads": reads}} if name == method else None
        with pm.Plan(MESH, "bspline4", dtype="float32", components=2, backend=backend.name, interpolation=name,
                     options=options) as plan:  # fmt: skip
            plan.set_positions(backend.array(x))
            results.append([backend.host(a) for a in plan.value_and_gradient(backend.array(field))])
    for result, expected in zip(*results, strict=True):
        np.testing.assert_allclose(result, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("components", [1, 2, 4])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("support", [1, 2, 5, 6, 8, 16])
@pytest.mark.parametrize("method", [Tile, Ring])
def test_tiles_hold_all_blocks_and_fit_local_memory(method, support, dtype, components):
    for nodes, count in ((216, 10**6), (64, 10**5), (256, 10**7), (19, 10), (64, 0)):
        asked = problem(nodes, count, support, dtype, components)
        if method.declines(asked) is not None:
            assert support > 8  # large stencils of wide nodes
            continue
        blocks = blocks_of(asked)
        tiles = method.tiles(asked, count, blocks)
        assert all(n * t >= b for n, t, b in zip(tiles.blocks, tiles.counts, blocks.counts, strict=True))
        assert tiles.lines <= block_tiles.MOST_LINES
        assert method.scratch_bytes(asked) >= block_order.order_bytes(asked, blocks.cells)


@pytest.mark.parametrize(("lanes", "parts", "size"), [(8, 2, 4), (8, 1, 8), (8, 1, 4)])
@pytest.mark.parametrize("support", [4, 5, 6, 8])
def test_eight_lanes_that_read_at_once_meet_in_no_bank(support, lanes, parts, size):
    axes = problem(64, 10, support, f"float{8 * size}", parts).axes
    shared = Lanes.of(axes, parts, lanes, 16 // size)
    local = Local.of(axes, (5, 7, 11), shared, parts, 16 // size, size)
    row = local.pitch * size
    assert row % 16 == 0
    # A read of 16 bytes by eight lanes takes one cycle, if each has four of the 32 banks for itself.
    places = [16 * z + y * shared.rows * row for z, y in itertools.product(range(shared.z), range(shared.y))]
    assert len({place // 16 % 8 for place in places}) == len(places) == 8


@pytest.mark.parametrize("support", [5, 6])
@pytest.mark.parametrize(("parts", "size"), [(2, 8), (4, 4)])
def test_rows_dealt_in_turn_meet_in_no_bank(support, parts, size):
    axes = problem(64, 10, support, f"float{8 * size}", parts).axes
    shared = Lanes.of(axes, parts, 8, 16 // size, turns=True)
    local = Local.of(axes, (8, 7, 11), shared, parts, 16 // size, size)
    assert shared.in_turn and (shared.z, shared.y) == (2, 4)
    rows = list(itertools.product(range(support), range(support)))  # level by level
    for first in range(0, len(rows), shared.y):
        taken = rows[first : first + shared.y]
        places = [(x * local.nodes[1] + y) * local.pitch * size + 16 * z for x, y in taken for z in range(shared.z)]
        assert len({place // 16 % 8 for place in places}) == len(places)


@pytest.mark.parametrize("method", [Tile, Ring])
def test_tiles_too_large_are_declined_in_words(method):
    assert "of local memory" in method.declines(problem(256, 10**6, 6, "float64", 2, shape=(64, 64, 64)))
    assert "shape (8, 8) for a 3-D mesh" in method.declines(problem(256, 10**6, 6, "float64", 2, shape=(8, 8)))
    assert Direct.declines(problem(256, 10**6, 6, "float64", 2)) is None


@pytest.mark.parametrize("local", [48 * 1024, 99 * 1024, 232_448])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("method", [Tile, Ring])
def test_tiles_fit_local_memory_for_fields_that_the_plan_does_not_expect(method, local, dtype):
    served = 0
    for support, components in itertools.product((2, 6, 9, 13, 16), (1, 4)):
        device = SimpleNamespace(**{**vars(GPU), "local_bytes": local})
        asked = replace(problem(40, 5000, support, dtype, components), backend=device)
        if method.declines(asked) is not None:
            continue
        served += 1
        most = method.at_once(asked)
        assert most in (2, 4)
        blocks = blocks_of(asked)
        tiles = method.tiles(asked, asked.count, blocks)
        for parts in range(1, most + 1):  # of one launch, whatever the number of components was said to be
            assert method._local_bytes(asked, blocks, tiles, parts) <= local
    assert served


@pytest.mark.parametrize(
    ("dtype", "support"), [*(("float32", n) for n in (2, 4, 6, 8)), ("float64", 2), ("float64", 4)]
)
@pytest.mark.parametrize("method", [Tile, Ring])
def test_small_local_memory_serves_real_numbers(method, dtype, support):
    """Tiles that leave room for complex numbers are smaller; the plan need not know its number of components."""
    device = SimpleNamespace(**{**vars(GPU), "local_bytes": 48 * 1024})
    asked = problem(64, 100_000, support, dtype, 1)
    assert method.declines(replace(asked, backend=device)) is None
