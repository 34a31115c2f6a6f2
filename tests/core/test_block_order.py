# SPDX-License-Identifier: BSD-3-Clause
"""Particles by blocks of cells: every one once, where NumPy says, in records that say what the plan does."""

import itertools

import numpy as np
import pytest

import particlemesh as pm
from blocks import cut, number_of, staged_from
from particlemesh.orders import block_order
from particlemesh.particles.stencil import axes_of
from particlemesh.plan.calls import PlanMethods
from particlemesh.window import window_of

pytestmark = pytest.mark.backends("cuda", "opencl")  # processors have the order of tiles
SKIP = -(2**31)
BOX = pm.Box((1.0, 2.0, 3.0), periodic=(True, False, True))
MESHES = {
    "prime": pm.Mesh((37, 41, 43), (1.0, 2.0, 3.0)),
    "odd": pm.Mesh((5, 7, 9), (1.0, 2.0, 3.0)),
    "tiny": pm.Mesh((1, 3, 2), (1.0, 2.0, 3.0)),
    "open": pm.Mesh((20, 21, 22), pm.Box((1.0, 2.0, 3.0), periodic=False), offset=0.5),
    "open along y": pm.Mesh((5, 4, 3), BOX, offset=0.5),
    "ghosts": pm.Mesh((12, 13, 14), (1.0, 2.0, 3.0), ghosts=4),
    "plane": pm.Mesh((17, 16), pm.Box((1.0, 2.0), periodic=(True, False)), offset=0.5),
    "long": pm.Mesh((40_000, 3, 2), (1.0, 2.0, 3.0)),
    "line": pm.Mesh((70,), (1.0,)),
}
UNPACK = """
#include "orders/blocks.h"

KERNEL unpack(GLOBAL const u32* records, GLOBAL real* fraction, GLOBAL int* place, const i64 count)
{
    for (i64 k = GROUP_ID * GROUP_SIZE + LOCAL_ID; k < count; k += GROUP_COUNT * GROUP_SIZE) {
        u32 words[RECORD_WORDS];
        Placed placed;
        read_record(records, k, words);
        particle_of(words, &placed);
        for (int a = 0; a < 3; a++) {
            fraction[3 * k + a] = placed.fraction[a];
            place[5 * k + a] = placed.offset[a];
        }
        place[5 * k + 3] = placed.bx;
        place[5 * k + 4] = (int)placed.index;
    }
}
"""


@pytest.fixture
def unpack(backend, tmp_path):
    """Return fraction, offset, bx and index of the first ``count`` records."""
    file = tmp_path / "unpack.c"
    file.write_text(UNPACK)

    def call(plan, order, count):
        library = plan.backend
        fraction = library.upload(np.zeros((max(count, 1), 3), plan.dtype))
        place = library.upload(np.zeros((max(count, 1), 5), np.int32))
        if count:
            run = library.kernel(str(file), "unpack", {"REAL_IS_DOUBLE": int(plan.dtype.itemsize == 8)})
            run(count, order.records, fraction, place, count)
        fraction, place = (library.download(a)[:count] for a in (fraction, place))
        return fraction, place[:, :3], place[:, 3], place[:, 4].view(np.uint32)

    return call


def positions(mesh, count, seed=0):
    rng = np.random.default_rng(seed)
    return mesh.box.origin + rng.random((count, mesh.ndim)) * mesh.box.lengths


def plan_of(backend, mesh, window, x, real, **options):
    plan = pm.Plan(mesh, window, backend=backend.name, dtype=real, **options)
    plan.set_positions(backend.array(x.astype(real)), check=False)
    return plan


def check(plan, cells, unpack, *, stable=False):
    """Compare an order with NumPy's of the plan's nodes."""
    count, blocks = plan.count, block_order.blocks_of(plan.workspace.axes, cells)
    order = block_order.block_order(plan.workspace, cells, stable=stable)
    assert order is block_order.block_order(plan.workspace, cells, stable=stable)
    node = plan.backend.download(plan.particles.node)[:, :count].astype(np.int64)
    exact = plan.backend.download(plan.particles.fraction)[:, :count].T
    good = node[2] != SKIP
    block, offset = cut(blocks, node)
    number = number_of(blocks, block)
    assert (number[good] >= 0).all()
    assert (number[good] < blocks.total).all()

    start = plan.backend.download(order.start)[: blocks.total + 1]
    members = np.bincount(number[good], minlength=blocks.total)
    np.testing.assert_array_equal(start, np.concatenate([[0], np.cumsum(members)]))
    fraction, cell, bx, index = unpack(plan, order, int(start[-1]))
    np.testing.assert_array_equal(np.sort(index), np.flatnonzero(good))
    np.testing.assert_array_equal(number[index], np.repeat(np.arange(blocks.total), members))
    np.testing.assert_array_equal(cell, offset[:, index].T)
    np.testing.assert_array_equal(bx, block[blocks.along, index])
    np.testing.assert_array_equal(fraction, exact[index])
    if stable:
        np.testing.assert_array_equal(index, np.flatnonzero(good)[np.argsort(number[good], kind="stable")])
    return order


def nearly_sorted(plan, x, cells):
    """Return positions in the order of blocks, each then moved by up to 0.1 cells."""
    blocks = block_order.blocks_of(plan.workspace.axes, cells)
    node = plan.backend.download(plan.particles.node)[:, : plan.count]
    order = np.argsort(number_of(blocks, cut(blocks, node)[0]))
    spacing = plan.mesh.box.lengths / np.array(plan.mesh.shape)
    return x[order] + np.random.default_rng(3).uniform(-0.1, 0.1, x.shape) * spacing


@pytest.mark.parametrize("real", ["float32", "float64"])
def test_many_buckets_of_many_blocks(backend, unpack, monkeypatch, real):
    staged_from(monkeypatch, 0)
    mesh, cells = pm.Mesh((400, 300, 4), (1.0, 2.0, 3.0)), (1, 1, 1)
    assert block_order._shift(5000, 400 * 300 * 4, 4) == 10
    with plan_of(backend, mesh, "bspline6", positions(mesh, 5000), real) as plan:
        check(plan, cells, unpack)
    assert block_order._shift(5000, 2**22, 8) == 11
    assert block_order._shift(5000, 2**22 + 1, 4) is None  # more blocks than buckets have room for: straight, then


def was_nearly_sorted(plan, cells):
    work = plan.backend.download(plan.workspace.memory.arrays["blocks.{}x{}x{}.work".format(*cells)]).view(np.uint32)
    return bool(work[2])


@pytest.mark.parametrize("dealt", [False, True])
def test_nearly_sorted_particles_go_straight_to_their_blocks(backend, unpack, monkeypatch, dealt):
    staged_from(monkeypatch, 0 if dealt else 10**9)
    mesh, cells = MESHES["prime"], (3, 3, 10)
    x = positions(mesh, 20_000)
    with plan_of(backend, mesh, "bspline6", x, "float32") as plan:
        check(plan, cells, unpack)
        assert not was_nearly_sorted(plan, cells)
        x = nearly_sorted(plan, x, cells)
        plan.set_positions(backend.array(x.astype(np.float32)), check=False)
        check(plan, cells, unpack)
        assert was_nearly_sorted(plan, cells) == dealt  # few go straight anyway


@pytest.mark.parametrize("stable", [False, True])
@pytest.mark.parametrize("real", ["float32", "float64"])
@pytest.mark.parametrize("mesh", MESHES)
def test_packed_particles_are_the_same(backend, unpack, monkeypatch, mesh, real, stable):
    mesh = MESHES[mesh]
    x = positions(mesh, 700)
    x[13] = np.inf
    located = {}
    for packed in (False, True):
        monkeypatch.setattr(PlanMethods, "pack", lambda self, count, packed=packed: packed)
        with plan_of(backend, mesh, "bspline6", x, real) as plan:
            assert plan.particles.located()[0] == packed
            order = block_order.block_order(plan.workspace, (3, 3, 2), stable=stable)  # before anybody asks for nodes
            for along, cells in enumerate([(3, 3, 10), (3, 2, 10), (3, 3, 2)]):
                check(plan, cells, unpack, stable=stable)
                lines = block_order.blocks_of(plan.workspace.axes, cells).along
                assert lines == (along if plan.workspace.axes[0].extent > 1 else 0)
            assert order is block_order.block_order(plan.workspace, (3, 3, 2), stable=stable)
            located[packed] = [
                plan.backend.download(a)[:, :700] for a in (plan.particles.node, plan.particles.fraction)
            ]
    for unpacked, kept in zip(*located.values(), strict=True):
        np.testing.assert_array_equal(unpacked, kept)


@pytest.mark.parametrize("packed", [False, True])
def test_positions_are_counted_on_the_way(backend, unpack, monkeypatch, packed):
    monkeypatch.setattr(PlanMethods, "pack", lambda self, count: packed)
    mesh, bad, cells = MESHES["open"], positions(MESHES["open"], 90), (3, 3, 2)
    bad[7] = np.nan
    with plan_of(backend, mesh, "bspline6", positions(mesh, 100), "float32") as plan:

        def counted():
            order = plan.workspace.memory.counted
            return order and order[0]

        assert counted() is None  # no method has asked yet
        check(plan, cells, unpack)
        plan.set_positions(backend.array(positions(mesh, 80, 1).astype(np.float32)))
        assert counted() == cells
        with pytest.raises(ValueError, match="particle 7"):
            plan.set_positions(backend.array(bad.astype(np.float32)))
        assert counted() is None  # those of now have to be counted again
        check(plan, cells, unpack)
        for check_them in (True, False):
            plan.set_positions(backend.array(positions(mesh, 80, 2).astype(np.float32)), check=check_them)
            assert counted() == cells
            check(plan, (2, 3, 4), unpack)  # of these nothing was counted
            plan.workspace.memory.block_cells = cells
            assert counted() == cells
            check(plan, cells, unpack)
            assert counted() is None  # used up
            check(plan, cells, unpack, stable=True)
        plan.set_positions(backend.array(bad.astype(np.float32)), check=False)
        assert counted() == cells
        check(plan, cells, unpack)
        plan.set_positions(backend.array(bad[:8].astype(np.float32)), check=False)  # far fewer
        assert counted() == cells
        plan.set_positions(backend.array(bad[:8].astype(np.float32)), check=False)
        assert counted() is None
        check(plan, cells, unpack)


def test_a_failed_check_leaves_packed_particles_and_their_order(backend, unpack, monkeypatch):
    monkeypatch.setattr(PlanMethods, "pack", lambda self, count: True)
    mesh, bad = MESHES["prime"], positions(MESHES["prime"], 300)
    bad[0] = np.nan
    with plan_of(backend, mesh, "bspline6", positions(mesh, 200), "float32") as plan:
        order = check(plan, (3, 3, 2), unpack)
        with pytest.raises(ValueError, match="particle 0"):
            plan.set_positions(backend.array(bad.astype(np.float32)))
        assert plan.count == 200
        assert check(plan, (3, 3, 2), unpack) is order
        plan.reserve(1000)  # the particles move
        assert check(plan, (3, 3, 2), unpack) is not order


def test_long_axes_are_not_packed(backend, unpack, monkeypatch):
    monkeypatch.setattr(PlanMethods, "pack", lambda self, count: True)
    for nodes, packed in ((2**18, True), (2**18 + 1, False)):
        mesh = pm.Mesh((nodes,), (1.0,))
        with plan_of(backend, mesh, "bspline4", positions(mesh, 3000), "float32") as plan:
            assert plan.particles.located()[0] == packed
            check(plan, (1, 1, 13), unpack)
        with pm.Plan(mesh, "bspline4", dtype="float32", backend=backend.name, method="particle") as plan:
            plan.reserve(300)
            held = plan.particles.nbytes
            plan.set_positions(backend.array(positions(mesh, 300).astype(np.float32)), check=False)
            assert plan.particles.nbytes == held > 0
            assert plan.particles.located()[0] == packed


def awkward():
    """Few particles, bad ones, and some at the ends of cells: mesh, window, cells, positions, how many are good."""
    for count in (0, 1, 31, 32, 33):
        yield MESHES["prime"], "bspline6", (3, 3, 10), positions(MESHES["prime"], count), count
    for window in ("ngp", "bspline3"):
        yield MESHES["odd"], window, (6, 6, 6), positions(MESHES["odd"], 500), 500
    x = positions(MESHES["open"], 400)
    x[::7, 1], x[3::7, 0] = np.nan, 1.5
    yield MESHES["open"], "bspline4", (5, 5, 4), x, 400 - len(x[::7]) - len(x[3::7])
    yield MESHES["odd"], "bspline4", (5, 5, 4), np.full((70, 3), np.inf), 0
    below, half = (np.nextafter(np.float32(at), np.float32(0)) for at in (8, 8.5))
    x = np.array([[8.0], [below], [8.5], [half], [1e-30], [-1e-30]])
    for window in ("bspline4", "bspline3"):
        yield pm.Mesh((64,), (64.0,)), window, (1, 1, 5), x, 6


@pytest.mark.parametrize("stable", [False, True])
def test_awkward_particles(backend, unpack, stable):
    for mesh, window, cells, x, good in awkward():
        with plan_of(backend, mesh, window, x, "float32") as plan:
            order = check(plan, cells, unpack, stable=stable)
            assert plan.backend.download(order.start)[order.blocks.total] == good


@pytest.mark.parametrize(("stable", "way"), [(False, "straight"), (False, "dealt"), (False, "asked"), (True, "sorted")])
def test_all_in_one_cell(backend, unpack, monkeypatch, stable, way):
    staged_from(monkeypatch, 10**9 if way == "straight" else 0)
    if way == "dealt":  # although they are sorted
        monkeypatch.setattr(block_order, "SORTED_UP_TO", -1)
    mesh = MESHES["prime"]
    x = mesh.box.lengths * (0.5 + 0.4 * positions(mesh, 5000) / mesh.box.lengths / np.array(mesh.shape))
    with plan_of(backend, mesh, "bspline6", x, "float32") as plan:
        order = check(plan, (3, 3, 10), unpack, stable=stable)
        assert was_nearly_sorted(plan, (3, 3, 10)) == (way == "asked")
        assert np.diff(plan.backend.download(order.start).astype(np.int64)).max() >= 5000 / 8


@pytest.mark.backends("cuda")
@pytest.mark.parametrize("dealt", [False, True])
@pytest.mark.parametrize("real", ["float32", "float64"])
def test_a_captured_order_replays_with_other_positions(backend, unpack, monkeypatch, real, dealt):
    import cupy

    staged_from(monkeypatch, 0 if dealt else 10**9)
    monkeypatch.setattr(PlanMethods, "pack", lambda self, count: True)
    mesh, cells, x = MESHES["prime"], (1, 3, 2), cupy.zeros((5000, 3), real)
    plan = pm.Plan(mesh, "bspline6", dtype=real, backend="cuda", method="particle", interpolation="particle")
    plan.reserve(5000)
    block_order.reserve(plan.workspace, {cells: 5000})

    def step():
        plan.set_positions(x, check=False)
        return block_order.block_order(plan.workspace, cells)

    step()  # compiles
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.Device().synchronize()
    with stream:
        stream.begin_capture()
        step()
        graph = stream.end_capture()
    for seed in range(3):
        drawn = positions(mesh, 5000, min(seed, 1))
        drawn[7] = np.nan
        x.set((nearly_sorted(plan, drawn, cells) if seed == 2 else drawn).astype(real))
        cupy.cuda.Device().synchronize()
        graph.launch(stream)
        stream.synchronize()
        plan.particles.unpack_again()  # a replay does not tell the plan
        check(plan, cells, unpack)


@pytest.mark.parametrize("periodic", [False, True])
@pytest.mark.parametrize("nodes", [1, 2, 7, 24, 50, 64, 97, 139])
def test_blocks_hold_all_nodes_and_the_last_is_not_alone_in_being_narrow(nodes, periodic):
    box = pm.Box((1.0,) * 3, periodic=periodic)
    axes = axes_of(pm.Mesh((nodes,) * 3, box, offset=0.0 if periodic else 0.5), window_of("bspline4"))
    for cells in itertools.product((1, 2), (1, 2, 5, 8), (1, 2, 3, 7, 8, 10, 13, 14)):
        blocks = block_order.blocks_of(axes, cells)
        for a, axis in enumerate(axes):
            count, wide, narrow = blocks.counts[a], blocks.wide[a], blocks.narrow[a]
            before = (axis.low + axis.extent - blocks.base[a]) - blocks.last[a]  # nodes of all but the last
            assert 0 < blocks.last[a] <= (narrow if wide < count else cells[a])
            assert before == min(wide, count - 1) * cells[a] + max(0, count - 1 - wide) * narrow
            assert (count - 1) * cells[a] < before + blocks.last[a]  # no more blocks than there must be
            if a and count > cells[a]:
                assert narrow - blocks.last[a] < max(1, cells[a] - narrow)  # at most a pair is cut
        assert blocks.narrow[0] == cells[0] and (cells[2] < 8 or cells[2] % 2 or blocks.narrow[2] % 2 == 0)


def test_what_cannot_be_ordered():
    window = window_of("bspline6")

    def ask(mesh, cells=(3, 3, 10), count=10, **more):
        return block_order.declines(axes_of(mesh, window), cells, count, **more)

    mesh = pm.Mesh((37, 41, 43), (1.0, 2.0, 3.0))
    assert ask(mesh) is None
    assert ask(mesh, count=2**32 - 1) is None
    assert "2**32 particles" in ask(mesh, count=2**32)
    assert "2**31 particles" in ask(mesh, count=2**31, stable=True)
    assert "9 x 3 x 10 cells" in ask(mesh, cells=(9, 3, 10))
    assert "0 x 3 x 10 cells" in ask(mesh, cells=(0, 3, 10))
    long = pm.Mesh((3 * 2**14, 6, 6), (1.0, 1.0, 1.0))
    assert ask(long) is None
    assert "16384 blocks along x" in ask(pm.Mesh((3 * 2**14 + 1, 6, 6), (1.0, 1.0, 1.0)))
    assert "2**32 blocks" in ask(pm.Mesh((2**14, 2**14, 2**14), (1.0, 1.0, 1.0)), cells=(1, 3, 4))
    assert "2**31 lines" in ask(pm.Mesh((2**17, 2**17), (1.0, 1.0)), cells=(1, 1, 8))
    assert ask(pm.Mesh((2**17, 2**17), (1.0, 1.0)), cells=(1, 2, 8)) is None
