# SPDX-License-Identifier: BSD-3-Clause
"""Polarizable particles and equilibrating charges by dense matrices of direct Ewald sums: nothing of the library."""

import itertools

import numpy as np
from scipy.special import erfc

from pme_cases import image

BOX = np.array([[2.0, 0.0, 0.0], [0.3, 2.2, 0.0], [-0.4, 0.5, 1.9]])
FINE = dict(cutoff=1.7, splitting=3.5, shape=(48, 54, 48), window="bspline12")
COARSE = dict(cutoff=1.2, splitting=2.5, shape=(16, 18, 16), window="bspline6")
_SHIFTS = np.array(list(itertools.product(range(-3, 4), repeat=3)))


def system(count=6, seed=11):
    """Positions, charges, dipoles and polarizabilities, the third of which is 0."""
    rng = np.random.default_rng(seed)
    s = (np.array(list(itertools.product(range(2), repeat=3)))[:count] + rng.uniform(0.1, 0.6, (count, 3))) / 2
    alpha = rng.uniform(0.01, 0.04, count)
    alpha[2] = 0
    return s @ BOX, rng.normal(size=count), 0.3 * rng.normal(size=(count, 3)), alpha


def blocks(d, b0, b1, b2):
    """Interactions (N, N, 4, 4) of charge and dipole of i with those of j, by ``b0 = f(r)`` and its derivatives."""
    out = np.zeros((*d.shape[:2], 4, 4))
    out[..., 0, 0] = b0
    out[..., 0, 1:] = -b1[..., None] * d
    out[..., 1:, 0] = b1[..., None] * d
    out[..., 1:, 1:] = b1[..., None, None] * np.eye(3) - b2[..., None, None] * d[..., :, None] * d[..., None, :]
    return out


def vectors(x, box):
    """Vectors (N, N, 3) from i to each image of j, and distances, infinite to itself."""
    for shift in _SHIFTS @ box:
        d = x[None] - x[:, None] + shift
        r = np.sqrt((d**2).sum(-1))
        yield d, np.where(r == 0, np.inf, r)


def ewald_matrix(x, box=BOX, alpha=2.6):
    """Interactions (N, N, 4, 4) of charges and dipoles over all images."""
    volume, total = abs(np.linalg.det(box)), 0.0
    for d, r in vectors(x, box):
        fade = np.exp(-((alpha * r) ** 2)) * 2 * alpha / np.sqrt(np.pi)
        b0 = erfc(alpha * r) / r
        b1 = (b0 + fade) / r**2
        total = total + blocks(d, b0, b1, (3 * b1 + 2 * alpha**2 * fade) / r**2)
    numbers = np.array(list(itertools.product(range(-11, 12), repeat=3)))
    k = numbers[(numbers != 0).any(1)] @ (2 * np.pi * np.linalg.inv(box).T)
    k2 = (k**2).sum(1)
    waves = np.exp(1j * k @ x.T)[..., None] * np.concatenate([np.ones((len(k), 1)), 1j * k], 1)[:, None]
    weights = 4 * np.pi / volume * np.exp(-k2 / (4 * alpha**2)) / k2
    total = total + np.einsum("k,kia,kjb->ijab", weights, waves.conj(), waves).real
    itself = 2 * alpha / np.sqrt(np.pi) * np.array([1, *[2 * alpha**2 / 3] * 3])
    total[np.arange(len(x)), np.arange(len(x))] -= np.diag(itself)
    total[..., 0, 0] -= np.pi / (volume * alpha**2)
    return total


def thole_matrix(x, alpha, a, box=BOX):
    """What Thole's damping takes from the interactions of points."""
    size = np.sqrt(np.multiply.outer(alpha, alpha))
    total = 0.0
    for d, r in vectors(x, box):
        r = np.where(size > 0, r, np.inf)
        w = np.minimum(a * r**3 / np.where(size > 0, size, 1), 700.0)
        e1 = np.exp(-w)
        total = total - blocks(d, np.zeros_like(r), e1 / r**3, 3 * (1 + w) * e1 / r**5)
    return total


class Polarizable:
    """Energy of charges, permanent dipoles and those that they induce, and the induced ones."""

    def __init__(self, thole=None, pairs=(), factors=(), constant=2.0, box=BOX):
        self.thole, self.pairs, self.factors, self.constant, self.box = thole, pairs, factors, constant, box

    def matrices(self, x, alpha):
        """Interactions (4N, 4N) of permanent moments, of these with induced ones, and of induced ones."""
        points = ewald_matrix(x, self.box)
        damped = points + (0 if self.thole is None else thole_matrix(x, self.constant * alpha, self.thole, self.box))
        permanent, both = points.copy(), damped.copy()
        for (i, j), f in zip(self.pairs, self.factors, strict=True):
            d = image(x[j] - x[i], self.box)
            r = np.linalg.norm(d)
            b = np.array([1 / r, 1 / r**3, 3 / r**5])
            w = (
                np.inf
                if self.thole is None or alpha[i] * alpha[j] == 0
                else r**3 * self.thole / (self.constant * np.sqrt(alpha[i] * alpha[j]))
            )
            e = np.exp(-w)
            lowered = b * [1, 1 - e, 1 - (1 + (w if e else 0)) * e]
            for k, m, side in ((i, j, d), (j, i, -d)):
                permanent[k, m] += (f - 1) * blocks(side[None, None], *b[:, None, None])[0, 0]
                both[k, m] += (f - 1) * blocks(side[None, None], *lowered[:, None, None])[0, 0]
        return [m.transpose(0, 2, 1, 3).reshape(4 * len(x), -1) for m in (permanent, both, damped)]

    def __call__(self, x, q, m, alpha, field=(0.0, 0.0, 0.0)):
        """Return the least energy and its dipoles (N, 3)."""
        permanent, both, induced = (self.constant * a for a in self.matrices(x, alpha))
        z = np.concatenate([q[:, None], m], 1).ravel()
        movable = np.flatnonzero(np.tile([0, 1, 1, 1], len(x)) * np.repeat(alpha, 4) > 0)
        outside = np.tile([0.0, *field], len(x))
        stiff = induced[np.ix_(movable, movable)] + np.diag(1 / np.repeat(alpha, 4)[movable])
        push = (outside - both @ z)[movable]
        u = np.linalg.solve(stiff, push)
        dipoles = np.zeros(4 * len(x))
        dipoles[movable] = u
        return z @ permanent @ z / 2 - outside @ z - push @ u / 2, dipoles.reshape(-1, 4)[:, 1:]


def charge_matrix(x, eta, widths=None, constant=2.0, box=BOX):
    """Second derivatives (N, N) of the energy by charges."""
    total = ewald_matrix(x, box)[..., 0, 0]
    if widths is not None:
        both = np.sqrt(2 * (widths[:, None] ** 2 + widths**2))
        total = total - sum(erfc(r / both) / r for _, r in vectors(x, box)) + np.diag(1 / (np.sqrt(np.pi) * widths))
    return constant * total + np.diag(eta)


def equilibrated(x, chi, eta, total, **options):
    """Return the least energy, and the charges, by Lagrange's equations."""
    matrix = charge_matrix(x, eta, **options)
    n = len(x)
    whole = np.zeros((n + 1, n + 1))
    whole[:n, :n], whole[n, :n], whole[:n, n] = matrix, 1, 1
    q = np.linalg.solve(whole, [*-chi, total])[:n]
    return chi @ q + q @ matrix @ q / 2, q
