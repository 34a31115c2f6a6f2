# SPDX-License-Identifier: BSD-3-Clause
"""The CPU engine on plain arrays: ordering, spreading and reading by tiles, threads, caches."""

import concurrent.futures
import dataclasses
import itertools
import multiprocessing
import os
import subprocess
import sys

import numpy as np
import pytest

import particlemesh as pm
from particlemesh.backends import cpu
from particlemesh.interpolate.tiles import read_tiles
from particlemesh.orders.cpu import placing, tiles
from particlemesh.orders.cpu.rows import rows_of
from particlemesh.orders.cpu.tiles import CHUNK
from particlemesh.particles.locate import SKIP
from particlemesh.particles.stencil import MISSING, Axis, axes_of
from particlemesh.sorting.cpu import counting_sort, scan
from particlemesh.spread.colouring import spread_tiles

SHAPES = [
    ((13, 9, 21), (True, True, True)),
    ((40, 33, 70), (True, True, True)),  # several tiles, odd counts, along every axis
    ((5, 3, 2), (True, True, True)),  # smaller than most stencils
    ((20, 21, 40), (False, True, False)),
    ((30, 71), (True, False)),
    ((1100,), (True,)),
    ((1,), (True,)),
]


def axes_for(sizes, wraps, support):
    axes = [MISSING] * (3 - len(sizes))
    for size, wrap in zip(sizes, wraps, strict=True):
        low, extent = (0, size) if wrap else (1 - support, size + support - 1)
        axes.append(Axis(size, wrap, low, extent, support, size, 0.0))
    return axes


def particles_on(axes, count, dtype, seed=1):
    rng = np.random.default_rng(seed)
    node = np.array([rng.integers(a.low, a.low + a.extent, count) for a in axes], np.int32)
    fraction = (np.floor(rng.random((3, count)) * 2**20) / 2**20 - 0.5).astype(dtype)  # few bits: sums are exact
    fraction[[a is MISSING for a in axes]] = 0
    return node.reshape(3, count), fraction.reshape(3, count)


def tile_ordering(axes, node, fraction, threads):
    """Order particles of these first nodes and fractions: by positions in a box of 2048 nodes."""
    moved, columns = [], []
    for axis, n, f in zip(axes, node, fraction, strict=True):
        reach = (axis.support - 1) // 2
        shift = 0.5 - axis.low - reach
        moved.append(dataclasses.replace(axis, scale=2048, shift=shift))
        u = n + reach + f.astype(np.float64) + (0 if axis.support % 2 else 0.5)
        columns.append(np.where(n == SKIP, np.nan, (u + shift) / 2048))
    counted = placing.count_positions(columns, tuple(moved), pm.Box((1.0, 1.0, 1.0)), threads)
    count = node.shape[1]
    order = np.empty(count, placing.index_type(count))
    ordering = placing.place_positions(counted, np.empty(4 * count, fraction.dtype), order)
    assert all((a == b).all() for a, b in zip(ordering.located(), (node, fraction), strict=True))
    return ordering


def stencils(axes, table, node, fraction, slope=None):
    """Yield nodes and weights of each particle, in double precision; axis ``slope`` has the slope's."""
    slopes = np.polynomial.polynomial.polyder(table.T).T
    for k in range(node.shape[1]):
        nodes, weights = [], []
        for a, axis in enumerate(axes):
            polynomials = slopes if a == slope else table
            w = np.polynomial.polynomial.polyval(float(fraction[a, k]), polynomials.T)
            if axis is MISSING:
                w = np.array([0.0 if a == slope else 1.0])
            n = node[a, k] + np.arange(axis.support)
            inside = np.full(n.shape, True) if axis.wraps else (n >= 0) & (n < axis.size)
            nodes.append(n[inside] % axis.size)
            weights.append(w[inside])
        yield np.ix_(*nodes), np.einsum("i,j,k->ijk", *weights)


def spread_plainly(axes, table, node, fraction, values, slope=None):
    field = np.zeros((*(a.size for a in axes), values.shape[1]))
    for k, (nodes, weights) in enumerate(stencils(axes, table, node, fraction, slope)):
        if node[2, k] != SKIP:
            np.add.at(field, nodes, weights[..., None] * values[k])
    return field


def read_plainly(axes, table, node, fraction, field, slope=None):
    found = stencils(axes, table, node, fraction, slope)
    return np.array([np.einsum("ijk,ijkp->p", weights, field[nodes]) for nodes, weights in found])


def tolerance(dtype):
    return 5e-6 if dtype == np.float32 else 1e-13


def close(result, expected, dtype):
    return np.abs(result - expected).max(initial=0) <= tolerance(dtype) * max(1.0, np.abs(expected).max(initial=0))


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("support", [1, 2, 3, 4, 6, 8, 16])
def test_spreads_and_reads_as_the_plain_loops_do(support, dtype, parts):
    rng = np.random.default_rng(support)
    table = pm.bspline(support).table
    for (sizes, wraps), threads in itertools.product(SHAPES, (1, 3)):
        axes = axes_for(sizes, wraps, support)
        node, fraction = particles_on(axes, 33, dtype)
        ordering = tile_ordering(axes, node, fraction, threads)
        rows = rows_of(table, axes, parts, np.dtype(dtype))
        values = rng.standard_normal((33, parts)).astype(dtype)
        field = np.zeros((*(a.size for a in axes), parts), dtype)
        spread_tiles(ordering, rows, values, field, None, threads)
        assert close(field, spread_plainly(axes, table, node, fraction, values), dtype)
        field[...] = rng.standard_normal(field.shape)
        read_tiles(ordering, rows, field, values, None, None, threads)
        assert close(values, read_plainly(axes, table, node, fraction, field), dtype)


@pytest.mark.parametrize(
    ("support", "dtype", "parts"), [(1, np.float64, 1), (3, np.float64, 1), (3, np.float32, 2), (4, np.float32, 2)]
)
def test_slopes_and_their_adjoint(support, dtype, parts):
    rng = np.random.default_rng(support)
    table = pm.bspline(support).table
    for sizes, wraps in SHAPES:
        axes = axes_for(sizes, wraps, support)
        ndim = len(sizes)
        node, fraction = particles_on(axes, 33, dtype)
        ordering = tile_ordering(axes, node, fraction, 2)
        rows = rows_of(table, axes, parts, np.dtype(dtype))
        jacobian = np.zeros((3, ndim), dtype)
        jacobian[3 - ndim :] = rng.standard_normal((ndim, ndim))
        field = rng.standard_normal((*(a.size for a in axes), parts)).astype(dtype)
        values, gradients = np.empty((33, parts), dtype), np.empty((33, ndim, parts), dtype)
        read_tiles(ordering, rows, field, values, gradients, jacobian, 2)
        slopes = [read_plainly(axes, table, node, fraction, field, a) for a in range(3)]
        assert close(gradients, np.einsum("ab,akp->kbp", jacobian, slopes), dtype)
        assert close(values, read_plainly(axes, table, node, fraction, field), dtype)
        again = np.empty_like(gradients)
        read_tiles(ordering, rows, field, None, again, jacobian, 2)
        assert again.tobytes() == gradients.tobytes()
        vectors = rng.standard_normal(gradients.shape).astype(dtype)
        spread = np.zeros_like(field)
        spread_tiles(ordering, rows, vectors, spread, jacobian, 2)
        along = np.einsum("ab,kbp->akp", jacobian, vectors)
        expected = sum(spread_plainly(axes, table, node, fraction, along[a], a) for a in range(3))
        assert close(spread, expected, dtype)


@pytest.mark.parametrize("count", [0, 1, 2, 33, 6 * CHUNK])
@pytest.mark.parametrize("crowded", [None, "one node", "seam"])
def test_any_number_of_threads_gives_the_same_bits(count, crowded):
    axes = axes_for((33, 40, 70), (True, True, False), 4)
    node, fraction = particles_on(axes, count, np.float32)
    if crowded == "one node":
        node[:] = node[:, :1]
    elif crowded == "seam":  # several tasks in each of two tiles of one colour that overlap: five along y
        node[0], node[1], node[2] = 1, np.where(node[1] % 2, 1, 38), 1
    rows = rows_of(pm.bspline(4).table, axes, 2, np.dtype(np.float32))
    rng = np.random.default_rng(0)
    values = rng.standard_normal((count, 2)).astype(np.float32)
    bits = set()
    for threads in (1, 3, 64) + (5,) * 20:
        ordering = tile_ordering(axes, node, fraction, threads)
        field = np.zeros((33, 40, 70, 2), np.float32)
        spread_tiles(ordering, rows, values, field, None, threads)
        read = np.empty_like(values)
        read_tiles(ordering, rows, field, read, None, None, threads)
        bits.add((ordering.order.tobytes(), field.tobytes(), read.tobytes()))
    assert len(bits) == 1
    # B-splines sum to one: what is not lost past the open axis arrives.
    inside = (node[2] >= 0) & (node[2] <= 66)
    if inside.all():
        assert np.allclose(field.sum((0, 1, 2)), values.sum(0), atol=1e-2)


def test_more_particles_than_32_bits_count(monkeypatch):
    axes = axes_for((33, 40, 70), (True, True, False), 4)
    node, fraction = particles_on(axes, 500, np.float64)
    rows = rows_of(pm.bspline(4).table, axes, 1, np.dtype(np.float64))
    values = np.random.default_rng(0).standard_normal((500, 1))
    results = []
    for index in (np.int32, np.int64):
        monkeypatch.setattr("particlemesh.sorting.cpu.index_type", lambda count, index=index: index)
        monkeypatch.setattr("particlemesh.orders.cpu.placing.index_type", lambda count, index=index: index)
        ordering = tile_ordering(axes, node, fraction, 3)
        assert ordering.order.dtype == index
        field, read = np.zeros((33, 40, 70, 1)), np.empty_like(values)
        spread_tiles(ordering, rows, values, field)
        read_tiles(ordering, rows, field, read)
        order = counting_sort(node[2] + 3, 80, 3).order
        assert order.dtype == index
        results.append((field, read, ordering.order, order))
    assert all((a == b).all() for a, b in zip(*results, strict=True))


@pytest.mark.parametrize("shape", [(16384,) * 3, (2**17,) * 3, (2**20,) * 2, (2**31 - 1,), (3, 5, 2**31 - 1)])
def test_tiles_of_huge_meshes_are_few(shape):
    axes = axes_of(pm.Mesh(shape, (1.0,) * len(shape)), pm.bspline(4))
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
    assert close(pm.spread(x, q, mesh, window="tsc"), expected, x.dtype)
    assert close(pm.interpolate(expected, x, mesh, window="tsc"), read, x.dtype)


def test_skipped_particles_weigh_nothing_and_read_zero():
    axes = axes_for((16, 17, 18), (True, True, True), 4)
    node, fraction = particles_on(axes, 40, np.float64)
    node[:, ::3], fraction[:, ::3] = SKIP, 0
    rows = rows_of(pm.bspline(4).table, axes, 1, np.dtype(np.float64))
    ordering = tile_ordering(axes, node, fraction, 2)
    field = np.zeros((16, 17, 18, 1))
    spread_tiles(ordering, rows, np.ones((40, 1)), field)
    assert np.isclose(field.sum(), 26)
    read, slope = np.full((40, 1), 7.0), np.full((40, 3, 1), 7.0)
    read_tiles(ordering, rows, np.ones_like(field), read, slope, np.eye(3))
    assert (read[::3] == 0).all()
    assert (slope[::3] == 0).all()
    assert np.allclose(read[1::3], 1)


def test_numbers_that_are_not_finite_stay_within_their_stencils():
    axes = axes_for((16, 16, 16), (True, True, True), 3)  # padded to four lanes
    node = np.full((3, 2), 2, np.int32)
    node[:, 1] = 8
    rows = rows_of(pm.bspline(3).table, axes, 1, np.dtype(np.float32))
    for copies in (1, 500):  # without and with a box per tile
        many = np.repeat(node, copies, axis=1)
        ordering = tile_ordering(axes, many, np.zeros(many.shape, np.float32), 1)
        field = np.zeros((16, 16, 16, 1), np.float32)
        values = np.repeat(np.array([[np.nan], [1.0]], np.float32), copies, axis=0)
        spread_tiles(ordering, rows, values, field)
        expected = np.zeros((16, 16, 16), bool)
        expected[2:5, 2:5, 2:5] = True
        assert (np.isnan(field[..., 0]) == expected).all()
        field = np.ones((16, 16, 16, 1), np.float32)
        field[:, :, 5] = np.inf
        read_tiles(ordering, rows, field, values)
        assert np.allclose(values, 1)


def test_threads_of_the_caller_share_the_pool():
    axes = axes_for((40, 40, 40), (True, True, True), 4)
    rows = rows_of(pm.bspline(4).table, axes, 1, np.dtype(np.float64))

    def work(seed):
        node, fraction = particles_on(axes, 5000, np.float64, seed)
        ordering = tile_ordering(axes, node, fraction, 4)
        field = np.zeros((40, 40, 40, 1))
        spread_tiles(ordering, rows, np.ones((5000, 1)), field, None, 4)
        return field

    alone = [work(seed) for seed in range(4)]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for seed, field in enumerate(pool.map(work, [0, 1, 2, 3] * 8)):
            assert (field == alone[seed % 4]).all()


def _sum_in_child(queue):
    counts = counting_sort(np.arange(20000, dtype=np.int32) % 7, 7, 4).start
    queue.put(int(counts[-1]))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("how", multiprocessing.get_all_start_methods())
def test_children_have_threads_of_their_own(how):
    counting_sort(np.arange(20000, dtype=np.int32) % 7, 7, 4)  # the pool is running
    context = multiprocessing.get_context(how)
    queue = context.SimpleQueue()
    child = context.Process(target=_sum_in_child, args=(queue,))
    child.start()
    assert queue.get() == 20000
    child.join(60)
    assert child.exitcode == 0


def test_a_failure_in_a_helper_reaches_the_caller():
    def fail():
        raise KeyError("here")

    with pytest.raises(KeyError, match="here"):
        cpu.run(fail, 3)


def test_cleared_arrays_are_zero():
    for array in (np.ones(3), np.ones((300, 300, 7), np.float32), np.ones((2**18, 4))[:, ::2]):
        cpu.clear(array)
        assert not array.any()


@pytest.mark.parametrize("threads", [1, 3, 64])
@pytest.mark.parametrize("count", [0, 1, 2, 33, 10000])
def test_counting_sort_is_stable(count, threads):
    rng = np.random.default_rng(count)
    for bins, dtype in itertools.product((1, 5, 100, 50000), (np.int32, np.int64)):
        for keys in (rng.integers(0, bins, count), np.zeros(count), rng.integers(-1, bins, count)):
            keys = keys.astype(dtype)
            kept = np.flatnonzero(keys >= 0)
            found = counting_sort(keys, bins, threads)
            expected = kept[np.argsort(keys[kept], kind="stable")]
            assert (found.order[: len(kept)] == expected).all()
            assert (found.start == np.searchsorted(keys[expected], np.arange(bins + 1))).all()
            assert (found.rank[expected] == np.arange(len(kept))).all()
            assert (found.rank[keys < 0] == -1).all()


def test_scan_by_blocks():
    rng = np.random.default_rng(0)
    counts = rng.integers(0, 5, (3, 70000)).astype(np.int32)
    places, start = counts.copy(), np.empty(70001, np.int64)
    scan(places, start, 3)
    running = np.concatenate([[0], np.cumsum(counts.T.ravel())])
    assert (start == running[::3]).all()
    assert (places.T.ravel() == running[:-1]).all()


_SCRIPT = """
import numpy as np
from particlemesh.sorting.cpu import counting_sort, _count_keys
print(counting_sort(np.arange(5000, dtype=np.int32) % 3, 3, 1).start.tolist(), len(_count_keys.stats.cache_hits))
"""


def test_a_damaged_cache_is_a_miss(tmp_path):
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}

    def start():
        command = [sys.executable, "-c", _SCRIPT]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    counts = "[0, 1667, 3334, 5000]"
    assert start() == f"{counts} 0"
    assert start() == f"{counts} 1"
    for file in tmp_path.rglob("*.nb?"):
        file.write_bytes(file.read_bytes()[:100] if file.suffix == ".nbc" else b"")
    assert start() == f"{counts} 0"
    for file in tmp_path.rglob("*.nbc"):
        file.write_bytes(b"no pickle")
    assert start() == f"{counts} 0"
