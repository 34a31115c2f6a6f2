# SPDX-License-Identifier: BSD-3-Clause
"""Cuts of a mesh, owners, and messages that both sides describe alike: pure functions, without any rank."""

import math
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import particlemesh as pm
from particlemesh.distributed import Domain
from particlemesh.distributed.domain import _cut_once, cut_by_particles
from particlemesh.distributed.windows import Crops, copies, mesh_of, reach_of
from ranks import on_threads


def by_particles(domain, cells, particle=1.0, node=0.0):
    return cut_by_particles(domain, cells, lambda counts: counts, particle, node)


@st.composite
def domains(draw):
    ndim = draw(st.integers(1, 3))
    shape = draw(st.lists(st.integers(2, 9), min_size=ndim, max_size=ndim))
    periodic = draw(st.lists(st.booleans(), min_size=ndim, max_size=ndim))
    mesh = pm.Mesh(shape, pm.Box((1.0,) * ndim, periodic=periodic))
    size, per_rank = draw(st.sampled_from([1, 2, 3, 4, 5, 7, 12])), draw(st.integers(1, 3))
    kind = draw(st.sampled_from(["blocks", "slabs", "bisection", "balanced", "particles", "pencils"][: 5 + (ndim > 1)]))
    domain = Domain(mesh, size, "blocks" if kind in ("balanced", "particles") else kind, per_rank)
    if kind == "particles":
        rng = np.random.default_rng(draw(st.integers(0, 9)))
        cells = [rng.integers(-n, 2 * n, 50) // draw(st.sampled_from([1, 2, 5])) for n in shape]
        domain = by_particles(domain, cells, node=draw(st.sampled_from([0.0, 0.1])))
    if kind == "balanced":
        rng = np.random.default_rng(draw(st.integers(0, 9)))
        counts = rng.poisson(0.7, [draw(st.integers(1, n)) for n in shape])
        domain = domain.balanced(counts, node=draw(st.sampled_from([0.0, 0.1])))
    return domain


def nodes_of(mesh):
    return np.stack(np.meshgrid(*map(np.arange, mesh.shape), indexing="ij"), -1).reshape(-1, mesh.ndim)


@settings(max_examples=60, deadline=None)
@given(domains())
def test_each_node_has_one_owner(domain):
    mesh = domain.mesh
    owners = np.full(mesh.shape, -1)
    for index, part in enumerate(domain.parts()):
        inside = tuple(slice(a, b) for a, b in zip(part.lower, part.upper, strict=True))
        assert (owners[inside] == -1).all()
        owners[inside] = index
    assert (owners >= 0).all()
    cells = nodes_of(mesh)
    assert np.array_equal(domain.part_of(cells), owners.reshape(-1))
    assert np.array_equal(domain.owner(cells), owners.reshape(-1) // domain.per_rank)
    # Cells beyond the ends are those of images, or of the nearest node.
    beyond = cells + np.array(mesh.shape)
    inside = np.where(mesh.periodic, cells, np.array(mesh.shape) - 1)
    assert np.array_equal(domain.owner(beyond), domain.owner(inside))
    assert sum(part.size for part in domain.parts()) == mesh.size
    assert sum(map(domain.parts, range(domain.size)), ()) == domain.parts()
    assert pickle.loads(pickle.dumps(domain)) == domain


@settings(max_examples=60, deadline=None)
@given(domains(), st.data())
def test_messages_match_from_both_sides(domain, data):
    width = st.tuples(st.integers(0, 6), st.integers(0, 6))
    reach = data.draw(st.none() | st.lists(width, min_size=domain.mesh.ndim, max_size=domain.mesh.ndim))
    messages = [domain.messages(rank, reach) for rank in range(domain.size)]
    start, shape = domain.windows(reach)
    windows = 1 if reach is None else domain.per_rank
    nodes = np.array(domain.mesh.shape)
    for rank, (held, owned) in enumerate(messages):
        assert {s: messages[s].owned.get(rank) for s in held} == held
        assert {s: messages[s].held.get(rank) for s in owned} == owned
        for holder in range(rank * windows, (rank + 1) * windows):
            count = np.zeros(shape[holder], int)
            for pieces in held.values():
                for piece in pieces:
                    if piece.holder == holder:
                        count[piece.in_window()] += 1
                        assert not ((np.array(piece.lower) - start[holder] - piece.at) % nodes).any()
                        owner = domain.parts()[piece.owner]
                        assert np.empty(owner.shape)[piece.in_part(owner)].shape == piece.shape
            # A window holds every node of the mesh that it covers once, and nothing beyond an open face.
            exists = np.ones(shape[holder], bool)
            for axis, (first, length) in enumerate(zip(start[holder], shape[holder], strict=True)):
                if not domain.mesh.periodic[axis]:
                    place = first + np.arange(length)
                    on = ((place >= 0) & (place < nodes[axis])).reshape(
                        [-1 if a == axis else 1 for a in range(nodes.size)]
                    )
                    exists = exists & on
            assert np.array_equal(count, exists.astype(int))


@settings(max_examples=60, deadline=None)
@given(domains(), st.integers(1, 8))
def test_copies_go_where_stencils_reach(domain, support):
    mesh, cells = domain.mesh, nodes_of(domain.mesh)
    columns = tuple(cells.T)
    parts = domain.part_of(columns)
    goals, particles = copies(domain, columns, parts, support)
    got = set(zip(particles.tolist(), goals.tolist(), strict=True))
    assert len(got) == len(goals)
    expected = set()
    for n, cell in enumerate(cells):
        axes = []
        for axis, nodes in enumerate(mesh.shape):
            stencil = cell[axis] - (support - 1) // 2 + np.arange(support)
            axes.append(stencil % nodes if mesh.periodic[axis] else stencil[(stencil >= 0) & (stencil < nodes)])
        reached = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, mesh.ndim)
        expected |= {(n, part) for part in np.unique(domain.part_of(reached)).tolist()}
    assert got == expected


def test_windows_of_plans():
    domain = Domain(pm.Mesh((12, 5), pm.Box((1.0, 1.0), periodic=(True, False))), 3, "slabs")
    start, shape = domain.windows(reach_of(4, 2))
    assert start.tolist() == [[-1, 0], [3, 0], [7, 0]]  # the open axis is not cut
    assert shape.tolist() == [[7, 5]] * 3
    part = domain.parts(1)[0]
    mesh = mesh_of(domain.mesh, part, tuple(start[1]), tuple(shape[1]))
    assert mesh == domain.mesh.part((4, 0), (8, 5), ((1, 2), 0))
    wide, _ = domain.windows([(5, 4), (0, 0)])
    assert wide[:, 0].tolist() == [0, 0, 0]  # ghosts meet: all nodes once

    class One:
        rank = 1

    assert Crops(domain, One, 4).shapes == [(4, 5)]
    assert Crops(domain, One, 10).shapes == [(12, 5)]


@pytest.mark.parametrize(
    ("parts", "size", "grid"),
    [("slabs", 4, (4, 1, 1)), ("pencils", 16, (4, 4, 1)), ("blocks", 64, (4, 4, 4)), ((1, 3, 2), 6, (1, 3, 2))],
)
def test_regular_cuts(parts, size, grid):
    domain = Domain(pm.Mesh((16, 16, 16), (1.0,) * 3), size, parts)
    firsts = [sorted({part.lower[axis] for part in domain.parts()}) for axis in range(3)]
    assert tuple(map(len, firsts)) == grid
    assert domain.parts() == tuple(sorted(domain.parts()))  # ranks in the order of memory


def test_blocks_leave_long_axes_long():
    assert [p.shape for p in Domain(pm.Mesh((100, 10), (1.0, 1.0)), 5).parts()] == [(20, 10)] * 5
    several = Domain(pm.Mesh((8, 8), (1.0, 1.0)), 2, per_rank=4)
    assert {p.upper[0] <= 4 for p in several.parts(0)} == {True}  # a rank's parts lie together


@pytest.mark.parametrize("size", [2, 4, 7])
def test_bisection_balances_clusters(size):
    rng = np.random.default_rng(1)
    cells = np.clip(rng.normal([20, 40, 30], 4, (20_000, 3)), 0, 63).astype(int)
    counts = np.zeros((64, 64, 64))
    np.add.at(counts, tuple(cells.T), 1)
    domain = Domain(pm.Mesh((64, 64, 64), (1.0,) * 3), size)
    held = np.bincount(domain.balanced(counts).owner(cells), minlength=size)
    assert held.max() * size / len(cells) < 1.12
    coarse = counts.reshape(16, 4, 16, 4, 16, 4).sum((1, 3, 5))
    held = np.bincount(domain.balanced(coarse).owner(cells), minlength=size)
    assert held.max() * size / len(cells) < 1.4
    # With nodes as heavy as particles the cuts move towards even ones.
    even = domain.balanced(counts, node=1e6)
    assert max(p.size for p in even.parts()) * size / 64**3 < 1.07
    assert domain.balanced(np.zeros((4, 4, 4))).parts() == Domain(domain.mesh, size, "bisection").parts()


@pytest.mark.parametrize("size", [1, 2, 7, 64, 100, 1000])
@pytest.mark.parametrize("spread", [2, 6])
def test_the_fullest_part_holds_hardly_more_than_the_mean_and_the_fullest_node(size, spread):
    rng = np.random.default_rng(size)
    centres, clump = rng.integers(0, 128, (40, 3)), rng.integers(0, 40, 150_000) * rng.integers(0, 2, 150_000)
    cells = (centres[clump] + spread * rng.standard_normal((len(clump), 3))).astype(np.int64) % 128
    nodes, mean = np.bincount(np.ravel_multi_index(tuple(cells.T), (128,) * 3)), len(cells) / size
    domain = by_particles(Domain(pm.Mesh((128,) * 3, (1.0,) * 3), size), tuple(cells.T))
    assert np.bincount(domain.owner(cells)).max() <= 1.2 * mean + nodes.max()
    # Nodes as heavy as all particles: as without particles.
    even = by_particles(domain, tuple(cells.T), particle=0.0, node=1.0)
    assert even.parts() == by_particles(domain, (np.zeros(0, np.int64),) * 3).parts()
    assert max(part.size for part in even.parts()) * size / 128**3 < 1.1


def test_more_ranks_than_nodes_leave_some_without():
    for parts in ("blocks", "slabs", "bisection"):
        sizes = [math.prod(p.shape) for p in Domain(pm.Mesh((2, 3), (1.0, 1.0)), 7, parts).parts()]
        assert sum(sizes) == 6
        assert 0 in sizes


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (dict(mesh=3), TypeError, "give a particlemesh.Mesh"),
        (dict(mesh=pm.Mesh(8, 1.0, ghosts=1)), ValueError, "give one without"),
        (dict(size=0), ValueError, "size is 0"),
        (dict(parts="cubes"), ValueError, "parts is 'cubes'"),
        (dict(parts=(2, 3)), ValueError, "whose product is 4"),
        (dict(parts=2.5), TypeError, "ranks along each axis"),
        (dict(per_rank=0), ValueError, "per_rank is 0"),
        (dict(mesh=pm.Mesh(8, 1.0), parts="pencils"), ValueError, "give 'slabs'"),
    ],
)
def test_errors(arguments, error, message):
    with pytest.raises(error, match=message):
        Domain(**(dict(mesh=pm.Mesh((8, 8), (1.0, 1.0)), size=4) | arguments))


def test_errors_of_methods():
    domain = Domain(pm.Mesh((8, 8), (1.0, 1.0)), 4)
    for counts, message in ((np.ones(8), "give 1 to K boxes"), (-np.ones((2, 2)), "negative")):
        with pytest.raises(ValueError, match=message):
            domain.balanced(counts)
    with pytest.raises(ValueError, match="integers \\(N, 2\\)"):
        domain.owner([1, 2, 3])
    with pytest.raises(ValueError, match="rank is 4"):
        domain.parts(4)
    assert "4 ranks: 2x8" in repr(domain)


@pytest.mark.parametrize(("seed", "parts", "over"), [(2, 48, 1.0), (3, 48, 1.0), (5, 48, 1.2), (5, 96, 1.0)])
def test_rounds_bring_the_heaviest_part_of_clusters_near_to_the_densest_node(seed, parts, over):
    """Nothing cuts a node: its particles over the mean of a part bound the heaviest from below."""
    rng, count, shape = np.random.default_rng(seed), 40_000, (64,) * 3
    masses = rng.pareto(1.0, 60) + 1
    cluster = rng.choice(60, count, p=masses / masses.sum())
    x = rng.random((60, 3))[cluster]
    x = x + 0.02 * rng.standard_normal((count, 3)) * rng.pareto(2.5, count)[:, None]
    cells = tuple(np.ascontiguousarray(axis) for axis in (x % 1 * 64).astype(np.int64).T % 64)
    densest = np.unique(np.ravel_multi_index(cells, shape), return_counts=True)[1].max()
    domain = Domain(pm.Mesh(shape, (1.0,) * 3), parts)

    def held(made):
        return np.bincount(made.part_of(cells), minlength=parts)

    once = _cut_once(domain, cells, None, lambda counts: counts, 1.0, 0.0)
    best = by_particles(domain, cells)
    assert held(best).sum() == count and sum(part.size for part in best.parts()) == 64**3
    assert densest <= held(best).max() < held(once).max()
    assert held(best).max() <= over * max(densest, count / parts)

    def on_rank(world):
        mine = tuple(axis[world.rank :: world.size] for axis in cells)
        return cut_by_particles(domain, mine, lambda counts: world.allreduce(counts.astype(np.int64)), 1.0, 0.0)

    assert on_threads(3, on_rank) == [best] * 3
