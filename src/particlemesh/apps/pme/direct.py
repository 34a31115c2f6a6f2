# SPDX-License-Identifier: BSD-3-Clause
"""The real-space half: the interaction minus its smooth part, summed over pairs within the cutoff.

The smooth part of ``1 / r`` is ``erf(alpha r) / r``, an analytic function of r**2. Polynomials of r**2 give it to
rounding, by intervals; the force takes their derivative, so that it is the exact gradient of the energy. The same
numbers are the parameters of a pair function in C and in Python.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
from numpy.polynomial import chebyshev
from numpy.typing import NDArray
from scipy.special import erf

import particlemesh as pm

Array = NDArray[np.float64]


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


def fitted(function: Callable[[Array], Array], cutoff: float, intervals: int, degree: int) -> Smooth:
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


def coulomb(alpha: float, r2: Array) -> Array:
    """Return ``erf(alpha r) / r``, the potential of a Gaussian charge, at r**2.

    Examples
    --------
    >>> coulomb(2.0, np.array([0.0, 1.0])).round(6)
    array([2.256758, 0.995322])
    """
    z2 = alpha**2 * r2
    near = z2 < 1e-4  # there the quotient rounds; three terms of the series are exact
    r = np.sqrt(np.where(near, 1.0, r2))
    series = 2 / math.sqrt(math.pi) * alpha * (1 - z2 / 3 + z2**2 / 10 - z2**3 / 42)
    return np.asarray(np.where(near, series, erf(alpha * r) / r))


@functools.lru_cache(maxsize=32)
def smooth_coulomb(alpha: float, cutoff: float, single: bool, one: bool) -> Smooth:
    """Return ``erf(alpha r) / r`` as polynomials, to rounding.

    The function varies over r**2 of about 1 / alpha**2. With intervals of 0.2 / alpha**2 degree 8 leaves less than
    1e-16, and with 0.5 / alpha**2 degree 5 less than 5e-8. GPUs and vectors of a CPU compute faster than they look
    up: with `one`, in single precision one polynomial serves all distances.
    """
    range2 = (alpha * cutoff) ** 2
    function = functools.partial(coulomb, alpha)
    if single and one and range2 < 30:
        return fitted(function, cutoff, 1, 8 + math.ceil(0.9 * range2))
    width, degree = (0.5, 5) if single else (0.2, 8)
    return fitted(function, cutoff, max(1, math.ceil(range2 / width)), degree)


def columns(virial: bool) -> int:
    """Return how many sums a particle has for each set of charges."""
    return 10 if virial else 4


def pair_function(smooth: Smooth, sets: int, virial: bool) -> pm.PairFunction:
    """Return the pair function of ``1 / r`` minus a smooth part.

    For each set of charges b it sums the potential ``b g``, the field ``b g' d / r`` and, if asked for, the six
    products ``b g' d d / r`` of the virial. The last sum counts particles in one place, whose ``1 / r`` is taken as 0.
    """
    width, terms = columns(virial), smooth.coefficients.shape[1]
    intervals = len(smooth.coefficients)
    rows = np.column_stack([smooth.coefficients, np.arange(intervals) + 0.5])  # each ends with the interval's middle
    parameters = (smooth.scale, 1.0, intervals - 0.5, *rows.ravel().tolist())
    source = _source(terms, intervals, sets, width)
    return pm.PairFunction(source, _function(terms, sets, width), sets * width + 1, sets, parameters)


@functools.cache
def smooth_part(terms: int) -> Callable[..., Any]:
    """Return the compiled function ``(r2, p)`` of the smooth part and of its slope over r.

    ``p`` are the parameters of `pair_function` for polynomials of so many coefficients.
    """

    # Constants come from p, since Numba computes products of float32 and numbers of Python in float64.
    def polynomials(r2, p):
        t = r2 * p[0]
        at = 3 + (terms + 1) * int(min(t, p[2]))
        s = t - p[at + terms]
        value = p[at + terms - 1]
        slope = value - value
        for n in range(terms - 2, -1, -1):
            slope = slope * s + value
            value = value * s + p[at + n]
        return value, slope * (p[0] + p[0])

    return numba.njit(nogil=True, error_model="numpy", forceinline=True)(polynomials)


@functools.cache
def _function(terms: int, sets: int, width: int) -> Callable[..., None]:
    smooth, last = smooth_part(terms), sets * width

    def coulomb_pair(r2, d, i, j, a, b, p, sum):  # noqa: A002 - the names that a pair function has
        value, slope = smooth(r2, p)
        inverse = p[1] / np.sqrt(r2)
        if not r2 > 0:
            inverse = r2
            sum[last] += p[1]
        u, g = inverse - value, -inverse * inverse * inverse - slope
        k = 0
        for q in b:
            w = q * g
            sum[k] += q * u
            sum[k + 1] += w * d[0]
            sum[k + 2] += w * d[1]
            sum[k + 3] += w * d[2]
            if width > 4:
                sum[k + 4] += w * d[0] * d[0]
                sum[k + 5] += w * d[1] * d[1]
                sum[k + 6] += w * d[2] * d[2]
                sum[k + 7] += w * d[1] * d[2]
                sum[k + 8] += w * d[2] * d[0]
                sum[k + 9] += w * d[0] * d[1]
            k += width

    return coulomb_pair


def _source(terms: int, intervals: int, sets: int, width: int) -> str:
    first = "3" if intervals == 1 else f"3 + {terms + 1} * (i64)(t < p[2] ? t : p[2])"
    second = "".join(
        f"sum[k + {4 + n}] += {a} * d[{b}];\n"
        for n, (a, b) in enumerate(zip("xyzyzx", (0, 1, 2, 2, 0, 1), strict=True))
    )
    return f"""
const real t = r2 * p[0];
const i64 at = {first};
const real s = t - p[at + {terms}];
real value = p[at + {terms - 1}], slope = 0;
for (int n = {terms - 2}; n >= 0; n--) {{
    slope = slope * s + value;
    value = value * s + p[at + n];
}}
const real inverse = r2 > 0 ? rsqrt(r2) : (real)0;
if (!(r2 > 0)) sum[{sets * width}] += (real)1;
const real u = inverse - value, g = -inverse * inverse * inverse - 2 * p[0] * slope;
for (int c = 0; c < {sets}; c++) {{
    const int k = c * {width};
    sum[k] += b[c] * u;
    const real w = b[c] * g, x = w * d[0], y = w * d[1], z = w * d[2];
    sum[k + 1] += x;
    sum[k + 2] += y;
    sum[k + 3] += z;
    {second if width > 4 else ""}
}}
"""
