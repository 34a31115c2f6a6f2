# SPDX-License-Identifier: BSD-3-Clause
"""The interface: states of a plan, options, shapes and messages."""

import copy
import inspect
import pickle
import threading

import numpy as np
import pytest

import nufft_cases as cases
from kinds import KINDS
from particlemesh import backends
from particlemesh.apps import nufft
from particlemesh.apps.nufft import ArgumentError, Plan


def plan_with_points(nufft_type=1, modes=(4, 5), n_trans=1, dtype="complex128", count=3, **options):
    plan = Plan(nufft_type, modes, n_trans, 1e-3, dtype=dtype, **options)
    ndim = modes if nufft_type == 3 else len(modes)
    x = [np.ones(count, cases.REAL[dtype])] * ndim
    plan.setpts(*x, *[None] * (3 - ndim), *(x if nufft_type == 3 else []))
    return plan


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: Plan(4, (8,)), "transform type invalid: nufft_type is 4"),
        (lambda: Plan(1, (8,), dtype="float64"), "must be single or double: Expected complex64 or complex128"),
        (lambda: Plan(1, (8,) * 4), "n_modes dimension must be 1, 2, or 3"),
        (lambda: Plan(3, (1, 2)), "type 3 plan n_modes_or_dim must be one number"),
        (lambda: Plan(1, (8,), 0), "n_trans is 0; give 1 or more"),
        (lambda: Plan(1, (8,)).setpts(np.ones(2, np.float32)), "`x` does not have the correct dtype: float32 was"),
        (lambda: Plan(1, (8, 8)).setpts(np.ones(2)), "Plan dimension is 2, but `y` was not specified"),
        (lambda: Plan(1, (8,)).setpts(np.ones(2), np.ones(2)), "Plan dimension is 1, but `y` was specified"),
        (lambda: Plan(1, (8,)).setpts(np.ones((2, 1))), "x must be a vector"),
        (lambda: Plan(1, (8, 8)).setpts(np.ones(2), np.ones(3)), "y must have same length as x.*must be of shape"),
        (lambda: Plan(3, 1).setpts(np.ones(2)), "`s` was not specified"),
        (lambda: Plan(1, (8,)).setpts([1.0, 2.0]), "`x` is of type list; give an array"),
        (lambda: plan_with_points().execute(np.ones(3, np.complex64)), "`data` does not have the correct dtype"),
        (lambda: plan_with_points().execute(np.ones(4, complex)), "c.size must be same as x.size"),
        (lambda: plan_with_points(n_trans=2).execute(np.ones(3, complex)), "c.ndim must be 2 if n_trans > 1"),
        (lambda: plan_with_points(2).execute(np.ones((4, 6), complex)), "f.shape is not consistent with n_modes"),
        (lambda: plan_with_points(2, n_trans=2).execute(np.ones((3, 4, 5), complex)), "f.shape.0. must be n_trans"),
        (lambda: plan_with_points().execute(np.ones(3, complex), np.ones((4, 5), complex).T), "f.shape is not"),
        (
            lambda: plan_with_points(spreadinterponly=True).execute_gradient(np.ones((4, 5), complex)),
            "execute_gradient needs a Fourier transform",
        ),
        (lambda: nufft.nufft1d1(np.ones(2, int), np.ones(2, complex), 4), "x dtype should be float64"),
        (lambda: nufft.nufft1d1(np.ones(2), np.ones(2, complex)), "must supply n_modes or output vector"),
        (lambda: nufft.nufft1d1(np.ones(2), np.ones(3, complex), 4), "c.size must be divisible by x.size"),
    ],
)
def test_refusals(call, text):
    with pytest.raises(ArgumentError, match=text):
        call()


def test_finufft_and_cufinufft_users_catch_the_same_error():
    assert issubclass(ArgumentError, RuntimeError)
    assert issubclass(ArgumentError, TypeError)


def test_points_come_first():
    plan = Plan(1, (8,))
    with pytest.raises(RuntimeError, match="call setpts first"):
        plan.execute(np.ones(2, complex))
    assert "no points" in repr(plan)


def test_points_that_are_not_finite_leave_the_plan_as_it_was():
    plan = plan_with_points()
    before = plan.execute(np.ones(3, complex))
    with pytest.raises(ValueError, match="point 1 is not finite"):
        plan.setpts(np.array([0.0, np.nan]), np.zeros(2))
    np.testing.assert_array_equal(plan.execute(np.ones(3, complex)), before)
    three = plan_with_points(3, 1)
    with pytest.raises(ValueError, match=r"s\[1\] is inf"):
        three.setpts(np.zeros(2), s=np.array([0.0, np.inf]))


def test_an_unknown_option_is_warned_about_and_the_peers_options_are_known():
    with pytest.warns(UserWarning, match='finufft_opts does not have attribute "foo"'):
        Plan(1, (8,), foo="bar")
    Plan(1, (8,), gpu_method=2, gpu_maxsubprobsize=10, debug=0, fftw=64, spread_sort=1, nthreads=1)


def test_other_orders_are_copied_with_a_warning_and_refused_as_output():
    plan = plan_with_points(2)
    f = cases.numbers(np.random.default_rng(1), (4, 5), complex)
    with pytest.warns(UserWarning, match="`data` does not satisfy the following requirement: C. Copying"):
        result = plan.execute(np.asfortranarray(f))
    np.testing.assert_array_equal(result, plan.execute(f))
    one = plan_with_points()
    with pytest.raises(TypeError, match="`out` does not satisfy the following requirement: C"):
        one.execute(np.ones(3, complex), out=np.ones((4, 5), complex, order="F"))
    out = np.ones((4, 5), complex)
    out.setflags(write=False)
    with pytest.raises(TypeError, match="following requirement: W"):
        one.execute(np.ones(3, complex), out=out)


def test_attributes_are_read_only():
    plan = Plan(2, (8, 9), 2, dtype=np.complex64, eps=1e-3)
    assert (plan.type, plan.n_modes, plan.dim, plan.n_trans, plan.dtype) == (2, (8, 9), 2, 2, np.complex64)
    for name in ("type", "n_modes", "dim", "n_trans", "dtype"):
        with pytest.raises(AttributeError):
            setattr(plan, name, 1)


def test_functions_have_finufft_s_arguments():
    assert list(inspect.signature(nufft.nufft2d3).parameters) == [*"xycst", "out", "eps", "isign", "opts"]
    assert str(inspect.signature(nufft.nufft1d1)) == "(x, c, n_modes=None, out=None, eps=1e-06, isign=1, **opts)"
    assert inspect.signature(nufft.nufft3d2).parameters["isign"].default == -1
    assert "Parameters\n----------\nx\n" in nufft.nufft1d1.__doc__


@pytest.mark.opencl
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("real", [False, True])
def test_results_are_arrays_of_the_points_library(kind, real):
    """Types 1 to 3, with and without `out`, and the gradient."""
    kind = KINDS[kind]
    reason = backends.module(kind.home).available()
    if reason is not None:
        pytest.skip(f"{kind.home} does not work here: {reason}")
    rng, modes = np.random.default_rng(2), (6, 7)
    x, s = cases.points(rng, 2, 20, "complex128"), cases.points(rng, 2, 30, "complex128")
    c, f = (
        rng.normal(size=(2, 20)) if real else cases.numbers(rng, (2, 20), complex),
        cases.numbers(rng, modes, complex),
    )
    points, frequencies = [kind.make(p) for p in x], [kind.make(p) for p in s]
    one = Plan(1, modes, 2, 1e-9, real=real)
    one.setpts(*points)
    made, out = one.execute(kind.make(c)), kind.make(np.zeros((2, *modes), complex))
    assert kind.place(made) == kind.place(out)
    if kind.writes:
        assert one.execute(kind.make(c), out=out) is out
        # Atomic additions round in any order.
        np.testing.assert_allclose(kind.host(made), kind.host(out), rtol=0, atol=1e-12)
    else:
        with pytest.raises(TypeError, match="never written"):
            one.execute(kind.make(c), out=out)
    assert cases.error(kind.host(made), cases.modes_of(c, x, modes, 1)) < 2e-9
    two = Plan(2, modes, eps=1e-9, real=real)
    two.setpts(*points)
    values, slopes = two.execute_gradient(kind.make(f))
    assert slopes.shape == (20, 2)
    assert kind.place(values) == kind.place(slopes) == kind.place(kind.make(c[0]))
    np.testing.assert_allclose(kind.host(values), kind.host(two.execute(kind.make(f))), atol=1e-12)
    if not real:
        three = Plan(3, 2, 2, 1e-9)
        three.setpts(*points, None, *frequencies)
        assert cases.error(kind.host(three.execute(kind.make(c))), cases.sums(c, np.stack(x), np.stack(s), 1)) < 2e-9


@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_functions_are_plans(ndim):
    rng, modes = np.random.default_rng(ndim), cases.SHAPES[ndim]
    x, s = cases.points(rng, ndim, 20, "complex64"), cases.points(rng, ndim, 30, "complex64")
    c, f = cases.numbers(rng, (2, 20), "complex64"), cases.numbers(rng, modes, "complex64")
    one, two, three = (getattr(nufft, f"nufft{ndim}d{n}") for n in (1, 2, 3))
    out = np.empty((2, *modes), np.complex64)
    assert one(*x, c, out=out, eps=1e-4, isign=-1) is out
    assert cases.error(out, cases.modes_of(c, x, modes, -1)) < 1e-4
    assert cases.error(one(*x, c[0], modes, eps=1e-4), cases.modes_of(c[0], x, modes, 1)) < 1e-4
    assert cases.error(two(*x, f, eps=1e-4), cases.values_of(f, x, modes, -1)) < 1e-4
    assert cases.error(three(*x, c, *s, eps=1e-4), cases.sums(c, np.stack(x), np.stack(s), 1)) < 3e-4


def test_spreading_only_is_the_first_half_of_type_1():
    """Spread to a mesh of 32 nodes; its modes over the window's transform are those of type 1."""
    rng = np.random.default_rng(3)
    x, c = cases.points(rng, 1, 40, "complex128"), cases.numbers(rng, 40, "complex128")
    plan = Plan(1, (32,), eps=1e-6, upsampfac=2.0, spreadinterponly=1)
    plan.setpts(*x)
    field = plan.execute(c)
    assert abs(plan.execute_adjoint(field)).shape == (40,)
    assert np.vdot(field, field) == pytest.approx(np.vdot(c, plan.execute_adjoint(field)), rel=1e-12)
    two = Plan(2, (32,), eps=1e-6, upsampfac=2.0, spreadinterponly=1)
    two.setpts(*x)
    np.testing.assert_allclose(two.execute(field), plan.execute_adjoint(field), rtol=1e-12)


def test_a_second_thread_is_refused():
    plan = plan_with_points()
    plan.busy.acquire()
    caught = []

    def call():
        try:
            plan.execute(np.ones(3, complex))
        except RuntimeError as error:
            caught.append(str(error))

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    assert "another thread is using this Plan" in caught[0]


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: plan_with_points().execute(None), ArgumentError, "`data` is of type NoneType"),
        (lambda: plan_with_points().execute([1j, 2j, 3j]), ArgumentError, "`data` is of type list"),
        (lambda: nufft.nufft1d1(np.ones(2), [1j, 2j], 4), ArgumentError, "`c` is of type list"),
        (lambda: nufft.nufft1d2(np.ones(2), [1j, 2j]), ArgumentError, "`f` is of type list"),
        (lambda: nufft.nufft1d1(np.ones(2), np.ones(2, complex), out=[0] * 4), ArgumentError, "`out` is of type list"),
        (lambda: Plan(1, None), TypeError, "n_modes is None; an integer"),
        (lambda: Plan(1, 8, isign=np.nan), ValueError, "isign is nan"),
        (lambda: Plan(1, 8, isign=1j), TypeError, "isign is 1j"),
        (lambda: Plan(1, (2**30, 1), eps=1e-9, upsampfac=3).setpts(*np.ones((2, 2))), ValueError, "give fewer modes"),
    ],
)
def test_what_is_no_array_or_number_is_named(call, error, text):
    with pytest.raises(error, match=text):
        call()


def test_out_apart_from_data():
    """Vectors are transformed in parts: a part's result must not overwrite a later part's data."""
    plan = Plan(1, (5,), 4, 1e-3, maxbatchsize=1)
    plan.setpts(np.linspace(0, 1, 5))
    memory = np.ones((5, 5), complex)
    with pytest.raises(ArgumentError, match="shares memory"):
        plan.execute(memory[:4], out=memory[1:])
    np.testing.assert_array_equal(memory, 1)


@pytest.mark.parametrize("nufft_type", [1, 3])
@pytest.mark.parametrize("through", [copy.copy, copy.deepcopy, lambda plan: pickle.loads(pickle.dumps(plan))])
def test_a_copied_plan_starts_without_points(nufft_type, through):
    plan = plan_with_points(nufft_type, (4, 5) if nufft_type == 1 else 2, 2, isign=-1)
    other = through(plan)
    with pytest.raises(RuntimeError, match="call setpts first"):
        other.execute(np.ones((2, 3), complex))
    x = [np.linspace(0, 2, 3)] * 2
    for one in (plan, other):
        one.setpts(*x, None, *(x if nufft_type == 3 else []))
    values = np.arange(6.0).reshape(2, 3) + 0j
    np.testing.assert_array_equal(other.execute(values), plan.execute(values))
