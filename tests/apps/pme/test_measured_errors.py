# SPDX-License-Identifier: BSD-3-Clause
"""``error=True``: the error of forces that a call measures is that against direct sums."""

from dataclasses import replace

import numpy as np
import pytest
from test_open_boxes import FREE, plain
from test_open_boxes import cluster as in_free_space

import multipole_ewald
from particlemesh.apps.pme import PME, DistributedPME, PMEBatch
from particlemesh.apps.pme.split import SPLITS
from pme_cases import TRICLINIC, ewald_sum, random_charges
from ranks import on_threads

PAIRS = dict(exclusions=[(0, 1), (5, 7), (9, 3), (0, 2)], factors=[0.0, 0.5, 0.8333, 0.0])


def relative(forces, exact, charges, volume, constant=1.0):
    """Errors over a typical force, by its definition."""
    distance = (volume / len(exact)) ** (1 / 3)
    return np.sqrt(((forces - exact) ** 2).sum(-1).mean()) / (constant * (charges**2).mean() / distance**2)


@pytest.mark.backends("cpu", "opencl", "cuda")
@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_it_is_that_of_a_direct_sum(backend, split, dtype):
    x, q = (a.astype(dtype) for a in random_charges(60))
    exact = ewald_sum(TRICLINIC, x.astype(float), q.astype(float))[1]
    for options in (dict(accuracy=1e-2), dict(accuracy=1e-4), dict(cutoff=1.2, shape=10, window="bspline4")):
        pme = PME(TRICLINIC, **options, splitting=split if len(options) == 1 else 2.0, coulomb_constant=3.0)
        result = pme(backend.array(x), backend.array(q), error=True)
        expected = relative(backend.host(result.forces).astype(float), 3 * exact, q.astype(float), 26.25, 3.0)
        assert isinstance(result.error, float)
        assert result.error == pytest.approx(expected, rel=0.03)
        assert result.error == pytest.approx(pme.parameters.error, rel=0.7)
        assert "error: " in repr(result)


def test_small_errors_are_measured():
    x, q = random_charges(60)
    exact = ewald_sum(TRICLINIC, x, q)[1]
    for accuracy in (1e-6, 1e-8, 1e-10):
        result = PME(TRICLINIC, accuracy)(x, q, error=True)
        assert result.error == pytest.approx(relative(result.forces, exact, q, 26.25), rel=0.1)
        assert 0.2 * accuracy < result.error < 1.3 * accuracy
    assert PME(TRICLINIC, 1e-12)(x, q, error=True).error < 5e-12


def test_a_wrong_calculation_is_noticed(monkeypatch):
    """Nothing is shared with the reference: a wrong Green function of one split is not hidden."""
    x, q = random_charges(60)
    right = SPLITS["prolate"].green
    monkeypatch.setattr(
        SPLITS["prolate"],
        "green",
        lambda self, periodic: right(type(self)(self.bandwidth * 1.01, self.cutoff), periodic),
    )
    pme = PME(TRICLINIC, 1e-6)
    assert pme(x, q, error=True).error > 100 * pme.parameters.error


def test_each_set_has_an_error():
    x, q = random_charges(60)
    sets = np.stack([[q, np.sin(q)], [10 * q, 0 * q]])
    pme = PME(TRICLINIC, 1e-3)
    result = pme(x, sets, error=True)
    assert result.error.shape == (2, 2)
    assert result.error[1, 0] == pytest.approx(result.error[0, 0], rel=1e-6)
    assert result.error[1, 1] == 0  # no force has no error
    exact = ewald_sum(TRICLINIC, x, np.sin(q))[1]
    assert result.error[0, 1] == pytest.approx(relative(result.forces[0, 1], exact, np.sin(q), 26.25), rel=0.03)
    assert PME(TRICLINIC, 1e-3)(np.zeros((0, 3)), np.zeros(0), error=True).error == 0


@pytest.mark.parametrize("split", SPLITS)
def test_open_boxes_and_pairs(split):
    x, q = in_free_space()
    result = PME(FREE, 1e-3, splitting=split, **PAIRS)(x, q, error=True)
    exact = plain(x, q, PAIRS["exclusions"], PAIRS["factors"])[1]
    assert result.error == pytest.approx(relative(result.forces, exact, q, FREE.volume), rel=0.03)


@pytest.mark.parametrize("split", SPLITS)
def test_dipoles_quadrupoles_and_widths(split):
    x, q, mu, quad, widths = multipole_ewald.system(TRICLINIC)
    pme = PME(TRICLINIC, 1e-3, splitting=split)
    result = pme(x, q, dipoles=mu, quadrupoles=quad, widths=widths, error=True)
    forces = np.zeros_like(x)
    for index in np.ndindex(x.shape):
        step = np.zeros_like(x)
        step[index] = 1e-4
        ends = [multipole_ewald.energy(TRICLINIC, x + s * step, q, mu, quad, widths) for s in (1, -1)]
        forces[index] = (ends[1] - ends[0]) / 2e-4
    distance = (26.25 / len(x)) ** (1 / 3)
    flat = quad - np.trace(quad, axis1=1, axis2=2)[:, None, None] * np.eye(3) / 3
    squares = (q**2).mean(), (mu**2).sum(1).mean() / 3, (flat**2).sum((1, 2)).mean() / 30
    typical = sum(square / distance ** (2 * n + 2) for n, square in enumerate(squares))
    expected = np.sqrt(((result.forces - forces) ** 2).sum(1).mean()) / typical
    assert result.error == pytest.approx(expected, rel=0.03)
    dipoles = pme(x, q, dipoles=mu, error=True)
    assert 0.1 < dipoles.error / result.error < 10


def test_the_reference_is_kept_for_the_same_number():
    x, q = random_charges(60)
    pme = PME(TRICLINIC, 1e-3)
    assert pme(x, q).error is None
    before = pme.nbytes
    pme(x, q, error=True)
    reference = pme._reference[1]
    assert pme.nbytes >= before + reference.nbytes
    assert type(reference.parameters.split) is not type(pme.parameters.split)
    assert reference.parameters.cutoff != pme.parameters.cutoff
    pme(x[::-1].copy(), -q, error=True)
    assert pme._reference[1] is reference
    pme(x[:50], q[:50], error=True)
    assert pme._reference[1] is not reference


@pytest.mark.parametrize("options", [dict(skin=0.2), dict(gradient="ik"), dict(deterministic=True)], ids=str)
def test_options_change_no_error(options):
    x, q = random_charges(60)
    plainly, result = PME(TRICLINIC, 1e-3)(x, q, error=True), PME(TRICLINIC, 1e-3, **options)(x, q, error=True)
    rel = 0.5 if "gradient" in options else 1e-6
    assert result.error == pytest.approx(plainly.error, rel=rel)


def test_with_out_and_without_a_look():
    x, q = random_charges(60)
    pme = PME(TRICLINIC, 1e-3)
    first = pme(x, q, error=True)
    again = pme(x, q, check=False, out=replace(first, energy=np.zeros(())), error=True)
    assert again.error == first.error
    with pytest.raises(TypeError, match="error"):
        pme(x, q, error="yes")
    with pytest.raises(TypeError, match="error"):
        PMEBatch(TRICLINIC, 2)(x, q, np.arange(60) % 2, error=True)


@pytest.mark.parametrize("ends", [[60], [20, 60], [0, 45, 60]])
@pytest.mark.parametrize("moments", [False, True])
def test_over_ranks_it_is_that_of_one_device(ends, moments):
    x, q = random_charges(60)
    more = {"dipoles": np.random.default_rng(2).normal(size=(60, 3)) * 0.1} if moments else {}
    expected = PME(TRICLINIC, 1e-3, **PAIRS)(x, q, **more, error=True).error

    def work(world):
        mine = slice(([0, *ends])[world.rank], ends[world.rank])
        pme = DistributedPME(world, TRICLINIC, 1e-3, threads=1, **PAIRS)
        return pme(x[mine], q[mine], **{name: a[mine] for name, a in more.items()}, error=True).error

    assert on_threads(len(ends), work) == pytest.approx([expected] * len(ends), rel=1e-6)


@pytest.mark.parametrize("unit", [1e-100, 1e100])
def test_sizes_of_charges_change_nothing(unit):
    x, q = random_charges(60)
    expected = PME(TRICLINIC, 1e-4)(x, q, error=True).error
    assert PME(TRICLINIC, 1e-4)(x, unit * q, error=True).error == pytest.approx(expected, rel=1e-3)
