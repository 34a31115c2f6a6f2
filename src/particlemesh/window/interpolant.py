# SPDX-License-Identifier: BSD-3-Clause
"""Fast evaluation of a smooth function at many numbers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.polynomial import chebyshev
from numpy.typing import NDArray

Function = Callable[[NDArray[np.float64]], NDArray[np.float64]]

_BLOCK = 8192  # numbers whose recurrence stays in a core's cache


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
