# SPDX-License-Identifier: BSD-3-Clause
"""A program with a kernel of its own uses public names only and runs everywhere (support/neighbour_mean.py)."""

import ast
import threading

import numpy as np
import pytest

import neighbour_mean
import particlemesh as pm
from neighbour_mean import FILE, NeighbourMean
from particlemesh.backends import cuda, source
from ptx import NVRTC

LENGTHS, RADIUS, SELF_WEIGHT = np.array([4.0, 3.0, 5.0]), 0.9, 2.0
RNG = np.random.default_rng(4)
X = RNG.random((61, 3)) * LENGTHS
Q = RNG.normal(size=(2, 61))


def expected(values, x=X):
    d = x[:, None] - x
    d -= np.rint(d / LENGTHS) * LENGTHS
    near = (d**2).sum(-1) <= RADIUS**2
    weights = near + (SELF_WEIGHT - 1) * np.eye(len(x))
    return values @ weights.T / weights.sum(1)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_mean_is_that_of_all_distances(backend, dtype):
    mean = NeighbourMean(LENGTHS, RADIUS, self_weight=SELF_WEIGHT).set_positions(backend.array(X.astype(dtype)))
    got = mean(backend.array(Q.astype(dtype)))
    assert type(got) is type(backend.array(Q))
    assert got.dtype == dtype
    np.testing.assert_allclose(backend.host(got), expected(Q), rtol=0, atol=3e-6 if dtype == "float32" else 1e-13)


@pytest.mark.parametrize("order", ["strided", "reversed", "fortran"])
def test_arrays_of_any_strides_come_in_and_go_out(backend, order):
    mean = NeighbourMean(LENGTHS, RADIUS, self_weight=SELF_WEIGHT).set_positions(backend.array(X, order))
    out = backend.array(np.zeros_like(Q), order)
    assert mean(backend.array(Q, order), out=out) is out
    np.testing.assert_allclose(backend.host(out), expected(Q), rtol=0, atol=1e-13)


def test_a_part_of_an_array_is_read_from_where_it_begins(backend):
    mean = NeighbourMean(LENGTHS, RADIUS, self_weight=SELF_WEIGHT).set_positions(backend.array(X))
    both, out = backend.array(Q), backend.array(np.zeros_like(Q))
    mean(both[1], out=out[1])
    np.testing.assert_allclose(backend.host(out)[1], expected(Q[1]), rtol=0, atol=1e-13)
    assert not backend.host(out)[0].any()


@pytest.mark.backends("opencl", "cuda")
def test_arrays_of_the_host_are_copied_there_and_back_where_the_backend_is_named(backend):
    mean = NeighbourMean(LENGTHS, RADIUS, self_weight=SELF_WEIGHT, backend=backend.name).set_positions(X)
    got, out = mean(Q), np.zeros_like(Q)
    assert isinstance(got, np.ndarray)
    np.testing.assert_allclose(got, expected(Q), rtol=0, atol=1e-13)
    assert mean(Q, out=out) is out
    np.testing.assert_array_equal(out, got)
    assert mean.bad() == 0
    one = np.eye(61)[7]
    mean(np.where(one, np.nan, Q))
    assert mean.bad() == 2 * np.count_nonzero(expected(one)) > 2


def test_no_pairs_and_no_particles(backend):
    mean = NeighbourMean(LENGTHS, 0.1)
    mean.set_positions(backend.array(X[:2]))
    np.testing.assert_array_equal(backend.host(mean(backend.array(Q[:, :2]))), Q[:, :2])
    empty = mean.set_positions(backend.array(np.empty((0, 3))))(backend.array(np.empty(0)))
    assert empty.shape == (0,)


def test_lists_and_other_libraries():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    mean = NeighbourMean(LENGTHS, RADIUS, self_weight=SELF_WEIGHT, threads=2)
    got = mean.set_positions(torch.from_numpy(X))(torch.from_numpy(Q))
    assert isinstance(got, torch.Tensor)
    np.testing.assert_allclose(got.numpy(), expected(Q), rtol=0, atol=1e-13)
    np.testing.assert_allclose(mean.set_positions(X.tolist())(Q.tolist()), expected(Q), rtol=0, atol=1e-13)


def test_wrong_arguments_leave_the_program_as_it_was(backend):
    mean = NeighbourMean(LENGTHS, RADIUS, self_weight=SELF_WEIGHT).set_positions(backend.array(X))
    values = backend.array(Q)
    for wrong, error, text in (
        (backend.array(Q[:, :60]), ValueError, r"values has shape \(2, 60\); \(..., 61\) is needed"),
        (backend.array(Q + 0j), TypeError, "values has dtype complex128; real numbers are needed"),
        ("one", TypeError, "values is of type str; give an array of one of these kinds: NumPy"),
    ):
        with pytest.raises(error, match=text):
            mean(wrong)
    with pytest.raises(ValueError, match="out shares memory with the input"):
        mean(values, out=values)
    with pytest.raises(ValueError, match=r"positions has shape \(61, 2\); \(n, 3\) is needed"):
        mean.set_positions(backend.array(X[:, :2]))
    np.testing.assert_allclose(backend.host(mean(values)), expected(Q), rtol=0, atol=1e-13)


def test_a_second_thread_is_refused():
    mean = NeighbourMean(LENGTHS, RADIUS)
    errors = []

    def call():
        try:
            mean.set_positions(X)
        except RuntimeError as error:
            errors.append(str(error))

    with mean.busy:
        thread = threading.Thread(target=call)
        thread.start()
        thread.join()
    (error,) = errors
    assert error.startswith("another thread is using this NeighbourMean: make a NeighbourMean for each thread")


def test_it_imports_public_names_only():
    tree = ast.parse(FILE.with_suffix(".py").read_text())
    modules = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {m for m in modules if m.startswith("particlemesh")} == {"particlemesh", "particlemesh.kernels"}
    assert set(neighbour_mean.kernels.__all__) >= {"take", "give"}
    assert pm.__version__


@pytest.mark.parametrize("real", [0, 1])
@pytest.mark.parametrize("mark", [pytest.param(None, marks=NVRTC)])
def test_its_kernel_compiles_for_cuda(real, mark):
    code = source.read(FILE)
    assert b"neighbour_mean" in cuda.compile_only(code, {"REAL_IS_DOUBLE": real}, 90)
