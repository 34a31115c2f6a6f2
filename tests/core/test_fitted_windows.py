# SPDX-License-Identifier: BSD-3-Clause
"""Oracles for Kaiser-Bessel and prolate windows, and laws of fits."""

import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import i0, i0e

from particlemesh.window.window import MAX_SUPPORT, bspline, fitted, kaiser_bessel, prolate


@pytest.mark.parametrize("sigma", [1.25, 2.0, 2.6])
@pytest.mark.parametrize("support", range(2, MAX_SUPPORT + 1))
def test_kaiser_bessel_equals_its_closed_forms(support, sigma):
    window = kaiser_bessel(support, sigma=sigma)
    beta = np.pi * support * (1 - 1 / (2 * sigma))
    x = np.linspace(-support / 2, support / 2, 402)[1:-1].astype(np.longdouble)
    root = np.sqrt(1 - (2 * x / support) ** 2)
    exact = i0e((beta * root).astype(float)) * np.exp(beta * (root - 1)) / i0e(beta)
    np.testing.assert_allclose(window(x.astype(float)), exact.astype(float), atol=3e-15)
    k = np.linspace(0, 12, 101)
    root = np.sqrt((beta**2 - (k * support / 2) ** 2).astype(complex))
    closed = (support * np.sinh(root) / root).real / i0(beta)
    np.testing.assert_allclose(window.fourier(k), closed, atol=1e-13)
    assert window.value_error <= 2e-15
    assert window.derivative_error <= 1e-12


def test_kaiser_bessel_takes_a_shape_or_an_oversampling_factor():
    assert kaiser_bessel(6) == kaiser_bessel(6, sigma=2.0) == kaiser_bessel(6, 0.75 * math.pi * 6)
    assert kaiser_bessel(6, sigma=1.5).name == "kaiser_bessel6(sigma=1.5)"


def wave(shape, x):
    """The prolate function as an eigenvector of its definition: its band-limited part is largest within [-1, 1]."""
    points, weights = np.polynomial.legendre.leggauss(200)
    root = np.sqrt(weights)
    kernel = np.sinc(shape / np.pi * (points[:, None] - points)) * root[:, None] * root * shape / np.pi
    _, vectors = np.linalg.eigh(kernel)
    # The integral equation continues the eigenvector to any x.
    at_points = vectors[:, -1] * root
    continued = np.sinc(shape / np.pi * (np.append(x, 0.0)[:, None] - points)) @ at_points
    return continued[:-1] / continued[-1]


# Beyond shape 8 the largest eigenvalues of the definition agree to rounding: eigh cannot part them.
@pytest.mark.parametrize(("support", "sigma"), [(2, 1.1), (2, 2.0), (3, 2.0), (4, 1.25), (5, 1.3)])
def test_prolate_equals_its_definition(support, sigma):
    x = np.linspace(-support / 2, support / 2, 202)[1:-1]
    exact = wave(math.pi * support * (1 - 1 / (2 * sigma)) - 0.05, 2 * x / support)
    np.testing.assert_allclose(prolate(support, sigma)(x), exact, atol=1e-11)


@pytest.mark.parametrize("sigma", [1.1, 1.25, 2.0, 2.6])
@pytest.mark.parametrize("support", range(2, MAX_SUPPORT + 1))
def test_prolate_solves_its_differential_equation(support, sigma):
    """(1 - t^2) y'' - 2 t y' - c^2 t^2 y = -chi y, with one chi everywhere and no zero of y: the order is 0."""
    window, shape = prolate(support, sigma), math.pi * support * (1 - 1 / (2 * sigma)) - 0.05
    assert window.value_error <= 2e-15
    assert window.derivative_error <= 1e-12
    series = np.polynomial.Chebyshev.interpolate(lambda t: window(t * support / 2 * (1 - 1e-15)), 100)
    t = np.linspace(-1, 1, 301)
    y = series(t)
    assert (y > 0).all()
    assert y.max() == pytest.approx(1, abs=2e-15)
    left = (1 - t**2) * series.deriv(2)(t) - 2 * t * series.deriv()(t) - shape**2 * t**2 * y
    chi = -(left @ y) / (y @ y)
    np.testing.assert_allclose(left, -chi * y, atol=1e-9)


@pytest.mark.parametrize("window", [bspline(4), bspline(16), kaiser_bessel(15), prolate(16, 2.6), prolate(2, 1.1)])
def test_many_wavenumbers_are_interpolated_and_few_are_exact(window):
    k = np.random.default_rng(7).uniform(-25, 25, (50, 101))
    k[0, :3] = 0, math.pi, -2 * math.pi
    many, few = window.fourier(k), [float(window.fourier(x)) for x in k[0]]
    np.testing.assert_allclose(many[0], few, atol=1e-14 * float(window.fourier(0.0)))
    np.testing.assert_array_equal(window.fourier(-k), many)
    assert np.isnan(window.fourier([math.nan, 1.0])[0])


def test_a_larger_tolerance_gives_a_lower_degree():
    degrees = [prolate(7, 2.0, tol=tol).degree for tol in (1e-15, 1e-10, 1e-7)]
    assert degrees == sorted(degrees, reverse=True)
    assert len(set(degrees)) == 3


def test_fits_improve_with_the_degree_and_the_lowest_is_taken():
    def gaussian(x):
        return np.exp(-(x**2))

    errors = [fitted(gaussian, 4, 1.0, degree=n).value_error for n in (4, 6, 8, 10)]
    assert errors == sorted(errors, reverse=True)
    window = fitted(gaussian, 4, 1e-6)
    assert max(window.value_error, window.derivative_error) <= 1e-6
    with pytest.raises(ValueError, match=f"at degree {window.degree - 1}, the best tried"):
        fitted(gaussian, 4, 1e-6, degree=window.degree - 1)


@pytest.mark.parametrize("support", [3, 4])
def test_differences_measure_what_a_given_derivative_measures(support):
    def gaussian(x):
        return np.exp(-(x**2))

    by_differences = fitted(gaussian, support, 1e-2, degree=7)
    exact = fitted(gaussian, support, 1e-2, degree=7, derivative=lambda x: -2 * x * gaussian(x))
    assert by_differences == exact
    assert by_differences.derivative_error == pytest.approx(exact.derivative_error, rel=0.3)


def test_an_exact_window_survives_a_fit():
    window = fitted(bspline(4), 4, 1e-9, degree=3)
    np.testing.assert_allclose(window.table, bspline(4).table, atol=1e-14)
    assert window.order == 2


@pytest.mark.parametrize("support", [2, 5, 6])
def test_normalised_windows(support):
    def gaussian(x):
        return 3 * np.exp(-2 * x**2)

    fractions = np.linspace(-0.5, 0.5, 41)[:-1]
    weights = fitted(gaussian, support, 1e-5, normalise="sum").weights(fractions)
    np.testing.assert_allclose(weights.sum(axis=-1), 1, atol=1e-13)
    nodes = np.arange(support) - (support - 1) / 2 - fractions[:, None]
    np.testing.assert_allclose(weights, gaussian(nodes) / gaussian(nodes).sum(axis=1)[:, None], atol=1e-5)
    window = fitted(gaussian, support, 1e-5, normalise="integral")
    assert float(window.fourier(0.0)) == pytest.approx(1, abs=1e-9)
    ratio = window(0.2) / fitted(gaussian, support, 1e-5)(0.2)
    assert 1 / ratio == pytest.approx(quad(gaussian, -support / 2, support / 2)[0], rel=1e-5)
