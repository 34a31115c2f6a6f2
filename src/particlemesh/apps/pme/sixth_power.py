# SPDX-License-Identifier: BSD-3-Clause
"""The two parts of r**-6 and of Lennard-Jones potentials: transforms, and the function of pairs.

The smooth part of ``r**-6`` is ``P(3, (beta r)**2) / r**6`` with the regularised incomplete gamma function P. Its
transform is known [essmann1995]_.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import erfcx, gammainc

import particlemesh as pm
from particlemesh.apps.pme import direct

Array = NDArray[np.float64]
MIXING = ("geometric", "lorentz-berthelot")
_ROOT_PI = math.sqrt(math.pi)
COLUMNS = 11  # energy, force (3), virial (6), particles in one place
_CLOSE = 1.5  # (sigma / r)**2 of a close pair: no thermal motion brings free particles there
_CLOSE_BETA = 0.5  # (beta r)**2 of a close pair without sigma


def smooth_part(beta: float, r2: Array) -> Array:
    """Return the smooth part of ``r**-6`` at r**2; at 0 it is ``beta**6 / 6``.

    Examples
    --------
    >>> smooth_part(2.0, np.array([0.0, 1.0, 9.0])).round(6)
    array([1.0666667e+01, 7.6189700e-01, 1.3720000e-03])
    """
    t = beta**2 * np.asarray(r2, np.float64)
    near = t < 1e-3  # there the quotient rounds; four terms of the series are exact
    away = np.where(near, 1.0, t)
    series = 1 / 6 - t / 8 + t**2 / 20 - t**3 / 72
    return np.asarray(beta**6 * np.where(near, series, gammainc(3, away) / away**3))


def transform(beta: float, k2: Array) -> Array:
    """Return the transform of the smooth part at k**2."""
    u = k2 / (4 * beta**2)
    return _ROOT_PI**3 * beta**3 / 3 * np.exp(-u) * (1 - 2 * u + 2 * _ROOT_PI * u**1.5 * erfcx(np.sqrt(u)))


def transform_slope(beta: float, k2: Array) -> Array:
    """Return the derivative of `transform` by k**2."""
    u = k2 / (4 * beta**2)
    return _ROOT_PI**3 * beta / 4 * np.exp(-u) * (_ROOT_PI * np.sqrt(u) * erfcx(np.sqrt(u)) - 1)


@functools.lru_cache(maxsize=32)
def smooth_dispersion(beta: float, cutoff: float, single: bool) -> direct.Smooth:
    """Return `smooth_part` as polynomials, to rounding."""
    width, degree = (0.5, 5) if single else (0.2, 8)
    intervals = max(1, math.ceil((beta * cutoff) ** 2 / width))
    return direct.fitted(functools.partial(smooth_part, beta), cutoff, intervals, degree)


def pair_function(
    smooth: direct.Smooth, beta: float, cutoff: float, repulsion: bool, mixing: str, shift: bool, apart: bool
) -> pm.PairFunction:
    """Return the pair function of particles with the values ``2 sqrt(epsilon)`` and sigma.

    The interaction of a close pair may be so large that all other digits of a sum are lost. Most close pairs are
    excluded afterwards. So with ``apart`` the part of close pairs that the mesh does not have is summed apart, in the
    second `COLUMNS`. The last of these is `mark`, a number that tells sets of close particles j from each other.
    """
    last = len(smooth.coefficients) - 1
    at_cutoff = float(smooth(cutoff**2)[0])
    close = (1 / _CLOSE, 0.0) if repulsion else (0.0, _CLOSE_BETA / beta**2)  # r2 below close[0] * sigma**2 + close[1]
    flags = (float(repulsion), float(mixing == MIXING[1]), float(shift), cutoff**-2, at_cutoff, *close)
    constants = (smooth.scale, 0.5, float(last), *flags, *smooth.coefficients.ravel().tolist())
    terms = smooth.coefficients.shape[1]
    return pm.PairFunction(_source(terms, apart), _function(terms, apart), COLUMNS * (1 + apart), 2, constants)


def mark(j: Any) -> Any:
    """Return what a close particle j adds to the mark of a set, as in the pair functions; sums of 4,000 are exact."""
    return 1 + (j & 4095)


@functools.cache
def _function(terms: int, apart: bool) -> Any:
    # Constants come from p, since Numba computes products of float32 and numbers of Python in float64.
    def lennard_jones_pair(r2, d, i, j, a, b, p, sum):  # noqa: A002 - the names that a pair function has
        half = p[1]
        one = half + half
        three = one + one + one
        t = r2 * p[0]
        whole = np.floor(min(t, p[2]))
        s = t - whole - half
        at = 10 + terms * int(whole)
        value = p[at + terms - 1]
        slope = value - value
        for n in range(terms - 2, -1, -1):
            slope = slope * s + value
            value = value * s + p[at + n]
        if r2 > 0:
            inverse = one / r2
        else:
            inverse = r2 - r2
            sum[10] += one
        depth = a[0] * b[0]
        product = a[1] * b[1]
        mean = half * (a[1] + b[1])
        size = p[4] * mean * mean + (one - p[4]) * product
        lattice = depth * product * product * product
        s6 = size * inverse
        s6 = s6 * s6 * s6
        c6 = size * p[6]
        c6 = c6 * c6 * c6
        energy = depth * (p[3] * s6 - one) * s6
        g = (three + three) * depth * (one - p[3] * (s6 + s6)) * s6 * inverse
        if apart and r2 < p[8] * size + p[9]:
            x, y, z = g * d[0], g * d[1], g * d[2]
            sum[11] += energy
            sum[12] += x
            sum[13] += y
            sum[14] += z
            sum[15] += x * d[0]
            sum[16] += y * d[1]
            sum[17] += z * d[2]
            sum[18] += y * d[2]
            sum[19] += z * d[0]
            sum[20] += x * d[1]
            sum[21] += 1 + (j & 4095)
            energy = r2 - r2
            g = energy
        sum[0] += energy + lattice * value
        sum[0] -= p[5] * (depth * (p[3] * c6 - one) * c6 + lattice * p[7])
        g += (one + one) * lattice * p[0] * slope
        x, y, z = g * d[0], g * d[1], g * d[2]
        sum[1] += x
        sum[2] += y
        sum[3] += z
        sum[4] += x * d[0]
        sum[5] += y * d[1]
        sum[6] += z * d[2]
        sum[7] += y * d[2]
        sum[8] += z * d[0]
        sum[9] += x * d[1]

    return lennard_jones_pair


def _source(terms: int, apart: bool) -> str:
    close = """
if (r2 < p[8] * size + p[9]) {
    const real u = g * d[0], v = g * d[1], w = g * d[2];
    sum[11] += energy;
    sum[12] += u; sum[13] += v; sum[14] += w;
    sum[15] += u * d[0]; sum[16] += v * d[1]; sum[17] += w * d[2];
    sum[18] += v * d[2]; sum[19] += w * d[0]; sum[20] += u * d[1];
    sum[21] += (real)(1 + (j & 4095));
    energy = g = 0;
}"""
    return f"""
const real t = r2 * p[0], whole = floor(t < p[2] ? t : p[2]), s = t - whole - (real)0.5;
const i64 at = 10 + {terms} * (i64)whole;
real value = p[at + {terms - 1}], slope = 0;
for (int n = {terms - 2}; n >= 0; n--) {{
    slope = slope * s + value;
    value = value * s + p[at + n];
}}
const real inverse = r2 > 0 ? (real)1 / r2 : (real)0;
if (!(r2 > 0)) sum[10] += (real)1;
const real depth = a[0] * b[0], product = a[1] * b[1], mean = (real)0.5 * (a[1] + b[1]);
const real size = p[4] * mean * mean + (1 - p[4]) * product, lattice = depth * product * product * product;
const real near = size * inverse, s6 = near * near * near, far = size * p[6], c6 = far * far * far;
real energy = depth * (p[3] * s6 - 1) * s6, g = 6 * depth * (1 - 2 * p[3] * s6) * s6 * inverse;
{close if apart else ""}
sum[0] += energy + lattice * value - p[5] * (depth * (p[3] * c6 - 1) * c6 + lattice * p[7]);
g += 2 * lattice * p[0] * slope;
const real x = g * d[0], y = g * d[1], z = g * d[2];
sum[1] += x; sum[2] += y; sum[3] += z;
sum[4] += x * d[0]; sum[5] += y * d[1]; sum[6] += z * d[2];
sum[7] += y * d[2]; sum[8] += z * d[0]; sum[9] += x * d[1];
"""
