# SPDX-License-Identifier: BSD-3-Clause
"""Transforms, wave vectors, Green functions and compensation of a mesh against sums and closed forms."""

import numpy as np
import pytest

import particlemesh as pm
from particlemesh.fourier import Transform
from particlemesh.fourier.compensation import alias_sum
from particlemesh.window import window_of

TRICLINIC = [[1.0, 0.0, 0.0], [0.3, 1.2, 0.0], [-0.2, 0.4, 0.9]]
MESHES = [
    pm.Mesh(8, 2.0),
    pm.Mesh(7, 2.0, offset=0.25),
    pm.Mesh((6, 5), (1.0, 2.0), offset=(0.5, 0.0)),
    pm.Mesh((4, 5, 6), (1.0, 2.0, 3.0), origin=(1.0, -1.0, 0.0)),
    pm.Mesh((5, 4, 7), TRICLINIC, offset=0.5),
    pm.Mesh((4, 6, 8), TRICLINIC),
]


def named(mesh):
    return f"{mesh.shape}-{'o' if mesh.box.orthorhombic else 't'}-{mesh.offset[0]}"


def node_positions(mesh):
    """Cartesian positions of all nodes, relative to the corner, shape (..., d)."""
    fractions = np.stack(
        np.meshgrid(*[(np.arange(n) + o) / n for n, o in zip(mesh.shape, mesh.offset, strict=True)], indexing="ij"), -1
    )
    return fractions @ mesh.box.matrix


def field_of(mesh, batch=(), *, real=True, dtype=np.float64):
    rng = np.random.default_rng(5)
    field = rng.standard_normal(batch + mesh.shape)
    if not real:
        field = field + 1j * rng.standard_normal(batch + mesh.shape)
    return field.astype(dtype if real else np.result_type(dtype, np.complex64))


def vectors(transform):
    return np.stack(np.broadcast_arrays(*transform.wavenumbers), -1)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("real", [True, False])
@pytest.mark.parametrize("mesh", MESHES, ids=named)
def test_forward_is_the_sum_over_nodes(backend, mesh, real, dtype):
    transform = Transform(mesh, real=real)
    field = field_of(mesh, (2,), real=real, dtype=dtype)
    spectrum = backend.host(transform.forward(backend.array(field)))
    phase = np.exp(-1j * np.tensordot(vectors(transform), node_positions(mesh), (-1, -1)))
    expected = np.tensordot(field, phase, (range(1, 1 + mesh.ndim), range(mesh.ndim, 2 * mesh.ndim)))
    assert spectrum.dtype == np.result_type(dtype, np.complex64)
    np.testing.assert_allclose(spectrum, expected, atol=200 * np.finfo(dtype).eps * np.sqrt(mesh.size))


@pytest.mark.parametrize("order", ["planar", "strided", "interleaved"])
@pytest.mark.parametrize("real", [True, False])
@pytest.mark.parametrize("mesh", MESHES, ids=named)
def test_inverse_undoes_forward_and_changes_no_input(backend, mesh, real, order):
    transform = Transform(mesh, real=real)
    field = field_of(mesh, (2, 1), real=real)
    given = backend.array(field, order)
    spectrum = transform.forward(given)
    np.testing.assert_array_equal(backend.host(given), field)
    before = backend.host(spectrum)
    back = backend.host(transform.inverse(spectrum))
    np.testing.assert_array_equal(backend.host(spectrum), before)
    assert back.dtype == field.dtype
    np.testing.assert_allclose(back, field, atol=1e-13)


@pytest.mark.parametrize("mesh", MESHES, ids=named)
def test_parseval_and_the_adjoint(mesh):
    transform = Transform(mesh, real=False)
    field = field_of(mesh, real=False)
    spectrum = transform.forward(field)
    assert np.vdot(spectrum, spectrum).real == pytest.approx(mesh.size * np.vdot(field, field).real, rel=1e-12)
    other = field_of(mesh, (1,), real=False)[0] * 1j + 0.5
    # <F f, g> = <f, F* g> and F* = size * inverse
    assert np.vdot(other, spectrum) == pytest.approx(np.vdot(mesh.size * transform.inverse(other), field), rel=1e-10)


@pytest.mark.parametrize("mesh", MESHES, ids=named)
def test_gradient_by_ik_is_exact_for_every_mode_below_the_highest(backend, mesh):
    transform = Transform(mesh)
    x = node_positions(mesh)
    highest = [(n - 1) // 2 for n in mesh.shape]
    k = 2 * np.pi * np.array(highest) @ mesh.box.inverse
    field = np.cos(x @ k + 0.3)
    expected = -np.moveaxis(k * np.sin(x @ k + 0.3)[..., None], -1, 0)
    np.testing.assert_allclose(backend.host(transform.gradient(backend.array(field))), expected, atol=1e-11)


def test_the_highest_mode_of_an_even_axis_has_no_slope():
    mesh = pm.Mesh((4, 6), (1.0, 1.0))
    field = np.ones(mesh.shape) * np.array([1, -1, 1, -1])[:, None]
    for real in (True, False):
        gradient = Transform(mesh, real=real).gradient(field if real else field + 0j)
        np.testing.assert_allclose(gradient, 0, atol=1e-12)


def test_meshes_with_different_offsets_have_the_same_modes():
    smooth = pm.Mesh((16, 16), (1.0, 1.5))
    shifted = smooth.shifted((0.5, 0.25))
    modes = []
    for mesh in (smooth, shifted):
        x = node_positions(mesh) * 2 * np.pi / np.array([1.0, 1.5])
        modes.append(Transform(mesh).forward(np.cos(2 * x[..., 0] - x[..., 1] + 0.4)))
    np.testing.assert_allclose(*modes, atol=1e-10)


@pytest.mark.parametrize("shape", [(6, 5, 7), (5, 6, 8)])
def test_another_description_of_one_lattice_gives_the_same_potential(shape):
    """Lattice vectors a, b + a, c - b describe the lattice of a, b, c: modes get other numbers, k stays."""
    rng = np.random.default_rng(2)
    box = np.diag([1.0, 1.2, 0.9])
    sheared = np.array([[1, 0, 0], [1, 1, 0], [0, -1, 1]]) @ box
    waves = rng.integers(-1, 2, (5, 3)) * 2 * np.pi / np.diag(box)
    results = []
    for matrix in (box, sheared):
        mesh = pm.Mesh(shape, matrix)
        x = node_positions(mesh)
        field = sum(np.cos(x @ k + n) for n, k in enumerate(waves) if k.any())
        exact = sum(np.cos(x @ k + n) / (k @ k) for n, k in enumerate(waves) if k.any())
        transform = Transform(mesh)
        results.append(np.abs(transform.apply(field, transform.green("poisson")) - exact).max())
    assert max(results) < 1e-12


@pytest.mark.parametrize("mesh", MESHES, ids=named)
def test_a_function_of_k_leaves_real_fields_real(mesh):
    """i times k: the real and the complex transform agree, and so does the gradient."""
    field = field_of(mesh)
    transform, whole = Transform(mesh), Transform(mesh, real=False)

    def first(*k):
        return 1j * k[0]

    by_function = transform.apply(field, transform.green(first, of="k"))
    complex_result = whole.apply(field + 0j, whole.green(first, of="k"))
    np.testing.assert_allclose(complex_result.imag, 0, atol=1e-11)
    np.testing.assert_allclose(by_function, complex_result.real, atol=1e-11)
    np.testing.assert_allclose(by_function, transform.gradient(field)[0], atol=1e-11)


@pytest.mark.parametrize("name", ["poisson", "yukawa", "ewald"])
@pytest.mark.parametrize("mesh", [m for m in MESHES if m.box.orthorhombic], ids=named)
def test_named_green_functions_and_k_zero(mesh, name):
    transform = Transform(mesh)
    parameters = {"yukawa": {"kappa": 1.5}, "ewald": {"alpha": 2.0}}.get(name, {})
    table = transform.green(name, **parameters)
    k2 = (vectors(transform) ** 2).sum(-1)
    np.testing.assert_allclose(transform.k2, k2, atol=1e-9)
    first = (0,) * mesh.ndim
    assert table[first] == pytest.approx(1 / 1.5**2 if name == "yukawa" else 0.0)
    expected = {
        "poisson": 1 / k2.flat[1:], "yukawa": 1 / (k2.flat[1:] + 2.25), "ewald": np.exp(-k2.flat[1:] / 16) / k2.flat[1:]
    }  # fmt: skip
    np.testing.assert_allclose(table.ravel()[1:], expected[name], rtol=1e-12)
    assert transform.green(name, zero=7.0, **parameters)[first] == 7.0
    np.testing.assert_allclose(
        transform.green(lambda k2: np.exp(-k2)).ravel(), np.exp(-k2).ravel(), rtol=1e-12, atol=1e-300
    )


@pytest.mark.parametrize("name", ["ngp", "cic", "tsc", "bspline5", "m4prime", "kaiser_bessel6", "peskin4"])
def test_sums_over_aliases(name):
    window, angle = window_of(name), 2 * np.pi * np.arange(-4, 6) / 11
    j = np.arange(-40000, 40001)[:, None]
    squares = window.fourier(angle + 2 * np.pi * j) ** 2
    scale = window.fourier(0.0) ** 2
    # Terms fall as 1/j**2 for ngp.
    atol = {"ngp": 2e-5}.get(name, 1e-9) * scale
    np.testing.assert_allclose(alias_sum(window, angle), squares.sum(0), atol=atol)
    signs = np.where(j % 2, -1, 1)
    np.testing.assert_allclose(alias_sum(window, angle, odd=True), (signs * squares).sum(0), atol=atol)


@pytest.mark.parametrize("interlaced", [False, True])
def test_power_is_compensated_by_the_sum_over_aliases(interlaced):
    mesh = pm.Mesh((8, 6), (1.0, 1.0))
    transform = Transform(mesh, "tsc")
    reach = np.arange(-30, 31)[:, None]
    first, second = (
        window_of("tsc").fourier(2 * np.pi * (n + reach)) ** 2 for n in (np.fft.fftfreq(8), np.arange(4) / 6)
    )
    counted = 1 - (reach + reach.T) % 2 * interlaced
    total = np.einsum("ai,ab,bj->ij", first, counted, second)
    np.testing.assert_allclose(transform.compensation("power", interlaced=interlaced), 1 / total, rtol=1e-7)


@pytest.mark.parametrize("kind", ["continuous", "discrete"])
def test_compensation_of_both_directions_is_that_of_the_mesh(kind):
    mesh = pm.Mesh((5, 8), (1.0, 2.0))
    transform = Transform(mesh, "bspline4")
    np.testing.assert_allclose(
        transform.compensation("potential", kind=kind), mesh.compensation("bspline4", kind, power=2, real=True)
    )
    np.testing.assert_allclose(
        transform.compensation("spread", kind=kind), mesh.compensation("bspline4", kind, real=True)
    )


@pytest.mark.parametrize("use", ["spread", "potential"])
def test_a_green_function_may_be_compensated(use):
    transform = Transform(pm.Mesh((5, 8), (1.0, 2.0)), "bspline4")
    np.testing.assert_allclose(
        transform.green("yukawa", kappa=2.0, compensation=use),
        transform.green("yukawa", kappa=2.0) * transform.compensation(use),
    )


@pytest.mark.parametrize("real", [True, False])
def test_interlacing_removes_odd_aliases(backend, real):
    """A wave above the highest mode appears at its odd alias without interlacing only."""
    mesh = pm.Mesh(8, 1.0)
    x = np.arange(4096) / 4096
    transform = Transform(mesh, "cic", real=real)
    kind = float if real else complex
    wave = np.cos(2 * np.pi * 7 * x).astype(kind)
    position = backend.array(x[:, None])
    plain = backend.host(transform.modes(position, backend.array(wave)))
    interlaced = backend.host(transform.modes(position, backend.array(wave), interlaced=True))
    assert abs(plain[1]) > 10
    assert np.abs(interlaced).max() < 1e-9
    low = np.cos(2 * np.pi * 2 * x).astype(kind)
    modes = backend.host(transform.modes(position, backend.array(low), interlaced=True)) * transform.compensation(
        "spread"
    )
    assert modes[2] == pytest.approx(2048, rel=1e-6)


def test_the_kind_of_arrays_comes_back():
    torch = pytest.importorskip("torch")
    mesh = pm.Mesh((4, 6), (1.0, 1.0))
    field = field_of(mesh)
    transform = Transform(mesh)
    spectrum = transform.forward(torch.from_numpy(field))
    assert isinstance(spectrum, torch.Tensor)
    np.testing.assert_allclose(spectrum.numpy(), transform.forward(field))
    np.testing.assert_allclose(transform.inverse(spectrum).numpy(), field, atol=1e-14)


def test_one_transform_serves_all_devices(backend):
    mesh = pm.Mesh((4, 6), (1.0, 1.0))
    field = field_of(mesh)
    transform = Transform(mesh)
    host = transform.gradient(field)
    for _ in range(2):
        np.testing.assert_allclose(backend.host(transform.gradient(backend.array(field))), host, atol=1e-12)
        np.testing.assert_array_equal(transform.gradient(field), host)


def test_a_named_backend_takes_host_arrays(backend):
    mesh = pm.Mesh((4, 6), (1.0, 1.0))
    field = field_of(mesh)
    transform = Transform(mesh, backend=backend.name, dtype="float64")
    spectrum = transform.forward(field)
    assert isinstance(spectrum, np.ndarray)
    np.testing.assert_allclose(spectrum, np.fft.rfftn(field), atol=1e-12)
    np.testing.assert_allclose(transform.inverse(spectrum), field, atol=1e-13)


def test_bad_arguments_are_refused():
    mesh = pm.Mesh((4, 6), (1.0, 1.0))
    transform = Transform(mesh)
    with pytest.raises(TypeError, match="Mesh"):
        Transform((4, 6))
    with pytest.raises(ValueError, match="fold_ghosts"):
        Transform(pm.Mesh(8, 1.0, ghosts=2))
    with pytest.raises(TypeError, match="real=False"):
        transform.forward(np.zeros((4, 6), complex))
    with pytest.raises(ValueError, match="field has shape"):
        transform.forward(np.zeros((4, 5)))
    with pytest.raises(TypeError, match="float64"):
        Transform(mesh, dtype="float32").forward(np.zeros((4, 6)))
    with pytest.raises(ValueError, match="factors have shape"):
        transform.apply(np.zeros((4, 6)), np.ones(3))
    with pytest.raises(ValueError, match="needs kappa"):
        transform.green("yukawa")
    with pytest.raises(ValueError, match="has no alpha"):
        transform.green("poisson", alpha=1.0)
    with pytest.raises(ValueError, match="beside a function"):
        transform.green(np.sqrt, alpha=1.0)
    with pytest.raises(ValueError, match="choose from"):
        transform.green("coulomb")
    with pytest.raises(ValueError, match="not finite at"):
        transform.green(lambda k2: np.full_like(k2, np.nan), zero=0.0)
    with pytest.raises(ValueError, match="compensation is"):
        transform.green("poisson", compensation="power")
    with pytest.raises(ValueError, match="leave out interlaced"):
        transform.compensation("spread", interlaced=True)
    with pytest.raises(ValueError, match="leave out kind"):
        transform.compensation("power", kind="discrete")
    half_open = pm.Mesh((4, 6), (1.0, 1.0), periodic=(True, False), offset=0.5)
    with pytest.raises(ValueError, match="axis 1 is open"):
        Transform(half_open).gradient(np.zeros((4, 6)))
    with pytest.raises(ValueError, match="open axes"):
        Transform(half_open).green(np.sqrt)
    with pytest.raises(ValueError, match="leave it out"):
        Transform(half_open).green("poisson", zero=0.0)
    with pytest.raises(ValueError, match="triclinic"):
        Transform(pm.Mesh((4, 4), [[1, 0.1], [0, 1]], periodic=(True, False), offset=0.5)).green("poisson")


def test_windows_transform_denormal_wavenumbers():
    k = np.array([0.0, 5e-324, 1e-310, 1e-160])
    np.testing.assert_allclose(pm.bspline(4).fourier(k), 1, rtol=1e-15)
