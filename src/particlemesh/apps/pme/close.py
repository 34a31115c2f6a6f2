# SPDX-License-Identifier: BSD-3-Clause
"""Excluded pairs that are close to each other: sums over neighbours leave them out themselves.

Taking a huge pair back from a sum would cost digits. So the sum over neighbours multiplies ``1 / r`` of a close pair
with its factor, and the correction leaves the pair to it. The share of either is a continuous function of the
distance, since a distance may be rounded differently in both. Where both particles are in one place, a sum counts the
pair as an error unless this factor is 0. No correction counts it.

Pair functions find the factor in a table among their parameters. An integer there is two reals, since float32 has 24
bits: a multiple of 4096 and a rest.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numba
import numpy as np

import particlemesh as pm
from particlemesh.apps.pme.exclusions import Exclusions, boxes

FREE, NEIGHBOURS, LISTED = range(3)  # no pair is listed; a sum over neighbours; a correction of listed pairs
ALL = (1.0, 0.0, 0.0, 0.0, 0.0)  # the numbers of pairs of which none is listed
HEAD = len(ALL)  # how many numbers have places that compiled code knows; the table follows somewhere
FAR = 1 / 3  # of the cutoff: beyond it taking a pair back costs no digits


def reach(core: Any) -> float:
    """Return the distance below which pairs are close: there an image is the nearest one."""
    return min(FAR * core.parameters.cutoff, boxes(core).near)


def function(core: Any, name: Any, count: int, make: Callable[..., Any], at: int, share: float = 1.0) -> Any:
    """Return what `known` does for pairs of a core that are close below a share of the reach."""
    name = name, core.split, core.parameters.cutoff, core.dtype
    if core.names is not None and len(core.exclusions):
        plain, count = make, len(core.names.particles) + 1
        make = lambda kind, numbers: by_names(plain(kind, numbers))  # noqa: E731
    return known(core.exclusions, name, count, share * reach(core), make, at)


def known(exclusions: Exclusions, name: Any, count: int, reach: float, make: Callable[..., Any], at: int) -> Any:
    """Return a pair function for sums over so many neighbours, kept with its pairs under a name.

    Pairs are close below ``reach``, where an image is the nearest one. ``make`` takes the kind of the sum, and its
    numbers; their table begins at ``at`` among the parameters.
    """
    if not len(exclusions):
        count = 0
    kept = exclusions.close_functions.get(name)
    if kept is None or kept[0] < count or (count and kept[1] != reach):
        given = (NEIGHBOURS, numbers(reach, at) + _table(exclusions, count, at)) if count else (FREE, ALL)
        kept = exclusions.close_functions[name] = count, reach, make(*given)
    return kept[2]


def by_names(function: pm.PairFunction) -> pm.PairFunction:
    """Return a pair function whose i and j are names of particles, their last two values (`two_reals`)."""
    n = function.values
    i, j = (f"(i64){v}[{n}] * 4096 + (i64){v}[{n + 1}]" for v in "ab")
    text = f"const i64 of_a = {i}, of_b = {j};\n{{ const i64 i = of_a, j = of_b;\n{function.text}\n}}"
    return pm.PairFunction(text, _by_names(function.on_cpu, n), function.results, n + 2, function.parameters)


@functools.cache
def _by_names(function: Callable[..., None], n: int) -> Callable[..., None]:
    of_pair = numba.njit(nogil=True, error_model="numpy", forceinline=True)(function)
    scope: dict[str, Any] = {"of_pair": of_pair, "__name__": __name__}
    i, j = (f"int({v}[{n}]) * 4096 + int({v}[{n + 1}])" for v in "ab")
    # Without a text, so that the C text says that it only adds.
    exec(f"def named_pair(r2, d, i, j, a, b, p, sum):\n    of_pair(r2, d, {i}, {j}, a, b, p, sum)", scope)
    return scope["named_pair"]


def numbers(reach: float, at: int = 0) -> tuple[float, ...]:
    """Return 1, the square of the reach, a slope, and ``at``: the numbers before a table."""
    return 1.0, reach**2, 2 / reach**2, *two_reals(np.array(at)).tolist()


def two_reals(integers: np.ndarray) -> np.ndarray:
    """Return integers (...) as (..., 2) reals."""
    return np.stack([integers // 4096, integers % 4096], -1).astype(np.float64)


def _table(exclusions: Exclusions, count: int, at: int) -> tuple[float, ...]:
    """Return where each row begins among all parameters, and the rows: partners and factors minus 1."""
    start, partners, weights = exclusions.rows(count)
    begins = at + 2 * (count + 1) + 3 * start.astype(np.int64)
    rows = np.column_stack([two_reals(partners), weights])
    return *two_reals(begins).ravel().tolist(), *rows.ravel().tolist()


def text(kind: int, at: int) -> str:
    """Return C that defines ``whole``, what ``1 / r`` of i and j is multiplied with."""
    if kind == FREE:
        return "const real whole = 1;"
    share = f"const real rise = (p[{at + 1}] - r2) * p[{at + 2}], share = rise < 1 ? rise : (real)1;"
    if kind == LISTED:
        return f"{share} const real whole = share > 0 ? 1 - share : (real)1;"
    return f"""
real whole = 1;
if (r2 < p[{at + 1}]) {{
    {share}
    const i64 row = (i64)p[{at + 3}] * 4096 + (i64)p[{at + 4}] + 2 * i;
    const i64 end = (i64)p[row + 2] * 4096 + (i64)p[row + 3];
    for (i64 n = (i64)p[row] * 4096 + (i64)p[row + 1]; n < end; n += 3)
        if ((i64)p[n] * 4096 + (i64)p[n + 1] == j) whole += p[n + 2] * share;
}}
"""


@functools.cache
def compiled(kind: int, at: int) -> Callable[..., Any]:
    """Return the compiled function ``(r2, i, j, p)`` of the same."""

    def free(r2, i, j, p):
        return p[at]

    def neighbours(r2, i, j, p):
        whole = p[at]
        if r2 < p[at + 1]:
            share = min((p[at + 1] - r2) * p[at + 2], p[at])
            row = int(p[at + 3]) * 4096 + int(p[at + 4]) + 2 * i
            for n in range(int(p[row]) * 4096 + int(p[row + 1]), int(p[row + 2]) * 4096 + int(p[row + 3]), 3):
                if int(p[n]) * 4096 + int(p[n + 1]) == j:
                    whole += p[n + 2] * share
        return whole

    def listed(r2, i, j, p):
        if r2 < p[at + 1]:
            return p[at] - min((p[at + 1] - r2) * p[at + 2], p[at])
        return p[at]

    return numba.njit(nogil=True, error_model="numpy", forceinline=True)((free, neighbours, listed)[kind])
