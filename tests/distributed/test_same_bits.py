# SPDX-License-Identifier: BSD-3-Clause
"""Deterministic plans give the same bits on any number of ranks, whatever the cuts and wherever particles begin."""

import hashlib
import math
import types

import numpy as np
import pytest

import particlemesh as pm
from particlemesh import distributed as pmd
from rank_cases import OPTIONS, Row, assembled, listed, mine, numbers, plan_of, positions
from ranks import on_ranks, on_threads

ROWS = [
    Row("uniform", (9, 8, 7), per_rank=2),
    Row("clustered and complex, in float32", (8, 7, 9), dtype=np.complex64, batch=(2,), parts="bisection"),
    Row("open", (11, 6), periodic=(False, True), offset=0.5, window="tsc", parts="slabs"),
    Row("tilted", (6, 7), box=((1.0, 0.0), (0.4, 0.9)), window="tsc"),
]


def hashed(array):
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()


def bits(world, row, seed):
    """Return hashes of fields and of values by particle, which do not depend on the world."""
    real = np.zeros(0, row.dtype).real.dtype
    x = positions(row.mesh, 300, clustered="clustered" in row.name).astype(real)
    here, options = mine(world, len(x), seed), dict(method="auto", interpolation="auto", deterministic=True)
    domain, plan = plan_of(row, world, threads=1 + seed % 2, **options)
    plan.set_positions(x[here])
    values, vectors = numbers((*row.batch, len(x)), row.dtype), numbers((*row.batch, *x.shape), row.dtype, 4)
    field = plan.spread(values[..., here])
    whole = assembled(domain, world, field)
    order = np.argsort(np.concatenate(world.allgather(here)))
    value = np.concatenate(world.allgather(plan.interpolate(field)), -1)[..., order]
    assert whole.dtype == value.dtype == row.dtype
    results = [whole, value]
    if real == np.float64:  # derivatives take long to compile
        results.append(assembled(domain, world, plan.spread_gradient(vectors[..., here, :])))
        results.append(np.concatenate(world.allgather(plan.gradient(field)), -2)[..., order, :])
    return [hashed(a) for a in results], whole, value, x, values


@on_ranks(1, 2, 3, 4, each=ROWS)
def test_fields_and_values_have_the_bits_of_one_rank(world, row):
    alone, field, value, x, values = bits(pmd.World(), row, 0)
    for seed in (1, 2):
        assert bits(world, row, seed)[0] == alone
    plain = pm.Plan(row.mesh, row.window, **OPTIONS).set_positions(x.astype(np.float64))
    wide = np.result_type(row.dtype, np.float64)
    exact, unit = plain.spread(values.astype(wide)), np.finfo(row.dtype).eps
    assert abs(field - exact).max() < 50 * unit * abs(exact).max()
    assert abs(value - plain.interpolate(field.astype(wide))).max() < 50 * unit * abs(value).max()


@pytest.mark.parametrize(("case", "size"), [(ROWS[0], 7), (ROWS[1], 8)], ids=lambda case: getattr(case, "name", case))
def test_many_ranks_have_the_bits_of_one(case, size):
    alone = bits(pmd.World(), case, 0)[0]
    assert on_threads(size, lambda world: bits(world, case, 5)[0]) == [alone] * size


def test_balanced_cuts_have_the_bits_of_even_ones():
    row = ROWS[1]
    x = positions(row.mesh, 300, clustered=True)

    def work(world):
        plan = plan_of(row, world, deterministic=True, method="auto", interpolation="auto")[1]
        domain = plan.balanced(x[mine(world, len(x))])
        here = mine(world, len(x), 8)
        assert domain.parts() != plan.domain.parts()
        fields = []
        for cuts in (plan.domain, domain):
            plan = pmd.Plan(cuts, world, row.window, deterministic=True).set_positions(x[here])
            fields.append(hashed(assembled(cuts, world, plan.spread(np.ones(len(here))))))
        return len(set(fields))

    assert on_threads(3, work) == [1] * 3


@pytest.mark.parametrize("ghosts", ["particles", "replicated"])
def test_other_modes_say_that_they_cannot(ghosts):
    domain = pmd.Domain(pm.Mesh(8, 1.0), 1)
    with pytest.raises(ValueError, match="use ghosts='nodes'"):
        pmd.Plan(domain, ghosts=ghosts, deterministic=True)


@on_ranks(1, 2, 4)
def test_values_that_are_not_finite_spoil_the_field_everywhere(world):
    row = ROWS[0]
    plan = plan_of(row, world, method="auto", interpolation="auto", deterministic=True)[1]
    x = np.random.default_rng(world.rank).random((20, 3))
    values = np.ones(20)
    values[3] = np.nan if world.rank == 0 else 1
    field = plan.set_positions(x).spread(values)
    assert all(np.isnan(f).all() for f in listed(field))


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_exact_sums_are_right_in_any_order(size):
    rng = np.random.default_rng(8)
    numbers = rng.standard_normal((3, 1000)) * np.array([[1.0], [1e290], [1e-290]]) * 10.0 ** rng.integers(-9, 9, 1000)
    numbers[1, :3] = 1e308, 1e308, -1e308

    def work(world):
        here = mine(world, 1000, 2 + size) if world.rank else np.sort(mine(world, 1000, 2 + size))
        if world.size == 7:  # all on one rank
            here = np.arange(1000)[:: -1 if world.rank == 3 else 1][: 1000 * (world.rank == 3)]
        return world.exact_sum(numbers[:, here]), world.exact_sum(numbers[0, here])

    (whole, one) = work(pmd.World())
    assert all((a == whole).all() and b == one == whole[0] for a, b in on_threads(size, work))
    right = [math.fsum(row / 1024) * 1024 for row in numbers]
    assert (abs(whole - right) <= 1e-15 * abs(numbers).max(1)).all()


def test_exact_sums_of_what_has_none():
    world = pmd.World()
    assert np.isnan(world.exact_sum(np.array([1.0, np.inf]))) and np.isnan(world.exact_sum(np.array([np.nan])))
    assert world.exact_sum(np.zeros(0)) == 0 and world.exact_sum(np.arange(4)) == 6
    of_others = types.SimpleNamespace(ndim=1, shape=(2,), dtype=np.dtype(float))  # such as PyOpenCL's
    for wrong in (3.0, [1.0, 2.0], np.ones(2) * 1j, np.array(1.0), of_others):
        with pytest.raises(TypeError, match="give an array"):
            world.exact_sum(wrong)
    with pytest.raises(pmd.RankError, match="calls exact_sum of"):
        on_threads(2, lambda world: world.exact_sum(np.ones((1 + world.rank, 3))))


@pytest.mark.parametrize("window", ["bspline4", "bspline8"])
@pytest.mark.parametrize(("size", "cut"), [(2, "pencils"), (3, "blocks"), (4, "bisection"), (8, "slabs")])
def test_solvers_have_the_bits_of_one_rank(size, cut, window):
    """Spread, transforms and values with gradients: the part of PME on the mesh."""
    mesh, rng = pm.Mesh((18, 16, 14), (1.0, 2.0, 1.5)), np.random.default_rng(0)
    x, q = rng.random((300, 3)) * mesh.box.lengths, rng.standard_normal(300)

    def solved(world, seed):
        here = mine(world, len(x), seed)
        solver = pmd.Solver(pmd.Domain(mesh, world.size, cut), world, window, deterministic=True, threads=1 + seed % 2)
        results = solver.set_positions(x[here]).potential_and_gradient(q[here])
        order = np.argsort(np.concatenate(world.allgather(here)))
        return [hashed(np.concatenate(world.allgather(one))[order]) for one in results]

    assert on_threads(size, lambda world: solved(world, 3)) == [solved(pmd.World(), 0)] * size
