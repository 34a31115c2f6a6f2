# SPDX-License-Identifier: BSD-3-Clause
"""What a solver does between spreading and interpolating."""

import numpy as np
import pytest

import particlemesh as pm
from particlemesh.fourier import Solver
from scarce import Scarce

TRICLINIC = [[1.0, 0.0, 0.0], [0.3, 1.2, 0.0], [-0.2, 0.4, 0.9]]
MESHES = {
    "1d": pm.Mesh(9, 2.0, offset=0.25),
    "2d": pm.Mesh((6, 7), (1.0, 2.0)),
    "3d": pm.Mesh((5, 4, 7), TRICLINIC),
    "open": pm.Mesh((5, 6, 4), pm.Box((1.0, 2.0, 1.5), periodic=(True, False, True))),
}


def particles(mesh, count=17):
    rng = np.random.default_rng(3)
    return rng.random((count, mesh.ndim)) @ mesh.box.matrix, rng.standard_normal((2, count))


@pytest.mark.backends("cpu", "opencl", "cuda")
@pytest.mark.parametrize("name", MESHES)
@pytest.mark.parametrize("order", ["planar", "interleaved", "strided"])
def test_it_is_what_potential_does_between_spreading_and_interpolating(backend, name, order):
    mesh = MESHES[name]
    x, q = particles(mesh)
    solver = Solver(mesh, "bspline4", green="ewald", alpha=2.0).set_positions(backend.array(x))
    plan, expected = solver.plan, backend.host(solver.potential(backend.array(q)))
    field = backend.array(backend.host(plan.spread(backend.array(q))), order)
    before = backend.host(field)
    np.testing.assert_allclose(
        backend.host(plan.interpolate(solver.potential_field(field))), expected, rtol=1e-11, atol=1e-11
    )
    out = backend.array(np.full(before.shape, np.nan), order)
    assert solver.potential_field(field, out=out) is out
    np.testing.assert_allclose(backend.host(plan.interpolate(out)), expected, rtol=1e-11, atol=1e-11)
    np.testing.assert_array_equal(backend.host(field), before)


@pytest.mark.backends("cpu", "opencl", "cuda")
def test_systems(backend):
    mesh, owner = MESHES["3d"], (np.arange(17) % 3).astype(np.int32)
    x, q = particles(mesh)
    boxes = np.array([mesh.box.matrix * s for s in (1.0, 1.1, 0.9)])
    for more in ({}, {"boxes": boxes}):
        solver = Solver(mesh, systems=3).set_positions(backend.array(x), system=backend.array(owner), **more)
        field = solver.plan.spread(backend.array(q))
        phi = solver.plan.interpolate(solver.potential_field(field))
        np.testing.assert_allclose(
            backend.host(phi), backend.host(solver.potential(backend.array(q))), rtol=1e-11, atol=1e-11
        )


@pytest.mark.backends("cpu", "opencl", "cuda")
@pytest.mark.parametrize("name", ["1d", "2d", "3d", "open", "systems"])
def test_the_virial_is_that_of_the_same_sums_spread_by_the_solver(backend, name):
    mesh, owner = MESHES.get(name, MESHES["3d"]), backend.array((np.arange(17) % 3).astype(np.int32))
    x, q = (backend.array(a) for a in particles(mesh))
    solver = Solver(mesh, "bspline4", green="ewald", alpha=2.0, systems=3 if name == "systems" else None)
    solver.set_positions(x, **({"system": owner} if name == "systems" else {}))
    field = solver.plan.spread(q)
    potential, virial = solver.potential_field_virial(field)
    expected = backend.host(solver.potential_gradient_virial(q)[2])
    assert expected.shape[-2:] == (mesh.ndim,) * 2
    np.testing.assert_allclose(backend.host(virial), expected, rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(
        backend.host(potential), backend.host(solver.potential_field(field)), rtol=1e-11, atol=1e-11
    )
    again = solver.potential_field_virial(field, out=(potential, virial))
    assert again[0] is potential and again[1] is virial
    np.testing.assert_allclose(backend.host(virial), expected, rtol=1e-11, atol=1e-11)


@pytest.mark.backends("opencl", "cuda")
@pytest.mark.parametrize("name", ["3d", "open"])
def test_a_second_call_allocates_nothing(backend, name, monkeypatch):
    if backend.name == "opencl":
        pytest.importorskip("pyvkfft", reason="without pyvkfft the host transforms")
    mesh = MESHES[name]
    x, q = particles(mesh)
    solver = Solver(mesh).set_positions(backend.array(x))
    field = solver.plan.spread(backend.array(q))
    out = solver.potential_field(field)
    monkeypatch.setattr(backend.library, "empty", Scarce(backend.library.empty, 0))
    monkeypatch.setattr(backend.library, "upload", Scarce(backend.library.upload, 0))
    solver.potential_field(field, out=out)


def test_wrong_fields_are_explained():
    mesh = MESHES["2d"]
    x, q = particles(mesh)
    solver = Solver(mesh)
    with pytest.raises(RuntimeError, match="no particles yet"):
        solver.potential_field(np.zeros((6, 7)))
    solver.set_positions(x)
    field = solver.plan.spread(q[0])
    with pytest.raises(ValueError, match="field"):
        solver.potential_field(field[:5])
    with pytest.raises(TypeError, match="complex"):
        solver.potential_field(field * 1j)
    with pytest.raises(ValueError, match="memory"):
        solver.potential_field(field, out=field)
    with pytest.raises(ValueError, match="memory"):
        solver.potential_field_virial(field, out=(np.zeros_like(field), field[:2, :2]))
    with pytest.raises(ValueError, match="interlaced solver has two meshes"):
        Solver(mesh, interlaced=True).set_positions(x).potential_field(field)
