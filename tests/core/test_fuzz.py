# SPDX-License-Identifier: BSD-3-Clause
"""Any shape, any memory order, any type: the same as a plain copy, and inputs stay as they are."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import particlemesh as pm


@st.composite
def orders(draw, ndim):
    """Any order of the axes in memory, with gaps, some of them backwards."""
    axes = draw(st.permutations(range(ndim)))
    gaps = draw(st.lists(st.integers(1, 3), min_size=ndim, max_size=ndim))
    return axes, gaps, draw(st.lists(st.booleans(), min_size=ndim, max_size=ndim))


@st.composite
def problems(draw, most=3):
    d = draw(st.integers(1, most))
    shape = tuple(draw(st.lists(st.integers(1, 6), min_size=d, max_size=d)))
    batch = tuple(draw(st.lists(st.integers(0, 3), max_size=2)))
    count = draw(st.sampled_from([0, 1, 2, 5, 33]))
    dtype = draw(st.sampled_from(["f4", "f8", "c8", "c16"]))
    places = [draw(orders(n)) for n in (2, len(batch) + 1, len(batch) + d, len(batch) + d, len(batch) + 2)]
    return d, shape, batch, count, dtype, places, draw(st.booleans())


def check(backend, problem, window):
    d, shape, batch, count, dtype, places, periodic = problem
    rng = np.random.default_rng(1)
    mesh = pm.Mesh(shape, (1.0,) * d, periodic=periodic, offset=0.5)
    x = rng.random((count, d)).astype("f4" if dtype in ("f4", "c8") else "f8")

    def numbers(*sizes):
        return (rng.normal(size=batch + sizes) * (1 + 1j if dtype[0] == "c" else 1)).astype(dtype)

    q, f, v = numbers(count), numbers(*shape), numbers(count, d)
    atol = 1e-3 if dtype in ("f4", "c8") else 1e-11
    with pm.Plan(mesh, window) as plain, pm.Plan(mesh, window) as plan:
        plain.set_positions(backend.array(x))
        given_x, given_q = backend.array(x, places[0]), backend.array(q, places[1])
        given_f, out, given_v = backend.array(f, places[2]), backend.array(f, places[3]), backend.array(v, places[4])
        plan.set_positions(given_x)
        pairs = [
            (plan.spread(given_q), plain.spread(backend.array(q))),
            (plan.spread(given_q, out=out), plain.spread(backend.array(q))),
            (plan.spread_gradient(given_v), plain.spread_gradient(backend.array(v))),
            *zip(plan.value_and_gradient(given_f), plain.value_and_gradient(backend.array(f)), strict=True),
        ]
        for result, expected in pairs:
            assert result.shape == expected.shape
            assert result.dtype == expected.dtype == np.dtype(dtype)
            np.testing.assert_allclose(backend.host(result), backend.host(expected), atol=atol)
        for array, host in ((given_x, x), (given_q, q), (given_f, f), (given_v, v)):
            np.testing.assert_array_equal(backend.host(array), host)


@pytest.mark.backends("cpu")
@settings(max_examples=40)
@given(problem=problems(), window=st.sampled_from(["ngp", "cic", "tsc", "m4prime", "bspline6"]))
def test_any_layout_on_the_cpu(backend, problem, window):
    check(backend, problem, window)


@pytest.mark.backends("opencl", "cuda")
@settings(max_examples=12)
@given(problem=problems(most=2))
def test_any_layout_on_gpus(backend, problem):
    check(backend, problem, "cic")
