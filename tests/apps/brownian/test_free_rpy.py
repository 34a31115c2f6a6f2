# SPDX-License-Identifier: BSD-3-Clause
"""The mobility in unbounded fluid: against formulas, boxes that grow, and noise; mobilities of boxes that deform."""

import pickle

import numpy as np
import pytest

from particlemesh.apps.brownian import RPY, BrownianDynamics, FreeRPY
from particlemesh.apps.brownian.formulas import whole


def dense(x, radius, viscosity):
    """Return the mobility matrix by the formulas of pairs."""
    count = len(x)
    radius = np.broadcast_to(radius, count)
    matrix = np.zeros((count, 3, count, 3))
    for i in range(count):
        for j in range(count):
            d = x[i] - x[j]
            r = np.linalg.norm(d)
            f, g = whole(r, radius[i], radius[j])
            unit = d / r if r else d
            matrix[i, :, j] = (f * np.eye(3) + g * np.outer(unit, unit)) / viscosity
    return matrix.reshape(3 * count, 3 * count)


@pytest.mark.parametrize("radius", [0.7, np.linspace(0.3, 1.2, 30)], ids=["one", "many"])
def test_products_and_roots_are_those_of_the_matrix(radius):
    rng = np.random.default_rng(2)
    x, forces = rng.uniform(0, 4, (30, 3)), rng.normal(size=(2, 3, 30, 3))
    x[3] = x[4]
    rpy = FreeRPY(radius, viscosity=2.0, threads=2).set_positions(x)
    matrix = dense(x, radius, 2.0)
    np.testing.assert_allclose(rpy.velocity(forces), (forces.reshape(6, 90) @ matrix).reshape(forces.shape), atol=1e-14)
    values, vectors = np.linalg.eigh(matrix)
    assert values.min() > -1e-12
    root = (vectors * np.sqrt(np.maximum(values, 0))) @ vectors.T
    expected = (forces.reshape(6, 90) @ root).reshape(forces.shape)
    np.testing.assert_allclose(rpy.square_root(forces, tolerance=1e-10), expected, atol=1e-7)
    assert rpy.info.estimate <= 1e-10 and rpy.count == 30
    single = rpy.velocity(forces.astype("f4"))
    assert single.dtype == np.float32
    copy = pickle.loads(pickle.dumps(rpy)).set_positions(x)
    np.testing.assert_array_equal(copy.velocity(forces), rpy.velocity(forces))


def test_a_large_box_has_the_mobility_of_unbounded_fluid():
    """Velocities relative to the first sphere: the box adds the same flow everywhere, to the order of 1 / L**3."""
    x, forces = np.random.default_rng(3).uniform(0, 4, (12, 3)), np.random.default_rng(4).normal(size=(12, 3))
    free = FreeRPY().set_positions(x).velocity(forces)
    boxed = RPY((400.0,) * 3, accuracy=1e-5, cutoff=40.0).set_positions(x).velocity(forces)
    np.testing.assert_allclose(boxed - boxed[0], free - free[0], atol=1e-3)


def test_spheres_of_a_simulation_move_alike_after_a_restart(tmp_path):
    pytest.importorskip("h5py")
    x = np.random.default_rng(5).uniform(0, 6, (8, 3))
    motion = BrownianDynamics(x, FreeRPY(np.linspace(0.5, 1, 8)), time_step=0.01, seed=3)
    motion.run(4)
    motion.save(tmp_path / "state.h5")
    again = BrownianDynamics.load(tmp_path / "state.h5")
    for each in (motion, again):
        each.run(3)
    np.testing.assert_array_equal(again.positions, motion.positions)


def test_what_is_not_allowed_is_refused():
    x = np.zeros((2, 3))
    with pytest.raises(RuntimeError, match="call set_positions first"):
        FreeRPY().velocity(x)
    with pytest.raises(ValueError, match="2 positions and 3 radii"):
        FreeRPY([1.0, 1.0, 1.0]).set_positions(x)
    with pytest.raises(ValueError, match=r"\(N, 3\) is needed"):
        FreeRPY().set_positions(np.zeros((1, 2, 3)))
    two = FreeRPY().set_positions(x)
    with pytest.raises(ValueError, match=r"forces have shape \(3, 3\); \(..., 2, 3\) is needed"):
        two.velocity(np.zeros((3, 3)))
    with pytest.raises(ValueError, match="forces are not all finite; sphere 1 is the first"):
        two.velocity([[0, 0, 0], [0, np.nan, 0]])
    with pytest.raises(TypeError, match="z are complex"):
        two.square_root(x + 0j)


def test_a_mobility_in_a_deformed_box_keeps_its_parameters():
    rng = np.random.default_rng(1)
    x, forces = rng.uniform(0, 12, (60, 3)), rng.normal(size=(60, 3))

    def box(strain):
        return np.array([[12.0, 0, 0], [12 * strain, 12, 0], [0, 0, 12]])

    rpy = RPY(box(0.5), accuracy=1e-4).set_positions(x)
    for strain in (-0.5, -0.2, 0.0, 0.3):
        sheared = rpy.in_box(box(strain)).set_positions(x)
        for name in ("splitting", "cutoff", "shape", "window"):
            assert getattr(sheared.parameters, name) == getattr(rpy.parameters, name)
        exact = RPY(box(strain), accuracy=1e-8).set_positions(x).velocity(forces)
        error = np.sqrt(((sheared.velocity(forces) - exact) ** 2).mean() / (forces**2).mean())
        assert error < 2e-4
