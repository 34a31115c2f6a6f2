# SPDX-License-Identifier: BSD-3-Clause
"""A protein in water, 23,558 charges with a net charge of -11, against an independent sum."""

from pathlib import Path

import numpy as np
import pytest

from particlemesh.apps.pme import PME

FILE = Path(__file__).parents[3].parent / "shared" / "data" / "dhfr.npz"
pytestmark = pytest.mark.skipif(not FILE.exists(), reason=f"the reference forces are not here: {FILE}")


@pytest.fixture(scope="module")
def protein():
    with np.load(FILE) as data:
        return {name: data[name] for name in data.files}


@pytest.mark.parametrize(("dtype", "accuracy", "energy", "force"), [
    ("float64", 1e-7, 1e-7, 1e-6), ("float64", None, 1e-7, 3e-6), ("float32", None, 1e-5, 1e-4),
])  # fmt: skip
def test_energy_and_forces_of_a_protein_in_water(protein, dtype, accuracy, energy, force):
    pme = PME(protein["box"], accuracy, coulomb_constant=138.935456)
    result = pme(protein["positions"].astype(dtype), protein["charges"].astype(dtype))
    expected = protein["reference_forces"]
    assert abs(result.energy / protein["reference_energy"] - 1) <= energy
    assert np.sqrt(((result.forces - expected) ** 2).sum() / (expected**2).sum()) <= force
