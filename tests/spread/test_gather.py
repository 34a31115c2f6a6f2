# SPDX-License-Identifier: BSD-3-Clause
"""Nodes that gather: which particles find their cell taken, and placements that serve many values."""

import numpy as np
import pytest

import oracle
import particlemesh as pm

WINDOW = pm.bspline(4)
METHODS = ("gather", "gather_list")
CUBE = pm.Mesh((4, 5, 6), (4.0, 5.0, 6.0))


def everywhere(mesh, count, seed=1):
    return np.random.default_rng(seed).uniform(0.001, 0.999, (count, mesh.ndim)) @ np.asarray(mesh.box.matrix)


def near(result, expected):
    np.testing.assert_allclose(result, expected, rtol=0, atol=1e-13 * max(np.abs(expected).max(initial=0), 1))


def listed(plan, device):
    """How many particles have no cell of their own."""
    return int(device.host(plan.workspace.scratch("gather.listed", (1,), np.uint32))[0])


def one_a_cell():
    return np.stack(np.meshgrid(*(np.arange(n) + 0.25 for n in CUBE.shape), indexing="ij"), -1).reshape(-1, 3)


@pytest.mark.backends("opencl", "cuda")
@pytest.mark.parametrize(
    ("x", "left"),
    [(one_a_cell(), 0), (one_a_cell()[::7], 0), (np.full((75, 3), 2.6), 74), (np.tile(one_a_cell(), (3, 1)), 240)],
    ids=["one in every cell", "few", "all in one cell", "three in every cell"],
)
def test_what_finds_its_cell_taken_is_listed(backend, x, left):
    q = np.random.default_rng(3).normal(size=len(x))
    with pm.Plan(CUBE, WINDOW, method="gather") as plan:
        plan.set_positions(backend.array(x))
        near(backend.host(plan.spread(backend.array(q))), oracle.spread(CUBE, WINDOW, x, q))
        assert listed(plan, backend) == left


@pytest.mark.backends("opencl", "cuda")
@pytest.mark.parametrize("method", METHODS)
def test_a_placement_serves_many_values_and_goes_with_its_positions(backend, method, monkeypatch):
    rng = np.random.default_rng(5)
    with pm.Plan(CUBE, WINDOW, method=method) as plan:
        for count in (90, 60):
            x = everywhere(CUBE, count, seed=count)
            plan.set_positions(backend.array(x))
            plan.spread(backend.array(np.zeros(count)))
            chosen = plan.methods.of("spread")
            with monkeypatch.context() as patch:
                patch.setattr(chosen, "prepare", None)  # a second preparation would fail
                for _ in range(2):
                    q = rng.normal(size=count)
                    near(backend.host(plan.spread(backend.array(q))), oracle.spread(CUBE, WINDOW, x, q))
