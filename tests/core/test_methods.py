# SPDX-License-Identifier: BSD-3-Clause
"""Every method on every backend against the oracle: each support, precision, real and complex."""

import functools

import numpy as np
import pytest

import oracle
import particlemesh as pm

SUPPORTS = (1, 2, 3, 4, 6, 8, 16)
MESH = pm.Mesh((7, 5, 9), (1.0, 2.5, 4.0), origin=(-0.3, 0.2, 10.0))
REALS = {"float32": np.float32, "float64": np.float64}


@functools.cache
def expected(support, precision):
    """Inputs, complex, and what the oracle makes of them; its real parts belong to the real parts."""
    rng = np.random.default_rng(support)
    count = 12 if support < 16 else 5
    real = REALS[precision]
    x = ((rng.random((count, 3)) * 3 - 1) * MESH.box.lengths + MESH.box.origin).astype(real)

    def numbers(*shape):
        return (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(np.result_type(real, np.complex64))

    q, v, f = numbers(count), numbers(count, 3), numbers(*MESH.field_shape)
    window = pm.bspline(support)
    results = {
        "spread": oracle.spread(MESH, window, x, q),
        "spread_gradient": oracle.spread_gradient(MESH, window, x, v),
        "interpolate": oracle.interpolate(MESH, window, x, f),
        "gradient": oracle.gradient(MESH, window, x, f),
    }
    return x, q, v, f, results


COMBINATIONS = [(precision, kind) for precision in REALS for kind in ("real", "complex")]


@pytest.mark.whole
@pytest.mark.parametrize(("precision", "kind"), COMBINATIONS)
def test_a_method_equals_the_oracle(backend, law, precision, kind, request):
    """All of these together. `test_covering.py` has pairs of them: where compiling takes long, some are enough here."""
    turn, supports = COMBINATIONS.index((precision, kind)), SUPPORTS
    if request.config.thins:
        supports = SUPPORTS[turn::4] if backend.name == "cpu" else (4,) * (turn % 3 == 0)
    for support in supports:
        check_support(backend, law, support, precision, kind)


def check_support(backend, law, support, precision, kind):
    x, q, v, f, results = expected(support, precision)
    window = f"bspline{support}"

    def part(a):
        return a if kind == "complex" else np.ascontiguousarray(a.real)

    def check(result, what):
        result, exact = backend.host(result), part(results[what])
        assert result.dtype == part(q).dtype
        assert result.shape == exact.shape
        largest = np.abs(exact).max()
        # The cell coordinate is rounded at about K; its error times the window's slope is the result's. In
        # float64 the largest is that of sums in 64-bit integers, whose quantum suits all particles on one node.
        tolerance = 3e-6 if precision == "float32" else 1e-13
        assert np.abs(result - exact).max() <= tolerance * largest, what

    components = 2 if kind == "complex" else 1
    reason = law.declines(backend, MESH, window, precision, len(x), components)
    plan = law.plan(MESH, window, components=components)
    with plan:
        plan.set_positions(backend.array(x))
        if reason is not None:
            with pytest.raises(pm.MethodNotSuitable, match="cannot serve this problem"):
                plan.spread(backend.array(part(q))) if law.direction == "spread" else plan.interpolate(
                    backend.array(part(f))
                )
        elif law.direction == "spread":
            check(plan.spread(backend.array(part(q))), "spread")
            check(plan.spread_gradient(backend.array(part(v))), "spread_gradient")
        else:
            field = backend.array(part(f))
            check(plan.interpolate(field), "interpolate")
            check(plan.gradient(field), "gradient")
            values, gradient = plan.value_and_gradient(field)
            check(values, "interpolate")
            check(gradient, "gradient")
