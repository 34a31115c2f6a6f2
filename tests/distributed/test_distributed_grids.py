# SPDX-License-Identifier: BSD-3-Clause
"""Grids over ranks find what one grid finds: each pair once, on one rank."""

import threading
from types import SimpleNamespace

import numpy as np
import pytest

import particlemesh as pm
from particlemesh.distributed import Domain, RankError, UniformGrid, World, survey
from particlemesh.distributed.grids import _carry, _columns
from particlemesh.distributed.surroundings import Surroundings, upward
from ranks import on_threads

RIGHT, TILTED = (3.0, 2.0, 4.0), [[3, 0, 0], [0.9, 2, 0], [-0.7, 0.6, 4]]


def case(box, nodes, cuts, count=240, radius=0.45, periodic=True, dtype="f8", offset=0.0, seed=3, spill=True):
    box = pm.Box(box, periodic=periodic)
    mesh = pm.Mesh(nodes, box, offset=offset)
    rng = np.random.default_rng(seed)
    fractions = rng.random((count, box.ndim))
    fractions[: count // 4] = rng.integers(0, 5, (count // 4, box.ndim)) / 4  # on faces, edges, corners and on x = L
    if spill:
        fractions += np.where(box.periodic, rng.integers(-1, 2, fractions.shape), 0)
    positions = (fractions @ box.matrix + box.origin).astype(dtype)
    if box.orthorhombic:  # exactly on the far face where it is open
        positions = np.where(box.periodic, positions, np.minimum(positions, box.lengths.astype(dtype)))
    return SimpleNamespace(mesh=mesh, box=box, x=positions, cuts=cuts, radius=radius)


CASES = {
    "blocks": case(RIGHT, (12, 8, 16), {}),
    "float32": case(RIGHT, (12, 8, 16), {}, dtype="f4", radius=0.4321),
    "triclinic": case(TILTED, (9, 7, 10), dict(parts="pencils")),
    "open": case(RIGHT, (7, 6, 9), {}, periodic=False),
    "mixed": case(RIGHT, (7, 6, 9), dict(parts="slabs"), periodic=(False, True, True), offset=0.5),
    "bisection": case(RIGHT, (12, 8, 16), dict(parts="bisection", per_rank=3)),
    "scattered": case(RIGHT, (12, 8, 16), dict(per_rank=2)),
    "plane": case((3.0, 2.0), (5, 7), {}, radius=0.3),
    "line": case((3.0,), (11,), {}, radius=0.1),
    "far": case((1.0, 1.5, 1.0), (4, 4, 4), {}, count=40, radius=1.1),
    "narrow": case((1.0, 1.0), (9, 2), dict(parts="slabs"), count=60, radius=0.3),
    "few nodes": case((3.0, 2.0), (2, 1), {}, radius=0.3),
}


def dealt(x, rank, size):
    """Return a rank's share, which has nothing to do with the domain; the last of several ranks has none."""
    shares = np.array_split(x, max(size - 1, 1))
    return shares[rank] if rank < len(shares) else x[:0]


def half_of(i, j, shift):
    """Return the one of both sides that names a pair: the smaller number first, or the first positive shift."""
    flip = (i > j) | ((i == j) & ~np.array([upward(tuple(s)) for s in shift], bool))
    shift = np.where(flip[:, None], -shift, shift)
    i, j = np.where(flip, j, i), np.where(flip, i, j)
    return {(int(a), int(b), *map(int, s)) for a, b, s in zip(i, j, shift, strict=True)}


@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize("name", CASES)
def test_pairs_are_those_of_one_grid_each_once(name, size):
    c = CASES[name]
    domain = Domain(c.mesh, size, **c.cuts)
    i, j, shift = pm.neighbour_list("ijS", c.x, c.box, c.radius)
    assert len(i) > 10

    def work(world):
        grid = UniformGrid(domain, world, c.radius).build(dealt(c.x, world.rank, size))
        lists = [grid.pairs(half=half, format="coo", quantities="ijdDS") for half in (False, True)]
        assert all(np.isin(pairs.i, grid.numbers).all() for pairs in lists), "a rank owns the first of each pair"
        assert (np.diff(grid.numbers) > 0).all() and grid.positions.tobytes() == c.x[grid.numbers].tobytes()
        return lists, grid.numbers, grid.count()

    results = on_threads(size, work)
    assert sorted(np.concatenate([numbers for _, numbers, _ in results])) == list(range(len(c.x)))
    full, once = ([lists[half] for lists, _, _ in results] for half in (0, 1))
    listed = [(int(a), int(b), *map(int, s)) for p in full for a, b, s in zip(p.i, p.j, p.shift, strict=True)]
    assert len(listed) == len(set(listed))
    assert set(listed) == {(int(a), int(b), *map(int, s)) for a, b, s in zip(i, j, shift, strict=True)}
    halves = [half_of(p.i, p.j, p.shift) for p in once]
    assert sum(len(p.i) for p in once) == sum(map(len, halves)) == len(set.union(*halves)) == len(i) // 2
    assert set.union(*halves) == half_of(i, j, shift)
    for p in full + once:
        vector = c.x[p.j] - c.x[p.i] + p.shift @ c.box.matrix
        np.testing.assert_allclose(p.vector, vector, atol=20 * np.finfo(c.x.dtype).eps * 4)
        np.testing.assert_allclose(p.distance, np.linalg.norm(p.vector, axis=1), rtol=1e-5)
    counts = np.concatenate([counts for _, _, counts in results])
    assert (counts == np.bincount(i, minlength=len(c.x))).all()


@pytest.mark.parametrize("format", ["csr", "dense"])
@pytest.mark.parametrize("order", ["input", "local"])
def test_forms_of_lists(format, order):
    c = CASES["blocks"]
    domain = Domain(c.mesh, 2)

    def work(world):
        grid = UniformGrid(domain, world, c.radius, cell_size=(0.45, 0.45, 0.15)).build(dealt(c.x, world.rank, 3))
        given = world.allgather(len(dealt(c.x, world.rank, 3)))
        assert sum(given) == len(c.x)
        smaller = grid.pairs(0.3, format=format, order=order)
        expected = pm.UniformGrid(c.box, cell_size=0.45).build(c.x).pairs(0.3)
        local = {int(n): grid.first + k for k, n in enumerate(grid.numbers)}
        for k, number in enumerate(grid.numbers):
            if format == "csr":
                row = smaller.j[smaller.start[k] : smaller.start[k + 1]]
            else:
                row = smaller.j[k, : smaller.count[k]]
                assert (smaller.j[k, smaller.count[k] :] == -1).all()
            exact = expected.j[expected.start[number] : expected.start[number + 1]]
            if order == "input":
                assert sorted(row) == sorted(exact)
            else:
                inner = [n for n in row if grid.first <= n < grid.first + len(grid.numbers)]
                assert sorted(inner) == sorted(local[n] for n in exact if n in local)
                assert len(row) == len(exact)
        return len(grid.numbers)

    assert sum(on_threads(2, work)) == len(c.x)


def attraction(r2, d, i, j, a, b, p, sum):
    sum[0] += b[0] * a[0] / (r2 + p[0])
    sum[1] += b[0] * d[2]


@pytest.mark.parametrize("name", ["blocks", "triclinic"])
def test_sums_over_pairs_are_those_of_one_grid(name):
    c = CASES[name]
    function = pm.PairFunction(None, attraction, results=2, values=1, parameters=[0.01])
    masses = np.random.default_rng(4).random(len(c.x))
    expected = pm.UniformGrid(c.box, cell_size=c.radius).build(c.x).stream(c.radius, function, masses)
    domain = Domain(c.mesh, 3, **c.cuts)

    def work(world):
        grid = UniformGrid(domain, world, c.radius).build(dealt(c.x, world.rank, 3))
        return grid.stream(None, function, dealt(masses, world.rank, 3))

    np.testing.assert_allclose(np.concatenate(on_threads(3, work)), expected, rtol=1e-12, atol=1e-12)


def test_builds_again_with_other_particles():
    c = CASES["blocks"]
    domain = Domain(c.mesh, 2)

    def work(world):
        grid = UniformGrid(domain, world, c.radius).build(dealt(c.x, world.rank, 2))
        first = grid.count()
        for x in (c.x[:0], c.x[:1], c.x.astype("f4")):
            grid.build(x if world.rank else x[:0])
            assert grid.count().shape == ((len(x) if world.rank else 0),)
            assert len(grid.pairs()) >= 0
        assert (grid.build(dealt(c.x, world.rank, 2)).count() == first).all()
        kept = grid.route.back(grid.route.send(dealt(c.x, world.rank, 2)))
        assert kept.tobytes() == dealt(c.x, world.rank, 2).tobytes()
        return first

    assert sum(map(len, on_threads(2, work))) == len(c.x)


def test_an_error_on_one_rank_is_one_on_all_and_the_grid_stays():
    c = CASES["open"]
    domain = Domain(c.mesh, 2)
    function = pm.PairFunction(None, attraction, results=2, values=1, parameters=[0.01])

    def work(world):
        grid, x = UniformGrid(domain, world, c.radius).build(dealt(c.x, world.rank, 3)), dealt(c.x, world.rank, 3)
        before = grid.count()
        outside, broken = x.copy(), x.copy()
        outside[5, 1], broken[7, 0] = -0.5, np.nan
        calls = [
            (lambda: grid.build(outside if world.rank else x), ValueError, "particle 5 of .*open axis 1"),
            (lambda: grid.build(broken if world.rank else x), ValueError, "particle 7 of .*finite"),
            (lambda: grid.build(x[:, :2] if world.rank else x), ValueError, "in 3-D"),
            (lambda: grid.build(x.astype(complex) if world.rank else x), TypeError, "complex|dtype"),
            (lambda: grid.count(9.0 if world.rank else None), ValueError, "ghosts within"),
            (lambda: grid.stream(None, function, x if world.rank else x[:, 0]), ValueError, "values has shape"),
            (lambda: grid.stream(None, "sum" if world.rank else function, x[:, 0]), TypeError, "PairFunction"),
        ]
        for call, kind, message in calls:
            with pytest.raises(kind if world.rank else RankError, match=message):
                call()
            assert (grid.count() == before).all()
        with pytest.raises(RankError, match="float"):
            grid.build(x.astype("f4") if world.rank else x)
        return True

    assert on_threads(2, work) == [True, True]


def test_errors_of_one_rank():
    domain = Domain(CASES["line"].mesh, 1)
    grid = UniformGrid(domain, World(), 0.1)
    with pytest.raises(RuntimeError, match="empty"):
        grid.pairs()
    with pytest.raises(ValueError, match="cut for 2 ranks"):
        UniformGrid(Domain(CASES["line"].mesh, 2), World(), 0.1)
    with pytest.raises(ValueError, match="radius"):
        UniformGrid(domain, World(), -1.0)
    with pytest.raises(TypeError, match="systems"):
        UniformGrid(domain, World(), 0.1, systems=2)
    grid.build(np.array([0.2, 0.25]))
    for wrong, message in [
        (dict(order="grid"), "order"),
        (dict(format="list"), "format"),
        (dict(radius=0.2), "ghosts"),
    ]:
        with pytest.raises(ValueError, match=message):
            grid.pairs(**wrong)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("size", [2, 5, 8])
def test_neighbours_see_each_other_without_messages(name, size):
    """If a rank sends by an image, the other sends back by the opposite one, and one of both ghosts is above."""
    c = CASES[name]
    around = [Surroundings(Domain(c.mesh, size, **c.cuts), rank, c.radius, c.x.dtype) for rank in range(size)]
    for one in around:
        for rank, image in one.neighbours:
            opposite = tuple(-n for n in image)
            assert (one.rank, opposite) in around[rank].neighbours
            ups = [upward(image) or (not any(image) and one.rank > rank),
                   upward(opposite) or (not any(image) and rank > one.rank)]  # fmt: skip
            assert sum(ups) == 1


@pytest.mark.parametrize("stage", ["place", "seen", "build"])
def test_a_rank_without_memory_stops_all(stage):
    c = CASES["plane"]
    domain = Domain(c.mesh, 2)

    def work(world):
        grid = UniformGrid(domain, world, c.radius).build(dealt(c.x, world.rank, 3))
        (local,) = grid._grids.values()
        victim = local.grid if stage == "build" else local.around

        def fail(*arguments):
            raise MemoryError("no room")

        if world.rank == 1:
            vars(victim)[stage] = fail
        with pytest.raises(MemoryError if world.rank == 1 else RankError, match="no room"):
            grid.build(dealt(c.x, world.rank, 3))
        if world.rank == 1:
            del vars(victim)[stage]
        if stage == "build":  # some ranks have new particles and one has none
            with pytest.raises(RuntimeError, match="empty"):
                grid.pairs()
        else:
            assert len(grid.pairs()) > 0
        return len(grid.build(dealt(c.x, world.rank, 3)).numbers)

    assert sum(on_threads(2, work)) > 0


@pytest.mark.backends("opencl")
@pytest.mark.parametrize("name", [name for name in CASES if name not in ("far", "few nodes")])
def test_one_pass_on_a_gpu_is_the_survey_step_by_step(backend, name):
    """Owners, ghosts and where ghosts go: to the bit what NumPy finds, also of particles on faces and far away."""
    c = CASES[name]
    for rank in (0, 2):
        around = Surroundings(Domain(c.mesh, 3, **c.cuts), rank, c.radius, c.x.dtype)
        assert survey.Pass.serves(around)
        sweep, expected = survey.Pass(around, backend.library, c.x.dtype), survey.stepwise(around, c.x, np)
        listed = sweep.begin(backend.array(c.x), np)()
        assert (listed.home, listed.bad, listed.sizes) == (expected.home, 0, expected.sizes)
        assert np.array_equal(listed.rows, expected.rows)
        assert np.array_equal(listed.leaving.strays, expected.leaving.strays)
        assert np.array_equal(listed.leaving.sent, expected.leaving.sent)
        positions, indices = _columns(np, listed.packed, c.mesh.ndim)
        assert np.array_equal(positions, c.x[expected.rows])
        assert np.array_equal(indices, expected.rows)

        pieces = survey.segments(around, np.arange(3 * len(around.images)).reshape(3, -1) % 5)
        rows = np.concatenate([c.x, c.x], 1)[: pieces[-1].end]
        pieces = [p for p in pieces if not p.above] + [p for p in pieces if p.above]  # as in local arrays
        places = [len(rows) - piece.end for piece in pieces]
        every = np.zeros((len(rows), c.mesh.ndim), c.x.dtype)
        got = backend.array(every)
        _carry(around, rows[:, : c.mesh.ndim], every, pieces, places, np)
        sweep.carry(backend.array(rows), got, pieces, places)
        assert np.array_equal(backend.host(got), every)


@pytest.mark.backends("opencl")
def test_a_survey_counts_bad_particles_and_makes_room(backend):
    c = CASES["mixed"]
    x = c.x.copy()
    x[3], x[5, 0] = np.nan, -0.1
    around = Surroundings(Domain(c.mesh, 3, **c.cuts), 1, c.radius, x.dtype)
    sweep = survey.Pass(around, backend.library, x.dtype)
    listed = sweep.begin(backend.array(x), np)()
    assert listed.bad == 2
    assert not {3, 5} & {*listed.rows.tolist(), *listed.leaving.strays.tolist()}
    sweep.ROOM = sweep._guess = 10  # fewer than are listed
    again = sweep.begin(backend.array(x), np)()
    assert len(again.rows) > 10
    assert again.bad == 2
    assert np.array_equal(again.rows, listed.rows)
    assert np.array_equal(again.packed, listed.packed, equal_nan=True)


@pytest.mark.parametrize("failing", [{0}, {1}, {0, 1}])
def test_other_work_during_a_sum_that_fails_stops_all(failing):
    x, values = np.random.default_rng(2).random((40, 2)), np.ones(20)
    function = pm.PairFunction(None, attraction, results=2, values=1, parameters=[0.01])

    def work(world):
        grid = UniformGrid(Domain(pm.Mesh((8, 8), (1.0, 1.0)), 2), world, 0.2)
        grid.build(x[world.rank :: 2])
        done = []

        def other():
            done.append(world.allreduce(1))
            if world.rank in failing:
                raise RuntimeError("mine")

        with pytest.raises(RuntimeError, match="mine"):
            grid.stream(None, function, values, meanwhile=other)
        after = grid.stream(None, function, values, meanwhile=lambda: done.append(world.allreduce(1)))
        assert done == [2, 2]
        assert np.array_equal(after, grid.stream(None, function, values))
        with pytest.raises((TypeError, RankError), match="meanwhile is of type int"):
            grid.stream(None, function, values, meanwhile=3 if world.rank else other)

    on_threads(2, work)


@pytest.mark.backends("opencl")
def test_surveys_one_after_the_other_are_those_step_by_step(backend):
    """Later ones replay the launches of earlier ones; clouds that need more room in between end replays."""
    c = CASES["float32"]
    around = Surroundings(Domain(c.mesh, 3, **c.cuts), 1, c.radius, c.x.dtype)
    sweep = survey.Pass(around, backend.library, c.x.dtype)
    sweep.ROOM = 10
    rng, kept = np.random.default_rng(4), []
    for turn, count in enumerate([len(c.x)] * 4 + [40, len(c.x), 40, 40, 0, 40] + [len(c.x)] * 4):
        x = rng.permutation(c.x)[:count]
        if turn in (3, 11):
            x = np.repeat(x[:1], count, 0)  # all or none of them are strays or ghosts
        listed, expected = sweep.begin(backend.array(x), np)(), survey.stepwise(around, x, np)
        assert (listed.home, listed.bad, listed.sizes) == (expected.home, 0, expected.sizes)
        kept.append((listed, expected))
    for listed, expected in kept:  # no later survey writes to what an earlier one has returned
        assert np.array_equal(listed.rows, expected.rows)
        assert np.array_equal(listed.leaving.strays, expected.leaving.strays)
        assert np.array_equal(_columns(np, listed.packed, c.mesh.ndim)[1], expected.rows)
    assert any(sweep._listing.tapes._by_key.values())


class Lent:
    """The kernels of a GPU for particles of the host; ranks that are threads take turns."""

    turn = threading.Lock()

    def __init__(self, backend, around, dtype):
        self.backend = backend
        with self.turn:
            self.sweep = survey.Pass(around, backend.library, dtype)

    def begin(self, x, xp):
        with self.turn:
            result = self.sweep.begin(self.backend.array(x), xp)()
        return lambda: result

    def carry(self, rows, every, pieces, places):
        with self.turn:
            got = self.backend.array(every)
            self.sweep.carry(self.backend.array(rows), got, pieces, places)
            every[...] = self.backend.host(got)


@pytest.mark.backends("opencl")
@pytest.mark.whole
@pytest.mark.parametrize("name", ["float32", "mixed", "bisection", "scattered"])
def test_pairs_after_one_pass_on_a_gpu(backend, monkeypatch, name):
    plain = UniformGrid._surroundings

    def lent(self, dtype, staged):
        local = plain(self, dtype, staged)
        return local if local.sweep else local._replace(sweep=Lent(backend, local.around, dtype))

    monkeypatch.setattr(UniformGrid, "_surroundings", lent)
    test_pairs_are_those_of_one_grid_each_once(name, 2)


@pytest.mark.parametrize(("dtype", "origin"), [("f4", 1e3), ("f8", 1e11)])
def test_images_in_one_place_far_from_zero_are_pairs_for_any_cuts(dtype, origin):
    box = pm.Box([[2.0, 0.0, 0.0], [1.9, 1.75, 0.0], [-0.9, 1.3, 1.5]], (origin, -50.0, 3.0))
    places = np.stack(np.meshgrid(*[np.arange(9)] * 3), -1).reshape(-1, 3) / 8
    x, one = (places @ box.matrix + box.origin).astype(dtype), pm.PairFunction(None, _one)

    def counted(world, parts="slabs"):
        mine = slice(len(x) * world.rank // world.size, len(x) * (world.rank + 1) // world.size)
        domain = Domain(pm.Mesh((4, 4, 5), box), world.size, parts)
        grid = UniformGrid(domain, world, 0.0, deterministic=True).build(x[mine])
        return np.concatenate(world.allgather(grid.stream(None, one)))

    alone = counted(World())
    assert alone.any()
    for size, parts in ((2, "slabs"), (4, "pencils")):
        assert all(np.array_equal(sums, alone) for sums in on_threads(size, lambda w, p=parts: counted(w, p)))


def _one(r2, d, i, j, a, b, p, sum):
    sum[0] += 1
