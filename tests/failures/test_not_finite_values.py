# SPDX-License-Identifier: BSD-3-Clause
"""A value or a node that is not finite reaches no further than the stencil, but for methods that say so."""

import numpy as np
import pytest

import particlemesh as pm

MESH = pm.Mesh((12, 13, 15), (1.0, 1.0, 1.0))
COUNT, BAD = 400, 7
X = np.random.default_rng(1).random((COUNT, 3)).astype(np.float32)
NODE = (5, 6, 7)


@pytest.fixture
def plan(backend, law):
    if not law.method.confines_non_finite:
        pytest.skip("what is not finite reaches further with this method, which its documentation says")
    with law.plan(MESH, "tsc", backend=backend.name, dtype="float32") as made:
        yield made.set_positions(backend.array(X))


@pytest.mark.direction("spread")
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_bad_value_spoils_the_27_nodes_of_its_stencil(backend, law, plan, bad):
    values = np.ones(COUNT, np.float32)
    values[BAD] = bad
    field = backend.host(plan.spread(backend.array(values)))
    assert (~np.isfinite(field)).sum() == 27
    vectors = np.ones((COUNT, 3), np.float32)
    vectors[BAD] = bad
    assert (~np.isfinite(backend.host(plan.spread_gradient(backend.array(vectors))))).sum() == 27


@pytest.mark.direction("interpolate")
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_bad_node_spoils_the_particles_that_reach_it(backend, law, plan, bad):
    field = np.zeros(MESH.shape, np.float32)
    field[NODE] = 1
    reached = backend.host(plan.interpolate(backend.array(field))) != 0
    field[NODE] = bad
    values, gradient = map(backend.host, plan.value_and_gradient(backend.array(field)))
    assert 0 < reached.sum() < COUNT
    assert (np.isfinite(values) != reached).all()
    assert (np.isfinite(gradient).all(-1) != reached).all()
