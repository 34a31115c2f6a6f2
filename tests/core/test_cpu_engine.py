# SPDX-License-Identifier: BSD-3-Clause
"""Results on the CPU that would depend on threads, on tiles or on the type of indices; threads that get lost."""

import concurrent.futures
import itertools
import multiprocessing

import numpy as np
import pytest

import oracle
import particlemesh as pm
from particlemesh.backends import cpu
from particlemesh.orders.cpu import particles as tiles
from particlemesh.orders.cpu.particles import CHUNK, Cells
from particlemesh.particles.stencil import axes_of
from particlemesh.sorting.cpu import counting_sort, scan

MESH = pm.Mesh((33, 40, 70), pm.Box((1.0, 1.0, 1.0), periodic=(True, True, False)), offset=0.5)
WINDOW = pm.bspline(4)


def cloud(count, crowded=None, dtype=np.float32):
    x = np.random.default_rng(1).random((count, 3)).astype(dtype)
    if crowded == "one node":
        x[:] = x[:1]
    elif crowded == "seam":  # several tasks in each of two tiles of one colour that overlap: five along y
        x[:, 0], x[:, 1], x[:, 2] = 2.5 / 33, np.where(x[:, 1] < 0.5, 2.5 / 40, 39.5 / 40), 2.5 / 70
    return x


@pytest.mark.backends("cpu")
@pytest.mark.parametrize(
    ("count", "crowded"), [(0, None), (1, None), (33, None), (6 * CHUNK, None), (33, "seam"), (6 * CHUNK, "one node")]
)
def test_any_number_of_threads_gives_the_same_bits(monkeypatch, backend, law, count, crowded):
    monkeypatch.setattr(cpu, "available_threads", lambda: 64)
    x, rng, bits = cloud(count, crowded), np.random.default_rng(0), set()
    values = rng.normal(size=(2, count)).astype(np.float32)
    vectors, field = values[..., None] * rng.random(3, np.float32), rng.random((2, *MESH.shape), np.float32)
    for threads in (1, 3, 64) + (5,) * 3:
        with law.plan(MESH, WINDOW, threads=threads) as plan:
            plan.set_positions(x)
            if law.direction == "spread":
                results = plan.spread(values), plan.spread_gradient(vectors)
            else:
                results = plan.value_and_gradient(field)
            bits.add(tuple(a.tobytes() for a in results))
    assert len(bits) == 1
    if 0 < count <= 33:
        (results,) = bits
        expected = oracle.spread(MESH, WINDOW, x, values) if law.direction == "spread" else None
        if expected is not None:
            given = np.frombuffer(results[0], np.float32).reshape(expected.shape)
            np.testing.assert_allclose(given, expected, atol=2e-5)


@pytest.mark.parametrize(("shape", "support"), [((37, 41, 70), 4), ((64, 50, 90), 12)], ids=str)
def test_particles_of_a_crowded_tile_follow_each_other_by_cells(shape, support):
    """Cells change the order only: places, fractions and the caller's index of each particle stay together."""
    rng = np.random.default_rng(3)
    x = rng.random((40_000, 3))
    plan = pm.Plan(pm.Mesh(shape, (1.0,) * 3), pm.bspline(support), dtype="float64").set_positions(x)
    ordering = plan.workspace.particles.ordering
    cells = Cells.of(ordering.tiling, len(x))
    assert np.prod(cells.along) > 1
    node, fraction = ordering.located()
    u = x * shape
    np.testing.assert_array_equal(node.T % shape, (np.floor(u).astype(int) - support // 2 + 1) % shape)
    np.testing.assert_allclose(fraction.T, u - np.floor(u) - 0.5, atol=1e-9)
    tile = np.repeat(np.arange(len(ordering.ready)), np.diff(ordering.ready[:, 0], append=ordering.kept))
    local = ordering.packed[3::4][: len(x)]
    place = np.stack([local >> 20, local >> 10 & 1023, local & 1023])
    within = np.minimum(place.T >> np.array(cells.bits), np.array(cells.along) - 1)
    key = tile * np.prod(cells.along) + np.ravel_multi_index(within.T, cells.along)
    assert (np.diff(key) >= 0).all()
    assert (np.diff(ordering.order)[np.diff(key) == 0] > 0).all()  # stable


def test_indices_of_64_bits_change_no_result(monkeypatch):
    x, keys, results = cloud(500), np.random.default_rng(0).integers(0, 80, 40_000).astype(np.int32), []
    for index in (np.int32, np.int64):
        monkeypatch.setattr("particlemesh.sorting.cpu.index_type", lambda count, index=index: index)
        monkeypatch.setattr("particlemesh.orders.cpu.particles.index_type", lambda count, index=index: index)
        with pm.Plan(MESH, WINDOW, threads=3) as plan:
            ordering = plan.set_positions(x).workspace.particles.ordering
        results.append((ordering.order, ordering.packed, counting_sort(keys, 80, 3).order))
        assert ordering.order.dtype == results[-1][2].dtype == index
    assert all((a == b).all() for a, b in zip(*results, strict=True))


@pytest.mark.parametrize("shape", [(16384,) * 3, (2**17,) * 3, (2**20,) * 2, (2**31 - 1,), (3, 5, 2**31 - 1)])
def test_tiles_of_huge_meshes_are_few(shape):
    axes = axes_of(pm.Mesh(shape, (1.0,) * len(shape)), WINDOW)
    tiling = tiles.tiling_of(axes)
    assert np.prod(tiling.tiles) <= tiles.MOST_TILES
    for extent, bits, count in zip(tiling.extent, tiling.bits, tiling.tiles, strict=True):
        assert max(1 << bits, extent - (count - 1 << bits)) <= 1 << tiles.LOCAL_BITS  # also the last, widest tile


def test_more_tiles_than_ever_are_refused_in_words():
    mesh = pm.Mesh((2**20,) * 3, (1.0,) * 3)
    with pytest.raises(MemoryError, match=r"takes 4,611,686,018,427,387,904 bytes in float32 and [0-9,]+ tiles"):
        pm.Plan(mesh, "cic").set_positions(np.full((10, 3), 0.5))


@pytest.mark.parametrize("most", [1, 20, 300])
def test_wider_tiles_change_no_result(monkeypatch, most):
    mesh = pm.Mesh((70, 50, 700), (1.0,) * 3, periodic=(True, False, True))
    rng = np.random.default_rng(5)
    x, q = rng.random((3000, 3)), rng.integers(-8, 8, 3000).astype(float)
    x[:2000] = 0.4 + 0.05 * x[:2000]  # some tiles are dense
    expected = pm.spread(x, q, mesh, window="tsc")
    read = pm.interpolate(expected, x, mesh, window="tsc")
    monkeypatch.setattr(tiles, "MOST_TILES", most)
    assert np.prod(tiles.tiling_of(axes_of(mesh, pm.bspline(3))).tiles) <= most
    np.testing.assert_allclose(pm.spread(x, q, mesh, window="tsc"), expected, atol=1e-12)
    np.testing.assert_allclose(pm.interpolate(expected, x, mesh, window="tsc"), read, atol=1e-12)


@pytest.mark.parametrize("copies", [1, 500])  # without and with a box of nodes per tile
def test_numbers_that_are_not_finite_stay_within_their_stencils(copies):
    mesh = pm.Mesh((16, 16, 16), (16.0, 16.0, 16.0))
    x = np.repeat(np.array([[3.0, 3.0, 3.0], [3.0, 9.0, 3.0]], np.float32), copies, axis=0)
    with pm.Plan(mesh, "tsc", method="colouring", interpolation="tiles") as plan:  # padded to four lanes
        plan.set_positions(x)
        field = plan.spread(np.repeat(np.array([np.nan, 1.0], np.float32), copies))
        expected = np.zeros(mesh.shape, bool)
        expected[2:5, 2:5, 2:5] = True
        np.testing.assert_array_equal(np.isnan(field), expected)
        field = np.ones(mesh.shape, np.float32)
        field[:, :, 5] = np.inf
        np.testing.assert_allclose(plan.interpolate(field), 1, atol=1e-6)


def test_threads_of_the_caller_share_the_pool():
    x, q = [np.random.default_rng(seed).random((5000, 3)) for seed in range(4)], np.ones(5000)

    def work(seed):
        return pm.spread(x[seed], q, MESH, window=WINDOW, threads=4)

    alone = [work(seed) for seed in range(4)]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for seed, field in enumerate(pool.map(work, [0, 1, 2, 3] * 8)):
            assert (field == alone[seed % 4]).all()


def _spread_in_child(queue, x, q, mesh):
    queue.put(pm.spread(x, q, mesh, window=WINDOW, threads=3))


@pytest.mark.turns(3)
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("how", multiprocessing.get_all_start_methods())
def test_children_have_threads_of_their_own(how):
    """Forks beside threads at work are in test_processes.py."""
    given = cloud(20_000), np.ones(20_000, np.float32), MESH
    expected = pm.spread(*given, window=WINDOW, threads=3)  # the pool is running
    context = multiprocessing.get_context(how)
    queue = context.SimpleQueue()
    child = context.Process(target=_spread_in_child, args=(queue, *given))
    child.start()
    np.testing.assert_array_equal(queue.get(), expected)
    child.join(60)
    assert child.exitcode == 0


def test_a_failure_in_a_helper_reaches_the_caller():
    def fail(counter):
        raise KeyError("here")

    with pytest.raises(KeyError, match="here"):
        cpu.run(fail, 3)


def test_cleared_arrays_are_zero():
    for array in (np.ones(3), np.ones((300, 300, 7), np.float32), np.ones((2**18, 4))[:, ::2]):
        cpu.clear(array)
        assert not array.any()


def test_scan_by_blocks():
    rng = np.random.default_rng(0)
    counts = rng.integers(0, 5, (3, 70000)).astype(np.int32)
    places, start = counts.copy(), np.empty(70001, np.int64)
    scan(places, start, 3)
    running = np.array([0, *itertools.accumulate(counts.T.ravel().tolist())])
    assert (start == running[::3]).all()
    assert (places.T.ravel() == running[:-1]).all()
