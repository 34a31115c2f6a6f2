# SPDX-License-Identifier: BSD-3-Clause
"""Brownian dynamics of CuPy arrays: noise, forces and checkpoints as on the CPU."""

import numpy as np
import pytest
from scipy import stats

import particlemesh as pm
from particlemesh import backends
from particlemesh.apps.brownian import WCA, BrownianDynamics, Drag, HarmonicBonds
from particlemesh.apps.brownian.dynamics import Noise

WHY = backends.module("cuda").available()
pytestmark = pytest.mark.skipif(WHY is not None, reason=f"cuda does not work here: {WHY}")
BOX = pm.Box([[6.0, 0.0, 0.0], [1.5, 5.0, 0.0], [-1.0, 2.0, 5.5]])


@pytest.fixture
def cupy():
    return pytest.importorskip("cupy", reason="CuPy is not installed")


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("shape", [(501, 3), (2, 500, 3)])
def test_noise_is_normal_and_differs_from_step_to_step(cupy, dtype, shape):
    noise = Noise(2**127 + 3, cupy, np.dtype(dtype))
    draws = [noise.normal(step, draw, shape).get() for step in range(30) for draw in (0, 1)]
    again = Noise(2**127 + 3, cupy, np.dtype(dtype)).normal(7, 1, shape).get()
    assert again.dtype == dtype and (again == draws[15]).all()
    rows = np.array(draws, "f8").reshape(60, -1)
    assert stats.kstest(rows.ravel(), "norm").pvalue > 0.01
    correlation = np.corrcoef(rows)[np.triu_indices(60, 1)]
    assert abs(correlation).max() < 5 / np.sqrt(rows.shape[1])


def test_forces_are_those_of_numpy(cupy):
    rng = np.random.default_rng(1)
    x = rng.random((60, 3)) @ BOX.matrix
    for force in (WCA(BOX, 0.7, 1.2), HarmonicBonds(rng.permutation(60).reshape(-1, 2), 2.0, 1.0, BOX)):
        expected = force(x)
        forces = type(force)(**force.settings())(cupy.asarray(x))
        assert isinstance(forces, cupy.ndarray)
        np.testing.assert_allclose(forces.get(), expected, rtol=1e-9, atol=1e-9 * abs(expected).max())


@pytest.mark.parametrize("integrator", ["euler", "midpoint"])
def test_diffusion_seeds_and_checkpoints(cupy, tmp_path, integrator):
    pytest.importorskip("h5py", reason="h5py is not installed")
    start = cupy.random.default_rng(1).random((20_000, 3))

    def new():
        return BrownianDynamics(start, Drag(2.0, box=BOX), time_step=0.1, integrator=integrator, seed=4)

    motion, same = new(), new()
    motion.run(4)
    motion.save(tmp_path / "a.h5")
    motion.run(6)
    moved = (motion.positions - start).get()
    assert moved.var() == pytest.approx(2 * 0.5 * 1.0, abs=4 * np.sqrt(2 / 60_000))
    for other, steps in ((same, 10), (BrownianDynamics.load(tmp_path / "a.h5"), 6)):
        other.run(steps)
        assert isinstance(other.positions, cupy.ndarray) and (other.positions == motion.positions).all()
    assert isinstance(motion.folded, cupy.ndarray)


def test_soft_bonded_spheres_continue_with_the_same_bits(cupy, tmp_path):
    pytest.importorskip("h5py", reason="h5py is not installed")
    lattice = np.stack(np.meshgrid(*[np.arange(3) / 3] * 3, indexing="ij"), -1).reshape(-1, 3)[:26]
    bonds = HarmonicBonds(np.arange(26).reshape(-1, 2), 2.0, 1.2, BOX)
    motion = BrownianDynamics(
        cupy.asarray(lattice @ BOX.matrix), Drag(0.5, box=BOX), [WCA(BOX, 1.0, 1.0), bonds], time_step=0.003, seed=2
    )
    motion.run(5)
    motion.save(tmp_path / "a.h5")
    other = BrownianDynamics.load(tmp_path / "a.h5")
    for each in (motion, other):
        each.run(20)
    assert (motion.positions == other.positions).all()


def test_a_force_that_is_not_finite_is_named(cupy):
    def force(x):
        forces = cupy.zeros_like(x)
        forces[2, 1] = cupy.nan
        return forces

    motion = BrownianDynamics(cupy.zeros((4, 3)), Drag(), force, time_step=0.1, seed=1)
    with pytest.raises(FloatingPointError, match=r"step 0: the force on particle 2 is \(0, nan, 0\)"):
        motion.run(1)
    assert not motion.positions.any()
    with pytest.raises(TypeError, match="another library"):
        BrownianDynamics(cupy.zeros((4, 3)), Drag(), lambda x: x.get(), time_step=0.1).run(1)
