# SPDX-License-Identifier: BSD-3-Clause
"""Energies of crystals to 17 digits: plain Ewald sums in numbers of 64 bits, which share nothing with the library."""

import itertools

import numpy as np

Long = np.longdouble
PI = Long("3.14159265358979323846264338327950288")
ENOUGH = np.finfo(Long).eps < 2e-19  # x86 has 64 bits, others may have 53 or 113


def erfc(x):
    """The complementary error function of positive numbers, by the trapezoidal rule for its integral.

    ``2 x exp(-x**2) / pi`` times the integral of ``exp(-t**2) / (t**2 + x**2)`` over positive t is erfc(x). With steps
    h the rule leaves the residue of a pole, which has a closed form, and ``exp(-(pi / h)**2)``, here 1e-31.
    """
    x, h = np.asarray(x, Long), Long(3) / 8
    t2 = (h * np.arange(1, 25, dtype=Long)) ** 2
    total = 1 / x**2 + 2 * (np.exp(-t2) / (t2 + x[..., None] ** 2)).sum(-1)
    pole = np.where(x < PI / h, 2 / (1 - np.exp(2 * PI * np.minimum(x, PI / h) / h)), 0)
    return h * x * np.exp(-(x**2)) / PI * total + pole


def energy(matrix, fractions, charges, alpha):
    """Energy of periodic charges in tin foil, with a neutralising background.

    Parameters
    ----------
    matrix : array (3, 3)
        Lattice vectors as rows.
    fractions : array (N, 3)
    charges : array (N,)
    alpha : float
        Splitting: the result does not depend on it.
    """
    matrix, s, q = (np.asarray(a, Long) for a in (matrix, fractions, charges))
    alpha, edges = Long(alpha), [np.cross(matrix[a - 2], matrix[a - 1]) for a in range(3)]
    volume = abs(matrix[0] @ edges[0])
    inverse = np.stack(edges, 1) / (matrix[0] @ edges[0])
    reach = Long("6.8")  # exp(-6.8**2) is 1e-20
    most = np.ceil(reach / alpha * np.linalg.norm(inverse.astype(float), axis=0)).astype(int) + 1
    images = np.array(list(itertools.product(*(range(-n, n + 1) for n in most))), Long) @ matrix
    d = ((s[None] - s[:, None]) @ matrix)[:, :, None] + images
    r = np.sqrt((d**2).sum(-1))
    near = (r > 0) & (r <= reach / alpha)
    i, j, k = np.nonzero(near)
    total = (q[i] * q[j] * erfc(alpha * r[i, j, k]) / r[i, j, k]).sum() / 2
    most = np.ceil(reach * alpha / float(PI) * np.linalg.norm(matrix.astype(float), axis=1)).astype(int)
    n = np.array(list(itertools.product(*(range(-m, m + 1) for m in most))), Long)
    k2 = ((2 * PI * n @ inverse.T) ** 2).sum(1)
    n, k2 = n[(k2 > 0) & (k2 <= (2 * reach * alpha) ** 2)], k2[(k2 > 0) & (k2 <= (2 * reach * alpha) ** 2)]
    phase = 2 * PI * (n @ s.T % 1)
    squares = (np.cos(phase) @ q) ** 2 + (np.sin(phase) @ q) ** 2
    total += 2 * PI / volume * (np.exp(-k2 / (4 * alpha**2)) / k2 * squares).sum()
    return total - alpha / np.sqrt(PI) * (q @ q) - PI * q.sum() ** 2 / (2 * alpha**2 * volume)
