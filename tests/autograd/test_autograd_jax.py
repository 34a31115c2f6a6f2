# SPDX-License-Identifier: BSD-3-Clause
"""JAX: derivatives of every mode, compilation, vmap; arrays in plain calls."""

import numpy as np
import pytest

import oracle
import particlemesh as pm

jax = pytest.importorskip("jax", reason="JAX is not installed: pip install particlemesh[jax]")

import jax.numpy as jnp  # noqa: E402
from jax.test_util import check_grads  # noqa: E402

from particlemesh.autograd import jax as transfer  # noqa: E402
from particlemesh.autograd.jax_nufft import nufft1, nufft2  # noqa: E402
from particlemesh.autograd.jax_nufft3 import nufft3  # noqa: E402
from particlemesh.fourier import Solver  # noqa: E402

MESHES = {
    "line": pm.Mesh(7, 2.0),
    "open": pm.Mesh((6, 5), (2.0, 1.5), periodic=(True, False), origin=(0.5, -1.0), offset=(0.25, 0.5)),
    "triclinic": pm.Mesh((5, 6), [[1.0, 0.2], [0.1, 1.3]]),
    "space": pm.Mesh((4, 3, 5), (1.0, 2.0, 1.5)),
}
WINDOW = pm.bspline(5)


@pytest.fixture(autouse=True)
def _wide():
    with jax.enable_x64(True):
        yield


def arrays(mesh, parts, count=4):
    rng = np.random.default_rng(4)

    def normal(*shape):
        return rng.normal(size=shape) + (1j * rng.normal(size=shape) if parts == "complex" else 0)

    d, box = mesh.ndim, mesh.box
    x = box.origin + (0.05 + 0.9 * rng.random((count, d))) @ box.matrix
    return x, np.array(box.matrix), normal(2, count), normal(2, *mesh.shape), normal(2, count, d)


def functions(mesh):
    """Functions of positions, array and cell."""
    options = dict(window=WINDOW)
    calls = {
        "spread": lambda x, q, c=None: transfer.spread(x, q, mesh, cell=c, **options),
        "interpolate": lambda x, f, c=None: transfer.interpolate(f, x, mesh, cell=c, **options),
        "gradient": lambda x, f, c=None: transfer.gradient(f, x, mesh, cell=c, **options),
        "spread_gradient": lambda x, v, c=None: transfer.spread_gradient(x, v, mesh, cell=c, **options),
    }
    return {name: jax.jit(call) for name, call in calls.items()}


@pytest.mark.parametrize(
    ("name", "parts"), [("line", "complex"), ("open", "real"), ("triclinic", "complex"), ("space", "real")]
)
def test_results_are_those_of_plain_sums(name, parts):
    mesh = MESHES[name]
    x, cell, q, f, v = arrays(mesh, parts)
    calls = functions(mesh)
    for name, array in [("spread", q), ("interpolate", f), ("gradient", f), ("spread_gradient", v)]:
        expected = getattr(oracle, name)(mesh, WINDOW, x, array)
        for result in (calls[name](x, array), calls[name](x, array, cell)):
            assert result.dtype == array.dtype
            np.testing.assert_allclose(result, expected, atol=1e-11, err_msg=name)


def test_first_derivatives_forward_and_reverse():
    mesh = MESHES["open"]
    x, cell, q, f, v = arrays(mesh, "complex")
    for name, array in [("spread", q), ("interpolate", f), ("gradient", f), ("spread_gradient", v)]:
        check_grads(functions(mesh)[name], (x, array, cell), order=1, atol=2e-4, rtol=2e-4)


def test_hessians_of_all_modes_agree():
    mesh = MESHES["triclinic"]
    x, _, q, _, _ = arrays(mesh, "real")

    def energy(x):
        return (functions(mesh)["spread"](x, q) ** 2).sum()

    both = jax.jit(jax.jacfwd(jax.jacrev(energy)))(x)
    np.testing.assert_allclose(both, jax.jit(jax.jacfwd(jax.jacfwd(energy)))(x), atol=1e-11)
    np.testing.assert_allclose(both, jax.jit(jax.jacrev(jax.jacrev(energy)))(x), atol=1e-11)
    with pytest.raises(NotImplementedError, match="third derivatives by positions"):
        jax.jit(jax.jacfwd(jax.hessian(energy)))(x)


def test_vmap_equals_a_loop():
    mesh = MESHES["triclinic"]
    x, _, _, _, _ = arrays(mesh, "real")
    rng = np.random.default_rng(9)
    xs, qs = np.stack([x, x + 0.1, 2 * x]), rng.normal(size=(2, 4, 3))
    spread = functions(mesh)["spread"]
    slope = jax.jit(jax.grad(lambda x, q: (spread(x, q) ** 2).sum()))
    for function in (spread, slope):
        for axes in ((0, 2), (None, 2), (0, None)):
            given = [a if n is not None else a.take(0, m) for a, n, m in zip((xs, qs), axes, (0, 2), strict=True)]
            result = jax.jit(jax.vmap(function, axes))(*given)
            for n in range(3):
                one = [a if m is None else a.take(n, m) for a, m in zip(given, axes, strict=True)]
                np.testing.assert_allclose(result[n], function(*one), atol=1e-11)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("where", ["constant", "argument"])
def test_compiled_potentials_of_many_modes_are_the_solvers(where, dtype):
    mesh = pm.Mesh((32, 36, 34), [[1.0, 0.0, 0.1], [0.2, 1.1, 0.0], [0.0, 0.3, 0.9]])
    rng = np.random.default_rng(3)
    x, q, cell = rng.random((5, 3)) @ mesh.box.matrix, rng.normal(size=5), mesh.box.matrix
    expected = Solver(mesh, "bspline5").set_positions(x).potential(q)
    x, q, cell = (jnp.asarray(a, dtype) for a in (x, q, cell))

    def call(x, q, c=None):
        return transfer.potential(x, q, mesh, window="bspline5", cell=c)

    result = jax.jit(call)(*((x, q) if where == "constant" else (x, q, cell)))
    np.testing.assert_allclose(result, expected, rtol=1e-11 if dtype == np.float64 else 1e-3)


def test_single_precision_and_no_particles():
    mesh = MESHES["triclinic"]
    x, _, q, _, _ = arrays(mesh, "real")
    with jax.enable_x64(False):
        field = jax.jit(lambda x, q: transfer.spread(x, q, mesh))(jnp.asarray(x), jnp.asarray(q))
        assert field.dtype == np.float32
        np.testing.assert_allclose(field, oracle.spread(mesh, pm.bspline(4), x, q), atol=1e-5)
    empty = transfer.spread(np.zeros((0, 2)), np.zeros((3, 0)), mesh)
    np.testing.assert_array_equal(empty, np.zeros((3, 5, 6)))


def test_calls_compile_once(caplog):
    x, _, q, _, _ = arrays(MESHES["line"], "real")

    def compilations(mesh, shift):
        caplog.clear()
        with jax.log_compiles():
            transfer.spread(x + shift, q, mesh)
        return [record for record in caplog.records if "Compiling" in record.getMessage()]

    assert compilations(pm.Mesh(11, 2.0), 0)
    for n in range(5):
        assert not compilations(pm.Mesh(11, 3.0 + n), n)


def test_what_is_not_allowed_is_named():
    mesh = MESHES["line"]
    x, _, q, f, _ = arrays(mesh, "real")
    with pytest.raises(ValueError, match=r"values has shape \(2, 3\); it must end with \(4,\)"):
        transfer.spread(x, q[:, :3], mesh)
    with pytest.raises(ValueError, match=r"field has shape \(2, 6\); it must end with \(7,\)"):
        transfer.interpolate(f[:, :6], x, mesh)
    with pytest.raises(TypeError, match="option 'order' is not allowed here"):
        transfer.spread(x, q, mesh, order="sorted")
    with pytest.raises(TypeError, match="positions have dtype int.*; give float32 or float64"):
        transfer.spread([0, 1, 2, 3], q, mesh)  # as integers the box would be another
    for call in (transfer.spread, jax.jit(transfer.spread, static_argnums=2)):
        with pytest.raises((RuntimeError, ValueError), match="positions: 4 not finite of 4"):
            call(x * np.nan, q, mesh).block_until_ready()


@pytest.mark.parametrize("wrong", ["values", "points"])
def test_mixed_types_are_an_error_before_the_call(wrong):
    """Also in traces, whose compiled functions call back later."""
    mesh = MESHES["triclinic"]
    x, cell, q, f, v = arrays(mesh, "real")
    q, f, v = (jnp.asarray(a, np.float16 if wrong == "values" else np.float32) for a in (q, f, v))
    calls = [lambda x: nufft1(x, q, (4, 4)), lambda x: nufft2(x, f), lambda x: nufft3(x, q, x)]
    if wrong == "values":
        calls += [
            lambda x: transfer.spread(x, q, mesh), lambda x: transfer.interpolate(f, x, mesh),
            lambda x: transfer.gradient(f, x, mesh), lambda x: transfer.spread_gradient(x, v, mesh),
            lambda x: transfer.potential(x, q, mesh),
        ]  # fmt: skip
    for call in calls:
        with pytest.raises(TypeError, match=r"dtype.* give (one precision|'float32' or 'float64')"):
            jax.eval_shape(call, x)
    if wrong == "points":  # meshes take fractions: values may be wider, and each slope has the type of its array

        def loss(x, q, cell):
            return (transfer.potential(x, q, mesh, cell=cell) ** 2).sum()

        slopes = jax.eval_shape(jax.grad(loss, (0, 1, 2)), x, q, cell)
        assert [s.dtype.itemsize for s in slopes] == [8, 4, 8]


def test_tracers_are_refused_by_plain_calls():
    mesh = MESHES["triclinic"]
    x, _, q, f, _ = arrays(mesh, "real")
    plan = pm.Plan(mesh).set_positions(jnp.asarray(x))
    calls = [
        lambda: jax.jit(lambda x: pm.spread(x, q, mesh))(x), lambda: jax.grad(lambda q: plan.spread(q).sum())(q[0]),
        lambda: jax.vmap(plan.interpolate)(f),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(TypeError, match=r"traced by jit, grad or vmap.*functions of particlemesh.autograd.jax"):
            call()
    with pytest.raises(TypeError, match="out is a JAX array, and those are never written: leave out= out"):
        plan.spread(jnp.asarray(q), out=jnp.zeros((2, *mesh.shape)))


def test_results_are_no_memory_of_the_plan():
    mesh = MESHES["triclinic"]
    x, _, q, _, _ = arrays(mesh, "real")
    plan = pm.Plan(mesh, order="sorted").set_positions(jnp.asarray(x))
    order, field = plan.order, plan.spread(jnp.asarray(q))
    kept = np.array(order), np.array(field)
    plan.set_positions(jnp.asarray(x[::-1] * 3))
    plan.spread(jnp.asarray(q * 2))
    np.testing.assert_array_equal(order, kept[0])
    np.testing.assert_array_equal(field, kept[1])
