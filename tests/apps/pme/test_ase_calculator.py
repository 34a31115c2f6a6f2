# SPDX-License-Identifier: BSD-3-Clause
"""The calculator of ASE: forces and stress are derivatives of its energy, and it sees what changes."""

import numpy as np
import pytest

from particlemesh.apps.pme import PME, slab_correction

ase = pytest.importorskip("ase", reason="ASE is not installed")
from ase import Atoms  # noqa: E402

from particlemesh.apps.pme.calculator import PMECalculator  # noqa: E402

FINE = dict(cutoff=4.9, splitting=0.85, shape=(32, 36, 32), window="bspline8")
CELL = np.array([[10.0, 0.0, 0.0], [1.5, 11.0, 0.0], [-2.0, 2.5, 9.5]])


def atoms(**options):
    rng = np.random.default_rng(2)
    corners = np.stack(np.meshgrid(*[np.arange(2)] * 3), -1).reshape(-1, 3)
    positions = (corners + rng.uniform(0.1, 0.6, (8, 3))) / 2 @ CELL
    salt = Atoms("NaCl" * 4, positions=positions, cell=CELL, pbc=True, charges=[1, -1] * 4)
    salt.calc = PMECalculator(None, **FINE, **options)
    return salt


def test_energy_forces_and_stress():
    salt = atoms()
    energy, forces, stress = salt.get_potential_energy(), salt.get_forces(), salt.get_stress(voigt=False)
    pme = PME(CELL, **FINE, coulomb_constant=14.399645478)
    np.testing.assert_allclose(
        energy, pme(salt.positions, np.array([1.0, -1] * 4)).energy, rtol=1e-7
    )  # ASE's constants
    np.testing.assert_allclose(salt.get_potential_energies().sum(), energy, rtol=1e-12)
    h = 1e-4
    for axis in range(3):
        ends = []
        for sign in (1, -1):
            moved = salt.copy()
            moved.calc = salt.calc
            moved.positions[3, axis] += sign * h
            ends.append(moved.get_potential_energy())
        np.testing.assert_allclose(forces[3, axis], (ends[1] - ends[0]) / (2 * h), rtol=1e-6, atol=1e-7)
    for a, b in ((0, 0), (1, 2), (0, 1)):
        ends = []
        for sign in (1, -1):
            deform = np.eye(3)
            deform[a, b] += sign * h
            strained = salt.copy()
            strained.calc = salt.calc
            strained.set_cell(CELL @ deform.T, scale_atoms=True)
            ends.append(strained.get_potential_energy() / salt.get_volume())
        np.testing.assert_allclose(stress[a, b], (ends[0] - ends[1]) / (2 * h), rtol=1e-5, atol=1e-9)


def test_charges_given_and_slabs():
    salt = atoms(charges=np.array([2.0, -2.0] * 4))
    np.testing.assert_allclose(salt.get_potential_energy(), 4 * atoms().get_potential_energy(), rtol=1e-12)
    slab = atoms()
    slab.cell[2] *= 4
    slab.pbc = True, True, False
    cell, q = np.array(slab.cell[:]), np.array([1.0, -1] * 4)
    slab.calc = PMECalculator(None, **{**FINE, "shape": (32, 36, 128)})
    expected = PME(cell, **{**FINE, "shape": (32, 36, 128)})(slab.positions, q).energy
    expected += slab_correction(slab.positions, q, cell).energy
    np.testing.assert_allclose(slab.get_potential_energy(), 14.399645478 * expected, rtol=1e-7)


def test_bad_atoms_are_explained():
    salt = atoms()
    salt.pbc = False
    with pytest.raises(ValueError, match="at least two periodic axes"):
        salt.get_potential_energy()
    bare = atoms()
    bare.set_initial_charges(np.zeros(8))
    with pytest.raises(ValueError, match="no charges"):
        bare.get_potential_energy()


def test_parameters_are_kept_while_the_cell_changes_little():
    salt = atoms()
    salt.calc = PMECalculator(1e-6)
    salt.get_potential_energy()
    first = salt.calc.pme.parameters
    salt.set_cell(CELL * 1.01, scale_atoms=True)
    energy, second = salt.get_potential_energy(), salt.calc.pme.parameters
    assert second.shape == first.shape and second.cutoff == first.cutoff and second.bandwidth == first.bandwidth
    fine = PME(CELL * 1.01, 1e-9, coulomb_constant=salt.calc.pme.coulomb_constant)
    assert energy == pytest.approx(float(fine(salt.positions, salt.get_initial_charges()).energy), rel=1e-5)
    salt.set_cell(CELL * 1.5, scale_atoms=True)
    salt.get_potential_energy()
    assert salt.calc.pme.parameters.cutoff != first.cutoff
