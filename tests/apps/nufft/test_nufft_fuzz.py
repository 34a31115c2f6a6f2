# SPDX-License-Identifier: BSD-3-Clause
"""Arguments that are almost right: a call is exact, or it raises a clear error and leaves the plan as it was."""

import warnings

import numpy as np
import pytest

import nufft_cases as cases
from particlemesh.apps import nufft

CLEAR = (RuntimeError, TypeError, ValueError)
EPS = {"complex64": 1e-4, "complex128": 1e-9}


def kept(a):
    """The same array in other memory: nothing is wrong with it."""
    wide = np.zeros((*a.shape, 3), a.dtype)
    wide[..., 1] = a
    return wide[..., 1]


def spoilt(value):
    def change(a):
        a = a.copy()
        a.flat[a.size // 2] = value
        return a

    return change


# Changes of an array, each with whether the new one is wrong: for anything, for coordinates, for values.
OF_ARRAYS = {
    "the same": (lambda a: a, False),
    "a copy": (np.copy, False),
    "read-only": (lambda a: np.frombuffer(a.tobytes(), a.dtype).reshape(a.shape), False),
    "other byte order": (lambda a: a.astype(a.dtype.newbyteorder()), None),
    "misaligned": (lambda a: np.frombuffer(b"x" + a.tobytes(), a.dtype, offset=1).reshape(a.shape), False),
    "other precision": (lambda a: a.astype({8: "f4", 4: "f8"}[a.real.itemsize] if a.dtype.kind == "f" else
                                           {16: "c8", 8: "c16"}[a.itemsize]), True),
    "integers": (lambda a: np.ones(a.shape, int), True),
    "truth values": (lambda a: np.ones(a.shape, bool), True),
    "objects": (lambda a: a.astype(object), True),
    "text": (lambda a: a.astype(str), True),
    "a list": (lambda a: a.tolist(), True),
    "nothing": (lambda a: None, True),
    "a number": (lambda a: a.dtype.type(1), True),
    "no axis": (lambda a: a.reshape(-1)[0].reshape(()), True),
    "one too few": (lambda a: a[..., :-1], True),
    "one too many": (lambda a: np.concatenate([a, a[..., :1]], -1), True),
    "two axes more": (lambda a: a[None, None], True),
    "columns": (lambda a: a[..., None], True),
    "masked": (lambda a: np.ma.masked_array(a, np.arange(a.size).reshape(a.shape) % 2), True),
}  # fmt: skip
OF_POINTS = OF_ARRAYS | {
    "strided": (kept, False),
    "backwards in memory": (lambda a: a[::-1].copy()[::-1], False),
    "not a number": (spoilt(np.nan), True),
    "infinite": (spoilt(-np.inf), True),
    "other numbers": (lambda a: a * (1 + 1j), True),
}


def called(call, *arguments, **options):
    """The result and None, or None and the error, which must say something."""
    try:
        return call(*arguments, **options), None
    except CLEAR as error:
        return None, str(error)


def problem(nufft_type, ndim, dtype, real):
    rng, modes = np.random.default_rng(7 * ndim + nufft_type), cases.SHAPES[ndim]
    x = cases.points(rng, ndim, 24, dtype)
    s = cases.points(rng, ndim, 20, dtype, 5.0) if nufft_type == 3 else []
    plan = nufft.Plan(nufft_type, ndim if nufft_type == 3 else modes, eps=EPS[dtype], dtype=dtype, real=real)
    plan.setpts(*x, *[None] * (3 - ndim), *s)
    strengths = cases.numbers(rng, 24, cases.REAL[dtype] if real else dtype)
    return plan, x, s, modes, cases.numbers(rng, modes, dtype) if nufft_type == 2 else strengths


def exact(nufft_type, x, s, modes, data):
    if nufft_type == 1:
        return cases.modes_of(data, x, modes, 1)
    return cases.values_of(data, x, modes, -1) if nufft_type == 2 else cases.sums(data, np.stack(x), np.stack(s), 1)


@pytest.mark.parametrize("real", [False, True])
@pytest.mark.parametrize(("nufft_type", "ndim", "dtype"), [(1, 1, "complex64"), (2, 2, "complex128"),
                                                           (3, 2, "complex128"), (1, 3, "complex128")])  # fmt: skip
def test_points_that_are_almost_right(nufft_type, ndim, dtype, real):
    plan, x, s, modes, data = problem(nufft_type, ndim, dtype, real)
    before = plan.execute(data)
    sets = [*x, *s]
    part = np.real if real and nufft_type == 2 else np.asarray
    for n, (name, (change, wrong)) in enumerate(OF_POINTS.items()):
        at = n % len(sets)
        given = [change(a) if i == at else a for i, a in enumerate(sets)]
        arguments = *given[:ndim], *[None] * (3 - ndim), *given[ndim:]
        # Of one axis, or of all together, "one too few" is only another number of points.
        wrong = wrong and not (name.startswith("one too") and len(sets[:ndim] if at < ndim else s) == 1)
        _, error = called(plan.setpts, *arguments)
        if error is not None:
            assert wrong is not False, (name, error)
            assert len(error) > 20, name
            np.testing.assert_array_equal(plan.execute(data), before, err_msg=name)
            continue
        assert not wrong, name
        if wrong is None or given[at].shape == sets[at].shape:
            expected = part(exact(nufft_type, x, s, modes, data))
            assert np.linalg.norm(plan.execute(data) - expected) < 4 * EPS[dtype] * np.linalg.norm(expected), name
        plan.setpts(*x, *[None] * (3 - ndim), *s)
        np.testing.assert_array_equal(plan.execute(data), before, err_msg=name)


@pytest.mark.parametrize("real", [False, True])
@pytest.mark.parametrize(
    ("nufft_type", "ndim", "dtype"), [(1, 2, "complex128"), (2, 1, "complex64"), (3, 1, "complex128")]
)
def test_data_and_outputs_that_are_almost_right(nufft_type, ndim, dtype, real):
    plan, *_, data = problem(nufft_type, ndim, dtype, real)
    before = plan.execute(data)
    for name, (change, wrong) in OF_ARRAYS.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of copies
            made, error = called(plan.execute, change(data))
            if error is not None:
                assert wrong is not False, (name, error)
                assert len(error) > 20, name
            else:
                assert not wrong, name
                np.testing.assert_allclose(made, before, rtol=1e-5, err_msg=name)
            out = change(np.zeros_like(before))
            given, error = called(plan.execute, data, out=out)
            if error is not None:
                assert name not in ("the same", "a copy"), (name, error)
                assert out is None or not np.any(np.asarray(out) == before.flat[0]), name  # untouched
            else:
                assert out is None or given is out, name
                np.testing.assert_allclose(given, before, rtol=1e-5, err_msg=name)
        np.testing.assert_array_equal(plan.execute(data), before, err_msg=name)


BAD = {
    "nufft_type": [0, 4, "1", None, 1.5, (1,)],
    "n_modes_or_dim": [0, -3, (), (4, 0), (2, 2, 2, 2), 4.5, "4", None, (4, 2.5), [[3, 3]], np.nan, 2**40],
    "n_trans": [0, -1, 1.5, "2", None, np.nan],
    "eps": [0, -1e-6, np.nan, np.inf, "small", None, 1j],
    "isign": ["+", np.nan, (1, 1), 1j],
    "dtype": ["float64", "int32", "complex", None, "no dtype", object],
    "modeord": [2, -1, "fft", 0.5],
    "upsampfac": [0.5, 1.0, -2, np.nan, np.inf, "two"],
    "nthreads": [-1, 1.5, "many", 10**6],
    "maxbatchsize": [-1, 1.5, "all"],
    "real": ["yes", 2, np.ones(2)],
    "gpu_device_id": [-1, "first", 0.5],
    "method": ["no method", 3],
}


@pytest.mark.parametrize("name", list(BAD))
def test_a_wrong_argument_is_named_at_once_or_with_the_points(name):
    right = {"nufft_type": 1, "n_modes_or_dim": (6, 5), "n_trans": 1, "eps": 1e-6, "isign": 1, "dtype": "complex128"}
    for value in BAD[name]:
        if name == "dtype" and value in ("complex", None):
            continue  # other names of types that are allowed, or none
        with pytest.raises(CLEAR) as caught:
            nufft.Plan(**{**right, name: value}).setpts(*np.ones((2, 4)))
        assert len(str(caught.value)) > 20, (value, caught.value)


def test_random_plans_are_exact():
    """Any mix of type, size, order, sign, vectors, precision and options."""
    rng = np.random.default_rng(11)
    for _ in range(60):
        ndim, nufft_type = int(rng.integers(1, 4)), int(rng.integers(1, 3))
        modes = tuple(int(n) for n in rng.integers(1, (40, 12, 7)[ndim - 1], ndim))
        dtype, vectors = rng.choice(["complex64", "complex128"]), tuple(rng.integers(1, 4, rng.integers(0, 2)).tolist())
        eps = 10.0 ** -rng.uniform(1, 5 if dtype == "complex64" else 12)
        sign, order, count = int(rng.choice([-1, 1])), int(rng.integers(2)), int(rng.integers(1, 60))
        options = [{}, {"nthreads": 1}, {"maxbatchsize": 1}, {"deterministic": True}, {"upsampfac": 2.0}]
        plan = nufft.Plan(
            nufft_type, modes, *vectors or (1,), eps=eps, isign=sign, dtype=dtype, modeord=order,
            **options[rng.integers(len(options))],
        )  # fmt: skip
        x = cases.points(rng, ndim, count, dtype, half=rng.choice([0.1, 3.0, 30.0]))
        plan.setpts(*x)
        if nufft_type == 1:
            data = cases.numbers(rng, (*vectors, count), dtype)
            expected = cases.modes_of(data, x, modes, sign, order)
        else:
            data = cases.numbers(rng, vectors + modes, dtype)
            expected = cases.values_of(data, x, modes, sign, order)
        # The law of errors is that of many modes; of few, most lie at the edge of the band.
        assert np.linalg.norm(plan.execute(data) - expected) < 10 * plan.eps * np.linalg.norm(expected) + 1e-12, plan
