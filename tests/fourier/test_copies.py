# SPDX-License-Identifier: BSD-3-Clause
"""Copies and pickles of solvers and transforms."""

import copy
import pickle

import numpy as np
import pytest

import particlemesh as pm
from particlemesh.fourier import Solver, Transform


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
    transform = through(Transform(mesh, "tsc", real=False))
    assert transform.window.name == "bspline3"
    assert not transform.real
