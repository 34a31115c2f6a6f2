# SPDX-License-Identifier: BSD-3-Clause
"""A plan over ranks does what one rank does: every verb, every mode, wherever particles are."""

import numpy as np
import pytest

import particlemesh as pm
from particlemesh import distributed as pmd
from rank_cases import OPTIONS, Row, assembled, cut, listed, mine, near, numbers, plan_of, positions
from ranks import on_ranks

TILTED = ((1.0, 0.0, 0.0), (0.3, 1.1, 0.0), (-0.2, 0.1, 0.9))
ROWS = [
    Row("line", (11,)),
    Row("line of parts narrower than the window", (5,), per_rank=2, ghosts="particles"),
    Row("open line", (9,), periodic=False, offset=0.5, parts="slabs", window="tsc"),
    Row("plane", (7, 9), periodic=(True, False), per_rank=2),
    Row("plane in pencils", (8, 5), parts="pencils", ghosts="particles", window="tsc"),
    Row("open plane", (6, 7), periodic=False, offset=0.5, ghosts="particles"),
    Row("few nodes", (2, 3), periodic=(False, True), per_rank=2),
    Row("cube", (7, 5, 6), batch=(2,)),
    Row("complex numbers", (6, 5, 7), dtype=np.complex128, batch=(3,), parts="bisection", box=(1.0, 2.0, 0.5)),
    Row("tilted", (5, 6, 7), box=TILTED, window="tsc", parts="pencils", batch=(1, 2)),
    Row("tilted by particles", (6, 7, 5), box=TILTED, ghosts="particles", per_rank=3, dtype=np.complex128),
    Row("replicated", (6, 7, 5), periodic=(True, False, True), ghosts="replicated", batch=(2,)),
    Row("replicated parts", (6, 7), ghosts="replicated", per_rank=2, window="tsc"),
    Row("slabs without ghost layers of their own", (4, 6, 5), parts="slabs", window="bspline4"),
]


@on_ranks(1, 2, 3, 4, each=ROWS)
def test_every_verb_does_what_one_rank_does(world, row):
    domain, plan = plan_of(row, world)
    mesh = row.mesh
    x = positions(mesh, row.count)
    here, count, ndim = mine(world, len(x)), len(x), mesh.ndim
    values, vectors = numbers((*row.batch, count), row.dtype), numbers((*row.batch, count, ndim), row.dtype, 4)
    alone = pm.Plan(mesh, row.window, **OPTIONS).set_positions(x)
    field, slopes = alone.spread(values), alone.spread_gradient(vectors)

    assert plan.set_positions(x[here]) is plan
    assert world.allreduce(plan.count) == count
    spread = plan.spread(values[..., here])
    near(assembled(domain, world, spread), field)
    near(assembled(domain, world, plan.spread_gradient(vectors[..., here, :])), slopes)

    test = numbers((*row.batch, *mesh.shape), row.dtype, 5)
    parts = cut(domain, world.rank, test)
    expected, gradient = alone.value_and_gradient(test)
    value, slope = plan.value_and_gradient(parts)
    near(value, expected[..., here])
    near(slope, gradient[..., here, :])
    near(plan.interpolate(parts), expected[..., here])
    near(plan.gradient(parts), gradient[..., here, :])

    # <spread(v), f> = <v, interpolate(f)>, and the sum of what no open face loses
    left = world.allreduce(sum((np.vdot(a, b) for a, b in zip(listed(spread), listed(parts), strict=True)), 0j))
    right = world.allreduce(complex(np.vdot(values[..., here], value)))
    assert abs(left - right) <= 1e-12 * max(1.0, abs(left))
    if all(mesh.periodic):
        total = world.allreduce(sum((f.sum() for f in listed(spread)), 0j))
        assert abs(total - values.sum()) <= 1e-12 * count


@on_ranks(2, 4)
def test_second_derivatives(world):
    row = Row("", (7, 6), periodic=(True, False), per_rank=2)
    domain, plan = plan_of(row, world)
    x, mesh = positions(row.mesh, 20), row.mesh
    here = mine(world, len(x))
    alone = pm.Plan(mesh, row.window, **OPTIONS).set_positions(x)
    tensors = numbers((len(x), 2, 2), float)
    plan.set_positions(x[here])
    near(assembled(domain, world, plan.spread_hessian(tensors[here])), alone.spread_hessian(tensors))
    test = numbers(mesh.shape, float, 5)
    parts = cut(domain, world.rank, test)
    for got, expected in zip(plan.value_gradient_hessian(parts), alone.value_gradient_hessian(test), strict=True):
        near(got, expected[here])
    near(plan.hessian(parts), alone.hessian(test)[here])


@on_ranks(2, 3, 4, each=["nodes", "particles", "replicated"])
def test_particles_of_one_rank_only_and_none_at_all(world, ghosts):
    row = Row("", (7, 6), per_rank=2, ghosts=ghosts)
    domain, plan = plan_of(row, world)
    x, holder = positions(row.mesh, 30), world.size - 1
    values = numbers((2, len(x)), np.complex128)
    some = slice(None) if world.rank == holder else slice(0)
    # A rank without particles gives arrays of no dtype in particular.
    plan.set_positions(x[some] if world.rank == holder else [])
    field = plan.spread(values[:, some] if world.rank == holder else np.zeros((2, 0), np.float32))
    expected = pm.Plan(row.mesh, row.window, **OPTIONS).set_positions(x).spread(values)
    near(assembled(domain, world, field), expected)
    assert plan.interpolate(field).shape == values[:, some].shape
    # Also in a plan of float32, and with an output.
    _, small = plan_of(row, world, dtype="float32")
    small.set_positions(x[some] if world.rank == holder else [])
    halves = values.astype(np.complex64)
    field = small.spread(halves[:, some] if world.rank == holder else np.zeros((2, 0)))
    outs = tuple(np.empty_like(f) for f in field)
    given = halves[:, some] if world.rank == holder else np.zeros((2, 0))
    assert all(map(np.array_equal, small.spread(given, out=outs), field))
    assert {f.dtype for f in field} == {np.dtype(np.complex64)}
    # All in one cell: one part has them all.
    cluster = np.full((25, 2), 0.3) + 1e-3 * x[:25]
    plan.set_positions(cluster)
    holders = world.allgather(plan.held)
    assert (holders == [25] * world.size) if ghosts == "replicated" else (max(holders) == 25 * world.size)
    sums = world.allreduce(sum(f.sum() for f in listed(plan.spread(np.ones(25)))))
    assert abs(sums - 25 * world.size) < 1e-10
    # None anywhere.
    field = plan.set_positions(np.empty((0, 2))).spread(np.empty(0))
    assert not any(f.any() for f in listed(field))
    assert plan.interpolate(field).shape == (0,)


@on_ranks(1, 2, 4)
def test_outputs_are_written_and_added_to(world):
    row = Row("", (7, 6), per_rank=2)
    domain, plan = plan_of(row, world)
    x = positions(row.mesh, 10, seed=world.rank)
    values = numbers((len(x),), float)
    field = plan.set_positions(x).spread(values)
    out = tuple(np.ones(part.shape) for part in domain.parts(world.rank))
    again = plan.spread(values, out=out, accumulate=True)
    assert all(a is b for a, b in zip(again, out, strict=True))
    for a, b in zip(out, field, strict=True):
        near(a, b + 1)
    plan.spread(values, out=out)
    for a, b in zip(out, field, strict=True):
        assert np.array_equal(a, b)
    wide = np.zeros((len(x), 2))
    assert plan.interpolate(field, out=wide[:, 1]).base is wide
    assert np.array_equal(wide[:, 1], plan.interpolate(field))
    pair = np.zeros(len(x)), np.zeros((len(x), 2))
    got = plan.value_and_gradient(field, out=pair)
    assert got[0] is pair[0]
    assert np.array_equal(pair[1], plan.gradient(field))


@on_ranks(1, 2, 3, 4)
def test_routes_are_their_own_inverse(world):
    row = Row("", (8, 9, 5), per_rank=2)
    _, plan = plan_of(row, world)
    for seed in range(3):
        x = positions(row.mesh, 10 * world.rank, seed)
        here = mine(world, len(x), seed)
        x = x[here]
        plan.set_positions(x)
        charges, names = numbers((3, len(x)), np.complex64), np.arange(len(x)) + 1000 * world.rank
        there, called = plan.route.send(x, names)
        assert len(there) == plan.held
        assert all(np.array_equal(a, b) for a, b in zip(plan.route.back(there, called), (x, names), strict=True))
        moved = plan.route.send(charges, axis=-1)
        assert moved.shape == (3, plan.held)
        assert np.array_equal(plan.route.back(moved, axis=-1), charges)
        both = (np.concatenate(world.allgather(numbered)) for numbered in (called, names))
        assert np.array_equal(*map(np.sort, both))
        # At their owners particles stay.
        plan.set_positions(there)
        assert plan.route.moved == 0
        assert np.array_equal(plan.route.send(there), there)


@on_ranks(3)
def test_strays_alone_move(world):
    row = Row("", (12, 12))
    _, plan = plan_of(row, world)
    x = np.random.default_rng(world.rank).random((200, 2))
    x = plan.set_positions(x).route.send(x)
    x = x + 0.02 * np.random.default_rng(9 + world.rank).standard_normal(x.shape)
    plan.set_positions(x)
    cells = pm.locate(x, row.mesh, window=row.window).cells
    assert plan.route.moved == (plan.domain.owner(cells) != world.rank).sum() > 0
    assert np.array_equal(plan.route.back(plan.route.send(x)), x)


@on_ranks(2, 4)
def test_balanced_parts_are_the_same_everywhere_and_even(world):
    mesh = pm.Mesh((24, 20, 16), (1.0, 1.0, 1.0))
    x = 0.3 + 0.1 * np.random.default_rng(world.rank).standard_normal((3000, 3))
    plan = pmd.Plan(pmd.Domain(mesh, world.size), world, "cic", **OPTIONS)
    domain = plan.balanced(x)
    assert len(set(map(repr, world.allgather(domain.parts())))) == 1
    alone = pmd.Plan(pmd.Domain(mesh, 1, per_rank=world.size), pmd.World(), "cic", **OPTIONS)
    assert alone.balanced(np.concatenate(world.allgather(x))).parts() == domain.parts()
    balanced = pmd.Plan(domain, world, "cic", **OPTIONS).set_positions(x)
    before, after = (world.allreduce(p.held, "max") / 3000 for p in (plan.set_positions(x), balanced))
    assert after < min(before, 1.1)
    with pytest.raises((ValueError, pmd.RankError)):
        plan.balanced(x, particle=-1.0 if world.rank else 1.0)


@on_ranks(1, 2)
def test_float_sums_have_the_same_bits_for_the_same_cuts(world):
    row = Row("", (9, 8, 7), dtype=np.float64)
    x = positions(row.mesh, 100)
    here = mine(world, len(x))
    values = numbers((len(x),), float)[here]
    fields = []
    for _ in range(2):
        _, plan = plan_of(row, world)
        fields.append(plan.set_positions(x[here]).spread(values).tobytes())
    assert fields[0] == fields[1]


@on_ranks(1, 2)
def test_what_a_plan_tells(world):
    row = Row("", (8, 6))
    _, plan = plan_of(row, world, dtype="float64", backend="cpu")
    assert "no particles" in repr(plan)
    plan.reserve(500)
    x = np.random.default_rng(world.rank).random((300, 2))
    x[7] = np.nan
    if world.rank == world.size - 1:
        x[5, 0] = np.inf
    plan.set_positions(x, check=False)
    status = plan.status
    assert (status.count, status.not_finite, status.outside) == (300 * world.size, world.size + 1, 0)
    assert status.first_bad == (5 if world.size == 1 else 7)
    with pytest.raises(ValueError, match="not finite"):
        plan.check()
    values = np.ones(300)
    assert plan.interpolate(plan.spread(values))[7] == 0
    assert "not collective" not in plan.explain()
    assert f"rank {world.rank} of {world.size}" in plan.explain()
    assert plan.nbytes > 0
    with plan:
        pass
    with pytest.raises(RuntimeError, match="closed"):
        plan.spread(values)


@on_ranks(2, 3)
def test_a_field_in_its_window_is_not_copied(world):
    """Ghosts are filled around the field that was spread last; any other field is copied to a new window."""
    row = Row("", (12, 6, 5), parts="slabs", dtype=np.complex128)
    _, plan = plan_of(row, world)
    x = positions(row.mesh, 50)[mine(world, 50)]
    values = numbers((len(x),), np.complex128, world.rank)
    earlier = plan.set_positions(x).spread(values)
    field = plan.spread(2 * values)
    assert plan._windows._around(field, ()) is field.base
    for given in (earlier, field[...], field.copy(), field[::-1][::-1], np.concatenate([field, field])[: len(field)]):
        around = plan._windows._around(given, ())
        assert around is (field.base if given.base is field.base else None)
        share = 0.5 if given is earlier else 1.0
        assert np.array_equal(plan.interpolate(given), share * plan.interpolate(field.copy()))
    field *= 3  # the user may write to it
    assert np.array_equal(plan.interpolate(field), plan.interpolate(field.copy()))
    assert plan._windows._around(field[:, :3], ()) is None
