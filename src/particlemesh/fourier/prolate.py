# SPDX-License-Identifier: BSD-3-Clause
"""The Green function of the far part of ``1 / r``, split by a prolate spheroidal wave function."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
import scipy.fft
from numpy.polynomial import Chebyshev, Legendre, Polynomial
from numpy.typing import NDArray
from scipy.optimize import brentq

from particlemesh import checks
from particlemesh.backends.cpu import default_threads, ranges, run
from particlemesh.backends.jit import compiled
from particlemesh.fourier.green import Green
from particlemesh.window import spheroidal

Array = NDArray[np.float64]
_MANY = 1 << 16  # numbers, from which on a compiled loop is worth compiling
_BLOCK = 1 << 11  # numbers that stay in the nearest cache


@dataclass(frozen=True)
class ProlateGreen(Green):
    r"""``psi(k cutoff / bandwidth) / k**2``, the far part of a sum split at a cutoff [liang2025]_.

    psi is the zeroth prolate spheroidal wave function of this bandwidth c, 1 at 0. The near part of ``1 / r`` is
    ``(1 - Phi(r / cutoff)) / r``, where Phi is the integral of psi over that from 0 to 1. It is zero from the cutoff
    on. The far part ends at the first zero of its transform beyond ``k = c / cutoff``. It has no jump there, so
    energies have none where a box is strained. What is left out is about ``exp(-c)`` of a force.

    Parameters
    ----------
    bandwidth : float
        c, 1 to 40. From about 34 on the error is rounding in float64.
    cutoff : float
        In the user's length unit.

    Raises
    ------
    ValueError
        If a number is not in its range.

    Examples
    --------
    The Madelung constant of rock salt, with a cutoff below the distance of ions, so that no pair is near:

    >>> import numpy as np, particlemesh as pm
    >>> from particlemesh.fourier import ProlateGreen, Solver
    >>> ions = np.array([[i, j, k] for i in (0, 1) for j in (0, 1) for k in (0, 1)], float)
    >>> charges = (-1.0) ** ions.sum(1)
    >>> green = ProlateGreen(bandwidth=16.0, cutoff=0.99)
    >>> solver = Solver(pm.Mesh((32, 32, 32), (2.0, 2.0, 2.0)), "bspline12", green=green)
    >>> phi = 4 * np.pi * solver.set_positions(ions).potential(charges)
    >>> float(round(2 / np.pi * green.moment(0) - phi[0] * charges[0], 5))  # minus the charge's own far part
    1.74756
    """

    bandwidth: float
    cutoff: float

    def __post_init__(self) -> None:
        for name in ("bandwidth", "cutoff"):
            object.__setattr__(self, name, checks.positive(getattr(self, name), name))
        if not 1 <= self.bandwidth <= 40:
            raise ValueError(f"bandwidth is {self.bandwidth}; give a number from 1 to 40.")

    @cached_property  # torch.compile reads it, and would go into a function that keeps its results
    def _band(self) -> _Band:
        return _band_of(self.bandwidth)

    @property
    def psi(self) -> Legendre:
        """The wave function on [-1, 1]."""
        return spheroidal(self.bandwidth)

    @property
    def edge(self) -> float:
        """The largest wavenumber of the far part."""
        return self._band.end / self.cutoff

    @property
    def zero(self) -> float:
        """The limit of this function less ``1 / k**2`` at k = 0: that of a neutralising background."""
        return float(self.smoothing_slope(0.0))

    @property
    def blur(self) -> float:
        return self.cutoff

    def smoothing(self, k2: Any) -> Any:
        return _within(self._band.transform, k2, self.edge**2)

    def smoothing_slope(self, k2: Any) -> Any:
        return _within(self._band.slope, k2, self.edge**2) / self.edge**2

    def numbers(self) -> tuple[tuple[float, float, float], Array]:
        return (0.0, 0.0, self.edge**2), np.column_stack([self._band.transform, (*self._band.slope, 0.0)])

    def potential(self, r2: Any, order: int = 0) -> Any:
        """Return ``Phi(r / cutoff) / r``: ``4 pi`` times the potential of a point charge at r**2.

        With an order it is the derivative by r**2 of that order, and 0 beyond the cutoff.

        Parameters
        ----------
        r2 : float or array
            Of NumPy, CuPy, torch or JAX.
        order : int

        Examples
        --------
        >>> import numpy as np
        >>> from particlemesh.fourier import ProlateGreen
        >>> ProlateGreen(bandwidth=12.0, cutoff=2.0).potential(np.array([0.0, 1.0, 9.0])).round(6)
        array([1.381977, 0.927313, 0.333333])
        """
        outside, square = r2 >= self.cutoff**2, self.cutoff**2
        if order:
            bent = Polynomial(self._band.potential).deriv(order).coef
            return _within(tuple(map(float, bent)), r2, square) * (2 / square) ** order / self.cutoff
        near = _within(self._band.potential, r2, square) / self.cutoff
        return near + outside / (r2 * outside + (r2 < self.cutoff**2)) ** 0.5

    def moment(self, power: int) -> float:
        """Return the integral of ``k**power psi(k cutoff / bandwidth)`` from 0 to the edge.

        Times ``2 / pi`` that of power 0 is the far part at r = 0.
        """
        x, weights = np.polynomial.legendre.leggauss(64)
        k = (x + 1) / 2 * self.edge
        return float(weights @ (k**power * self.smoothing(k**2)) * self.edge / 2)


class _Band(NamedTuple):
    """What follows from a bandwidth; polynomials are of ``2 u - 1``, their coefficients from the lowest."""

    end: float  # the transform of psi ends there, as a function of k cutoff
    transform: tuple[float, ...]  # u is (k cutoff / end)**2
    slope: tuple[float, ...]  # of the transform by u
    potential: tuple[float, ...]  # Phi(x) / x, u is x**2


def _within(coefficients: tuple[float, ...], square: Any, end: float) -> Any:
    """Return a polynomial of ``u = square / end``, and 0 from ``u = 1`` on; by operators that torch and JAX have."""
    if isinstance(square, np.ndarray) and square.size > _MANY:
        out = np.empty(square.shape)
        given = np.array(coefficients), np.ascontiguousarray(square, np.float64).reshape(-1), end
        run(_evaluate, default_threads(square.size), *given, out.reshape(-1))
        return out
    inside = square < end
    x = square * inside * (2 / end) - 1
    value = x * 0 + coefficients[-1]
    for c in coefficients[-2::-1]:
        value = value * x + c
    return value * inside


@compiled
def _evaluate(coefficients, square, end, out, counter):
    x = np.empty(_BLOCK)
    for begin, stop in ranges(counter, out.size, _BLOCK):
        for i in range(begin, stop):
            x[i - begin] = square[i] * (2 / end) - 1
            out[i] = coefficients[-1]
        for n in range(len(coefficients) - 2, -1, -1):
            for i in range(begin, stop):
                out[i] = out[i] * x[i - begin] + coefficients[n]
        for i in range(begin, stop):
            if not square[i] < end:
                out[i] = 0.0


@lru_cache(maxsize=64)
def _band_of(bandwidth: float) -> _Band:
    """Return polynomials, to rounding."""
    psi = spheroidal(bandwidth)
    x, weights = np.polynomial.legendre.leggauss(64)
    x = (x + 1) / 2
    whole = weights @ psi(x)

    def transform(s: Any) -> Any:
        return np.cos(np.multiply.outer(s, x)) @ (weights * psi(x)) / whole

    beyond = np.linspace(bandwidth, bandwidth + math.pi, 64)
    negative = np.flatnonzero(transform(beyond) < 0)
    # Where rounding hides the first zero, the edge of the band is as good.
    first = int(negative[0]) if len(negative) else 0
    end = float(brentq(transform, beyond[first - 1], beyond[first])) if first else bandwidth
    far = _even(lambda t: transform(end * t), bandwidth)
    space = _even(lambda t: psi(np.multiply.outer(t, x)) @ (weights / whole), bandwidth)
    return _Band(end, *(tuple(map(float, p.coef)) for p in (far, far.deriv(), space)))


def _even(function: Callable[[Array], Array], bandwidth: float) -> Polynomial:
    """Return an even function on [0, 1] as a polynomial of its argument's square."""
    count = 24 + math.ceil(bandwidth / 2)
    series = scipy.fft.dct(function(np.cos(np.pi * (np.arange(count) + 0.5) / (2 * count)))) / count
    series[0] /= 2
    # The last terms are rounding, which powers of their high degree would raise.
    degree = int(np.flatnonzero(abs(series) > 1e-16)[-1])
    return Chebyshev(series[: degree + 1], domain=[0, 1]).convert(kind=Polynomial, domain=[0, 1], window=[-1, 1])
