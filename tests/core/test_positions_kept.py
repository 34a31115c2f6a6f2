# SPDX-License-Identifier: BSD-3-Clause
"""Positions that change with the caller's array, or in float32 values; records that straddle lines of the cache."""

import numpy as np
import pytest

import particlemesh as pm
from particlemesh.particles.locate import SKIP


def test_positions_are_taken_when_they_are_set():
    rng = np.random.default_rng(2)
    mesh, x, q = pm.Mesh((20, 21, 22), (1.0, 2.0, 3.0)), rng.random((5000, 3)), rng.standard_normal(5000)
    with pm.Plan(mesh, "bspline4", threads=3) as plan:
        plan.set_positions(x)
        expected = plan.spread(q)
    with pm.Plan(mesh, "bspline4", threads=3) as plan:
        ours = x.copy()
        plan.set_positions(ours)
        ours[:] = np.nan
        assert (plan.spread(q) == expected).all()
        with pytest.raises(ValueError, match="5000 not finite of 5000; the first is particle 0"):
            plan.set_positions(ours)
        assert (plan.spread(q) == expected).all()
        assert plan.status == (5000, 0, 0, -1, 0)
        plan.reserve(20000)  # what is there moves into new memory
        assert (plan.spread(q) == expected).all()
        ours[:] = x
        ours[[77, 4321]] = np.inf
        plan.set_positions(ours, check=False)
        assert plan.status == (5000, 2, 0, 77, 0)
        assert np.flatnonzero(plan.particles.node[2] == SKIP).tolist() == [77, 4321]
        assert plan.capacity == 20000
        plan.set_positions(x)
        assert (plan.spread(q) == expected).all()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_record_lies_within_one_line_of_the_cache(dtype):
    for count in (1, 7, 100, 100001):
        with pm.Plan(pm.Mesh(8, 1.0), "cic", dtype=dtype) as plan:
            plan.set_positions(np.linspace(0, 1, count))
            records = plan.particles.ordering.records
            assert len(records) == 4 * count
            assert records.ctypes.data % 64 == 0


@pytest.mark.backends("cpu")
def test_double_positions_keep_their_cell_with_single_values(backend):
    with pm.Plan(pm.Mesh(16, 1.0), "bspline4", dtype="float32") as plan:
        plan.set_positions(np.array([np.nextafter(0.5, 0), 0.5]))
        assert plan.particles.node[2].tolist() == [6, 7]
        assert plan.particles.fraction[2].tolist() == [0.5, -0.5]
