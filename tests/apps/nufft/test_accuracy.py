# SPDX-License-Identifier: BSD-3-Clause
"""Relative l2 errors for all tolerances, and the law that the support follows from."""

import numpy as np
import pytest

import nufft_cases as cases
from particlemesh.apps import nufft
from particlemesh.apps.nufft.sizes import LARGEST_SIGMA, LEAST_SIGMA, MARGIN, USED_SIGMA, Law, choose

SWEEP = [("complex128", 10.0**-n) for n in range(2, 15)] + [("complex64", 10.0**-n) for n in range(2, 7)]


@pytest.mark.turns(12)
@pytest.mark.parametrize(("dtype", "eps"), SWEEP, ids=str)
@pytest.mark.parametrize(("ndim", "upsampfac"), [(1, 0), (2, 0), (3, 0), (2, 2.0)])
def test_errors_stay_below_the_tolerance(ndim, dtype, eps, upsampfac):
    rng, modes = np.random.default_rng(10 * ndim), cases.SHAPES[ndim]
    x = cases.points(rng, ndim, 200, dtype)
    strengths, coefficients = cases.numbers(rng, 200, dtype), cases.numbers(rng, modes, dtype)
    options = dict(eps=eps, dtype=dtype, upsampfac=upsampfac)
    plan = nufft.Plan(1, modes, **options)
    plan.setpts(*x)
    assert cases.error(plan.execute(strengths), cases.modes_of(strengths, x, modes, 1)) <= 1.1 * eps
    values = plan.execute_adjoint(coefficients)
    assert cases.error(values, cases.values_of(coefficients, x, modes, -1)) <= 1.1 * eps
    s = cases.points(rng, ndim, 100, dtype, half=6.0)
    plan = nufft.Plan(3, ndim, **options)
    plan.setpts(*x, *[None] * (3 - ndim), *s)
    assert cases.error(plan.execute(strengths), cases.sums(strengths, np.stack(x), np.stack(s), 1)) <= 3 * eps


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("nufft_type", [1, 2, 3])
def test_an_unattainable_tolerance_is_named(nufft_type, dtype):
    size = 2 if nufft_type == 3 else (8, 8)
    with pytest.warns(UserWarning, match="eps tolerance too small to achieve.*reaches about") as caught:
        plan = nufft.Plan(nufft_type, size, eps=1e-30, dtype=dtype)
    assert f"{plan.eps:.1e}" in str(caught[0].message)
    assert plan.eps == nufft.Plan(nufft_type, size, eps=1e-30, dtype=dtype, allow_eps_too_small=1).eps
    assert nufft.Plan(nufft_type, size, eps=plan.eps, dtype=dtype).eps == plan.eps
    with pytest.warns(UserWarning, match="upsampfac=1.25 reaches"):
        assert nufft.Plan(nufft_type, size, eps=plan.eps, dtype=dtype, upsampfac=1.25).eps > 2 * plan.eps


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("twice", [False, True])
@pytest.mark.parametrize("on_cpu", [False, True])
def test_the_choice_reaches_its_tolerance(dtype, twice, on_cpu):
    for ndim in (1, 2, 3):
        law = Law(ndim, np.dtype(dtype), twice)
        for eps in 10.0 ** -np.arange(1, 16, 3):
            if eps < law.reachable(None):
                continue
            for points in (10, 10**7):
                sizes = choose((40,) * ndim, eps, law, points, 2, np.dtype(dtype), on_cpu)
                assert law.error(sizes.support, sizes.sigma) <= eps
                # Many points per node make the mesh finer than aliases need.
                assert LEAST_SIGMA <= sizes.sigma <= (LARGEST_SIGMA * 1.2 if points == 10 else USED_SIGMA)
                assert sizes.error <= MARGIN * eps or (twice and points > 10)  # then setpts warns
                assert sizes.nodes == tuple(n for n in sizes.nodes if n >= 40 * LEAST_SIGMA)


def test_many_points_make_the_mesh_finer():
    """A narrow window pays where spreading takes the time, a coarse mesh where the transform does."""
    law = Law(3, np.dtype(np.float64), False)
    few, many = (choose((64,) * 3, 1e-9, law, n, 2, np.dtype(np.float64), True) for n in (10, 10**8))
    assert few.support > many.support
    assert few.nodes < many.nodes


def test_the_oversampling_may_be_given():
    law = Law(1, np.dtype(np.float64), False)
    assert choose((100,), 1e-6, law, 10, 2, np.dtype(np.float64), True, 2.0).nodes == (200,)


@pytest.mark.parametrize("upsampfac", [4.0, 30.0])
def test_a_large_oversampling_reaches_its_tolerance(upsampfac):
    rng = np.random.default_rng(3)
    x, strengths = rng.uniform(-np.pi, np.pi, 500), cases.numbers(rng, 500, "complex128")
    for eps in (1e-3, 1e-6, 1e-10):
        modes = nufft.nufft1d1(x, strengths, 40, eps=eps, upsampfac=upsampfac)
        assert cases.error(modes, cases.modes_of(strengths, x[None], (40,), 1)) < 2 * eps
