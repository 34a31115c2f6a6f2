# SPDX-License-Identifier: BSD-3-Clause
"""The virial of a solver: the derivative by strain of the energy of the mesh."""

import numpy as np
import pytest

import particlemesh as pm
from particlemesh.fourier import Solver

# These solvers are compared with sums, in which a particle pulls itself, too.
pytestmark = pytest.mark.filterwarnings("ignore:gradient='window' conserves energy")

MESHES = [
    ([(2.5, 0, 0), (0.5, 3, 0), (0.7, 0.9, 3.5)], (8, 9, 10)), (np.diag((1.0, 2.0, 3.0)), (8, 6, 8)),
    ([(1.0, 0.2), (-0.3, 1.1)], (8, 6)), ([(1.5,)], (8,)),
]  # fmt: skip
GREENS = {
    "ewald": dict(green="ewald", alpha=3.0, zero=-1 / 36), "yukawa": dict(green="yukawa", kappa=2.0),
    "ik": dict(green="ewald", alpha=3.0, gradient="ik"), "discrete": dict(compensation="discrete"),
    "function": dict(green=lambda k2: np.exp(-k2 / 9), slope=lambda k2: -np.exp(-k2 / 9) / 9),
}  # fmt: skip


def problem(matrix):
    rng, ndim = np.random.default_rng(1), len(matrix)
    return rng.random((12, ndim)), rng.standard_normal((2, 12))


@pytest.mark.parametrize("green", GREENS)
@pytest.mark.parametrize(("matrix", "shape"), MESHES, ids=["triclinic", "orthorhombic", "plane", "line"])
def test_the_virial_is_the_derivative_of_the_energy_by_strain(matrix, shape, green):
    matrix, ndim = np.asarray(matrix, float), len(shape)
    fractions, q = problem(matrix)

    def solved(strain):
        box = matrix @ (np.eye(ndim) + strain).T
        solver = Solver(pm.Mesh(shape, pm.Box(box)), "bspline4", **GREENS[green]).set_positions(fractions @ box)
        phi, slope, virial = solver.potential_gradient_virial(q)
        return (q * phi).sum(-1) / 2, slope, virial

    _, _, virial = solved(np.zeros((ndim, ndim)))
    assert virial.shape == (2, ndim, ndim)
    np.testing.assert_array_equal(virial, virial.transpose(0, 2, 1))
    strain = np.random.default_rng(2).uniform(0.3, 1, (ndim, ndim))  # of every component, each with its own weight
    strain += strain.T
    first, second = ((solved(1e-4 * n * strain)[0] - solved(-1e-4 * n * strain)[0]) / (2e-4 * n) for n in (1, 2))
    slope = (virial * strain).sum((1, 2))
    np.testing.assert_allclose(slope, (4 * first - second) / 3, rtol=0, atol=2e-8 * abs(virial).max())


@pytest.mark.parametrize("periodic", [(True, False), (True, True, False), (True, False, False), (False,) * 3])
@pytest.mark.parametrize("green", ["ewald", "ik", "yukawa"])
def test_the_virial_of_open_boxes(green, periodic):
    """The box counts along periodic axes, and positions along open ones."""
    ndim, opened = len(periodic), ~np.array(periodic)
    fractions, q = problem(np.eye(ndim))
    lengths = np.array([2.4, 0.8, 0.5])[:ndim]  # thin slabs and wires feel where Green functions are cut off

    def solved(strain):
        box = pm.Box(lengths * (1 + strain), periodic=periodic)
        solver = Solver(pm.Mesh((40, 16, 12)[:ndim], box), "bspline8", **GREENS[green] | {"zero": None})
        phi, slope, virial = solver.set_positions(fractions * box.lengths).potential_gradient_virial(q)
        return (q * phi).sum(-1) / 2, slope, virial

    _, slope, virial = solved(np.zeros(ndim))
    strain = np.random.default_rng(2).uniform(0.3, 1, ndim) * periodic
    first, second = ((solved(1e-4 * n * strain)[0] - solved(-1e-4 * n * strain)[0]) / (2e-4 * n) for n in (1, 2))
    size = abs(virial).max()
    np.testing.assert_allclose(virial.diagonal(0, 1, 2) @ strain, (4 * first - second) / 3, rtol=0, atol=2e-8 * size)
    np.testing.assert_array_equal(virial, virial.transpose(0, 2, 1))
    if green == "ewald":  # of others particles pull themselves
        along = np.einsum("cn,cna,nb->cab", q, slope, fractions * lengths)
        np.testing.assert_allclose(virial[..., opened], along[..., opened], rtol=0, atol=1e-4 * size)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_backends_agree_and_parts_are_those_of_single_calls(backend, dtype):
    matrix, shape = MESHES[0]
    fractions, q = problem(matrix)
    x, q = (fractions @ matrix).astype(dtype), q.astype(dtype)
    exact = Solver(pm.Mesh(shape, matrix), "bspline4", "ewald", alpha=3.0)
    expected = exact.set_positions(x.astype("f8")).potential_gradient_virial(q.astype("f8"))
    solver = Solver(pm.Mesh(shape, matrix), "bspline4", "ewald", alpha=3.0, dtype=dtype, backend=backend.name)
    solver.reserve(12, 2, virial=True).set_positions(backend.array(x))
    result = solver.potential_gradient_virial(backend.array(q))
    tolerance = 1e-12 if dtype == "float64" else 1e-5
    for one, other in zip(result, expected, strict=True):
        np.testing.assert_allclose(backend.host(one), other, rtol=0, atol=tolerance * abs(other).max())
    out = tuple(backend.array(np.zeros(a.shape, dtype)) for a in expected)
    assert all(a is b for a, b in zip(solver.potential_gradient_virial(backend.array(q), out=out), out, strict=True))
    np.testing.assert_allclose(backend.host(out[2]), expected[2], rtol=0, atol=tolerance * abs(expected[2]).max())


def test_systems_have_virials_of_their_own():
    fractions, q = problem(MESHES[0][0])
    boxes = np.array([np.diag((1.0, 2.0, 3.0)), MESHES[0][0]])
    system = np.repeat([0, 1], 6)
    x = np.concatenate([fractions[:6] @ boxes[0], fractions[6:] @ boxes[1]])
    options = dict(window="bspline4", green="ewald", alpha=3.0)
    solver = Solver(pm.Mesh((8, 9, 10), (1.0, 1.0, 1.0)), **options, systems=2)
    solver.set_positions(x, system=system, boxes=boxes)
    virial = solver.potential_gradient_virial(q)[2]
    assert virial.shape == (2, 2, 3, 3)
    for s, box in enumerate(boxes):
        alone = Solver(pm.Mesh((8, 9, 10), pm.Box(box)), **options).set_positions(x[system == s])
        np.testing.assert_allclose(virial[:, s], alone.potential_gradient_virial(q[:, system == s])[2], rtol=1e-10)


def test_what_has_no_virial_is_refused():
    x = np.random.default_rng(1).random((5, 3))
    mesh = pm.Mesh((8, 8, 8), (1.0, 1.0, 1.0))
    solver = Solver(mesh, green=np.cos, compensation=None)
    with pytest.raises(ValueError, match="slope="):
        solver.set_positions(x).potential_gradient_virial(np.ones(5))
    assert np.isfinite(solver.set_positions(x).potential(np.zeros(5))).all()
    with pytest.raises(ValueError, match="slope is for a function"):
        Solver(mesh, green="poisson", slope=np.exp)
    with pytest.raises(TypeError, match="potential, gradient, virial"):
        Solver(mesh).set_positions(x).potential_gradient_virial(np.ones(5), out=np.zeros((3, 3)))
