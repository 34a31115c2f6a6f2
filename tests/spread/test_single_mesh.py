# SPDX-License-Identifier: BSD-3-Clause
"""single_mesh: rows longer than local memory, what it declines, and how rows are shared out."""

import numpy as np
import pytest

import oracle
import particlemesh as pm
from particlemesh.spread.single_mesh import lanes_of_row, rows_of_group

MESH = pm.Mesh((33, 9), pm.Box((1.0, 2.0), periodic=(False, True)))
WINDOW = pm.bspline(5)
on_devices = pytest.mark.backends("opencl", "cuda")


def drawn(count, spread):
    """Positions, values and vectors."""
    rng = np.random.default_rng(11)
    return (
        (0.01 + spread * rng.random((count, 2))) * MESH.box.lengths,
        rng.normal(size=count),
        rng.normal(size=(count, 2)),
    )


@on_devices
def test_rows_too_long_for_local_memory_are_written_at_once(backend):
    x, q, v = drawn(1200, 0.03)
    with pm.Plan(MESH, WINDOW, method="single_mesh", dtype="float64") as plan:
        plan.set_positions(backend.array(x))
        pairs = (
            (plan.spread(backend.array(q)), oracle.spread(MESH, WINDOW, x, q)),
            (plan.spread_gradient(backend.array(v)), oracle.spread_gradient(MESH, WINDOW, x, v)),
        )
        for result, expected in pairs:
            np.testing.assert_allclose(backend.host(result), expected, atol=1e-13 * np.abs(expected).max())


@on_devices
def test_the_papers_construction_says_that_it_is_not_deterministic(backend):
    x, q, _ = drawn(30, 0.98)
    options = {"single_mesh": {"construction": "paper"}}
    with pm.Plan(MESH, WINDOW, method="single_mesh", deterministic=True, options=options) as plan:
        plan.set_positions(backend.array(x))
        with pytest.raises(pm.MethodNotSuitable, match="not deterministic with construction='paper'"):
            plan.spread(backend.array(q))


def test_lanes_of_a_row_follow_the_papers_rule():
    means = {0.0: 1, 0.99: 1, 1: 1, 1.99: 1, 2: 2, 3.99: 2, 4: 4, 7.99: 4, 8: 8, 15.99: 8, 16: 16, 103: 16}
    assert {mean: lanes_of_row(int(100 * mean), 100) for mean in means} == means


def test_rows_of_a_group_fit_its_memory():
    assert rows_of_group(103 * 10, 10, 128, 8) == 32
    assert rows_of_group(300 * 10, 10, 128, 8) == 8
    assert rows_of_group(10**5, 10, 128, 8) == 32  # no few of them would fit
    assert rows_of_group(10, 10, 33, 8) == 17  # two groups of about as many
    assert rows_of_group(10, 10, 5, 8) == 5
