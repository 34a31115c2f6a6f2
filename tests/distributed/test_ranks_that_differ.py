# SPDX-License-Identifier: BSD-3-Clause
"""Ranks whose arguments differ where they must be alike: every rank raises, and none reads the wrong numbers."""

import inspect
import itertools
import threading
from queue import Empty

import numpy as np
import pytest

import particlemesh as pm
from particlemesh import distributed as pmd
from particlemesh.apps import brownian, dem, nufft, pme
from particlemesh.distributed import routes
from ranks import on_threads, outcomes

MESH = pm.Mesh((8, 6), (1.0, 1.0))


def all_raise(call):
    """Run on two ranks, and return the types of what they raise."""

    def work(world):
        try:
            call(world)
        except Exception as error:
            return type(error)
        return None

    result = on_threads(2, work)
    assert None not in result, result
    return result


@pytest.mark.parametrize(
    "arrays", [(np.float64, np.int64, ()), (np.float32, np.float64, ()), (np.float64, np.float64, (3,))]
)
def test_arrays_on_a_route(arrays):
    one, two, more = arrays

    def call(world):
        route = pmd.Route(world, np.array([0, 1, 1]))
        route.send(np.zeros((3, *(more if world.rank else ())), (one, two)[world.rank]))

    assert pmd.RankError in all_raise(call)


def test_a_route_to_nobody():
    for parts, per_rank in (([0, 1], 1), ([1, 3, 0], 3)):
        with pytest.raises(ValueError, match=f"part {max(parts)}; parts are 0 to {per_rank - 1}"):
            pmd.Route(pmd.World(), np.array(parts), per_rank)


def test_a_route_without_memory(monkeypatch):
    enough = routes.Departures.of

    def scarce(parts, rank, *more):
        if rank == 1:
            raise MemoryError("cannot allocate")
        return enough(parts, rank, *more)

    monkeypatch.setattr(routes.Departures, "of", scarce)
    assert sorted(e.__name__ for e in all_raise(lambda world: pmd.Route(world, np.array([world.rank])))) == [
        "MemoryError", "RankError",
    ]  # fmt: skip


def test_a_grids_radius_and_cells():
    domain = pmd.Domain(MESH, 2)
    x = np.array([[0.1, 0.1], [0.25, 0.1]])
    all_raise(lambda world: pmd.UniformGrid(domain, world, (0.05, 0.2)[world.rank]).build(x))
    line = pmd.Domain(pm.Mesh(8, 1.0), 2).balanced(np.array([14, 1, 1, 1, 1, 1, 1, 1]))
    all_raise(lambda world: pmd.UniformGrid(line, world, 0.1, cell_size=4e-10).build(np.array([0.3])))


def test_cuts_of_transforms_and_threads():
    def transform(world):
        domain = pmd.Domain(MESH, 2).balanced(np.array([[1, 1], [1, 1 + 90 * world.rank]]))
        fft = pmd.FFT(domain, world)
        fft.forward(np.zeros(domain.parts(world.rank)[0].shape))

    all_raise(transform)
    made = on_threads(2, lambda world: pmd.FFT(pmd.Domain(MESH, 2), world, threads=None if world.rank else 1).threads)
    assert made[0] == 1


def test_plans():
    domain = pmd.Domain(MESH, 2)
    all_raise(lambda world: pmd.Plan(domain, world, "cic", check=world.rank == 0))
    shifted = pm.Mesh(MESH.shape, (1.0, 2.0))
    all_raise(lambda world: pmd.Plan(pmd.Domain((MESH, shifted)[world.rank], 2), world, "cic"))


def test_a_cloud_that_begins_empty_keeps_its_type():
    def work(world):
        plan = pmd.Plan(pmd.Domain(MESH, 2), world, "cic")
        plan.set_positions(np.zeros((0, 2), np.float32))
        plan.set_positions(np.full((1, 2), 0.5, np.float32))
        return plan.spread(np.ones(1, np.float32)).dtype

    assert on_threads(2, work) == [np.float32] * 2


def test_faces_of_open_tilted_boxes():
    box = pm.Box([[1.0, 0.0], [0.3, 1.0]], periodic=False)
    x = np.array([[0.0, 0.0], [0.3, 1.0], [1.3, 1.0], [1.0, 0.0], [0.5, 0.2]])
    for dtype in (np.float32, np.float64):
        grid = pmd.UniformGrid(pmd.Domain(pm.Mesh((8, 6), box), 1), pmd.World(), 0.3).build(x.astype(dtype))
        assert grid.count().tolist() == [0, 0, 0, 0, 0]
        with pytest.raises(ValueError, match="outside"):
            grid.build(np.array([[1.31, 1.0]], dtype))


def test_numbers_on_the_way():
    world, domain = pmd.World(), pmd.Domain(MESH, 1)
    large = np.full((8, 6), 2**60 + 1)
    moved = pmd.Remap(domain, pmd.Domain(MESH, 1, parts="slabs"), world)(large)
    assert moved.dtype == np.int64
    np.testing.assert_array_equal(moved, large)
    with pytest.raises(ValueError, match="add up to 3; there are 4"):
        world.alltoallv(np.arange(4.0), [3])
    assert pmd.Domain(pm.Mesh(300, 1.0), 1).owner(np.array([[200]], np.uint8)).tolist() == [0]


def test_arrays_of_the_user():
    x, world = np.array([[0.1, 0.1], [0.3, 0.3]]), pmd.World()
    grid = pmd.UniformGrid(pmd.Domain(MESH, 1), world, 0.3).build(x)
    kept = x.copy()
    x += 1
    np.testing.assert_array_equal(grid.positions, kept)
    with pytest.raises(ValueError, match="quantities"):
        grid.pairs(quantities="jx")
    plan = pmd.Plan(pmd.Domain(MESH, 1), world, "cic").set_positions(kept)
    same = np.lib.stride_tricks.as_strided(np.zeros(6), (8, 6), (0, 8))
    with pytest.raises(ValueError, match="share memory"):
        plan.spread(np.ones(2), out=same)


# What makes each public class over ranks, beside the world and what `inspect` shows as a default.
MADE = {
    pmd.FFT: dict(domain=...),
    pmd.Plan: dict(domain=..., window="cic"),
    pmd.Remap: dict(source=..., target=...),
    pmd.Route: dict(parts=np.arange(8) % 2),
    pmd.Solver: dict(domain=...),
    pmd.UniformGrid: dict(domain=..., radius=0.2),
    pmd.VectorSolver: dict(domain=...),
    pmd.power_spectrum: dict(positions=np.arange(16.0).reshape(8, 2) / 16, values=np.ones(8), domain=...),
    pmd.whole_field: dict(field=..., domain=...),
    nufft.DistributedPlan: dict(nufft_type=1, n_modes_or_dim=(8, 6)),
    pme.DistributedPME: dict(box=(4.0,) * 3),
    brownian.DistributedRPY: dict(box=(20.0,) * 3),
    brownian.DistributedBrownianDynamics: dict(positions=np.eye(3), mobility=brownian.Drag(), time_step=0.1),
    dem.DistributedSimulation: dict(
        positions=..., radii=0.1, density=1.0, contact=dem.LinearSpring(10.0), walls=[dem.Plane((0, 0, -9), (0, 0, 1))],
        time_step=1e-3,
    ),
}  # fmt: skip
WRONG = (None, object(), "nonsense", -1, float("nan"), [[1], [1, 2]], np.zeros((2, 3), complex))


def arguments(kind, world):
    domain = pmd.Domain(MESH, world.size)
    own = dict(field=np.zeros(domain.parts(world.rank)[0].shape), positions=np.eye(3) + 4 * world.rank)
    given = {name: own.get(name, domain) if value is ... else value for name, value in MADE[kind].items()}
    known = [p for p in inspect.signature(kind).parameters.values() if p.default is not p.empty and p.name != "world"]
    return {p.name: p.default for p in known} | given


def check_that_none_waits(call, what):
    """Let one rank of two give something wrong: all end alike, and what the others raise names it."""
    for culprit, wrong in itertools.product((0, 1), WRONG):
        _, errors = outcomes(2, lambda world, w=wrong, c=culprit: call(world, world.rank == c, w), 5.0)
        said = f"{what} is {wrong!r} on rank {culprit}: {errors!r}"
        assert not any(isinstance(e, (threading.BrokenBarrierError, Empty)) for e in errors), said
        assert len({e is None for e in errors}) == 1, said
        assert isinstance(errors[1 - culprit], pmd.RankError | None), said


def test_all_that_takes_a_world_is_walked():
    things = [vars(module)[name] for module in (pmd, brownian, dem, nufft, pme) for name in module.__all__]
    errors = [thing for thing in things if inspect.isclass(thing) and issubclass(thing, Exception)]
    calls = [thing for thing in things if callable(thing) and thing not in errors]
    assert {call for call in calls if "world" in inspect.signature(call).parameters} == MADE.keys()


@pytest.mark.parametrize("kind", MADE, ids=lambda kind: kind.__name__)
def test_a_wrong_argument_on_one_rank_lets_none_wait(kind):
    on_threads(2, lambda world: kind(world=world, **arguments(kind, world)))
    for name in arguments(kind, pmd.World()):

        def call(world, bad, wrong, name=name):
            kind(world=world, **arguments(kind, world) | ({name: wrong} if bad else {}))

        check_that_none_waits(call, name)


SETTERS = [(kind, n) for kind in MADE for n, p in inspect.getmembers(kind, lambda p: isinstance(p, property)) if p.fset]


@pytest.mark.parametrize(("kind", "name"), SETTERS, ids=lambda thing: getattr(thing, "__name__", thing))
def test_a_wrong_attribute_on_one_rank_lets_none_wait(kind, name):
    def call(world, bad, wrong):
        thing = kind(world=world, **arguments(kind, world))
        now = getattr(thing, name)
        setattr(thing, name, wrong if bad else now)
        world.allgather("all have set it")

    assert len(SETTERS) >= 12
    check_that_none_waits(call, name)
