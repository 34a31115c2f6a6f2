# SPDX-License-Identifier: BSD-3-Clause
"""Potentials of many systems in one call: each as if it were alone."""

import itertools

import numpy as np
import pytest

import particlemesh as pm
from particlemesh.fourier import Solver

# These solvers are compared with sums, in which a particle pulls itself, too.
pytestmark = pytest.mark.filterwarnings("ignore:gradient='window' conserves energy")

COUNT, SYSTEMS = 23, 4
TRICLINIC = [[1.0, 0.0, 0.0], [0.3, 1.2, 0.0], [-0.2, 0.4, 0.9]]
MESHES = {
    "line": pm.Mesh(9, 2.0, offset=0.25),
    "plane": pm.Mesh((6, 7), (1.0, 2.0), origin=(3.0, 0.0)),
    "triclinic": pm.Mesh((5, 4, 6), TRICLINIC),
    "open": pm.Mesh((6, 5), pm.Box((1.0, 2.0), periodic=(False, True)), offset=(0.5, 0.0)),
}


def drawn(mesh, rows=None, *, dtype=np.float64):
    """Positions, systems (one of them empty, in no order), values of two channels."""
    rng = np.random.default_rng(8)
    system = rng.choice([0, 1, 3], COUNT)
    rows = np.broadcast_to(mesh.box.matrix, (SYSTEMS, mesh.ndim, mesh.ndim)) if rows is None else rows
    x = np.einsum("nb,nbc->nc", rng.random((COUNT, mesh.ndim)), rows[system]) + mesh.box.origin
    return x.astype(dtype), system, rng.normal(size=(2, COUNT)).astype(dtype)


def boxes_of(mesh):
    return mesh.box.matrix * np.array([1.0, 1.5, 1.0, 0.8]).reshape(-1, 1, 1) + 0.1 * np.arange(4).reshape(-1, 1, 1)


def check(backend, solver, alone, x, system, q, dtype=np.float64):
    """Compare all calls with a solver ``alone(k)`` of each system."""
    phi, slope = (backend.host(a) for a in solver.potential_and_gradient(backend.array(q)))
    close = dict(rtol=0, atol=(2e-4 if dtype == np.float32 else 1e-11) * np.abs(slope).max())
    for k in range(SYSTEMS):
        of = system == k
        expected = alone(k).set_positions(x[of]).potential_and_gradient(q[:, of])
        np.testing.assert_allclose(phi[:, of], expected[0], **close)
        np.testing.assert_allclose(slope[:, of], expected[1], **close)
    np.testing.assert_allclose(backend.host(solver.potential(backend.array(q[0]))), phi[0], **close)
    np.testing.assert_allclose(backend.host(solver.gradient(backend.array(q[1]))), slope[1], **close)


@pytest.mark.parametrize("gradient", ["window", "ik"])
@pytest.mark.parametrize("name", MESHES)
def test_each_system_is_as_if_alone(backend, name, gradient):
    mesh = MESHES[name]
    options = dict(green="yukawa", kappa=2.0, gradient=gradient)
    solver = Solver(mesh, "bspline4", systems=SYSTEMS, **options)
    x, system, q = drawn(mesh)
    solver.set_positions(backend.array(x), system=backend.array(system))
    check(backend, solver, lambda k: Solver(mesh, "bspline4", **options), x, system, q)


@pytest.mark.turns(8)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("gradient", ["window", "ik"])
@pytest.mark.parametrize("name", ["line", "plane", "triclinic"])
def test_boxes_may_differ_and_change(backend, name, gradient, dtype):
    mesh = MESHES[name]
    solver = Solver(mesh, "bspline5", systems=SYSTEMS, gradient=gradient)
    for scale in (1.0, 1.3, None):  # None: all have the mesh's box
        rows = None if scale is None else boxes_of(mesh) * scale
        x, system, q = drawn(mesh, rows, dtype=dtype)
        boxes = None if rows is None else backend.array(rows)
        solver.set_positions(backend.array(x), system=backend.array(system), boxes=boxes)

        def alone(k, rows=rows):
            box = mesh.box if rows is None else pm.Box(rows[k], mesh.box.origin)
            return Solver(pm.Mesh(mesh.shape, box, offset=mesh.offset), "bspline5", gradient=gradient, backend="cpu")

        check(backend, solver, alone, x, system, q, dtype)


def test_potentials_are_those_of_plain_sums_over_modes(backend):
    mesh, alpha = pm.Mesh((24, 24), (1.0, 1.0)), 3.0
    lengths = np.array([[2.0, 3.0], [2.5, 2.5], [2.0, 2.0], [3.0, 2.0]])
    x, system, q = drawn(mesh, lengths[:, :, None] * np.eye(2))
    solver = Solver(mesh, "bspline8", green="ewald", alpha=alpha, systems=SYSTEMS)
    solver.set_positions(backend.array(x), system=backend.array(system), boxes=backend.array(lengths))
    phi = backend.host(solver.potential(backend.array(q[0])))
    expected = np.zeros(COUNT)
    for k in range(SYSTEMS):
        of = system == k
        for mode in itertools.product(range(-11, 12), repeat=2):
            wave = 2 * np.pi * np.array(mode) / lengths[k]
            if any(mode):
                phase = np.exp(1j * x[of] @ wave)
                factor = np.exp(-(wave @ wave) / (4 * alpha**2)) / (wave @ wave) / lengths[k].prod()
                expected[of] += factor * (phase * (q[0, of] @ phase.conj())).real
    np.testing.assert_allclose(phi, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


def test_equal_boxes_keep_their_tables(monkeypatch):
    mesh = MESHES["plane"]
    solver, made = Solver(mesh, systems=SYSTEMS), []
    make = solver._influence.factors
    monkeypatch.setattr(solver._influence, "factors", lambda modes: made.append(modes) or make(modes))
    rows = boxes_of(mesh)
    x, system, q = drawn(mesh, rows)
    results = [solver.set_positions(x, system=system, boxes=rows.copy()).potential(q) for _ in range(3)]
    assert len(made) == SYSTEMS
    np.testing.assert_array_equal(results[0], results[2])


@pytest.mark.parametrize("known", [False, True])
def test_boxes_that_its_plan_alone_was_given_are_refused(known):
    mesh = MESHES["line"]
    rows = boxes_of(mesh)
    x, system, q = drawn(mesh, rows)
    solver = Solver(mesh, systems=SYSTEMS).set_positions(x, system=system, boxes=rows if known else None)
    solver.plan.set_positions(x, system=system, boxes=None if known else rows)
    with pytest.raises(RuntimeError, match=r"Call set_positions of the solver\."):
        solver.potential(q)


def test_refused_boxes_leave_the_solver_as_it_was(backend):
    mesh = MESHES["plane"]
    rows = boxes_of(mesh)
    x, system, q = drawn(mesh, rows)
    given = backend.array(x), backend.array(system), backend.array(q)
    with pytest.raises(TypeError, match="no systems: make it with systems="):
        Solver(mesh).set_positions(given[0], boxes=rows)
    solver = Solver(mesh, systems=SYSTEMS).set_positions(given[0], system=given[1], boxes=rows)
    before = backend.host(solver.potential(given[2])).copy()
    for positions, boxes, error in ((x, rows[:-1], "real lengths"), (x * np.nan, rows * 2, "not finite")):
        with pytest.raises(ValueError, match=error):
            solver.set_positions(backend.array(positions), system=given[1], boxes=boxes)
    np.testing.assert_allclose(backend.host(solver.potential(given[2])), before, rtol=1e-12)
    with pytest.raises(TypeError, match="give system="):
        solver.set_positions(given[0])
