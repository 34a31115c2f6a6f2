# SPDX-License-Identifier: BSD-3-Clause
"""Windows fitted to functions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.polynomial import chebyshev, polynomial
from numpy.typing import NDArray

from particlemesh import checks
from particlemesh.window import admissible
from particlemesh.window.polynomials import symmetric
from particlemesh.window.shape_function import MAX_DEGREE, MAX_SUPPORT, Window

Shape = Callable[[NDArray[np.float64]], Any]


def fitted(
    function: Shape,
    support: int,
    tol: float,
    *,
    degree: int | None = None,
    normalise: str | None = None,
    derivative: Shape | None = None,
    derivative_tol: float | None = None,
    name: str = "fitted",
    cite: str = "",
) -> Window:
    """Return a window whose values and derivative agree with a function's to a tolerance.

    Each node's piece is interpolated at the same Chebyshev points of z in [-1/2, 1/2]. So linear identities
    of the function that are polynomial in z hold to rounding after the fit, at any tolerance. Examples are weights that
    sum to 1, and a zero first moment.

    Parameters
    ----------
    function : callable
        phi of a float64 array of distances in node spacings. It must be symmetric, and smooth between the
        integers (even support) or the half-integers (odd support).
    support : int
        Nodes per axis, 1 to 16. The window is zero beyond ``support / 2``.
    tol : float
        Largest allowed error of the values, relative to max ``|phi|``.
    degree : int, optional
        Degree of the polynomials, up to 24. By default the lowest of 1 to 24 that meets `tol`.
    normalise : {None, "sum", "integral"}
        With "integral" phi is divided by its integral, which is also the mean sum of a particle's weights.
        With "sum" it is divided by the sum of the weights at each z, so that every particle's weights sum
        to 1 to rounding. This changes phi by the variation of its sum.
    derivative : callable, optional
        dphi/dx, called like `function`. By default central differences measure the derivative's error, to about
        1e-10, except within 0.002 of the pieces' ends.
    derivative_tol : float, optional
        Largest allowed error of the derivative per node spacing, relative to max ``|phi|``; `tol` by default.
    name, cite : str
        As in `Window`.

    Returns
    -------
    Window
        With its measured `value_error` and `derivative_error`.

    Raises
    ------
    ValueError
        If no allowed degree meets `tol`: the message has the errors of the best. If `function` is not symmetric
        or not finite, or its sum or integral vanishes and `normalise` divides by it.
    TypeError
        If `function` or `derivative` returns values of no real type, even with zero imaginary parts.

    Examples
    --------
    >>> window = fitted(lambda x: np.exp(-2 * x**2), support=6, tol=1e-6, normalise="sum")
    >>> window.value_error < 1e-6, window.weights(0.3).sum().round(12)
    (True, np.float64(1.0))

    A function with a kink inside a piece raises an error:

    >>> fitted(lambda x: np.maximum(1 - abs(x), 0), 3, tol=1e-6)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    ValueError: window 'fitted': at degree 24, the best tried, the errors relative to the largest value are 1.2e-02 ...
    """
    support = checks.integer(support, "support", 1, MAX_SUPPORT)
    checks.one_of(normalise, "normalise", (None, "sum", "integral"))
    checks.positive(tol, "tol")
    slope_tol = tol if derivative_tol is None else checks.positive(derivative_tol, "derivative_tol")
    # The ends are avoided: the function may belong to the next piece there.
    z = np.cos(np.pi * (np.arange(2000) + 0.5) / 2000) / 2
    columns, slopes = _columns(function, derivative, support, normalise, name)
    values, z_slopes = columns(z), z if derivative is not None else z * (1 - 8e-3)
    changes = slopes(z_slopes)
    height = np.abs(values).max()
    degrees = _promising(columns, tol * height) if degree is None else [checks.integer(degree, "degree", 0, MAX_DEGREE)]
    best = (math.inf, math.inf, 0)
    for n in degrees:
        table = _powers(_series(columns, n))
        pieces = symmetric([tuple(row.tolist()) for row in table[support // 2 :]], support)
        table = np.array(pieces, dtype=np.float64)
        value_error = np.abs(polynomial.polyval(z, table.T) - values).max() / height
        derivative_error = np.abs(polynomial.polyval(z_slopes, polynomial.polyder(table.T)) - changes).max() / height
        if value_error <= tol and derivative_error <= slope_tol:
            return Window(name, pieces, cite, float(value_error), float(derivative_error))
        if max(value_error, derivative_error) < max(best[:2]):
            best = (value_error, derivative_error, n)
    raise ValueError(
        f"window {name!r}: at degree {best[2]}, the best tried, the errors relative to the largest value are "
        f"{best[0]:.1e} (values) and {best[1]:.1e} (derivative); tol is {tol:g}, derivative_tol {slope_tol:g}. "
        f"Give a larger tol or a higher degree (up to {MAX_DEGREE}), "
        "or move kinks of the function to the ends of the pieces."
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


def _series(columns: Shape, degree: int) -> NDArray[np.float64]:
    """Return the Chebyshev series of the interpolants of all nodes, shape (degree + 1, support)."""
    t = chebyshev.chebpts1(degree + 1)
    return np.linalg.solve(chebyshev.chebvander(t, degree), columns(t / 2).T)


def _promising(columns: Shape, tol: float) -> range:
    """Return the degrees that may meet a tolerance: no polynomial below degree m errs less than pi/4 of its term m."""
    terms = np.abs(_series(columns, MAX_DEGREE)).max(axis=1)
    large = np.flatnonzero(terms > 2 * tol)  # 2: interpolants have aliases of higher terms
    return range(min(max(1, large[-1] if large.size else 1), MAX_DEGREE), MAX_DEGREE + 1)


def _powers(series: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the coefficients of powers of z = t / 2, shape (support, degree + 1)."""
    table = np.zeros_like(series)
    for j, coefficients in enumerate(series.T):
        powers = chebyshev.cheb2poly(coefficients)
        table[: len(powers), j] = powers
    return np.asarray((table * 2.0 ** np.arange(len(table))[:, None]).T)
