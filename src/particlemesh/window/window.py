# SPDX-License-Identifier: BSD-3-Clause
"""Every window, exact or fitted, and its names.

To add a window, write one more function that returns a `Window`, and add its name to `WINDOWS`.
"""

from __future__ import annotations

import difflib
import itertools
import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache, partial
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from particlemesh import checks
from particlemesh.window.fitting import Shape, fitted
from particlemesh.window.polynomials import Polynomial, add, multiply
from particlemesh.window.shape_function import MAX_DEGREE, MAX_SUPPORT, Window
from particlemesh.window.spheroidal import spheroidal

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
    "prolate",
    "window_of",
]


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
    pieces: list[Polynomial] = [(Fraction(1),)] if order == 1 else []
    # Both neighbours of one order less have the same centred fraction z, so the recurrence needs no shift.
    less: list[Polynomial] = [(Fraction(0),), *(bspline(order - 1).polynomials if order > 1 else ()), (Fraction(0),)]
    n = order - 1
    for j in range(order if n else 0):
        rising: Polynomial = (Fraction(2 * (order - j) - 1, 2 * n), Fraction(1, n))
        falling: Polynomial = (Fraction(2 * j + 1, 2 * n), Fraction(-1, n))
        pieces.append(add(multiply(falling, less[j + 1]), multiply(rising, less[j])))
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


@lru_cache
def kaiser_bessel(support: int, beta: float | None = None, *, sigma: float | None = None, tol: float = 2e-15) -> Window:
    """Return a fitted Kaiser-Bessel window, ``I0(beta sqrt(1 - (2x/p)**2)) / I0(beta)``, of height 1.

    Non-uniform Fourier transforms use this window [barnett2019]_ and compensate for it in Fourier space. Its weights
    do not sum to 1, so use B-splines for PIC, and for PME without compensation. At equal support :func:`prolate` is
    more accurate.

    Parameters
    ----------
    support : int
        Nodes p per axis, 2 to 16.
    beta : float, optional
        Positive shape parameter. The default is ``pi p (1 - 1 / (2 sigma))``: the main lobe of the transform then ends
        where the first aliases begin.
    sigma : float, optional
        Oversampling factor of the mesh along each axis, above 1; 2 by default. Give `beta` or `sigma`, not both.
    tol : float
        Largest error of the table's values. The default is the rounding of float64. A larger one gives a lower
        degree and faster kernels.

    Raises
    ------
    ValueError
        If `beta` is so large that no degree meets `tol`, or if both `beta` and `sigma` are given.

    Examples
    --------
    >>> window = kaiser_bessel(6)
    >>> window.support, float(window(0.0).round(9)), window.value_error < 2e-15
    (6, 1.0, True)

    For a mesh oversampled by 1.5 along each axis:

    >>> kaiser_bessel(6, sigma=1.5).support
    6
    """
    support = checks.integer(support, "support", 2, MAX_SUPPORT)
    if beta is not None and sigma is not None:
        raise ValueError(f"beta is {beta} and sigma is {sigma}; give one of them: beta follows from sigma.")
    shape = _bandwidth(support, 2.0 if sigma is None else sigma) if beta is None else checks.positive(beta, "beta")

    # Exponentials are taken of differences: the error is a rounding of the height, not beta roundings.
    def function(x: NDArray[np.float64]) -> Any:
        square = (2 * x / support) ** 2
        root = np.sqrt(1 - square)
        return scipy.special.i0e(shape * root) * np.exp(-shape * square / (1 + root)) / scipy.special.i0e(shape)

    def derivative(x: NDArray[np.float64]) -> Any:
        square = (2 * x / support) ** 2
        root = np.sqrt(1 - square)
        slope = scipy.special.i1e(shape * root) * np.exp(-shape * square / (1 + root)) / scipy.special.i0e(shape)
        return -shape * slope / root * (4 * x / support**2)

    detail = "" if beta is None and sigma is None else f"({shape:g})" if sigma is None else f"(sigma={sigma:g})"
    return _of_height_one(function, derivative, support, tol, f"kaiser_bessel{support}{detail}", "barnett2019")


@lru_cache
def prolate(support: int, sigma: float = 2.0, *, tol: float = 2e-15) -> Window:
    """Return a fitted prolate spheroidal wave function of order 0 and height 1.

    Among all functions of this support it has the largest share of energy within a band [slepian1961]_. Non-uniform
    Fourier transforms with this window therefore need the fewest nodes for an accuracy [barnett2019]_. They compensate
    for it in Fourier space. Its weights do not sum to 1.

    Parameters
    ----------
    support : int
        Nodes p per axis, 2 to 16.
    sigma : float
        Oversampling factor of the mesh along each axis, above 1. The shape parameter is
        ``c = pi p (1 - 1 / (2 sigma)) - 0.05``.
    tol : float
        Largest error of the table's values. The default is the rounding of float64. A larger one gives a lower
        degree and faster kernels.

    Raises
    ------
    ValueError
        If the support is not 2 to 16, if sigma is not above 1, or if no degree meets `tol`.

    Examples
    --------
    >>> window = prolate(6)
    >>> window.support, float(window(0.0).round(9)), window.value_error < 2e-15
    (6, 1.0, True)

    For a mesh oversampled by 1.25 along each axis, with a table for float32:

    >>> prolate(6, 1.25, tol=1e-8).degree
    8
    """
    support = checks.integer(support, "support", 2, MAX_SUPPORT)
    shape = _bandwidth(support, sigma) - 0.05

    psi = spheroidal(shape)
    slope = psi.deriv() * (2 / support)

    def function(x: NDArray[np.float64]) -> Any:
        return psi(2 * x / support)

    def derivative(x: NDArray[np.float64]) -> Any:
        return slope(2 * x / support)

    detail = "" if sigma == 2 else f"(sigma={sigma:g})"
    return _of_height_one(function, derivative, support, tol, f"prolate{support}{detail}", "slepian1961")


def _bandwidth(support: int, sigma: float) -> float:
    """Return the shape parameter whose main lobe ends where the aliases of an oversampled mesh begin."""
    if not checks.positive(sigma, "sigma") > 1:
        raise ValueError(f"sigma is {sigma}; the mesh must be finer than the modes: give a number above 1.")
    return math.pi * support * (1 - 1 / (2 * sigma))


def _of_height_one(function: Shape, derivative: Shape, support: int, tol: float, name: str, cite: str) -> Window:
    return fitted(function, support, tol, derivative=derivative, derivative_tol=1000 * tol, name=name, cite=cite)


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
    **{f"prolate{support}": partial(prolate, support) for support in range(2, MAX_SUPPORT + 1)},
}


def _listed() -> str:
    """Return all names; a family by its first and last."""
    families = [list(names) for _, names in itertools.groupby(WINDOWS, lambda name: name.rstrip("0123456789"))]
    return ", ".join(" to ".join(repr(names[end]) for end in sorted({0, len(names) - 1})) for names in families)


def window_of(window: str | Window) -> Window:
    """Return a window from its name, or the window itself.

    Parameters
    ----------
    window : Window or str
        What a user gave: :class:`Window`, or a name such as ``"cic"`` or ``"bspline6"``.

    Raises
    ------
    ValueError
        If the name is unknown; the message has the names nearest to it.
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
        raise TypeError(f"window is {window!r}; give a Window or a name: {_listed()}.")
    if window not in WINDOWS:
        near = difflib.get_close_matches(window.lower(), WINDOWS, n=3)
        meant = f"; did you mean {' or '.join(map(repr, near))}?" if near else "."
        raise ValueError(f"window is {window!r}{meant} Names are {_listed()}.")
    return WINDOWS[window]()
