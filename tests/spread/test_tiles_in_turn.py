# SPDX-License-Identifier: BSD-3-Clause
"""Tiles on the CPU: boxes of tasks, their order, and clusters whose tiles have most tasks."""

import itertools

import numpy as np
import pytest

import particlemesh as pm
from particlemesh.backends import cpu
from particlemesh.methods.by_tile import box_of, box_of_task
from particlemesh.orders.cpu.particles import CHUNK, group_of, list_tasks, slabs_together, tiling_of
from particlemesh.particles.stencil import axes_of
from particlemesh.spread import colouring

MESHES = {  # by axes; odd numbers of tiles, rests in the last tile, a single tile, a missing axis
    "line": pm.Mesh((700,), (1.0,)),
    "plane": pm.Mesh((70, 100), pm.Box((1.0, 1.0), periodic=(True, False))),
    "layer": pm.Mesh((1, 70, 100), (1.0,) * 3),
    "cube": pm.Mesh((40, 36, 70), pm.Box((1.0,) * 3, periodic=(True, True, False))),
    "long": pm.Mesh((3000, 4), (1.0, 1.0)),
    "long cube": pm.Mesh((400, 16, 16), (1.0,) * 3),
    "small": pm.Mesh((9, 6, 13), (1.0,) * 3),
    "open": pm.Mesh((33, 40, 48), pm.Box((1.0,) * 3, periodic=(False,) * 3), ghosts=2),
}


def cluster(mesh, count, seed=0):
    """Most particles in a small ball across corners of tiles and the periodic edge, the others anywhere."""
    rng = np.random.default_rng(seed)
    x = rng.random((count, mesh.ndim))
    width = np.minimum(0.03, 20 / np.array(mesh.shape))
    x[: count * 9 // 10] = width * (x[: count * 9 // 10] - 0.5) + rng.integers(0, 2, mesh.ndim) * 0.5
    return x % 1.0 if all(mesh.box.periodic) else x.clip(0.0, np.nextafter(1.0, 0.0))


@pytest.fixture
def many_threads(monkeypatch):
    monkeypatch.setattr(cpu, "available_threads", lambda: 16)


@pytest.mark.parametrize("name", MESHES)
@pytest.mark.parametrize(("support", "dtype"), [(4, "float64"), (6, "float32")])
def test_clusters_get_the_sums_of_another_method_for_any_number_of_threads(many_threads, name, support, dtype):
    mesh, count = MESHES[name], 5 * CHUNK
    x, rng, bits = cluster(mesh, count), np.random.default_rng(1), set()
    values, vectors = rng.normal(size=(count, 2)), rng.normal(size=(count, mesh.ndim, 2))
    values, vectors = (a.view(complex)[..., 0].astype(np.result_type(dtype, np.complex64)) for a in (values, vectors))
    options = {"dtype": dtype, "components": 2}
    for threads in (1, 2, 16, 16):
        with pm.Plan(mesh, pm.bspline(support), threads=threads, method="colouring", **options) as plan:
            plan.set_positions(x)
            ordering = plan.workspace.particles.ordering
            tasks, crowded, _ = ordering.claims
            assert crowded > 1
            np.testing.assert_array_equal(np.sort(tasks), np.arange(len(ordering.tile)))
            room = np.full((*plan.mesh.field_shape, 2), 7, values.dtype)  # results where memory is not contiguous
            plan.spread(values, out=room[..., 0])
            added = plan.spread(values)
            plan.spread(values, out=added, accumulate=True)
            results = room[..., 0], added, plan.spread_gradient(vectors)
            assert (room[..., 1] == 7).all()
            bits.add(tuple(a.tobytes() for a in results))
    assert len(bits) == 1
    with pm.Plan(mesh, pm.bspline(support), method="fixed_point", **options) as plan:
        plan.set_positions(x)
        once, slopes = plan.spread(values), plan.spread_gradient(vectors)
    for result, expected in zip(results, (once, 2 * once, slopes), strict=True):
        np.testing.assert_allclose(result, expected, atol=4e3 * np.finfo(dtype).eps * np.abs(expected).max())


@pytest.mark.parametrize("name", ["plane", "cube"])
def test_boxes_that_would_take_too_much_memory_are_added_in_turn(many_threads, monkeypatch, name):
    x, values, bits = cluster(MESHES[name], 5 * CHUNK), np.random.default_rng(1).normal(size=5 * CHUNK), []
    for kept, threads in ((colouring._KEPT, 16), (0, 1), (0, 3), (0, 16)):
        monkeypatch.setattr(colouring, "_KEPT", kept)
        plan = pm.Plan(MESHES[name], "bspline4", dtype="float64", threads=threads, method="colouring")
        bits.append(plan.set_positions(x).spread(values))
    for result in bits[1:]:
        np.testing.assert_array_equal(result, bits[1])
        np.testing.assert_allclose(result, bits[0], atol=1e-12 * np.abs(bits[0]).max())
    assert (bits[0] != bits[1]).any()  # another order of additions


@pytest.mark.parametrize("name", MESHES)
@pytest.mark.parametrize("support", [2, 5, 11])
@pytest.mark.parametrize("count", [50, 3 * CHUNK])
def test_the_box_of_a_task_holds_its_stencils_and_lies_within_its_tile(name, support, count):
    mesh = MESHES[name]
    for x in (cluster(mesh, count), np.random.default_rng(2).random((count, mesh.ndim))):
        plan = pm.Plan(mesh, pm.bspline(support), dtype="float64", method="colouring").set_positions(x)
        ordering = plan.workspace.particles.ordering
        tiling, cells, packed = ordering.tiling, ordering.cells, ordering.packed
        for tile, begin, end in zip(ordering.tile, ordering.begin, ordering.end, strict=True):
            low, nodes, origin = box_of_task(tiling, cells, packed, tile, begin, end - 1)
            whole_low, whole = box_of(tiling, tile)
            local = packed[4 * begin + 3 : 4 * end : 4] - origin
            place = np.stack([local >> 20, local >> 10 & 1023, local & 1023])
            assert (place >= 0).all()
            assert (place.max(1) + tiling.support <= nodes).all()
            first = np.array([origin >> 20, origin >> 10 & 1023, origin & 1023])
            assert (np.array(whole_low) + first == low).all()
            assert (first + nodes <= whole).all()


@pytest.mark.parametrize("shape", [(128,) * 3, (40, 36, 70), (72, 24, 48), (17, 200, 200), (9, 6, 13)], ids=str)
@pytest.mark.parametrize("wraps", [True, False])
def test_tasks_wait_only_for_tasks_before_them(shape, wraps):
    """Tiles that overlap are listed in the order of their groups; otherwise two threads could wait for each other."""
    tiling = tiling_of(axes_of(pm.Mesh(shape, pm.Box((1.0,) * 3, periodic=(wraps,) * 3)), pm.bspline(4)))
    tiles, counts = int(np.prod(tiling.tiles)), np.random.default_rng(0).integers(0, 3 * CHUNK, np.prod(tiling.tiles))
    start = np.concatenate([[0], np.cumsum(counts), [counts.sum()]])
    tile, begin, end = (np.empty(tiles * 4, np.int64) for _ in range(3))
    ready = np.empty((tiles, 2), np.int64)
    tasks = list_tasks(tiling, CHUNK, start, tile, begin, end, ready)
    assert ready[:, 1].sum() == tasks
    np.testing.assert_array_equal(np.bincount(tile[:tasks], end[:tasks] - begin[:tasks], tiles), counts)
    together = slabs_together(tiling)
    corner = np.stack(np.unravel_index(np.arange(tiles), tiling.tiles), 1)
    group = np.array([group_of(*c, together) for c in corner])
    chunk = (begin[:tasks] - start[tile[:tasks]]) // CHUNK
    place = {key: k for k, key in enumerate(zip(tile[:tasks].tolist(), chunk.tolist(), strict=True))}
    for this, step in itertools.product(range(tiles), itertools.product((-1, 0, 1), repeat=3)):
        other = corner[this] + step
        if wraps:
            other %= tiling.tiles
        if (other < 0).any() or (other >= tiling.tiles).any():
            continue
        other = int(np.ravel_multi_index(other, tiling.tiles))
        if group[other] < group[this] and counts[this] and counts[other]:
            assert place[other, ready[other, 1] - 1] < place[this, 0]
        elif group[other] == group[this]:
            for n in range(min(ready[this, 1], ready[other, 1])):
                assert other >= this or place[other, n] < place[this, n]
                assert n == 0 or place[other, n - 1] < place[this, n]


def test_many_equal_tiles_are_not_crowded():
    rng = np.random.default_rng(3)
    plan = pm.Plan(pm.Mesh((64, 128, 128), (1.0,) * 3), "cic", method="colouring").set_positions(
        rng.random((300 * CHUNK, 3), np.float32)
    )
    ordering = plan.workspace.particles.ordering
    assert (ordering.ready[:, 1] > 1).all()
    _, crowded, limit = ordering.claims
    assert crowded == 0
    assert limit > ordering.ready[:, 1].max()


@pytest.mark.parametrize("method", ["colouring", "fixed_point"])
def test_particles_in_a_wrong_cell_damage_no_other_memory(many_threads, method):
    """They come there if another thread of the caller writes to positions while these are placed."""
    mesh, x = pm.Mesh((40, 36, 70), (1.0,) * 3), cluster(MESHES["cube"], 5 * CHUNK)
    for threads in (1, 16):
        plan = pm.Plan(mesh, pm.bspline(6), dtype="float64", threads=threads, method=method).set_positions(x)
        ordering = plan.workspace.particles.ordering
        records = ordering.records.reshape(-1, 4)
        records[:] = records[np.random.default_rng(0).permutation(len(records))]
        outside = 0
        for tile, begin, end in zip(ordering.tile, ordering.begin, ordering.end, strict=True):
            _, nodes, origin = box_of_task(ordering.tiling, ordering.cells, ordering.packed, tile, begin, end - 1)
            local = ordering.packed[4 * begin + 3 : 4 * end : 4] - origin
            place = np.stack([local >> 20, local >> 10 & 1023, local & 1023])
            outside += int(((place < 0) | (place + 6 > np.array(nodes)[:, None])).any())
        assert outside  # without a limit they would write there
        field = plan.spread(np.ones(len(x)))
        assert np.isfinite(field).all()
        plan.value_and_gradient(field)  # what is read beside a box is any number
