# SPDX-License-Identifier: BSD-3-Clause
"""Lennard-Jones energies and forces of 125 waters, as GROMACS has computed them for OpenMM's tests.

``OPENMM_TESTS`` names the folder ``tests`` of OpenMM, whose file ``TestDispersionPME.h`` has coordinates and figures.
"""

import os
import re
from pathlib import Path

import numpy as np
import pytest

from particlemesh.apps.pme import Dispersion

COUNT = 375
HALF_LENGTHS, DEPTHS = (1.7682, 0.2245, 0.2245), (0.1521, 0.046, 0.046)  # CHARMM's, in angstrom and kcal/mol
NUMBER = r"\s*(-?[\d.e+-]+)\s*"


@pytest.fixture(scope="module")
def text():
    folder = os.environ.get("OPENMM_TESTS")
    if not folder:
        pytest.skip("OPENMM_TESTS does not name a folder with the peer's tests")
    return (Path(folder) / "TestDispersionPME.h").read_text()


def between(text, begin, end):
    return text.partition(begin)[2].partition(end)[0]


@pytest.mark.parametrize(("name", "edge", "cutoff", "excluded", "tolerance"), [
    ("WithExclusions", 2.301, 1.15, True, 5e-5), ("NoExclusions", 1.701, 0.85, False, 5e-4),
])  # fmt: skip
def test_water(text, name, edge, cutoff, excluded, tolerance):
    triple = NUMBER + "," + NUMBER + "," + NUMBER
    coordinates = re.findall(r"\{" + triple + r"\}", between(text, "coords[375][3]", "};"))
    x = np.array(coordinates, float) / 10
    assert x.shape == (COUNT, 3)
    case = between(text, f"void testWater125DpmeVsLongCutoff{name}()", "\nvoid ")
    expected = np.zeros((COUNT, 3))
    for k, *force in re.findall(r"refforces\[\s*(\d+)\] = Vec3\(" + triple + r"\)", case):
        expected[int(k)] = force
    energy = float(re.search(r"gromacs_energy =" + NUMBER + ";", case)[1])
    sigma = 2 * 2 ** (-1 / 6) * np.tile(HALF_LENGTHS, 125) / 10
    epsilon = np.tile(DEPTHS, 125) * 4.184
    oxygen = np.arange(0, COUNT, 3)
    pairs = np.concatenate([np.stack([oxygen + a, oxygen + b], 1) for a, b in ((0, 1), (0, 2), (1, 2))])
    call = Dispersion(
        (edge,) * 3, cutoff=cutoff, splitting=4.276, shape=(80,) * 3, window="bspline8", shift=True,
        mixing="lorentz-berthelot",
    )  # fmt: skip
    result = call(x, sigma=sigma, epsilon=epsilon, exclusions=pairs if excluded else None)
    assert abs(result.energy / energy - 1) <= tolerance  # those of OpenMM; GROMACS works in single precision
    assert np.linalg.norm(result.forces - expected) <= 1e-4 * np.linalg.norm(expected)
