# SPDX-License-Identifier: BSD-3-Clause
"""Second derivatives and their adjoint: against the oracle, and the laws that they keep."""

import functools

import numpy as np
import pytest

import oracle
import particlemesh as pm
from cases import FACTORS, Row, case_of
from covering import covering
from devices import METHODS

FEWER = {
    "window": ["ngp", "cic", "tsc", "bspline6", "bspline9", "m4prime", "kaiser_bessel6"],
    "boundary": FACTORS["boundary"],
    "batch": ["none", "2", "2x3", "5"],
    "layout": FACTORS["layout"],
    "precision": FACTORS["precision"],
    "dimension": FACTORS["dimension"],
    "size": ["odd", "below-support", "one"],
    "method": ["auto", "deterministic", "0", "1", "2"],  # of those with second derivatives, the n-th
    "kind": FACTORS["kind"],
    "order": ["caller", "sorted"],
}
ROWS = covering(FEWER)


def able(direction, backend):
    return [m.name for m in METHODS[direction] if backend.name in m.backends and m.derivatives > 1]


@functools.cache
def problem(index):
    named = dict(zip(FEWER, ROWS[index], strict=True))
    method, order = named.pop("method"), named.pop("order")
    case = case_of(Row(method="", count="7", **named), index)
    rng = np.random.default_rng(index)
    tensors = np.multiply.outer(case.vectors, np.ones(case.mesh.ndim)) * rng.normal(size=(case.mesh.ndim,) * 2)
    return named, method, order, case, tensors.astype(case.values.dtype)


def made(backend, name, order, case, precision):
    options = {"deterministic": name == "deterministic", "order": order}
    if name.isdigit():
        for keyword, direction in (("method", "spread"), ("interpolation", "interpolate")):
            methods = able(direction, backend)
            options[keyword] = methods[int(name) % len(methods)]
    real = "float64" if precision == "float64" else "float32"
    return pm.Plan(case.mesh, case.window, dtype=real, **options).set_positions(backend.array(case.positions))


@pytest.mark.whole
@pytest.mark.parametrize("index", range(len(ROWS)), ids=lambda n: "-".join(ROWS[n]))
def test_second_derivatives_keep_every_law(backend, index, request):
    if request.config.thins and backend.name == "opencl" and index % 8:
        pytest.skip("PoCL compiles slowly: every eighth row there, and all with --thorough and on GPUs")
    named, method, order, case, tensors = problem(index)
    mesh, field = case.mesh, case.field
    places = case.positions
    with made(backend, method, order, case, named["precision"]) as plan:
        if order == "sorted":
            index = np.asarray(plan.order if isinstance(plan.order, np.ndarray) else backend.host(plan.order))
            places, tensors = places[index], tensors[..., index, :, :]
        by_node, bound = oracle.curvatures(mesh, case.window, places)
        d, nodes = mesh.ndim, field[..., :1].size and int(np.prod(mesh.field_shape))
        flat = field.reshape(*field.shape[: field.ndim - d], nodes)
        by_node, bound = (a.reshape(*a.shape[:3], nodes) for a in (by_node, bound))
        real = case.values.real.dtype
        eps = np.finfo(real).eps
        place = eps if named["precision"] == "mixed" else eps * (8 + 4 * max(mesh.field_shape))
        allowed = 64 * eps + 64 * place  # of rounded sums, and of rounded fractions: their terms bend further

        def near(result, expected, scale):
            assert result.shape == expected.shape
            assert result.dtype == case.values.dtype
            assert np.abs(result - expected).max() <= allowed * scale.max() + np.finfo(real).tiny

        def empty(shape):
            return backend.array(np.full(shape, 7, case.values.dtype), named["layout"])

        given = backend.array(field, named["layout"])
        shape = (*flat.shape[:-1], len(places), d, d)
        out = empty(shape)
        assert plan.hessian(given, out=out) is out
        second = backend.host(out)
        expected, scale = (
            np.einsum("...m,pabm->...pab", flat, by_node),
            np.einsum("...m,pabm->...pab", abs(flat), bound),
        )
        near(second, expected, scale)
        np.testing.assert_array_equal(second, second.swapaxes(-1, -2))
        np.testing.assert_array_equal(backend.host(plan.hessian(given, out=empty(shape))), second)

        outs = empty(shape[:-2]), empty(shape[:-1]), empty(shape)
        assert plan.value_gradient_hessian(given, out=outs) == outs
        all_three = [backend.host(a) for a in outs]
        near(all_three[2], expected, scale)
        close = 2e-5 if real == np.float32 else 1e-12
        for result, alone in zip(all_three, (plan.interpolate(given), plan.gradient(given)), strict=False):
            alone = backend.host(alone)
            np.testing.assert_allclose(result, alone, rtol=0, atol=close * (1 + np.abs(alone).max()))

        put = backend.array(tensors, named["layout"])
        spread = empty(field.shape)
        assert plan.spread_hessian(put, out=spread) is spread
        spread = backend.host(spread).reshape(flat.shape)
        near(spread, np.tensordot(tensors, by_node, 3), np.tensordot(abs(tensors), bound, 3))
        turned = backend.host(plan.spread_hessian(backend.array(tensors.swapaxes(-1, -2).copy(), named["layout"])))
        near(turned.reshape(flat.shape), spread, np.tensordot(abs(tensors), bound, 3))
        both = backend.array(field, named["layout"])
        plan.spread_hessian(put, out=both, accumulate=True)
        near(backend.host(both).reshape(flat.shape), flat + spread, np.tensordot(abs(tensors), bound, 3) + abs(flat))

        left, right = (spread.astype(complex) * flat).sum(), (tensors.astype(complex) * second).sum()
        terms = (np.abs(tensors)[..., None] * bound * np.abs(flat)[..., None, None, None, :]).sum()
        assert abs(left - right) <= 64 * eps * terms + 1e-300, "spreading and interpolation are adjoint"


def test_every_pair_is_covered():
    assert {row[list(FEWER).index("boundary")] for row in ROWS} == set(FEWER["boundary"])
    assert len(ROWS) < 1.2 * 49


SKEWED = pm.Box(np.array([[2.0, 0, 0], [0.3, 1.5, 0], [-0.4, 0.5, 2.5]]), origin=(0.1, 0.2, 0.3))


@pytest.mark.parametrize("real", ["float32", "float64"])
def test_it_is_the_finite_difference_of_the_gradient(backend, real):
    mesh, rng = pm.Mesh((9, 8, 7), SKEWED), np.random.default_rng(1)
    x, step = rng.random((30, 3)) @ SKEWED.matrix, 1e-5
    field = backend.array(rng.normal(size=mesh.shape).astype(real))
    with pm.Plan(mesh, "bspline6", dtype=real) as plan, pm.Plan(mesh, "bspline6", dtype="float64") as fine:
        second = backend.host(plan.set_positions(backend.array(x)).hessian(field))
        wide = backend.array(backend.host(field).astype(float))
        differences = []
        for b in range(3):
            there = [backend.host(fine.set_positions(backend.array(x + way)).gradient(wide))
                     for way in (np.eye(3)[b] * step, -np.eye(3)[b] * step)]  # fmt: skip
            differences.append((there[0] - there[1]) / (2 * step))
        expected = np.stack(differences, 1)
        atol = np.abs(expected).max() * (1e-4 if real == "float32" else 1e-7)
        np.testing.assert_allclose(second, expected, rtol=0, atol=atol)


def test_the_trace_is_the_laplacian_to_second_order(backend):
    x, errors = np.random.default_rng(2).random((200, 2)), []
    for n in (16, 32):
        mesh = pm.Mesh((n, n), (1.0, 1.0))
        wave = lambda a, b: np.cos(2 * np.pi * (a + 2 * b))  # noqa: E731
        field = wave(mesh.nodes(0)[:, None], mesh.nodes(1))
        second = backend.host(pm.hessian(backend.array(field), backend.array(x), mesh, window="bspline5"))
        laplacian = -4 * np.pi**2 * 5 * wave(*x.T)
        errors.append(np.abs(second.trace(axis1=-2, axis2=-1) - laplacian).max() / (4 * np.pi**2 * 5))
    assert errors[1] < 0.1
    assert 3.3 < errors[0] / errors[1] < 4.5


def test_linear_windows_have_mixed_derivatives_only(backend):
    mesh, rng = pm.Mesh((6, 5), (6.0, 5.0)), np.random.default_rng(3)
    x = rng.random((40, 2)) * (6, 5)
    field = rng.normal(size=mesh.shape)
    second = backend.host(pm.hessian(backend.array(field), backend.array(x), mesh, window="cic"))
    assert not second[:, [0, 1], [0, 1]].any()
    i, j = np.floor(x).astype(int).T
    corner = lambda a, b: field[(i + a) % 6, (j + b) % 5]  # noqa: E731
    mixed = corner(1, 1) - corner(1, 0) - corner(0, 1) + corner(0, 0)
    np.testing.assert_allclose(second[:, 0, 1], mixed, atol=1e-13)


MESH = pm.Mesh((6, 5, 7), (1.0, 2.0, 3.0))
X = np.random.default_rng(4).random((20, 3))
FIELD = np.random.default_rng(5).normal(size=MESH.shape)
TENSORS = np.random.default_rng(6).normal(size=(20, 3, 3))


def test_a_named_method_without_them_says_so(backend):
    for keyword, direction in (("method", "spread"), ("interpolation", "interpolate")):
        name = next(m.name for m in METHODS[direction] if backend.name in m.backends and m.derivatives == 1)
        with pm.Plan(MESH, "tsc", **{keyword: name}) as plan:
            plan.set_positions(backend.array(X))
            others = ", ".join(able(direction, backend))
            with pytest.raises(pm.MethodNotSuitable, match=f"{keyword} {name!r} has no second .* one of {others}"):
                if direction == "spread":
                    plan.spread_hessian(backend.array(TENSORS))
                else:
                    plan.hessian(backend.array(FIELD))
            assert f"no second derivatives to {direction}: {keyword} {name!r}" in plan.explain()


@pytest.mark.backends("opencl", "cuda")
@pytest.mark.parametrize("order", ["caller", "sorted"])
def test_the_automatic_choice_takes_a_method_that_has_them(backend, monkeypatch, order):
    for direction in METHODS:
        for name in able(direction, backend):  # another method looks faster for values
            method = next(m for m in METHODS[direction] if m.name == name)
            monkeypatch.setattr(method, "cost", classmethod(lambda cls, problem: (0.0, 1.0)))
    with pm.Plan(MESH, "tsc", order=order) as plan:
        plan.set_positions(backend.array(X))
        assert plan.explain().count("second derivatives: ") == 2
        for x in (X, X[::-1] * 0.9):  # both methods are prepared again
            plan.set_positions(backend.array(x))
            there = x[backend.host(plan.order)] if order == "sorted" else x
            expected = oracle.spread_hessian(MESH, pm.bspline(3), there, TENSORS)
            close = {"rtol": 0, "atol": 1e-11 * np.abs(expected).max()}
            np.testing.assert_allclose(backend.host(plan.spread_hessian(backend.array(TENSORS))), expected, **close)
            second = oracle.hessian(MESH, pm.bspline(3), there, FIELD)
            np.testing.assert_allclose(backend.host(plan.hessian(backend.array(FIELD))), second, **close)
            values = oracle.interpolate(MESH, pm.bspline(3), there, FIELD)
            np.testing.assert_allclose(backend.host(plan.interpolate(backend.array(FIELD))), values, **close)
        assert "second derivatives: " in plan.explain()


def test_measured_plans_predict_second_derivatives(backend):
    with pm.Plan(MESH, "tsc", interpolation="measure") as plan:
        plan.set_positions(backend.array(X))
        expected = oracle.hessian(MESH, pm.bspline(3), X, FIELD)
        np.testing.assert_allclose(backend.host(plan.hessian(backend.array(FIELD))), expected, atol=1e-10)
        assert "measured" in plan.explain()


def test_reproducible_plans_spread_in_integers_on_gpus(backend):
    with pm.Plan(MESH, "bspline4", deterministic=True) as plan:
        plan.set_positions(backend.array(np.repeat(X, 50, axis=0)))
        tensors = backend.array(np.random.default_rng(7).normal(size=(1000, 3, 3)))
        assert len({backend.host(plan.spread_hessian(tensors)).tobytes() for _ in range(5)}) == 1


def test_bad_input_is_refused(backend):
    good = backend.array(FIELD)
    with pm.Plan(MESH, "tsc") as plan:
        with pytest.raises(RuntimeError, match="no particles yet"):
            plan.hessian(good)
        plan.set_positions(backend.array(X))
        with pytest.raises(ValueError, match="field"):
            plan.hessian(backend.array(FIELD[:-1]))
        for wrong in (TENSORS[:-1], TENSORS[:, :2], TENSORS[..., :1]):
            with pytest.raises(ValueError, match="tensors"):
                plan.spread_hessian(backend.array(wrong))
        with pytest.raises(TypeError, match="tensors: dtype is float16"):
            plan.spread_hessian(backend.array(TENSORS.astype(np.float16)))
        with pytest.raises(ValueError, match="accumulate=True adds to out"):
            plan.spread_hessian(backend.array(TENSORS), accumulate=True)
        with pytest.raises(ValueError, match="out has shape"):
            plan.hessian(good, out=backend.array(TENSORS[:, :2].copy()))
        with pytest.raises(TypeError, match="out has dtype"):
            plan.hessian(good, out=backend.array(TENSORS.astype(np.float32)))
        two = backend.array(np.zeros(20)), backend.array(np.zeros((20, 3)))
        with pytest.raises(ValueError, match="out has 2 arrays; value, gradient and hessian need three"):
            plan.value_gradient_hessian(good, out=two)
        with pytest.raises(TypeError, match="need a tuple of three arrays"):
            plan.value_gradient_hessian(good, out=two[0])
        with pytest.raises(ValueError, match="two arrays of out share memory"):
            plan.value_gradient_hessian(good, out=(*two, two[1]))


def test_no_particles_and_no_channels(backend):
    with pm.Plan(MESH, "tsc", dtype="float64") as plan:
        plan.set_positions(backend.array(np.zeros((0, 3))))
        assert backend.host(plan.hessian(backend.array(FIELD))).shape == (0, 3, 3)
        assert not backend.host(plan.spread_hessian(backend.array(TENSORS[:0]))).any()
        plan.set_positions(backend.array(X))
        assert backend.host(plan.hessian(backend.array(np.zeros((0, *MESH.shape))))).shape == (0, 20, 3, 3)
