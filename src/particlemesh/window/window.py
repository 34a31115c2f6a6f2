# SPDX-License-Identifier: BSD-3-Clause
"""Every window, exact or fitted, and its names.

To add a window, write one more function that returns a `Window`, and add its name to `WINDOWS`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.polynomial import chebyshev, polynomial
from numpy.typing import NDArray
from scipy.special import i0, i1

from particlemesh import checks
from particlemesh.window import admissible
from particlemesh.window.polynomials import Polynomial, add, multiply, symmetric
from particlemesh.window.shape_function import MAX_DEGREE, MAX_SUPPORT, Window

__all__ = [
    "MAX_DEGREE",
    "MAX_SUPPORT",
    "WINDOWS",
    "Window",
    "bspline",
    "fitted",
    "kaiser_bessel",
    "m4prime",
    "peskin4",
    "window_of",
]

Shape = Callable[[NDArray[np.float64]], Any]

_DEGREES = range(1, 17)  # that `fitted` tries by default


@lru_cache
def bspline(order: int) -> Window:
    """Return the exact cardinal B-spline of an order.

    Order 1 is nearest grid point, 2 linear (cloud in cell), 3 triangular shaped cloud, 4 piecewise
    cubic. The coefficients come from the recurrence for equidistant knots [deboor]_. Hockney and Eastwood
    [hockney_eastwood]_ derive the low orders as clouds; Essmann et al. [essmann1995]_ use B-splines for
    Ewald sums.

    Parameters
    ----------
    order : int
        Support in nodes, 1 to 16; the degree is one less.

    Raises
    ------
    ValueError, TypeError
        If `order` is not an integer of 1 to 16.

    Examples
    --------
    >>> [tuple(map(str, piece)) for piece in bspline(2).polynomials]
    [('1/2', '-1'), ('1/2', '1')]
    """
    order = checks.integer(order, "order", 1, MAX_SUPPORT)
    pieces: list[Polynomial] = [(Fraction(1),)]
    for n in range(2, order + 1):
        # Both neighbours of order n - 1 have the same centred fraction z, so the recurrence needs no shift.
        padded: list[Polynomial] = [(Fraction(0),), *pieces, (Fraction(0),)]
        pieces = []
        for j in range(n):
            rising: Polynomial = (Fraction(2 * (n - j) - 1, 2 * (n - 1)), Fraction(1, n - 1))
            falling: Polynomial = (Fraction(2 * j + 1, 2 * (n - 1)), Fraction(-1, n - 1))
            pieces.append(add(multiply(falling, padded[j + 1]), multiply(rising, padded[j])))
    return Window(f"bspline{order}", tuple(pieces), cite="deboor")


@lru_cache
def m4prime() -> Window:
    """Return Monaghan's exact M'4: support 4, once differentiable, third order [monaghan1985]_.

    The extrapolation ``(3 M4 + x M4') / 2`` removes the second moment of the cubic B-spline M4. Vortex
    methods use this window. It is negative beyond distance 1.

    Examples
    --------
    >>> m4prime().order, m4prime().smoothness
    (3, 1)
    """
    pieces = []
    for j, spline in enumerate(bspline(4).polynomials):
        # x = j - 3/2 - z and d/dx = -d/dz.
        distance: Polynomial = (Fraction(2 * j - 3, 2), Fraction(-1))
        slope = tuple(-m * c for m, c in enumerate(spline))[1:]
        pieces.append(tuple(c / 2 for c in add(multiply((Fraction(3),), spline), multiply(distance, slope))))
    return Window("m4prime", tuple(pieces), cite="monaghan1985")


def fitted(
    function: Shape,
    support: int,
    tol: float,
    *,
    degree: int | None = None,
    normalise: str | None = None,
    derivative: Shape | None = None,
    name: str = "fitted",
    cite: str = "",
) -> Window:
    """Return a window whose values and derivative agree with a function's to a tolerance.

    Each node's piece is interpolated at the same Chebyshev points of z in [-1/2, 1/2]. Linear identities of the
    function that are polynomial in z (weights that sum to 1, a zero first moment) therefore hold to rounding
    after the fit, at any tolerance.

    Parameters
    ----------
    function : callable
        phi of a float64 array of distances in node spacings. It must be symmetric, and smooth between the
        integers (even support) or the half-integers (odd support).
    support : int
        Nodes per axis, 1 to 16. The window is zero beyond ``support / 2``.
    tol : float
        Largest allowed error of the values and of the derivative per node spacing, relative to max ``|phi|``.
    degree : int, optional
        Degree of the polynomials, up to 24. By default the lowest of 1 to 16 that meets `tol`.
    normalise : {None, "sum", "integral"}
        "integral" divides by the integral of phi, which is also the mean sum of a particle's weights.
        "sum" divides by the sum of the weights at each z, so that every particle's weights sum to 1 to
        rounding. This changes phi by the variation of its sum.
    derivative : callable, optional
        dphi/dx, called like `function`. By default central differences measure the derivative's error, to about
        1e-10, except within 0.002 of the pieces' ends.
    name, cite : str
        As in `Window`.

    Returns
    -------
    Window
        With its measured `value_error` and `derivative_error`.

    Raises
    ------
    ValueError
        If no allowed degree meets `tol` (the message has the errors of the best), if `function` is not symmetric
        or not finite, or if its sum or integral vanishes and `normalise` divides by it.
    TypeError
        If `function` or `derivative` returns values of no real type, even with zero imaginary parts.

    Examples
    --------
    >>> window = fitted(lambda x: np.exp(-2 * x**2), support=6, tol=1e-6, normalise="sum")
    >>> window.value_error < 1e-6, bool(abs(window.weights(0.3).sum() - 1) < 1e-14)
    (True, True)

    A function with a kink inside a piece raises an error:

    >>> fitted(lambda x: np.maximum(1 - abs(x), 0), 3, tol=1e-6)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    ValueError: window 'fitted': ... move kinks of the function to the ends of the pieces.
    """
    support = checks.integer(support, "support", 1, MAX_SUPPORT)
    checks.one_of(normalise, "normalise", (None, "sum", "integral"))
    checks.positive(tol, "tol")
    degrees = _DEGREES if degree is None else [checks.integer(degree, "degree", 0, MAX_DEGREE)]
    # The ends are avoided: the function may belong to the next piece there.
    z = np.cos(np.pi * (np.arange(2000) + 0.5) / 2000) / 2
    columns, slopes = _columns(function, derivative, support, normalise, name)
    values, z_slopes = columns(z), z if derivative is not None else z * (1 - 8e-3)
    changes = slopes(z_slopes)
    height = np.abs(values).max()
    best = (math.inf, math.inf, 0)
    for n in degrees:
        table = _interpolated(columns, n)
        pieces = symmetric([tuple(row.tolist()) for row in table[support // 2 :]], support)
        table = np.array(pieces, dtype=np.float64)
        value_error = np.abs(polynomial.polyval(z, table.T) - values).max() / height
        derivative_error = np.abs(polynomial.polyval(z_slopes, polynomial.polyder(table.T)) - changes).max() / height
        if max(value_error, derivative_error) <= tol:
            return Window(name, pieces, cite, float(value_error), float(derivative_error))
        if max(value_error, derivative_error) < max(best[:2]):
            best = (value_error, derivative_error, n)
    raise ValueError(
        f"window {name!r}: at degree {best[2]}, the best tried, the errors relative to the largest value are "
        f"{best[0]:.1e} (values) and {best[1]:.1e} (derivative); tol is {tol:g}. Give a larger tol or a higher "
        f"degree (up to {MAX_DEGREE}), or move kinks of the function to the ends of the pieces."
    )


def _columns(
    function: Shape, derivative: Shape | None, support: int, normalise: str | None, name: str
) -> tuple[Shape, Shape]:
    """Return two functions of z: the normalised weights of all nodes, shape (support, n), and their derivatives."""
    nodes = (np.arange(support) - (support - 1) / 2)[:, None]

    def raw(z: NDArray[np.float64]) -> NDArray[np.float64]:
        return admissible.shape_values(function, nodes - z, name)

    def raw_slopes(z: NDArray[np.float64]) -> NDArray[np.float64]:
        if derivative is not None:
            return -admissible.shape_values(derivative, nodes - z, name)
        step = 1e-3
        near, far = raw(z + step) - raw(z - step), raw(z + 2 * step) - raw(z - 2 * step)
        return (8 * near - far) / (12 * step)

    points, weights = np.polynomial.legendre.leggauss(64)
    sample = raw(points / 2)
    admissible.symmetric_shape(sample, raw(-points / 2)[::-1], name)
    if normalise is None:
        return raw, raw_slopes
    integral = float((sample.sum(axis=0) * weights).sum() / 2)
    admissible.divisor(
        np.array(integral) if normalise == "integral" else sample.sum(axis=0), np.abs(sample).max(), name
    )
    if normalise == "integral":
        return lambda z: raw(z) / integral, lambda z: raw_slopes(z) / integral

    def slopes(z: NDArray[np.float64]) -> NDArray[np.float64]:
        values, changes = raw(z), raw_slopes(z)
        total = values.sum(axis=0)
        return (changes - values * (changes.sum(axis=0) / total)) / total

    return lambda z: (values := raw(z)) / values.sum(axis=0), slopes


def _interpolated(columns: Shape, degree: int) -> NDArray[np.float64]:
    t = chebyshev.chebpts1(degree + 1)
    series = np.linalg.solve(chebyshev.chebvander(t, degree), columns(t / 2).T)
    table = np.zeros_like(series)
    for j, coefficients in enumerate(series.T):
        powers = chebyshev.cheb2poly(coefficients)
        table[: len(powers), j] = powers
    return np.asarray((table * 2.0 ** np.arange(degree + 1)[:, None]).T)


@lru_cache
def kaiser_bessel(support: int, beta: float | None = None) -> Window:
    """Return a fitted Kaiser-Bessel window, ``I0(beta sqrt(1 - (2x/p)**2)) / I0(beta)``, of height 1.

    Non-uniform Fourier transforms use this window [barnett2019]_ and compensate for it in Fourier space. Its weights
    do not sum to 1, so use B-splines for PIC, and for PME without compensation.

    Parameters
    ----------
    support : int
        Nodes p per axis, 2 to 16.
    beta : float, optional
        Positive shape parameter. For a mesh oversampled by a factor ``sigma`` along each axis use
        ``pi p (1 - 1 / (2 sigma))``: the main lobe of the transform then ends where the first aliases begin. The
        default is ``3 pi p / 4``, for ``sigma = 2``.

    Raises
    ------
    ValueError
        If `beta` is so large that the fit misses 1e-9 at degree 16.

    Examples
    --------
    >>> import math
    >>> window = kaiser_bessel(6)
    >>> window.support, float(window(0.0).round(9)), window.value_error < 1e-9
    (6, 1.0, True)

    For a mesh oversampled by 1.5 along each axis:

    >>> kaiser_bessel(6, beta=math.pi * 6 * (1 - 1 / (2 * 1.5))).support
    6
    """
    support = checks.integer(support, "support", 2, MAX_SUPPORT)
    shape = 0.75 * math.pi * support if beta is None else checks.positive(beta, "beta")

    def function(x: NDArray[np.float64]) -> Any:
        return i0(shape * np.sqrt(1 - (2 * x / support) ** 2)) / i0(shape)

    def derivative(x: NDArray[np.float64]) -> Any:
        root = np.sqrt(1 - (2 * x / support) ** 2)
        return -shape * i1(shape * root) / root * (4 * x / support**2) / i0(shape)

    name = f"kaiser_bessel{support}" if beta is None else f"kaiser_bessel{support}({shape:g})"
    return fitted(function, support, 1e-9, derivative=derivative, name=name, cite="barnett2019")


@lru_cache
def peskin4() -> Window:
    """Return Peskin's 4-point window of the immersed boundary method [peskin2002]_, fitted.

    The method spreads forces of a boundary to a fluid's mesh and interpolates velocities back.

    Its sum, its zero first moment and its equal sums over even and odd nodes hold to rounding. Its values and
    the sum of its squares, 3/8, hold to the errors of the fit.

    Examples
    --------
    >>> window = peskin4()
    >>> window.order, bool(abs((window.weights(0.2) ** 2).sum() - 3 / 8) < 1e-8)
    (2, True)
    """

    def function(x: NDArray[np.float64]) -> Any:
        r = np.abs(x)
        inner, outer = np.minimum(r, 1), np.clip(r, 1, 2)
        near = (3 - 2 * inner + np.sqrt(1 + 4 * inner - 4 * inner**2)) / 8
        return np.where(r <= 1, near, (5 - 2 * outer - np.sqrt(-7 + 12 * outer - 4 * outer**2)) / 8)

    def derivative(x: NDArray[np.float64]) -> Any:
        r = np.abs(x)
        inner, outer = np.minimum(r, 1), np.clip(r, 1, 2)
        near = ((2 - 4 * inner) / np.sqrt(1 + 4 * inner - 4 * inner**2) - 2) / 8
        far = -((6 - 4 * outer) / np.sqrt(-7 + 12 * outer - 4 * outer**2) + 2) / 8
        return np.sign(x) * np.where(r <= 1, near, far)

    return fitted(function, 4, 2e-6, derivative=derivative, name="peskin4", cite="peskin2002")


DEFAULT = "bspline4"
WINDOWS: dict[str, Callable[[], Window]] = {
    "ngp": partial(bspline, 1),
    "cic": partial(bspline, 2),
    "linear": partial(bspline, 2),
    "tsc": partial(bspline, 3),
    "pcs": partial(bspline, 4),
    **{f"bspline{order}": partial(bspline, order) for order in range(1, MAX_SUPPORT + 1)},
    "m4prime": m4prime,
    "peskin4": peskin4,
    **{f"kaiser_bessel{support}": partial(kaiser_bessel, support) for support in range(2, MAX_SUPPORT + 1)},
}


def window_of(window: str | Window) -> Window:
    """Return a window from its name in `WINDOWS`, or the window itself.

    Raises
    ------
    ValueError
        If the name is unknown; the message lists all names.
    TypeError
        If `window` is neither a name nor a `Window`.

    Examples
    --------
    >>> window_of("cic") == bspline(2), window_of("bspline6")
    (True, Window('bspline6', support=6, degree=5))
    """
    if isinstance(window, Window):
        return window
    if not isinstance(window, str):
        raise TypeError(f"window is {window!r}; give a Window or one of the names {', '.join(WINDOWS)}.")
    return WINDOWS[checks.one_of(window, "window", tuple(WINDOWS))]()
