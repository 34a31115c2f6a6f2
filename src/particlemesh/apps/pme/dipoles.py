# SPDX-License-Identifier: BSD-3-Clause
"""Point dipoles beside charges: energy, forces, fields and torques of a periodic system.

A particle with charge q and dipole mu acts by ``q + mu . grad`` wherever a charge acts by q. So the mesh takes
``spread(q) + spread_gradient(mu)`` and gives potential, gradient and second derivatives. Within the cutoff, the
derivatives of ``erfc(alpha r) / r`` are sums over pairs.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import particlemesh as pm
from particlemesh.apps.pme.result import Result

COLUMNS = 7  # potential, its gradient (3), that of the gradient along the dipole (3)


def columns(virial: bool) -> int:
    """Return how many sums a particle has: with the nine of the virial, and particles in one place at last."""
    return COLUMNS + (9 if virial else 0) + 1


@dataclass
class DipoleResult(Result):
    """What charges and dipoles get.

    Parameters
    ----------
    energy, energies, forces : array (), (N,), (N, 3)
        As for :class:`Result`.
    virial : array (3, 3) or None
        Derivative of the energy by a strain, with which positions and lattice vectors x become ``x + strain @ x``
        while dipoles stay as they are. Row a belongs to the force along a. Its trace is minus the energy plus the sum
        of ``dipoles * fields``. Its antisymmetric part ``virial[a, b] - virial[b, a]`` is the sum over particles of
        ``fields[a] * dipoles[b] - fields[b] * dipoles[a]``. So the virial is symmetric where torques sum to zero.
    potentials : array (N,)
        Derivative of the energy by a charge.
    fields : array (N, 3)
        Minus the derivative of the energy by a dipole.
    torques : array (N, 3)
        Dipole times field.
    """

    potentials: Any = None
    fields: Any = None
    torques: Any = None


def pair_function(alpha: float, virial: bool = False) -> pm.PairFunction:
    """Return the pair function of charges and dipoles, of four values each, for ``erfc(alpha r) / r``."""
    scale = 2 * alpha / math.sqrt(math.pi)
    steps = [scale, scale * 2 * alpha**2, scale * 4 * alpha**4]
    width = columns(virial)
    source = _SOURCE.replace("LAST", str(width - 1)).replace("VIRIAL", _VIRIAL if virial else "")
    return pm.PairFunction(source, _function(width), width, 4, (alpha, 1.0, 3.0, 5.0, *steps))


# b0 to b3: erfc(alpha r) / r, and the factors of its derivatives, each from the one before.
_SOURCE = """
if (!(r2 > 0)) { sum[LAST] += (real)1; return; }
const real inverse = (real)1 / r2, r = sqrt(r2), fade = exp(-p[0] * p[0] * r2);
const real b0 = erfc(p[0] * r) / r, b1 = (b0 + p[4] * fade) * inverse;
const real b2 = (3 * b1 + p[5] * fade) * inverse, b3 = (5 * b2 + p[6] * fade) * inverse;
real along_j = 0, along_i = 0, both = 0;
for (int n = 0; n < 3; n++) {
    along_j += b[1 + n] * d[n];
    along_i += a[1 + n] * d[n];
    both += a[1 + n] * b[1 + n];
}
sum[0] += b[0] * b0 - along_j * b1;
const real along = b[0] * b1 - along_j * b2, second = b[0] * along_i * b2 - along_j * along_i * b3 + both * b2;
for (int n = 0; n < 3; n++) {
    const real slope = along * d[n] + b1 * b[1 + n];
    const real turn = second * d[n] + along_i * b2 * b[1 + n] - along * a[1 + n];
    sum[1 + n] += slope;
    sum[4 + n] += turn;
    VIRIAL
}
"""
# The derivative of the pair's energy by d, times d.
_VIRIAL = "for (int m = 0; m < 3; m++) sum[7 + 3 * n + m] -= (a[0] * slope + turn) * d[m];"


@functools.cache
def _function(width: int) -> Callable[..., None]:
    last = width - 1

    def dipole_pair(r2, d, i, j, a, b, p, sum):  # noqa: A002 - the names that a pair function has
        # Constants come from p, since Numba computes products of float32 and numbers of Python in float64.
        if r2 <= 0:
            sum[last] += p[1]
            return
        inverse, r, fade = p[1] / r2, np.sqrt(r2), np.exp(-p[0] * p[0] * r2)
        b0 = math.erfc(p[0] * r) / r
        b1 = (b0 + p[4] * fade) * inverse
        b2 = (p[2] * b1 + p[5] * fade) * inverse
        b3 = (p[3] * b2 + p[6] * fade) * inverse
        along_j = b[1] * d[0] + b[2] * d[1] + b[3] * d[2]
        along_i = a[1] * d[0] + a[2] * d[1] + a[3] * d[2]
        both = a[1] * b[1] + a[2] * b[2] + a[3] * b[3]
        sum[0] += b[0] * b0 - along_j * b1
        along = b[0] * b1 - along_j * b2
        second = b[0] * along_i * b2 - along_j * along_i * b3 + both * b2
        for n in range(3):
            slope = along * d[n] + b1 * b[1 + n]
            turn = second * d[n] + along_i * b2 * b[1 + n] - along * a[1 + n]
            sum[1 + n] += slope
            sum[4 + n] += turn
            if last > 7:
                for m in range(3):
                    sum[7 + 3 * n + m] -= (a[0] * slope + turn) * d[m]

    return dipole_pair
