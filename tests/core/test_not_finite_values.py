# SPDX-License-Identifier: BSD-3-Clause
"""How far a value or a node that is not finite reaches, by method, and which methods report it: as documented."""

import re
from pathlib import Path

import numpy as np
import pytest

import particlemesh as pm
from devices import METHODS

MESH = pm.Mesh((28, 27, 48), (1.0, 1.0, 1.0))
COUNT, BAD = 1000, 7
NODE = (5, 6, 7)
X = NODE / np.array(MESH.shape) + np.random.default_rng(1).uniform(-0.2, 0.2, (COUNT, 3))  # also across the edges
X = (X % 1).astype(np.float32)
BEYOND = np.array([7, 7, 15])  # the most nodes beyond a stencil that a patch reaches
GUIDE = Path(__file__).parents[2] / "docs/guide/plans.rst"


def documented():
    """Return the extent of what is spoiled, by method, from the section of the guide."""
    section = GUIDE.read_text(encoding="utf-8").partition("NaN and infinity\n")[2].partition("\nThreads\n")[0]
    patch, component = re.findall(r"^- (.*?)[,:](?: in| all)", section, re.MULTILINE)
    extents = dict.fromkeys(re.findall("``(.*?)``", patch), "patch")
    return extents | dict.fromkeys(re.findall("``(.*?)``", component), "component")


@pytest.fixture
def extent(law):
    return documented().get(law.method.name, "stencil")


@pytest.fixture
def plan(backend, law):
    real = law.real(backend, MESH, "tsc", COUNT)
    with law.plan(MESH, "tsc", backend=backend.name, dtype=real) as made:
        yield made.set_positions(backend.array(X.astype(real)))


def observed(spoiled, stencil, distance, within):
    """Return the extent of what is spoiled, from masks of it and of stencils, and distances in nodes (..., 3)."""
    assert spoiled[stencil].all()
    if spoiled.all():
        return "component"
    assert (distance[spoiled] < within).all()
    return "stencil" if np.array_equal(spoiled, stencil) else "patch"


def distances(x, y):
    """Return how many nodes apart places in nodes are along each axis, the shorter way round."""
    size = np.array(MESH.shape)
    away = np.abs(x - y) % size
    return np.minimum(away, size - away)


def test_the_guide_names_methods_that_say_so_themselves():
    methods = {m for several in METHODS.values() for m in several}
    assert set(documented()) == {m.name for m in methods if not m.confines_non_finite} != set()


@pytest.mark.direction("spread")
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_bad_value_spoils_what_the_guide_says_and_is_reported_where_it_says(backend, law, plan, extent, bad):
    nodes = np.stack(np.meshgrid(*map(np.arange, MESH.shape), indexing="ij"), -1)
    away = distances(nodes, X[BAD].astype(np.float64) * MESH.shape)
    stencil = (away <= 1.5).all(-1)
    assert stencil.sum() == 27
    for call, good in ((plan.spread, np.ones(COUNT, np.float32)), (plan.spread_gradient, np.ones_like(X))):
        assert np.isfinite(backend.host(call(backend.array(good)))).all()
        assert not plan.set_positions(backend.array(X)).status.non_finite_values
        values = good.copy()
        values[BAD] = bad
        field = backend.host(call(backend.array(values)))
        assert observed(~np.isfinite(field), stencil, away, 1.5 + BEYOND + 1e-6) == extent
        assert plan.status.non_finite_values == (extent == "component")


@pytest.mark.direction("interpolate")
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_bad_node_spoils_what_the_guide_says(backend, law, plan, extent, bad):
    away = distances(X.astype(np.float64) * MESH.shape, np.array(NODE))
    stencil = (away <= 1.5).all(-1)
    assert 0 < stencil.sum() < COUNT
    field = np.ones(MESH.shape, plan.dtype)
    field[NODE] = bad
    values, gradient = map(backend.host, plan.value_and_gradient(backend.array(field)))
    for spoiled in (~np.isfinite(values), ~np.isfinite(gradient).all(-1), ~np.isfinite(gradient).any(-1)):
        assert observed(spoiled, stencil, away, 1.5 + BEYOND + 1e-6) == extent
    assert not plan.status.non_finite_values
