# SPDX-License-Identifier: BSD-3-Clause
"""Unusual uses: errors within steps, arrays that change later, other threads, files with half a frame."""

import copy
import dataclasses
import pickle
import threading
import warnings

import numpy as np
import pytest

from dem_cases import heap
from particlemesh.apps.dem import Hertz, LinearSpring, Plane, Simulation, motion

LAW = Hertz(young=1e6, poisson=0.3, restitution=0.8, friction=0.5)
FLOOR = (Plane((0, 0, 0), (0, 0, 1)),)


def resting(**options):
    """One sphere that overlaps the floor a little."""
    given = dict(density=1000.0, contact=LAW, walls=FLOOR, time_step=1e-4) | options
    return Simulation(np.array([[0.0, 0.0, 0.099]]), np.array([0.1]), **given)


def test_walls_have_numbers_beyond_those_of_particles():
    boxed = Simulation([[1.0, 1.0, 0.099]], 0.1, density=1000.0, contact=LAW, box=(2.0, 2.0, 2.0))
    assert boxed.contacts.j.min() < -1
    assert boxed.energy.normal > 0


def test_arrays_of_the_user_may_change_later():
    radii, velocities = np.array([0.1]), np.zeros((1, 3))
    sphere = resting(velocities=velocities)
    before = sphere.energy
    state = sphere.state()
    radii[:], velocities[:] = 5.0, 5.0
    again = Simulation.restore(state)
    state["radii"][:] = state["masses"][:] = 7.0
    assert sphere.energy == again.energy == before
    assert again.radii.tolist() == [0.1]


@pytest.mark.parametrize("friction", [0.0, 10.0], ids=["smooth", "rough"])
@pytest.mark.parametrize("restitution", [1.0, 0.5])
def test_the_critical_step_of_springs_is_that_of_a_crystal(restitution, friction):
    """Each sphere of a face-centred cubic crystal has 12 contacts: a shorter step keeps it, a longer one bursts it."""
    four = np.array([[0, 0, 0], [1, 1, 0], [1, 0, 1], [0, 1, 1]]) / np.sqrt(2)
    cells = np.stack(np.meshgrid(*[np.arange(4)] * 3, indexing="ij"), -1).reshape(-1, 1, 3) * np.sqrt(2)
    rng, radius = np.random.default_rng(1), 0.505
    x = (cells + four).reshape(-1, 3)
    law = LinearSpring(stiffness=1.0, restitution=restitution, friction=friction)
    critical = law.critical_time_step(np.array([radius]), np.ones(1))
    if restitution == 1:
        assert critical == pytest.approx({0.0: 0.7071, 10.0: 0.5916}[friction], rel=1e-4)
    c = 2 * np.log(1 / restitution) / np.sqrt(np.log(restitution) ** 2 + np.pi**2) * np.sqrt(1 / 2)
    along, c_along = (2 / 7, c * np.sqrt(2 / 7)) if friction else (0.0, 0.0)
    stiff, damped = max(8 + 8 * along, 40 * along), max(8 * c + 8 * c_along, 40 * c_along)
    assert critical == pytest.approx(4 / (damped + np.sqrt(damped**2 + 4 * stiff)), rel=1e-14)
    for part, bursts in ((0.97, False), (1.3, True)):
        moves = [1e-4 * rng.normal(size=x.shape) for _ in range(3)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            crystal = Simulation(
                x + moves[0], radius, moves[1], spins=moves[2], density=0.75 / np.pi / radius**3, contact=law,
                box=(4 * np.sqrt(2),) * 3, periodic=True, time_step=part * critical,
            )  # fmt: skip
        before = crystal.energy
        crystal.run(200)
        after = crystal.energy
        grown = (after.translation + after.rotation) / (before.translation + before.rotation)
        assert (grown > 30) == bursts and (grown < 3) != bursts


def test_a_search_that_fails_loses_nothing(monkeypatch):
    pile, calm = heap(deterministic=True), heap(deterministic=True)
    search, calls = motion.Motion._search, []

    def scarce(self):
        calls.append(self)
        if len(calls) == 2:
            raise MemoryError("cannot allocate")
        search(self)

    monkeypatch.setattr(motion.Motion, "_search", scarce)
    with pytest.raises(MemoryError):
        pile.run(150)
    made = pile.step
    assert 0 < made < 150
    with pytest.raises(RuntimeError, match="a step is not whole"):
        pile.state()
    pile.run(150 - made)
    calm.run(150)
    np.testing.assert_array_equal(pile.positions, calm.positions)
    np.testing.assert_array_equal(pile.spins, calm.spins)


def test_a_restart_keeps_the_bits_of_tilted_walls():
    rng = np.random.default_rng(3)
    for normal in rng.normal(size=(200, 3)):
        wall = Plane((0.0, 0.0, 0.0), tuple(normal))
        assert Plane(wall.point, wall.normal) == wall
    assert Plane((0, 0, 0), (0, 0, 1e-200)).normal == (0.0, 0.0, 1.0)
    assert np.linalg.norm(Plane((0, 0, 0), (1e200, 1e200, 0)).normal) == pytest.approx(1, abs=1e-15)


def test_another_thread_cannot_read_half_a_step():
    sphere, held, done = resting(), threading.Event(), threading.Event()

    def hold():
        with sphere.busy:
            held.set()
            done.wait()

    other = threading.Thread(target=hold)
    other.start()
    held.wait()
    try:
        for read in (sphere.state, lambda: sphere.energy, lambda: sphere.contacts, lambda: sphere.positions):
            with pytest.raises(RuntimeError, match="another thread"):
                read()
    finally:
        done.set()
        other.join()


def test_a_wall_turns_contacts_as_a_sphere_of_infinite_radius():
    radius = 1e4
    beside = dict(density=[1000.0, 1e9], contact=LAW, velocities=[[0.01, 0, 0], [0, 0, 0]], time_step=1e-4)
    spheres = Simulation(
        [[0, 0, 0.099], [0, 0, -radius]], [0.1, radius], spins=[[0, 0, 50.0], [0, 0, 0]], **beside
    )  # fmt: skip
    wall = resting(velocities=[[0.01, 0, 0]], spins=[[0, 0, 50.0]])
    for simulation in (spheres, wall):
        simulation.run(60)
    tangential, expected = wall.contacts.tangential[0], spheres.contacts.tangential[0]
    assert abs(expected[1]) > 0.01 * abs(expected[0])  # it has turned
    np.testing.assert_allclose(tangential, expected, atol=2e-3 * np.linalg.norm(expected))


def test_simulations_without_particles_restart():
    empty = Simulation(np.zeros((0, 3)), np.zeros(0), density=1.0, contact=LAW, time_step=0.1)
    empty.run(3)
    again = Simulation.restore(empty.state())
    assert (again.step, len(again.positions)) == (3, 0)


def test_positions_are_folded_however_fast():
    soft = Hertz(young=1e-4, poisson=0.3, restitution=1.0, friction=0.0)
    fast = Simulation(
        [[0.5] * 3], 0.1, (13.7, -9.1, 0.0), density=1.0, contact=soft, box=(1.0,) * 3, periodic=True, time_step=0.5
    )
    for _ in range(7):
        fast.run(1)
        assert ((fast.positions >= 0) & (fast.positions < 1)).all()


def test_restarts_keep_types():
    single = resting(dtype="float32")
    again = Simulation.restore(single.state())
    assert again.masses.dtype == single.masses.dtype == np.float32
    assert again.critical_time_step == single.critical_time_step


def test_positions_that_the_type_cannot_hold_are_named():
    with pytest.raises(ValueError, match="the first is particle 1"):
        Simulation([[0, 0, 0], [1e39, 0, 0]], 0.1, density=1.0, contact=LAW, dtype="float32")


def test_walls_far_away_are_seen_as_near_ones():
    close = Plane((5e6, 0, 0), (1, 0, 0)), Plane((5e6 + 0.01, 0, 0), (-1, 0, 0))
    with pytest.raises(ValueError, match="walls overlap"):
        Simulation([[5e6 + 0.005, 0, 0]], 0.05, density=1.0, contact=LAW, walls=close)


@pytest.mark.parametrize(
    ("name", "value", "error", "message"),
    [
        ("contact_i", [9], ValueError, "contact_i of the state is from 9 to 9; 0 to 1 is possible"),
        ("contact_j", [-2], ValueError, "contact_j of the state is from -2 to -2; 0 to 1"),
        ("positions", [[0, 0, np.nan]] * 2, ValueError, "positions of the state holds what is no finite number"),
        ("accelerations", [[0, 0, np.inf]] * 2, ValueError, "accelerations of the state"),
        ("masses", [1.0, 0.0], ValueError, "a mass of the state is 0"),
        ("radii", 1.0, ValueError, r"positions of the state has shape \(2, 3\); \(0, 3\)"),
        ("step", -4, ValueError, "step of the state is -4"),
        ("time_step", 0.0, ValueError, "time_step of the state is 0"),
        ("lengths", (1.0, 1.0), ValueError, r"lengths of the state has shape \(2,\)"),
        ("walls", np.zeros(6), ValueError, r"walls of the state have shape \(6,\)"),
        (None, 3, TypeError, "the state is a int; give what state"),
    ],
)
def test_states_that_no_simulation_can_have(name, value, error, message):
    touching = Simulation(np.array([[0.0, 0, 0], [0.9, 0, 0]]), 0.5, density=1.0, contact=Hertz(1e3))
    touching.run(1)
    state = touching.state()
    assert len(state["contact_i"]) == 1
    with pytest.raises(error, match=message):
        Simulation.restore(value if name is None else {**state, name: value})


@pytest.mark.turns(8)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "contact", [Hertz(1e5, restitution=0.6), LinearSpring(stiffness=100.0, restitution=0.6, friction=0.4)]
)
def test_units_of_length_mass_and_time_change_nothing(contact, dtype, backend):
    """The same motion in other units has the same bits, or an error says that the numbers leave their type."""
    given = dict(dtype=dtype, contact=contact, density=1.0, gravity=20.0, backend=backend.name)
    expected = heap(40, **given)
    expected.run(60)
    held = expected.state()
    for length, mass, time in ((2.0**-30, 1.0, 1.0), (2.0**40, 2.0**60, 2.0**-10), (2.0**-100, 2.0**-300, 2.0**-20),
                               (2.0**100, 2.0**300, 2.0**30)):  # fmt: skip
        scaled = dict(given, density=mass / length**3, gravity=20.0 * length / time**2)
        if isinstance(contact, Hertz):
            law = dataclasses.replace(contact, young=contact.young * mass / length / time**2)
        else:
            law = dataclasses.replace(contact, stiffness=contact.stiffness * mass / time**2, tangential=None)
        first = heap(40, **given)
        box = tuple(edge * length for edge in first.domain.lengths)
        start = first.positions * length, first.radii * length, first.velocities * (length / time)
        scaled |= dict(contact=law, box=box, periodic=(True, False, False))
        if dtype == "float32" and not 2.0**-100 < mass < 2.0**100:
            with pytest.raises(ValueError, match="the mass of particle .* in float32: choose other units"):
                Simulation(*start, **scaled)
            continue
        other = Simulation(*start, **scaled)
        other.run(60)
        assert other.time_step == expected.time_step * time
        np.testing.assert_array_equal(other.positions, expected.positions * length)
        np.testing.assert_array_equal(other.velocities, expected.velocities * (length / time))
        np.testing.assert_array_equal(other.contacts.i, expected.contacts.i)
        assert other.energy.total == pytest.approx(expected.energy.total * mass * (length / time) ** 2, rel=1e-12)
        there = other.state()
        np.testing.assert_array_equal(there["contact_force"], held["contact_force"] * (mass * length / time**2))
        again = Simulation.restore(there, backend=backend.name)
        again.run(5)
        other.run(5)
        np.testing.assert_allclose(again.positions, other.positions, rtol=1e-5 if dtype == "float32" else 1e-12)


def test_tiny_spheres_keep_their_restitution_in_float32():
    # m1 m2 of the reduced mass is below float32's smallest number here.
    x = np.array([[0, 0, 0], [2.0001e-9, 0, 0]], np.float32)
    law = LinearSpring(stiffness=1e-3, restitution=0.8)
    v = np.array([[1e-3, 0, 0], [-1e-3, 0, 0]], np.float32)
    pair = Simulation(x, 1e-9, v, density=1000.0, contact=law)
    while pair.velocities[0, 0] > 0 or len(pair.contacts.i):
        pair.run(10)
    assert pair.velocities[1, 0] - pair.velocities[0, 0] == pytest.approx(2e-3 * 0.8, rel=0.01)


def test_units_too_small_for_a_mass_are_named():
    with pytest.raises(ValueError, match="the mass of particle 0 is .* in float64: choose other units"):
        Simulation(np.zeros((1, 3)), 1.0, density=1e-320, contact=Hertz(1e5))


@pytest.mark.parametrize("way", [copy.copy, copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))])
def test_copies_are_independent(way):
    pile = heap(60, deterministic=True)
    pile.run(30)
    twin, before = way(pile), pile.positions
    twin.run(40)
    np.testing.assert_array_equal(pile.positions, before)
    pile.run(40)
    np.testing.assert_array_equal(pile.positions, twin.positions)
    assert twin.step == pile.step == 70 and twin.time == pile.time


def test_positions_too_far_for_their_type_are_warned_of():
    x = np.array([[0, 0, 1e6]], np.float32)
    given = dict(density=1.0, contact=LAW, gravity=10.0, time_step=1e-4)
    with pytest.warns(
        UserWarning, match=r"positions up to 1e\+06 are multiples of 0.0625 in float32: spheres slower than"
    ):
        Simulation(x, 0.1, **given)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Simulation(x.astype(np.float64), 0.1, **given)
        Simulation(x / np.float32(1e6), 0.1, **given)


def test_time_is_the_sum_of_its_steps(tmp_path):
    ball = Simulation(np.zeros((1, 3)), 0.1, density=1e4, contact=LAW, gravity=10.0, time_step=1e-3)
    ball.run(100)
    ball.time_step = 1e-4
    ball.run(100)
    assert ball.time == pytest.approx(0.11, rel=1e-14) == Simulation.restore(ball.state()).time
    assert ball.positions[0, 2] == pytest.approx(-5 * 0.11**2, rel=1e-12)
    with pytest.raises(AttributeError, match="no attribute 'gravty'. You can set contact, gravity, positions"):
        ball.gravty = 0
    with pytest.raises(ValueError, match="time_step is 0"):
        ball.time_step = 0
    assert ball.time_step == 1e-4
