# SPDX-License-Identifier: BSD-3-Clause
"""Interlaced solvers: both meshes against the plain one, and errors against direct Fourier sums."""

import pickle

import numpy as np
import pytest

import particlemesh as pm
from particlemesh.fourier import Solver

# These solvers are compared with sums, in which a particle pulls itself, too.
pytestmark = pytest.mark.filterwarnings("ignore:gradient='window' conserves energy")

TRICLINIC = [[1.0, 0.0, 0.0], [0.3, 1.2, 0.0], [-0.2, 0.4, 0.9]]
MESHES = {
    "1d": pm.Mesh(9, 2.0, offset=0.25),
    "2d": pm.Mesh((6, 7), (1.0, 2.0), origin=(3.0, 0.0)),
    "3d": pm.Mesh((6, 5, 4), TRICLINIC, offset=(0.0, 0.5, 0.0)),
}
ALPHA = 5.0


def particles(mesh, count=12, seed=3):
    rng = np.random.default_rng(seed)
    q = rng.normal(size=(2, count))
    return rng.random((count, mesh.ndim)) @ mesh.box.matrix + mesh.box.origin, q - q.mean(1, keepdims=True)


def direct(mesh, x, q):
    """Potential and gradient by sums over all modes that the Gaussian leaves."""
    reach = [int(np.ceil(12 * ALPHA * np.linalg.norm(a) / (2 * np.pi))) for a in mesh.box.matrix]
    numbers = np.meshgrid(*[np.arange(-r, r + 1) for r in reach], indexing="ij")
    k = 2 * np.pi * np.stack([n.ravel() for n in numbers], 1) @ np.linalg.inv(mesh.box.matrix).T
    k2 = (k**2).sum(1)
    k, k2 = k[(k2 > 0) & (k2 < (12 * ALPHA) ** 2)], k2[(k2 > 0) & (k2 < (12 * ALPHA) ** 2)]
    phases = np.exp(1j * x @ k.T)
    modes = (q @ phases.conj()) * np.exp(-k2 / (4 * ALPHA**2)) / k2 / abs(np.linalg.det(mesh.box.matrix))
    return (modes @ phases.T).real, np.einsum("ck,pk,kd->cpd", 1j * modes, phases, k).real


def error(got, expected):
    return np.linalg.norm(got - expected) / np.linalg.norm(expected)


@pytest.mark.turns(6)
@pytest.mark.parametrize("gradient", ["window", "ik"])
@pytest.mark.parametrize("name", list(MESHES))
def test_it_averages_two_meshes(backend, name, gradient):
    mesh, dtype = MESHES[name], np.dtype(np.float32)
    x, q = particles(mesh)
    x, q = x.astype(dtype), q.astype(dtype)
    options = dict(green="ewald", alpha=ALPHA, gradient=gradient)
    expected = [0.0, 0.0]
    for one in (mesh, mesh.shifted(0.5)):
        for n, part in enumerate(Solver(one, **options).set_positions(x).potential_and_gradient(q)):
            expected[n] = expected[n] + part / 2
    native, charges = backend.array(x), backend.array(q)
    solver = Solver(mesh, interlaced=True, **options).set_positions(native)
    pair = solver.potential_and_gradient(charges)
    alone = solver.potential(charges), solver.gradient(charges)
    for got in (pair, alone):
        for a, b in zip(got, expected, strict=True):
            host = backend.host(a)
            assert host.dtype == dtype
            np.testing.assert_allclose(host, b, atol=3e-5 * abs(b).max())


@pytest.mark.parametrize("window", ["tsc", "pcs"])
@pytest.mark.parametrize("shape", [(16, 16, 16), (15, 16, 15)], ids=str)
def test_errors_of_aliases_fall(window, shape):
    mesh = pm.Mesh(shape, (1.0, 1.0, 1.0))
    x, q = particles(mesh, 40)
    exact = direct(mesh, x, q)
    errors = []
    for interlaced in (False, True):
        solver = Solver(mesh, window, "ewald", alpha=ALPHA, interlaced=interlaced).set_positions(x)
        errors.append([error(*pair) for pair in zip(solver.potential_and_gradient(q), exact, strict=True)])
    plain, interlaced = np.array(errors)
    assert (plain < 0.03).all()
    assert (interlaced < plain / 3).all()


def test_its_gradient_is_that_of_its_energy_and_so_is_the_virial():
    mesh, step = MESHES["3d"], 1e-5
    x, (q, _) = particles(mesh, 6)
    solver = Solver(mesh, "bspline6", "ewald", alpha=ALPHA, interlaced=True)
    forces = q[:, None] * solver.set_positions(x).gradient(q)

    def energy(x, box=mesh.box):
        other = pm.Mesh(mesh.shape, box, offset=mesh.offset)
        same = Solver(other, "bspline6", "ewald", alpha=ALPHA, interlaced=True)
        return 0.5 * q @ same.set_positions(x).potential(q)

    moved = np.zeros_like(x)
    moved[2, 1] = step
    assert (energy(x + moved) - energy(x - moved)) / (2 * step) == pytest.approx(forces[2, 1], rel=1e-6)
    virial = solver.potential_gradient_virial(q)[2]
    strained = [energy(x @ s.T, pm.Box(mesh.box.matrix @ s.T)) for s in (np.eye(3) + [[0, h, 0], [0] * 3, [0] * 3]
                                                                        for h in (step, -step))]  # fmt: skip
    assert (strained[0] - strained[1]) / (2 * step) == pytest.approx(virial[0, 1], rel=1e-5)
    other = np.random.default_rng(1).normal(size=6)
    assert q @ solver.potential(other) == pytest.approx(other @ solver.potential(q), rel=1e-12)


def test_systems_channels_and_outputs(backend):
    mesh, rng = MESHES["2d"], np.random.default_rng(5)
    x, system, q = rng.random((30, 2)), rng.integers(0, 3, 30).astype(np.int32), rng.normal(size=(2, 30))
    boxes = np.array([[1.0, 2.0], [1.1, 1.9], [1.0, 2.0]])
    options = dict(green="yukawa", kappa=2.0, interlaced=True)
    solver = Solver(mesh, systems=3, **options)
    solver.set_positions(backend.array(x), system=backend.array(system), boxes=boxes)
    charges = backend.array(q)
    out = backend.array(np.zeros((30, 2, 2)).transpose(1, 0, 2)), backend.array(np.zeros((2, 30)))
    solver.potential_and_gradient(charges, out=out[::-1])
    for s in range(3):
        in_system = system == s
        alone = Solver(pm.Mesh(mesh.shape, pm.Box(boxes[s], origin=mesh.box.origin)), **options).set_positions(
            x[in_system]
        )
        for got, expected in zip(out[::-1], alone.potential_and_gradient(q[:, in_system]), strict=True):
            np.testing.assert_allclose(backend.host(got)[:, in_system], expected, atol=1e-9)


def test_bad_positions_change_nothing():
    mesh = MESHES["2d"]
    x, q = particles(mesh)
    solver = Solver(mesh, interlaced=True).set_positions(x)
    before = solver.potential(q)
    bad = x.copy()
    bad[3, 0] = np.nan
    with pytest.raises(ValueError, match="3"):
        solver.set_positions(bad)
    np.testing.assert_array_equal(solver.potential(q), before)


def test_what_it_refuses_and_says():
    mesh = MESHES["2d"]
    with pytest.raises(ValueError, match="open"):
        Solver(pm.Mesh((6, 7), (1.0, 2.0), periodic=(True, False)), interlaced=True)
    with pytest.raises(ValueError, match="order"):
        Solver(mesh, interlaced=True, order="sorted")
    with pytest.raises(TypeError, match="interlaced"):
        Solver(mesh, interlaced=2)
    x, q = particles(mesh)
    solver = Solver(mesh, interlaced=True).set_positions(x)
    assert "twin" in solver.explain() and "average" in solver.explain()
    again = pickle.loads(pickle.dumps(solver)).set_positions(x)
    np.testing.assert_array_equal(again.potential(q), solver.potential(q))
    assert solver.nbytes > 1.3 * Solver(mesh).set_positions(x).nbytes


def test_it_works_again_after_its_twin_has_failed(monkeypatch):
    mesh = MESHES["2d"]
    x, q = particles(mesh)
    solver = Solver(mesh, interlaced=True).set_positions(x)
    before, twin = solver.potential(q), solver._plans[1]

    def fail(*arguments, **options):
        raise MemoryError("no room for the twin")

    with monkeypatch.context() as patch:
        patch.setitem(vars(twin), "set_positions", fail)
        with pytest.raises(MemoryError, match="no room"):
            solver.set_positions(x[::-1])
    with pytest.raises(RuntimeError, match="Call set_positions of the solver"):
        solver.potential(q)
    assert "average" in solver.explain() and solver.nbytes
    np.testing.assert_array_equal(solver.set_positions(x).potential(q), before)


def test_positions_of_its_plan_alone_are_refused():
    mesh = MESHES["1d"]
    x, q = particles(mesh)
    solver = Solver(mesh, interlaced=True, backend="cpu", dtype="float64")
    with pytest.raises(RuntimeError, match="no particles yet"):
        solver.potential(q)
    solver.plan.set_positions(x)
    with pytest.raises(RuntimeError, match="did not set"):
        solver.potential(q)
    expected = solver.set_positions(x).gradient(q)
    solver.plan.reserve(100)  # keeps the positions
    np.testing.assert_array_equal(solver.gradient(q), expected)
    plain = Solver(mesh).set_positions(x)
    plain.plan.set_positions(x + 0.1)
    np.testing.assert_array_equal(plain.potential(q), Solver(mesh).set_positions(x + 0.1).potential(q))


@pytest.mark.backends("cuda")
@pytest.mark.parametrize("gradient", ["window", "ik"])
@pytest.mark.parametrize("interlaced", [False, True])
def test_a_cuda_graph_captures_a_step(backend, gradient, interlaced):
    cupy = backend.cupy
    mesh = pm.Mesh((24, 20, 18), (1.0, 1.0, 1.0))
    rng = np.random.default_rng(1)
    x, q = cupy.asarray(rng.random((3000, 3), np.float32)), cupy.asarray(rng.random(3000, np.float32))
    options = dict(gradient=gradient, interlaced=interlaced)
    solver = Solver(mesh, "bspline5", backend="cuda", dtype="float32", **options).reserve(3000)
    out = cupy.empty(3000, np.float32), cupy.empty((3000, 3), np.float32)

    def step():
        solver.set_positions(x, check=False)
        solver.potential_and_gradient(q, out=out)

    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        step()
        stream.synchronize()
        stream.begin_capture()
        step()
        graph = stream.end_capture()
        x[...] = cupy.asarray(rng.random((3000, 3), np.float32))
        graph.launch(stream)
        stream.synchronize()
    expected = Solver(mesh, "bspline5", **options).set_positions(x.get()).potential_and_gradient(q.get())
    for a, b in zip(out, expected, strict=True):
        np.testing.assert_allclose(a.get(), b, atol=2e-5 * np.abs(b).max())
