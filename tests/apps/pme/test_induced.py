# SPDX-License-Identifier: BSD-3-Clause
"""Induced dipoles against dense equations of direct Ewald sums, closed formulas and laws."""

import pickle

import numpy as np
import pytest

import particlemesh as pm
from particlemesh.apps.pme import PME, ChargeEquilibration, InducedDipoles, close, damping, dipoles, direct, operators
from particlemesh.apps.pme.split import NONE, Gaussian
from particlemesh.backends import cuda
from pme_cases import close as same
from polarizable import BOX, COARSE, FINE, Polarizable, system
from ptx import without_nvrtc

PAIRS = dict(exclusions=[[0, 1], [2, 4]], factors=[0.0, 0.5])
FIELD = np.array([0.3, -0.1, 0.2])
CASES = pytest.mark.parametrize(
    ("thole", "pairs"),
    [(None, {}), (0.39, {}), (None, PAIRS), (0.39, PAIRS)],
    ids=["points", "thole", "pairs", "thole and pairs"],
)


def model(tolerance=1e-12, thole=None, box=BOX, parameters=FINE, constant=2.0, **pairs):
    return InducedDipoles(PME(box, **parameters, coulomb_constant=constant, **pairs), tolerance, thole=thole)


def exact(thole=None, pairs=None, **options):
    given = pairs or dict(exclusions=(), factors=())
    return Polarizable(thole, given["exclusions"], given["factors"], **options)


@CASES
def test_dipoles_energy_and_its_slopes_are_those_of_dense_equations(thole, pairs):
    x, q, m, alpha = system()
    result = model(thole=thole, **pairs)(x, q, alpha, dipoles=m, field=FIELD)
    energy, dipoles = exact(thole, pairs)(x, q, m, alpha, FIELD)
    np.testing.assert_allclose(result.induced, dipoles, rtol=0, atol=1e-10 * abs(dipoles).max())
    np.testing.assert_allclose(result.energy, energy, rtol=1e-10)
    np.testing.assert_allclose(result.energies.sum(), energy, rtol=1e-10)
    np.testing.assert_allclose(result.torques, np.cross(m, result.fields), rtol=1e-12)
    assert result.residual <= 1e-12
    assert not result.induced[2].any()  # it is not polarizable
    energy, h = exact(thole, pairs), 1e-4
    for particle, axis in ((0, 0), (2, 1), (4, 2)):
        step = np.zeros((6, 3))
        step[particle, axis] = h
        for sign, moved, values in (
            (-1, lambda s: (x + s, q, m), result.forces),
            (-1, lambda s: (x, q, m + s), result.fields),
            (1, lambda s: (x, q + s.sum(1), m), np.repeat(result.potentials[:, None], 3, 1)),
        ):
            above, below = (energy(*moved(s), alpha, FIELD)[0] for s in (step, -step))
            np.testing.assert_allclose(values[particle, axis], sign * (above - below) / (2 * h), rtol=1e-6, atol=1e-6)
    strain, ends = h * np.random.default_rng(2).normal(size=(3, 3)), []
    for sign in (1, -1):
        turn = np.eye(3) + sign * strain
        ends.append(exact(thole, pairs, box=BOX @ turn.T)(x @ turn.T, q, m, alpha, FIELD)[0])
    np.testing.assert_allclose((result.virial * strain).sum(), (ends[0] - ends[1]) / 2, rtol=1e-5, atol=1e-10)


def test_units_of_coulombs_constant_change_nothing_else():
    """Damping too: polarizabilities are volumes over the constant."""
    (x, q, m, alpha), thole, pairs = system(), 0.39, PAIRS
    for size in (1.0, 3.0):  # larger ones are damped more
        plain = model(thole=thole, constant=1.0, **pairs)(x, q, size * alpha, dipoles=m)
        scaled = model(thole=thole, constant=138.9, **pairs)(x, q, size * alpha / 138.9, dipoles=m)
        np.testing.assert_allclose(scaled.induced, plain.induced, rtol=0, atol=1e-9 * abs(plain.induced).max())
        np.testing.assert_allclose(scaled.energy, 138.9 * plain.energy, rtol=1e-9)
        dipoles = exact(thole, pairs, constant=1.0)(x, q, m, size * alpha)[1]
        np.testing.assert_allclose(plain.induced, dipoles, rtol=0, atol=1e-9 * abs(dipoles).max())


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_residuals_are_those_of_the_dipoles_themselves(dtype):
    """Those that iterations update forget the rounding of a bad guess."""
    x, q, m, alpha = system()
    x, q, m = (a.astype(dtype) for a in (x, q, m))
    right = model(parameters=COARSE, tolerance=1e-12)(*(a.astype("f8") for a in (x, q, alpha)), dipoles=m.astype("f8"))
    tolerance = 1e-4 if dtype == "float32" else 1e-9
    for guess in (1e2, 1e4, 1e6):
        away = np.full_like(m, guess) * np.sign(m)
        got = model(parameters=COARSE, tolerance=tolerance)(x, q, alpha, dipoles=m, guess=away)
        assert got.residual <= tolerance
        assert abs(got.induced - right.induced).max() <= 20 * tolerance * abs(right.induced).max()
    advice = "give a larger tolerance" + (", or float64" if dtype == "float32" else "") + r"\.$"
    with pytest.raises(RuntimeError, match=f"the residual no longer falls: it is .* {advice}"):
        model(parameters=COARSE, tolerance=1e-20)(x, q, alpha, dipoles=m)
    with pytest.raises(ValueError, match="guess is not finite"):
        model(parameters=COARSE)(x, q, alpha, dipoles=m, guess=np.full_like(m, np.nan))


def test_two_atoms_in_free_space_have_the_dipoles_of_silberstein():
    distance, alpha = 1.4, 0.7
    x = np.array([[2.3, 3.0, 3.0], [2.3 + distance, 3.0, 3.0]])
    pme = PME(pm.Box((6.0,) * 3, periodic=False), cutoff=3.0, splitting=1.9, shape=44, window="bspline12")
    along, across = 1 / (1 - 2 * alpha / distance**3), 1 / (1 + alpha / distance**3)
    result = InducedDipoles(pme, 1e-12)(x, np.zeros(2), alpha, field=[1.0, 0.5, 0.0])
    np.testing.assert_allclose(result.induced, alpha * np.array([[along, 0.5 * across, 0]] * 2), atol=2e-6)
    np.testing.assert_allclose(result.energy, -alpha * (along + 0.25 * across), rtol=2e-6)
    np.testing.assert_allclose(result.virial, -result.forces.T @ x, rtol=0, atol=1e-5 * abs(result.virial).max())


def test_slabs_do_not_depend_on_the_height_of_their_box():
    x, q = np.array([[0.2, 0.3, 0.5], [0.7, 0.6, 0.9], [0.4, 0.8, 1.2]]), np.array([1.0, -0.6, -0.4])
    results = []
    for height in (2, 3):
        box = pm.Box((1.0, 1.0, float(height)), periodic=(True, True, False))
        pme = PME(box, cutoff=0.9, splitting=4.5, shape=(24, 24, 24 * height), window="bspline8")
        dipoles = InducedDipoles(pme, 1e-10, thole=0.39)(x, q, 0.01)
        charges = ChargeEquilibration(pme, 1e-10)(x, [0.1, -0.2, 0.4], 9.0, total=0.3)
        more = dipoles.virial, charges.virial
        results.append((dipoles.induced, dipoles.forces, charges.charges, charges.forces, *more))
    for low, high in zip(*results, strict=True):
        np.testing.assert_allclose(high, low, rtol=0, atol=1e-6 * abs(low).max())


def test_a_lattice_of_atoms_obeys_clausius_and_mossotti():
    alpha, volume = 0.05, 1.0
    result = model(
        box=(1.0,) * 3, parameters=dict(cutoff=0.9, splitting=6.5, shape=32, window="bspline12"), constant=1.0
    )(np.array([[0.2, 0.3, 0.4]]), np.zeros(1), alpha, field=[0.0, 2.0, 0.0])
    expected = 2 * alpha / (1 - 4 * np.pi / 3 * alpha / volume)
    np.testing.assert_allclose(result.induced, [[0, expected, 0]], atol=1e-8)
    np.testing.assert_allclose(result.energy, -expected, rtol=1e-8)  # half of -field * dipole


def test_lengths_order_and_origin_change_nothing_else():
    x, q, m, alpha = system()
    first = model(thole=0.39)(x, q, alpha, dipoles=m)
    order = np.array([3, 0, 5, 1, 4, 2])
    other = model(thole=0.39)((x + 0.7)[order], q[order], alpha[order], dipoles=m[order])
    np.testing.assert_allclose(other.induced, first.induced[order], atol=1e-10)
    np.testing.assert_allclose(other.forces, first.forces[order], atol=1e-8)
    scale = 3.0
    wide = dict(FINE, cutoff=scale * FINE["cutoff"], splitting=FINE["splitting"] / scale)
    grown = model(thole=0.39, box=scale * BOX, parameters=wide)(scale * x, q, scale**3 * alpha, dipoles=scale * m)
    np.testing.assert_allclose(grown.induced, scale * first.induced, atol=1e-9)
    np.testing.assert_allclose(grown.energy, first.energy / scale, rtol=1e-10)


def test_without_polarizabilities_it_is_pme():
    x, q, m, _ = system()
    result = model()(x, q, 0.0, dipoles=m)
    plain = PME(BOX, **FINE, coulomb_constant=2.0)(x, q, dipoles=m)
    same(result.__class__(**{n: getattr(result, n) for n in vars(plain)}), plain, 1e-12)
    assert result.iterations == 0


def test_a_guess_saves_iterations_and_a_looser_tolerance_as_well():
    x, q, m, alpha = system(8)
    induced = model()
    first = induced(x, q, alpha, dipoles=m)
    assert induced(x, q, alpha, dipoles=m, guess=first.induced).iterations == 0
    moved = induced(x + 1e-4 * np.sin(np.arange(24)).reshape(8, 3), q, alpha, dipoles=m, guess=first.induced)
    assert 0 < moved.iterations < first.iterations
    loose = model(1e-3)(x, q, alpha, dipoles=m)
    assert loose.iterations < first.iterations
    error = np.linalg.norm(loose.induced - first.induced) / np.linalg.norm(first.induced)
    assert 1e-12 < error < 1e-2


def test_catastrophe_and_iterations_that_do_not_suffice_are_named():
    x, near = system()[0], np.array([[0.5, 0.5, 0.5], [0.9, 0.5, 0.5]])
    with pytest.raises(ValueError, match="polarization catastrophe"):
        model()(near, np.array([1.0, -1.0]), 0.2)
    with pytest.raises(ValueError, match="polarization catastrophe"):  # also where no field says in which direction
        model(parameters=COARSE)(near, np.zeros(2), 0.2)
    with pytest.raises(ValueError, match=r"Give thole .* divided by coulomb_constant, 138.935"):
        InducedDipoles(PME(BOX, coulomb_constant=138.935, **COARSE), 1e-6)(near, np.array([1.0, -1.0]), 0.2)
    with pytest.raises(ValueError, match="Give smaller"):  # no advice that was followed
        InducedDipoles(PME(BOX, coulomb_constant=138.935, **COARSE), 1e-6, thole=5.0)(near, np.array([1.0, -1.0]), 0.2)
    assert not model(thole=0.39, parameters=COARSE)(near, np.zeros(2), 0.02).induced.any()
    damped = model(thole=0.39)(near, np.array([1.0, -1.0]), 0.02)
    assert np.isfinite(damped.energy)
    few = InducedDipoles(PME(BOX, **FINE), 1e-10, iterations=2)
    with pytest.raises(RuntimeError, match=r"after 2 iterations the residual is .* tolerance is 1e-10: give more"):
        few(x, *system()[1::2])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.backends("cpu", "opencl", "cuda")
@pytest.mark.turns(2)
def test_all_backends_and_types_agree(backend, dtype):
    x, q, m, alpha = system()
    expected = model(1e-10, 0.39, parameters=COARSE, **PAIRS)(x, q, alpha, dipoles=m, field=FIELD)
    arrays = [backend.array(a.astype(dtype)) for a in (x, q, m)]
    tolerance = 1e-10 if dtype == "float64" else 1e-6
    result = model(tolerance, 0.39, parameters=COARSE, **PAIRS)(
        arrays[0], arrays[1], alpha, dipoles=arrays[2], field=FIELD
    )
    for name in ("energy", "energies", "forces", "virial", "potentials", "fields", "torques", "induced"):
        mine, theirs = np.asarray(backend.host(getattr(result, name))), np.asarray(getattr(expected, name))
        assert mine.dtype == dtype
        atol = (1e-9 if dtype == "float64" else 2e-5) * abs(theirs).max()
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=atol, err_msg=name)


@pytest.mark.backends("cpu", "opencl", "cuda")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("thole", [None, 0.39])
@pytest.mark.parametrize("shape", [(1,), (2,), (7,), (2, 2)], ids=str)
@pytest.mark.turns(16)
def test_sets_are_those_of_single_calls_and_stop_by_themselves(backend, dtype, thole, shape):
    x, q, m, alpha = (a.astype(dtype) for a in system())
    rng = np.random.default_rng(4)
    charges = (q * rng.uniform(0, 2, (*shape, 6))).astype(dtype)
    fields = rng.normal(size=(*shape, 6, 3)) * (rng.random(shape) < 0.5)[..., None, None]  # some need more iterations
    of_each = rng.normal(size=(*shape, 6, 3)).astype(dtype)
    pme = PME(BOX, **COARSE, **PAIRS, coulomb_constant=2.0, dtype=dtype, backend=backend.name)
    together = InducedDipoles(pme, 1e-3, thole=thole)
    varied = []
    for moments in (None, m, of_each):
        given = [backend.array(a) for a in (x, charges)]
        some = {} if moments is None else dict(dipoles=backend.array(moments))
        result = together(*given, alpha, **some, field=fields)
        again = together(*given, alpha, **some, field=fields, guess=result.induced)
        assert again.iterations == 0
        counts, residuals = [], []
        for k in np.ndindex(shape):
            mine = some if moments is not of_each else dict(dipoles=backend.array(moments[k]))
            one = together(given[0], backend.array(charges[k]), alpha, **mine, field=fields[k])
            counts.append(one.iterations)
            residuals.append(one.residual)
            for name, exact in vars(one).items():
                if name not in ("iterations", "residual"):
                    exact, mine = (np.asarray(backend.host(a)) for a in (exact, getattr(result, name)))
                    tolerance = 1e-5 if dtype == "float32" else 1e-12
                    np.testing.assert_allclose(mine[k], exact, rtol=0, atol=tolerance * abs(exact).max(), err_msg=name)
        assert result.iterations == max(counts)
        np.testing.assert_allclose(result.residual, max(residuals), rtol=1e-4)
        varied.append(min(counts) < max(counts))
    assert any(varied) or len(counts) < 7 or thole


def test_bad_arguments_are_explained():
    x, q, m, alpha = system()
    pme = PME(BOX, **COARSE)
    for error, words, arguments, options in [
        (TypeError, "give a particlemesh.apps.pme.PME", (BOX,), {}),
        (ValueError, "tolerance is 2", (pme, 2), {}),
        (ValueError, "thole", (pme,), dict(thole=-1.0)),
        (ValueError, "iterations", (pme,), dict(iterations=0)),
    ]:
        with pytest.raises(error, match=words):
            InducedDipoles(*arguments, **options)
    induced = InducedDipoles(pme)
    for words, arguments, options in [
        ("polarizabilities of particle 1 is -1", (x, q, np.array([0.1, -1, 0, 0, 0, 0])), {}),
        ("polarizabilities of particle 2 is not finite", (x, q, np.array([0.1, 0, np.nan, 0, 0, 0])), {}),
        (r"polarizabilities has shape \(5,\)", (x, q, alpha[:5]), {}),
        (r"field has shape \(2,\)", (x, q, alpha), dict(field=np.ones(2))),
        ("field is not finite", (x, q, alpha), dict(field=np.full(3, np.inf))),
        ("at least one set", (x, np.ones((0, 6)), alpha), {}),
        (r"dipoles have shape \(3, 6, 3\)", (x, np.stack([q, q]), alpha), dict(dipoles=np.stack([m] * 3))),
        (r"field has shape \(3, 6, 3\)", (x, np.stack([q, q]), alpha), dict(field=np.stack([m] * 3))),
        (r"guess has shape \(6, 3\); \(2, 6, 3\)", (x, np.stack([q, q]), alpha), dict(guess=m)),
        (r"guess has shape \(6, 2\)", (x, q, alpha), dict(guess=m[:, :2])),
        ("charges are not finite; the first is that of particle 0", (x, q * np.nan, alpha), {}),
        ("on top of each other", (x[[0, 0]], q[:2], 0.01), {}),
    ]:
        with pytest.raises(ValueError, match=words):
            induced(*arguments, **options)


def test_parameters_are_chosen_at_the_first_call_and_kept_by_copies():
    x, q, _, alpha = system()
    induced = InducedDipoles(PME(BOX, 1e-4), 1e-6, thole=0.39)
    with pytest.raises(RuntimeError, match="this InducedDipoles has no parameters yet: call it"):
        _ = induced.pme
    first = induced(x, q, alpha)
    used = induced.pme.arguments
    assert used["splitting"] and used["cutoff"] and used["shape"]
    copied = pickle.loads(pickle.dumps(induced))
    assert copied.arguments == dict(tolerance=1e-6, iterations=100, thole=0.39)
    np.testing.assert_array_equal(copied(x, q, alpha).induced, first.induced)


def test_no_particles_have_no_energy():
    result = model()(np.zeros((0, 3)), np.zeros(0), np.zeros(0))
    assert result.energy == 0
    assert result.induced.shape == (0, 3)


KERNELS = ("add", "scale", "dots", "cross_products", "products", "weigh", "direct", "advance")
TABLE = (1.0, 0.2, 10.0, 0.0, 14.0, 0.0, 20.0, 0.0, 20.0, 0.0, 20.0)  # of two particles without partners
FUNCTIONS = {
    "slopes of dipoles": lambda: operators._slopes(Gaussian(2.0), 1.2, True, None),
    "damped slopes": lambda: operators._slopes(Gaussian(2.0), 1.2, True, 0.39),
    "damped slopes of sets": lambda: operators._slopes(Gaussian(2.0), 1.2, True, 0.39, 3),
    "damped moments": lambda: damping.moments(0.39),
    "listed moments": lambda: damping.listed(0.39, 0.2),
    "listed charges": lambda: direct.listed(2, True, 0.2),
    "charges beside listed ones": lambda: direct.pair_function(NONE, 2, True, close.NEIGHBOURS, TABLE),
    "listed dipoles": lambda: dipoles.pair_function(NONE, True, close.LISTED, (1.0, 0.2, 10.0, 0.0, 0.0)),
    "dipoles beside listed ones": lambda: dipoles.pair_function(NONE, True, close.NEIGHBOURS, TABLE),
    "moments beside listed ones": lambda: damping.moments(0.39, close.NEIGHBOURS, TABLE),
    "potentials": lambda: operators._potentials_of(Gaussian(2.0), 1.2, True, True, 3),
    "widths of sets": lambda: damping.widths(3, False),
    "widths with slopes": lambda: damping.widths(1, True),
}


@pytest.mark.skipif(without_nvrtc() is not None, reason=f"no NVRTC: {without_nvrtc()}")
@pytest.mark.parametrize("double", [0, 1])
def test_kernels_compile_for_cuda(double):
    program = cuda.compile_only("apps/pme/vectors.c", {"REAL_IS_DOUBLE": double}, 90)
    assert all(name.encode() in program for name in KERNELS)
    for name in ("listed moments", "listed charges", "listed dipoles"):
        function = FUNCTIONS[name]()
        sizes = dict(REAL_IS_DOUBLE=double, VALUES=function.values, RESULTS=function.results)
        texts = {"pair function": function.text}
        assert b"listed" in cuda.compile_only("apps/pme/exclusions.c", sizes, 90, texts)


@pytest.mark.skipif(without_nvrtc() is not None, reason=f"no NVRTC: {without_nvrtc()}")
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("double", [0, 1])
def test_functions_of_pairs_compile_for_cuda(name, double):
    function = FUNCTIONS[name]()
    defines = dict.fromkeys(("REAL_IS_DOUBLE", "COORDINATE_IS_DOUBLE"), double) | {
        "KEYS_ARE_POSITIONS": 1, "CELLS_ARE_SCATTERED": 0, "CELLS_ARE_SPARSE": 0, "EXTENTS": 0,
        "RESULTS": function.results, "VALUES": function.values,
    }  # fmt: skip
    assert function.only_adds
    assert cuda.compile_only("grid/queries/sums.c", defines, 90, {"pair function": function.text})
