# SPDX-License-Identifier: BSD-3-Clause
"""Laws of energy, forces and virial; exclusions; sets of charges; lists with a skin."""

import pickle

import numpy as np
import pytest

from particlemesh.apps.pme import PME, Result
from pme_cases import TRICLINIC, random_charges

COARSE = dict(cutoff=1.4, splitting=2.0, shape=(12, 15, 16), window="bspline5")  # laws hold for any accuracy
PROLATE = dict(cutoff=1.4, bandwidth=7.0, shape=(12, 15, 16), window="bspline5")
SPLITS = pytest.mark.parametrize("coarse", [COARSE, PROLATE], ids=["gaussian", "prolate"])
PAIRS, FACTORS = [(0, 1), (5, 7), (9, 3), (0, 2)], [0.0, 0.5, 0.8333, 0.0]


def parts(result):
    return {name: getattr(result, name) for name in ("energy", "energies", "forces", "virial")}


def same(one, other, tolerance=1e-12):
    for name, value in parts(one).items():
        expected = parts(other)[name]
        assert np.shape(value) == np.shape(expected)
        np.testing.assert_allclose(
            value, expected, rtol=0, atol=tolerance * max(1, np.abs(expected).max()), err_msg=name
        )


@pytest.mark.parametrize("neutral", [True, False])
@pytest.mark.parametrize("options", [{}, {"skin": 0.2}], ids=["stream", "list"])
@SPLITS
def test_forces_and_virial_are_derivatives_of_the_energy(neutral, options, coarse):
    x, q = random_charges(24, neutral=neutral)
    fractions = x @ np.linalg.inv(TRICLINIC)
    options = dict(coarse, exclusions=PAIRS, factors=FACTORS, **options)
    result = PME(TRICLINIC, **options)(x, q)

    def strained(strain):
        matrix = TRICLINIC @ (np.eye(3) + strain).T
        return PME(matrix, **options)(fractions @ matrix, q, virial=False).energy

    step, pme = 1e-4, PME(TRICLINIC, **options)
    for a, b in ((0, 0), (1, 1), (2, 2), (1, 2), (2, 0), (0, 1)):
        strain = np.zeros((3, 3))
        strain[a, b] += step / 2
        strain[b, a] += step / 2
        first, second = ((strained(n * strain) - strained(-n * strain)) / (2 * n * step) for n in (1, 2))
        assert abs(result.virial[a, b] - (4 * first - second) / 3) <= 1e-8 * abs(result.virial).max()
    direction = np.random.default_rng(3).standard_normal(x.shape)
    first, second = (
        (pme(x + n * step * direction, q).energy - pme(x - n * step * direction, q).energy) / (2 * n * step)
        for n in (1, 2)
    )
    slope = -(result.forces * direction).sum()
    assert abs(slope - (4 * first - second) / 3) <= 1e-7 * abs(slope)


@pytest.mark.parametrize("neutral", [True, False])
def test_the_trace_of_the_virial_is_minus_the_energy(neutral):
    x, q = random_charges(40, neutral=neutral)
    result = PME(TRICLINIC, accuracy=1e-11)(x, q)
    assert abs(np.trace(result.virial) + result.energy) <= 1e-10 * abs(result.energy)
    np.testing.assert_allclose(result.virial, result.virial.T, rtol=0, atol=1e-13)


@pytest.mark.parametrize("options", [{}, {"skin": 0.2}, {"gradient": "ik"}], ids=["stream", "list", "ik"])
@SPLITS
def test_order_place_and_units_do_not_matter(options, coarse):
    x, q = random_charges(32)
    pme, rng = PME(TRICLINIC, **coarse, **options), np.random.default_rng(5)
    result, order = pme(x, q), np.random.default_rng(4).permutation(32)
    mixed = pme(x[order], q[order])
    same(mixed, Result(result.energy, result.energies[order], result.forces[order], result.virial))
    same(pme(x + rng.integers(-3, 4, x.shape) @ TRICLINIC, q), result, 1e-11)
    same(pme(x + TRICLINIC[1] / 15 - TRICLINIC[2] / 8, q), result, 1e-11)  # by nodes of the mesh
    scaled = PME(TRICLINIC, **coarse, **options, coulomb_constant=138.9)(x, q)
    same(scaled, Result(*(138.9 * v for v in parts(result).values())))
    if options.get("gradient") == "ik":
        assert abs(result.forces.sum(0)).max() <= 1e-13 * abs(result.forces).sum()


@SPLITS
def test_excluded_pairs_are_subtracted(coarse):
    x, q = random_charges(20)
    x[1] = x[0] + TRICLINIC[2] + (0.05, 0, 0)  # near each other through a face of the box
    whole = PME(TRICLINIC, **coarse)(x, q)
    part = PME(TRICLINIC, **coarse, exclusions=PAIRS, factors=FACTORS)(x, q)
    energy, forces, energies, virial = whole.energy, whole.forces.copy(), whole.energies.copy(), whole.virial.copy()
    images = np.array([(a, b, c) for a in (-2, -1, 0, 1, 2) for b in (-2, -1, 0, 1, 2) for c in (-2, -1, 0, 1, 2)])
    for (i, j), factor in zip(PAIRS, FACTORS, strict=True):
        d = x[j] - x[i] + images @ TRICLINIC
        d = d[np.argmin((d**2).sum(1))]
        r = np.linalg.norm(d)
        pair = (factor - 1) * q[i] * q[j] / r
        energy += pair
        energies[[i, j]] += pair / 2
        forces[i] -= pair / r**2 * d
        forces[j] += pair / r**2 * d
        virial -= pair / r**2 * np.outer(d, d)
    same(part, Result(energy, energies, forces, virial))
    # A particle on top of its partner, such as a shell on its core, is served if the pair is excluded.
    x[1] = x[0]
    on_top = PME(TRICLINIC, **coarse, exclusions=[(0, 1)])(x, q)
    nearly = PME(TRICLINIC, **coarse, exclusions=[(0, 1)])(x + np.eye(20, 3) * 1e-5, q)
    same(on_top, nearly, 1e-3)


def test_sets_of_charges_are_served_together():
    x, q = random_charges(16)
    sets = np.random.default_rng(2).standard_normal((3, 4, 16))
    sets[1, 2] = q
    for options in ({}, {"skin": 0.3}):
        pme = PME(TRICLINIC, **COARSE, exclusions=PAIRS, **options)
        together = pme(x, sets)
        assert together.energy.shape == (3, 4)
        assert together.forces.shape == (3, 4, 16, 3)
        same(Result(*(v[1, 2] for v in parts(together).values())), pme(x, q))
        assert pme(x, np.zeros((0, 16))).virial.shape == (0, 3, 3)


def test_lists_give_the_sums_of_streams_while_particles_move():
    x, q = random_charges(40)
    rng, stream, skin = np.random.default_rng(6), PME(TRICLINIC, **COARSE), PME(TRICLINIC, **COARSE, skin=0.2)
    velocity = rng.standard_normal(x.shape)
    velocity *= 0.0199 / np.linalg.norm(velocity, axis=1).max()  # five steps within half of the skin
    for step in range(11):
        moved = x + step * velocity
        moved = (moved @ np.linalg.inv(TRICLINIC) % 1) @ TRICLINIC if step % 2 else moved  # folding is no move
        same(skin(moved, q), stream(moved, q), 1e-11)
    assert skin._core.list.builds == 2 + (10 * 0.0199 > 0.2)
    assert "made 2 times, skin 0.2" in skin.explain()


@pytest.mark.parametrize("count", [0, 1, 2])
def test_few_particles(count):
    x, q = random_charges(count, neutral=False)
    for options in ({}, {"skin": 0.1}):
        result = PME(TRICLINIC, **COARSE, **options)(x, q)
        assert result.forces.shape == (count, 3)
        assert np.isfinite(result.energy)
        assert abs(result.forces.sum()) <= 1e-2 * count


def test_results_are_written_to_out_and_copies_choose_again():
    x, q = random_charges(12)
    pme = PME(TRICLINIC, accuracy=1e-6, exclusions=[(0, 1)], factors=0.5)
    expected = pme(x, q)
    out = Result(np.zeros(()), np.zeros(24)[::2], np.zeros((3, 12)).T, np.zeros((3, 3)))
    given = parts(out)
    assert pme(x, q, out=out).forces is given["forces"]
    same(out, expected)
    copy = pickle.loads(pickle.dumps(pme))
    assert "chosen at the first call" in repr(copy)
    same(copy(x, q), expected)
    assert copy.parameters == pme.parameters
    assert pme(x, q, virial=False).virial is None


@pytest.mark.parametrize(("coarse", "one"), [
    (COARSE, True), ({**COARSE, "splitting": 4.5}, False), (PROLATE, True),
], ids=["one polynomial", "intervals", "prolate"])  # fmt: skip
def test_lists_in_single_precision_have_its_accuracy(coarse, one):
    x, q = random_charges(60)
    charges, options = np.stack([q, np.sin(np.arange(60.0))]), coarse
    expected = PME(TRICLINIC, **options)(x, charges)
    listed = PME(TRICLINIC, **options, skin=0.2)
    for _ in range(2):  # the second call keeps the list
        result = listed(x.astype(np.float32), charges.astype(np.float32))
        for name in ("energy", "energies", "forces", "virial"):
            exact = getattr(expected, name)
            np.testing.assert_allclose(getattr(result, name), exact, rtol=0, atol=4e-6 * abs(exact).max())
    assert listed._core.list.builds == 1
    assert (len(listed._core._smooth.coefficients) == 1) == one
