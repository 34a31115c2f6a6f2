# SPDX-License-Identifier: BSD-3-Clause
"""Madelung constants, whatever the splitting, origin, supercell and lattice vectors; OpenMM's triclinic case."""

import numpy as np
import pytest

import long_ewald
from particlemesh.apps.pme import PME
from pme_cases import CRYSTALS, TRICLINIC, ewald, random_charges

TIGHT = dict(accuracy=1e-13)
RADIUS = (3 / (4 * np.pi)) ** (1 / 3)  # of a sphere of volume 1
# Constants of the literature, with the digits that it has, and what energies are divided by to give them.
TABULATED = {
    "rock salt": (1.7475645946331822, -4 / 0.5),
    "caesium chloride": (1.7626747730709884, -2 / np.sqrt(3)),
    "zincblende": (1.63805505338879, -16 / np.sqrt(3)),
    "wurtzite": (1.64132162737, -2 / (0.375 * np.sqrt(8 / 3))),
    "fluorite": (11.63657522707675, -4),
    "cuprite": (10.25945703307504, -2),
    "jellium sc": (2.8372974794806196, -1 / 2),
    "jellium bcc": (1.7918585113635, -(2 ** (1 / 3)) / RADIUS),
    "jellium fcc": (1.7917472303902, -2 * 4 ** (1 / 3) / RADIUS),
}


def energy_of(crystal, shift=0.0, **options):
    return PME(crystal.matrix, **(options or TIGHT))(crystal.positions + shift, crystal.charges).energy


@pytest.mark.parametrize("name", CRYSTALS)
def test_the_constants_have_enough_digits(name):
    crystal, (constant, unit) = CRYSTALS[name], TABULATED[name]
    assert abs(crystal.energy / unit - constant) <= 2e-13 * constant + (2e-12 if name == "wurtzite" else 0)
    if not long_ewald.ENOUGH:
        pytest.skip("numpy.longdouble has no 64 bits here")
    near = (len(crystal.charges) / np.linalg.det(crystal.matrix)) ** (1 / 3)
    one, other = (long_ewald.energy(crystal.matrix, crystal.fractions, crystal.charges, a * near) for a in (1.6, 2.3))
    assert abs(one - other) <= 1e-18 * abs(one)
    assert abs(one - crystal.energy) <= 2e-16 * abs(one)


@pytest.mark.parametrize("name", CRYSTALS)
def test_energies_of_crystals_are_exact(name):
    crystal = CRYSTALS[name]
    tolerance = 1e-12 * abs(crystal.energy)
    assert abs(energy_of(crystal) - crystal.energy) <= tolerance
    assert abs(energy_of(crystal, shift=(0.123, -4.56, 7.89)) - crystal.energy) <= tolerance
    # Lattice vectors that are neither short nor at right angles.
    other = crystal.described(np.array([(1, 0, 0), (1, 1, 0), (-1, 1, 1)]))
    assert abs(energy_of(other) - crystal.energy) <= tolerance
    large = crystal.repeated(1, 2, 1)
    assert abs(energy_of(large) - large.energy) <= 2 * tolerance


@pytest.mark.filterwarnings("ignore:accuracy 1e-13 with the given splitting")  # slow, as asked for
@pytest.mark.parametrize(("name", "splitting"), [
    ("rock salt", 2.5), ("rock salt", 7.0), ("caesium chloride", 5.0), ("zincblende", 3.0), ("wurtzite", 2.5),
    ("fluorite", 6.0), ("cuprite", 4.0), ("jellium sc", 3.0), ("jellium bcc", 2.5), ("jellium bcc", 7.0),
    ("jellium fcc", 5.0),
])  # fmt: skip
def test_the_splitting_does_not_matter(name, splitting):
    crystal = CRYSTALS[name]
    energy = energy_of(crystal, accuracy=1e-13, splitting=splitting)
    assert abs(energy - crystal.energy) <= 1e-12 * abs(crystal.energy)


def test_the_triclinic_case_of_openmm():
    x = np.array([
        (1.744, 2.788, 3.162), (1.048, 0.762, 2.340), (2.489, 1.570, 2.817), (1.027, 1.893, 3.271),
        (0.937, 0.825, 0.009), (2.290, 1.887, 3.352), (1.266, 1.111, 2.894), (0.933, 1.862, 3.490),
    ])  # fmt: skip
    q = np.array([-1.0] * 4 + [1.0] * 4)
    result = PME(TRICLINIC, **TIGHT)(x, q)
    assert abs(result.energy + 7.49865813673545) <= 1e-11
    in_kj = PME(TRICLINIC, **TIGHT, coulomb_constant=138.93545764438206)(x, q)  # kJ/mol, nm, elementary charges
    assert abs(in_kj.energy + 1041.8294999461) <= 2e-10
    np.testing.assert_allclose(result.forces[0], (0.306122605, -0.888640313, 0.8792957417), rtol=0, atol=1e-9)
    again = PME(TRICLINIC, **TIGHT)(x + (40, -3, 7) @ TRICLINIC, q)
    np.testing.assert_allclose(again.forces, result.forces, rtol=0, atol=1e-11)


@pytest.mark.parametrize(("length", "energy", "force"), [
    (10.0, -1.002125537972, -0.995686510552), (20.0, -1.000262771162, -0.999472513203),
])  # fmt: skip
def test_a_pair_in_a_conducting_medium(length, energy, force):
    result = PME((length,) * 3, **TIGHT)(np.array([(0.5, 0, 0), (-0.5, 0, 0)]), np.array([1.0, -1.0]))
    assert abs(result.energy - energy) <= 1e-11
    assert abs(result.forces[0, 0] - force) <= 1e-11


@pytest.mark.parametrize("neutral", [True, False])
@pytest.mark.parametrize("matrix", [np.diag((1.5, 2.0, 2.5)), TRICLINIC], ids=["orthorhombic", "triclinic"])
def test_forces_equal_a_plain_ewald_sum(matrix, neutral):
    x, q = random_charges(30, matrix=matrix, neutral=neutral)
    energy, forces = ewald(matrix, x, q)
    size = np.sqrt((forces**2).mean())
    result = PME(matrix, accuracy=1e-12)(x, q)
    assert abs(result.energy - energy) <= 1e-11 * abs(energy)
    assert abs(result.forces - forces).max() <= 1e-10 * size
    assert abs(result.energies.sum() - result.energy) <= 1e-12 * abs(energy)
    single = PME(matrix, accuracy=3e-6)(x.astype("f4"), q.astype("f4"))
    assert single.forces.dtype == np.float32
    assert np.sqrt(((single.forces - forces) ** 2).mean()) <= 1e-5 * size
