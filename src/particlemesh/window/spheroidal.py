# SPDX-License-Identifier: BSD-3-Clause
"""The zeroth prolate spheroidal wave function, from which a window and a split of ``1 / r`` are made."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import scipy
from numpy.polynomial import Legendre


@lru_cache(maxsize=64)
def spheroidal(bandwidth: float) -> Legendre:
    """Return the function on [-1, 1] as a series of Legendre polynomials of even degree; it is 1 at 0.

    Of all functions on this interval it has the largest share of its energy in the band ``|k| <= bandwidth``. Its
    transform in this band is the function itself, stretched [slepian1961]_.

    Examples
    --------
    >>> psi = spheroidal(6.0)
    >>> x, w = np.polynomial.legendre.leggauss(40)
    >>> transform = [w @ (psi(x) * np.cos(6.0 * t * x)) for t in (0.0, 0.5, 1.0)]
    >>> bool(np.allclose(np.array(transform) / transform[0], psi(np.array([0.0, 0.5, 1.0]))))
    True
    """
    # Legendre polynomials make the wave equation a tridiagonal eigenproblem.
    k = np.arange(0, bandwidth + 40, 2)
    diagonal = k * (k + 1) + (2 * k * (k + 1) - 1) / ((2 * k + 3) * (2 * k - 1)) * bandwidth**2
    beside = (k + 1) * (k + 2) / ((2 * k + 3) * np.sqrt((2 * k + 1) * (2 * k + 5))) * bandwidth**2
    lowest = scipy.linalg.eigh_tridiagonal(diagonal, beside[:-1], select="i", select_range=(0, 0))[1][:, 0]
    series = np.zeros(2 * len(k))
    series[::2] = lowest * np.sqrt(2 * k + 1)
    return Legendre(series / np.polynomial.legendre.legval(0.0, series))
