# SPDX-License-Identifier: BSD-3-Clause
"""Stored matrices on the processor: their bytes, and the shares of threads."""

import numpy as np
import pytest

import particlemesh as pm
from particlemesh.backends import cpu
from particlemesh.spread.cpu import matrix as matrix_cpu


@pytest.mark.parametrize("method", ["group_mesh", "hybrid_mesh", "single_mesh"])
def test_memory_is_what_was_said(method):
    """Entries are counted before there is room for them."""
    mesh = pm.Mesh((10, 10, 10), (1.0, 1.0, 1.0))
    with pm.Plan(mesh, "bspline4", backend="cpu", dtype="float32", method=method) as plan:
        plan.set_positions(np.random.default_rng(1).random((50, 3))).spread(np.ones(50, np.float32))
        matrix = plan.methods.known["spread"]._matrix
        assert matrix.start[-1] == matrix.column.size == 50 * 64
        assert matrix.node.size == (50 * 64 if method == "group_mesh" else 0)


def test_shares_have_about_as_many_entries(monkeypatch):
    asked = []
    plain = cpu.run
    monkeypatch.setattr(
        matrix_cpu, "run", lambda function, threads, *a, **k: asked.append(a) or plain(function, threads, *a, **k)
    )
    x = np.random.default_rng(1).normal(0.5, 0.05, (20_000, 2))
    with pm.Plan(pm.Mesh((64, 64), (1.0, 1.0)), "bspline3", method="single_mesh", backend="cpu", threads=2) as plan:
        plan.set_positions(x)
        plan.spread(np.ones(20_000))
        cuts, start = asked[-1][:2]
        assert np.diff(start[cuts]).max() < 2 * start[-1] / (len(cuts) - 1)
