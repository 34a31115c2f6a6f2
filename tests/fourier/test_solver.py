# SPDX-License-Identifier: BSD-3-Clause
"""The solver against the plain oracle, crystals, and charges in free space."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from scipy.special import erf

import oracle
import particlemesh as pm
from particlemesh.fourier import Solver
from particlemesh.window import window_of

# These solvers are compared with sums, in which a particle pulls itself, too.
pytestmark = pytest.mark.filterwarnings("ignore:gradient='window' conserves energy")

TRICLINIC = [[1.0, 0.0, 0.0], [0.3, 1.2, 0.0], [-0.2, 0.4, 0.9]]
MESHES = [
    pm.Mesh(9, 2.0, offset=0.25),
    pm.Mesh((6, 7), (1.0, 2.0), origin=(3.0, 0.0)),
    pm.Mesh((7, 6, 5), (1.0, 2.0, 3.0), offset=(0.0, 0.5, 0.0)),
    pm.Mesh((5, 4, 7), TRICLINIC),
]


def named(mesh):
    return f"{mesh.shape}-{'o' if mesh.box.orthorhombic else 't'}"


def particles(mesh, count=17, dtype=np.float64, seed=3):
    rng = np.random.default_rng(seed)
    x = (rng.random((count, mesh.ndim)) @ mesh.box.matrix + mesh.box.origin).astype(dtype)
    return x, rng.standard_normal((2, count)).astype(dtype)


def expected(mesh, window, x, q, kind):
    """Oracle: spread, every mode by itself, interpolate; on odd or even axes with the mesh's wave vectors."""
    window = window_of(window)
    density = oracle.spread(mesh, window, x, q) / mesh.node_volume
    kx = mesh.wavenumbers()
    k2 = sum(k**2 for k in kx)
    # The highest mode of an even axis is +k and -k.
    flipped = [np.array(np.broadcast_to(k, mesh.shape)) for k in kx]
    for axis, n in enumerate(mesh.shape):
        if n % 2 == 0:
            index = [slice(None)] * mesh.ndim
            index[axis] = n // 2
            for b in range(mesh.ndim):
                flipped[b][tuple(index)] += 2 * np.pi * mesh.box.inverse[axis, b] * n
    green = np.zeros(mesh.shape)
    with np.errstate(divide="ignore"):
        for k in (k2, sum(k**2 for k in flipped)):
            green += 0.5 / np.broadcast_to(k, mesh.shape)
    green[(0,) * mesh.ndim] = 0
    green = green * mesh.compensation(window, kind, power=2)
    axes = tuple(range(-mesh.ndim, 0))
    field = np.fft.ifftn(np.fft.fftn(density, axes=axes) * green, axes=axes)
    np.testing.assert_allclose(field.imag, 0, atol=1e-10)
    return oracle.interpolate(mesh, window, x, field.real), oracle.gradient(mesh, window, x, field.real)


def close(got, expected, dtype):
    tolerance = {np.float32: 3e-5, np.float64: 1e-11}[dtype]
    assert got.shape == expected.shape
    assert got.dtype == dtype
    assert np.abs(got - expected).max() <= tolerance * np.abs(expected).max()


@pytest.mark.parametrize("kind", ["continuous", "discrete"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("mesh", MESHES, ids=named)
def test_potential_and_gradient_equal_the_oracle(backend, mesh, dtype, kind):
    x, q = particles(mesh, dtype=dtype)
    phi, slopes = expected(mesh, "bspline4", x, q, kind)
    solver = Solver(mesh, "bspline4", compensation=kind, gradient="window").set_positions(backend.array(x))
    close(backend.host(solver.potential(backend.array(q))), phi, dtype)
    close(backend.host(solver.gradient(backend.array(q[0]))), slopes[0], dtype)
    both = solver.potential_and_gradient(backend.array(q))
    close(backend.host(both[0]), phi, dtype)
    close(backend.host(both[1]), slopes, dtype)


@pytest.mark.parametrize("mesh", MESHES, ids=named)
def test_gradients_by_ik_are_those_of_the_mode(backend, mesh):
    """By ik, each component is a field of its own, interpolated like the potential."""
    x, q = particles(mesh)
    numbers = [np.where(2 * abs(n) == size, 0, n) for n, size in zip(
        (np.rint(np.fft.fftfreq(size) * size) for size in mesh.shape), mesh.shape, strict=True)]  # fmt: skip
    solver = Solver(mesh, "bspline4", gradient="ik", compensation="continuous").set_positions(backend.array(x))
    phi, slopes = solver.potential_and_gradient(backend.array(q.reshape(2, 1, -1)))
    reference = Solver(mesh, "bspline4", compensation="continuous").set_positions(x)
    close(backend.host(phi), reference.potential(q.reshape(2, 1, -1)), np.float64)
    close(backend.host(solver.gradient(backend.array(q))), backend.host(slopes)[:, 0], np.float64)
    for a in range(mesh.ndim):
        grid = np.meshgrid(*numbers, indexing="ij")
        k = sum(2 * np.pi * mesh.box.inverse[b, a] * grid[b] for b in range(mesh.ndim))

        def green(*vector, k=k):
            half = tuple(slice(0, n) for n in np.broadcast_shapes(*(v.shape for v in vector)))
            with np.errstate(divide="ignore", invalid="ignore"):
                return 1j * k[half] / sum(v**2 for v in vector)

        # The average over +k and -k of 1/k**2 is made in the solver; odd parts have none of it.
        component = Solver(mesh, "bspline4", green, of="k", compensation="continuous").set_positions(x).potential(q)
        close(backend.host(slopes)[:, 0, :, a], component, np.float64)


@pytest.mark.parametrize("offset", [0.0, 0.5])
def test_two_smooth_charges_in_free_space(backend, offset):
    """Also at the corners of the box, where stencils reach beyond it."""
    mesh = pm.Mesh((25, 20, 30), (1.25, 1.0, 1.5), periodic=False, offset=offset, origin=(5.0, 0.0, -1.0))
    low, high = np.array([5.0, 0.0, -1.0]), np.array([6.25, 1.0, 0.5])
    x = np.array([low, high, [5.4, 0.35, -0.6], [5.6, 0.5, -0.3]])
    q = np.array([1.0, 2.0, -1.5, 0.5])
    alpha = 7.0
    solver = Solver(mesh, "bspline8", "ewald", alpha=alpha).set_positions(backend.array(x))
    phi, slopes = solver.potential_and_gradient(backend.array(q))
    d = x[:, None] - x
    r = np.linalg.norm(d, axis=-1) + np.eye(4)
    pair = np.where(np.eye(4), 2 * alpha / np.sqrt(np.pi), erf(alpha * r) / r)
    slope = 2 * alpha / np.sqrt(np.pi) * np.exp(-((alpha * r) ** 2)) / r - erf(alpha * r) / r**2
    slope = np.where(np.eye(4), 0, slope / r)
    np.testing.assert_allclose(4 * np.pi * backend.host(phi), pair @ q, rtol=2e-6)
    np.testing.assert_allclose(4 * np.pi * backend.host(slopes), np.einsum("ijk,ij,j->ik", d, slope, q), atol=5e-4)


@pytest.mark.parametrize("gradient", ["window", "ik"])
@pytest.mark.parametrize("order", ["planar", "strided"])
def test_results_go_to_the_named_outputs(backend, gradient, order):
    mesh = MESHES[2]
    x, q = particles(mesh)
    solver = Solver(mesh, gradient=gradient, backend=backend.name, dtype="float64").reserve(len(x), channels=2)
    solver.set_positions(backend.array(x), check=False)
    expected = Solver(mesh, gradient=gradient).set_positions(x).potential_and_gradient(q)
    values = backend.array(q, order)
    out = tuple(backend.array(np.full(w.shape, np.nan), order) for w in expected)
    size = solver.nbytes
    for _ in range(4):  # the third call on is replayed
        got = solver.potential_and_gradient(values, out=out)
        assert got[0] is out[0] and got[1] is out[1]
        for a, b in zip(got, expected, strict=True):
            np.testing.assert_allclose(backend.host(a), b, rtol=1e-11)
    assert solver.nbytes >= size > 0
    np.testing.assert_array_equal(backend.host(values), q)
    single = solver.gradient(backend.array(q[1]), out=backend.array(np.full(expected[1][1].shape, np.nan)))
    np.testing.assert_allclose(backend.host(single), expected[1][1], rtol=1e-11)


@pytest.mark.parametrize("virial", [False, True])
@pytest.mark.parametrize("gradient", ["window", "ik"])
@pytest.mark.parametrize("more", [{}, dict(interlaced=True), dict(systems=3)], ids=str)
def test_after_reserve_calls_allocate_nothing(backend, more, gradient, virial, monkeypatch):
    mesh = MESHES[2]
    x, q = particles(mesh)
    solver = Solver(mesh, gradient=gradient, backend=backend.name, dtype="float64", **more)
    solver.reserve(len(x), channels=2, virial=virial)
    held = {name: memory.size for name, memory in solver._work._memory.items()}
    system = backend.array(np.arange(len(x), dtype=np.int32) % 3) if "systems" in more else None
    x, q, sizes = backend.array(x), backend.array(q), []
    solver.set_positions(x, system=system)
    call = solver.potential_gradient_virial if virial else solver.potential_and_gradient
    out = call(q)
    assert {name: memory.size for name, memory in solver._work._memory.items()} == held

    def step():
        solver.set_positions(x, system=system, check=False)
        call(q, out=out)
        solver.potential(q, out=out[0])
        solver.gradient(q, out=out[1])

    step()
    if backend.name == "cpu":
        return
    plain = type(backend.library).empty

    def empty(self, shape, dtype):
        sizes.append(shape)
        return plain(self, shape, dtype)

    monkeypatch.setattr(type(backend.library), "empty", empty)
    before = solver.nbytes
    step()
    assert sizes == []
    assert solver.nbytes == before


def test_host_arrays_go_to_a_named_backend_and_back(backend):
    mesh = MESHES[1]
    x, q = particles(mesh)
    expected = Solver(mesh).set_positions(x).potential_and_gradient(q)
    got = Solver(mesh, backend=backend.name).set_positions(x).potential_and_gradient(q)
    for a, b in zip(got, expected, strict=True):
        assert isinstance(a, np.ndarray)
        np.testing.assert_allclose(a, b, rtol=1e-11)


@pytest.mark.parametrize("gradient", ["window", "ik"])
def test_values_may_be_in_the_plans_order(backend, gradient):
    mesh = MESHES[2]
    x, q = particles(mesh, 300)
    expected = Solver(mesh, gradient=gradient).set_positions(x).potential_and_gradient(q)
    solver = Solver(mesh, gradient=gradient, order="sorted").set_positions(backend.array(x))
    order = backend.host(solver.plan.order)
    got = solver.potential_and_gradient(backend.array(q[:, order]))
    np.testing.assert_allclose(backend.host(got[0]), expected[0][:, order], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(backend.host(got[1]), expected[1][:, order], rtol=1e-8, atol=1e-11)
    assert backend.name == "cpu" or (order != np.arange(300)).any()  # here the CPU has one tile


def test_tensors_give_tensors():
    torch = pytest.importorskip("torch")
    mesh = MESHES[1]
    x, q = particles(mesh)
    got = Solver(mesh).set_positions(torch.from_numpy(x)).potential(torch.from_numpy(q))
    assert isinstance(got, torch.Tensor)
    np.testing.assert_allclose(got.numpy(), Solver(mesh).set_positions(x).potential(q), rtol=1e-12)


@pytest.mark.parametrize("count", [0, 1])
def test_few_particles_and_no_channels(backend, count):
    mesh = MESHES[1]
    solver = Solver(mesh).set_positions(backend.array(np.full((count, 2), 3.1)))
    phi, slopes = solver.potential_and_gradient(backend.array(np.ones((3, count))))
    assert phi.shape == (3, count) and slopes.shape == (3, count, 2)
    assert np.isfinite(backend.host(phi)).all()


@pytest.mark.parametrize(
    "mesh", [MESHES[3], pm.Mesh((6, 7), (1.0, 1.5), periodic=(True, False), offset=0.5)], ids=named
)
def test_action_equals_reaction(mesh):
    """The potential of one set of charges at another is that of the other at the one: the operator is symmetric."""
    x, q = particles(mesh)
    phi, slopes = Solver(mesh, "bspline4").set_positions(x).potential_and_gradient(q)
    assert q[0] @ phi[1] == pytest.approx(q[1] @ phi[0], rel=1e-12)
    assert abs(phi).max() > 0 and abs(slopes).max() > 0


def test_equal_calls_and_other_particles():
    """The solver keeps nothing of earlier particles, channels or values."""
    mesh = MESHES[2]
    solver = Solver(mesh)
    for count, channels in ((40, 3), (7, 1), (55, 2)):
        x, _ = particles(mesh, count, seed=count)
        q = np.random.default_rng(count).random((channels, count))
        got = solver.set_positions(x).potential(q)
        np.testing.assert_allclose(got, Solver(mesh).set_positions(x).potential(q), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("nodes", [(24, 30, 20), (48, 60, 40)])
def test_gaussians_in_free_space_are_exact_on_fine_meshes(nodes):
    """The images of the cut Green function are blurred, too: they must not come within reach."""
    lengths, alpha = np.array([2.5, 3.0, 2.0]), 1.6
    x = np.vstack([np.random.default_rng(2).random((20, 3)), np.eye(3), 1 - np.eye(3)]) * lengths
    q = np.random.default_rng(3).standard_normal(len(x))
    r = np.linalg.norm(x[:, None] - x, axis=-1) + np.eye(len(x))
    expected = (np.where(np.eye(len(x)), 2 * alpha / np.sqrt(np.pi), erf(alpha * r) / r) @ q) / (4 * np.pi)
    box = pm.Box(lengths, periodic=False)
    result = Solver(pm.Mesh(nodes, box), "bspline12", green="ewald", alpha=alpha).set_positions(x).potential(q)
    np.testing.assert_allclose(result, expected, rtol=0, atol=2e-13)


def test_a_second_thread_is_refused():
    mesh = MESHES[1]
    x, q = particles(mesh)
    solver = Solver(mesh).set_positions(x)
    with solver.busy, ThreadPoolExecutor(1) as pool, pytest.raises(RuntimeError, match="another thread"):
        pool.submit(solver.potential, q).result()
    solver.potential(q)


def test_explanations_name_stages_and_memory(backend):
    mesh = MESHES[1]
    solver = Solver(mesh, "cic", "yukawa", kappa=2.0).set_positions(backend.array(particles(mesh)[0]))
    text = solver.explain()
    for word in (
        "yukawa",
        "6 x 7 nodes",
        "forward, multiply by the table and 2 times by ik, backward",
        "bytes",
        "fft",
        "spread",
    ):
        assert word.lower() in text.lower(), text
    assert "padded" not in text


def test_bad_arguments_are_refused():
    mesh = MESHES[1]
    x, q = particles(mesh)
    with pytest.raises(ValueError, match="without"):
        Solver(pm.Mesh(8, 1.0, ghosts=4))
    with pytest.raises(ValueError, match="gradient is"):
        Solver(mesh, gradient="differences")
    with pytest.raises(ValueError, match="compensation is"):
        Solver(mesh, compensation="both")
    with pytest.raises(ValueError, match="needs alpha"):
        Solver(mesh, green="ewald")
    with pytest.raises(RuntimeError, match="set_positions first"):
        Solver(mesh).potential(q)
    with pytest.raises(ValueError, match="reserve needs"):
        Solver(mesh).reserve(10)
    solver = Solver(mesh).set_positions(x)
    with pytest.raises(TypeError, match="two channels"):
        solver.potential(q + 0j)
    with pytest.raises(ValueError, match="values has shape|values have shape|shape"):
        solver.potential(q[:, :-1])
    with pytest.raises(TypeError, match="one array for each of potential, gradient"):
        solver.potential_and_gradient(q, out=np.zeros_like(q))
    with pytest.raises(ValueError, match="out has shape"):
        solver.potential(q, out=np.zeros(3))
    with pytest.raises(ValueError, match="shares memory"):
        solver.potential(q, out=q)
    with pytest.raises(ValueError, match="outside an open axis"):
        Solver(pm.Mesh(8, 1.0, periodic=False, offset=0.5)).set_positions([1.5])
