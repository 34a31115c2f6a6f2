# SPDX-License-Identifier: BSD-3-Clause
"""Laws that every window keeps, oracles for the exact and the fitted ones, and refusals."""

import math
import pickle
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.interpolate import BSpline

from particlemesh.window import window as named
from particlemesh.window.polynomials import at
from particlemesh.window.window import (
    MAX_SUPPORT,
    WINDOWS,
    Window,
    bspline,
    fitted,
    kaiser_bessel,
    m4prime,
    peskin4,
    prolate,
    window_of,
)

ORDERS = range(1, MAX_SUPPORT + 1)
ALL = sorted(WINDOWS)
Z = np.concatenate([np.linspace(-0.5, 0.5, 41)[:-1], [np.nextafter(0.5, 0), -0.0, 5e-324, np.nextafter(-0.5, 0)]])


def distances(window, z):
    """Signed distances of a stencil's nodes from the particle."""
    return np.arange(window.support) - (window.support - 1) / 2 - np.asarray(z)[..., None]


def peskin(x):
    """The 4-point function, written from its definition by branches."""
    r = abs(x)
    if r >= 2:
        return 0.0
    if r >= 1:
        return (5 - 2 * r - math.sqrt(-7 + 12 * r - 4 * r * r)) / 8
    return (3 - 2 * r + math.sqrt(1 + 4 * r - 4 * r * r)) / 8


# Every window


def test_every_function_that_returns_a_window_has_a_name_in_the_table():
    """Laws of windows, and users who give a name, know no other."""
    returned = {
        thing.__name__
        for name, thing in vars(named).items()
        if getattr(thing, "__module__", "") == named.__name__ and name[0] != "_" and name != "window_of"
        and getattr(thing, "__annotations__", {}).get("return") == "Window"
    }  # fmt: skip
    assert returned - {getattr(make, "func", make).__name__ for make in WINDOWS.values()} == set(), "add to WINDOWS"
    assert {"bspline", "m4prime"} <= returned


@pytest.mark.parametrize("name", ALL)
def test_weights_are_the_function_at_the_nodes(name):
    window = window_of(name)
    # Dyadic, so that distances are exact also at the knots, where windows may jump.
    z = np.linspace(-0.5, 0.5, 33)[:-1]
    x = distances(window, z)
    np.testing.assert_allclose(window.weights(z), window(x), atol=1e-15)
    np.testing.assert_allclose(window.derivative_weights(z), -window.derivative(x), atol=1e-14)


@pytest.mark.parametrize("support", ORDERS)
def test_no_distance_within_an_ulp_of_a_knot_takes_the_next_piece(support):
    steps = Window("steps", [[min(j, support - 1 - j) + 1] for j in range(support)])
    for j in range(support):
        knot = j - support / 2
        beyond = 0 if j == 0 else steps(knot - 0.5)
        assert steps(knot) == beyond
        assert steps(np.nextafter(knot, -99)) == beyond
        assert steps(np.nextafter(knot, 99)) == steps(knot + 0.5)


@pytest.mark.parametrize("name", ALL)
def test_windows_are_symmetric_and_end_with_their_support(name):
    window = window_of(name)
    x = np.random.default_rng(0).uniform(-window.support / 2, window.support / 2, 200)
    np.testing.assert_allclose(window(x), window(-x), atol=1e-15)
    np.testing.assert_allclose(window.derivative(x), -window.derivative(-x), atol=1e-14)
    beyond = np.nextafter(window.support / 2, 99)
    assert (window([beyond, -beyond, 40.0, np.inf, -np.inf]) == 0).all()
    assert np.isnan(window(np.nan))


@pytest.mark.parametrize("name", ALL)
def test_derivative_equals_differences(name):
    window = window_of(name)
    z = np.linspace(-0.49, 0.49, 23)
    differences = (window.weights(z + 1e-5) - window.weights(z - 1e-5)) / 2e-5
    np.testing.assert_allclose(window.derivative_weights(z), differences, atol=1e-8)


@pytest.mark.parametrize("name", ["ngp", "cic", "tsc", "bspline8", "m4prime", "peskin4", "kaiser_bessel5"])
@pytest.mark.parametrize("k", [0.0, 1e-9, 0.3, math.pi, 7.7, 40.0])
def test_fourier_equals_quadrature(name, k):
    window = window_of(name)
    knots = np.arange(window.support + 1) - window.support / 2
    pieces = (quad(lambda x: float(window(x)) * math.cos(k * x), a, b, epsabs=1e-14)[0] for a, b in pairwise(knots))
    total = float(window.fourier(0.0))
    assert float(window.fourier(k)) == pytest.approx(sum(pieces), abs=2e-13 * total)


@pytest.mark.parametrize("name", ALL)
def test_symbol_is_the_transform_of_what_a_particle_on_a_node_spreads(name):
    window = window_of(name)
    first = -math.ceil(window.support / 2) + 1
    z = -first - (window.support - 1) / 2
    for nodes in (1, 2, 5, 8, 31):
        field = np.zeros(nodes)
        np.add.at(field, (first + np.arange(window.support)) % nodes, window.weights(z))
        # The real part shares a jump at the support's ends between both.
        np.testing.assert_allclose(window.symbol(nodes), np.fft.fft(field).real, atol=1e-13)


@pytest.mark.parametrize("name", ALL)
def test_moments_equal_sums(name):
    window = window_of(name)
    for m, moment in enumerate(window.moments(3)):
        sums = (window.weights(Z) * distances(window, Z) ** m).sum(axis=-1)
        values = np.polyval([float(c) for c in moment[::-1]], Z)
        np.testing.assert_allclose(values, sums, atol=1e-11 * (1 + abs(sums).max()))


@pytest.mark.parametrize("name", ALL)
def test_windows_are_values(name):
    window = window_of(name)
    twin = pickle.loads(pickle.dumps(window))
    assert twin == window
    assert hash(twin) == hash(window)
    assert repr(twin) == repr(window)
    assert twin.table.shape == (window.support, window.degree + 1)
    assert not twin.table.flags.writeable
    assert window_of(window) is window


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_dtypes_and_shapes_are_kept(dtype):
    z = np.zeros((2, 3), dtype)
    for result in (bspline(5).weights(z), bspline(5).derivative_weights(z)):
        assert result.dtype == dtype
        assert result.shape == (2, 3, 5)
    assert bspline(5)(z).dtype == bspline(5).derivative(z).dtype == dtype
    assert bspline(5).weights(0).shape == (5,)
    assert bspline(5).fourier(z).shape == (2, 3)


# B-splines and M'4


@pytest.mark.parametrize("order", ORDERS)
def test_bspline_equals_scipy(order):
    window = bspline(order)
    spline = BSpline.basis_element(np.arange(order + 1) - order / 2, extrapolate=False)
    x = np.random.default_rng(order).uniform(-order / 2, order / 2, 500)
    np.testing.assert_allclose(window(x), spline(x), rtol=1e-12, atol=3e-16)
    if order > 1:
        np.testing.assert_allclose(window.derivative(x), spline.derivative()(x), atol=1e-13)


@pytest.mark.parametrize("order", ORDERS)
def test_float_evaluation_equals_exact_evaluation(order):
    window = bspline(order)
    exact = [[float(at(piece, Fraction(z))) for piece in window.polynomials] for z in Z.tolist()]
    np.testing.assert_allclose(window.weights(Z), exact, rtol=0, atol=2e-16)


@pytest.mark.parametrize("order", ORDERS)
def test_bspline_sums_to_one_exactly_and_is_centred(order):
    window = bspline(order)
    sum_, first, second = window.moments(2)
    assert sum_ == (1,)
    assert first == ((0,) if order > 1 else (0, -1))
    if order > 2:
        assert second == (Fraction(order, 12),)
    assert window.order == min(order, 2)
    assert window.smoothness == order - 2
    assert window.exact
    np.testing.assert_allclose(window.weights(Z).sum(axis=-1), 1, atol=5e-16)


@pytest.mark.parametrize("order", ORDERS)
def test_bspline_transform_is_a_power_of_sinc(order):
    k = np.concatenate([np.linspace(-20, 20, 101), [0, 1e-12, 1e-3, np.pi, 200, 1e5]])
    np.testing.assert_allclose(bspline(order).fourier(k), np.sinc(k / (2 * np.pi)) ** order, atol=1e-13)


def test_m4prime_equals_its_published_form():
    def published(x):
        r = abs(x)
        near = 1 - Fraction(5, 2) * r**2 + Fraction(3, 2) * r**3
        return near if r <= 1 else (2 - r) ** 2 * (1 - r) / 2

    window = m4prime()
    for j, piece in enumerate(window.polynomials):
        for z in (Fraction(n, 20) for n in range(-10, 11)):
            assert at(piece, z) == published(j - Fraction(3, 2) - z)
    assert window.moments(2) == ((1,), (0,), (0,))
    assert window.order == 3
    assert window.smoothness == 1
    assert window(0.0) == 1
    np.testing.assert_array_equal(window([-1.0, 1.0]), 0)


@pytest.mark.parametrize(("name", "order"), [("ngp", 1), ("cic", 2), ("linear", 2), ("tsc", 3), ("pcs", 4)])
def test_names_of_low_orders(name, order):
    assert window_of(name) == bspline(order)


# Fitted windows


def test_peskin_equals_its_definition():
    window = peskin4()
    x = np.linspace(-1.999, 1.999, 401)
    np.testing.assert_allclose(window(x), [peskin(r) for r in x], atol=1.1 * window.value_error / 2)
    assert window.value_error < 1e-8
    assert window.derivative_error < 2e-6
    w = window.weights(Z)
    np.testing.assert_allclose(w[:, ::2].sum(axis=1), 0.5, atol=1e-14)
    np.testing.assert_allclose((w**2).sum(axis=1), 3 / 8, atol=1e-8)
    assert (window.order, window.smoothness) == (2, 1)


# Refusals


def semicircle(x):
    return np.exp(6 * (np.sqrt(np.maximum(1 - (x / 2) ** 2, 0)) - 1))


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        # Its slope is infinite at the ends of the support.
        (
            lambda: fitted(semicircle, 4, 1e-6),
            ValueError,
            r"relative to the largest value are \S+ \(values\) and \S+ \(derivative\)",
        ),
        (lambda: fitted(lambda x: np.maximum(1 - abs(x), 0), 3, 1e-3), ValueError, "tol is 0.001"),
        (lambda: fitted(np.exp, 2, 1e-3), ValueError, r"not symmetric; give one with phi\(-x\)"),
        (lambda: fitted(lambda x: 1 / (abs(x) < 0.6), 2, 1e-3), ValueError, "the function is not finite at"),
        (
            lambda: fitted(lambda x: np.exp(-x * x) + 0j, 4, 1e-3),
            TypeError,
            "returned dtype complex128; it must return real",
        ),
        (lambda: fitted(lambda x: x.astype(object) + 1j, 4, 1e-3), TypeError, "values that are no real numbers"),
        (
            lambda: fitted(np.cos, 4, 1e-3, derivative=lambda x: -np.sin(x) + 0j),
            TypeError,
            "returned dtype complex128; it must return real",
        ),
        (lambda: fitted(lambda x: 1.0, 2, 1e-3), ValueError, r"returned shape \(\) for distances of shape"),
        (lambda: fitted(lambda x: 0 * x, 2, 1e-3, normalise="sum"), ValueError, "cannot be normalised to 1"),
        (
            lambda: fitted(np.cos, 2, 1e-3, normalise="area"),
            ValueError,
            "normalise is 'area'; choose from None, 'sum'",
        ),
        (lambda: fitted(np.cos, 2, 0.0), ValueError, "tol is 0.0; one positive number"),
        (lambda: fitted(np.cos, 17, 1e-3), ValueError, "support is 17; 1 to 16"),
        (lambda: fitted(np.cos, 2, 1e-3, degree=25), ValueError, "degree is 25; 0 to 24"),
        (lambda: kaiser_bessel(4, 300.0), ValueError, r"window 'kaiser_bessel4\(300\)': at degree"),
        (lambda: kaiser_bessel(1), ValueError, "support is 1; 2 to 16"),
        (lambda: kaiser_bessel(4, 9.0, sigma=2.0), ValueError, "beta is 9.0 and sigma is 2.0; give one of them"),
        (lambda: prolate(17), ValueError, "support is 17; 2 to 16"),
        (lambda: prolate(4, 1.0), ValueError, "sigma is 1.0; the mesh must be finer"),
        (lambda: prolate(4, 2.0, tol=1e-18), ValueError, "window 'prolate4': at degree"),
        (lambda: bspline(0), ValueError, "order is 0; 1 to 16 is allowed"),
        (lambda: bspline(17), ValueError, "order is 17"),
        (lambda: bspline(2.0), TypeError, "order is 2.0; an integer"),
        (
            lambda: window_of("bspline17"),
            ValueError,
            "window is 'bspline17'; did you mean 'bspline.*Names are 'ngp', 'cic', .*'m4prime'",
        ),
        (lambda: window_of("CIC"), ValueError, "window is 'CIC'; did you mean 'cic'. Names are .{,250}$"),
        (lambda: window_of("sinc"), ValueError, "window is 'sinc'"),
        (lambda: window_of(4), TypeError, "window is 4; give a Window or a name: 'ngp', 'cic'"),
        (lambda: Window("w", ()), ValueError, "window 'w' has 0 polynomials; give 1 to 16"),
        (lambda: Window("w", ((),)), ValueError, "empty polynomial"),
        (lambda: Window("w", ((1j,),)), TypeError, "the coefficient 1j; give a Fraction, int or float"),
        (lambda: Window("w", ((np.nan,),)), ValueError, "the coefficient nan; every coefficient must be finite"),
        (lambda: Window("w", ((1, 2),)), ValueError, "not symmetric: polynomial 0 has 2 at power 1"),
        (
            lambda: Window("w", ((1,), (2,))),
            ValueError,
            r"not symmetric: polynomial 0 has 1 .* polynomial 1 has 2",
        ),
        (lambda: Window("w", ((1.0,), (1.0 + 1e-9,))), ValueError, "not symmetric"),
        (lambda: Window("w", ((*[0] * 26, 1),)), ValueError, "the degree of window 'w' is 26; 0 to 24"),
        (lambda: bspline(2).symbol(0), ValueError, "nodes is 0"),
        (lambda: bspline(2).moments(-1), ValueError, "order is -1; 0 to 32"),
    ],
)
def test_refusals(call, error, text):
    with np.errstate(divide="ignore"), pytest.raises(error, match=text):
        call()


def test_trailing_zeros_and_numbers_of_any_kind_make_the_same_window():
    window = Window("mine", [[Fraction(1, 2), -1, 0], [Fraction(1, 2), np.int64(1)]])
    assert window == bspline(2)
    assert window.degree == 1
    assert window.exact
    assert not Window("mine", [[0.5, -1.0], [0.5, 1.0]]).exact
