# SPDX-License-Identifier: BSD-3-Clause
"""Read-only arrays, lists and arrays of JAX come in, and results are of their kind."""

import contextlib
import itertools

import numpy as np
import pytest

from particlemesh.apps.pme import PME, Dispersion, PMEBatch
from pme_cases import TRICLINIC, random_charges

COARSE = dict(cutoff=1.4, splitting=2.0, shape=(12, 15, 16), window="bspline5")
X, Q = random_charges(20)  # most cases are of double precision, for which other tests compile the same functions
FACES = {
    "charges": lambda x, q, mu, s: PME(TRICLINIC, **COARSE)(x, q),
    "dipoles": lambda x, q, mu, s: PME(TRICLINIC, **COARSE)(x, q, dipoles=mu),
    "batch": lambda x, q, mu, s: PMEBatch(TRICLINIC, 2, **COARSE)(x, q, s),
    "dispersion": lambda x, q, mu, s: Dispersion(TRICLINIC, **COARSE)(x, q),
}


def read_only(array):
    array = array.copy()
    array.flags.writeable = False
    return array


@pytest.mark.turns(4)
@pytest.mark.parametrize(
    ("face", "kind", "real"),
    [*itertools.product(FACES, ("read-only", "list", "JAX"), ("float64",)), ("charges", "JAX", "float32")],
)
def test_arrays_come_in_and_go_out(face, kind, real):
    x, q = X.astype(real), Q.astype(real)
    given = x, q, q[:, None] * x, np.arange(20) % 2
    expected, precision = FACES[face](*given), contextlib.nullcontext()
    if kind == "JAX":
        jax = pytest.importorskip("jax", reason="JAX is not installed")
        convert, result, precision = jax.numpy.asarray, jax.numpy.ndarray, jax.enable_x64(real == "float64")
    else:
        convert, result = (read_only if kind == "read-only" else np.ndarray.tolist), np.ndarray
    with precision:
        result_of = FACES[face](*map(convert, given))
    assert isinstance(result_of.forces, result)
    assert result_of.forces.dtype == real
    error = 1e-12 if real == "float64" else 1e-5
    np.testing.assert_allclose(result_of.energy, expected.energy, rtol=error)
    np.testing.assert_allclose(result_of.forces, expected.forces, rtol=0, atol=error * abs(expected.forces).max())
