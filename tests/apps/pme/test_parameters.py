# SPDX-License-Identifier: BSD-3-Clause
"""Errors are as predicted, accuracies are reached, and it is said where they are not."""

import functools
import itertools
import re
import time
import warnings

import numpy as np
import pytest

import particlemesh as pm
from particlemesh import distributed as pmd
from particlemesh.apps.pme import PME, Dispersion, DistributedPME, PMEBatch
from particlemesh.apps.pme.parameters import CPU, choose, spacing_for
from particlemesh.apps.pme.split import Gaussian, Prolate, SixthPower
from particlemesh.window.window import WINDOWS

BOX = np.diag([1.0, 1.2, 0.9])


@pytest.fixture(scope="module")
def charges():
    rng = np.random.default_rng(1)
    x, q = rng.random((1000, 3)) @ BOX, rng.choice([-1.0, 1.0], 1000)
    return x, q - q.mean()


def forces(charges, **options):
    return PME(BOX, **options)(*charges, virial=False).forces


def relative(result, expected, q):
    typical = (q**2).mean() / (np.linalg.det(BOX) / len(q)) ** (2 / 3)
    return np.sqrt(((result - expected) ** 2).sum(1).mean()) / typical


@pytest.mark.parametrize("sizes", ["one", "normal", "one large"])
# Where the smooth part is narrow, most of the error is forces on themselves. Errors of pairs cancel.
@pytest.mark.parametrize("common", [
    *({"cutoff": 0.15, "splitting": s} for s in (6.0, 9.0, 14.0)),
    *({"cutoff": 0.3, "bandwidth": c} for c in (9.0, 15.0)),
], ids=str)  # fmt: skip
def test_errors_of_the_mesh_are_as_predicted(charges, common, sizes):
    if sizes == "normal":
        charges = charges[0], np.random.default_rng(2).normal(size=1000)
    if sizes == "one large":  # its force on itself depends on where it lies between nodes
        charges = charges[0], np.where(np.arange(1000) == 7, 30.0, charges[1])
    exact = forces(charges, **common, shape=(120, 144, 108), window="bspline12")
    for order, nodes in ((4, 32), (5, 24), (6, 40), (8, 32), (10, 24)):
        pme = PME(BOX, **common, shape=nodes, window=f"bspline{order}")
        error = relative(pme(*charges, virial=False).forces, exact, charges[1])
        least = 0.0 if sizes == "one large" else 0.8
        assert least <= error / pme.parameters.mesh_error <= 1.3, (order, nodes)


@pytest.mark.parametrize("given", [
    dict(splitting=10.0, cutoff=0.2), dict(splitting=10.0, cutoff=0.3), dict(bandwidth=5.0, cutoff=0.2),
    dict(bandwidth=9.0, cutoff=0.3), dict(bandwidth=16.0, cutoff=0.3),
], ids=str)  # fmt: skip
def test_errors_of_pairs_are_as_predicted(charges, given):
    pme, exact = PME(BOX, shape=(80, 96, 72), window="bspline12", **given), forces(charges, accuracy=1e-11)
    error = relative(pme(*charges, virial=False).forces, exact, charges[1])
    assert 0.8 <= error / pme.parameters.real_error <= 1.25


@pytest.mark.parametrize("large", [1.0, 30.0, 1000.0])
@pytest.mark.parametrize("accuracy", [1e-3, 1e-5])
def test_one_large_charge_among_small_ones_has_the_accuracy(charges, large, accuracy):
    """Its force on itself grows with the square of the charge, and the mean square of all hardly does."""
    x, signs = charges[0], np.sign(charges[1])
    q, few = np.where(np.arange(1000) == 7, large, signs), np.repeat([0, 1], 1000)
    exact = forces((x, q), accuracy=1e-10)
    batch = PMEBatch(BOX, 2, accuracy)
    for reached in (
        forces((x, q), accuracy=accuracy),
        batch(np.concatenate([x, x]), np.concatenate([q, signs]), few).forces[:1000],
    ):
        assert relative(reached, exact, q) <= 1.3 * accuracy


@pytest.mark.parametrize("large", [1.0, 30.0])
def test_one_large_coefficient_among_small_ones_has_the_accuracy(large):
    x, c = np.stack(np.mgrid[:8, :8, :8], -1).reshape(-1, 3) / 8.0, np.where(np.arange(512) == 7, large, 1.0)
    sigma, epsilon = np.full(512, 0.1), c**2 / 4 / 0.1**6
    exact = Dispersion((1.0,) * 3, 1e-10)(x, c).forces
    typical = 6 * (c**2).mean() * 8.0**7
    for given in (dict(coefficients=c), dict(sigma=sigma, epsilon=epsilon)):
        fourth = Dispersion((1.0,) * 3, 1e-4)
        reached = fourth(x, **given).forces
        assert fourth.parameters.fourth == pytest.approx(512 * (c**4).sum() / (c**2).sum() ** 2)
        if "coefficients" in given:
            assert np.sqrt(((reached - exact) ** 2).sum(1).mean()) <= 1.3e-4 * typical


def test_the_accuracy_alone_is_enough(charges):
    exact = forces(charges, accuracy=1e-11)
    for accuracy in (1e-3, 1e-5, 1e-8):
        assert relative(forces(charges, accuracy=accuracy), exact, charges[1]) <= 1.5 * accuracy
    x, q = charges
    for accuracy in (1e-3, 1e-5):
        single = PME(BOX, accuracy)(x.astype("f4"), q.astype("f4"))
        error = np.sqrt(((single.forces - exact) ** 2).mean() / (exact**2).mean())  # near pairs round more than others
        assert error <= 1.5 * accuracy


@pytest.mark.parametrize("given", [
    {"cutoff": 0.5}, {"splitting": 12.0}, {"shape": (32, 40, 30)}, {"window": "bspline5"}, {"cutoff": 0.3, "shape": 64},
], ids=str)  # fmt: skip
def test_what_is_given_is_kept_and_the_rest_is_chosen(charges, given):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pme = PME(BOX, 1e-4, **given)
        result = pme(*charges, virial=False).forces
    assert relative(result, forces(charges, accuracy=1e-9), charges[1]) <= 1.5e-4
    p = pme.parameters
    assert all(getattr(p, name) == value for name, value in given.items() if name in ("cutoff", "splitting"))
    assert given.get("window", p.window.name) == p.window.name
    assert f"given: {', '.join(n for n in ('cutoff', 'splitting', 'shape', 'window') if n in given)};" in pme.explain()


@pytest.mark.filterwarnings("ignore:gradient='window' conserves energy")  # by the coarse mesh
def test_an_accuracy_out_of_reach_is_named(charges):
    x, q = charges
    with pytest.warns(UserWarning, match=r"accuracy 1e-06 was asked for, and these parameters reach [1-9]\.\de-0[1-5]"):
        PME(BOX, 1e-6, cutoff=0.2, shape=16)(x, q)
    with pytest.warns(UserWarning, match="float32 reaches 1.*use float64"):
        PME(BOX, 1e-9)(x.astype("f4"), q.astype("f4"))


@pytest.mark.parametrize("split", [Gaussian(5.0), Prolate(18.0, 0.7)], ids=str)
def test_the_spacing_is_the_inverse_of_the_error(split):
    from particlemesh.apps.pme.parameters import mesh_error

    for order in (4, 7, 12):
        window = pm.bspline(order)
        for error in (1e-2, 1e-6, 1e-13):
            h = spacing_for(window, split, error, 0.1)
            assert mesh_error(window, split, [h] * 3, 0.1) == pytest.approx(error, rel=1e-6)


def test_less_error_costs_more():
    box = pm.Box((6.0, 6.0, 6.0))
    seconds = [choose(box, 20_000, 10.0**-n, CPU)[0].seconds for n in range(2, 13)]
    assert seconds == sorted(seconds)


@functools.cache
def free_parameters(box, count, accuracy, split):
    return choose(box, count, accuracy, CPU, split=split)[0]


@pytest.mark.turns(6)
@pytest.mark.parametrize("name", sorted(WINDOWS))
@pytest.mark.parametrize("split", [Prolate, Gaussian, SixthPower])
def test_a_mesh_a_hundred_times_dearer_than_free_parameters_is_refused_or_named(name, split):
    """For each window, accuracy and cutoff; within a second."""
    box, count = pm.Box((3.0, 3.5, 4.0)), 20
    for accuracy, cutoff in itertools.product((1e-3, 1e-6, 1e-11), (None, 0.5)):
        free, start = free_parameters(box, count, accuracy, split), time.process_time()
        refused = ""
        try:
            p, words = choose(box, count, accuracy, CPU, split=split, cutoff=cutoff, window=pm.window_of(name))
        except ValueError as error:
            refused = str(error)
        if refused:
            assert re.search(r"with the given .*window needs .*Leave out", refused)
        else:
            pairs = 0 if cutoff is None else CPU.seconds(count, 4 / 3 * np.pi * cutoff**3 * count / box.volume, 0, 1)
            dear = p.seconds - pairs
            assert words or dear <= 101 * free.seconds
            assert dear <= 101 * (free.seconds + CPU.call)
        assert time.process_time() - start < 1


@pytest.mark.parametrize(("names", "given"), [
    ("window", dict(window="peskin4")), ("window", dict(window="m4prime")),
    ("cutoff and window", dict(window="bspline4", cutoff=0.4)), ("splitting", dict(splitting=300.0)),
    ("splitting and shape", dict(splitting=1e-9, shape=16)),
], ids=str)  # fmt: skip
def test_what_would_take_gigabytes_is_refused_with_advice(names, given):
    rng = np.random.default_rng(3)
    pme = PME((3.0, 3.0, 3.0), 3.7e-8, **given)
    with pytest.raises(ValueError, match=rf"with the given {names} needs .*Leave out {names}, or give a larger"):
        pme(3 * rng.random((20, 3)), rng.normal(size=(8, 20)))
    assert pme.nbytes == 0


def test_a_mesh_that_is_only_slow_is_named():
    rng = np.random.default_rng(3)
    with pytest.warns(UserWarning, match=r"with the given window needs .* nodes and bspline2.*free parameters take"):
        PME((3.0, 3.0, 3.0), 5e-3, window="cic")(3 * rng.random((20, 3)), rng.normal(size=20))


@pytest.mark.parametrize("reserved", [False, True])
def test_parameters_of_many_particles_are_no_secret_with_few(reserved):
    """Errors are relative to a typical force, and few particles in the same box have a smaller one."""
    rng = np.random.default_rng(1)
    pme = PME((1.0,) * 3, accuracy=1e-3, dtype="float64", backend="cpu")
    if reserved:
        pme.reserve(2000)
    for count in (2000, 1800):
        pme(rng.random((count, 3)), (-1.0) ** np.arange(count))
    x, q = rng.random((20, 3)), (-1.0) ** np.arange(20)
    with pytest.warns(UserWarning, match="chosen for more particles: with 20 the error is about") as warned:
        forces = pme(x, q).forces
    expected = float(re.search("about (.*) of a typical", str(warned[0].message))[1])
    exact = PME((1.0,) * 3, accuracy=1e-9)(x, q).forces
    reached = np.sqrt(((forces - exact) ** 2).sum(1).mean()) / 20 ** (2 / 3)
    assert 0.3 < reached / expected < 1.5


def test_bandwidths_whose_error_is_unknown_are_refused():
    with pytest.raises(ValueError, match="give 2 to 40"):
        PME((1.0,) * 3, bandwidth=1.5)


@pytest.mark.parametrize("systems", [None, 2])
def test_forces_that_a_type_does_not_hold_are_refused(systems):
    x, q = np.random.default_rng(1).random((20, 3)) * 1e6, 1.602e-19 * (-1.0) ** np.arange(20)
    more = () if systems is None else (np.arange(20) // 10,)

    def made(dtype):
        if systems is None:
            return PME((1e6,) * 3, accuracy=1e-4, dtype=dtype)
        return PMEBatch((1e6,) * 3, systems, accuracy=1e-4, dtype=dtype)

    with pytest.raises(ValueError, match="float32 does not hold such small forces. Use other units, or float64"):
        made("float32")(x.astype("f4"), q.astype("f4"), *more)
    forces = made("float64")(x, q, *more).forces
    expected = made("float64")(x, q / 1.602e-19, *more).forces * 1.602e-19**2
    np.testing.assert_allclose(forces, expected, rtol=1e-9, atol=0)


@pytest.mark.parametrize("split", [dict(splitting="gaussian"), dict(bandwidth=12.0)], ids=["gaussian", "prolate"])
@pytest.mark.parametrize("sizes", [(1, 0.05, 0), (1, 0.3, 0), (0, 1, 0), (1, 0, 0.1), (0, 0, 1), (1, 0.2, 0.2)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_errors_of_moments_are_as_explained(sizes, split, dtype):
    """Relative to the force of two particles with mean moments at the mean distance."""
    rng, count, box = np.random.default_rng(5), 150, 3 * BOX
    # No particles near each other, whose large forces would be rounded more.
    lattice = np.array(list(itertools.product(range(5), range(6), range(5))))
    x = (lattice + rng.uniform(-0.25, 0.25, (count, 3))) / [5, 6, 5] @ box
    q = sizes[0] * rng.normal(size=count)
    mu, quad = sizes[1] * rng.normal(size=(count, 3)), sizes[2] * rng.normal(size=(count, 3, 3))
    quad = quad + quad.swapaxes(1, 2)
    given = {"dipoles": mu} if sizes[1] else {}
    given |= {"quadrupoles": quad} if sizes[2] else {}
    pme, batch = PME(box, 1e-3, **split), PMEBatch(box, 2, 1e-3, **split)
    result = pme(*(a.astype(dtype) for a in (x, q)), **{name: a.astype(dtype) for name, a in given.items()})
    p = pme.parameters
    alpha = p.splitting if "splitting" in split else 3.5
    fine = dict(cutoff=5.7 / alpha, splitting=alpha, shape=[3 * n for n in p.shape], window="bspline12")
    exact = PME(box, **fine)(x, q, **given).forces
    distance = (np.linalg.det(box) / count) ** (1 / 3)
    flat = quad - np.trace(quad, axis1=1, axis2=2)[:, None, None] * np.eye(3) / 3
    squares = (q**2).mean(), (mu**2).sum(1).mean() / 3, (flat**2).sum((1, 2)).mean() / 30
    typical = sum(square / distance ** (2 * n + 2) for n, square in enumerate(squares))
    error = np.sqrt(((result.forces - exact) ** 2).sum(1).mean()) / typical

    def said(made):
        return float(re.search(r"with the moments of the last call: (\S+) of their", made.explain())[1])

    least, most = (0.5, 2) if "splitting" in split else (0.2, 4)
    assert least < error / said(pme) < most
    many = [np.concatenate([a, a]).astype(dtype) for a in (x, q, *given.values())]
    batch(*many[:2], np.repeat([0, 1], count), **dict(zip(given, many[2:], strict=True)))
    assert said(batch) == pytest.approx(said(pme), rel=0.1)
    assert "2 systems; lattice vectors of boxes up to " in batch.explain()
    pme(x.astype(dtype), q.astype(dtype) + 1)
    assert "moments" not in pme.explain()


def explained():
    """Explanations with all that they can say."""
    rng = np.random.default_rng(3)
    heaps = np.repeat(rng.random((4, 3)), 15, 0) + rng.normal(scale=0.02, size=(60, 3))
    x, q, mu = heaps @ BOX, np.tile([1.0, -1.0], 30), rng.normal(size=(60, 3))
    given = dict(cutoff=0.4, bandwidth=12.0, shape=(30, 31, 32), window="bspline6")
    pairs = dict(exclusions=[(0, 1), (2, 3)], factors=0.5)
    made = [PME(BOX, 1e-3, **given, **pairs, skin=0.2), PME(BOX, 1e-3, deterministic=True, gradient="ik")]
    made += [PME(BOX, 1e-3, **pairs), DistributedPME(pmd.World(), BOX, 1e-3, **pairs)]
    for pme in made[:2]:
        pme(x, q)
    for pme in made[2:]:
        pme(x, q, dipoles=mu)
    batch = PMEBatch(BOX, 2, 1e-3, **given)
    batch(x, q, np.arange(60) // 30, dipoles=mu, boxes=np.stack([BOX, BOX[[1, 2, 0]]]))
    return [*(pme.explain() for pme in made), batch.explain()]


def test_explanations_have_ten_lines():
    for text in (texts := explained()):
        lines = text.splitlines()
        assert 7 <= len(lines) <= 10
        assert max(map(len, lines)) <= 120
        assert "crowded" in text
    assert sum("moments" in text for text in texts) == 2  # a rank knows moments of its own
    assert "a list, made 1 times" in texts[0]
    assert "2 systems" in texts[-1]
