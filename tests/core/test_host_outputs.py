# SPDX-License-Identifier: BSD-3-Clause
"""Plans and grids with a named backend take host arrays in every verb, and write to those given as ``out``."""

import numpy as np
import pytest

import particlemesh as pm
from pair_sums import VALUES
from particlemesh import backends

MESH = pm.Mesh((5, 6), (1.0, 2.0))
RNG = np.random.default_rng(3)
X, Q, V, T = RNG.random((40, 2)) * [1, 2], RNG.normal(size=40), RNG.normal(size=(40, 2)), RNG.normal(size=(40, 2, 2))
F = RNG.normal(size=MESH.field_shape)
C = Q + 1j * Q[::-1]
INTEGERS = {
    "spread_integers": (Q, 0), "spread_integers, complex": (C, 0), "spread_integers, derivative": (V, 1),
}  # fmt: skip
SPREADING = {
    "spread": lambda plan, **out: plan.spread(Q, **out),
    "spread, complex": lambda plan, **out: plan.spread(C, **out),
    "spread_gradient": lambda plan, **out: plan.spread_gradient(V, **out),
    "spread_hessian": lambda plan, **out: plan.spread_hessian(T, **out),
    **{
        name: lambda plan, values=values, order=order, **out: plan.spread_integers(
            values, plan.bounds(values, derivative=order), derivative=order, **out
        )
        for name, (values, order) in INTEGERS.items()
    },
}
READING = {
    "spread": lambda plan, **out: plan.spread(Q, **out),
    "spread, complex": lambda plan, **out: plan.spread(C, **out),
    "spread_gradient": lambda plan, **out: plan.spread_gradient(V, **out),
    "spread_hessian": lambda plan, **out: plan.spread_hessian(T, **out),
    "spread_integers": lambda plan, **out: plan.spread_integers(Q, plan.bounds(Q), **out),
    "spread_integers, complex": lambda plan, **out: plan.spread_integers(C, plan.bounds(C), **out),
    "spread_integers, derivative": lambda plan, **out: plan.spread_integers(
        V, plan.bounds(V, derivative=1), derivative=1, **out
    ),
}
READING = {
    "interpolate": lambda plan, **out: plan.interpolate(F, **out),
    "gradient": lambda plan, **out: plan.gradient(F, **out),
    "hessian": lambda plan, **out: plan.hessian(F, **out),
    "value_and_gradient": lambda plan, **out: plan.value_and_gradient(F, **out),
    "value_gradient_hessian": lambda plan, **out: plan.value_gradient_hessian(F, **out),
    "convert": lambda plan, **out: plan.convert(plan.spread_integers(Q, plan.bounds(Q)), plan.bounds(Q), **out),
}


def tupled(result):
    return result if isinstance(result, tuple) else (result,)


def outputs(result, made):
    return tuple(made(r) for r in result) if isinstance(result, tuple) else made(result)


def unit_of(plan, verb):
    """Return what an integer stands for; real and imaginary parts come first."""
    values, order = INTEGERS[verb]
    bounds = plan.bounds(values, derivative=order)
    units = 2.0 ** (bounds[0] + bounds[1:] - 62.0)
    return units.reshape(-1, *(1,) * MESH.ndim) if len(units) > 1 else units[0]


def strided(result):
    return np.zeros((*result.shape, 2), result.dtype)[..., 1]


@pytest.mark.parametrize("verb", [*SPREADING, *READING])
@pytest.mark.parametrize("made", [np.zeros_like, strided])
def test_every_verb_of_a_plan_writes_to_host_arrays(backend, verb, made):
    call = {**SPREADING, **READING}[verb]
    with pm.Plan(MESH, "tsc", dtype="float64", backend=backend.name) as plan:
        plan.set_positions(X)
        result = call(plan)
        unit = unit_of(plan, verb) if verb in INTEGERS else 1.0
        out = outputs(result, made)
        for _ in range(3):  # played from a tape in the end
            given = call(plan, out=out)
            assert all(a is b for a, b in zip(tupled(given), tupled(out), strict=True))
        for got, expected in zip(tupled(out), tupled(result), strict=True):
            assert type(expected) is np.ndarray
            np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-12)
        if verb in SPREADING:
            call(plan, out=out, accumulate=True)
            np.testing.assert_allclose(out, 2 * result, rtol=1e-12, atol=1e-12)
    with pm.Plan(MESH, "tsc") as plan:  # by the arrays' place: the processor
        plan.set_positions(X)
        expected = call(plan)
        if verb in INTEGERS:  # in units of their own
            result, expected = result * unit, expected * unit_of(plan, verb)
        for got, there in zip(tupled(result), tupled(expected), strict=True):
            np.testing.assert_allclose(got, there, rtol=1e-10, atol=1e-10)


def test_every_query_of_a_grid_takes_host_arrays(backend):
    grid = pm.UniformGrid((1.0, 2.0), cell_size=0.25, backend=backend.name).build(X, radii=np.full(40, 0.05))
    plain = pm.UniformGrid((1.0, 2.0), cell_size=0.25).build(X, radii=np.full(40, 0.05))
    for ask in (
        lambda g: g.count(0.3),
        lambda g: g.count(np.full(40, 0.1)),
        lambda g: g.pairs(0.3).j,
        lambda g: g.pairs(np.full(40, 0.1)).j,
        lambda g: g.neighbours(X[:3], 0.3).j,
        lambda g: g.nearest(2, 0.4)[1],
        lambda g: g.nearest(2, 0.4, X[:3])[1],
        lambda g: g.overlaps().j,
        lambda g: g.stream(0.3, VALUES, Q),
        lambda g: g.stream(0.3, VALUES, Q, out=np.zeros((40, 1))),
        lambda g: g.stream(0.3, VALUES, Q, out=strided(np.zeros((40, 1)))),
    ):
        got, expected = ask(grid), ask(plain)
        assert type(got) is np.ndarray
        np.testing.assert_allclose(np.sort(got, None), np.sort(expected, None), rtol=1e-12)


@pytest.mark.opencl
@pytest.mark.skipif(backends.module("opencl").available() is not None, reason="no OpenCL device")
def test_a_device_gets_host_arrays_of_types_that_it_may_not_know():
    whole = np.arange(40) % 3
    with pm.Plan(MESH, "cic", backend="opencl", dtype="float32") as plan, pm.Plan(MESH, "cic", dtype="float32") as host:
        for dtype in (">f8", "f4"):
            plan.set_positions(X.astype(dtype))
            host.set_positions(X.astype(dtype))
            for values in (whole.tolist(), whole == 1, whole.astype(">f4"), whole.astype("u8")):
                result, expected = plan.spread(values), host.spread(values)
                assert result.dtype == expected.dtype
                np.testing.assert_allclose(result, expected, atol=1e-5)
        with pytest.raises(TypeError, match="float32 does not hold all such integers"):
            plan.spread(whole + 2**30)
        flags = backends.current("opencl").upload(whole.astype("f4")).view(np.uint8)[:40].view(np.bool_)
        with pytest.raises(TypeError, match="which the device cannot convert: convert it yourself"):
            plan.spread(flags)
