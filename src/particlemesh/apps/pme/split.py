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
import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Self

import numpy as np
from numpy.polynomial import chebyshev
from numpy.typing import NDArray
from scipy.special import erf, erfcx, gamma, gammainc, gammainccinv

from particlemesh.fourier import ProlateGreen

Array = NDArray[np.float64]
_ROOT_PI = math.sqrt(math.pi)
_FOUR_PI = 4 * math.pi  # solvers solve ``-laplace(phi) = rho``


def check_powers(cutoff: float, power: int, dtype: np.dtype) -> None:
    """Check that a type holds what a pair function divides by, for pairs from a fiftieth of the cutoff to the cutoff.

    Raises
    ------
    ValueError
        If it does not: the unit of length is too large or too small.
    """
    info = np.finfo(dtype)
    least, most = 50 * float(info.max) ** (-1 / power), (float(info.tiny) * 2**16) ** (-1 / power)
    if not least <= cutoff <= most:
        remedy = f"Use another unit of length{', or float64' * (dtype.itemsize < 8)}."
        raise ValueError(
            f"the cutoff is {cutoff:.3g}; {dtype.name} holds the powers of distances that this interaction needs for "
            f"cutoffs from {least:.2g} to {most:.2g}. {remedy}"
        )


def widest(cutoff: float, error: float) -> float:
    """Return the largest width of Gaussians that are points at a cutoff: forces of two quadrupoles, up to an error.

    >>> round(widest(10.0, 1e-6), 3)
    1.012
    """
    return float(cutoff / (2 * math.sqrt(gammainccinv(5.5, error))))


class Split:
    """An interaction and its smooth part.

    Twice the energy of a particle of charge q is ``q (sum + mesh * potential - itself * q)``, with the sum over its
    neighbours and the potential of the mesh.

    Errors are those of forces, root mean square. ``distance`` is the mean distance ``(V / N)**(1/3)`` of particles, at
    which a typical force acts.
    """

    power: ClassVar[int]  # of the distance, by which a pair function divides
    mesh: ClassVar[float]  # times the potential of the mesh
    spacings: ClassVar[tuple[float, float]]  # of meshes, between which errors are tabulated for the unit

    @classmethod
    def of(cls, cutoff: float, distance: float, error: float, number: float | None = None) -> Self:
        """Return the split with this number, or with that for which pairs beyond the cutoff make an error."""
        raise NotImplementedError

    @classmethod
    def cutoff_of(cls, number: float, distance: float, error: float) -> float | None:
        """Return the cutoff that makes an error with this number, or None if the number leaves it free."""
        raise NotImplementedError

    @property
    def itself(self) -> float:
        """What the mesh gives a particle of its own smooth part."""
        return self.at_zero(0)

    def at_zero(self, order: int) -> float:
        """Return the smooth part at r = 0 after ``-2 d / d(r**2)`` so many times: with 1 a dipole's own field."""
        raise NotImplementedError

    @property
    def unit(self) -> tuple[Split, float]:
        """A split whose errors on a mesh are tabulated, and the wavenumber that is 1 there."""
        raise NotImplementedError

    @property
    def highest(self) -> float:
        """The wavenumber beyond which the smooth part has nothing."""
        raise NotImplementedError

    def green(self, periodic: bool) -> dict[str, Any]:
        """Return the Green function as arguments of a solver."""
        raise NotImplementedError

    def smooth(self, r2: Any) -> Any:
        """Return the smooth part at r**2."""
        raise NotImplementedError

    def bent(self, r2: Any, order: int) -> Array:
        """Return the derivative of the smooth part by r**2 of an order, below the cutoff."""
        raise NotImplementedError

    def transform(self, k2: Array) -> Array:
        """Return the transform of the smooth part at k**2."""
        raise NotImplementedError

    def variation(self, cutoff: float) -> float:
        """Return by how many factors of e the smooth part varies up to the cutoff."""
        raise NotImplementedError

    def real_error(self, cutoff: float, distance: float) -> float:
        """Return the relative error of the forces that pairs and a fine mesh make."""
        raise NotImplementedError

    def steepness(self, cutoff: float) -> float:
        """Return the wavenumber of most of the error, by which each derivative multiplies it."""
        raise NotImplementedError

    def mesh_share(self, distance: float) -> float:
        """Return the error of the mesh over that of charges with the tabulated split."""
        return 1.0


@dataclass(frozen=True)
class Prolate(Split):
    """``1 / r`` split by the prolate spheroidal wave function of a bandwidth c [liang2025]_.

    The rest is zero from the cutoff on, and the smooth part has no wavenumbers beyond about ``bandwidth / cutoff``. For
    the same error this is 0.6 to 0.7 of those of Gaussian charges.

    The error is that of wavenumbers that the smooth part leaves out. Let f be the transform of psi over its value at 0.
    For charges at random places, the squared error is ``8 distance / cutoff`` times the integral of ``f**2`` beyond
    the edge. By ``k cutoff`` this integral is close to ``2 pi c (1 - 1 / c)**2 exp(-2 c)``.

    Examples
    --------
    >>> Prolate(12.0, 2.0).smooth(np.array([0.0, 1.0, 9.0])).round(6)
    array([1.381977, 0.927313, 0.333333])
    """

    bandwidth: float
    cutoff: float
    power = 3
    mesh = _FOUR_PI
    spacings = 0.25, 4.5

    def __str__(self) -> str:
        return f"prolate split of bandwidth {self.bandwidth:.4g}"

    @functools.cached_property
    def _green(self) -> ProlateGreen:
        return ProlateGreen(self.bandwidth, self.cutoff)

    @classmethod
    def of(cls, cutoff: float, distance: float, error: float, number: float | None = None) -> Self:
        low, high = 2.0, 40.0
        if number is not None:
            return cls(number, cutoff)
        for _ in range(30):
            middle = (low + high) / 2
            low, high = (middle, high) if cls(middle, cutoff).real_error(cutoff, distance) > error else (low, middle)
        return cls(min(math.ceil(8 * high) / 8, 40.0), cutoff)  # few numbers, for each of which meshes are tabulated

    @classmethod
    def cutoff_of(cls, number: float, distance: float, error: float) -> None:
        return None

    def at_zero(self, order: int) -> float:
        return 2 / math.pi * self._green.moment(2 * order) / math.prod(range(1, 2 * order + 2, 2))

    @property
    def unit(self) -> tuple[Split, float]:
        edge = self._green.edge
        return Prolate(self.bandwidth, self.cutoff * edge), edge

    @property
    def highest(self) -> float:
        return self._green.edge

    def green(self, periodic: bool) -> dict[str, Any]:
        return dict(green=self._green, zero=self._green.zero if periodic else None)

    def smooth(self, r2: Any) -> Any:
        return self._green.potential(r2)

    def bent(self, r2: Any, order: int) -> Array:
        return np.asarray(self._green.potential(r2, order))

    def transform(self, k2: Array) -> Array:
        return np.asarray(4 * math.pi * self._green(k2))

    def variation(self, cutoff: float) -> float:
        return self.bandwidth / 2

    def real_error(self, cutoff: float, distance: float) -> float:
        c = self.bandwidth
        return 4 * (1 - 1 / c) * math.sqrt(math.pi * c * distance / cutoff) * math.exp(-c)

    def steepness(self, cutoff: float) -> float:
        # What is beyond the edge falls slowly: so errors of dipoles and quadrupoles are right within a factor of 3.
        return 2 * self._green.edge


@dataclass(frozen=True)
class Inverse(Split):
    """A split by a Gaussian, whose inverse width is the splitting."""

    splitting: float
    spacings = 0.04, 6.0

    def __str__(self) -> str:
        return f"splitting {self.splitting:.4g}"

    @classmethod
    def of(cls, cutoff: float, distance: float, error: float, number: float | None = None) -> Self:
        low, high = 0.1 / cutoff, 26.0 / cutoff
        if number is not None:
            return cls(number)
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if cls(middle).real_error(cutoff, distance) > error else (low, middle)
        return cls(high)

    @classmethod
    def cutoff_of(cls, number: float, distance: float, error: float) -> float:
        low, high = 0.1 / number, 26.0 / number
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if cls(number).real_error(middle, distance) > error else (low, middle)
        return high

    @property
    def unit(self) -> tuple[Split, float]:
        return Gaussian(1.0), self.splitting

    @property
    def highest(self) -> float:
        return 13.0 * self.splitting

    def variation(self, cutoff: float) -> float:
        return (self.splitting * cutoff) ** 2

    def steepness(self, cutoff: float) -> float:
        return 2 * self.splitting**2 * cutoff


class Gaussian(Inverse):
    """``1 / r``, whose smooth part is that of Gaussian charges: ``erf(splitting * r) / r``.

    Examples
    --------
    >>> Gaussian(2.0).smooth(np.array([0.0, 1.0])).round(6)
    array([2.256758, 0.995322])
    """

    power = 3
    mesh = _FOUR_PI

    def at_zero(self, order: int) -> float:
        return 2 * self.splitting / math.sqrt(math.pi) * (2 * self.splitting**2) ** order / (2 * order + 1)

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

    def bent(self, r2: Any, order: int) -> Array:
        z, power = self.splitting**2 * r2, order + 0.5
        boys = gamma(power) * gammainc(power, z) / (2 * z**power)
        return np.asarray(self.itself * (-(self.splitting**2)) ** order * boys)

    def transform(self, k2: Array) -> Array:
        return np.asarray(4 * math.pi * np.exp(-k2 / (4 * self.splitting**2)) / k2)

    def real_error(self, cutoff: float, distance: float) -> float:
        return 2 * math.sqrt(distance / cutoff) * math.exp(-min((self.splitting * cutoff) ** 2, 700.0))


class SixthPower(Inverse):
    """``-r**-6``, whose smooth part is ``-P(3, (beta r)**2) / r**6`` with the splitting beta [essmann1995]_.

    P is the regularised incomplete gamma function. The functions here are without the minus.

    A split that ends at the cutoff would gain little. With cutoffs as those of Lennard-Jones potentials the mesh takes
    6 to 29 % of the time (dispersion-intel-r-xeon-r-processor-2-threads.csv).

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

    def real_error(self, cutoff: float, distance: float) -> float:
        # Particles at random places, of ``distance**-3`` per volume, pull with the force of the real-space part.
        x2 = (self.splitting * cutoff) ** 2
        force = math.exp(-min(x2, 700.0)) * (6 + 6 * x2 + 3 * x2**2 + x2**3) / cutoff**7
        return force * math.sqrt(math.pi / x2) * (cutoff / distance) ** 1.5 * distance**7 / 6

    def mesh_share(self, distance: float) -> float:
        # At every wave vector the transform is at most that of charges times ``sqrt(pi) beta**5 / 2``.
        return math.sqrt(math.pi) * (self.splitting * distance) ** 5 / 12


SPLITS: Mapping[str, type[Split]] = MappingProxyType({"prolate": Prolate, "gaussian": Gaussian})


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

    def parameters(self) -> tuple[float, ...]:
        """Return what pair functions take: scale, 1, an end, and rows of coefficients, each with its middle last."""
        middles = np.arange(len(self.coefficients)) + 0.5
        return self.scale, 1.0, float(middles[-1]), *np.column_stack([self.coefficients, middles]).ravel().tolist()

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

    def bent(self, order: int) -> Array:
        """Return the coefficients of what ``-2 d / d(r**2)`` makes of the function, an order of times."""
        rows = self.coefficients
        for _ in range(order):
            rows = -2 * self.scale * np.arange(1, rows.shape[1]) * rows[:, 1:]
        return rows


NONE = Smooth(1.0, np.zeros((1, 1)))  # no smooth part: pair functions have the whole interaction


@functools.lru_cache(maxsize=32)
def polynomials(split: Split, cutoff: float, single: bool, one: bool = False) -> Smooth:
    """Return the smooth part as polynomials, to rounding.

    With intervals in which the function varies by a factor of ``exp(0.2)`` degree 8 leaves less than 1e-16. With
    ``exp(0.5)`` degree 6 leaves less than 1e-8, of slopes too. GPUs and vectors of a CPU compute faster than they look
    up: with `one`, in single precision one polynomial serves all distances. Its force errs by 5e-8 of that at the
    cutoff.
    """
    factors = split.variation(cutoff)
    if single and one and factors < 30:
        r = np.linspace(0, cutoff, 200)[1:-1]
        fits = (_fitted(split.smooth, cutoff, 1, degree) for degree in itertools.count(4))
        return next(fit for fit in fits if abs(r * (fit(r**2)[1] - split.bent(r**2, 1))).max() < 2.5e-8 / cutoff**2)
    width, degree = (0.5, 6) if single else (0.2, 8)
    return _fitted(split.smooth, cutoff, max(1, math.ceil(factors / width)), degree)


@functools.lru_cache(maxsize=32)
def with_derivatives(split: Split, cutoff: float, single: bool, order: int = 3) -> Smooth:
    """Return polynomials whose derivatives up to an order are the smooth part's, to rounding.

    Those of values would take the rounding of values a million times. So the last derivative is fitted and integrated.
    """
    bent = _fitted(
        lambda r2: split.bent(r2, order), cutoff, max(1, math.ceil(split.variation(cutoff) / 3)), 8 if single else 17
    )  # fmt: skip
    count, degree = bent.coefficients.shape
    middles = (np.arange(count) + 0.5) / bent.scale
    first = [
        split.smooth(middles),
        *(split.bent(middles, n) / (math.factorial(n) * bent.scale**n) for n in range(1, order)),
    ]
    rest = bent.coefficients / (bent.scale**order * math.prod(np.arange(degree) + n for n in range(1, order + 1)))
    return Smooth(bent.scale, np.column_stack([*first, rest]))


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
