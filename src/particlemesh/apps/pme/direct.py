# SPDX-License-Identifier: BSD-3-Clause
"""The real-space half of charges: the pair function of ``1 / r`` minus its smooth part, in C and in Python.

Both take the same numbers, polynomials of r**2, as parameters.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numba
import numpy as np

import particlemesh as pm
from particlemesh.apps.pme import close
from particlemesh.apps.pme.split import NONE, Smooth

_FIRST = 3, 3 + close.HEAD, 3 + close.HEAD  # where polynomials begin among the parameters, by kind


def columns(virial: bool) -> int:
    """Return how many sums a particle has for each set of charges."""
    return 10 if virial else 4


def pair_function(
    smooth: Smooth, sets: int, virial: bool, kind: int = close.FREE, numbers: tuple[float, ...] = (), *,
    slopes: bool = True,
) -> pm.PairFunction:  # fmt: skip
    """Return the pair function of ``1 / r`` minus a smooth part.

    For each set of charges b it sums the potential ``b g``. With ``slopes`` it sums the field ``b g' d / r`` and, if
    asked for, the six products ``b g' d d / r`` of the virial. The last sum counts particles in one place that are not
    left out. Their ``1 / r`` is 0. ``kind`` and ``numbers`` say how it leaves out close pairs (`close`).
    """
    width, terms = columns(virial) if slopes else 1, smooth.coefficients.shape[1]
    first, rows, numbers = smooth.parameters()[:3], smooth.parameters()[3:], numbers if kind else ()
    return pm.PairFunction(
        _source(terms, len(smooth.coefficients), sets, width, kind), _function(terms, sets, width, kind),
        sets * width + 1, sets,
        (*first, *numbers[: close.HEAD], *rows, *numbers[close.HEAD :]),
    )  # fmt: skip


def neighbours(smooth: Smooth, sets: int, virial: bool) -> tuple[Callable[..., pm.PairFunction], int]:
    """Return what makes such a function of neighbours, and where its table begins, for `close.function`."""
    size = 3 + close.HEAD + smooth.coefficients.size + len(smooth.coefficients)
    return functools.partial(pair_function, smooth, sets, virial), size


@functools.lru_cache(maxsize=32)
def listed(sets: int, virial: bool, reach: float) -> pm.PairFunction:
    """Return the function of excluded and scaled pairs, which are close below a distance."""
    return pair_function(NONE, sets, virial, close.LISTED, close.numbers(reach))


@functools.cache
def smooth_part(terms: int, first: int = 3) -> Callable[..., Any]:
    """Return the compiled function ``(r2, p)`` of the smooth part and of its slope over r.

    ``p`` are the parameters of `pair_function`. Polynomials of so many coefficients begin at ``first``.
    """

    # Constants come from p, since Numba computes products of float32 and numbers of Python in float64.
    def polynomials(r2, p):
        t = r2 * p[0]
        at = first + (terms + 1) * int(min(t, p[2]))
        s = t - p[at + terms]
        value = p[at + terms - 1]
        slope = value - value
        for n in range(terms - 2, -1, -1):
            slope = slope * s + value
            value = value * s + p[at + n]
        return value, slope * (p[0] + p[0])

    return numba.njit(nogil=True, error_model="numpy", forceinline=True)(polynomials)


@functools.cache
def _function(terms: int, sets: int, width: int, kind: int) -> Callable[..., None]:
    smooth, last, of_pair = smooth_part(terms, _FIRST[kind]), sets * width, close.compiled(kind, 3)

    def coulomb_pair(r2, d, i, j, a, b, p, sum):  # noqa: A002 - the names that a pair function has
        value, slope = smooth(r2, p)
        inverse = p[1] / np.sqrt(r2)
        if not r2 > 0:
            inverse = r2
        part, whole = inverse, p[1]
        if kind > 0:
            whole = of_pair(r2, i, j, p)
            part = inverse * whole
        if not r2 > 0 and whole != 0:
            sum[last] += p[1]
        u, g = part - value, -part * inverse * inverse - slope
        k = 0
        for c in range(sets):
            q = b[c]
            w = q * g
            sum[k] += q * u
            if width > 1:
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


def _source(terms: int, intervals: int, sets: int, width: int, kind: int) -> str:
    first = f"{_FIRST[kind]}" + f" + {terms + 1} * (i64)(t < p[2] ? t : p[2])" * (intervals > 1)
    slopes = "".join(f"sum[k + {n + 1}] += {a};\n" for n, a in enumerate("xyz"))
    second = "".join(
        f"sum[k + {4 + n}] += {a} * d[{b}];\n"
        for n, (a, b) in enumerate(zip("xyzyzx", (0, 1, 2, 2, 0, 1), strict=True))
    )
    return f"""
{close.text(kind, 3)}
const real t = r2 * p[0];
const i64 at = {first};
const real s = t - p[at + {terms}];
real value = p[at + {terms - 1}], slope = 0;
for (int n = {terms - 2}; n >= 0; n--) {{
    slope = slope * s + value;
    value = value * s + p[at + n];
}}
const real root = rsqrt(r2), inverse = r2 > 0 ? root : (real)0;
if (!(r2 > 0)) sum[{sets * width}] += (real)(whole != 0);
const real part = whole * inverse, u = part - value, g = -part * inverse * inverse - 2 * p[0] * slope;
for (int c = 0; c < {sets}; c++) {{
    const int k = c * {width};
    sum[k] += b[c] * u;
    const real w = b[c] * g, x = w * d[0], y = w * d[1], z = w * d[2];
    {slopes if width > 1 else ""}
    {second if width > 4 else ""}
}}
"""
