# SPDX-License-Identifier: BSD-3-Clause
"""The salt water in the package is what data/README.md says it is."""

from pathlib import Path

import numpy as np
import pytest
from scipy.special import erfc

PACKAGE = Path(__file__).resolve().parents[2] / "src" / "particlemesh" / "data" / "water.npz"
DHFR = Path(__file__).resolve().parents[3] / "shared" / "data" / "dhfr.npz"  # optional
MASS = {"H": 1.008, "O": 15.999, "Na": 22.990, "Cl": 35.45}  # g/mol
COULOMB = 138.93545764438198  # kJ nm/(mol e^2), as OpenMM has it


@pytest.fixture(scope="module")
def water():
    with np.load(PACKAGE) as arrays:
        return dict(arrays)


def test_shapes_and_neutrality(water):
    count = len(water["charges"])
    assert water["positions"].shape == water["reference_forces"].shape == (count, 3)
    assert water["elements"].shape == (count,)
    assert water["box"].shape == (3, 3) and water["reference_energy"].shape == ()
    assert all(water[key].dtype == np.float64 for key in water if key != "elements")
    assert abs(water["charges"].sum()) < 1e-9
    assert PACKAGE.stat().st_size < 1_000_000


def test_it_is_liquid_salt_water(water):
    elements, volume = water["elements"], np.linalg.det(water["box"])
    grams = sum(MASS[element] for element in elements) / 6.02214076e23
    assert grams / (volume * 1e-21) == pytest.approx(1.0, abs=0.05)
    ions = np.count_nonzero(elements == "Na")
    assert ions == np.count_nonzero(elements == "Cl")
    assert ions / 0.602214 / volume == pytest.approx(0.5, abs=0.05)  # mol/l


def test_molecules_and_distances(water):
    elements, positions, edge = water["elements"], water["positions"], water["box"][0, 0]
    oxygen = np.flatnonzero(elements == "O")
    for hydrogen in (oxygen + 1, oxygen + 2):
        assert (elements[hydrogen] == "H").all()
        length = np.linalg.norm(positions[hydrogen] - positions[oxygen], axis=1)
        np.testing.assert_allclose(length, 0.09572, atol=3e-5)  # TIP3P; positions are rounded to 1e-5
    heavy = positions[elements != "H"]
    assert ((heavy >= 0) & (heavy < edge)).all()
    apart = _distances(heavy, heavy, edge)
    np.fill_diagonal(apart, np.inf)
    assert 0.20 < apart.min() < 0.28  # hydrogen bonds and hydrated sodium
    assert np.median(apart.min(axis=1)) == pytest.approx(0.265, abs=0.02)


def test_energy_and_forces_by_an_independent_ewald_sum(water):
    """Another splitting and another cutoff than the file's: only a converged sum agrees."""
    energy, forces = _ewald(water["positions"], water["charges"], water["box"][0, 0], alpha=4.0, modes=24)
    assert energy == pytest.approx(float(water["reference_energy"]), rel=1e-9)
    np.testing.assert_allclose(forces, water["reference_forces"], atol=1e-4)  # the largest is 6000


@pytest.mark.skipif(not DHFR.exists(), reason="the protein in water is not part of the repository")
def test_dhfr_follows_the_same_convention():
    """Without the pairs inside a molecule its energy would be twenty times smaller per atom."""
    with np.load(DHFR) as arrays:
        per_atom = arrays["reference_energy"] / len(arrays["charges"])
    with np.load(PACKAGE) as arrays:
        ours = arrays["reference_energy"] / len(arrays["charges"])
    assert per_atom == pytest.approx(ours, rel=0.1)


def _distances(a, b, edge):
    apart = a[:, None] - b
    apart -= edge * np.round(apart / edge)
    return np.sqrt((apart**2).sum(axis=-1))


def _ewald(positions, charges, edge, alpha, modes):
    """Energy (kJ/mol) and forces of a neutral cube: half a box of real space, and a cube of modes."""
    energy, forces = -alpha / np.sqrt(np.pi) * np.sum(charges**2), np.zeros_like(positions)
    for start in range(0, len(charges), 256):
        rows = slice(start, start + 256)
        apart = positions[rows, None] - positions
        apart -= edge * np.round(apart / edge)
        squared = np.sum(apart**2, axis=-1)
        near = (squared > 0) & (squared < (0.5 * edge) ** 2)
        row, column = np.nonzero(near)
        r = np.sqrt(squared[near])
        pairs = charges[rows][row] * charges[column]
        screened = erfc(alpha * r) / r
        energy += 0.5 * np.sum(pairs * screened)
        slope = pairs * (screened + 2 * alpha / np.sqrt(np.pi) * np.exp(-((alpha * r) ** 2))) / r**2
        np.add.at(forces[rows], row, slope[:, None] * apart[near])
    index = np.arange(-modes, modes + 1)
    k = 2 * np.pi / edge * index
    waves = [np.exp(1j * np.outer(k, positions[:, axis])) for axis in range(3)]
    for i in range(modes, 2 * modes + 1):  # -k is the complex conjugate of k
        squared = k[i] ** 2 + k[:, None] ** 2 + k**2
        squared[squared == 0] = np.inf
        kernel = 4 * np.pi / edge**3 * np.exp(-squared / (4 * alpha**2)) / squared * (1 if i == modes else 2)
        factors = (waves[1] * (charges * waves[0][i])) @ waves[2].T
        energy += 0.5 * np.sum(kernel * np.abs(factors) ** 2)
        weighted = kernel * factors.conj()
        for axis, along in enumerate((k[i], k[:, None], k)):
            back = np.sum(((weighted * along) @ waves[2]) * waves[1], axis=0) * waves[0][i]
            forces[:, axis] += charges * back.imag
    return COULOMB * energy, COULOMB * forces
