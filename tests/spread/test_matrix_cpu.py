# SPDX-License-Identifier: BSD-3-Clause
"""Stored matrices on the processor: equal to dense ones, the same bits for any number of threads, sizes, shares."""

import numpy as np
import pytest

import particlemesh as pm
from particlemesh.arrays import operands
from particlemesh.backends import cpu
from particlemesh.spread.cpu import matrix as matrix_cpu

FORMS = {
    "rows": matrix_cpu.by_rows,
    "groups-1": lambda workspace: matrix_cpu.by_groups(workspace, 1),
    "groups-64": lambda workspace: matrix_cpu.by_groups(workspace, 64),
    "ell-coo": matrix_cpu.ell_coo,
    "ell-coo-3": lambda workspace: matrix_cpu.ell_coo(workspace, 3),
}


def views(plan, values, core):
    native = operands.take(values, core, len(core), plan.dtype, plan.backend, "values", upload=False)
    field = np.zeros((*values.shape[: values.ndim - len(core)], *plan.mesh.field_shape), values.dtype)
    shape = field.shape[: values.ndim - len(core)] + plan.mesh.field_shape
    out = operands.give(field, native, shape, plan.mesh.ndim, 3, plan.backend, accumulate=True, upload=False)
    return native.view, field, out.view


def product(matrix, plan, values, gradient=False):
    core = (plan.count, plan.mesh.ndim) if gradient else (plan.count,)
    came, field, view = views(plan, values, core)
    matrix.apply(plan.workspace, came, view, gradient)
    return field


@pytest.mark.parametrize("form", FORMS)
def test_particles_without_weight_and_no_particles(form):
    mesh = pm.Mesh((6, 5, 7), pm.Box((1.0, 1.0, 1.0), periodic=False), offset=0.5)
    with pm.Plan(mesh, "cic", backend="cpu", dtype="float64") as plan:
        plan.set_positions(
            np.array([[0.5, 0.5, 0.5], [np.nan, 0.5, 0.5], [0.2, 0.3, 0.9], [0.5, 2.0, 0.5]]), check=False
        )
        came = product(FORMS[form](plan.workspace), plan, np.array([1.0, np.nan, 2.0, np.nan]))
        np.testing.assert_allclose(came, plan.spread(np.array([1.0, 5.0, 2.0, 5.0])), atol=1e-15)
        plan.set_positions(np.empty((0, 3)))
        assert not product(FORMS[form](plan.workspace), plan, np.empty(0)).any()


def test_a_value_that_is_not_finite_stays_where_it_is_spread():
    mesh = pm.Mesh((20, 20), (1.0, 1.0))
    with pm.Plan(mesh, "cic", backend="cpu", dtype="float64") as plan:
        plan.set_positions(np.array([[0.11, 0.11], [0.52, 0.51]]))
        assert np.isnan(product(matrix_cpu.ell_coo(plan.workspace, 3), plan, np.array([np.nan, 1.0]))).sum() == 4


def test_width_of_the_rectangle():
    counts = np.repeat([0, 2, 5, 9], [10_000, 5_000, 10_000, 5_000])
    assert matrix_cpu.usual_width(counts) == 5  # a third of the rows have five entries or more
    assert matrix_cpu.usual_width(np.repeat([0, 7], [8_000, 4_095])) == 0  # 4096 rows at least
    assert matrix_cpu.usual_width(np.repeat([0, 7], [8_000, 4_096])) == 7
    assert matrix_cpu.usual_width(np.full(4_095, 7)) == 0
    for many in (4_096, 12_289):
        counts = np.random.default_rng(2).poisson(6.0, many)
        k = matrix_cpu.usual_width(counts)
        enough = max(4_096, many / 3)
        assert (counts >= k).sum() >= enough > (counts >= k + 1).sum()


def test_sizes():
    mesh = pm.Mesh((10, 10, 10), (1.0, 1.0, 1.0))
    with pm.Plan(mesh, "bspline4", backend="cpu", dtype="float32") as plan:
        plan.set_positions(np.random.default_rng(1).random((50, 3)))
        entries = 50 * 64
        assert matrix_cpu.by_rows(plan.workspace).nbytes == entries * 8 + 8 * 1001
        assert matrix_cpu.by_groups(plan.workspace, 64).nbytes == entries * 10 + 8 * 17
        matrix = matrix_cpu.ell_coo(plan.workspace, 2)
        assert matrix.width == 2
        beyond = len(matrix.row)
        assert matrix.nbytes == (2000 + beyond) * 8 + 4 * beyond + 8 * 1001
        with pytest.raises(ValueError, match="group_size is 0"):
            matrix_cpu.by_groups(plan.workspace, 0)


def test_shares_have_about_as_many_entries(monkeypatch):
    asked = []
    plain = cpu.run
    monkeypatch.setattr(
        matrix_cpu, "run", lambda function, threads, *a, **k: asked.append(a) or plain(function, threads, *a, **k)
    )
    x = np.random.default_rng(1).normal(0.5, 0.05, (20_000, 2))
    with pm.Plan(pm.Mesh((64, 64), (1.0, 1.0)), "bspline3", backend="cpu", threads=2) as plan:
        plan.set_positions(x)
        matrix = matrix_cpu.by_rows(plan.workspace)
        product(matrix, plan, np.ones(20_000))
        cuts, start = asked[-1][:2]
        assert np.diff(start[cuts]).max() < 2 * start[-1] / (len(cuts) - 1)
