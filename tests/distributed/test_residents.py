# SPDX-License-Identifier: BSD-3-Clause
"""Particles that stay in a part stay where they are; strays travel alone, and guests are beside the residents."""

import contextlib

import numpy as np
import pytest

import particlemesh as pm
import test_plans_on_ranks as plans
from particlemesh import distributed as pmd
from particlemesh.distributed import migration
from particlemesh.distributed.migration import Residents
from particlemesh.distributed.routes import Departures
from particlemesh.distributed.survey import StrayListing
from particlemesh.distributed.windows import mesh_of, reach_of
from rank_cases import OPTIONS, Row, assembled, cut, mine, near, numbers, plan_of, positions
from ranks import on_ranks

SHARE = migration.SHARE
SETTLING = [row for row in plans.ROWS if row.ghosts == "nodes" and row.per_rank == 1]


INSIDE = []  # ranks that are in `any_share`: they are threads


@contextlib.contextmanager
def any_share():
    """Let particles stay in place however many of them leave."""
    INSIDE.append(1)
    migration.SHARE = np.inf
    try:
        yield
    finally:
        INSIDE.pop()
        if not INSIDE:
            migration.SHARE = SHARE


@on_ranks(1, 2, 3, each=SETTLING)
def test_every_verb_with_many_strays(world, row):
    with any_share():
        plans.test_every_verb_does_what_one_rank_does.test_on_ranks[0](world, row)


@on_ranks(2, 3)
def test_small_moves_and_back(world):
    """Some ranks have strays, some guests, some neither; then everybody is at home again."""
    row = Row("", (12, 5, 6), batch=(2,), dtype=np.complex128)
    domain, plan = plan_of(row, world)
    alone = pm.Plan(row.mesh, row.window, **OPTIONS)
    x = positions(row.mesh, 300)
    at_home = plan.set_positions(x[mine(world, len(x))]).route.send(x[mine(world, len(x))])
    count, test = len(at_home), numbers((2, *row.mesh.shape), np.complex128, 5)
    for step in (0.0, 0.4 * world.rank / 12, -0.1 / 12, 0.0):
        near_home = (at_home + [step, 0, 0]) % 1.0
        plan.set_positions(near_home)
        assert plan._settled == (plan.route.moved + plan.route.guests <= migration.SHARE * count)
        everywhere = np.concatenate(world.allgather(near_home))
        values = numbers((2, count), np.complex128, world.rank)
        alone.set_positions(everywhere)
        near(assembled(domain, world, plan.spread(values)), alone.spread(np.concatenate(world.allgather(values), 1)))
        first = sum(world.allgather(count)[: world.rank])
        here = slice(first, first + count)
        for got, expected in zip(
            plan.value_and_gradient(cut(domain, world.rank, test)), alone.value_and_gradient(test), strict=True
        ):
            near(got, expected[:, here])
        assert plan.held == len(plan.route.send(near_home))
        assert np.array_equal(plan.route.back(plan.route.send(near_home)), near_home)
    assert plan._settled
    assert world.allreduce(plan.route.moved) == 0


@on_ranks(2)
def test_bad_particles_among_residents(world):
    """A checked call raises and changes nothing; an unchecked one gives them no weight, and counts them."""
    mesh = pm.Mesh((9, 6), pm.Box((1.0, 1.0), periodic=(True, False)), offset=(0.0, 0.5))
    domain = pmd.Domain(mesh, world.size)
    plan = pmd.Plan(domain, world, "tsc", **OPTIONS)
    part = domain.parts(world.rank)[0]
    x = np.random.default_rng(world.rank).random((60, 2))
    x[:, 0] = (part.lower[0] + 0.5 + 0.9 * (part.shape[0] - 1) * x[:, 0]) / 9
    x[:, 1] = 0.3 + 0.4 * x[:, 1]
    before = plan.set_positions(x).spread(np.ones(60))
    bad = x.copy()
    if world.rank == 1:
        bad[7, 1], bad[9, 0], bad[11, 1] = 1.5, np.inf, np.nan
        bad[20, 0] -= 0.5  # a stray
    with pytest.raises(ValueError if world.rank == 1 else pmd.RankError, match="the first is particle 7"):
        plan.set_positions(bad)
    assert np.array_equal(plan.spread(np.ones(60)), before)
    plan.set_positions(bad, check=False)
    assert plan._settled
    status = plan.status
    assert (status.count, status.not_finite, status.outside, status.first_bad) == (120, 2, 1, 7)
    assert abs(world.allreduce(float(plan.spread(np.ones(60)).sum())) - 117) < 1e-9
    got = plan.interpolate(np.ones(part.shape))
    assert np.array_equal(np.flatnonzero(got == 0), [7, 9, 11] if world.rank else [])


@pytest.mark.backends("opencl")
@pytest.mark.parametrize("real", [np.float32, np.float64])
def test_a_gpu_lists_strays(backend, real):
    """The list of the pass that locates is what cells say, for a part that is cut along periodic and open axes."""
    mesh = pm.Mesh((12, 9, 5), pm.Box((3.0, 2.0, 1.0), origin=0.3, periodic=(True, False, True)), offset=(0.2, 0.5, 0))
    domain, support = pmd.Domain(mesh, 4, parts=(2, 2, 1)), 4
    x = positions(mesh, 200).astype(real)
    x = np.where(mesh.periodic, x + 3.0, x.clip(mesh.box.origin, mesh.box.origin + mesh.box.lengths)).astype(real)
    x[5], x[6, 1] = np.nan, 9.0
    cells = pm.locate(x, mesh, window="bspline4", check=False).cells
    expected = domain.part_of(cells)
    bad = cells[:, -1] == migration.SKIP
    starts, shapes = domain.windows(reach_of(support, 3))
    given = migration.UserPositions(x, 3)
    with any_share():
        for rank in range(4):
            part = mesh_of(mesh, domain.parts(rank)[0], tuple(starts[rank].tolist()), tuple(shapes[rank].tolist()))
            with pm.Plan(part, "bspline4") as plan:
                residents = Residents(plan, backend.array(x))
                listing = StrayListing(domain, migration.shift_of(part, support), backend.library)
                of_them = migration.listed(rank, residents, given, (1, 100)[rank > 1], listing)  # there may be more
                leaving, indices, _ = of_them()
                right = Departures.of(np.where(bad, rank, expected), rank, 4, 1)
                assert indices.tolist() == [5, 6]
                assert np.array_equal(leaving.strays, right.strays)
                assert np.array_equal(leaving.sent, right.sent)
                assert plan.count == 0
                residents.take(True)
                stay = np.flatnonzero((expected == rank) & ~bad)
                node = np.array(plan.backend.download(plan.particles.node))[2, : len(x)]
                assert np.array_equal(np.flatnonzero(node != migration.SKIP), stay)


@pytest.mark.backends("opencl")
def test_no_room_for_a_list(backend, monkeypatch):
    """More strays than there is room for are counted, and not listed."""
    monkeypatch.setattr("particlemesh.distributed.migration._LEAST", 8)
    domain = pmd.Domain(pm.Mesh((8, 8), (1.0, 1.0)), 2)
    part = domain.mesh.part((0, 0), (4, 8), [(1, 2), (0, 0)])
    x = np.random.default_rng(1).random((100, 2))
    residents = Residents(pm.Plan(part, "bspline4"), backend.array(x))
    listing = StrayListing(domain, migration.shift_of(part, 4), backend.library)
    assert migration.listed(0, residents, migration.UserPositions(x, 2), 1, listing)() is None


@on_ranks(1, 2, 3, each=[Row("", (9, 8, 7)), Row("clustered", (8, 7, 9), dtype=np.complex64, parts="bisection")])
def test_integers_of_residents_and_guests_have_the_bits_of_one_rank(world, row):
    """On a GPU particles stay in place for the same bits, too: the fullest cell is that of residents and guests."""
    pytest.importorskip("pyopencl")

    def found(world, seed):
        x = np.repeat(positions(row.mesh, 100, clustered=row.name == "clustered"), 3, 0)
        x = x.astype(np.zeros(0, row.dtype).real.dtype)
        here = mine(world, len(x), seed)
        domain, plan = plan_of(
            row, world, deterministic=True, method="auto", interpolation="auto", backend="opencl", threads=None
        )
        plan.set_positions(x[here])
        settled = plan._settled and plan.route.guests > 0
        values = numbers((2, len(x)), row.dtype)[:, here]
        field = plan.spread(values)
        back = np.concatenate(world.allgather(plan.interpolate(field)), -1)
        return assembled(domain, world, field), back[:, np.argsort(np.concatenate(world.allgather(here)))], settled

    alone = found(pmd.World(), 0)
    with any_share():
        for seed in (1, 2):
            field, back, settled = found(world, seed)
            assert any(world.allgather(settled)) or world.size == 1
            assert np.array_equal(field, alone[0])
            assert np.array_equal(back, alone[1])
