# SPDX-License-Identifier: BSD-3-Clause
"""The class of every window: a shape function as a table of polynomials."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import scipy
from numpy.polynomial import chebyshev, legendre, polynomial
from numpy.typing import ArrayLike, NDArray

from particlemesh import checks
from particlemesh.window import admissible
from particlemesh.window.polynomials import Polynomial, add, at, derivative, mirrored, multiply, trimmed

MAX_SUPPORT = 16
# Higher degrees gain nothing in float64 (power basis on [-1/2, 1/2]), and their tables outgrow constant memory.
MAX_DEGREE = 24
# Tolerance for float coefficients of a window of height about 1.
_ROUNDING = 1e-12


_BLOCK = 8192  # numbers whose recurrence stays in a core's cache


@dataclass(frozen=True, repr=False)
class Window:
    r"""A shape function phi of compact support, as one polynomial per node of the support.

    Let u be a particle's position in node units. Its stencil starts at node ``floor(u) - p/2 + 1`` for an
    even support p, and at ``floor(u + 1/2) - (p - 1)/2`` for an odd one. Its *centred fraction* is
    ``z = u - first - (p - 1)/2``, in [-1/2, 1/2). Node ``first + j`` lies at the signed distance
    ``j - (p - 1)/2 - z`` from the particle and has the weight ``W_j(z) = phi(j - (p - 1)/2 - z)``.
    The table of W_j determines everything else: values, derivatives, transforms, moments and code. A
    centred variable keeps powers small, so that evaluation is accurate up to support 16.

    Windows with equal polynomials are equal and hash alike; names do not count.

    Parameters
    ----------
    name : str
        Name in tables and messages.
    polynomials : sequence of p sequences of Fraction, int or float
        Dimensionless coefficients of each W_j in ascending powers of z. Fractions and integers stay exact.
    cite : str, optional
        Key into ``reference.bib``.
    value_error, derivative_error : float, optional
        Largest errors of a fitted table, relative to max ``|phi|``; 0 if exact.

    Attributes
    ----------
    max_support : int
        The largest support that a window may have.

    Raises
    ------
    ValueError
        If the support is not 1 to 16, the degree is above 24, or a coefficient is not finite. If the window
        is not symmetric, ``W_j(z) = W_{p-1-j}(-z)``; floats may differ by 1e-12.
    TypeError
        If a coefficient is not a real number.

    Examples
    --------
    >>> linear = Window("linear", [("1/2", -1), ("1/2", 1)])
    Traceback (most recent call last):
    ...
    TypeError: window 'linear' has the coefficient '1/2'; give a Fraction, int or float.
    >>> linear = Window("linear", [(Fraction(1, 2), -1), (Fraction(1, 2), 1)])
    >>> from particlemesh.window import bspline
    >>> linear.weights(0.25), linear == bspline(2), linear.order
    (array([0.25, 0.75]), True, 2)
    """

    max_support: ClassVar[int] = MAX_SUPPORT
    name: str = field(compare=False)
    polynomials: tuple[Polynomial, ...]
    cite: str = field(default="", compare=False)
    value_error: float = field(default=0.0, compare=False)
    derivative_error: float = field(default=0.0, compare=False)

    def __post_init__(self) -> None:
        pieces = admissible.window_pieces(self.polynomials, self.name, MAX_SUPPORT)
        width = max(len(trimmed(piece)) for piece in pieces)
        checks.integer(width - 1, f"the degree of window {self.name!r}", 0, MAX_DEGREE)
        zero = Fraction(0)
        pieces = tuple((piece + (zero,) * (width - len(piece)))[:width] for piece in pieces)
        admissible.symmetric(pieces, tuple(map(mirrored, reversed(pieces))), self.name, _ROUNDING)
        object.__setattr__(self, "polynomials", pieces)

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        # Cached: hashing 256 fractions costs more than the look-up of a compiled kernel.
        return hash(self.polynomials)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.name, self.polynomials, self.cite, self.value_error, self.derivative_error)

    def __repr__(self) -> str:
        fit = f", value_error={self.value_error:.1e}" if self.value_error else ""
        return f"Window({self.name!r}, support={self.support}, degree={self.degree}{fit})"

    @property
    def support(self) -> int:
        """Number p of nodes per axis of a particle's stencil."""
        return len(self.polynomials)

    @property
    def degree(self) -> int:
        """Highest power of z in the table."""
        return len(self.polynomials[0]) - 1

    @property
    def exact(self) -> bool:
        """Whether every coefficient is rational."""
        return all(isinstance(c, Fraction) for piece in self.polynomials for c in piece)

    @cached_property
    def table(self) -> NDArray[np.float64]:
        """Coefficients as float64, shape (support, degree + 1), ascending powers of z, read-only."""
        table = np.array([[float(c) for c in piece] for piece in self.polynomials])
        table.setflags(write=False)
        return table

    @cached_property
    def _slopes(self) -> NDArray[np.float64]:
        return np.array([[float(c) for c in derivative(piece)] for piece in self.polynomials])

    def weights(self, z: ArrayLike) -> NDArray[np.floating]:
        """Return W_j(z) for every node j of the stencil.

        Parameters
        ----------
        z : (...) array_like
            Centred fractions in [-1/2, 1/2), in node units.

        Returns
        -------
        (..., support) ndarray
            In the dtype of `z`; float64 if `z` is not floating.

        Examples
        --------
        >>> from particlemesh.window import bspline
        >>> bspline(3).weights(0.0)
        array([0.125, 0.75 , 0.125])
        """
        return _horner(self.table, z)

    def _derived(self, order: int) -> NDArray[np.float64]:
        order = checks.integer(order, "order", 1, MAX_DEGREE)
        return np.asarray(polynomial.polyder(self._slopes, order - 1, axis=1))

    def derivative_weights(self, z: ArrayLike, order: int = 1) -> NDArray[np.floating]:
        """Return dW_j/dz: the derivative of each weight by the **particle's** position, per node spacing.

        Shapes and dtypes are those of `weights`; `order` is that of the derivative. A node's signed distance falls as
        the particle's position rises, so the first derivative is minus the `derivative` at that distance.

        Where a derivative jumps, at the ends of the pieces, it is that of the piece to which the particle belongs.
        Pieces of a degree below `order`, as those of ``"cic"`` below 2, have no such derivative: it is zero.

        Examples
        --------
        >>> from particlemesh.window import bspline
        >>> bspline(2).derivative_weights(0.1)
        array([-1.,  1.])
        >>> bspline(3).derivative_weights(0.1, order=2)
        array([ 1., -2.,  1.])
        """
        return _horner(self._derived(order), z)

    def __call__(self, distance: ArrayLike) -> NDArray[np.floating]:
        """Return phi at signed distances (node minus particle, in node spacings), 0 outside the support.

        At a jump the value is that of spreading: the support is ``-p/2 < distance <= p/2``.

        Examples
        --------
        >>> from particlemesh.window import bspline
        >>> bspline(2)([-1.0, 0.25, 1.5])
        array([0.  , 0.75, 0.  ])
        """
        return self._pieces(self.table, distance)

    def derivative(self, distance: ArrayLike, order: int = 1) -> NDArray[np.floating]:
        """Return dphi/d(distance), per node spacing, 0 outside the support; shapes as `__call__`.

        `order` is that of the derivative.

        Examples
        --------
        >>> from particlemesh.window import bspline
        >>> bspline(2).derivative([-0.5, 0.25])
        array([ 1., -1.])
        >>> bspline(3).derivative([-1.0, 0.25], order=2)
        array([ 1., -2.])
        """
        return (-1) ** order * self._pieces(self._derived(order), distance)

    def _pieces(self, table: NDArray[np.float64], distance: ArrayLike) -> NDArray[np.floating]:
        x = _floating(distance)
        middle = (self.support - 1) / 2
        inside = (x > -self.support / 2) & (x <= self.support / 2)
        x = np.where(inside | np.isnan(x), x, 0)
        # Steps towards zero are exact, so that no distance within an ulp of a knot selects the next piece.
        if self.support % 2:
            step = np.where(x > 0, np.ceil(x - 0.5), np.ceil(x + 0.5) - 1)
        else:
            step = np.ceil(x) - 0.5
        node = np.where(inside, step + middle, 0)
        z = np.where(inside, (node - middle) - x, 0)
        rows = table.astype(x.dtype)[node.astype(np.intp)]
        value = np.zeros_like(x)
        for m in reversed(range(table.shape[1])):
            value = value * z + rows[..., m]
        return np.where(inside, value, x)

    @cached_property
    def _legendre(self) -> NDArray[np.float64]:
        """Coefficients of each W_j in the Legendre polynomials of 2z, shape (support, degree + 1)."""
        half = 0.5 ** np.arange(self.degree + 1)
        rows = np.zeros_like(self.table)
        for row, piece in zip(rows, self.table * half, strict=True):
            series = legendre.poly2leg(piece)
            row[: len(series)] = series
        return rows

    def fourier(self, k: ArrayLike) -> NDArray[np.float64]:
        r"""Return the continuous transform, the integral of ``phi(x) exp(-i k x)`` over all x.

        Each piece is a Legendre series. Its transform is a series of spherical Bessel functions, exact
        for every k and free of cancellation at small and large k. Many wavenumbers in an interval of length
        pi are evaluated by a Chebyshev interpolant of that sum, which the window keeps.

        Parameters
        ----------
        k : (...) array_like
            Wavenumbers in radians per node spacing.

        Returns
        -------
        (...) float64 ndarray
            Real, because windows are symmetric. The error is below 1e-13 times ``fourier(0)``.

        Examples
        --------
        >>> from particlemesh.window import bspline
        >>> float(bspline(2).fourier(np.pi).round(12)), float(round((2 / np.pi) ** 2, 12))
        (0.405284734569, 0.405284734569)
        """
        # pi/4 * support nodes resolve the fastest cosine over a length of pi, and 20 more reach rounding.
        terms = math.ceil(math.pi / 4 * self.support) + 20
        size = np.abs(np.asarray(k, dtype=np.float64))
        size = np.where(size < 1e-150, 0.0, size)  # SciPy's Bessel functions of smaller numbers are NaN
        return piecewise(self._transform, math.pi, terms, size, self._transforms)

    def _transform(self, k: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the sum of spherical Bessel functions."""
        total = np.zeros_like(k)
        angles = k * (np.arange(self.support) - (self.support - 1) / 2).reshape(-1, *[1] * k.ndim)
        cosines, sines = np.cos(angles), np.sin(angles)
        for order in range(self.degree + 1):
            # With node j's phase exp(-i k x_j) applied, i**order cycles through cos, sin, -cos, -sin.
            phase = (cosines, sines, -cosines, -sines)[order % 4]
            total += np.tensordot(self._legendre[:, order], phase, axes=1) * scipy.special.spherical_jn(order, k / 2)
        return total

    @cached_property
    def _transforms(self) -> dict[int, NDArray[np.float64]]:
        """Chebyshev series of the transform by piece of its axis; see `piecewise`."""
        return {}

    def symbol(self, nodes: int) -> NDArray[np.float64]:
        """Return the discrete transform of phi's samples on a periodic axis, ``sum_n phi(n) cos(2 pi k n / K)``.

        Offsets n cover the whole support, so an axis shorter than the support sums its periodic images. If
        phi jumps at the ends of its support, its value there is split between the two ends.

        Parameters
        ----------
        nodes : int
            Number K of nodes of the axis.

        Returns
        -------
        (K,) float64 ndarray
            For k in the order of ``numpy.fft.fftfreq``.

        Examples
        --------
        >>> from particlemesh.window import bspline
        >>> bspline(4).symbol(2).round(15)
        array([1.        , 0.33333333])
        """
        nodes = checks.integer(nodes, "nodes", 1, checks.MAX_NODES)
        offsets = np.arange(-(self.support // 2), self.support // 2 + 1)
        k = np.arange(nodes)
        # The products are reduced modulo K as integers, so that no large angle is rounded.
        return np.asarray(
            sum(v * np.cos(2 * np.pi / nodes * (k * n % nodes)) for n, v in zip(offsets, self(offsets), strict=True))
        )

    def moments(self, order: int) -> tuple[Polynomial, ...]:
        """Return the discrete moments 0 to `order`, ``sum_j W_j(z) (x_j - x)**m``, as polynomials in z.

        A constant moment has one coefficient. Exact windows return Fractions.

        Parameters
        ----------
        order : int
            Highest moment, 0 to 32. Distances are in node spacings.

        Returns
        -------
        tuple of order + 1 tuples
            Coefficients of each moment in ascending powers of z, trailing zeros removed.

        Examples
        --------
        >>> from particlemesh.window import bspline
        >>> [list(map(str, moment)) for moment in bspline(2).moments(2)]
        [['1'], ['0'], ['1/4', '0', '-1']]
        """
        order = checks.integer(order, "order", 0, 32)
        terms: list[Polynomial] = list(self.polynomials)
        moments: list[Polynomial] = []
        for _ in range(order + 1):
            total: Polynomial = (Fraction(0),)
            for j, term in enumerate(terms):
                total = add(total, term)
                terms[j] = multiply(term, (Fraction(2 * j + 1 - self.support, 2), Fraction(-1)))
            moments.append(trimmed(total))
        return tuple(moments)

    @cached_property
    def order(self) -> int:
        """Order of convergence: the largest n with moment 0 equal to 1 and moments 1 to n - 1 equal to 0.

        Interpolation then reproduces polynomials below degree n [strang_fix1971]_. The tolerance for fitted
        windows is 1e-12.
        """
        count = 0
        z = np.linspace(-0.5, 0.5, 65)
        for m, moment in enumerate(self.moments(self.support)):
            residual = trimmed(add(moment, (Fraction(-1 if m == 0 else 0),)))
            if self.exact:
                vanishes = residual == (0,)
            else:
                # Values, not coefficients, are compared: those of high powers may be large and cancel.
                rounding = _ROUNDING * (1 + self.support / 2) ** m
                vanishes = bool(np.abs(np.polyval(np.array(residual[::-1], dtype=np.float64), z)).max() <= rounding)
            if not vanishes:
                break
            count += 1
        return count

    @cached_property
    def smoothness(self) -> int:
        """Number of continuous derivatives of phi; -1 if phi itself jumps.

        The tolerance for fitted windows is the error of their fit. Their number is at most 1, because the
        fit measures no higher derivative.
        """
        half = Fraction(1, 2)
        zero: Polynomial = (Fraction(0),)
        pieces: tuple[Polynomial, ...] = (zero, *self.polynomials, zero)
        limits = [0.0] * (self.degree + 1)
        if not self.exact:
            height = float(np.abs(self.weights(np.linspace(-0.5, 0.5, 65))).max())
            # Both sides of a knot err, slightly more there than at the sample points of the fit.
            limits = [3 * height * error + _ROUNDING for error in (self.value_error, self.derivative_error)]
        for count, allowed in enumerate(limits):
            # Distance grows with j and falls with z: the piece after a knot starts at z = 1/2.
            jumps = (abs(float(at(a, -half) - at(b, half))) for a, b in pairwise(pieces))
            if max(jumps) > allowed:
                return count - 1
            pieces = tuple(map(derivative, pieces))
        return len(limits) - 1


def _floating(values: ArrayLike) -> NDArray[np.floating]:
    array = np.asarray(values)
    return array if array.dtype.kind == "f" else array.astype(np.float64)


def _horner(table: NDArray[np.float64], z: ArrayLike) -> NDArray[np.floating]:
    x = _floating(z)[..., None]
    rows = table.astype(x.dtype)
    value = np.zeros((*x.shape[:-1], len(rows)), x.dtype)
    for column in rows.T[::-1]:
        value = value * x + column
    return value


# ---- fast evaluation of a smooth function at many numbers -----------------------------------------------------------


Function = Callable[[NDArray[np.float64]], NDArray[np.float64]]


def piecewise(
    function: Function, length: float, terms: int, x: NDArray[np.float64], known: dict[int, NDArray[np.float64]]
) -> NDArray[np.float64]:
    """Return a function of numbers x >= 0, by a Chebyshev interpolant of each interval with many of them.

    Parameters
    ----------
    function : callable
        The function of a float64 array (n,).
    length : float
        Length of an interval; interval m begins at ``m * length``.
    terms : int
        Terms that resolve the function in any interval to rounding.
    x : (...) float64 ndarray
        Non-negative numbers; others that are not finite go to the function.
    known : dict
        The series of intervals; new ones are added.

    Returns
    -------
    (...) float64 ndarray
    """
    flat = x.ravel()
    result = np.empty_like(flat)
    intervals = np.floor(flat / length)
    present, place, counts = np.unique(intervals, return_inverse=True, return_counts=True)
    # An interpolant costs `terms` evaluations of the function once.
    many = (counts > 4 * terms) & np.isfinite(present)
    few = ~many[place]
    result[few] = function(flat[few])
    for m in np.flatnonzero(many):
        start = float(present[m]) * length
        if int(present[m]) not in known:
            nodes = chebyshev.chebpts1(terms)
            values = function(start + (nodes + 1) * (length / 2))
            known[int(present[m])] = np.linalg.solve(chebyshev.chebvander(nodes, terms - 1), values).astype(np.float64)
        members = slice(None) if len(present) == 1 else np.flatnonzero(place == m)
        result[members] = _sum((flat[members] - start) * (2 / length) - 1, known[int(present[m])])
    return result.reshape(x.shape)


def _sum(t: NDArray[np.float64], series: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return a Chebyshev series at t by Clenshaw's recurrence, in blocks."""
    result = np.empty_like(t)
    for start in range(0, len(t), _BLOCK):
        block = slice(start, start + _BLOCK)
        result[block] = chebyshev.chebval(t[block], series)
    return result
