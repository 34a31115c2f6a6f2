# SPDX-License-Identifier: BSD-3-Clause
"""Values in the plan's order: what the plain plan gives, for particles sorted by it; every way in and out of it."""

import pickle

import numpy as np
import pytest

import oracle
import particlemesh as pm
from blocks import cut, staged_from

MESH = pm.Mesh((16, 17, 33), (1.0, 2.0, 3.0))
OPEN = pm.Mesh((16, 17, 33), pm.Box((1.0, 2.0, 3.0), periodic=(True, False, False)), offset=0.5)
WINDOW = pm.bspline(4)


def drawn(count, seed=0, mesh=MESH):
    """Return positions, values of two channels, and vectors."""
    rng = np.random.default_rng(seed)
    x = mesh.box.origin + rng.random((count, mesh.ndim)) * mesh.box.lengths
    return x, rng.normal(size=(2, count)), rng.normal(size=(2, count, mesh.ndim))


def sorted_plan(backend, mesh=MESH, window="bspline4", **options):
    return pm.Plan(mesh, window, **{"backend": backend.name, "dtype": "float64", "order": "sorted", **options})


def order_of(backend, plan):
    """Return the order, of which every particle is in once."""
    order = backend.host(plan.order)
    assert order.dtype.kind == "i"
    np.testing.assert_array_equal(np.sort(order), np.arange(plan.count))
    return order


def plain_spread(x, q, window=WINDOW):
    return pm.spread(x, q, MESH, window=window)


def plain_interpolate(x, field):
    return pm.interpolate(field, x, MESH, window=WINDOW)


def close(result, expected, digits=1e-12):
    np.testing.assert_allclose(result, expected, rtol=0, atol=digits * max(1e-300, np.abs(expected).max(initial=0)))


@pytest.mark.parametrize("count", [0, 1, 33, 500])
def test_values_are_those_of_the_plain_plan_in_the_plans_order(backend, law, count):
    x, q, v = drawn(count)
    reason = law.declines(backend, MESH, WINDOW, "float64", count)
    if reason:
        pytest.skip(reason)
    with law.plan(MESH, WINDOW) as plain, law.plan(MESH, WINDOW, order="sorted") as plan:
        for each in (plain, plan):
            each.set_positions(backend.array(x))
        order = order_of(backend, plan)
        if law.direction == "spread":
            field = backend.host(plain.spread(backend.array(q)))
            close(backend.host(plan.spread(backend.array(q[:, order]))), field)
            slopes = backend.host(plain.spread_gradient(backend.array(v)))
            close(backend.host(plan.spread_gradient(backend.array(v[:, order]))), slopes)
            return
        field = backend.array(np.random.default_rng(3).normal(size=(2, *MESH.shape)))
        values, slopes = (backend.host(a) for a in plain.value_and_gradient(field))
        close(backend.host(plan.interpolate(field)), values[:, order])
        close(backend.host(plan.gradient(field)), slopes[:, order])
        for result, expected in zip(plan.value_and_gradient(field), (values, slopes), strict=True):
            close(backend.host(result), expected[:, order])


@pytest.mark.parametrize("deterministic", [False, True])
def test_sorted_particles_are_almost_where_they_were(backend, deterministic):
    x, q, _ = drawn(3000)
    with sorted_plan(backend, deterministic=deterministic) as plan:
        plan.set_positions(backend.array(x))
        first = order_of(backend, plan)
        assert (first != np.arange(3000)).any()
        field = backend.host(plan.spread(backend.array(q[:, first])))
        x = x[first]
        plan.set_positions(backend.array(x))
        order = order_of(backend, plan)
        exact = deterministic or backend.name == "cpu"
        crowd = (
            1
            if exact
            else np.diff(
                backend.host(plan.particles.by_block.start)[: plan.particles.by_block.blocks.total + 1].astype(int)
            ).max()
        )
        assert np.abs(order - np.arange(3000)).max() < crowd
        close(backend.host(plan.spread(backend.array(q[:, first][:, order]))), field)
        moved = x.copy()
        moved[1700] += 0.4 * MESH.box.lengths
        plan.set_positions(backend.array(moved))
        order = order_of(backend, plan)
        place = np.flatnonzero(order == 1700)[0]
        if exact:
            rest = order[order != 1700]
            assert abs(place - 1700) > 1
            np.testing.assert_array_equal(rest, np.delete(np.arange(3000), 1700))


@pytest.mark.parametrize("mesh", ["long", "open", "plane"])
@pytest.mark.parametrize("way", ["straight", "dealt", "stable"])
@pytest.mark.parametrize("real", ["float32", "float64"])
@pytest.mark.backends("cuda", "opencl")
def test_blocks_follow_each_other_and_stencils_have_the_same_bits(backend, monkeypatch, mesh, way, real):
    staged_from(monkeypatch, 0 if way == "dealt" else 10**9)
    mesh = {"long": pm.Mesh((2**18 + 1,), (1.0,)), "open": OPEN, "plane": pm.Mesh((17, 16), (1.0, 2.0))}[mesh]
    x, _, _ = drawn(2000, 1, mesh)
    x[5], x[70] = np.nan, np.inf
    x = x.astype(real)
    with (
        sorted_plan(backend, mesh, dtype=real, deterministic=way == "stable") as plan,
        pm.Plan(mesh, "bspline4", backend=backend.name, dtype=real) as plain,
    ):
        for each in (plan, plain):
            each.set_positions(backend.array(x), check=False)
        order = order_of(backend, plan)
        for name in ("node", "fraction"):
            result, expected = (backend.host(getattr(p.particles, name))[:, :2000] for p in (plan, plain))
            np.testing.assert_array_equal(result, expected[:, order])
        node, by_block = backend.host(plan.particles.node)[:, :1998].astype(np.int64), plan.particles.by_block
        bx, by, bz = cut(by_block.blocks, node)[0]
        number = (by * by_block.blocks.counts[2] + bz) * by_block.blocks.counts[0] + bx
        assert (np.diff(number) >= 0).all()
        words = 4 if real == "float32" else 8
        np.testing.assert_array_equal(backend.host(by_block.records)[words - 1 : 1998 * words : words], np.arange(1998))
        start = backend.host(by_block.start)[: by_block.blocks.total + 1]
        np.testing.assert_array_equal(start, np.searchsorted(number, np.arange(by_block.blocks.total + 1)))


@pytest.mark.parametrize("deterministic", [False, True])
def test_bad_particles_come_last_and_have_no_weight(backend, deterministic):
    x, q, _ = drawn(200, 2, OPEN)
    x[7::20, 1] = 2.5
    x[13, 0] = np.nan
    bad = np.flatnonzero((x[:, 1] > 2) | np.isnan(x[:, 0]))
    good = np.setdiff1d(np.arange(200), bad)
    with sorted_plan(backend, OPEN, deterministic=deterministic) as plan:
        plan.set_positions(backend.array(x), check=False)
        order = order_of(backend, plan)
        np.testing.assert_array_equal(np.sort(order[-len(bad) :]), bad)
        if deterministic:
            np.testing.assert_array_equal(order[-len(bad) :], bad)
        field = backend.host(plan.spread(backend.array(q[:, order])))
        close(field, oracle.spread(OPEN, WINDOW, x[good], q[:, good]))
        values = backend.host(plan.interpolate(backend.array(field)))
        assert not values[:, len(good) :].any()
        close(values[:, : len(good)], oracle.interpolate(OPEN, WINDOW, x[order[: len(good)]], field))
        assert plan.status == (200, 1, 10, 7, False)
        with pytest.raises(ValueError, match="particle 7"):
            plan.check()
        with pytest.raises(ValueError, match="particle 7"):  # and all stays as it was
            plan.set_positions(backend.array(x[:150]))
        assert plan.status == (200, 1, 10, 7, False)
        np.testing.assert_array_equal(backend.host(plan.order), order)
        close(backend.host(plan.spread(backend.array(q[:, order]))), field)
        plan.set_positions(backend.array(np.full((40, 3), np.nan)), check=False)
        order_of(backend, plan)
        assert plan.status == (40, 40, 0, 0, False)
        assert not backend.host(plan.spread(backend.array(np.ones(40)))).any()
        plan.set_positions(backend.array(x[:0]), check=False)
        assert plan.status == (0, 0, 0, -1, False)


@pytest.mark.parametrize("deterministic", [False, True])
def test_lost_values_are_in_the_plans_order_too(backend, deterministic):
    x, q, _ = drawn(300, 4, OPEN)
    with sorted_plan(backend, OPEN, deterministic=deterministic) as plan, pm.Plan(OPEN, WINDOW) as plain:
        for each in (plan, plain):
            each.set_positions(backend.array(x))
        lost = plain.lost(backend.array(q))
        assert np.abs(lost).min() > 0.1
        close(plan.lost(backend.array(q[:, order_of(backend, plan)])), lost)


def test_the_order_is_of_the_kind_of_the_positions(backend):
    x, q, _ = drawn(100)
    with pm.Plan(MESH, WINDOW, order="sorted") as plan:
        for given in (x, x[:0], tuple(x.T)):
            native = tuple(backend.array(a) for a in given) if isinstance(given, tuple) else backend.array(given)
            plan.set_positions(native)
            assert type(plan.order) is type(backend.array(q))
            assert plan.order.shape == (plan.count,)
            assert plan.order.dtype == np.int32
            assert plan.order is plan.order
            order_of(backend, plan)
    with sorted_plan(backend) as plan:  # from the host, and back to it
        plan.set_positions(x)
        assert type(plan.order) is np.ndarray
        close(plan.spread(q[:, plan.order]), plain_spread(x, q))


def test_the_order_indexes_tensors():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    x, q = (torch.tensor(a) for a in drawn(100)[:2])
    with pm.Plan(MESH, WINDOW, order="sorted") as plan:
        plan.set_positions(x)
        assert isinstance(plan.order, torch.Tensor)
        assert plan.order.dtype == torch.int32
        field = plan.spread(q[:, plan.order])
        close(field.numpy(), plain_spread(x.numpy(), q.numpy()))
        plan.set_positions(x[plan.order])
        assert (plan.order == torch.arange(100)).all()
        plan.set_positions(x[:0])
        assert tuple(plan.order.shape) == (0,)


def test_orders_asked_for_in_vain(backend):
    x, q, _ = drawn(10)
    with pytest.raises(ValueError, match="order is 'walk'; choose from 'caller', 'sorted'"):
        pm.Plan(MESH, WINDOW, order="walk")
    with pm.Plan(MESH, WINDOW) as plan:
        plan.set_positions(backend.array(x))
        with pytest.raises(RuntimeError, match="make it with order='sorted'"):
            plan.order  # noqa: B018  # a property
    with pm.Plan(MESH, WINDOW, order="sorted") as plan:
        with pytest.raises(RuntimeError, match="no particles yet: call set_positions first"):
            plan.order  # noqa: B018  # a property
        plan.set_positions(backend.array(x))
    with pytest.raises(RuntimeError, match="this plan is closed"):
        plan.order  # noqa: B018  # a property
    with pytest.raises(TypeError, match="option 'order' is unknown"):
        pm.spread(backend.array(x), backend.array(q), MESH, window=WINDOW, order="sorted")


def test_a_copy_sorts_as_well(backend):
    x, q, _ = drawn(100)
    with sorted_plan(backend) as plan, pickle.loads(pickle.dumps(plan)) as copy:
        copy.set_positions(backend.array(x))
        plan.set_positions(backend.array(x))
        order = order_of(backend, copy)
        close(backend.host(copy.spread(backend.array(q[:, order]))), plain_spread(x, q))
    with pickle.loads(pickle.dumps(pm.Plan(MESH, WINDOW))) as plain, pytest.raises(RuntimeError, match="your order"):
        plain.order  # noqa: B018  # a property


def test_explain_says_so_in_words(backend):
    with sorted_plan(backend) as plan:
        plan.set_positions(backend.array(drawn(100)[0]))
        words = {"cpu": "by tiles of "}.get(backend.name, "by blocks of ")
        assert f"order: {words}" in plan.explain()


def test_the_fastest_method_is_measured_on_sorted_particles(backend):
    x, q, _ = drawn(100)
    with sorted_plan(backend, method="measure") as plan:
        plan.set_positions(backend.array(x))
        order = order_of(backend, plan)
        close(backend.host(plan.spread(backend.array(q[:, order]))), plain_spread(x, q))
        np.testing.assert_array_equal(backend.host(plan.order), order)
        assert "measured" in plan.explain()
