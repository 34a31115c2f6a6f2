# SPDX-License-Identifier: BSD-3-Clause
"""Errors of unlucky clouds: ends of boxes, clusters, few modes, one point, any oversampling; within 2 eps or warned."""

import warnings

import numpy as np

import nufft_cases as cases
from particlemesh.apps import nufft

CLOUDS = 10_000  # with --thorough
VECTORS = 16  # of random numbers: the sum over one mode, or at one place, is small by chance
KINDS = ("uniform", "ends", "near the ends", "cluster", "two clusters", "nodes", "one point")


def cloud(rng, kind, ndim, count, half):
    """Points (d, N) within ±half."""
    uniform = rng.uniform(-half, half, (ndim, count))
    corners = half * rng.choice([-1.0, 1.0], (ndim, count))
    match kind:
        case "ends":
            return corners
        case "near the ends":
            return corners * (1 - 0.03 * rng.random((ndim, count)))
        case "cluster":
            return np.clip(uniform[:, :1] + 1e-3 * uniform, -half, half)
        case "two clusters":
            return np.clip(rng.choice(uniform[:, :2].T, count).T + 1e-2 * uniform, -half, half)
        case "nodes":
            return half * np.round(uniform / half * 8) / 8
        case "one point":
            return np.repeat(uniform[:, :1], count, 1)
    return uniform


def case(seed):
    """One transform of a cloud: its error over eps, and over what a warning names."""
    rng = np.random.default_rng(seed)
    nufft_type, ndim = int(rng.integers(1, 4)), int(rng.integers(1, 4))
    dtype = str(rng.choice(["complex64", "complex128"]))
    eps = 10.0 ** -int(rng.integers(1, 7 if dtype == "complex64" else 13))
    upsampfac = float(rng.choice([0, 0, 1.1, 1.25, 1.5, 2, 3]))
    kind, count = rng.choice(KINDS), int(rng.choice([1, 2, 10, 100, 1500]))
    x = cloud(rng, kind, ndim, count, np.pi).astype(cases.REAL[dtype])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if nufft_type == 3:
            targets = int(rng.choice([1, 30]))
            s = cloud(rng, rng.choice(KINDS), ndim, targets, rng.choice([0.2, 3, 12, 80 / ndim**2]))
            s = s.astype(x.dtype)
            plan = nufft.Plan(3, ndim, VECTORS, eps=eps, dtype=dtype, upsampfac=upsampfac)
            plan.setpts(*x, *[None] * (3 - ndim), *s)
            data = cases.numbers(rng, (VECTORS, count), dtype)
            exact, outputs = cases.sums(data, x, s, 1), targets
        else:
            modes = tuple(rng.integers(1, (60, 20, 9)[ndim - 1], ndim).tolist())
            plan = nufft.Plan(nufft_type, modes, VECTORS, eps=eps, dtype=dtype, upsampfac=upsampfac)
            plan.setpts(*x)
            if nufft_type == 1:
                data, outputs = cases.numbers(rng, (VECTORS, count), dtype), np.prod(modes)
                exact = cases.modes_of(data, x, modes, 1)
            else:
                data, outputs = cases.numbers(rng, (VECTORS, *modes), dtype), count
                exact = cases.values_of(data, x, modes, -1)
        made = plan.execute(data)
    # Where terms cancel, errors are relative to what as many terms of random signs would give.
    scale = max(np.linalg.norm(exact), np.linalg.norm(data) * np.sqrt(outputs))
    named = max([plan.eps, *(plan._core.sizes.error for w in caught if "rounding and aliases allow" in str(w.message))])
    return np.linalg.norm(made - exact) / scale, eps, named, bool(caught), plan


def test_errors_are_within_two_eps_or_a_warning_names_them(request):
    warnings_given, count = 0, CLOUDS if request.config.getoption("--thorough") else 30
    for seed in range(count):
        error, eps, named, warned, plan = case(seed)
        warnings_given += warned
        assert error <= 2 * (named if warned else eps), (seed, plan, error)
    assert 0 < warnings_given < 0.3 * count
