# SPDX-License-Identifier: BSD-3-Clause
"""Sums and lists by clusters, where a warp has several particles, against searches of single particles."""

import dataclasses

import numpy as np
import pytest

import particlemesh as pm
from devices import Device
from grid_cases import CASES, Case, all_pairs, rounding
from particlemesh.backends import cuda
from particlemesh.grid.queries import clusters
from particlemesh.grid.queries import sums as sums_of_pairs
from particlemesh.grid.queries.search import Question
from particlemesh.sorting.keys import Cells
from ptx import case as case_for_nvrtc
from ptx import kernels_of

pytestmark = pytest.mark.backends("opencl", "cuda")
SOURCE = """
const real root = sqrt(r2);
sum[0] += 1;
sum[1] += b[1] * root;
for (int axis = 0; axis < 3; axis++) sum[2 + axis] += (a[0] + b[0]) * d[axis];
if (i == j) { sum[5] += p[0]; return; }
sum[5] += (real)(i - 2 * j) * r2;
"""
FUNCTION = pm.PairFunction(SOURCE, None, 6, 2, (3.0,))
COINCIDENT = pm.PairFunction("if (!(r2 > 0)) sum[0] += 1;", None, 1)


def by(monkeypatch, members, grid, radius, function, *values, half=False):
    """The sums by clusters of so many members, or of each particle alone (0); with half pairs are computed once."""
    with monkeypatch.context() as patch:
        patch.setattr(sums_of_pairs, "members_of", lambda *_: members)
        patch.setattr(sums_of_pairs, "in_halves", lambda *_: half)
        return grid.stream(radius, function, *values)


def check(backend, monkeypatch, grid, radius, members, values):
    """Compare the sums by clusters with those of single searches, pair by pair; return the numbers of neighbours."""
    given = backend.array(values)
    ours, again, single = (
        backend.host(by(monkeypatch, n, grid, radius, FUNCTION, given)) for n in (members, members, 0)
    )
    np.testing.assert_array_equal(ours, again)
    size = np.abs(single).max(initial=1e-30)
    halves = backend.host(by(monkeypatch, members, grid, radius, FUNCTION, given, half=True))
    for sums in (ours, halves):
        np.testing.assert_array_equal(sums[:, 0], single[:, 0])
        np.testing.assert_allclose(sums, single, rtol=0, atol=64 * np.finfo(ours.dtype).eps * size)
    return ours[:, 0]


def values_of(x):
    return np.random.default_rng(16).normal(size=(len(x), 2)).astype(x.dtype)


@pytest.mark.turns(8)
@pytest.mark.parametrize("members", [8, 4])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_clusters_see_the_neighbours_of_each_member(backend, monkeypatch, case, members):
    box, x = case.domain, case.positions
    thickness = 1 / np.linalg.norm(box.inverse, axis=1)
    with case.grid(deterministic=True) as grid:
        grid.build(backend.array(x))
        for radius in (0.12, 0.45, 0.51 * thickness.min(), 0.97 * thickness.min()):
            neighbours = check(backend, monkeypatch, grid, radius, members, values_of(x))
            band, oracle = rounding(box, x, radius), all_pairs(box, x, radius)
            sure, possible = (
                np.bincount(oracle.i[oracle.distance <= radius + b], minlength=len(x)) for b in (-band, band)
            )
            assert (sure <= neighbours).all() and (neighbours <= possible).all()
        for half in (False, True):
            touching = backend.host(by(monkeypatch, members, grid, 0.0, COINCIDENT, half=half))
            assert touching.sum() == backend.host(grid.count(0.0)).sum()


def lists_of(backend, monkeypatch, members, grid, radius, *, counted=True, **options):
    """Where rows begin, and pairs as sorted rows of i, j, S, d, D, by clusters of so many members or without (0).

    With ``counted`` they also count the pairs of rows.
    """
    with monkeypatch.context() as patch:
        patch.setattr(clusters, "members_of", lambda *_: members)
        patch.setattr(Question, "counts_by_clusters", counted)
        pairs = grid.pairs(radius, quantities="ijSdD", **options)
        counts = backend.host(grid.count(radius, order=options["order"]))
    i, j, shift, d, vector = (backend.host(a) for a in (pairs.i, pairs.j, pairs.shift, pairs.distance, pairs.vector))
    table = np.column_stack([i, j, shift, d, vector]).astype(np.float64)
    start = None if pairs.start is None else backend.host(pairs.start)
    return start, table[np.lexsort(table.T[::-1])], counts


@pytest.mark.turns(8)
@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_lists_by_clusters_have_the_pairs_of_single_searches(backend, monkeypatch, case, half):
    thickness = 1 / np.linalg.norm(case.domain.inverse, axis=1)
    with case.grid(deterministic=True) as grid:
        grid.build(backend.array(case.positions))
        for radius in (0.3, 0.97 * thickness.min()):
            for form, order in (("csr", "input"), ("csr", "grid"), ("coo", "input"), ("coo", "grid")):
                options = dict(half=half, format=form, order=order)
                single = lists_of(backend, monkeypatch, 0, grid, radius, **options)
                for counted in (True, False):
                    ours = lists_of(backend, monkeypatch, 8, grid, radius, counted=counted, **options)
                    for mine, right in zip(ours, single, strict=True):
                        np.testing.assert_array_equal(mine, right)
        pairs = len(ours[1])
        with monkeypatch.context() as patch:  # room for fewer pairs is never left
            patch.setattr(clusters, "members_of", lambda *_: 8)
            small = grid.pairs(radius, check=False, capacity=pairs // 2, **options)
            assert len(small.j) == pairs // 2
            with pytest.raises(OverflowError, match=f"there are {pairs:,} pairs and room for {pairs // 2:,}"):
                grid.check()


@pytest.mark.turns(3)
@pytest.mark.parametrize("real", ["f4", "f8"])
@pytest.mark.parametrize("count", [0, 1, 2, 7, 9, 33])
def test_few_particles_make_clusters_that_are_not_full(backend, monkeypatch, count, real):
    x = np.random.default_rng(count).random((count, 3)).astype(real)
    with pm.UniformGrid((1.0, 1.0, 1.0), shape=(2, 2, 9), deterministic=True) as grid:
        grid.build(backend.array(x))
        for radius in (0.3, 0.7):
            neighbours = check(backend, monkeypatch, grid, radius, 8, values_of(x))
            np.testing.assert_array_equal(neighbours, backend.host(grid.count(radius)))


@pytest.mark.turns(2)
@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 3, 40), (12, 12, 3)], ids=str)
@pytest.mark.parametrize("periodic", [True, False])
def test_many_candidates_and_clusters_far_apart(backend, monkeypatch, shape, periodic):
    """A clump has more candidates in 32 columns than their bits have room for; a cluster's members may be far apart."""
    rng = np.random.default_rng(5)
    clump = np.concatenate([0.02 * rng.normal(size=(1500, 3)) + 0.5, rng.random((300, 3))])
    x = np.ascontiguousarray(rng.permutation(clump % 1), "f4")
    with pm.UniformGrid((1.0, 1.0, 1.0), shape=shape, periodic=periodic, deterministic=True) as grid:
        grid.build(backend.array(x))
        for radius in (0.03, 0.2):
            check(backend, monkeypatch, grid, radius, 8, values_of(x))


@pytest.mark.parametrize("real", ["f4", "f8"])
def test_clusters_end_with_their_system(backend, monkeypatch, real):
    rng, systems = np.random.default_rng(3), 7
    boxes = rng.uniform(0.8, 1.6, (systems, 1, 1)) * (np.eye(3) + 0.1 * rng.normal(size=(systems, 3, 3)))
    system = rng.permutation(np.repeat(np.arange(systems), [3, 40, 0, 9, 61, 1, 30]))
    x = np.einsum("na,nab->nb", rng.random((len(system), 3)), boxes[system]).astype(real)
    periodic = (True, False, True)
    with pm.UniformGrid(np.eye(3), shape=(3, 3, 6), periodic=periodic, systems=systems, deterministic=True) as grid:
        grid.build(backend.array(x), system=backend.array(system.astype(np.int32)), boxes=boxes)
        neighbours = check(backend, monkeypatch, grid, 0.4, 8, values_of(x))
        for half in (False, True):
            ours, single = (
                lists_of(backend, monkeypatch, n, grid, 0.4, half=half, format="csr", order="input") for n in (8, 0)
            )
            for mine, right in zip(ours, single, strict=True):
                np.testing.assert_array_equal(mine, right)
    for s in range(systems):
        inside = np.flatnonzero(system == s)
        with pm.UniformGrid(pm.Box(boxes[s], periodic=periodic), shape=(3, 3, 6)) as alone:
            np.testing.assert_array_equal(neighbours[inside], alone.build(x[inside]).count(0.4))


def test_particles_that_are_left_out_have_no_sums_and_are_no_neighbours(backend, monkeypatch):
    x = np.random.default_rng(8).random((90, 3))
    x[::7] = np.nan
    with pm.UniformGrid((1.0, 1.0, 1.0), shape=(3, 3, 9), deterministic=True) as grid:
        grid.build(backend.array(x), check=False)
        neighbours = check(backend, monkeypatch, grid, 0.3, 8, values_of(x))
        assert not neighbours[::7].any() and neighbours.any()


@pytest.mark.opencl
def test_what_clusters_do_not_serve_is_searched_for_alone():
    class Warps:
        group_size, units = 128, 8

        def facts(self):
            return {"HAS_WARP": 1}

    def members(radius=0.3, function=FUNCTION, count=20_000, **options):
        with pm.UniformGrid((1.0, 1.0, 1.0), backend="opencl", **{"shape": (4, 4, 8), **options}) as grid:
            grid.build(Device.of("opencl").array(np.random.default_rng(1).random((count, 3)).astype("f4")))
            cloud = grid._built.cloud
            cloud.backend = Warps()
            return sums_of_pairs.members_of(cloud, radius, function)

    assert members() == 8
    assert members(function=pm.PairFunction("sum[0] = fmax(sum[0], r2);", None, 6, 2)) == 0
    assert members(function=pm.PairFunction("sum[0] += r2;", None, 64)) == 0
    assert members(radius=1.0) == 0
    assert members(radius=1.0, periodic=False) == 8
    assert members(radius=1e300, periodic=False) == 8
    assert members(radius=0.02) == 0  # few neighbours
    assert members(count=4000) == 4  # few for the device
    assert members(count=60) == 0
    assert members(levels=2) == 0
    cells = Cells(pm.Box((1.0, 1.0, 1.0)), (2**14, 2**14, 1), 1, 1.0, np.dtype("f4"))
    assert clusters.near_of(cells, 0.3) == 0  # too many columns to count
    assert clusters.near_of(dataclasses.replace(cells, shape=(2**6, 2**6, 1)), 0.3) == pytest.approx(0.036 * np.pi)
    assert members(method="sort", curve="morton") == 0


@pytest.mark.parametrize(("members", "real"), [case_for_nvrtc(8, "f4", id="eight"), case_for_nvrtc(4, "f8", id="four")])
def test_sums_by_clusters_compile_for_cuda(monkeypatch, members, real):
    case = Case("periodic", (4, 3, 5), "uniform", 130, real)
    opencl = Device.of("opencl")
    with case.grid() as grid:
        grid.build(opencl.array(case.positions))
        values = opencl.array(values_of(case.positions))

        def sums():
            for half in (False, True):
                by(monkeypatch, members, grid, 0.4, FUNCTION, values, half=half)

        asked = kernels_of(monkeypatch, sums)
    asked = {(name, defines) for file, name, defines in asked if file.endswith("cluster_sums.c")}
    assert [name for name, _ in sorted(asked)] == ["stream", "stream", "write_rows"]
    for name, defines in asked:
        for systems in ({}, {"SYSTEMS": 1}):
            defines = dict(defines) | systems
            code = cuda.compile_only("grid/queries/cluster_sums.c", defines, 90, {"pair function": SOURCE})
            assert name.encode() in code
    for half in (False, True):
        with case.grid() as grid:
            grid.build(opencl.array(case.positions))
            options = dict(half=half, format="csr", order="input")
            asked = kernels_of(monkeypatch, lambda: lists_of(opencl, monkeypatch, members, grid, 0.4, **options))  # noqa: B023
        names = {(name, defines) for file, name, defines in asked if file.endswith("cluster_pairs.c")}
        assert {name for name, _ in names} == {"count_pairs", "list_pairs", "name_rows"}
        for name, defines in names:
            assert name.encode() in cuda.compile_only("grid/queries/cluster_pairs.c", dict(defines), 90)
