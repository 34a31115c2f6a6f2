# SPDX-License-Identifier: BSD-3-Clause
"""How an interaction is split: a smooth part for the mesh, and the rest for pairs within the cutoff.

A split says all that meshes, pair functions and the choice of parameters know of an interaction. It has the smooth
part at ``r**2`` and at ``k**2``, and the errors of both halves. Another split is a class here, of ``1 / r`` or of
another power.

The smooth part is an analytic function of ``r**2``. Polynomials of ``r**2`` give it to rounding, by intervals. The
force takes their derivative, so that it is the exact gradient of the energy.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.polynomial import chebyshev
from numpy.typing import NDArray
from scipy.special import erf, erfcx, gammainc

Array = NDArray[np.float64]
_ROOT_PI = math.sqrt(math.pi)


@dataclass(frozen=True)
class Split:
    """An interaction and its smooth part, whose inverse width is the splitting.

    Twice the energy of a particle of charge q is ``q (sum + mesh * potential - itself * q)``, with the sum over its
    neighbours and the potential of the mesh.

    Errors are those of forces, root mean square. ``distance`` is the mean distance ``(V / N)**(1/3)`` of particles, at
    which a typical force acts.
    """

    splitting: float
    power: ClassVar[int]  # of the distance, by which a pair function divides
    mesh: ClassVar[float]  # times the potential of the mesh

    @property
    def itself(self) -> float:
        """What the mesh gives a particle of its own smooth part."""
        raise NotImplementedError

    def green(self, periodic: bool) -> dict[str, Any]:
        """Return the Green function as arguments of a solver."""
        raise NotImplementedError

    def smooth(self, r2: Any) -> Array:
        """Return the smooth part at r**2."""
        raise NotImplementedError

    def sharp(self, r: Any, erfc: Callable[[Any], Any]) -> Any:
        """Return the interaction minus its smooth part at r, for arrays of a library with ``erfc``."""
        raise NotImplementedError

    def transform(self, k2: Array) -> Array:
        """Return the transform of the smooth part at k**2."""
        raise NotImplementedError

    @staticmethod
    def real_error(splitting: float, cutoff: float, distance: float) -> float:
        """Return the relative error of the forces beyond the cutoff."""
        raise NotImplementedError

    @classmethod
    def splitting_for(cls, error: float, cutoff: float, distance: float) -> float:
        """Return the splitting with which the cutoff makes an error: the inverse of `real_error`."""
        low, high = 0.1 / cutoff, 26.0 / cutoff
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if cls.real_error(middle, cutoff, distance) > error else (low, middle)
        return high

    @staticmethod
    def mesh_share(splitting: float, distance: float) -> float:
        """Return the error of the mesh over that of charges with the same splitting."""
        return 1.0


class Gaussian(Split):
    """``1 / r``, whose smooth part is that of Gaussian charges: ``erf(splitting * r) / r``.

    Examples
    --------
    >>> Gaussian(2.0).smooth(np.array([0.0, 1.0])).round(6)
    array([2.256758, 0.995322])
    """

    power = 3
    mesh = 4 * math.pi  # solvers solve ``-laplace(phi) = rho``

    @property
    def itself(self) -> float:
        return 2 * self.splitting / math.sqrt(math.pi)

    @property
    def background(self) -> float:
        """The limit of the solver's Green function at k = 0, less that of ``1 / k**2``: a neutralising background."""
        return -1 / (4 * self.splitting**2)

    def green(self, periodic: bool) -> dict[str, Any]:
        return dict(green="ewald", alpha=self.splitting, zero=self.background if periodic else None)

    def smooth(self, r2: Any) -> Array:
        z2 = self.splitting**2 * r2
        near = z2 < 1e-4  # there the quotient rounds; three terms of the series are exact
        r = np.sqrt(np.where(near, 1.0, r2))
        series = 2 / math.sqrt(math.pi) * self.splitting * (1 - z2 / 3 + z2**2 / 10 - z2**3 / 42)
        return np.asarray(np.where(near, series, erf(self.splitting * r) / r))

    def sharp(self, r: Any, erfc: Callable[[Any], Any]) -> Any:
        return erfc(self.splitting * r) / r

    def transform(self, k2: Array) -> Array:
        return np.asarray(4 * math.pi * np.exp(-k2 / (4 * self.splitting**2)) / k2)

    @staticmethod
    def real_error(splitting: float, cutoff: float, distance: float) -> float:
        return 2 * math.sqrt(distance / cutoff) * math.exp(-min((splitting * cutoff) ** 2, 700.0))

    @classmethod
    def splitting_for(cls, error: float, cutoff: float, distance: float) -> float:
        return math.sqrt(max(math.log(2 * math.sqrt(distance / cutoff) / error), 0.25)) / cutoff


class SixthPower(Split):
    """``-r**-6``, whose smooth part is ``-P(3, (beta r)**2) / r**6`` with the splitting beta [essmann1995]_.

    P is the regularised incomplete gamma function. The functions here are without the minus.

    Examples
    --------
    >>> SixthPower(2.0).smooth(np.array([0.0, 1.0, 9.0])).round(6)
    array([1.0666667e+01, 7.6189700e-01, 1.3720000e-03])
    """

    power = 8
    mesh = -1.0

    @property
    def itself(self) -> float:
        return -(self.splitting**6) / 6

    def green(self, periodic: bool) -> dict[str, Any]:
        return dict(green=self.transform, slope=self.transform_slope)

    def smooth(self, r2: Any) -> Array:
        t = self.splitting**2 * np.asarray(r2, np.float64)
        near = t < 1e-3  # there the quotient rounds; four terms of the series are exact
        away = np.where(near, 1.0, t)
        series = 1 / 6 - t / 8 + t**2 / 20 - t**3 / 72
        return np.asarray(self.splitting**6 * np.where(near, series, gammainc(3, away) / away**3))

    def transform(self, k2: Array) -> Array:
        u = k2 / (4 * self.splitting**2)
        rest = 1 - 2 * u + 2 * _ROOT_PI * u**1.5 * erfcx(np.sqrt(u))
        return np.asarray(_ROOT_PI**3 * self.splitting**3 / 3 * np.exp(-u) * rest)

    def transform_slope(self, k2: Array) -> Array:
        """Return the derivative of `transform` by k**2."""
        u = k2 / (4 * self.splitting**2)
        rest = _ROOT_PI * np.sqrt(u) * erfcx(np.sqrt(u)) - 1
        return np.asarray(_ROOT_PI**3 * self.splitting / 4 * np.exp(-u) * rest)

    @staticmethod
    def real_error(splitting: float, cutoff: float, distance: float) -> float:
        # Particles at random places, of ``distance**-3`` per volume, pull with the force of the real-space part.
        x2 = (splitting * cutoff) ** 2
        force = math.exp(-min(x2, 700.0)) * (6 + 6 * x2 + 3 * x2**2 + x2**3) / cutoff**7
        return force * math.sqrt(math.pi / x2) * (cutoff / distance) ** 1.5 * distance**7 / 6

    @staticmethod
    def mesh_share(splitting: float, distance: float) -> float:
        # At every wave vector the transform is at most that of charges times ``sqrt(pi) beta**5 / 2``.
        return math.sqrt(math.pi) * (splitting * distance) ** 5 / 12


# ---- polynomials ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Smooth:
    """A smooth function of r**2 below a cutoff, as polynomials by intervals of equal length.

    Attributes
    ----------
    scale : float
        Intervals per unit of r**2.
    coefficients : array (intervals, degree + 1)
        Of powers of the distance from the middle of the interval, in intervals.
    """

    scale: float
    coefficients: Array

    def __call__(self, r2: Any) -> tuple[Array, Array]:
        """Return the function at r**2, and its derivative by r**2."""
        t = np.asarray(r2) * self.scale
        k = np.clip(t.astype(np.int64), 0, len(self.coefficients) - 1)
        s, rows = t - k - 0.5, self.coefficients[k]
        value = slope = np.zeros_like(t)
        for n in range(rows.shape[-1] - 1, -1, -1):
            slope = slope * s + value
            value = value * s + rows[..., n]
        return value, slope * self.scale


@functools.lru_cache(maxsize=32)
def polynomials(split: Split, cutoff: float, single: bool, one: bool = False) -> Smooth:
    """Return the smooth part as polynomials, to rounding.

    The function varies over r**2 of about ``1 / splitting**2``. With intervals of 0.2 of that degree 8 leaves less than
    1e-16, and with 0.5 degree 5 less than 5e-8. GPUs and vectors of a CPU compute faster than they look up: with `one`,
    in single precision one polynomial serves all distances.
    """
    range2 = (split.splitting * cutoff) ** 2
    if single and one and range2 < 30:
        return _fitted(split.smooth, cutoff, 1, 8 + math.ceil(0.9 * range2))
    width, degree = (0.5, 5) if single else (0.2, 8)
    return _fitted(split.smooth, cutoff, max(1, math.ceil(range2 / width)), degree)


def _fitted(function: Callable[[Array], Array], cutoff: float, intervals: int, degree: int) -> Smooth:
    """Return polynomials through a function of r**2 at the Chebyshev nodes of each interval of [0, cutoff**2]."""
    width = cutoff**2 / intervals
    nodes = np.cos(np.pi * (np.arange(degree + 9) + 0.5) / (degree + 9)) / 2
    samples = function(((np.arange(intervals)[:, None] + 0.5) + nodes) * width)
    series = chebyshev.chebfit(2 * nodes, samples.T, degree).T
    rows = np.zeros((intervals, degree + 1))
    for k, row in enumerate(series):
        powers = chebyshev.cheb2poly(row)
        rows[k, : len(powers)] = powers * 2.0 ** np.arange(len(powers))  # of 2 s to powers of s
    return Smooth(1 / width, rows)
