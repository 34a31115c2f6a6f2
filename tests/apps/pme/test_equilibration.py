# SPDX-License-Identifier: BSD-3-Clause
"""Equilibrated charges against dense equations of direct Ewald sums, and laws."""

import numpy as np
import pytest

from particlemesh.apps.pme import PME, ChargeEquilibration
from polarizable import BOX, COARSE, FINE, equilibrated, system

RNG = np.random.default_rng(5)
CHI, ETA, WIDTHS = RNG.normal(size=6), RNG.uniform(10, 20, 6), RNG.uniform(0.1, 0.3, 6)
X = system()[0]
BLURRED = pytest.mark.parametrize("widths", [None, WIDTHS], ids=["points", "Gaussians"])


def model(tolerance=1e-12, box=BOX, parameters=FINE, constant=2.0):
    return ChargeEquilibration(PME(box, **parameters, coulomb_constant=constant), tolerance)


@BLURRED
def test_charges_and_their_derivatives_are_those_of_dense_equations(widths):
    result = model()(X, CHI, ETA, widths=widths, total=0.7)
    energy, charges = equilibrated(X, CHI, ETA, 0.7, widths=widths)
    np.testing.assert_allclose(result.charges, charges, atol=1e-11)
    np.testing.assert_allclose(result.charges.sum(), 0.7, atol=1e-14)
    np.testing.assert_allclose([result.energy, result.energies.sum()], energy, rtol=1e-10)
    h = 1e-4
    for particle, axis in ((0, 0), (3, 1), (5, 2)):
        step = np.zeros((6, 3))
        step[particle, axis] = h
        above, below = (equilibrated(X + s, CHI, ETA, 0.7, widths=widths)[0] for s in (step, -step))
        np.testing.assert_allclose(result.forces[particle, axis], (below - above) / (2 * h), atol=1e-8)
    strain, ends = h * RNG.normal(size=(3, 3)), []
    for sign in (1, -1):
        turn = np.eye(3) + sign * strain
        ends.append(equilibrated(X @ turn.T, CHI, ETA, 0.7, widths=widths, box=BOX @ turn.T)[0])
    np.testing.assert_allclose((result.virial * strain).sum(), (ends[0] - ends[1]) / 2, rtol=1e-5, atol=1e-11)


@BLURRED
def test_sets_of_electronegativities_are_solved_as_each_alone(widths):
    chi = np.stack([CHI, -2 * CHI[::-1], 0 * CHI + 0.3, *np.sin(np.arange(24.0)).reshape(4, 6)])
    totals = np.array([0.7, -0.2, 1.0, 0, 0, 0, 0])
    for tolerance in (1e-12, 1e-2):  # each set stops by itself
        together, counts = model(tolerance)(X, chi, ETA, widths=widths, total=totals), set()
        for k in range(7):
            alone = model(tolerance)(X, chi[k], ETA, widths=widths, total=totals[k])
            counts.add(alone.iterations)
            for name in ("energy", "energies", "forces", "virial", "charges"):
                np.testing.assert_allclose(getattr(together, name)[k], getattr(alone, name), atol=1e-10, err_msg=name)
        np.testing.assert_allclose(together.charges.sum(1), totals, atol=1e-13)
        assert together.iterations == max(counts)
        assert tolerance < 1e-2 or min(counts) < max(counts)


def test_equal_atoms_share_the_total():
    crystal = np.array([[0, 0, 0], [0, 1, 1], [1, 0, 1], [1, 1, 0]]) / 2
    fine = dict(cutoff=0.9, splitting=6.0, shape=32, window="bspline12")
    result = model(box=(1.0,) * 3, parameters=fine)(crystal, np.full(4, 0.3), 9.0, total=2.0)
    np.testing.assert_allclose(result.charges, 0.5, atol=1e-12)
    neutral = model(box=(1.0,) * 3, parameters=fine)(crystal, np.full(4, 0.3), 9.0)
    np.testing.assert_allclose(neutral.charges, 0, atol=1e-12)


def test_order_origin_and_lengths_change_nothing_else():
    first = model()(X, CHI, ETA, widths=WIDTHS, total=0.7)
    order = np.array([3, 0, 5, 1, 4, 2])
    other = model()((X - 0.4)[order], CHI[order], ETA[order], widths=WIDTHS[order], total=0.7)
    np.testing.assert_allclose(other.charges, first.charges[order], atol=1e-11)
    scale = 2.5
    wide = dict(FINE, cutoff=scale * FINE["cutoff"], splitting=FINE["splitting"] / scale)
    grown = model(box=scale * BOX, parameters=wide, constant=2.0 * scale)(
        scale * X, CHI, ETA, widths=scale * WIDTHS, total=0.7
    )
    np.testing.assert_allclose(grown.charges, first.charges, atol=1e-11)
    np.testing.assert_allclose(grown.forces, first.forces / scale, atol=1e-10)


def test_a_guess_saves_iterations_whatever_its_sum():
    equilibration = model(1e-8)
    first = equilibration(X, CHI, ETA, total=0.7)
    again = equilibration(X, CHI, ETA, total=0.7, guess=first.charges)
    assert again.iterations < first.iterations
    shifted = equilibration(X, CHI, ETA, total=0.7, guess=first.charges + 3.0)
    np.testing.assert_allclose(shifted.charges, first.charges, atol=1e-7)
    np.testing.assert_allclose(shifted.charges.sum(), 0.7, atol=1e-13)
    far = equilibration(
        X, CHI, ETA, total=0.7, guess=1e9 * np.sign(CHI)
    )  # of which rounding takes more than the charges
    np.testing.assert_allclose(far.charges, first.charges, atol=1e-7)
    np.testing.assert_allclose(far.charges.sum(), 0.7, atol=1e-13)
    with pytest.raises(RuntimeError, match="the residual no longer falls: it is .* give a larger tolerance.$"):
        model(1e-25)(X, CHI, ETA)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.backends("cpu", "opencl", "cuda")
@pytest.mark.turns(2)
def test_all_backends_and_types_agree(backend, dtype):
    chi, totals = np.stack([CHI, CHI[::-1]]), [0.7, -0.2]
    expected = model(1e-10, parameters=COARSE)(X, chi, ETA, widths=WIDTHS, total=totals)
    arrays = [backend.array(a.astype(dtype)) for a in (X, chi)]
    tolerance = 1e-10 if dtype == "float64" else 1e-6
    result = model(tolerance, parameters=COARSE)(*arrays, ETA, widths=WIDTHS, total=totals)
    for name in ("energy", "energies", "forces", "virial", "charges"):
        mine, theirs = np.asarray(backend.host(getattr(result, name))), np.asarray(getattr(expected, name))
        assert mine.dtype == dtype
        atol = (1e-9 if dtype == "float64" else 2e-5) * abs(theirs).max()
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=atol, err_msg=name)


def test_bad_arguments_are_explained():
    pme = PME(BOX, **COARSE)
    with pytest.raises(ValueError, match="pme excludes 1 pairs"):
        ChargeEquilibration(PME(BOX, **COARSE, exclusions=[[0, 1]]))
    equilibration = ChargeEquilibration(pme)
    for words, arguments, options in [
        (
            "hardness of particle 3 with its own Coulomb energy is -1",
            (X, CHI, np.where(np.arange(6) == 3, -1, ETA)),
            {},
        ),
        (r"hardness has shape \(2,\)", (X, CHI, ETA[:2]), {}),
        ("widths of particle 0 is -1", (X, CHI, ETA), dict(widths=-1.0)),
        (r"total has shape \(2,\)", (X, CHI, ETA), dict(total=[0.0, 1.0])),
        ("electronegativities of particle 5 is not finite", (X, np.where(np.arange(6) == 5, np.inf, CHI), ETA), {}),
        ("guess has 2 sets", (X, CHI, ETA), dict(guess=np.ones((2, 6)))),
        ("there are no particles", (X[:0], CHI[:0], ETA[:0]), {}),
        ("on top of each other", (X[[0, 0]], CHI[:2], ETA[:2]), {}),
        ("the energy has no minimum", (np.array([[1.0, 1, 1], [1.001, 1, 1]]), CHI[:2], ETA[:2]), {}),
    ]:
        with pytest.raises(ValueError, match=words):
            equilibration(*arguments, **options)
    with pytest.raises(RuntimeError, match="after 1 iterations"):
        ChargeEquilibration(pme, 1e-10, iterations=1)(X, CHI, ETA)
