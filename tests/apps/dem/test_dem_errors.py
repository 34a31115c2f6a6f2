# SPDX-License-Identifier: BSD-3-Clause
"""What cannot be simulated is refused, in words that say what can."""

import os
import signal
import threading

import numpy as np
import pytest

import particlemesh as pm
from dem_cases import heap
from particlemesh.apps.dem import Hertz, LinearSpring, Plane, Simulation, motion

X = np.array([[1.0, 1.0, 1.0], [3.0, 3.0, 3.0], [1.0, 3.0, 1.0]])
GOOD = dict(positions=X, radii=0.5, density=1.0, contact=LinearSpring(stiffness=10.0))
NAN, UP = float("nan"), Plane((0, 0, 0), (0, 0, 1))
BOX = pm.Box((4.0, 4.0, 4.0), periodic=False)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"positions": X[:, :2]}, r"shape \(3, 2\); \(N, 3\) is needed"),
        ({"positions": np.where(X == 3, NAN, X)}, "positions are not finite for 2 particles; the first is particle 1"),
        ({"velocities": np.full((3, 3), NAN)}, "velocities are not finite for 3 particles; the first is particle 0"),
        ({"velocities": np.zeros((2, 3))}, "velocities has shape"),
        ({"spins": (0, 0, np.inf)}, "spins are not finite"),
        ({"radii": [1.0, 0.0, 1.0]}, "radius of particle 1 is 0; a positive number is needed: a particle needs a mass"),
        ({"radii": [1.0, 1.0]}, r"radii has shape \(2,\)"),
        ({"density": 0.0}, "density of particle 0 is 0; a positive number is needed: a particle needs a mass"),
        ({"density": 1e-60, "dtype": "float32"}, "the mass of particle 0 is 0.0 in float32: choose other units"),
        ({"box": (4, 4, 4), "radii": 2.5}, "room for a sphere of radius 2, and the largest particle has radius 2.5"),
        ({"box": (4, 4, 4), "periodic": True, "radii": 1.1}, "repeats after 4 along axis 0; at least four radii"),
        ({"box": (4, 4)}, "box has 2 lengths; 3 are needed"),
        ({"box": (4, -4, 4)}, "every length must be positive"),
        ({"box": (4, 4, np.inf), "periodic": True}, "axis 2 is periodic and of infinite length"),
        ({"box": BOX, "periodic": True}, "beside a Box"),
        ({"box": pm.Box([[4, 1, 0], [0, 4, 0], [0, 0, 4]])}, "an orthorhombic box of 3 axes"),
        ({"walls": [UP, Plane((0, 0, 0.9), (0, 0, -1))]}, "walls overlap: they leave room for a sphere of radius 0.45"),
        ({"walls": [UP, Plane((0, 0, -9), (0, 0, -1))]}, "walls overlap: they leave no room at all"),
        ({"walls": [UP, UP]}, "walls 0 and 1 are the same plane"),
        ({"walls": [UP], "box": BOX}, "walls 0 and 5 are the same plane"),
        ({"walls": [Plane((0, 0, 2), (0, 0, 1))]}, "2 particles are behind wall 0.*the first is particle 0"),
        ({"walls": [Plane((0, 0, -n), (0, 0, 1)) for n in range(21)]}, "there are 21 walls.*up to 20"),
        ({"time_step": 0.0}, "time_step is 0.0; one positive number"),
        ({"positions": np.zeros((0, 3))}, "no particles to derive a time step from"),
        ({"method": "best"}, "method is 'best'"),
        ({"backend": "abacus"}, "backend 'abacus' is unknown"),
    ],
)  # fmt: skip
def test_values_that_no_simulation_has(changes, message):
    with pytest.raises(ValueError, match=message):
        Simulation(**GOOD | changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"contact": "hertz"}, r"contact is a str; give Hertz\(...\) or LinearSpring"),
        ({"walls": ["floor"]}, r"walls\[0\] is a str; give Plane"),
        ({"deterministic": 1}, "deterministic is 1"),
        ({"positions": X + 1j}, "real numbers are needed"),
        ({"dtype": "int32"}, "give 'float32' or 'float64'"),
    ],
)
def test_types_that_no_simulation_has(changes, message):
    with pytest.raises(TypeError, match=message):
        Simulation(**GOOD | changes)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Hertz(young=0), "young is 0"),
        (lambda: Hertz(1e6, poisson=0.6), "poisson is 0.6; a number above -1"),
        (lambda: Hertz(1e6, restitution=1.1), "restitution is 1.1; a number from 0 to 1.*more would create energy"),
        (lambda: Hertz(1e6, friction=-1), "friction is -1"),
        (lambda: LinearSpring(stiffness=-1), "stiffness is -1"),
        (lambda: Plane((0, 0, 0), (0, 0, 0)), "a vector of nonzero length"),
        (lambda: Plane((0, 0), (0, 0, 1)), "point has shape"),
    ],
)
def test_laws_and_walls_that_are_none(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_a_long_time_step_is_warned_of():
    critical = Simulation(**GOOD).critical_time_step
    with pytest.warns(UserWarning, match=f"the critical one for this stiffness is {critical:g}"):
        Simulation(**GOOD, time_step=1.01 * critical)
    with pytest.raises(ValueError, match="it lacks .*version"):
        Simulation.restore({"positions": X})


def test_motion_beyond_numbers_is_an_error():
    speeds = np.zeros((3, 3))
    speeds[2, 1] = 1e308
    soft = LinearSpring(stiffness=1e-3)
    fast = Simulation(**GOOD | {"contact": soft}, velocities=speeds, time_step=10.0)
    with pytest.raises(FloatingPointError, match=r"step 0: .*: particle 2 is at \(1.0, inf, 1.0\)\. A shorter"):
        fast.run(20)
    with pytest.raises(FloatingPointError, match="start again from an earlier state"):
        fast.run(1)


def test_no_particles_and_one_place():
    none = Simulation(np.zeros((0, 3)), 1.0, density=1.0, contact=GOOD["contact"], time_step=0.1)
    none.run(3)
    assert none.step == 3 and none.energy.total == 0 and none.positions.shape == (0, 3)
    two = Simulation(np.zeros((2, 3)), 1.0, density=1.0, contact=GOOD["contact"], overlaps="allow")
    two.run(50)
    assert np.isfinite(two.positions).all()
    assert abs(two.positions[0] - two.positions[1]).max() > 0.1


def test_particles_that_fly_far_are_kept():
    with pytest.warns(UserWarning, match="critical"):
        pair = Simulation(X[:2], 0.5, [1e7, 0, 0], density=1.0, contact=GOOD["contact"], time_step=1.0)
    pair.run(3)
    np.testing.assert_array_equal(pair.positions, X[:2] + [3e7, 0, 0])
    assert pair.rebuilds == 4


@pytest.mark.skipif(os.name == "nt", reason="signals of another kind")
def test_an_interrupted_run_ends_with_a_whole_step(monkeypatch):
    assert threading.current_thread() is threading.main_thread()
    pile = heap(deterministic=True)
    plain = motion.Motion._search

    def search(self):
        plain(self)
        if self.rebuilds == 5:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(motion.Motion, "_search", search)
    with pytest.raises(KeyboardInterrupt):
        pile.run(10_000)
    monkeypatch.undo()
    assert 0 < pile.step < 10_000
    other = heap(deterministic=True)
    other.run(pile.step)
    np.testing.assert_array_equal(other.positions, pile.positions)
    pile.run(1)
