# SPDX-License-Identifier: BSD-3-Clause
"""Bad arguments and particles are refused with what was given, is allowed and helps; state stays as before."""

import copy
import pickle

import numpy as np
import pytest

import particlemesh as pm
from particlemesh.apps.pme import PME, ChargeEquilibration, Dispersion, InducedDipoles, PMEBatch
from pme_cases import TRICLINIC, random_charges

COARSE = dict(cutoff=1.4, splitting=2.0, shape=(12, 15, 16), window="bspline5")


@pytest.mark.parametrize(("options", "message"), [
    ({"accuracy": 0.0}, "accuracy"), ({"accuracy": 2.0}, "error of forces is below 1"), ({"cutoff": -1.0}, "cutoff"),
    ({"shape": (8, 8)}, "three numbers"), ({"window": "bspline99"}, "bspline99|support|order"),
    ({"gradient": "both"}, "gradient"), ({"skin": 0.0}, "skin"), ({"coulomb_constant": float("nan")}, "coulomb"),
    ({"exclusions": [(0, 0)]}, r"pair 0 of exclusions is a particle and itself: \[0, 0\]"),
    ({"exclusions": [(0, 1), (-1, 2)]}, "pair 1 of exclusions has a negative index"),
    ({"exclusions": [(0, 1), (2, 3), (1, 0)]}, r"the pair \[0, 1\] twice"),
    ({"exclusions": [(0, 1, 2)]}, r"exclusions have shape \(1, 3\)"),
    ({"exclusions": [(0, 1)], "factors": [0.5, 0.5]}, r"factors have shape \(2,\)"),
    ({"exclusions": [(0, 1)], "factors": np.inf}, "finite"),
], ids=str)  # fmt: skip
def test_arguments_are_checked(options, message):
    with pytest.raises(ValueError, match=message):
        PME(TRICLINIC, **options)


def test_a_box_has_three_axes_and_right_angles_where_one_is_open():
    with pytest.raises(ValueError, match="is 2-D; PME needs a 3-D"):
        PME((1.0, 1.0))
    slab = pm.Box(TRICLINIC, periodic=(True, True, False))
    with pytest.raises(ValueError, match=r"triclinic and periodic along \(True, True, False\) only"):
        PME(slab)
    with pytest.raises(ValueError, match="PMEBatch needs three periodic axes"):
        PMEBatch(pm.Box((1.0, 1.0, 1.0), periodic=(True, True, False)), 2)


@pytest.mark.parametrize("options", [{}, {"skin": 0.1}], ids=["stream", "list"])
def test_bad_particles_are_named_and_the_next_step_is_as_if_they_had_not_come(options):
    x, q = random_charges(20)
    pme = PME(TRICLINIC, **COARSE, **options)
    nan = x.copy()
    nan[7, 1] = np.nan
    for first in (True, False):
        with pytest.raises(ValueError, match="7"):
            pme(nan, q)
        assert ("chosen at the first call" in repr(pme)) == first
        if first:
            expected = pme(x, q)
    assert pme(x, q).energy == expected.energy
    for wrong, error, message in (
        (q[:-1], ValueError, "charges"), (q * 1j, TypeError, "complex"), (q.reshape(-1, 1), ValueError, "charges"),
    ):  # fmt: skip
        with pytest.raises(error, match=message):
            pme(x, wrong)
    infinite = q.copy()
    infinite[11] = np.inf
    with np.errstate(invalid="ignore"), pytest.raises(ValueError, match="charges are not finite.*particle 11"):
        pme(x, infinite)
    twins = x.copy()
    twins[4] = twins[9]
    with pytest.raises(ValueError, match="on top of each other: 4 is in the place"):
        pme(twins, q)
    pme(twins, q, check=False)
    with pytest.raises(ValueError, match="on top of each other"):
        pme.check()
    with pytest.raises(TypeError, match="give a Result"):
        pme(x, q, out=q)
    with pytest.raises(ValueError, match=r"out\.energy is .*, and this call writes .*: give an array of shape \(\)"):
        pme(x, q, out=expected)  # a number cannot be written
    sets = pme(x, q[None], virial=False)
    for name, options in (("virial", {}), ("potentials", dict(virial=False, fields=True))):
        with pytest.raises(ValueError, match=f"out.{name} is None, and this call writes .*{name}"):
            pme(x, q[None], out=sets, **options)
    assert pme(x, q).energy == expected.energy
    pme.check()


def test_pairs_are_of_particles_that_are_there():
    x, q = random_charges(20)
    with pytest.raises(ValueError, match=r"pair 1 of exclusions is \[3, 20\], and there are 20 particles"):
        PME(TRICLINIC, **COARSE, exclusions=[(0, 1), (3, 20)])(x, q)
    # A pair in one place that still interacts is an error.
    x[1] = x[0]
    with pytest.raises(ValueError, match="on top of each other"):
        PME(TRICLINIC, **COARSE, exclusions=[(0, 1)], factors=0.5)(x, q)


def test_parameters_are_not_known_before_the_first_call():
    pme, batch = PME(TRICLINIC, **COARSE), PMEBatch(TRICLINIC, 2, **COARSE)
    for use in (pme.explain, lambda: pme.parameters, lambda: batch.parameters):
        with pytest.raises(RuntimeError, match="PME"):
            use()


@pytest.mark.parametrize("way", [copy.copy, copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))])
def test_copies_are_objects_of_their_own_and_attributes_are_read_only(way):
    rng = np.random.default_rng(5)
    x, q = 8 * rng.random((6, 3)), rng.normal(size=6)
    box, options = (8.0, 8.0, 8.0), dict(cutoff=3.0, splitting=1.0, shape=(16, 16, 16), window="bspline6")
    pme = PME(box, **options, exclusions=[[0, 1]], factors=0.5, coulomb_constant=2.0)
    with pytest.raises(AttributeError, match=r"PME.accuracy is read-only: make a new PME with accuracy=\."):
        pme.accuracy = 1e-9
    with pytest.raises(AttributeError, match="no attribute 'acuracy'"):
        pme.acuracy = 1e-9
    with pytest.raises(ValueError, match="read-only"):
        pme.exclusions.factors[0] = 1.0
    for value, arguments in (
        (pme, dict(charges=q)),
        (Dispersion(box, **options, shift=True, mixing="lorentz-berthelot"), dict(sigma=abs(q), epsilon=abs(q))),
        (
            PMEBatch(box, 2, **options, coulomb_constant=2.0, dtype="float64"),
            dict(charges=q, system=[0, 0, 0, 1, 1, 1]),
        ),
    ):
        result, copied = value(x, **arguments), way(value)
        assert copied.nbytes == 0  # it chooses again, and has memory of its own
        np.testing.assert_array_equal(copied(x, **arguments).forces, result.forces)


@pytest.mark.parametrize("use", [
    lambda x, q: PME(TRICLINIC, **COARSE, factors=0.5),
    lambda x, q: PMEBatch(TRICLINIC, 1, **COARSE)(x, q, np.zeros(len(x), int), factors=0.5),
    lambda x, q: Dispersion(TRICLINIC, **COARSE)(x, coefficients=abs(q), factors=0.5),
])  # fmt: skip
def test_factors_need_exclusions(use):
    with pytest.raises(ValueError, match=r"factors is 0.5 and exclusions are not given.*Give both"):
        use(*random_charges(20))


@pytest.mark.parametrize("batch", [False, True])
def test_cutoffs_of_many_boxes_are_an_error_in_single_precision(backend, batch):
    """Sums over so many images of both signs cancel but for a small part, which float32 loses."""
    x, q = random_charges(20)[0] % 1.0, np.tile([1.0, -1.0], 10)

    def step(dtype, lengths, periodic=True):
        given = backend.array((lengths * x).astype(dtype)), backend.array(q.astype(dtype))
        options = dict(accuracy=1e-4, cutoff=1.2, dtype=dtype, backend=backend.name)
        if not batch:
            return PME(pm.Box(lengths, periodic=periodic), **options)(*given)
        pme, boxes = PMEBatch((1.0,) * 3, 2, **options), np.array([[1.0] * 3, lengths])
        return pme(*given, backend.array(np.repeat([0, 1], 10).astype(np.int32)), boxes=backend.array(boxes))

    # Few images are there along one axis, or two.
    slab = (0.04, 0.04, 1), (True, True, False)
    for lengths, *periodic in ([(0.1,) * 3], [(1, 1, 0.04)], [(1, 0.04, 0.04)], slab):
        if not batch or not periodic:
            results = (step(dtype, np.array(lengths), *periodic) for dtype in ("float32", "float64"))
            single, double = (backend.host(result.forces) for result in results)
            assert abs(single - double).max() <= 5e-5 * abs(double).max()
    with pytest.raises(ValueError, match="images of particles are within the cutoff, and float32 holds sums of 262"):
        step("float32", np.full(3, 0.05))


def test_no_pairs_are_exclusions_too():
    assert len(PME(TRICLINIC, **COARSE, exclusions=[], factors=0.5).exclusions) == 0


def test_results_are_shown_in_few_short_lines():
    x, q = random_charges(20)
    shown = repr(PME(TRICLINIC, **COARSE)(x, q)).splitlines()
    assert shown[0] == "<Result"
    assert "  forces: array (20, 3), float64" in shown
    assert len(shown) == 5
    assert max(map(len, shown)) < 80


@pytest.mark.parametrize(("dtype", "says"), [("float32", True), ("float64", False)])
def test_float64_is_not_recommended_to_those_who_have_it(dtype, says):
    x, q = random_charges(20)
    with pytest.warns(UserWarning, match="accuracy 1e-12 was asked for") as caught:
        PME(TRICLINIC, 1e-12, **COARSE)(x.astype(dtype), q.astype(dtype))
    assert ("use float64" in str(caught[0].message)) == says


@pytest.mark.parametrize(("model", "name"), [
    (lambda: PME((3.0,) * 3, **COARSE), "energy"),
    (lambda: InducedDipoles(PME((3.0,) * 3, **COARSE)), "induced_dipoles"),
    (lambda: ChargeEquilibration(PME((3.0,) * 3, **COARSE)), "equilibrated_charges"),
])  # fmt: skip
def test_arrays_that_are_recorded_are_for_the_function_that_is_named(model, name):
    call, rest = model(), (np.ones(4), np.ones(4))[: 1 if name == "energy" else 2]
    x = np.random.default_rng(0).random((4, 3))
    torch = pytest.importorskip("torch")
    with pytest.raises(TypeError, match=rf"call particlemesh\.apps\.pme\.torch\.{name}, or"):
        call(torch.tensor(x, requires_grad=True), *map(torch.tensor, rest))
    jax = pytest.importorskip("jax")
    with pytest.raises(TypeError, match=rf"call particlemesh\.apps\.pme\.jax\.{name}, which"):
        jax.jit(lambda x: call(x, *rest).energy)(x)
