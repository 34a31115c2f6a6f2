# SPDX-License-Identifier: BSD-3-Clause
"""Brownian dynamics in shear: Taylor's dispersion, drift, images across leaning boxes, checkpoints, what is refused."""

import copy

import numpy as np
import pytest

import particlemesh as pm
from particlemesh.apps.brownian import RPY, WCA, BrownianDynamics, Drag, FreeRPY, HarmonicBonds
from particlemesh.apps.brownian.shear import leaning

SCHEMES = ("euler", "midpoint")
RATE, EDGE = 0.7, 12.0
BOX = (EDGE,) * 3


@pytest.mark.parametrize("integrator", SCHEMES)
@pytest.mark.parametrize("steps", [1, 40])
def test_free_spheres_have_taylors_dispersion(integrator, steps):
    # <x^2> = 2 D t (1 + (rate t)^2 / 3); both schemes have it up to (dt / t)^2 / 12 of the second term.
    count, time = 40_000, 3.0
    motion = BrownianDynamics(
        np.zeros((count, 3)), Drag(), time_step=time / steps, integrator=integrator, seed=1, shear_rate=RATE
    )
    motion.run(steps)
    x, y, z = motion.positions.T
    law = 2 * time * np.array([1 + (RATE * time) ** 2 / 3, 1, 1, RATE * time / 2])
    law[0] -= 2 * time * (RATE * time / steps) ** 2 / 12
    measured = [(x * x).mean(), (y * y).mean(), (z * z).mean(), (x * y).mean()]
    np.testing.assert_allclose(measured, law, rtol=4 * np.sqrt(2 / count) * (1 + RATE * time / 2))
    assert motion.strain == pytest.approx(RATE * time)


@pytest.mark.parametrize("integrator", SCHEMES)
@pytest.mark.parametrize("mobility", [Drag(), Drag(box=BOX), FreeRPY(), RPY(BOX, accuracy=1e-3)])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_without_forces_and_noise_the_drift_is_that_of_the_flow(integrator, mobility, dtype):
    start = np.random.default_rng(1).uniform(-20, 20, (10, 3)).astype(dtype)
    motion = BrownianDynamics(start, mobility, temperature=0.0, time_step=0.25, integrator=integrator, shear_rate=-RATE)
    motion.run(8)
    expected = start + start[:, 1:2] * [-2 * RATE, 0, 0]
    np.testing.assert_allclose(motion.positions, expected, rtol=1e-5 if dtype == "f4" else 1e-13)
    assert motion.positions.dtype == dtype


@pytest.mark.parametrize(("integrator", "order"), [("euler", 1), ("midpoint", 2)])
def test_order_of_a_spring_in_shear(integrator, order):
    # In a trap x' = -k x + rate y: x = exp(-k t) (x_0 + rate t y_0).
    start, k = np.array([[1.0, 2.0, 3.0]]), 0.8
    exact = np.exp(-k) * (start + [[RATE * 2.0, 0, 0]])
    errors = []
    for steps in (20, 40, 80):
        motion = BrownianDynamics(
            start, Drag(), lambda x: -k * x, temperature=0.0, time_step=1 / steps, integrator=integrator,
            shear_rate=RATE,
        )  # fmt: skip
        motion.run(steps)
        errors.append(abs(motion.positions - exact).max())
    np.testing.assert_allclose(np.log2(errors[:-1]) - np.log2(errors[1:]), order, atol=0.07)


def test_boxes_lean_and_are_replaced_at_a_half():
    box = pm.Box([[4.0, 0, 0], [0.5, 6.0, 0.25], [0.75, 0, 5.0]], origin=(1.0, 2.0, 3.0))
    rng = np.random.default_rng(2)
    x = rng.uniform(-9, 9, (40, 3))
    for strain in (*rng.uniform(-3, 3, 6), 0.0, 1 / 4, 2 / 3, -2 / 3):
        moved = leaning(box, strain)
        assert abs(moved.matrix[1, 0]) <= 2.0 + 1e-12 and moved.volume == pytest.approx(box.volume)
        # Images that flow along stay images.
        images = x + rng.integers(-3, 4, x.shape) @ box.matrix
        flowed = [places + strain * places[:, 1:2] * [1, 0, 0] for places in (x, images)]
        numbers = (flowed[1] - flowed[0]) @ moved.inverse.T
        np.testing.assert_allclose(numbers, np.rint(numbers), atol=1e-9)
    open_box = pm.Box((4.0, 4.0, 4.0), periodic=(False, False, True))
    assert leaning(open_box, 0.3) is open_box


def test_steps_equal_those_by_hand(backend):
    """Forces and noise of spheres whose box leans, against a loop over boxes made by hand; over the remap at 1/2."""
    rng = np.random.default_rng(3)
    places = np.stack(np.meshgrid(*[[0.0, 3.0, 6.0, 9.0]] * 3, indexing="ij"), -1).reshape(-1, 3)
    x = rng.permutation(places + rng.uniform(-0.6, 0.6, places.shape))
    where = None if backend.name == "cpu" else backend.name
    dt, rate, steps = 0.01, 30.0, 4  # strains 0, 0.3, -0.4, -0.1
    bonds = HarmonicBonds(np.arange(64).reshape(-1, 2), 0.2, 1.0, box=BOX)
    repulsion = WCA(BOX, 0.1, backend=where)
    mobility = RPY(BOX, accuracy=1e-4, backend=where, deterministic=True)
    motion = BrownianDynamics(x, mobility, [bonds, repulsion], temperature=0.0, time_step=dt, shear_rate=rate, seed=1)
    strain = 0.0
    for _ in range(steps):
        rows = np.diag(BOX)
        rows[1, 0] = EDGE * strain
        np.testing.assert_allclose(motion.box.matrix, rows, atol=1e-12)
        forces = HarmonicBonds(bonds.pairs, 0.2, 1.0, box=rows)(x) + WCA(rows, 0.1)(x)
        moved = dt * RPY(rows, accuracy=1e-6).set_positions(x).velocity(forces)
        x = x + moved
        x[:, 0] += rate * dt * (x[:, 1] - moved[:, 1] / 2)
        strain = (strain + rate * dt + 0.5) % 1 - 0.5
        motion.run(1)
        assert abs(repulsion(x)).max() > 0.1
        np.testing.assert_allclose(motion.positions, x, atol=1e-3 * dt * abs(forces).max())
    assert motion.mobility.parameters is None or motion.mobility.parameters.shape == motion._rest.settings()["shape"]
    folded = (motion.positions - motion.folded) @ motion.box.inverse.T
    np.testing.assert_allclose(folded, np.rint(folded), atol=1e-9)


@pytest.mark.parametrize("integrator", SCHEMES)
def test_a_checkpoint_keeps_the_strain(tmp_path, integrator):
    pytest.importorskip("h5py", reason="h5py is not installed")
    x = np.random.default_rng(3).uniform(0, EDGE, (30, 3))
    motion = BrownianDynamics(
        x, RPY(BOX, accuracy=1e-2, deterministic=True), WCA(BOX, 1e-3), time_step=1e-3, integrator=integrator, seed=2,
        shear_rate=333.0,
    )  # fmt: skip
    motion.run(2)
    motion.save(tmp_path / "a.h5")
    other = BrownianDynamics.load(tmp_path / "a.h5")
    assert other.strain == motion.strain and (other.box.matrix == motion.box.matrix).all()
    for each in (motion, other):
        each.run(2)
    assert (other.positions == motion.positions).all() and other.strain == motion.strain
    motion.shear_rate = other.shear_rate = 0.0
    motion.save(tmp_path / "a.h5")
    other = BrownianDynamics.load(tmp_path / "a.h5")
    for each in (motion, other):
        each.run(1)
    assert (other.positions == motion.positions).all() and other.strain == motion.strain == pytest.approx(1.332)


def test_a_rate_may_change_and_runs_may_be_cut():
    def ran(*parts):
        motion = BrownianDynamics(np.ones((5, 3)), Drag(box=BOX), time_step=0.1, seed=4, shear_rate=0.1)
        for steps, rate in parts:
            motion.shear_rate = rate
            motion.run(steps)
        return motion

    one, two = ran((4, 0.1), (4, 3.0)), ran((1, 0.1), (3, 0.1), (2, 3.0), (2, 3.0))
    assert (one.positions == two.positions).all()
    assert one.strain == pytest.approx(1.24) and one.box.matrix[1, 0] == pytest.approx(0.24 * EDGE)
    apart = 0.8 * np.arange(15.0).reshape(5, 3)
    late = BrownianDynamics(apart, Drag(box=BOX), WCA(BOX), time_step=0.1, seed=4)
    late.shear_rate = 1.0
    late.forces = [WCA(BOX), lambda x: x * 0]
    late.run(1)
    assert late.box.matrix[1, 0] == pytest.approx(0.1 * EDGE)


def test_copies_in_leaning_boxes_share_a_grid_and_have_the_forces_of_new_ones(backend):
    rng = np.random.default_rng(5)
    where = None if backend.name == "cpu" else backend.name
    box = pm.Box((12.0, 9.0, 15.0), origin=(1.0, -2.0, 3.0))
    first = WCA(box, 0.1, sigma=rng.uniform(1.0, 2.0, 60), backend=where)
    grids = set()
    for strain in (0.0, 0.01, 0.02, 0.5, -0.4, 0.0):
        x = box.origin + rng.uniform(-1, 2, (60, 3)) * box.lengths
        leant = first.in_box(leaning(box, strain))
        expected = WCA(leaning(box, strain), 0.1, first.sigma, backend=where)
        np.testing.assert_allclose(leant(x), expected(x), rtol=1e-9, atol=1e-9 * abs(expected(x)).max())
        assert leant.energy(x) == pytest.approx(expected.energy(x), rel=1e-12)
        grids.add(id(leant._grid_for(60)))
    assert len(grids) <= 3 and first.box is box
    assert leant.in_box(pm.Box(BOX, periodic=False))(x + 20).shape == (60, 3)
    again = copy.deepcopy(leant)
    np.testing.assert_allclose(again(x), leant(x), rtol=1e-9, atol=1e-9 * abs(expected(x)).max())
    with pytest.raises(ValueError, match="the box is 2-D"):
        first.in_box((4.0, 4.0))


class Boxed:
    box = pm.Box(BOX)

    def __call__(self, x):
        return 0 * x


@pytest.mark.parametrize(
    ("changed", "error", "said"),
    [
        ({"shear_rate": np.inf}, ValueError, "one finite number"),
        ({"shear_rate": (1.0, 2.0)}, ValueError, "one finite number"),
        ({"mobility": Drag(box=[[4.0, 1, 0], [0, 4, 0], [0, 0, 4]])}, ValueError, "turn the box"),
        ({"mobility": Drag(box=pm.Box(BOX, periodic=(False, True, True)))}, ValueError, "repeats along y"),
        ({"forces": Boxed()}, TypeError, "Boxed has a box.*in_box"),
    ],
)
def test_what_shear_refuses(changed, error, said):
    arguments = {"mobility": Drag(), "time_step": 0.1, "shear_rate": 1.0} | changed
    with pytest.raises(error, match=said):
        BrownianDynamics(np.zeros((4, 3)), arguments.pop("mobility"), arguments.pop("forces", None), **arguments)


def test_trajectories_with_one_box_are_refused(tmp_path):
    motion = BrownianDynamics(np.zeros((4, 3)), Drag(box=BOX), time_step=0.1, shear_rate=1.0)
    with pytest.raises(ValueError, match=r"one box for all frames.*\.gsd"):
        motion.run(1, trajectory=tmp_path / "a.h5")
    motion.run(2, trajectory=tmp_path / "a.xyz")
    assert "1.2" in (tmp_path / "a.xyz").read_text() and motion.step == 2


def test_times_of_copies_go_on_with_the_same_bits():
    motion = BrownianDynamics(np.zeros((1, 3)), Drag(), time_step=0.1, seed=1)
    for _ in range(30):
        motion.run(7)
        again = copy.deepcopy(motion)
        again.run(4)
        motion.run(4)
        assert again.time == motion.time
