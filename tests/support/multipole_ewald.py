# SPDX-License-Identifier: BSD-3-Clause
"""Charges, dipoles and quadrupoles with Gaussian widths by plain sums over images and wave vectors: the energy only.

Derivatives of ``erf(...) / r`` are polynomials times powers of d, taken one Cartesian index after the other.
"""

import itertools

import numpy as np
from scipy.special import gammainc, gammaincc


def _integers(most):
    return np.stack(np.meshgrid(*(np.arange(-n, n + 1.0) for n in most), indexing="ij"), -1).reshape(-1, len(most))


def derivatives(d, c, order):
    """Return the derivatives by d of a function of d**2 as arrays (..., 3, 3, ...) of each order up to one.

    ``c[n]`` is the function after ``-2 d / d(r**2)`` n times: of an order m, sum over pairings of indices of products.
    """
    one, tensors = np.eye(3), [c[0]]
    for m in range(1, order + 1):
        total = np.zeros((*d.shape[:-1], *(3,) * m))
        letters = "abcd"[:m]
        for pairs in range(m // 2 + 1):
            for paired in _pairings(letters, pairs):
                free = [k for k in letters if k not in "".join(paired)]
                spec = ",".join(["...", *paired, *(f"...{k}" for k in free)]) + f"->...{letters}"
                power = (-1) ** (m - pairs) * c[m - pairs]
                total += np.einsum(spec, power, *[one] * pairs, *[d] * len(free))
        tensors.append(total)
    return tensors


def _pairings(letters, pairs):
    if pairs == 0:
        yield ()
        return
    for chosen in itertools.combinations(letters, 2 * pairs):
        first, *rest = chosen
        for k, other in enumerate(rest):
            for more in _pairings(rest[:k] + rest[k + 1 :], pairs - 1):
                yield (first + other, *more)


def point(r2, n):
    """``1 / r`` after ``-2 d / d(r**2)`` n times."""
    return np.prod(np.arange(1.0, 2 * n, 2)) / r2 ** (n + 0.5)


def gaussian(r2, beta, n):
    """The same of ``erf(beta r) / r``; beta may be infinite."""
    return point(r2, n) * gammainc(n + 0.5, beta**2 * r2)


def pair(d, i, j, interaction):
    """Energies of moments (q, mu, quad) at 0 and at d, in the notation of `derivatives`."""
    c = [interaction((d**2).sum(-1), n) for n in range(5)]
    t = derivatives(d, c, 4)
    (q, mu, quad), (p, nu, other) = i, j
    total = q * p * t[0]
    total = total + q * np.einsum("...a,...a->...", nu, t[1]) - p * np.einsum("...a,...a->...", mu, t[1])
    total = (
        total + q * np.einsum("...ab,...ab->...", other, t[2]) / 2 + p * np.einsum("...ab,...ab->...", quad, t[2]) / 2
    )
    total = total - np.einsum("...a,...b,...ab->...", mu, nu, t[2])
    total = total - np.einsum("...a,...bc,...abc->...", mu, other, t[3]) / 2
    total = total + np.einsum("...ab,...c,...abc->...", quad, nu, t[3]) / 2
    return total + np.einsum("...ab,...cd,...abcd->...", quad, other, t[4]) / 4


def energy(matrix, x, q, mu, quad, s, alpha=2.2, reach=6.2, pairs=(), factors=()):
    """Energy in a box with lattice vectors as rows, a conductor around, a background for a net charge.

    Widths s change pairs of points by what ``erf`` leaves of them. A particle's own Gaussian is left out. Nearest
    images of pairs have factors. A factor of 0 leaves the smooth part: no large numbers are taken from each other.
    """
    matrix = np.asarray(matrix, float)
    inverse, volume = np.linalg.inv(matrix), abs(np.linalg.det(matrix))
    beta = 1 / np.sqrt(np.maximum(2 * (s[:, None] ** 2 + s**2), 1e-300))
    cutoff = reach / min(alpha, beta.min())
    most = np.ceil(cutoff * np.linalg.norm(inverse, axis=0)).astype(int) + 1
    scales = np.ones((len(x), len(x)))
    nearest = np.full((len(x), len(x)), np.inf)
    for (i, j), factor in zip(pairs, factors, strict=True):
        scales[i, j] = scales[j, i] = factor
        nearest[i, j] = nearest[j, i] = min(np.linalg.norm(x[j] - x[i] + _integers([2, 2, 2]) @ matrix, axis=1))
    d = x[None] - x[:, None] + (_integers(most) @ matrix)[:, None, None]
    r2 = (d**2).sum(-1)
    images, i, j = np.nonzero((r2 > 1e-20) & (r2 < cutoff**2))

    def sharp(r2, n):
        # 1/r less its smooth part, less what Gaussians lack of points
        away = gammaincc(n + 0.5, alpha**2 * r2) - gammaincc(n + 0.5, beta[i, j] ** 2 * r2)
        scaled = scales[i, j] * gammainc(n + 0.5, beta[i, j] ** 2 * r2) - gammainc(n + 0.5, alpha**2 * r2)
        listed = (scales[i, j] != 1) & (r2 < (nearest[i, j] * (1 + 1e-12)) ** 2)
        return point(r2, n) * np.where(listed, scaled, away)

    total = pair(d[images, i, j], (q[i], mu[i], quad[i]), (q[j], mu[j], quad[j]), sharp).sum() / 2
    rows, highest = 2 * np.pi * inverse.T, 2 * reach * alpha
    k = _integers(np.ceil(highest * np.linalg.norm(matrix, axis=1) / (2 * np.pi)).astype(int)) @ rows
    k2 = (k**2).sum(1)
    k, k2 = k[(k2 > 0) & (k2 < highest**2)], k2[(k2 > 0) & (k2 < highest**2)]
    moments = q + 1j * k @ mu.T - np.einsum("ka,nab,kb->kn", k, quad, k) / 2
    structure = (moments * np.exp(1j * k @ x.T)).sum(1)
    total += 2 * np.pi / volume * (np.exp(-k2 / (4 * alpha**2)) / k2 * abs(structure) ** 2).sum()
    # Of itself a particle has the smooth part at d = 0, where only pairings without d are left.
    c = [2 * alpha / np.sqrt(np.pi) * (2 * alpha**2) ** n / (2 * n + 1) for n in range(3)]
    trace = np.trace(quad, axis1=1, axis2=2)
    total -= (c[0] * q**2 - c[1] * q * trace + c[1] * (mu**2).sum(1)).sum() / 2
    total -= c[2] * (trace**2 + 2 * (quad**2).sum((1, 2))).sum() / 8
    return total - np.pi * q.sum() ** 2 / (2 * alpha**2 * volume)


def system(matrix, count=6, seed=11, width=0.12):
    """Positions, charges, dipoles, quadrupoles and widths, every other one a point; no particles near each other."""
    rng = np.random.default_rng(seed)
    fractions = (np.array(list(itertools.product(range(2), repeat=3)))[:count] + rng.uniform(0.1, 0.6, (count, 3))) / 2
    half = rng.normal(size=(count, 3, 3)) * 0.1
    widths = rng.uniform(0.3, 1.0, count) * width
    widths[::2] = 0
    return (
        fractions @ matrix,
        rng.normal(size=count),
        rng.normal(size=(count, 3)) * 0.3,
        half + half.swapaxes(1, 2),
        widths,
    )
