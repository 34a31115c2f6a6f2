# SPDX-License-Identifier: BSD-3-Clause
"""Memory that the library reads as indices is shown and not lent: written, it would end the process."""

import numpy as np
import pytest

import particlemesh as pm
from particlemesh.grid.builders import METHODS

RNG = np.random.default_rng(5)
X = RNG.random((300, 3))
BOX = (1.0, 1.0, 1.0)


def test_the_order_of_a_plan_cannot_be_written():
    mesh = pm.Mesh((8, 8, 8), BOX)
    with pm.Plan(mesh, "bspline4", order="sorted") as plan:
        for count in (300, 200, 0, 300):
            x = X[:count]
            plan.set_positions(x)
            order = plan.order
            assert not order.flags.writeable
            with pytest.raises(ValueError, match="read-only"):
                order[...] = -(2**30)
            np.testing.assert_array_equal(np.sort(order), np.arange(count))
            field = plan.spread(np.ones(count)[order])
            np.testing.assert_allclose(field, pm.spread(x, np.ones(count), mesh), atol=1e-13)
        plan.reserve(1000)
        assert not plan.order.flags.writeable
        plan.set_positions(X[::-1])
        assert not plan.order.flags.writeable


@pytest.mark.parametrize("method", [m.name for m in METHODS if "cpu" in m.backends])
def test_the_storage_of_a_grid_cannot_be_written(method):
    radii = np.full(300, 0.02) if method == "linked_list_tight" else None
    with pm.UniformGrid(BOX, shape=(8, 8, 8), method=method) as grid:
        grid.build(X, radii)
        expected = grid.pairs(0.1).j, grid.count(0.1)
        arrays = [a for a in grid.storage if isinstance(a, np.ndarray)]
        assert arrays
        for array in arrays:
            assert not array.flags.writeable
            with pytest.raises(ValueError, match="read-only"):
                array[...] = 0
        for name in ("cell_start", "order", "rank", "positions"):  # read-only, or copies
            shown = getattr(grid, name)
            if shown.flags.writeable:
                shown[...] = -(2**30)
        np.testing.assert_array_equal(grid.pairs(0.1).j, expected[0])
        np.testing.assert_array_equal(grid.count(0.1), expected[1])
        assert np.array_equal(np.sort(grid.order), np.arange(300))
        grid.build(X[::-1].copy(), radii)  # whose memory may be that of the storage
        np.testing.assert_array_equal(grid.count(0.1), expected[1][::-1])


def test_tensors_of_an_order_and_a_storage_are_copies():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    mesh = pm.Mesh((8, 8, 8), BOX)
    with pm.Plan(mesh, "bspline4", order="sorted") as plan:
        plan.set_positions(torch.tensor(X))
        field = plan.spread(torch.ones(300, dtype=torch.float64))
        plan.order[:] = -(2**30)
        np.testing.assert_array_equal(plan.spread(torch.ones(300, dtype=torch.float64)), field)
    with pm.UniformGrid(BOX, shape=(8, 8, 8), method="scan") as grid:
        grid.build(torch.tensor(X))
        expected = grid.count(0.1)
        for array in grid.storage:
            if isinstance(array, torch.Tensor):
                array[...] = -(2**30)
        assert torch.equal(grid.count(0.1), expected)
