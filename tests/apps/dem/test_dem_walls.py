# SPDX-License-Identifier: BSD-3-Clause
"""Finite and moving walls, forces of contacts and on walls, particles that come and go, and starts too deep."""

import numpy as np
import pytest

from dem_cases import heap
from particlemesh.apps.dem import (
    Cone,
    Cylinder,
    Disc,
    Hertz,
    LinearSpring,
    Plane,
    Rectangle,
    Simulation,
    relaxed_positions,
)
from particlemesh.apps.dem.walls import apart, table

CONTACTS = {
    "hertz": Hertz(young=1e6, restitution=0.5, friction=0.4),
    "spring": LinearSpring(stiffness=4e3, restitution=0.6, friction=0.3),
}
SPRING = CONTACTS["spring"]
SHAPES = {
    "rectangle": Rectangle((0.1, 0.2, 0.3), (1.0, 1.0, 0.0), (-0.4, 0.4, 0.0)),
    "disc": Disc((0.3, 0.2, 0.1), (1.0, 2.0, 0.5), radius=0.8, hole=0.25),
    "cylinder": Cylinder((0.1, 0.2, -0.3), (0.0, 1.0, 1.0), radius=0.6, length=0.9),
    "cone": Cone((0.1, 0.2, -0.3), (1.0, 0.0, 1.0), radius=0.2, end_radius=0.9, length=0.7),
}


def surface(wall):
    """Return many points of a wall, by its parameters."""
    part = np.linspace(0, 1, 161)
    if isinstance(wall, Rectangle):
        across = part[:, None, None] * np.array(wall.first) + part[:, None] * np.array(wall.second)
        return np.array(wall.corner) + across.reshape(-1, 3)
    axis = np.array(wall.normal if isinstance(wall, Disc) else wall.axis)
    begin, low, end, high = wall.line()
    side = np.cross(axis, [0.3, -0.5, 0.7])
    side /= np.linalg.norm(side)
    angle = np.linspace(0, 2 * np.pi, 721)
    around = np.cos(angle)[:, None] * side + np.sin(angle)[:, None] * np.cross(axis, side)
    rho, height = begin + part * (end - begin), low + part * (high - low)
    return np.array(wall.point) + (rho[:, None, None] * around + height[:, None, None] * axis).reshape(-1, 3)


@pytest.mark.parametrize("shape", SHAPES)
def test_distances_of_walls_are_those_of_their_points(shape):
    wall = SHAPES[shape]
    x = np.random.default_rng(1).uniform(-1.2, 1.2, (40, 3))
    row = table([wall], SPRING.numbers())
    distance, normal = apart(np.repeat(row, len(x), 0), x)
    between = x[:, None] - surface(wall)
    lengths = np.linalg.norm(between, axis=2)
    assert (abs(distance - lengths.min(1)) < 1e-4 / lengths.min(1) + 1e-6).all()
    nearest = between[np.arange(len(x)), lengths.argmin(1)] / lengths.min(1)[:, None]
    far = distance > 0.1
    assert ((normal * nearest).sum(1)[far] > 0.99).all()


@pytest.mark.parametrize("name", CONTACTS)
def test_forces_of_contacts_are_those_that_accelerate(name):
    pile = heap(contact=CONTACTS[name], deterministic=True)
    for _ in range(3):
        pile.run(40)
        for one in (pile, Simulation.restore(pile.state())):
            touching, masses = one.contacts, one.masses
            force = masses[:, None] * np.array(one.gravity)
            np.add.at(force, touching.i, touching.force)
            pair = touching.j >= 0
            np.add.at(force, touching.j[pair], -touching.force[pair])
            push = masses[:, None] * one.state()["accelerations"]
            np.testing.assert_allclose(force, push, atol=1e-9 * abs(push).max())
            parts = touching.normal_force + touching.tangential_force
            np.testing.assert_allclose(parts, touching.force, atol=1e-12 * abs(push).max())
            assert abs((touching.tangential_force * touching.normal).sum(1)).max() < 1e-9 * abs(push).max()
    assert pair.sum() > 20 and (~pair).sum() > 5
    total = -sum(touching.force[touching.j == -1 - w] for w in [0]).sum(0)
    np.testing.assert_allclose(pile.wall_forces.force[0], total, atol=1e-12 * abs(total).max())


def mill(backend=None, dtype="float64"):
    """Grains in a hopper over a drum, with walls of every kind that move, turn, and have laws of their own."""
    rough, smooth = LinearSpring(6e3, restitution=0.3, friction=0.8), LinearSpring(3e3, restitution=0.9)
    walls = [
        Cylinder((0, -0.5, 0), (0, 1, 0), radius=1.0, length=1.0, spin=3.0, contact=rough),
        Disc((0, -0.5, 0), (0, 1, 0), radius=1.0, spin=3.0, velocity=(0, 0.05, 0)),
        Disc((0, 0.5, 0), (0, 1, 0), radius=1.0, hole=0.1, spin=3.0),
        Rectangle((-0.3, -0.5, -0.2), (0.6, 0, 0), (0, 1, 0), velocity=(0.1, 0, 0.2), contact=smooth),
        Cone((0.0, 0, 0.1), (0, 0, 1), radius=0.2, end_radius=0.7, length=0.6),
        Plane((0, 0, -0.9), (0.1, 0, 1), velocity=(0, 0, 0.1), spin=0.5),
    ]
    rng = np.random.default_rng(4)
    x = relaxed_positions(rng.uniform(-0.35, 0.35, (40, 3)) + [0, 0, 0.1], 0.0702, walls=walls)
    return Simulation(
        x, 0.07, rng.standard_normal((40, 3)), density=1000.0, contact=SPRING, walls=walls, gravity=9.81,
        deterministic=True, backend=backend, dtype=dtype,
    )  # fmt: skip


def test_walls_move_and_a_restart_continues_with_the_same_bits():
    drum, twin = mill(), mill()
    drum.run(300)
    twin.run(130)
    twin = Simulation.restore(twin.state())
    twin.run(170)
    np.testing.assert_array_equal(twin.positions, drum.positions)
    assert twin.walls == drum.walls
    time = 300 * drum.time_step
    np.testing.assert_allclose(drum.walls[1].point, (0, -0.5 + 0.05 * time, 0))
    np.testing.assert_allclose(drum.walls[3].corner, (-0.3 + 0.1 * time, -0.5, -0.2 + 0.2 * time))
    touching = drum.contacts
    force = np.zeros((6, 3))
    np.add.at(force, -1 - touching.j[touching.j < 0], -touching.force[touching.j < 0])
    np.testing.assert_allclose(drum.wall_forces.force, force, atol=1e-9)
    assert (touching.j < -1).sum() > 3 and abs(drum.wall_forces.torque).max() > 0
    # A change of another number leaves walls where they are.
    drum.time_step = drum.time_step / 2
    drum.run(2)
    np.testing.assert_allclose(drum.walls[1].point, (0, -0.5 + 0.05 * (time + 2 * drum.time_step), 0))


@pytest.mark.backends("opencl", "cuda")
def test_moving_walls_on_devices_equal_the_cpu(backend):
    expected, drum = mill(), mill(backend.name)
    for simulation in (expected, drum):
        simulation.run(60)
    np.testing.assert_allclose(drum.positions, expected.positions, rtol=0, atol=1e-9)
    np.testing.assert_allclose(drum.spins, expected.spins, rtol=0, atol=1e-7)
    scale = abs(expected.wall_forces.force).max()
    np.testing.assert_allclose(drum.wall_forces.force, expected.wall_forces.force, rtol=0, atol=1e-6 * scale)


@pytest.mark.parametrize(
    "belt",
    [
        Plane((0, 0, 0), (0, 0, 1), velocity=(0.7, 0, 0)),
        Rectangle((-1, -1, 0), (2, 0, 0), (0, 2, 0), velocity=(0.7, 0, 0)),
        Disc((0, 7.0, 0), (0, 0, 1), radius=9.0, spin=0.1),
        Cylinder((-1, 0, -5.0), (1, 0, 0), radius=5.0, length=2.0, velocity=(0.7, 0, 0)),
    ],
    ids=lambda wall: type(wall).__name__,
)
def test_a_sphere_on_a_belt_rolls_with_two_sevenths_of_its_speed(belt):
    law = LinearSpring(1e4, restitution=0.3, friction=0.3)
    ball = Simulation(np.array([[0, 0, 0.0999]]), 0.1, density=100.0, contact=law, walls=belt, gravity=9.81)
    ball.run(int(0.3 / ball.time_step))
    assert ball.velocities[0, 0] == pytest.approx(0.2, rel=2e-2)
    weight = ball.masses[0] * 9.81
    assert ball.wall_forces.force[0, 2] == pytest.approx(-weight, rel=2e-2)


def test_a_wall_has_its_law_of_contact():
    law, dull = LinearSpring(1e4, restitution=0.9), LinearSpring(1e4, restitution=0.4)
    walls = [Plane((0, 0, 0), (0, 0, 1)), Plane((0, 0, 0.25), (0, 0, -1), contact=dull)]
    ball = Simulation(np.array([[0, 0, 0.125]]), 0.1, (0, 0, 1.0), density=1000.0, contact=law, walls=walls)
    while ball.velocities[0, 2] > 0 or len(ball.contacts.i):
        ball.run(5)
    assert -ball.velocities[0, 2] == pytest.approx(0.4, rel=0.01)
    while ball.velocities[0, 2] < 0 or len(ball.contacts.i):
        ball.run(5)
    assert ball.velocities[0, 2] == pytest.approx(0.36, rel=0.01)


def test_particles_come_and_go():
    x = 0.25 * np.stack(np.meshgrid(*3 * [np.arange(3.0)], indexing="ij"), -1).reshape(-1, 3) + 0.2
    options = {"density": 1000.0, "contact": SPRING, "box": (1.0, 1.0, 1.0), "gravity": 9.81, "time_step": 1e-4}
    every, some = Simulation(x, 0.12, **options), Simulation(x[:20], 0.12, **options)
    some.insert(x[20:], 0.12, density=1000.0)
    for simulation in (every, some):
        simulation.run(400)
    np.testing.assert_allclose(some.positions, every.positions, rtol=0, atol=1e-12)
    touching = some.contacts
    before = some.positions
    out = np.arange(27) % 3 == 1
    some.remove(out)
    names = np.append(np.cumsum(~out) - 1, 0)
    kept = ~out[touching.i] & ((touching.j < 0) | ~out[np.maximum(touching.j, 0)])
    after = some.contacts
    np.testing.assert_array_equal(after.i, names[touching.i[kept]])
    np.testing.assert_allclose(after.tangential, touching.tangential[kept], rtol=0, atol=1e-9)
    np.testing.assert_allclose(some.positions, before[~out], rtol=0, atol=1e-15)
    some.run(10)
    with pytest.raises(ValueError, match=r"which is int64 \(3,\); \(18,\) of bool is needed"):
        some.remove([0, 1, 2])
    with pytest.raises(ValueError, match=r"the deepest is that of particles 3 and 18 with 2"):
        some.insert(some.positions[3:4], 0.12, density=1000.0)
    assert len(some) == 18
    some.run(10)


@pytest.mark.parametrize("friction", [0.0, 0.3])
def test_few_spheres_at_many_walls_come_and_go(friction):
    """A contact with the last of six walls has a number beyond those of spheres; none at all have a state, too."""
    law = LinearSpring(stiffness=1e4, restitution=0.8, friction=friction)
    faces = [Plane(tuple(s * np.eye(3)[a] * 0.5), tuple(-s * np.eye(3)[a])) for a in range(3) for s in (-1.0, 1.0)]
    spheres = Simulation(np.array([[0.0, 0.0, 0.4001]]), 0.1, (0, 0, 1.0), density=1000.0, contact=law, walls=faces)
    spheres.run(10)
    assert spheres.contacts.j.tolist() == [-6]
    spheres.insert(np.array([[0.0, 0.0, -0.1], [0.0, 0.3, 0.0]]), 0.1, density=1000.0)
    assert spheres.contacts.j.tolist() == [-6]
    spheres.remove(np.array([False, True, True]))
    assert spheres.contacts.j.tolist() == [-6]
    spheres.remove(np.array([True]))
    none = Simulation.restore(spheres.state())
    none.run(3)
    assert len(none) == 0 and none.step == 13


def test_times_go_on_with_the_same_bits():
    spheres = Simulation(np.zeros((1, 3)), 1.0, density=1.0, contact=LinearSpring(stiffness=1.0), time_step=0.1)
    for _ in range(30):
        spheres.run(7)
        again = Simulation.restore(spheres.state())
        again.run(4)
        spheres.run(4)
        assert again.time == spheres.time


def test_places_that_numbers_do_not_tell_apart_are_refused():
    for far in (1e20, 1e31):
        with pytest.raises(ValueError, match="particle 1 is at .* farther apart than"):
            Simulation([[0.0, 0, 0], [far, 0, 0]], 0.1, density=1.0, contact=LinearSpring(stiffness=1.0))


def test_starts_that_are_too_deep_are_refused_or_moved_apart():
    rng = np.random.default_rng(3)
    x, radii = rng.random((300, 3)) * [1.0, 0.5, 0.8], rng.uniform(0.02, 0.045, 300)
    where = {"box": (1.0, 0.5, 0.8), "periodic": (True, False, False), "walls": [Plane((0, 0, 0.05), (0.1, 0, 1))]}
    with pytest.raises(ValueError, match=r"contacts are deeper than 0.5 of the smaller radius.*relaxed_positions"):
        Simulation(np.clip(x, [0, 0.01, 0.2], [1, 0.49, 0.79]), radii, density=1.0, contact=SPRING, **where)
    apart_now = relaxed_positions(x, radii, overlap=0.02, **where)
    spheres = Simulation(apart_now, radii, density=1.0, contact=SPRING, **where)
    touching = spheres.contacts
    smaller = np.where(touching.j < 0, radii[touching.i], np.minimum(radii[touching.i], radii[touching.j]))
    assert (touching.overlap <= 0.0201 * smaller).all()
    with pytest.raises(ValueError, match="they lack room"):
        relaxed_positions(x, 0.2, most=20, **where)


def test_walls_that_are_none_are_refused():
    for make, words in (
        (lambda: Rectangle((0, 0, 0), (1, 0, 0), (1, 1, 0)), "give two perpendicular edges"),
        (lambda: Rectangle((0, 0, 0), (1, 0, 0), (0, 1, 0), spin=1.0), "a rectangle has no axis"),
        (lambda: Disc((0, 0, 0), (0, 0, 1), 0.1, hole=0.2), "give a smaller hole"),
        (lambda: Cylinder((0, 0, 0), (0, 0, 1), 0.1, 0.0), "has no surface"),
        (lambda: Cylinder((0, 0, 0), (0, 0, 0), 0.1, 1.0), "a vector of nonzero length"),
    ):
        with pytest.raises(ValueError, match=words):
            make()
    with pytest.raises(TypeError, match="contact is a str"):
        Plane((0, 0, 0), (0, 0, 1), contact="wood")
    options = {"radii": 0.1, "density": 1.0, "contact": SPRING}
    with pytest.raises(TypeError, match="give the same class"):
        Simulation(np.ones((1, 3)), walls=Plane((0, 0, 0), (0, 0, 1), contact=Hertz(1e5)), **options)
    one = Simulation(np.ones((1, 3)), walls=Plane((0, 0, 0), (0, 0, 1)), **options)
    with pytest.raises(ValueError, match="there are 2 walls; this simulation has 1"):
        one.walls = [Plane((0, 0, 0), (0, 0, 1)), Plane((0, 1, 0), (0, -1, 0))]
    with pytest.raises(ValueError, match="1 particles are behind wall 0"):
        one.walls = Plane((0, 0, 2), (0, 0, 1))
    one.walls = Plane((0, 0, 0.5), (0, 0, 1), velocity=(0, 0, 1))
    one.run(3)
    assert one.walls[0].point == pytest.approx((0, 0, 0.5 + 3 * one.time_step))
    assert repr(one.walls[0]).endswith("velocity=(0.0, 0.0, 1.0))")
