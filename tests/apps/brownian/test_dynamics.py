# SPDX-License-Identifier: BSD-3-Clause
"""Brownian dynamics: diffusion, equilibrium, order of both schemes, drift, seeds, and what is refused."""

import warnings

import numpy as np
import pytest
from scipy import stats

from particlemesh.apps.brownian import WCA, BrownianDynamics, Drag, HarmonicBonds

SCHEMES = ("euler", "midpoint")


class Pair:
    """Pairs of particles that drag each other along: a mobility (2, 2), the same for each axis."""

    divergence_free = True

    def __init__(self, coupling=0.6):
        self.matrix = np.array([[1.0, coupling], [coupling, 1.0]])
        values, vectors = np.linalg.eigh(self.matrix)
        self.root = vectors * np.sqrt(values) @ vectors.T

    def set_positions(self, x):
        self.count = len(x)

    def velocity(self, forces):
        return self._apply(self.matrix, forces)

    def square_root(self, z):
        return self._apply(self.root, z)

    def _apply(self, matrix, v):
        pairs = v.reshape(*v.shape[:-2], self.count // 2, 2, 3)
        return np.einsum("ij,...jk->...ik", matrix, pairs).reshape(v.shape)


class Graded:
    """A mobility that grows with x: its divergence is the slope."""

    def __init__(self, slope):
        self.slope = slope

    def set_positions(self, x):
        self.factor = 1 + self.slope * x[:, :1]

    def velocity(self, forces):
        return self.factor * forces

    def square_root(self, z):
        return np.sqrt(self.factor) * z


@pytest.mark.parametrize("integrator", SCHEMES)
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_diffusion_is_the_mobility(integrator, dtype):
    # 3000 pairs, 5 steps: the sample covariance of 9000 numbers has a standard error of sqrt(2 / 9000) = 1.5 %.
    count, dt, steps, kt = 6000, 0.02, 5, 1.7
    start = np.random.default_rng(1).random((count, 3)).astype(dtype)
    motion = BrownianDynamics(start, Pair(), temperature=kt, time_step=dt, integrator=integrator, seed=2)
    motion.run(steps)
    moved = (motion.positions - start).astype("f8").reshape(-1, 2, 3)
    covariance = np.einsum("pik,pjk->ij", moved, moved) / (3 * len(moved))
    np.testing.assert_allclose(covariance, 2 * kt * dt * steps * Pair().matrix, rtol=0.06)
    assert motion.positions.dtype == dtype and abs(moved.mean()) < 4 * np.sqrt(2 * kt * dt * steps / count)


@pytest.mark.parametrize("integrator", SCHEMES)
def test_bonds_reach_boltzmanns_distribution(integrator):
    # p(r) ~ r^2 exp(-k (r - l)^2 / 2 kT). Euler's bias at this step (2 mobility k dt = 0.02) is 1 % of the variance.
    count, stiffness, length, kt = 1500, 10.0, 1.0, 1.0
    bonds = HarmonicBonds(np.arange(2 * count).reshape(-1, 2), stiffness, length)
    start = np.zeros((2 * count, 3))
    start[1::2, 0] = length
    motion = BrownianDynamics(
        start, Drag(), bonds, temperature=kt, time_step=1e-3 if integrator == "euler" else 4e-3, integrator=integrator,
        seed=3,
    )  # fmt: skip
    motion.run(400 if integrator == "euler" else 100)  # 8 relaxation times of the length
    ends = motion.positions.reshape(-1, 2, 3)
    distance = np.linalg.norm(ends[:, 1] - ends[:, 0], axis=1)
    r = np.linspace(0, 4, 4001)
    weight = np.cumsum(r**2 * np.exp(-stiffness * (r - length) ** 2 / (2 * kt)))
    test = stats.kstest(distance, lambda x: np.interp(x, r, weight / weight[-1]))
    assert test.pvalue > 0.01


@pytest.mark.parametrize(("integrator", "order"), [("euler", 1), ("midpoint", 2)])
def test_order_without_noise(integrator, order):
    # The pair (0, 0, 0), (r, 0, 0) with an ideal spring: r decays with rate 2 k (1 - coupling).
    rate, start = 2 * 1.5 * 0.4, np.array([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0]])
    errors = []
    for steps in (20, 40, 80):
        motion = BrownianDynamics(
            start, Pair(0.6), HarmonicBonds([[0, 1]], 1.5), temperature=0.0, time_step=1 / steps, integrator=integrator
        )
        motion.run(steps)
        assert motion.time == pytest.approx(1.0)
        errors.append(abs(np.diff(motion.positions[:, 0])[0] - np.exp(-rate)))
    np.testing.assert_allclose(np.log2(errors[:-1]) - np.log2(errors[1:]), order, atol=0.05)


def test_midpoint_has_the_variance_of_a_trap_to_third_order():
    # x' = x (1 - a + a^2/2) + noise of both halves; its variance is 1 + O(a^3), where Euler has 1 + a/2.
    a = 0.4
    motion = BrownianDynamics(
        np.random.default_rng(5).normal(size=(20000, 3)), Drag(), lambda x: -x, time_step=a, integrator="midpoint",
        seed=5,
    )  # fmt: skip
    motion.run(20)
    expected = a * (1 + (1 - a) ** 2) / (1 - (1 - a + a**2 / 2) ** 2)
    assert expected == pytest.approx(1, abs=0.02)
    assert motion.positions.var() == pytest.approx(expected, abs=4 * np.sqrt(2 / 60000))


@pytest.mark.parametrize("integrator", SCHEMES)
def test_the_drift_of_a_graded_mobility(integrator):
    # One step from x = 0: the mean is kT dt slope; the noise has a standard error of sqrt(2 kT dt / N) = 0.003.
    count, slope = 200_000, 0.5
    mobility = Graded(slope)
    with pytest.raises(ValueError, match="difference="):
        BrownianDynamics(np.zeros((2, 3)), mobility, time_step=1.0)
    motion = BrownianDynamics(
        np.zeros((count, 3)), mobility, time_step=1.0, integrator=integrator, difference=1e-4, seed=7
    )
    motion.run(1)
    np.testing.assert_allclose(motion.positions.mean(axis=0), [slope, 0, 0], atol=0.02)


@pytest.mark.parametrize("integrator", SCHEMES)
def test_a_seed_is_a_run_however_it_is_cut(integrator):
    start = np.random.default_rng(1).random((40, 3))
    bonds = HarmonicBonds(np.arange(40).reshape(-1, 2), 3.0, 0.5)

    def ran(seed, *parts):
        motion = BrownianDynamics(start, Drag(), [bonds], time_step=0.01, integrator=integrator, seed=seed)
        for part in parts:
            motion.run(part)
        return motion

    whole = ran(2**128 - 1, 12)
    assert (whole.positions == ran(2**128 - 1, 5, 0, 7).positions).all()
    assert not (whole.positions == ran(1, 12).positions).any()
    assert whole.step == 12 and whole.time == pytest.approx(0.12)
    free = BrownianDynamics(start, Drag(), time_step=0.01)
    assert free.seed != BrownianDynamics(start, Drag(), time_step=0.01).seed
    again = BrownianDynamics(start, Drag(), time_step=0.01, seed=free.seed)
    for motion in (free, again):
        motion.run(2)
    assert (free.positions == again.positions).all()


@pytest.mark.parametrize("integrator", SCHEMES)
def test_a_force_that_is_not_finite_is_named_and_changes_nothing(integrator):
    calls = []

    def force(x):
        calls.append(1)
        forces = np.zeros_like(x)
        if len(calls) > (4 if integrator == "euler" else 9):  # of the fifth step; by midpoint, in its middle
            forces[3, 1] = np.nan
        return forces

    start = np.random.default_rng(1).random((5, 3))
    motion = BrownianDynamics(start, Drag(), force, time_step=0.1, integrator=integrator, seed=1)
    motion.run(4)
    before = motion.positions
    with pytest.raises(FloatingPointError, match=r"step 4: the force on particle 3 is \(0, nan, 0\)"):
        motion.run(3)
    assert motion.step == 4 and (motion.positions == before).all()
    free = BrownianDynamics(start, Drag(), time_step=0.1, integrator=integrator, seed=1)
    calls.clear()
    for each in (motion, free):
        each.run(5 - each.step)
    np.testing.assert_array_equal(motion.positions, free.positions)


def test_positions_that_overflow_are_named():
    motion = BrownianDynamics(np.zeros((3, 3), "f4"), Drag(), lambda x: x + np.float32(3e38), time_step=10.0, seed=1)
    with (
        pytest.raises(FloatingPointError, match="step 0: the new position of particle 0 is"),
        np.errstate(all="ignore"),
    ):
        motion.run(1)
    assert motion.step == 0 and not motion.positions.any()


def test_a_keyboard_interrupt_leaves_whole_steps():
    def force(x, left=[6]):  # noqa: B006 - counts calls
        left[0] -= 1
        if not left[0]:
            raise KeyboardInterrupt
        return np.zeros_like(x)

    motion = BrownianDynamics(np.zeros((3, 3)), Drag(), force, time_step=0.1, seed=1)
    with pytest.raises(KeyboardInterrupt):
        motion.run(100)
    assert motion.step == 5
    motion.run(1, progress=True)
    assert motion.step == 6


def test_positions_unfolded_and_folded():
    start = np.array([[0.5, 0.5, 0.5], [1.5, 2.5, 3.5]])
    motion = BrownianDynamics(start, Drag(box=(2.0, 3.0, 4.0)), lambda x: x * 0 + 1, temperature=0, time_step=1.0)
    motion.run(4)
    np.testing.assert_allclose(motion.positions, start + 4)
    np.testing.assert_allclose(motion.folded, (start + 4) % [2, 3, 4])
    with pytest.raises(ValueError, match="read-only"):
        motion.positions[:] = 0
    np.testing.assert_allclose(motion.positions, start + 4)
    with pytest.raises(ValueError, match="no box"):
        BrownianDynamics(start, Drag(), time_step=1.0).folded  # noqa: B018 - a property


def test_an_error_of_a_force_has_the_step():
    motion = BrownianDynamics(np.zeros((3, 3)), Drag(), lambda x: 1 / 0, time_step=0.1)
    with pytest.raises(ZeroDivisionError) as caught:
        motion.run(1)
    assert "in step 0" in caught.value.__notes__[0]


def test_forces_cannot_change_the_state():
    def force(x):
        x += 1
        return x

    with pytest.raises(ValueError, match="read-only"):
        BrownianDynamics(np.zeros((3, 3)), Drag(), force, time_step=1.0).run(1)


@pytest.mark.parametrize(
    ("changed", "error", "said"),
    [
        ({"positions": np.zeros((4, 2))}, ValueError, r"(N, 3)"),
        ({"positions": np.zeros((0, 3))}, ValueError, "one particle"),
        ({"positions": np.zeros((4, 3), complex)}, TypeError, "real"),
        ({"positions": np.full((4, 3), np.inf)}, ValueError, "particle 0 is (inf, inf, inf)"),
        ({"mobility": Drag([1.0, 2.0])}, ValueError, "2 radii for 4"),
        ({"mobility": object()}, TypeError, "without set_positions()"),
        ({"forces": 3.0}, TypeError, "forces is a float"),
        ({"forces": [3.0]}, TypeError, "force 0 is a float"),
        ({"temperature": -1.0}, ValueError, "at least 0"),
        ({"time_step": 0.0}, ValueError, "time_step"),
        ({"integrator": "verlet"}, ValueError, "'midpoint'"),
        ({"seed": -1}, ValueError, "seed"),
        ({"difference": 0.0}, ValueError, "difference"),
    ],
)
def test_wrong_arguments(changed, error, said):
    arguments = {"positions": np.zeros((4, 3)), "mobility": Drag(), "time_step": 0.1} | changed
    with pytest.raises(error) as caught:
        BrownianDynamics(arguments.pop("positions"), arguments.pop("mobility"), **arguments)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("force", "error", "said"),
    [
        (lambda x: x[:2], ValueError, r"shape \(2, 3\); \(4, 3\) is needed"),
        (lambda x: None, ValueError, "NoneType"),
        (lambda x: [[0.0, 0.0, 0.0]] * 4, ValueError, "list"),
    ],
)
def test_wrong_forces(force, error, said):
    motion = BrownianDynamics(np.zeros((4, 3)), Drag(), force, time_step=0.1)
    with pytest.raises(error, match=said):
        motion.run(1)
    assert motion.step == 0


@pytest.mark.parametrize(("given", "error"), [({"radius": -1.0}, ValueError), ({"viscosity": 0}, ValueError)])
def test_wrong_drag(given, error):
    with pytest.raises(error):
        Drag(**given)


def test_complex_numbers_lose_no_part_in_silence():
    for of, make in (("radius", Drag), ("stiffness", lambda k: HarmonicBonds([[0, 1]], k)), ("sigma", _repulsion)):
        with pytest.raises(TypeError, match=f"{of} has dtype complex128; real numbers are needed"):
            make(np.array([1 + 1j]))


def _repulsion(sigma):
    return WCA((9.0, 9.0, 9.0), sigma=sigma)


def test_drag_of_spheres_of_different_size():
    drag = Drag(radius=[1.0, 4.0], viscosity=1 / (6 * np.pi))
    drag.set_positions(np.zeros((2, 3)))
    np.testing.assert_allclose(drag.velocity(np.ones((2, 3))), [[1.0] * 3, [0.25] * 3])
    np.testing.assert_allclose(drag.square_root(np.ones((5, 2, 3)))[4], [[1.0] * 3, [0.5] * 3])


def test_positions_too_far_for_their_type_are_warned_of():
    far, near = np.full((50, 3), 5e5, np.float32), np.zeros((50, 3), np.float32)
    given = dict(mobility=Drag(), time_step=1e-4, seed=1)
    with pytest.warns(
        UserWarning, match=r"positions up to 500000 are multiples of 0.03125 in float32, and a step moves"
    ):
        BrownianDynamics(far, **given).run(1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        BrownianDynamics(far.astype(np.float64), **given).run(1)
        BrownianDynamics(near, **given).run(1)


@pytest.mark.parametrize("integrator", ["euler", "midpoint"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_units_of_length_and_time_change_nothing(dtype, integrator):
    """In units that are powers of two the same noise and springs give the same bits."""
    start = np.random.default_rng(0).normal(size=(20, 3)).astype(dtype)

    def moved(length, time):
        energy = 1.0
        spring = HarmonicBonds([[0, 1], [2, 3]], energy / length**2, 0.5 * length)
        fluid = Drag(radius=length, viscosity=energy * time / length**3)
        given = dict(temperature=energy, time_step=0.01 * time, integrator=integrator, seed=3)
        made = BrownianDynamics(start * start.dtype.type(length), fluid, spring, **given)
        made.run(20)
        return made.positions / start.dtype.type(length)

    expected = moved(1.0, 1.0)
    for power in (-100, -55, -30, 30, 55, 100):
        if dtype == "float32" and abs(power) > 60:
            with pytest.raises(ValueError, match="stiffness is .* beyond float32: choose other units"):
                moved(2.0**power, 1.0)
            continue
        np.testing.assert_allclose(moved(2.0**power, 1.0), expected, rtol=0, atol=1e-5 if dtype == "float32" else 1e-13)


@pytest.mark.parametrize("seed", range(10))
def test_random_steps_equal_a_sum_of_noise_and_drift(seed, request):
    """Euler steps of free, pushed and bonded spheres against NumPy's own numbers, added up one after the other."""
    rng = np.random.default_rng(seed)
    count = 100 if request.config.thins else 1000
    x = rng.normal(size=(count, 3))
    radius, viscosity = rng.uniform(0.5, 2, count), rng.uniform(0.1, 2)
    energy, dt, key = rng.uniform(0, 3), rng.uniform(1e-3, 1e-1), int(rng.integers(2**63))
    push = rng.normal(size=3)
    motion = BrownianDynamics(
        x, Drag(radius, viscosity), lambda y: push - 0.5 * y, temperature=energy, time_step=dt, seed=key
    )
    motion.run(5)
    mobility = 1 / (6 * np.pi * viscosity * radius[:, None])
    for step in range(5):
        bits = np.random.Philox(key=key, counter=np.array([0, 0, 0, step], np.uint64))
        noise = np.random.Generator(bits).standard_normal(x.shape)
        x = x + dt * mobility * (push - 0.5 * x) + np.sqrt(2 * energy * dt * mobility) * noise
    np.testing.assert_allclose(motion.positions, x, rtol=1e-12, atol=1e-12)
