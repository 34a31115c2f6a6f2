# SPDX-License-Identifier: BSD-3-Clause
"""Square roots of the mobility against the dense root, and the covariance of both kinds of noise."""

import numpy as np
import pytest
from scipy import stats
from scipy.linalg import sqrtm

from mobility import mobility
from particlemesh.apps.brownian import RPY
from particlemesh.apps.brownian.square_root import square_root

COUNT, LENGTH = 25, 8.0
X = np.random.default_rng(1).uniform(0, LENGTH, (COUNT, 3))
RADII = {"one": 1.0, "two": np.where(np.arange(COUNT) % 2, 1.0, 0.5)}


@pytest.mark.parametrize("kind", RADII)
def test_lanczos_is_the_dense_root(kind):
    root = sqrtm(mobility((LENGTH,) * 3, X, RADII[kind])).real
    rpy = RPY((LENGTH,) * 3, RADII[kind], viscosity=1.0, accuracy=1e-9).set_positions(X)
    z = np.random.default_rng(2).normal(size=(4, COUNT, 3))
    exact = (z.reshape(4, -1) @ root).reshape(z.shape)
    for tolerance in (1e-2, 1e-6):
        for part in (slice(0, 1), slice(0, 4)):
            error = np.linalg.norm(rpy.square_root(z[part], tolerance=tolerance) - exact[part])
            assert error < tolerance * np.linalg.norm(exact[part])
            assert rpy.info.estimate <= tolerance
    together = rpy.info.iterations
    rpy.square_root(z[0], tolerance=1e-6)
    assert together <= rpy.info.iterations < 40


@pytest.mark.parametrize("method", ["lanczos", "split"])
@pytest.mark.parametrize("kind", RADII)
def test_noise_has_the_covariance_of_the_mobility(kind, method):
    exact = mobility((LENGTH,) * 3, X, RADII[kind])
    rpy = RPY((LENGTH,) * 3, RADII[kind], viscosity=1.0, accuracy=1e-4).set_positions(X)
    samples = rpy.noise(np.random.default_rng(3), 1500, method=method, tolerance=1e-4).reshape(1500, -1)
    white = np.linalg.solve(np.linalg.cholesky(exact), samples.T)
    # Normal numbers of variance 1 that are independent: by Kolmogorov and Smirnov, and by the sum of squares.
    assert stats.kstest(white.ravel(), "norm").pvalue > 1e-3
    assert stats.kstest((white**2).sum(0), "chi2", args=(3 * COUNT,)).pvalue > 1e-3
    spread = np.linalg.eigvalsh(white @ white.T / 1500)
    edge = np.sqrt(3 * COUNT / 1500)
    assert (1 - edge) ** 2 - 0.06 < spread[0] < spread[-1] < (1 + edge) ** 2 + 0.08


def test_split_iterates_less_and_equal_generators_give_equal_noise():
    rpy = RPY((LENGTH,) * 3).set_positions(X)
    first, second = (rpy.noise(np.random.default_rng(4)) for _ in range(2))
    assert np.array_equal(first, second)
    split = rpy.info.iterations
    rpy.noise(np.random.default_rng(4), method="lanczos")
    assert 0 < split <= rpy.info.iterations


def test_the_root_is_exact_in_an_invariant_space_and_of_dependent_or_zero_vectors():
    matrix = np.diag([1.0, 4.0, 9.0, 16.0])
    calls = []

    def product(v):
        calls.append(len(v))
        return v @ matrix

    z = np.array([[1.0, 1.0, 0.0, 0.0], [2.0, 2.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]])
    y, info = square_root(product, z, 1e-12, np)
    assert np.allclose(y, z @ np.sqrt(matrix), atol=1e-13)
    assert calls == [1, 1]
    assert info.iterations == 2
    y, info = square_root(product, 0 * z, 1e-12, np)
    assert not y.any()
    assert info.iterations == 0
    many = np.random.default_rng(5).normal(size=(150, 4))
    assert np.allclose(square_root(product, many, 1e-12, np)[0], many @ np.sqrt(matrix))


def test_an_operator_that_is_not_positive_is_refused():
    with pytest.raises(ValueError, match="negative eigenvalue"):
        square_root(lambda v: v @ np.diag([1.0, -0.5]), np.ones((1, 2)), 1e-8, np)


def test_a_tolerance_that_rounding_hides_warns():
    matrix = np.diag(np.geomspace(1e-6, 1, 300)).astype(np.float32)
    with pytest.warns(UserWarning, match="may not reach it"):
        square_root(lambda v: v @ matrix, np.ones((1, 300), np.float32), 1e-15, np)
