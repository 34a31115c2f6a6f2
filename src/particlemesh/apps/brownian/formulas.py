# SPDX-License-Identifier: BSD-3-Clause
r"""The Rotne-Prager-Yamakawa tensor of two spheres, whole and split; everything here has viscosity 1.

The tensor is the mean of Stokes' Green function over both spheres' surfaces. In Fourier space it is

.. math:: \mathrm{sinc}(k a_i)\, \mathrm{sinc}(k a_j)\, (1 - \hat k \hat k) / k^2

for all distances, also where the spheres overlap. The far part multiplies this by Hasimoto's factor
``H(k) = (1 + k**2 / (4 xi**2)) exp(-k**2 / (4 xi**2))``, the near part by ``1 - H``. Both factors lie between 0 and 1,
so both parts are positive.

A tensor of two spheres at distance r is ``f(r) 1 + g(r) d d``, with d the unit vector between them.

For the near part in real space, let ``B`` be the radial potential of Stokes' Green function times ``1 - H``. The mean
of B over two spheres follows from the second integral ``Psi`` of ``s B(s)`` at the four distances ``r +- a_i +- a_j``,
for spheres apart and overlapping.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from particlemesh.kernels.cpu import compiled

Array = NDArray[np.float64]
NODES = 64  # of integrals over k
_ROOT_PI = math.sqrt(math.pi)
_BEYOND = 12.6  # H(k) < 1e-15 from this k / xi on
CLOSE = 0.05  # times a_i + a_j: nearer than this the closed form loses digits


@compiled
def whole(r, a, b):
    """Return f and g of two spheres of radii a and b in free space, for any distance r >= 0 [zuk2014]_."""
    total, apart = a + b, abs(a - b)
    if r > total:
        q = (a * a + b * b) / (r * r)
        return (1 + q / 3) / (8 * math.pi * r), (1 - q) / (8 * math.pi * r)
    if r <= apart or r == 0:
        return 1 / (6 * math.pi * max(a, b)), 0.0
    scale = 1 / (6 * math.pi * a * b)
    e = apart * apart / r  # r times the square of a ratio
    w = e + 3 * r
    f = scale * (total / 2 - w * w / (32 * r))
    g = scale * 3 * (e - r) * (e - r) / (32 * r)
    return f, g


@compiled
def _psi(s, xi):
    """Return Psi and its first two derivatives at s."""
    t = abs(s)
    c, e = math.erfc(xi * t), math.exp(-(xi * t) * (xi * t)) / (_ROOT_PI * xi)
    i2 = 1 / (xi * xi)
    p0 = c * (t * t * t * t / 12 - i2 * i2 / 16) + e * t * (i2 / 24 - t * t / 12) + i2 * i2 / 16
    p1 = c * t * t * t / 3 + e * (i2 / 6 - t * t / 3)
    p2 = t * t * c - t * e
    return (p0, p1, p2) if s >= 0 else (-p0, p1, -p2)


@compiled
def far(r, a, b, nodes, weights):
    """Return f and g of the far part by a sum over nodes k with weights ``H(k) dk / (2 pi**2)``."""
    f = g = 0.0
    for n in range(nodes.size):
        k = nodes[n]
        x, u, v = k * r, k * a, k * b
        w = weights[n] * (math.sin(u) / u) * (math.sin(v) / v)
        if x < 0.1:
            y = x * x
            j0 = 1 - y / 6 * (1 - y / 20 * (1 - y / 42))
            j1 = 1 / 3 - y / 30 * (1 - y / 28 * (1 - y / 54))  # over x
        else:
            j0 = math.sin(x) / x
            j1 = (j0 - math.cos(x)) / (x * x)
        f += w * (j0 - j1)
        g += w * (3 * j1 - j0)
    return f, g


@compiled
def near(r, a, b, xi, nodes, weights):
    """Return f and g of the near part for any distance r >= 0."""
    if r < CLOSE * (a + b):
        f, g = whole(r, a, b)
        f1, g1 = far(r, a, b, nodes, weights)
        return f - f1, g - g1
    p0, p1, p2 = _psi(r + a + b, xi)
    q0, q1, q2 = _psi(r - a - b, xi)
    x0, x1, x2 = p0 + q0, p1 + q1, p2 + q2
    p0, p1, p2 = _psi(r + a - b, xi)
    q0, q1, q2 = (p0, p1, p2) if a == b else _psi(r - a + b, xi)
    scale = 1 / (32 * math.pi * a * b * r)
    x0, x1, x2 = scale * (x0 - p0 - q0), scale * (x1 - p1 - q1), scale * (x2 - p2 - q2)
    slope = (x1 - x0 / r) / r  # of the potential, over r
    curvature = x2 - 2 * slope
    return curvature + slope, slope - curvature


@compiled
def _near_at(r, a, b, xi, nodes, weights, f, g):
    for n in range(r.size):
        f[n], g[n] = near(r[n], a[n], b[n], xi, nodes, weights)


@lru_cache(64)
def quadrature(xi: float) -> tuple[Array, Array]:
    """Return nodes k and weights ``H(k) dk / (2 pi**2)`` of integrals of the far part over all k."""
    points, weights = np.polynomial.legendre.leggauss(NODES)
    k = (points + 1) * (_BEYOND * xi / 2)
    return k, weights * (_BEYOND * xi / 2) * screening(k * k, xi) / (2 * math.pi**2)


def screening(k2: Array, xi: float) -> Array:
    """Return Hasimoto's factor H at ``k2 = k**2``.

    Examples
    --------
    >>> screening(np.array([0.0, 4.0]), 1.0).round(6)
    array([1.      , 0.735759])
    """
    x = k2 / (4 * xi * xi)
    return np.asarray((1 + x) * np.exp(-x))


def near_tensor(r: Array, a: Array | float, b: Array | float, xi: float) -> tuple[Array, Array]:
    """Return f and g of the near part at distances r of spheres of radii a and b.

    Examples
    --------
    >>> f, g = near_tensor(np.array([1.0, 20.0]), 1.0, 1.0, 0.5)
    >>> bool(abs(f[0]) > 0.001 and abs(f[1]) < 1e-12)
    True
    """
    r, a, b = (np.ascontiguousarray(x, np.float64) for x in np.broadcast_arrays(r, a, b))
    f, g = np.empty(r.shape), np.empty(r.shape)
    _near_at(*(x.ravel() for x in (r, a, b)), float(xi), *quadrature(xi), f.ravel(), g.ravel())
    return f, g


def near_self(radii: Array, xi: float) -> Array:
    """Return the near part of spheres on themselves: a factor of the unit tensor.

    Examples
    --------
    >>> far_away = near_self(np.array([1.0]), 1e-3)  # a splitting that leaves nearly all to the near part
    >>> bool(abs(6 * np.pi * far_away - 1) < 2e-3)
    True
    """
    k, w = quadrature(xi)
    shapes = sinc(np.outer(radii, k))
    # A sum for each radius: a matrix product rounds by how many radii there are.
    return np.asarray(1 / (6 * math.pi * radii) - 2 / 3 * (shapes**2 * w).sum(1))


def sinc(x: Array) -> Array:
    """Return ``sin(x) / x``, 1 at 0."""
    return np.asarray(np.sinc(x / math.pi))
