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
from particlemesh.apps.pme import close
from particlemesh.apps.pme.dipoles import MORE, factors, factors_text, parameters_of, slopes_of
from particlemesh.apps.pme.split import Smooth

_MOST = 40.0  # of w: beyond it damping is less than rounding
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

# Roots of polarizabilities are the last values; a product of 0 means no damping. k1 to k3 are 1 less e1 to e3, over
# r**3, r**5 and r**7; g1 and g2 are ``w e1 / r**3`` and ``w**2 e1 / r**5``. Below w = 1 powers of w and of ``1 / r``
# cancel, so that no distance is too short, and e1 multiplies what the series of exp(w) has beyond its first terms:
# differences would lose digits.
_DAMP = """
const real far = p[AT] * r2 * sqrt(r2), size = a[LAST] * b[LAST], over = r2 > 0 ? (real)1 / r2 : (real)0;
const real w = far < p[AT + 1] * size ? far / size : p[AT + 1], r1 = over * sqrt(over), r3 = r1 * over;
const real e1 = exp(-w), e2 = (1 + w) * e1, e3 = (1 + w + (real)0.6 * w * w) * e1;
real k1 = (1 - e1) * r1, k2 = (1 - e2) * r3, k3 = (1 - e3) * r3 * over, g1 = w * e1 * r1, g2 = w * w * e1 * r3;
if (w < 1) {
    const real v = p[AT] / size, square = v * v * e1;
    real series = 1;
    for (int n = 18; n > 2; n--) series = 1 + series * w / n;
    series *= (real)0.5;
    g1 = v * e1;
    g2 = square * sqrt(r2);
    k1 = (1 + series * w) * g1;
    k2 = series * g2;
    k3 = (series - (real)0.6) * square * sqrt(over);
}
"""


def _parameters(a: float) -> tuple[float, ...]:
    return a, _MOST, 0.5, 0.6, 1.0, 3.0, 15.0, 18.0


@functools.cache
def _thole(at: int) -> Any:
    """Return the compiled function of e1 to e3, k1 to k3, g1 and g2, as in C; its parameters begin at ``at``."""

    # Constants come from p, since Numba computes products of float32 and numbers of Python in float64.
    def damp(r2, a, b, p):
        one, far, size = p[at + 4], p[at] * r2 * np.sqrt(r2), a[-1] * b[-1]
        w = far / size if far < p[at + 1] * size else p[at + 1]
        over = one / r2 if r2 > 0 else r2
        r1, e1 = over * np.sqrt(over), np.exp(-w)
        e2, e3, r3 = (one + w) * e1, (one + w + p[at + 3] * w * w) * e1, r1 * over
        if w >= one:
            r5 = r3 * over
            return e1, e2, e3, (one - e1) * r1, (one - e2) * r3, (one - e3) * r5, w * e1 * r1, w * w * e1 * r3
        series, n, v = one, p[at + 7], p[at] / size
        while n > one + one:
            series = one + series * w / n
            n -= one
        series *= p[at + 2]
        g1, square = v * e1, v * v * e1
        g2 = square * np.sqrt(r2)
        return e1, e2, e3, (one + series * w) * g1, series * g2, (series - p[at + 3]) * square * np.sqrt(over), g1, g2

    return numba.njit(nogil=True, error_model="numpy", forceinline=True)(damp)


def slopes(smooth: Smooth, cutoff: float, a: float, sets: int) -> pm.PairFunction:
    """Return the pair function of slopes of potentials of damped dipoles, minus the smooth part up to the cutoff.

    Its values are a dipole of each set and the root of a polarizability. Beyond the cutoff it has what damping adds to
    points.
    """
    more = *_parameters(a), cutoff**2
    at, rows, last = MORE, MORE + len(more), 3 * sets
    head = f"""
real c1 = r2 > 0 ? (real)0 : -p[4], c2 = 0;
if (r2 > 0) {{
    {factors_text(smooth, rows=rows)}
    const int within = r2 <= p[{at + 8}];
    if (within) {{
        c1 = p1 - s1;
        c2 = p2 - s2;
    }}
    if (p[{at}] * r2 * sqrt(r2) < p[{at + 1}] * a[{last}] * b[{last}]) {{  // few pairs
        {_DAMP.replace("LAST", str(last)).replace("AT + 1", str(at + 1)).replace("AT", str(at))}
        c1 = within ? k1 - s1 : -e1 * p1;
        c2 = within ? 3 * k2 - s2 : -e2 * p2;
    }}
}} else if (a[{last}] * b[{last}] > 0) c1 += p[{at}] / (a[{last}] * b[{last}]);
"""
    parameters = parameters_of(smooth, close.ALL, *more)
    return slopes_of(head, _damped(smooth.coefficients.shape[1], at, rows), sets, last + 1, parameters)


@functools.cache
def _damped(terms: int, at: int, rows: int) -> Any:
    of_pair, damp = factors(terms, rows=rows), _thole(at)

    def c1_and_c2(r2, i, j, a, b, p):
        if r2 <= 0:
            size = a[-1] * b[-1]
            return (p[at] / size if size > 0 else size) - p[4], r2
        _, p1, p2, _, _, s1, s2, _ = of_pair(r2, i, j, p)
        within = r2 <= p[at + 8]
        if p[at] * r2 * np.sqrt(r2) < p[at + 1] * a[-1] * b[-1]:  # few pairs
            e1, e2, _, k1, k2, _, _, _ = damp(r2, a, b, p)
            if within:
                return k1 - s1, p[at + 5] * k2 - s2
            return -e1 * p1, -e2 * p2
        if within:
            return p1 - s1, p2 - s2
        return r2 - r2, r2 - r2

    return numba.njit(nogil=True, error_model="numpy", forceinline=True)(c1_and_c2)


@functools.lru_cache(maxsize=8)
def listed(a: float, reach: float) -> pm.PairFunction:
    """Return `moments` for listed pairs, which are close below a distance."""
    return moments(a, close.LISTED, close.numbers(reach))


def moments(a: float, kind: int = close.FREE, numbers: tuple[float, ...] = close.ALL) -> pm.PairFunction:
    """Return the pair function of what is added to energy and derivatives of permanent and induced moments.

    Values are a charge q, a dipole m, an induced dipole u, and the root of its polarizability. Damped are q and m with
    u, and u with u. Listed pairs lose the former by their factor, and keep the latter. So u and u get back what they
    have lost as points. ``kind`` and ``numbers`` are those of `close`.
    """
    listed = kind == close.LISTED
    # In one place there is no field of a point, and the damped one of u is uniform.
    source = f"""
{_DAMP.replace("LAST", "7").replace("AT + 1", "1").replace("AT", "0")}
{close.text(kind, AT)}
const real near = whole != 0 ? over : (real)0, q1 = whole * near * sqrt(near), q3 = q1 * near, q5 = q3 * near;
const real w1 = g1, w2 = 3 * g2, b1 = -e1 * q1, b2 = -3 * e2 * q3, b3 = -15 * e3 * q5;
real mi = 0, mj = 0, ui = 0, uj = 0, cross = 0, both = 0;
for (int n = 0; n < 3; n++) {{
    mi += a[1 + n] * d[n];
    mj += b[1 + n] * d[n];
    ui += a[4 + n] * d[n];
    uj += b[4 + n] * d[n];
    cross += a[1 + n] * b[4 + n] + a[4 + n] * b[1 + n];
    both += a[4 + n] * b[4 + n];
}}
{_LISTED if listed else _NEIGHBOURS}
const real charge = b[0] * ui - a[0] * uj, twice = mi * uj + ui * mj;
const real energy = (charge + cross) * b1 - twice * b2 + both * c1 - ui * uj * c2;
const real along = -(charge + cross) * b2 + twice * b3 - both * c2 + ui * uj * c3;
sum[0] += (real)0.5 * energy;
sum[4] -= uj * b1;
sum[11] += whole * ((charge + cross) * w1 - twice * w2) + both * turn_1 - ui * uj * turn_2;
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
    return pm.PairFunction(source, _moments(kind), RESULTS, VALUES, (*_parameters(a), *numbers))


AT = 8  # the first of the numbers of `close` among the parameters of `moments`
_LISTED = """
const real c1 = -q1, c2 = -3 * q3, c3 = -15 * q5, turn_1 = 0, turn_2 = 0;
"""
_NEIGHBOURS = """
const real c1 = (r2 > 0 || size > 0 || both == 0 ? k1 : (real)1 / r2) - q1, turn_1 = w1, turn_2 = w2;
const real c2 = 3 * (k2 - q3), c3 = 15 * (k3 - q5);
"""


@functools.cache
def _moments(kind: int) -> Any:
    of_pair, damp, listed = close.compiled(kind, AT), _thole(0), kind == close.LISTED

    def moments_of_pair(r2, d, i, j, a, b, p, sum):  # noqa: A002 - the names that a pair function has
        half, three, fifteen = p[2], p[5], p[6]
        e1, e2, e3, k1, k2, k3, w1, w2 = damp(r2, a, b, p)
        whole, zero, w2 = of_pair(r2, i, j, p), r2 - r2, three * w2
        near = p[4] / r2 if r2 > 0 and whole != zero else zero
        q1 = whole * near * np.sqrt(near)
        q3 = q1 * near
        q5 = q3 * near
        b1, b2, b3 = -e1 * q1, -three * e2 * q3, -fifteen * e3 * q5
        mi = a[1] * d[0] + a[2] * d[1] + a[3] * d[2]
        mj = b[1] * d[0] + b[2] * d[1] + b[3] * d[2]
        ui = a[4] * d[0] + a[5] * d[1] + a[6] * d[2]
        uj = b[4] * d[0] + b[5] * d[1] + b[6] * d[2]
        cross = a[1] * b[4] + a[2] * b[5] + a[3] * b[6] + a[4] * b[1] + a[5] * b[2] + a[6] * b[3]
        both = a[4] * b[4] + a[5] * b[5] + a[6] * b[6]
        c1, c2, c3, turn_1, turn_2 = -q1, -three * q3, -fifteen * q5, zero, zero
        if not listed:
            c1 += k1 if r2 > 0 or a[7] * b[7] > 0 or both == 0 else p[4] / r2
            c2, c3, turn_1, turn_2 = c2 + three * k2, c3 + fifteen * k3, w1, w2
        charge, twice = b[0] * ui - a[0] * uj, mi * uj + ui * mj
        along = -(charge + cross) * b2 + twice * b3 - both * c2 + ui * uj * c3
        sum[0] += half * ((charge + cross) * b1 - twice * b2 + both * c1 - ui * uj * c2)
        sum[4] -= uj * b1
        sum[11] += whole * ((charge + cross) * w1 - twice * w2) + both * turn_1 - ui * uj * turn_2
        for n in range(3):
            pull = along * d[n] + b1 * (b[0] * a[4 + n] - a[0] * b[4 + n])
            pull -= b2 * (a[1 + n] * uj + mi * b[4 + n] + a[4 + n] * mj + ui * b[1 + n])
            pull -= c2 * (a[4 + n] * uj + ui * b[4 + n])
            sum[1 + n] += pull
            sum[5 + n] += b1 * b[4 + n] - b2 * uj * d[n]
            sum[8 + n] += (b[0] * b1 - mj * b2 - uj * c2) * d[n] + b1 * b[1 + n] + c1 * b[4 + n]
            for m in range(3):
                sum[12 + 3 * n + m] += half * pull * d[m]

    return moments_of_pair


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
