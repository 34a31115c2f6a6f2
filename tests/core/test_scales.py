# SPDX-License-Identifier: BSD-3-Clause
"""The unit of length does not matter: results follow its powers to rounding, or an error says to use another one."""

import numpy as np
import pytest

import particlemesh as pm
from particlemesh.apps import nufft
from particlemesh.apps.pme import PME, Dispersion
from particlemesh.fourier import Solver, VectorSolver, power_spectrum

UNITS = (1e-30, 1e-22, 1e-15, 1e-8, 1e8, 1e15, 1e22, 1e30)
BOX = np.diag([1.0, 0.7, 1.3])
TILTED = np.array([[1.0, 0.0, 0.0], [0.2, 0.9, 0.0], [0.1, -0.2, 1.1]])
SHAPE = (8, 6, 9)
RNG = np.random.default_rng(0)
PLACES = ((np.stack(np.meshgrid(*[np.arange(4)] * 3), -1).reshape(-1, 3) + RNG.uniform(0.2, 0.8, (64, 3))) / 4)[:50]
CHARGES, VECTORS = RNG.normal(size=50), RNG.normal(size=(50, 3))
CHARGES -= CHARGES.mean()
FIELD = RNG.normal(size=SHAPE)
TENSORS = RNG.normal(size=(50, 3, 3))
TENSORS = TENSORS + TENSORS.swapaxes(1, 2)


def placed(matrix, unit, periodic, real):
    """A box in a unit, and positions in it."""
    box = pm.Box(matrix * unit if np.count_nonzero(matrix) > 3 else np.diag(matrix) * unit, periodic=periodic)
    return box, (PLACES @ box.matrix).astype(real)


def of_plan(verb, power, matrix=BOX, periodic=True):
    given = {"spread": CHARGES, "spread_gradient": VECTORS, "spread_hessian": TENSORS}.get(verb, FIELD)

    def result(unit, real, backend):
        box, x = placed(matrix, unit, periodic, real)
        plan = pm.Plan(pm.Mesh(SHAPE, box), "bspline4", dtype=real)
        plan.set_positions(backend.array(x))
        return getattr(plan, verb)(backend.array(given.astype(real)))

    return result, power if isinstance(power, tuple) else (power,)


def of_solver(verb, power, green="poisson", matrix=BOX, periodic=True, **parameters):
    def result(unit, real, backend):
        box, x = placed(matrix, unit, periodic, real)
        options = {name: value / unit for name, value in parameters.items()}
        solver = Solver(pm.Mesh(SHAPE, box), "bspline4", green, dtype=real, **options)
        return getattr(solver.set_positions(backend.array(x)), verb)(backend.array(CHARGES.astype(real)))

    return result, power if isinstance(power, tuple) else (power,)


def of_vectors(onto, matrix=BOX, **parameters):
    def result(unit, real, backend):
        box, x = placed(matrix, unit, True, real)
        options = {name: value / unit for name, value in parameters.items()}
        green = "yukawa" if parameters else "poisson"
        solver = VectorSolver(pm.Mesh(SHAPE, box), "bspline4", green, onto=onto, dtype=real, **options)
        return solver.set_positions(backend.array(x)).field(backend.array(VECTORS.T.astype(real)))

    return result, (-1,)


def of_spectrum(matrix):
    def result(unit, real, backend):
        box, x = placed(matrix, unit, True, real)
        weights = backend.array(np.ones(len(x), real))
        spectrum = power_spectrum(backend.array(x), weights, pm.Mesh(SHAPE, box), mu_bins=2, multipoles=(0, 2))
        full = spectrum.modes > 0
        poles = np.array([spectrum.multipoles[order] for order in (0, 2)])
        return spectrum.k[full], spectrum.power[full], spectrum.shot_noise[full], poles, spectrum.modes

    return result, (-1, 3, 3, 3, 0)


def of_pme(periodic=True, dipoles=False, quadrupoles=False, **options):
    def result(unit, real, backend):
        box, x = placed(BOX, unit, periodic, real)
        lengths = {"skin": options["skin"] * unit} if "skin" in options else {}
        pme = PME(box, cutoff=0.3 * unit, splitting=10 / unit, shape=(12,) * 3, window="bspline4", **lengths)
        moments = {"dipoles": backend.array((VECTORS * unit).astype(real))} if dipoles else {}
        if quadrupoles:
            half = VECTORS[:, None] * VECTORS[::-1, :, None] * unit**2 / 10
            moments["quadrupoles"] = backend.array((half + half.swapaxes(1, 2)).astype(real))
            moments["widths"] = backend.array((0.01 * unit * np.abs(CHARGES)).astype(real))
        made = pme(backend.array(x), backend.array(CHARGES.astype(real)), **moments)
        return (made.energy, made.forces) if made.virial is None else (made.energy, made.forces, made.virial)

    return result, (-1, -2, -1)


def of_dispersion(unit, real, backend):
    box, x = placed(BOX, unit, True, real)
    dispersion = Dispersion(box, cutoff=0.3 * unit, splitting=8 / unit, shape=(12,) * 3, window="bspline4")
    made = dispersion(backend.array(x), backend.array(np.abs(CHARGES).astype(real)))
    return made.energy, made.forces, made.virial


def of_nufft(unit, real, backend):
    given = (PLACES * unit).astype(real), (VECTORS * (9 / unit)).astype(real)
    x, s = ([backend.array(a[:, axis].copy()) for axis in range(2)] for a in given)
    return nufft.nufft2d3(*x, backend.array(CHARGES.astype("c8" if real == "f4" else "c16")), *s, eps=1e-6)


CASES = {
    **{f"plan {verb}": of_plan(verb, power) for verb, power in (
        ("spread", 0), ("interpolate", 0), ("gradient", -1), ("spread_gradient", -1), ("hessian", -2),
        ("spread_hessian", -2), ("value_and_gradient", (0, -1)),
    )},
    "plan tilted": of_plan("value_gradient_hessian", (0, -1, -2), TILTED),
    "plan tilted gradient": of_plan("gradient", -1, TILTED),
    "plan open": of_plan("value_and_gradient", (0, -1), periodic=False),
    "poisson": of_solver("potential", -1),
    "poisson gradient": of_solver("potential_and_gradient", (-1, -2)),
    "poisson open": of_solver("potential_and_gradient", (-1, -2), periodic=False),
    "poisson virial": of_solver("potential_gradient_virial", (-1, -2, -1), matrix=TILTED),
    "yukawa": of_solver("potential_and_gradient", (-1, -2), "yukawa", matrix=TILTED, kappa=3.0),
    "ewald": of_solver("potential_gradient_virial", (-1, -2, -1), "ewald", alpha=6.0),
    "vectors": of_vectors("transverse"),
    "vectors along": of_vectors("longitudinal", TILTED),
    "vectors yukawa": of_vectors(None, kappa=2.0),
    "spectrum": of_spectrum(BOX),
    "spectrum tilted": of_spectrum(TILTED),
    "pme": of_pme(),
    "pme skin": of_pme(skin=0.05),
    "pme slab": of_pme(periodic=(True, True, False)),
    "pme dipoles": of_pme(dipoles=True),
    "pme quadrupoles": of_pme(dipoles=True, quadrupoles=True),
    "dispersion": (of_dispersion, (-6, -7, -6)),
    "nufft3": (of_nufft, (0,)),
}  # fmt: skip
# Units that the types hold: others may be refused.
HELD = {"f4": (1e-8, 1e8), "f8": UNITS}
REFUSED = {"dispersion": {"f4"}, "pme dipoles": {"f4"}, "pme quadrupoles": {"f4", "f8"}}


@pytest.mark.backends("cpu")
@pytest.mark.filterwarnings("ignore:gradient='window'", "ignore:overflow", "ignore:underflow")
@pytest.mark.parametrize("real", ["f4", "f8"])
@pytest.mark.parametrize("name", CASES)
def test_results_follow_the_unit_of_length_or_are_refused(backend, name, real):
    case, powers = CASES[name]

    def numbers(unit, real):
        made = case(unit, real, backend)
        return [np.asarray(backend.host(a)) for a in (made if isinstance(made, tuple) else (made,))]

    right = numbers(1.0, "f8")
    rounding = 2e-4 if real == "f4" else 1e-5 if name == "nufft3" else 1e-11
    held = []
    for unit in UNITS:
        try:
            made = numbers(unit, real)
        except ValueError as error:
            if "unit of length" not in str(error):
                raise
            continue
        held.append(unit)
        for result, one, power in zip(made, right, powers, strict=False):
            expected = one.astype(np.result_type(one, np.longdouble)) * np.longdouble(unit) ** power
            size = np.abs(expected).max()
            assert np.abs(result / size - expected / size).max() < rounding
    assert set(held) >= set(HELD[real]) or real in REFUSED.get(name, ())
