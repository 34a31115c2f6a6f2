# SPDX-License-Identifier: BSD-3-Clause
"""Brownian dynamics with hydrodynamic interactions: diffusion of a dilute suspension, and checkpoints."""

import numpy as np
import pytest

from particlemesh.apps.brownian import RPY, WCA, BrownianDynamics

EDGE, COUNT = 24.0, 200
LAW = 1 - 2.83729747948062 / EDGE + 4 * np.pi / 3 / EDGE**3  # the mobility of a sphere in a periodic box


def suspension(**options):
    x = np.random.default_rng(3).uniform(0, EDGE, (COUNT, 3))
    rpy = RPY((EDGE,) * 3, accuracy=1e-3, deterministic=True)
    return BrownianDynamics(x, rpy, time_step=1e-4, seed=6, **options)


@pytest.mark.parametrize("integrator", ["euler", "midpoint"])
def test_short_time_diffusion_is_the_mobility(integrator):
    # 30 steps of 600 numbers, nearly independent: a standard error of sqrt(2 / 18000) = 1.1 %.
    motion, squares = suspension(integrator=integrator, temperature=2.0), []
    for _ in range(30):
        before = motion.positions
        motion.run(1)
        squares.append(((motion.positions - before) ** 2).mean())
    assert np.mean(squares) / (2 * 2.0 * 1e-4) == pytest.approx(LAW, rel=0.045)


def test_neighbours_move_together():
    # Four pairs in contact, far from each other; 40 steps each: covariance over variance, along and across the pair.
    start = np.array([[6.0, 6, 6], [18, 6, 18], [6, 18, 18], [18, 18, 6]])
    x = (start[:, None] + [[-1.0, 0, 0], [1, 0, 0]]).reshape(-1, 3)
    rpy = RPY((EDGE,) * 3, accuracy=1e-3)
    motion = BrownianDynamics(x, rpy, time_step=1e-6, seed=1)
    moved = []
    for _ in range(150):
        before = motion.positions
        motion.run(1)
        moved.append((motion.positions - before).reshape(-1, 2, 3))
    moved = np.concatenate(moved)
    rpy.set_positions(x)
    unit = np.zeros((2, 8, 3))
    unit[0, 0, 0] = unit[1, 0, 1] = 1
    velocity = rpy.velocity(unit)
    for axis, row in ((0, velocity[0]), (1, velocity[1])):
        expected = row[1, axis] / row[0, axis]
        correlation = (moved[:, 0, axis] * moved[:, 1, axis]).mean() / (moved[..., axis] ** 2).mean()
        assert correlation == pytest.approx(expected, abs=4 / np.sqrt(len(moved)))  # of 600 samples


@pytest.mark.parametrize("integrator", ["euler", "midpoint"])
def test_a_checkpoint_continues_with_the_same_bits(tmp_path, integrator):
    pytest.importorskip("h5py", reason="h5py is not installed")
    motion = suspension(integrator=integrator, forces=WCA((EDGE,) * 3, epsilon=1e-3))
    motion.run(3)
    motion.save(tmp_path / "a.h5")
    motion.run(3)
    other = BrownianDynamics.load(tmp_path / "a.h5")
    other.run(3)
    assert other.mobility.parameters == motion.mobility.parameters
    np.testing.assert_array_equal(other.positions, motion.positions)


def test_settings_are_arguments():
    rpy = RPY((5.0, 6.0, 7.0), [1.0, 0.5], viscosity=2.0, accuracy=1e-2, window="bspline6", applications=3, threads=1)
    assert rpy.settings()["splitting"] is None
    again = RPY(**rpy.settings())
    for each in (rpy, again):
        each.set_positions(np.ones((2, 3)))
    assert RPY(**again.settings()).settings().keys() == rpy.settings().keys()
    assert again.settings()["window"] == "bspline6" and again.parameters == rpy.parameters
