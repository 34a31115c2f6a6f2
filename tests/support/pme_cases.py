# SPDX-License-Identifier: BSD-3-Clause
"""Crystals, random charges, and a plain Ewald sum that shares nothing with the library."""

import itertools
from dataclasses import dataclass

import numpy as np
from scipy.special import erfc


@dataclass
class Crystal:
    """Lattice vectors, fractions and charges of a cell, and its energy."""

    matrix: np.ndarray
    fractions: np.ndarray
    charges: np.ndarray
    energy: float

    @property
    def positions(self):
        return self.fractions @ self.matrix

    def repeated(self, *times):
        cells = np.array(list(itertools.product(*map(range, times))))
        fractions = (self.fractions[:, None] + cells).reshape(-1, 3) / times
        charges = np.repeat(self.charges, len(cells))
        return Crystal(np.diag(times) @ self.matrix, fractions, charges, len(cells) * self.energy)

    def described(self, turns):
        """The same crystal by other lattice vectors: ``turns`` is a matrix of integers with determinant 1."""
        return Crystal(turns @ self.matrix, self.fractions @ np.linalg.inv(turns), self.charges, self.energy)


def _of(matrix, ions, energy):
    fractions = np.array([f for f, _ in ions], float)
    return Crystal(np.array(matrix, float), fractions, np.array([q for _, q in ions], float), energy)


FCC = [(0, 0, 0), (0, 0.5, 0.5), (0.5, 0, 0.5), (0.5, 0.5, 0)]


def _moved(points, by):
    return [tuple(np.add(p, by)) for p in points]


def _crystals():
    cube, r3 = np.eye(3), np.sqrt(3)
    height = np.sqrt(8 / 3)
    hexagonal = [(1, 0, 0), (-0.5, r3 / 2, 0), (0, 0, height)]
    zinc = [((1 / 3, 2 / 3, 0), 1), ((2 / 3, 1 / 3, 0.5), 1)]
    wurtzite = zinc + [((a, b, c + 0.375), -q) for (a, b, c), q in zinc]
    quarters = _moved(FCC, (0.25,) * 3)
    fluorine = quarters + _moved(FCC, (0.75,) * 3)
    oxygen = [(0, 0, 0), (0.5, 0.5, 0.5)]
    yield "rock salt", cube, [(f, 1) for f in FCC] + [(f, -1) for f in _moved(FCC, (0.5, 0, 0))]
    yield "caesium chloride", cube, [((0, 0, 0), 1), ((0.5,) * 3, -1)]
    yield "zincblende", cube, [(f, 1) for f in FCC] + [(f, -1) for f in quarters]
    yield "wurtzite", hexagonal, wurtzite
    yield "fluorite", cube, [(f, 2) for f in FCC] + [(f, -1) for f in fluorine]
    yield "cuprite", cube, [(f, 1) for f in quarters] + [(f, -2) for f in oxygen]
    yield "jellium sc", cube, [((0, 0, 0), 1)]
    yield "jellium bcc", cube, [(f, 1) for f in oxygen]
    yield "jellium fcc", cube, [(f, 1) for f in FCC]


# Of a cell: sums of long_ewald.py, which agree to 1e-18 for two splittings, as test_crystals.py shows.
ENERGIES = {
    "rock salt": -13.980516757065457524,
    "caesium chloride": -2.0353615094525953183,
    "zincblende": -15.131704416343110035,
    "wurtzite": -5.3605339878077114006,
    "fluorite": -46.546300908306982615,
    "cuprite": -20.518914066150081243,
    "jellium sc": -1.4186487397403097384,
    "jellium bcc": -3.6392334495086436355,
    "jellium fcc": -9.169724148227603335,
}

CRYSTALS = {name: _of(matrix, ions, ENERGIES[name]) for name, matrix, ions in _crystals()}
TRICLINIC = np.array([(2.5, 0, 0), (0.5, 3, 0), (0.7, 0.9, 3.5)])


def ewald(matrix, positions, charges, alpha=2.0, reach=6.0):
    """Energy and forces of one set of charges with a neutralising background, by direct sums over images and modes."""
    matrix, x, q = np.asarray(matrix, float), np.asarray(positions, float), np.asarray(charges, float)
    volume, inverse = abs(np.linalg.det(matrix)), np.linalg.inv(matrix)
    cutoff, highest = reach / alpha, 2 * reach * alpha
    most = np.ceil(cutoff * np.linalg.norm(inverse, axis=0)).astype(int) + 1
    energy = -alpha / np.sqrt(np.pi) * (q**2).sum() - np.pi * q.sum() ** 2 / (2 * volume * alpha**2)
    forces = np.zeros_like(x)
    x = (x @ inverse % 1) @ matrix
    for image in itertools.product(*(range(-n, n + 1) for n in most)):
        d = x[None] - x[:, None] + np.array(image) @ matrix
        r = np.linalg.norm(d, axis=-1)
        near = (r > 0) & (r <= cutoff)
        r = np.where(near, r, 1.0)
        pair = np.where(near, q[:, None] * q * erfc(alpha * r) / r, 0)
        energy += pair.sum() / 2
        gauss = np.where(near, q[:, None] * q * 2 * alpha / np.sqrt(np.pi) * np.exp(-((alpha * r) ** 2)), 0)
        forces -= (((pair + gauss) / r**2)[..., None] * d).sum(1)
    rows = 2 * np.pi * inverse.T
    limit = np.ceil(highest * np.linalg.norm(matrix, axis=1) / (2 * np.pi)).astype(int)
    numbers = np.stack(np.meshgrid(*(np.arange(-n, n + 1) for n in limit), indexing="ij"), -1).reshape(-1, 3)
    k = numbers @ rows
    k2 = (k**2).sum(1)
    k, k2 = k[(k2 > 0) & (k2 <= highest**2)], k2[(k2 > 0) & (k2 <= highest**2)]
    phases = np.exp(1j * k @ x.T)
    structure = phases @ q
    weight = 4 * np.pi / volume * np.exp(-k2 / (4 * alpha**2)) / k2
    energy += (weight * abs(structure) ** 2).sum() / 2
    forces += q[:, None] * np.einsum("k,ka,ki->ia", weight, k, np.imag(phases * structure.conj()[:, None]))
    return energy, forces


def ewald_sum(matrix, x, q, alpha=2.0, reach=6.0, rows=slice(None)):
    """The same of a few charges, without loops; forces of some rows."""
    inverse, volume = np.linalg.inv(matrix), abs(np.linalg.det(matrix))
    x = (x @ inverse % 1) @ matrix
    most = np.ceil(reach / alpha * np.linalg.norm(inverse, axis=0)).astype(int) + 1
    d = x[None] - x[rows, None] + _integers(most)[:, None, None] @ matrix
    r = np.sqrt((d**2).sum(-1))
    r[r == 0] = np.inf
    pairs = np.multiply.outer(q[rows], q) * erfc(alpha * r) / r
    gauss = np.multiply.outer(q[rows], q) * 2 * alpha / np.sqrt(np.pi) * np.exp(-((alpha * r) ** 2))
    forces = -(((pairs + gauss) / r**2)[..., None] * d).sum((0, 2))
    highest = 2 * reach * alpha
    k = _integers(np.ceil(highest * np.linalg.norm(matrix, axis=1) / (2 * np.pi)).astype(int)) @ (2 * np.pi * inverse.T)
    k2 = (k**2).sum(1)
    inside = (k2 > 0) & (k2 <= highest**2)
    k, k2 = k[inside], k2[inside]
    phases = np.exp(1j * k @ x.T)
    structure, weight = phases @ q, 4 * np.pi / volume * np.exp(-k2 / (4 * alpha**2)) / k2
    forces += q[rows, None] * ((weight[:, None] * np.imag(phases[:, rows] * structure.conj()[:, None])).T @ k)
    energy = pairs.sum() / 2 + (weight * abs(structure) ** 2).sum() / 2
    return energy - alpha / np.sqrt(np.pi) * (q**2).sum() - np.pi * q.sum() ** 2 / (2 * volume * alpha**2), forces


def _integers(most):
    return np.stack(np.meshgrid(*(np.arange(-n, n + 1.0) for n in most), indexing="ij"), -1).reshape(-1, len(most))


def random_charges(count, seed=1, matrix=TRICLINIC, neutral=True):
    """Positions and charges in a box, no two particles near each other."""
    rng = np.random.default_rng(seed)
    fractions = np.zeros((0, 3))
    while len(fractions) < count:
        new = rng.random(3)
        d = fractions - new
        if not len(d) or np.linalg.norm((d - np.rint(d)) @ matrix, axis=1).min() > 0.25:
            fractions = np.vstack([fractions, new])
    charges = rng.standard_normal(count)
    return fractions @ matrix, charges - charges.mean() if neutral else charges


def image(d, matrix):
    """The shortest of the vectors that differ from d by lattice vectors; a search."""
    d = d - np.rint(d @ np.linalg.inv(matrix)) @ matrix
    near = [d + np.array(n) @ matrix for n in itertools.product((-1, 0, 1), repeat=3)]
    return min(near, key=lambda v: v @ v)


def pair_of_dipoles(d, q, mu, p, nu):
    """Energy of a charge q with dipole mu, and of p with nu at the vector d from it, in free space."""
    r = np.linalg.norm(d)
    charges = q * p / r + (p * (mu @ d) - q * (nu @ d)) / r**3
    return charges + (mu @ nu) / r**3 - 3 * (mu @ d) * (nu @ d) / r**5


def close(result, expected, tolerance, host=np.asarray):
    """All parts of two results are equal, relative to the largest number of each."""
    for name, part in vars(expected).items():
        if part is None:
            assert getattr(result, name) is None
            continue
        exact = np.asarray(part)
        np.testing.assert_allclose(
            host(getattr(result, name)), exact, rtol=0, atol=tolerance * abs(exact).max(), err_msg=name
        )
