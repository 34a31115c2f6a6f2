# SPDX-License-Identifier: BSD-3-Clause
"""Every type, number of axes, precision, order, sign and number of vectors against direct sums."""

import itertools

import numpy as np
import pytest

import nufft_cases as cases
from particlemesh.apps import nufft

EPS = {"complex64": 1e-5, "complex128": 1e-9}


def on(backend, arrays):
    return [backend.array(a) for a in arrays], backend.host


@pytest.mark.parametrize("dtype", list(EPS))
@pytest.mark.parametrize("ndim", [1, 2, 3])
@pytest.mark.parametrize(
    ("isign", "modeord", "vectors"), [(1, 0, ()), (-1, 1, ()), (1, 1, (1,)), (-1, 0, (3,))], ids=str
)
@pytest.mark.parametrize("nufft_type", [1, 2])
def test_types_1_and_2_and_their_adjoints(backend, nufft_type, ndim, dtype, isign, modeord, vectors):
    rng, modes = np.random.default_rng(ndim), cases.SHAPES[ndim]
    x = cases.points(rng, ndim, cases.POINTS, dtype, half=9.0)
    strengths = cases.numbers(rng, vectors + (cases.POINTS,), dtype)
    coefficients = cases.numbers(rng, vectors + modes, dtype)
    native, host = on(backend, [*x, strengths, coefficients])
    forward, back = (isign, -isign) if nufft_type == 1 else (-isign, isign)
    to_modes = cases.modes_of(strengths, x, modes, forward, modeord)
    to_points = cases.values_of(coefficients, x, modes, back, modeord)

    plan = nufft.Plan(
        nufft_type, modes, *vectors or (1,), EPS[dtype], isign=isign, dtype=dtype, modeord=modeord, maxbatchsize=2
    )
    plan.setpts(*native[:ndim])
    first, second = (plan.execute, plan.execute_adjoint)[:: 1 if nufft_type == 1 else -1]
    made, result = host(first(native[-2])), host(second(native[-1]))
    assert made.dtype == result.dtype == np.dtype(dtype)
    assert made.shape == to_modes.shape
    assert result.shape == to_points.shape
    # The law of errors is that of many modes.
    assert cases.error(made, to_modes) < 1.2 * EPS[dtype]
    assert cases.error(result, to_points) < 1.2 * EPS[dtype]


@pytest.mark.turns(2)
@pytest.mark.parametrize("dtype", list(EPS))
@pytest.mark.parametrize("ndim", [1, 2, 3])
@pytest.mark.parametrize(("isign", "vectors"), [(1, ()), (-1, (2,))], ids=str)
def test_type_3_and_its_adjoint(backend, ndim, dtype, isign, vectors):
    rng = np.random.default_rng(ndim)
    x = [p + np.asarray(shift, p.dtype) for p, shift in zip(cases.points(rng, ndim, 60, dtype), (0.2, 40.0, -3.0))]  # noqa: B905
    s = [f + np.asarray(shift, f.dtype) for f, shift in zip(cases.points(rng, ndim, 50, dtype, 8.0), (70.0, 0.1, 9.0))]  # noqa: B905
    strengths, values = cases.numbers(rng, vectors + (60,), dtype), cases.numbers(rng, vectors + (50,), dtype)
    native, host = on(backend, [*x, *s, strengths, values])
    plan = nufft.Plan(3, ndim, *vectors or (1,), EPS[dtype], isign=isign, dtype=dtype)
    plan.setpts(*native[:ndim], *[None] * (3 - ndim), *native[ndim : 2 * ndim])
    made, back = host(plan.execute(native[-2])), host(plan.execute_adjoint(native[-1]))
    assert made.dtype == back.dtype == np.dtype(dtype)
    assert cases.error(made, cases.sums(strengths, np.stack(x), np.stack(s), isign)) < 2 * EPS[dtype]
    assert cases.error(back, cases.sums(values, np.stack(s), np.stack(x), -isign)) < 2 * EPS[dtype]


@pytest.mark.parametrize("modes", [(8,), (9,), (1,), (6, 7), (7, 6), (4, 5, 6), (5, 4, 7)], ids=str)
@pytest.mark.parametrize(("isign", "modeord", "vectors"), [(1, 0, ()), (-1, 1, (3,))], ids=str)
def test_real_values_take_and_give_what_complex_ones_do(backend, modes, isign, modeord, vectors):
    rng = np.random.default_rng(5)
    x = cases.points(rng, len(modes), 50, "complex128")
    strengths, coefficients = rng.normal(size=(*vectors, 50)), cases.numbers(rng, vectors + modes, "complex128")
    native, host = on(backend, [*x, strengths, coefficients])
    options = dict(eps=1e-9, isign=isign, modeord=modeord, real=True)
    one = nufft.Plan(1, modes, *vectors or (1,), **options)
    one.setpts(*native[: len(modes)])
    made = host(one.execute(native[-2]))
    assert made.dtype == np.complex128
    assert (
        cases.error(made, cases.modes_of(strengths, x, modes, isign, modeord)) < 2e-9
    )  # of few modes, most at the edge
    two = nufft.Plan(2, modes, *vectors or (1,), **options)
    two.setpts(*native[: len(modes)])
    result = host(two.execute(native[-1]))
    assert result.dtype == np.float64
    exact = cases.values_of(coefficients, x, modes, isign, modeord)
    assert np.linalg.norm(result - exact.real) < 2e-9 * np.linalg.norm(exact)
    # The adjoint for real inner products: the real parts of both agree.
    back = host(two.execute_adjoint(native[-2]))
    assert np.vdot(result, strengths) == pytest.approx(np.vdot(coefficients, back).real, rel=1e-8)


@pytest.mark.parametrize("modes", [(1,), (2,), (3, 1), (2, 1, 1)], ids=str)
def test_fewer_modes_than_nodes_of_the_window(backend, modes):
    rng = np.random.default_rng(3)
    x = cases.points(rng, len(modes), 20, "complex128")
    strengths = cases.numbers(rng, 20, "complex128")
    native, host = on(backend, [*x, strengths])
    plan = nufft.Plan(1, modes, eps=1e-12)
    plan.setpts(*native[:-1])
    assert cases.error(host(plan.execute(native[-1])), cases.modes_of(strengths, x, modes, 1)) < 1e-12


@pytest.mark.parametrize("nufft_type", [1, 2])
@pytest.mark.parametrize("real", [False, True])
def test_gradients_are_those_of_the_sums(backend, nufft_type, real):
    rng, modes = np.random.default_rng(6), (9, 10)
    x = cases.points(rng, 2, 40, "complex128")
    coefficients = cases.numbers(rng, (2, *modes), "complex128")
    native, host = on(backend, [*x, coefficients])
    plan = nufft.Plan(nufft_type, modes, 2, 1e-9, isign=1, real=real)
    plan.setpts(*native[:2])
    values, slopes = map(host, plan.execute_gradient(native[2]))
    sign = 1 if nufft_type == 2 else -1
    exact = cases.values_of(coefficients, x, modes, sign)
    k = cases.wave_numbers(modes)
    gradient = np.stack(
        [cases.values_of((sign * 1j * n * coefficients.reshape(2, -1)).reshape(2, *modes), x, modes, sign) for n in k],
        axis=-1,
    )
    assert values.shape == (2, 40)
    assert slopes.shape == (2, 40, 2)
    part = np.real if real else np.asarray
    assert np.linalg.norm(values - part(exact)) < 1e-9 * np.linalg.norm(exact)
    assert np.linalg.norm(slopes - part(gradient)) < 1e-8 * np.linalg.norm(gradient)


def test_points_move_and_their_number_changes(backend):
    rng, modes = np.random.default_rng(8), (14, 15)
    plan = nufft.Plan(1, modes, eps=1e-8)
    for count in (100, 100, 130, 3000, 0, 7):
        x, strengths = cases.points(rng, 2, count, "complex128"), cases.numbers(rng, count, "complex128")
        native, host = on(backend, [*x, strengths])
        plan.setpts(*native[:2])
        made, exact = host(plan.execute(native[2])), cases.modes_of(strengths, x, modes, 1)
        assert np.linalg.norm(made - exact) <= 1e-8 * np.linalg.norm(exact)


def test_out_is_written_and_returned(backend):
    rng, modes = np.random.default_rng(9), (6, 5)
    x, strengths = cases.points(rng, 2, 30, "complex64"), cases.numbers(rng, (2, 30), "complex64")
    native, host = on(backend, [*x, strengths, np.zeros((2, *modes), np.complex64)])
    plan = nufft.Plan(1, modes, 2, eps=1e-4, dtype="complex64")
    plan.setpts(*native[:2])
    assert plan.execute(native[2], out=native[3]) is native[3]
    assert cases.error(host(native[3]), cases.modes_of(strengths, x, modes, 1)) < 1e-4


@pytest.mark.parametrize(("box", "band"), [(0.0, 3.0), (2.0, 0.0), (0.0, 0.0), (1e-9, 4.0)], ids=str)
def test_type_3_of_degenerate_sets(box, band):
    rng = np.random.default_rng(2)
    x, s = 2.0 + box * rng.uniform(-1, 1, 20), 5.0 + band * rng.uniform(-1, 1, 30)
    strengths = cases.numbers(rng, 20, "complex128")
    plan = nufft.Plan(3, 1, eps=1e-9)
    plan.setpts(x, s=s)
    assert cases.error(plan.execute(strengths), cases.sums(strengths, x[None], s[None], 1)) < 2e-9


@pytest.mark.turns(4)
@pytest.mark.parametrize("dtype", list(EPS))
@pytest.mark.parametrize("shift", [0.0, 30.0])
@pytest.mark.parametrize("real", [False, True])
def test_type_3_has_real_values_and_gradients(backend, real, shift, dtype):
    """With frequencies around 0, and away from it."""
    rng, eps = np.random.default_rng(11), EPS[dtype]
    x, s = cases.points(rng, 2, 60, dtype), cases.points(rng, 2, 50, dtype, 8.0)
    s[0] += np.asarray(shift, s[0].dtype)
    strengths = cases.numbers(rng, (2, 60), cases.REAL[dtype] if real else dtype)
    values = cases.numbers(rng, (2, 50), dtype)
    native, host = on(backend, [*x, *s, strengths, values])
    plan = nufft.Plan(3, 2, 2, eps, dtype=dtype, real=real)
    plan.setpts(*native[:2], None, *native[2:4])
    made, back = host(plan.execute(native[4])), host(plan.execute_adjoint(native[5]))
    sums, slopes = map(host, plan.execute_gradient(native[5]))
    assert made.dtype == dtype
    assert back.dtype == sums.dtype == slopes.dtype == strengths.dtype
    part = np.real if real else np.asarray
    at, to = np.stack(x), np.stack(s)
    exact = cases.sums(values, to, at, -1)
    gradient = np.stack([cases.sums(-1j * k * values, to, at, -1) for k in s], axis=-1)
    assert cases.error(made, cases.sums(strengths, at, to, 1)) < 2 * eps
    for result in (back, sums):
        assert np.linalg.norm(result - part(exact)) < 2 * eps * np.linalg.norm(exact)
    assert np.linalg.norm(slopes - part(gradient)) < 10 * eps * np.linalg.norm(gradient)


def test_type_3_moves_on_the_same_meshes():
    """Points that move a little keep the plans; others get the meshes that a new plan has."""
    rng = np.random.default_rng(12)
    x, s = cases.points(rng, 2, 400, "complex128"), cases.points(rng, 2, 300, "complex128", 9.0)
    strengths, plan = cases.numbers(rng, 400, "complex128"), nufft.Plan(3, 2, eps=1e-9)
    made = []
    for factor in (1.0, 0.99999, 1.2, 1.20001, 3.0, 0.5):
        points = [factor * p for p in x]
        plan.setpts(*points, None, *s)
        assert cases.error(plan.execute(strengths), cases.sums(strengths, np.stack(points), np.stack(s), 1)) < 2e-9
        made.append((plan._core.outer, plan._core.inner))
    kept = [a == b for a, b in itertools.pairwise(made)]
    assert kept == [True, False, True, False, False]


@pytest.mark.turns(48)
@pytest.mark.parametrize("dtype", list(EPS))
@pytest.mark.parametrize("options", [{}, {"deterministic": True}, {"real": True}, {"upsampfac": 2.0}], ids=str)
@pytest.mark.parametrize("ndim", [1, 2, 3])
@pytest.mark.parametrize("nufft_type", [1, 2, 3])
def test_earlier_points_decide_nothing(backend, nufft_type, ndim, options, dtype):
    """The same call gives the same bits after any other points, as many, fewer or more, near or far."""
    if backend.name != "cpu":
        options = options | {"deterministic": True}  # elsewhere additions have no order
    rng, modes = np.random.default_rng(ndim), cases.SHAPES[ndim]

    def called(plan, count, scale):
        draw = np.random.default_rng(count)
        x = [scale * a for a in cases.points(draw, ndim, count, dtype)]
        s = cases.points(draw, ndim, 40, dtype, 4 * scale) if nufft_type == 3 else []
        plan.setpts(*map(backend.array, x), *[None] * (3 - ndim) * bool(s), *map(backend.array, s))
        at_points = cases.numbers(draw, count, cases.REAL[dtype] if options.get("real") else dtype)
        at_modes = cases.numbers(draw, 40 if nufft_type == 3 else modes, dtype)
        data = [at_points, at_modes][:: 1 if nufft_type != 2 else -1]
        return [
            backend.host(c(backend.array(a))) for c, a in zip((plan.execute, plan.execute_adjoint), data, strict=True)
        ]

    def new():
        return nufft.Plan(nufft_type, ndim if nufft_type == 3 else modes, eps=EPS[dtype], dtype=dtype, **options)

    used, expected = new(), called(new(), 200, 1.0)
    for count, scale in ((200, 1.05), (60, 0.97), (700, 1.2), (200, 0.3), (rng.integers(3000), 2.0)):
        called(used, int(count), scale)
        for result, right in zip(called(used, 200, 1.0), expected, strict=True):
            np.testing.assert_array_equal(result, right)


def test_type_3_that_needs_too_much_memory_says_so_before_any_work(backend):
    x, s = np.linspace(-3, 3, 20), np.linspace(-5, 5, 30)
    plan, strengths = nufft.Plan(3, 3, eps=1e-9), np.ones(20, complex)
    points = [backend.array(x)] * 3
    plan.setpts(*points, *[backend.array(s)] * 3)
    before = backend.host(plan.execute(backend.array(strengths)))
    far = backend.array(1000 * s)
    with pytest.raises(MemoryError, match=r"type 3 needs meshes of .* bytes; .* are free on .*split one of them"):
        plan.setpts(*points, far, far, far)
    after = backend.host(plan.execute(backend.array(strengths)))
    np.testing.assert_allclose(after, before, atol=1e-9 * abs(before).max())  # GPUs add in any order


@pytest.mark.parametrize("eps", [1e-3, 1e-6, 1e-9])
@pytest.mark.parametrize("modes", [(8, 30), (30, 8), (16, 16, 16), (2, 20, 8)], ids=str)
def test_small_meshes_are_quiet_enough_for_differences(modes, eps):
    """Rounding, which no derivative of a smooth error has: for few points the coarsest meshes are the fastest."""
    rng, count, worst = np.random.default_rng(4), 4, 0.0
    x = np.stack(cases.points(rng, len(modes), count, "complex128"))
    strengths = cases.numbers(rng, count, "complex128")
    for options in ({}, {"deterministic": True}):
        plan, errors = nufft.Plan(1, modes, eps=eps, **options), []
        for step in (0.0, 1e-13, 3e-13):
            plan.setpts(*(x + step))
            errors.append(plan.execute(strengths) - cases.modes_of(strengths, list(x + step), modes, 1))
        worst = max(worst, *(abs(e - errors[0]).max() for e in errors[1:]))
    assert worst < 3e-12 * np.abs(strengths).sum()


def test_type_3_after_an_error(monkeypatch):
    """Of the second set, whose meshes were kept: the plan has no points until it gets new ones."""
    x, s, strengths = np.linspace(-3, 3, 20), np.linspace(-5, 5, 30), np.ones(20, complex)
    plan = nufft.Plan(3, 1, eps=1e-9)
    plan.setpts(x, s=s)
    with monkeypatch.context() as patch:
        patch.setattr(plan._core.inner, "set_points", lambda points: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            plan.setpts(0.999 * x, s=s)
    with pytest.raises(RuntimeError, match="no points yet: call setpts"):
        plan.execute(strengths)
    plan.setpts(0.999 * x, s=s)
    assert cases.error(plan.execute(strengths), cases.sums(strengths, 0.999 * x[None], s[None], 1)) < 2e-9


def test_points_near_the_end_of_the_period_in_single_precision():
    """Exactly located points do not lose digits with the number of modes."""
    rng, modes = np.random.default_rng(4), (20000,)
    x = [rng.uniform(-np.pi, np.pi, 300).astype(np.float32)]
    strengths = cases.numbers(rng, 300, "complex64")
    made = nufft.nufft1d1(*x, strengths, modes, eps=3e-7)
    assert cases.error(made, cases.modes_of(strengths, x, modes, 1)) < 6e-7


def test_gradients_of_a_loss_by_strengths_and_points():
    """The formulas of the guide, against differences: L = sum |f - t|^2 with f of type 1, w = f - t."""
    rng, modes = np.random.default_rng(7), (8, 9)
    x, strengths = cases.points(rng, 2, 12, "complex128"), cases.numbers(rng, 12, "complex128")
    target = cases.numbers(rng, modes, "complex128")

    def loss(at, c):
        return np.sum(np.abs(cases.modes_of(c, at, modes, 1) - target) ** 2)

    plan = nufft.Plan(1, modes, eps=1e-12)
    plan.setpts(*x)
    w = plan.execute(strengths) - target
    by_strengths = plan.execute_adjoint(w)
    by_points = 2 * (strengths.conj()[:, None] * plan.execute_gradient(w)[1]).real
    step, j = 1e-5, 5
    unit = np.eye(12)[j] * step
    for axis in (0, 1):
        ends = ([p + sign * unit * (a == axis) for a, p in enumerate(x)] for sign in (1, -1))
        high, low = (loss(at, strengths) for at in ends)
        assert (high - low) / (2 * step) == pytest.approx(by_points[j, axis], rel=1e-6)
    real = (loss(x, strengths + unit) - loss(x, strengths - unit)) / (2 * step)
    imaginary = (loss(x, strengths + 1j * unit) - loss(x, strengths - 1j * unit)) / (2 * step)
    assert (real + 1j * imaginary) / 2 == pytest.approx(by_strengths[j], rel=1e-6)


@pytest.mark.parametrize("extent", [20.0, 100.0])
@pytest.mark.parametrize("ndim", [1, 2])
def test_type_3_in_single_precision_is_not_lost_in_rounding(ndim, extent):
    """Both divisions by windows amplify rounding: with little oversampling nothing would be left."""
    rng = np.random.default_rng(6)
    box = extent ** (1 / ndim)
    x, s = (rng.uniform(-box, box, (ndim, n)).astype(np.float32) for n in (200, 150))
    strengths = cases.numbers(rng, 200, "complex64")
    plan = nufft.Plan(3, ndim, eps=1e-4, dtype="complex64")
    plan.setpts(*x, *[None] * (3 - ndim), *s)
    assert cases.error(plan.execute(strengths), cases.sums(strengths, x, s, 1)) < 2e-4


@pytest.mark.parametrize("extents", [(1e-310, 1.0), (1e-310, 1e-310), (1e-160, 1e160)], ids=str)
def test_type_3_of_denormal_extents(extents):
    rng = np.random.default_rng(7)
    x, s = (extent * rng.uniform(-1, 1, (1, 20)) for extent in extents)
    strengths = cases.numbers(rng, 20, "complex128")
    plan = nufft.Plan(3, 1, eps=1e-9)
    plan.setpts(x[0], s=s[0])
    assert cases.error(plan.execute(strengths), cases.sums(strengths, x, s, 1)) < 2e-9


def test_type_3_of_huge_extents_is_refused_at_once():
    x = np.array([-1e30, 1e30])
    with pytest.raises(ValueError, match="split the points or the frequencies"):
        nufft.Plan(3, 1).setpts(x, s=x)
