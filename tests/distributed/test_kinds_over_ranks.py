# SPDX-License-Identifier: BSD-3-Clause
"""Plans over ranks take arrays of every kind, and return that kind; also host arrays with a named backend."""

import numpy as np
import pytest

import particlemesh as pm
from kinds import FIELD, KINDS, MESH, SLOPES, VALUES, WINDOW, Q, X
from particlemesh import backends
from particlemesh import distributed as pmd
from rank_cases import OPTIONS, cut, mine
from ranks import on_threads


@pytest.fixture(params=list(KINDS))
def kind(request):
    maker = KINDS[request.param]
    reason = backends.module(maker.home).available()
    if reason is not None:
        pytest.skip(f"{maker.home} does not work here: {reason}")
    return maker


@pytest.mark.opencl
def test_each_kind_comes_back_as_it_was_given(kind):
    def work(world):
        here = mine(world, len(Q))
        domain = pmd.Domain(MESH, world.size, per_rank=2)
        options = OPTIONS if kind.home == "cpu" else {}
        plan = pmd.Plan(domain, world, WINDOW, **options).set_positions(kind.make(X[here]))
        values = kind.make(Q[here])
        fields = plan.spread(values)
        value, slope = plan.value_and_gradient(fields)
        assert all(kind.place(array) == kind.place(values) for array in (*fields, value, slope))
        for field, expected in zip(fields, cut(domain, world.rank, FIELD), strict=True):
            np.testing.assert_allclose(kind.host(field), expected, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(kind.host(value), VALUES[here], rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(kind.host(slope), SLOPES[here], rtol=1e-11, atol=1e-11)
        there = plan.route.send(values)
        assert np.array_equal(kind.host(plan.route.back(there)), Q[here])
        if kind.writes:
            outs = tuple(kind.make(np.ones(part.shape)) for part in domain.parts(world.rank))
            again = plan.spread(values, out=outs, accumulate=True)
            for out, one, field in zip(outs, again, fields, strict=True):
                assert out is one
                np.testing.assert_allclose(kind.host(out), kind.host(field) + 1, rtol=1e-12)

    on_threads(1, work)
    if kind.home == "cpu":  # one queue or stream serves one thread
        on_threads(2, work)


@pytest.mark.backends("opencl")
def test_host_arrays_of_a_named_backend(backend):
    def work(world):
        here = mine(world, len(Q))
        domain = pmd.Domain(MESH, world.size, per_rank=2)
        with pmd.Plan(domain, world, WINDOW, backend=backend.name, ghosts="particles") as plan:
            fields = plan.set_positions(X[here]).spread(Q[here])
            for field, expected in zip(fields, cut(domain, world.rank, FIELD), strict=True):
                assert isinstance(field, np.ndarray)
                np.testing.assert_allclose(field, expected, rtol=1e-12, atol=1e-12)
            np.testing.assert_allclose(plan.interpolate(fields), VALUES[here], rtol=1e-12, atol=1e-12)

    on_threads(1, work)


def test_integers_and_lists_are_promoted():
    plan = pmd.Plan(pmd.Domain(pm.Mesh(5, 1.0), 1), window="tsc", **OPTIONS).set_positions([0.1, 0.3, 0.9])
    field = plan.spread([1, 2, 3])
    assert field.dtype == np.float64
    assert np.array_equal(field, plan.spread(np.array([1.0, 2.0, 3.0])))
    out = np.zeros(3)
    assert plan.interpolate(field.tolist(), out=out) is out
    for wrong in (np.zeros(2), np.zeros(3, np.float32), [0.0, 0.0, 0.0]):
        with pytest.raises((ValueError, TypeError), match="out"):
            plan.interpolate(field, out=wrong)
    with pytest.raises(TypeError, match="more than this plan's float32"):
        pmd.Plan(pmd.Domain(pm.Mesh(5, 1.0), 1), dtype="float32").set_positions([0.1]).spread([0.1])
