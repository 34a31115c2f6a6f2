# SPDX-License-Identifier: BSD-3-Clause
"""Pairs that polarisable models and charges of a width change: what is added to the interaction of points.

Thole's damping follows from ``w = a r**3 / sqrt(alpha_i alpha_j)``. Let ``e1 = exp(-w)``, ``e2 = (1 + w) e1`` and
``e3 = (1 + w + 3 w**2 / 5) e1``. The field of a charge is multiplied by ``1 - e1``. The two terms of a dipole's field
are multiplied by ``1 - e1`` and ``1 - e2``. These are derivatives of one energy, and e3 comes with its forces. So what
is added to points has ``-e1``, ``-e2`` and ``-e3``.

Charges of Gaussians with standard deviations s have the potential ``erf(r / sqrt(2 s_i**2 + 2 s_j**2)) / r``, to which
``-erfc(...) / r`` is added.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numba
import numpy as np

import particlemesh as pm
from particlemesh.apps.pme.dipoles import slopes_of

_MOST = 80.0  # of w: its exponential is no number of float32 beyond
# Columns of `moments`: energy, force (3), potential, slopes by permanent and by induced dipoles (3 each), w times the
# slope by w, virial (9).
FORCE, POTENTIAL, PERMANENT, INDUCED, BY_W, VIRIAL = 1, 4, 5, 8, 11, 12
VALUES, RESULTS = 8, 21


def reach_of_thole(a: float, largest: float, dtype: np.dtype) -> float:
    """Return the distance beyond which a damping is less than rounding, for polarizabilities up to the largest."""
    return float((-math.log(np.finfo(dtype).eps / 8) * largest / a) ** (1 / 3))


def reach_of_widths(largest: float, dtype: np.dtype) -> float:
    """Return the distance beyond which Gaussians up to the largest standard deviation are points, to rounding."""
    return 2 * largest * math.sqrt(-math.log(np.finfo(dtype).eps))


# ---- Thole's damping --------------------------------------------------------------------------------------

# Roots of polarizabilities are the last values; a product of 0 means no damping.
_DAMP = """
const real inverse = (real)1 / r2, far = p[0] * r2 * sqrt(r2), size = a[LAST] * b[LAST];
const real w = far < p[1] * size ? far / size : p[1];
const real e1 = exp(-w), e2 = (1 + w) * e1, e3 = (1 + w + (real)0.6 * w * w) * e1;
const real r1 = inverse * sqrt(inverse), b1 = -e1 * r1, b2 = -3 * e2 * r1 * inverse;
"""


def _parameters(a: float, listed: bool) -> tuple[float, ...]:
    return a, _MOST, float(listed), 0.5, 0.6, 1.0, 3.0, 15.0


@numba.njit(nogil=True, error_model="numpy", forceinline=True)
def _thole(r2, a, b, p):
    """Return w and b1 to b3, as in C."""
    # Constants come from p, since Numba computes products of float32 and numbers of Python in float64.
    inverse, far, size = p[5] / r2, p[0] * r2 * np.sqrt(r2), a[-1] * b[-1]
    w = far / size if far < p[1] * size else p[1]
    b1 = -np.exp(-w) * inverse * np.sqrt(inverse)
    b2 = p[6] * (p[5] + w) * b1 * inverse
    return w, b1, b2, p[7] * (p[5] + w + p[4] * w * w) * b1 * inverse * inverse


@functools.cache
def slopes(a: float) -> pm.PairFunction:
    """Return the pair function of what is added to slopes of potentials of induced dipoles.

    Its values are a dipole and the root of a polarizability.
    """
    return slopes_of(_DAMP.replace("LAST", "3"), _thole, 4, _parameters(a, False))


@functools.cache
def moments(a: float, listed: bool) -> pm.PairFunction:
    """Return the pair function of what is added to energy and derivatives of permanent and induced moments.

    Values are a charge q, a dipole m, an induced dipole u, and the root of its polarizability. Damped are q and m with
    u, and u with u. Of ``listed`` pairs u with u is what points have, with the other sign.
    """
    source = f"""
if (!(r2 > 0) && p[2] == 0) return;
{_DAMP.replace("LAST", "7")}
const real r5 = r1 * inverse * inverse, b3 = -15 * e3 * r5;
const real c1 = p[2] > 0 ? -r1 : b1, c2 = p[2] > 0 ? -3 * r1 * inverse : b2, c3 = p[2] > 0 ? -15 * r5 : b3;
const real turn_1 = p[2] > 0 ? (real)0 : w * e1 * r1, turn_2 = p[2] > 0 ? (real)0 : 3 * w * w * e1 * r1 * inverse;
real mi = 0, mj = 0, ui = 0, uj = 0, cross = 0, both = 0;
for (int n = 0; n < 3; n++) {{
    mi += a[1 + n] * d[n];
    mj += b[1 + n] * d[n];
    ui += a[4 + n] * d[n];
    uj += b[4 + n] * d[n];
    cross += a[1 + n] * b[4 + n] + a[4 + n] * b[1 + n];
    both += a[4 + n] * b[4 + n];
}}
const real charge = b[0] * ui - a[0] * uj, twice = mi * uj + ui * mj;
const real energy = (charge + cross) * b1 - twice * b2 + both * c1 - ui * uj * c2;
const real along = -(charge + cross) * b2 + twice * b3 - both * c2 + ui * uj * c3;
sum[0] += (real)0.5 * energy;
sum[4] -= uj * b1;
sum[11] += (charge + cross) * w * e1 * r1 - 3 * twice * w * w * e1 * r1 * inverse + both * turn_1 - ui * uj * turn_2;
for (int n = 0; n < 3; n++) {{
    const real pull = along * d[n] + b1 * (b[0] * a[4 + n] - a[0] * b[4 + n])
                    - b2 * (a[1 + n] * uj + mi * b[4 + n] + a[4 + n] * mj + ui * b[1 + n])
                    - c2 * (a[4 + n] * uj + ui * b[4 + n]);
    sum[1 + n] += pull;
    sum[5 + n] += b1 * b[4 + n] - b2 * uj * d[n];
    sum[8 + n] += (b[0] * b1 - mj * b2 - uj * c2) * d[n] + b1 * b[1 + n] + c1 * b[4 + n];
    for (int m = 0; m < 3; m++) sum[12 + 3 * n + m] += (real)0.5 * pull * d[m];
}}
"""
    return pm.PairFunction(source, _moments, RESULTS, VALUES, _parameters(a, listed))


def _moments(r2, d, i, j, a, b, p, sum):  # noqa: A002 - the names that a pair function has
    if r2 <= 0 and p[2] == 0:
        return
    half, three, inverse = p[3], p[6], p[5] / r2
    w, b1, b2, b3 = _thole(r2, a, b, p)
    by_1, by_2 = -w * b1, -three * w * w * b1 * inverse
    turn_1, turn_2, c1, c2, c3 = by_1, by_2, b1, b2, b3
    if p[2] > 0:
        r1 = inverse * np.sqrt(inverse)
        c1, c2, c3, by_1, by_2 = -r1, -three * r1 * inverse, -p[7] * r1 * inverse * inverse, r1 - r1, r1 - r1
    mi = a[1] * d[0] + a[2] * d[1] + a[3] * d[2]
    mj = b[1] * d[0] + b[2] * d[1] + b[3] * d[2]
    ui = a[4] * d[0] + a[5] * d[1] + a[6] * d[2]
    uj = b[4] * d[0] + b[5] * d[1] + b[6] * d[2]
    cross = a[1] * b[4] + a[2] * b[5] + a[3] * b[6] + a[4] * b[1] + a[5] * b[2] + a[6] * b[3]
    both = a[4] * b[4] + a[5] * b[5] + a[6] * b[6]
    charge, twice = b[0] * ui - a[0] * uj, mi * uj + ui * mj
    along = -(charge + cross) * b2 + twice * b3 - both * c2 + ui * uj * c3
    sum[0] += half * ((charge + cross) * b1 - twice * b2 + both * c1 - ui * uj * c2)
    sum[4] -= uj * b1
    sum[11] += (charge + cross) * turn_1 - twice * turn_2 + both * by_1 - ui * uj * by_2
    for n in range(3):
        pull = along * d[n] + b1 * (b[0] * a[4 + n] - a[0] * b[4 + n])
        pull -= b2 * (a[1 + n] * uj + mi * b[4 + n] + a[4 + n] * mj + ui * b[1 + n])
        pull -= c2 * (a[4 + n] * uj + ui * b[4 + n])
        sum[1 + n] += pull
        sum[5 + n] += b1 * b[4 + n] - b2 * uj * d[n]
        sum[8 + n] += (b[0] * b1 - mj * b2 - uj * c2) * d[n] + b1 * b[1 + n] + c1 * b[4 + n]
        for m in range(3):
            sum[12 + 3 * n + m] += half * pull * d[m]


# ---- Gaussian charges -------------------------------------------------------------------------------------


@functools.cache
def widths(sets: int, slopes: bool) -> pm.PairFunction:
    """Return the pair function of what is added to potentials of charges by their squared widths, the last value.

    With ``slopes`` also to the slopes of the energy of one set (3) and its virial (9).
    """
    more = """
    const real pull = a[0] * b[0] * (rest + p[1] * beta * exp(-beta * beta * r2)) * inverse * inverse;
    for (int n = 0; n < 3; n++) {
        sum[1 + n] += pull * d[n];
        for (int m = 0; m < 3; m++) sum[4 + 3 * n + m] += (real)0.5 * pull * d[n] * d[m];
    }
"""
    source = f"""
if (!(r2 > 0)) return;
const real inverse = rsqrt(r2), square = 2 * (a[{sets}] + b[{sets}]);
if (square > 0) {{
    const real beta = rsqrt(square), rest = erfc(beta * r2 * inverse) * inverse;
    for (int c = 0; c < {sets}; c++) sum[c] -= b[c] * rest;
    {more if slopes else ""}
}}
"""
    return pm.PairFunction(
        source, _widths(sets, slopes), 13 if slopes else sets, sets + 1, (1.0, 2 / math.sqrt(math.pi), 0.5)
    )


@functools.cache
def _widths(sets: int, slopes: bool) -> Any:
    def of_pair(r2, d, i, j, a, b, p, sum):  # noqa: A002 - the names that a pair function has
        square = a[sets] + b[sets]
        if r2 <= 0 or square <= 0:
            return
        inverse, beta = p[0] / np.sqrt(r2), p[0] / np.sqrt(square + square)
        rest = math.erfc(beta * r2 * inverse) * inverse
        for c in range(sets):
            sum[c] -= b[c] * rest
        if slopes:
            pull = a[0] * b[0] * (rest + p[1] * beta * np.exp(-beta * beta * r2)) * inverse * inverse
            for n in range(3):
                sum[1 + n] += pull * d[n]
                for m in range(3):
                    sum[4 + 3 * n + m] += p[2] * pull * d[n] * d[m]

    return of_pair
