# SPDX-License-Identifier: BSD-3-Clause
"""Few points on a CPU, against direct sums and against the plans that larger problems have."""

import numpy as np
import pytest

import nufft_cases as cases
import particlemesh as pm
from particlemesh.apps import nufft
from particlemesh.apps.nufft import few
from particlemesh.apps.nufft.few import Few
from particlemesh.particles.locate import locate_all
from particlemesh.particles.stencil import axes_of

EPS = {"complex64": 1e-5, "complex128": 1e-9}


def made(dtype, modes, x, nufft_type=1, n_trans=1, **options):
    plan = nufft.Plan(nufft_type, modes, n_trans, EPS[dtype], dtype=dtype, **options)
    plan.setpts(*x)
    return plan


@pytest.mark.parametrize("dtype", list(EPS))
@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_few_points_have_the_sums_of_plans(ndim, dtype):
    rng, modes = np.random.default_rng(ndim), cases.SHAPES[ndim]
    x = cases.points(rng, ndim, 70, dtype, half=9.0)
    strengths, coefficients = cases.numbers(rng, (2, 70), dtype), cases.numbers(rng, (2, *modes), dtype)
    plan, other = made(dtype, modes, x, n_trans=2), made(dtype, modes, x, n_trans=2, deterministic=True)
    assert isinstance(plan._core, Few)
    assert not isinstance(other._core, Few)
    forward, back = cases.modes_of(strengths, x, modes, 1), cases.values_of(coefficients, x, modes, -1)
    for one in (plan, other):
        assert cases.error(one.execute(strengths), forward) < 1.2 * EPS[dtype]
        assert cases.error(one.execute_adjoint(coefficients), back) < 1.2 * EPS[dtype]
    values, slopes = plan.execute_gradient(coefficients)
    assert cases.error(values, back) < 1.2 * EPS[dtype]
    for axis, k in enumerate(cases.wave_numbers(modes)):
        exact = cases.values_of(-1j * k.reshape(modes) * coefficients, x, modes, -1)
        assert cases.error(slopes[..., axis], exact) < 20 * EPS[dtype]  # slopes of a window lose a digit


@pytest.mark.parametrize("dtype", list(EPS))
def test_points_far_away_are_as_exact_as_near_ones(dtype):
    """Whole periods of 2 pi in the type of the points lead to the same sums."""
    rng, modes = np.random.default_rng(3), (40,)
    x, strengths = cases.points(rng, 1, 50, dtype), cases.numbers(rng, 50, dtype)
    plan = made(dtype, modes, x)
    near = plan.execute(strengths)
    # Multiples of a period are exact sums of float64; of float32 only the moved points themselves count.
    far = [(a.astype(np.float64) + 2 * np.pi * 2**10).astype(a.dtype) for a in x]
    plan.setpts(*far)
    moved = [(a.astype(np.float64) - 2 * np.pi * 2**10).astype(np.float64) for a in far]
    assert cases.error(plan.execute(strengths), cases.modes_of(strengths, moved, modes, 1)) < 1.2 * EPS[dtype]
    plan.setpts(*x)
    np.testing.assert_array_equal(plan.execute(strengths), near)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("support", [5, 6])
def test_points_at_any_distance_have_the_nodes_of_plans(support, dtype):
    rng, nodes, period = np.random.default_rng(support), 12, 2 * np.pi
    size = 2.0 ** rng.uniform(-3, 60, 400)
    x = np.concatenate([size, -size, [1e19, -1e30, 3e38]]).astype(dtype)
    mesh, window = pm.Mesh(nodes, period), pm.prolate(support, 2.0)
    cells, fractions, _ = locate_all((x,), axes_of(mesh, window), mesh.box)
    first, fraction = np.empty(x.size, np.int32), np.empty(x.size, dtype)
    slopes = few._tables(window, (nodes,), (period,), np.dtype(dtype))[0]
    assert few._locate((x,), slopes, (support - 1) // 2, support % 2, first, fraction) == 0
    # A fraction at an end of a cell may be rounded to the other one.
    apart = (first - cells[0] + nodes // 2) % nodes - nodes // 2 + fraction.astype(float) - fractions[0]
    assert abs(apart).max() < 4 * np.finfo(dtype).eps
    far = abs(x) > 2.0**50 * period / nodes
    assert 20 < far.sum() < x.size / 2
    np.testing.assert_array_equal(first[far], -((support - 1) // 2) % nodes)


def test_larger_problems_and_other_options_have_plans():
    rng = np.random.default_rng(6)
    for modes, points, options, small in (
        ((1000,), 1000, {}, True),
        ((64, 64), 1000, {"nthreads": 1}, True),
        ((400, 400), 1000, {}, False),  # the mesh leaves the cache
        ((20, 20, 20), 10_000, {"nthreads": 2}, False),  # threads pay
        ((64,), 1000, {"real": True}, False),
        ((64,), 1000, {"method": "gather"}, False),
    ):
        plan = nufft.Plan(1, modes, eps=1e-6, **options)
        plan.setpts(*rng.uniform(-3, 3, (len(modes), points)))
        assert isinstance(plan._core, Few) == small, (modes, points, options)


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_a_vector_that_is_not_finite_spoils_no_other_and_no_later_call(axes):
    rng = np.random.default_rng(3)
    x = [rng.uniform(-np.pi, np.pi, 60) for _ in range(axes)]
    for p in x:
        p[:8] = np.linspace(-1e-3, 1e-3, 8)  # around the seam, where stencils reach the end of the mesh
    plan = nufft.Plan(1, (6,) * axes, n_trans=2, eps=1e-3, dtype="complex64")
    plan.setpts(*(p.astype(np.float32) for p in x))
    assert type(plan._core).__name__ == "Few"
    clean = (rng.normal(size=(2, 60)) + 1j).astype(np.complex64)
    bad = clean.copy()
    bad[0] = np.nan
    modes = plan.execute(clean)
    assert np.isfinite(plan.execute(bad)[1]).all()
    assert np.isfinite(plan.execute_adjoint(modes)).all()
    modes[1] = np.nan
    assert np.isfinite(plan.execute_adjoint(modes)[0]).all()


def test_points_are_the_plans_own():
    x = np.random.default_rng(3).uniform(-np.pi, np.pi, 50)
    plan = nufft.Plan(2, (8,), eps=1e-9)
    plan.setpts(x)
    modes = np.arange(8.0) + 1j
    before = plan.execute(modes)
    x[:] = np.nan
    np.testing.assert_allclose(plan.execute_gradient(modes)[0], before, atol=1e-7)
