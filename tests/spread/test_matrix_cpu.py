# SPDX-License-Identifier: BSD-3-Clause
"""Stored matrices on the processor: the width of their rectangle, their bytes, and the shares of threads."""

import numpy as np
import pytest

import particlemesh as pm
from particlemesh.backends import cpu
from particlemesh.spread.cpu import matrix as matrix_cpu


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


@pytest.mark.parametrize(
    ("method", "options"), [("group_mesh", {}), ("hybrid_mesh", {"width": 2}), ("single_mesh", {})]
)
def test_memory_is_what_was_said(method, options):
    """Entries are counted before there is room for them: that a rectangle takes more is known."""
    with pm.Plan(
        pm.Mesh((10, 10, 10), (1.0, 1.0, 1.0)), "bspline4", backend="cpu", dtype="float32", method=method,
        options={method: options},
    ) as plan:  # fmt: skip
        plan.set_positions(np.random.default_rng(1).random((50, 3))).spread(np.ones(50, np.float32))
        matrix = plan.methods.known["spread"]._matrix
        others, entries = int(matrix.start[-1]), 50 * 64
        assert matrix.column.size == others + matrix.width * 1000 >= entries
        assert matrix.row.size == (others if matrix.width else 0)
        assert matrix.node.size == (entries if method == "group_mesh" else 0)


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
