# SPDX-License-Identifier: BSD-3-Clause
"""Vector fields of particles against sums over modes, and their square root."""

import itertools

import numpy as np
import pytest

import particlemesh as pm
from particlemesh.fourier import VectorSolver

X = np.random.default_rng(1).random((6, 3)) * 3
CELLS = {"box": np.diag([3.0, 2.5, 2.0]), "triclinic": np.array([[3.0, 0, 0], [0.7, 2.5, 0], [-0.4, 0.6, 2.0]])}


def smooth(k2):
    return np.exp(-k2 / 30) / (1 + k2)


def by_modes(matrix, x, vectors, onto, forms, weights):
    """Field of vectors (d, N), whose form factors are sums of ``forms`` with weights (m, N)."""
    d = len(matrix)
    rows = 2 * np.pi * np.linalg.inv(matrix).T
    k = np.array(list(itertools.product(range(-9, 10), repeat=d))) @ rows
    k2 = (k**2).sum(1)
    shape = np.array([form(k2) for form in forms]).T @ weights
    wave = np.exp(1j * k @ x.T) * shape
    density = vectors @ wave.conj().T * smooth(k2)
    unit = k / np.sqrt(np.where(k2 > 0, k2, 1))[:, None]
    along = unit.T * (unit.T * density).sum(0)
    kept = {None: density, "transverse": density - along, "longitudinal": along}[onto]
    return (kept @ wave).real / abs(np.linalg.det(matrix))


@pytest.mark.parametrize("place", ["cpu", "opencl"])
def test_form_factors_and_the_root_serve(place):
    if place == "opencl":
        pytest.importorskip("pyopencl")
    forms = [np.ones_like, lambda k2: np.cos(k2 / 20)]
    weights, vectors = np.random.default_rng(4).random((2, 6)), np.random.default_rng(5).normal(size=(3, 6))
    mesh = pm.Mesh((20, 20, 20), CELLS["triclinic"])
    solver = VectorSolver(mesh, "bspline10", smooth, forms=forms, backend=place).set_positions(X)
    exact = by_modes(CELLS["triclinic"], X, vectors, "transverse", forms, weights)
    field = (solver.field(weights[:, None] * vectors) * weights[:, None]).sum(0)
    assert np.allclose(field, exact, rtol=0, atol=1e-5 * abs(exact).max())
    # The root: noise that is 1 at one node after the other gives the columns of S with S S^T = field.
    small = VectorSolver(pm.Mesh((4, 5, 6), CELLS["triclinic"]), "tsc", smooth, forms=forms, backend=place)
    small.set_positions(X[:2])
    columns = small.sample(np.eye(360).reshape(360, 3, 4, 5, 6)).reshape(360, -1)
    matrix = small.field(np.eye(12).reshape(12, 2, 3, 2)).reshape(12, 12)
    assert np.allclose(columns.T @ columns, matrix, rtol=0, atol=1e-13)


def test_a_particle_sees_itself_exactly_on_the_average_with_aliases():
    """Over all places between nodes, also where the window is far too coarse."""
    mesh = pm.Mesh((16,), (1.0,))
    places = (np.arange(64) / 64 / 16)[:, None]
    solver = VectorSolver(mesh, "tsc", lambda k2: np.exp(-k2 / 900), onto=None, compensation="aliases")
    diagonal = np.diag(solver.set_positions(places).field(np.eye(64)[:, None])[:, 0])
    k = 2 * np.pi * np.fft.fftfreq(16, 1 / 16)
    assert np.allclose(diagonal.mean(), np.exp(-(k**2) / 900).sum(), rtol=1e-7)
    assert np.ptp(diagonal) > 0.01 * diagonal.mean()


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"onto": "sideways"}, ValueError, "onto"),
        ({"compensation": "none"}, ValueError, "compensation"),
        ({"systems": 2}, ValueError, "systems"),
        ({"mesh": pm.Mesh((4, 4), pm.Box((1.0, 1.0), periodic=False))}, ValueError, "periodic"),
        ({"mesh": (4, 4)}, TypeError, "Mesh"),
        ({"green": lambda k2: 1j * k2}, TypeError, "complex"),
    ],
)
def test_bad_arguments_are_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        VectorSolver(**{"mesh": pm.Mesh((4, 4), (1.0, 1.0)), "green": smooth, **arguments})


def test_calls_without_positions_and_roots_of_negative_functions_are_refused():
    solver = VectorSolver(pm.Mesh((4, 4), (1.0, 1.0)), "cic", lambda k2: -smooth(k2))
    with pytest.raises(RuntimeError, match="set_positions"):
        solver.field(np.ones((2, 1)))
    solver.set_positions([[0.5, 0.5]])
    with pytest.raises(ValueError, match="negative"):
        solver.sample(np.ones((2, 4, 4)))
    with pytest.raises(TypeError, match="complex"):
        solver.field(np.ones((2, 1), complex))


@pytest.mark.parametrize("ndim", [1, 2, 3])
@pytest.mark.parametrize("zero", [None, 0.0, 2.0])
@pytest.mark.parametrize(
    ("green", "parameters"),
    [("poisson", {}), ("yukawa", {"kappa": 1.5}), ("ewald", {"alpha": 2.0}), (lambda k2: np.exp(-k2 / 90) + 0.5, {})],
    ids=["poisson", "yukawa", "ewald", "function"],
)
@pytest.mark.parametrize(
    "forms",
    [[], [lambda k2: 1 + 0 * k2], [lambda k2: 0.5 - k2 / 900], [lambda k2: 3 + 0 * k2, lambda k2: 1 / (1 + k2)]],
    ids=["none", "one", "linear", "two"],
)
def test_the_mode_at_zero_and_form_factors_are_those_of_the_sum_over_modes(ndim, zero, green, parameters, forms):
    """On nodes of an odd mesh, with compensation, cic sees each mode of the mesh as it is."""
    shape = (5, 7, 3)[:ndim]
    lengths = np.array([3.0, 2.5, 2.0][:ndim])
    rng = np.random.default_rng(ndim)
    x = rng.integers(0, shape, (4, ndim)) * lengths / shape
    parts = max(1, len(forms))
    v = rng.normal(size=((parts,) if parts > 1 else ()) + (ndim, 4))
    solver = VectorSolver(
        pm.Mesh(shape, lengths), "cic", green, zero=zero, forms=forms, onto=None, compensation=None, **parameters
    )
    got = solver.set_positions(x).field(v)
    numbers = [np.arange(n) - n // 2 for n in shape]
    k = np.stack(np.meshgrid(*numbers, indexing="ij"), -1).reshape(-1, ndim) * 2 * np.pi / lengths
    k2 = (k**2).sum(1)
    origin = k2 == 0
    kappa, alpha = parameters.get("kappa", 0.0), parameters.get("alpha", np.inf)
    with np.errstate(divide="ignore"):
        factor = np.exp(-k2 / (4 * alpha**2)) / (k2 + kappa**2) if isinstance(green, str) else green(k2)
    factor[origin] = zero if zero is not None else 0.0 if np.isinf(factor[origin]) else factor[origin]
    shapes = np.array([form(k2) for form in forms]) if forms else np.ones((1, len(k2)))
    wave = np.exp(1j * k @ x.T)
    density = np.einsum("mk,mdn,kn->dk", shapes, v.reshape(parts, ndim, 4), wave.conj())
    exact = np.einsum("mk,dk,kn->mdn", shapes, factor * density, wave).real / lengths.prod()
    np.testing.assert_allclose(got, exact.reshape(got.shape), atol=1e-12 * max(1, abs(exact).max()))
