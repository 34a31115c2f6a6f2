# SPDX-License-Identifier: BSD-3-Clause
"""The virial with point dipoles, which stay as they are under a strain: differences of energies, and laws."""

import numpy as np
import pytest

from particlemesh.apps.pme import PME
from pme_cases import TRICLINIC, random_charges

COARSE = dict(cutoff=2.9, splitting=2.0, shape=(12, 15, 16), window="bspline5", coulomb_constant=1.7)
PAIRS = dict(exclusions=[(0, 1), (5, 7), (9, 3), (0, 2)], factors=[0.0, 0.5, 0.8333, -0.4])
BOXES = {"triclinic": TRICLINIC, "orthorhombic": np.diag([2.5, 3.0, 3.5])}


def system(count=20, net=0.0, matrix=TRICLINIC):
    x, q = random_charges(count, matrix=matrix)
    return x, q + net / count, np.sin(np.arange(3.0 * count)).reshape(count, 3) * 0.3


@pytest.mark.parametrize("pairs", [{}, PAIRS], ids=["all pairs", "excluded"])
@pytest.mark.parametrize(("box", "net"), [("triclinic", 0.0), ("triclinic", 2.5), ("orthorhombic", -1.5)])
def test_it_is_the_slope_of_the_energy_by_a_strain_at_fixed_dipoles(pairs, box, net):
    matrix = BOXES[box]
    x, q, mu = system(net=net, matrix=matrix)
    result, step = PME(matrix, **COARSE, **pairs)(x, q, dipoles=mu), 1e-3

    def strained(strain):
        turn = (np.eye(3) + strain).T
        return PME(matrix @ turn, **COARSE, **pairs)(x @ turn, q, dipoles=mu, virial=False).energy

    for seed in range(2):  # every component with its own weight: the virial is not symmetric
        strain = np.random.default_rng(seed).uniform(-1, 1, (3, 3))
        first, second = ((strained(n * strain) - strained(-n * strain)) / (2 * n) for n in (step, 2 * step))
        assert abs((result.virial * strain).sum() - (4 * first - second) / 3) <= 2e-8 * abs(result.virial).max()


@pytest.mark.parametrize("net", [0.0, 3.0])
def test_trace_and_antisymmetric_part_follow_from_energy_and_fields(net):
    x, q, mu = system(40, net)
    result = PME(TRICLINIC, accuracy=1e-12)(x, q, dipoles=mu)
    # Lengths that grow change q q / r, q mu / r**2 and mu mu / r**3 by their powers.
    trace = -result.energy + (mu * result.fields).sum()
    assert abs(np.trace(result.virial) - trace) <= 1e-9 * abs(result.virial).max()
    # Nothing changes if dipoles turn with the box.
    turns = result.fields.T @ mu
    np.testing.assert_allclose(
        result.virial - result.virial.T, turns - turns.T, rtol=0, atol=1e-9 * abs(result.virial).max()
    )
    assert abs(turns - turns.T).max() > 0.1


def test_without_dipoles_it_is_that_of_charges():
    x, q, mu = system(net=1.0)
    pme = PME(TRICLINIC, **COARSE, **PAIRS)
    plain, result = pme(x, q), pme(x, q, dipoles=0 * mu)
    np.testing.assert_allclose(result.virial, plain.virial, rtol=0, atol=1e-12 * abs(plain.virial).max())
    assert pme(x, q, dipoles=mu, virial=False).virial is None


def test_dipoles_are_pairs_of_charges_whose_ends_do_not_move_apart():
    x, q, mu = system(6)
    pme, half = PME(TRICLINIC, accuracy=1e-10), 1e-3
    size = np.linalg.norm(mu, axis=1, keepdims=True)
    ends, arm = size[:, 0] / (2 * half), half * mu / size
    points, charges = np.concatenate([x, x + arm, x - arm]), np.concatenate([q, ends, -ends])
    forces = pme(points, charges).forces.reshape(3, 6, 3)
    # A strain moves both ends as it moves their middle: their forces have no moments about it.
    by_pairs = pme(points, charges).virial + np.einsum("ia,ib->ab", forces[1] - forces[2], arm)
    result = pme(x, q, dipoles=mu)
    np.testing.assert_allclose(result.virial, by_pairs, rtol=0, atol=1e-3 * abs(result.virial).max())


def test_single_precision():
    x, q, mu = system(30, 1.0)
    exact = PME(TRICLINIC, **COARSE, **PAIRS)(x, q, dipoles=mu)
    single = PME(TRICLINIC, **COARSE, **PAIRS)(*(a.astype(np.float32) for a in (x, q)), dipoles=mu.astype(np.float32))
    for name in ("virial", "forces", "fields", "torques"):
        one, other = getattr(single, name), getattr(exact, name)
        assert one.dtype == np.float32
        np.testing.assert_allclose(one, other, rtol=0, atol=2e-5 * abs(other).max())


def test_an_excluded_pair_in_one_place_has_the_virial_of_small_gaps():
    x, q, mu = system()
    x[1] = x[0]
    pme, gap = PME(TRICLINIC, **COARSE, **PAIRS), 1e-3 * np.eye(20)[1][:, None] * np.ones(3)
    before, result, after = (pme(x + sign * gap, q, dipoles=mu).virial for sign in (-1, 0, 1))
    np.testing.assert_allclose(result, (before + after) / 2, rtol=0, atol=1e-4 * abs(result).max())
