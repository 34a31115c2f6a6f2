# SPDX-License-Identifier: BSD-3-Clause
"""Copies and pickles of solvers and transforms."""

import copy
import pickle

import numpy as np
import pytest

import particlemesh as pm
from particlemesh.fourier import Bands, Halves, Solver, Transform, VectorSolver


@pytest.mark.parametrize("through", [copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_copies_start_without_positions(through):
    mesh = pm.Mesh((7, 6, 5), (1.0, 2.0, 3.0), offset=(0.0, 0.5, 0.0))
    rng = np.random.default_rng(1)
    x, q = rng.random((9, 3)), rng.normal(size=9)
    solver = Solver(mesh, "bspline6", green="yukawa", kappa=2.0, gradient="ik", threads=1).set_positions(x)
    other = through(solver)
    with pytest.raises(RuntimeError, match="set_positions first"):
        other.potential(q)
    np.testing.assert_array_equal(other.set_positions(x).gradient(q), solver.gradient(q))
    flow = VectorSolver(mesh, "bspline6", "yukawa", kappa=2.0, forms=[np.ones_like], threads=1).set_positions(x)
    copied = through(flow).set_positions(x)
    np.testing.assert_array_equal(copied.field(np.ones((3, 9))), flow.field(np.ones((3, 9))))
    transform = through(Transform(mesh, "tsc", real=False))
    assert transform.window.name == "bspline3"
    assert not transform.real


def test_attributes_are_read_only_and_factors_are_kept_apart():
    from particlemesh.kernels import backend

    mesh, factors, field = pm.Mesh((4, 4), (1.0, 1.0)), [np.ones(3), np.ones(3)], np.ones((4, 4), complex)
    bands = Bands(backend("cpu"), (4, 4), (3, 3), factors, "float64", order="centred")
    halves = Halves(backend("cpu"), (3,), "float64", "centred")
    for one in (Solver(mesh), VectorSolver(mesh), Transform(mesh), bands, halves):
        for name in [n for n in dir(one) if n[0] != "_"]:
            with pytest.raises(AttributeError, match="read-only"):
                setattr(one, name, 1)
    factors[0][:] = 7.0
    assert bands.to_modes(field)[1, 1] == 16
    with pytest.raises(ValueError, match="read-only"):
        bands.factors[0][0] = 2.0
