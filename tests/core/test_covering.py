# SPDX-License-Identifier: BSD-3-Clause
"""A pairwise covering array of everything that varies, and on each row every law that applies."""

import itertools

import numpy as np
import pytest

import oracle
import particlemesh as pm
from cases import FACTORS, Row, case_of, matrices, mesh_of, rows
from covering import covering
from devices import laws
from particlemesh.window import window_of
from trials import CHECKS, Trial

ROWS = rows()
BY_NAME = {str(law): law for law in laws()}


def test_every_pair_and_every_method_is_covered():
    pairs = {pair for row in ROWS for pair in itertools.combinations(enumerate(row), 2)}
    lists = [[(f, value) for value in values] for f, values in enumerate(FACTORS.values())]
    assert pairs == {pair for one, other in itertools.combinations(lists, 2) for pair in itertools.product(one, other)}
    assert tuple(FACTORS) == Row._fields
    assert {row.method for row in ROWS} == set(BY_NAME)


def test_rows_are_few():
    """No array has fewer rows than the two largest factors have pairs; 250 rows are 19 methods."""
    most, second = sorted(map(len, FACTORS.values()))[:-3:-1]
    assert most * second <= len(ROWS) <= 1.1 * most * second


def test_rows_are_the_same_every_time():
    assert covering(FACTORS) == covering(dict(FACTORS)) == ROWS


def test_the_dense_matrices_are_the_oracle():
    for boundary, window in [("periodic", "bspline3"), ("triclinic-mixed", "m4prime"), ("ghosts", "peskin4")]:
        row = ROWS[0]._replace(boundary=boundary, size="odd", dimension="3", window=window, count="4", batch="2")
        mesh, window, x, q, v, f = case_of(row, 0)
        weights, slopes, *_ = matrices(mesh, window, x)
        shape = (2, *mesh.field_shape)
        np.testing.assert_allclose((q @ weights).reshape(shape), oracle.spread(mesh, window, x, q), atol=1e-13)
        spread = (v.reshape(2, -1) @ slopes.reshape(12, slopes.shape[-1])).reshape(shape)
        np.testing.assert_allclose(spread, oracle.spread_gradient(mesh, window, x, v), atol=1e-12)
        flat = f.reshape(2, -1)
        np.testing.assert_allclose(flat @ weights.T, oracle.interpolate(mesh, window, x, f), atol=1e-13)
        result = np.einsum("bm,pdm->bpd", flat, slopes)
        np.testing.assert_allclose(result, oracle.gradient(mesh, window, x, f), atol=1e-12)


def test_a_row_keeps_every_law(backend, row, request):
    law, seed = BY_NAME[row.method], ROWS.index(row)
    window = window_of(row.window)
    real = "float64" if row.precision == "float64" else "float32"
    reason = law.declines(backend, mesh_of(row, window), window, real, int(row.count))
    if reason is not None:
        t = Trial(row, law, backend, seed)
        with pytest.raises(pm.MethodNotSuitable, match="cannot serve this problem"):
            t.spread(t.q) if law.direction == "spread" else t.interpolate(t.f)
        return
    CHECKS[law.direction](Trial(row, law, backend, seed, thin=request.config.thins))  # both directions equal the oracle
