# SPDX-License-Identifier: BSD-3-Clause
"""A dense Ewald sum of the periodic Rotne-Prager-Yamakawa tensor, by formulas that the library does not use.

The far part carries Faxen's operators ``1 + a**2 / 6 laplace`` of both spheres instead of their form factors, so its
real-space function is a sum of derivatives of the screened Green function. The near part is the whole tensor, branch by
branch [zuk2014]_, minus this function. Viscosity 1.
"""

import itertools

import numpy as np
from scipy.special import erf

PI = np.pi


def whole(r, a, b):
    """f and g of spheres of radii a and b in free space; arrays of one shape, r > 0."""
    total, gap = a + b, np.abs(a - b)
    squares = (a**2 + b**2) / r**2
    apart = (1 + squares / 3) / (8 * PI * r), (1 - squares) / (8 * PI * r)
    scale = 1 / (6 * PI * a * b) / (32 * r**3)
    meet = scale * (16 * r**3 * total - (gap**2 + 3 * r**2) ** 2), scale * 3 * (gap**2 - r**2) ** 2
    inside = 1 / (6 * PI * np.maximum(a, b)), 0 * r
    return [np.where(r > total, x, np.where(r > gap, y, z)) for x, y, z in zip(apart, meet, inside, strict=True)]


def _by_derivatives(chi, r):
    """f and g of ``1 laplace - nabla nabla`` of chi(r) / r, from chi and two derivatives."""
    slope, curvature = chi[1] / r - chi[0] / r**2, chi[2] / r - 2 * chi[1] / r**2 + 2 * chi[0] / r**3
    return curvature + slope / r, slope / r - curvature


def smooth(r, a, b, xi):
    """f and g of the screened Green function between Faxen's operators, r > 0."""
    root, e = np.sqrt(PI), np.exp(-((xi * r) ** 2))
    chi = [
        r**2 * erf(xi * r) + r * e / (xi * root), 2 * r * erf(xi * r) + e / (xi * root),
        2 * erf(xi * r) + 2 * xi * r * e / root,
    ]  # fmt: skip
    p = np.polynomial.Polynomial([6 * xi / root, 0, -4 * xi**3 / root])
    for _ in range(4):
        chi.append(p(r) * e)
        p = p.deriv() - np.polynomial.Polynomial([0, 2 * xi**2]) * p
    once, twice = (a**2 + b**2) / 6, a**2 * b**2 / 36
    return _by_derivatives([(chi[n] + once * chi[n + 2] + twice * chi[n + 4]) / (8 * PI) for n in range(3)], r)


def smooth_self(a, xi):
    """The same of a sphere with itself: a factor of the unit tensor, by its integral over k."""
    t, w = np.polynomial.legendre.leggauss(200)
    k, w = (t + 1) * 8 * xi, w * 8 * xi
    faxen = (1 - (np.asarray(a)[..., None] * k) ** 2 / 6) ** 2
    return (faxen * (1 + k**2 / (4 * xi**2)) * np.exp(-(k**2) / (4 * xi**2))) @ w / (3 * PI**2)


def mobility(matrix, positions, radii, xi=None, margin=6.5, rows=None):
    """Dense mobility (3N, 3N) of spheres in the periodic cell with lattice vectors in the rows of a matrix.

    With ``rows``, indices of M spheres, only their part of it (3M, 3N).
    """
    matrix = np.diag(matrix) if np.ndim(matrix) == 1 else np.asarray(matrix, float)
    x = np.asarray(positions, float)
    n, volume = len(x), abs(np.linalg.det(matrix))
    radii = np.broadcast_to(np.asarray(radii, float), (n,))
    xi = np.sqrt(PI) / volume ** (1 / 3) * 1.2 if xi is None else xi
    cutoff, highest = margin / xi, 2 * xi * margin
    rows = np.arange(n) if rows is None else np.asarray(rows)
    m = len(rows)
    result = np.zeros((m, 3, n, 3))
    eye = np.eye(3)
    images = np.ceil(cutoff * np.linalg.norm(np.linalg.inv(matrix), axis=0) + 1).astype(int)
    d = x[None, :] - x[rows][:, None]
    d -= np.round(d @ np.linalg.inv(matrix)) @ matrix
    for cell in itertools.product(*(range(-most, most + 1) for most in images)):
        v = d + np.array(cell) @ matrix
        r = np.linalg.norm(v, axis=-1)
        near = (r < cutoff) & ((np.array(cell) != 0).any() | (rows[:, None] != np.arange(n)))
        i, j = np.nonzero(near)
        if not len(i):
            continue
        vector, r = v[i, j], r[i, j]
        a, b = radii[rows[i]], radii[j]
        f, g = (p - q for p, q in zip(whole(r, a, b), smooth(r, a, b, xi), strict=True))
        unit = vector / r[:, None]
        result[i, :, j, :] += f[:, None, None] * eye + g[:, None, None] * unit[:, :, None] * unit[:, None, :]
    of_row = radii[rows]
    result[np.arange(m), :, rows, :] += (1 / (6 * PI * of_row) - smooth_self(of_row, xi))[:, None, None] * eye
    reciprocal = 2 * PI * np.linalg.inv(matrix).T
    modes = np.ceil(highest / (2 * PI) * np.linalg.norm(matrix, axis=1)).astype(int)
    numbers = np.array(list(itertools.product(*(range(-most, most + 1) for most in modes))))
    k = numbers @ reciprocal
    k2 = (k**2).sum(1)
    keep = (k2 > 0) & (k2 < highest**2)
    k, k2 = k[keep], k2[keep]
    factor = (1 + k2 / (4 * xi**2)) * np.exp(-k2 / (4 * xi**2)) / (k2 * volume)
    wave = np.exp(1j * (x @ k.T)) * (1 - radii[:, None] ** 2 * k2 / 6)
    for p in range(3):
        for q in range(3):
            weight = factor * ((p == q) - k[:, p] * k[:, q] / k2)
            result[:, p, :, q] += ((wave[rows] * weight) @ wave.conj().T).real
    return result.reshape(3 * m, 3 * n)
