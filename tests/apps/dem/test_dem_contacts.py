# SPDX-License-Identifier: BSD-3-Clause
"""Single contacts: what theory says of bounces, of Hertz's law, and of sliding, sticking and rolling."""

import numpy as np
import pytest

from particlemesh.apps.dem import Hertz, LinearSpring, Plane, Simulation

FLOOR = Plane((0, 0, 0), (0, 0, 1))
LAWS = {
    "hertz": lambda **more: Hertz(young=1e7, poisson=0.3, **more),
    "linear": lambda **more: LinearSpring(stiffness=1e5, **more),
}


def meeting(law, speed, time_step, radii=(0.1, 0.15), wall=False, aside=0.0):
    """Two spheres, or one and a wall, that touch now and approach with a speed; the way from the second to the first
    is not along an axis."""
    normal = np.array([2.0, -1.0, 2.0]) / 3
    across = np.array([1.0, 2.0, 0.0]) / np.sqrt(5)
    x = np.array([normal * radii[0], -normal * radii[1]])[: 1 if wall else 2] * (1 + 1e-14)
    v = np.zeros_like(x)
    v[0] = -speed * normal + aside * across
    walls = [Plane((0, 0, 0), normal)] if wall else ()
    given = dict(density=1000.0, contact=law, walls=walls, time_step=time_step)
    return Simulation(x, np.array(radii[: len(x)]), v, **given), normal, across


def reduced(simulation, wall):
    m, r = simulation.masses, simulation.radii
    return (m[0], r[0]) if wall else (m[0] * m[1] / m.sum(), r[0] * r[1] / r.sum())


@pytest.mark.parametrize("wall", [False, True], ids=["spheres", "plane"])
@pytest.mark.parametrize("speed", [0.1, 1.0])
@pytest.mark.parametrize("restitution", [0.2, 0.8, 1.0])
@pytest.mark.parametrize("contact", LAWS)
def test_the_coefficient_of_restitution(contact, restitution, speed, wall):
    simulation, normal, _ = meeting(LAWS[contact](restitution=restitution), speed, 2e-6, wall=wall)
    simulation.run(20_000)
    assert not len(simulation.contacts.i)
    v = simulation.velocities
    after = (v[0] if wall else v[0] - v[1]) @ normal
    assert after / speed == pytest.approx(restitution, rel=2e-3)


@pytest.mark.parametrize("wall", [False, True], ids=["spheres", "plane"])
def test_the_contact_of_hertz(wall):
    law, speed = LAWS["hertz"](), 0.7
    simulation, normal, _ = meeting(law, speed, 1.0e-6, wall=wall)
    m, r = reduced(simulation, wall)
    modulus = law.young / (2 * (1 - law.poisson**2))
    deepest = (15 * m * speed**2 / (16 * modulus * np.sqrt(r))) ** 0.4
    duration = 2.9432751843 * deepest / speed
    simulation, normal, _ = meeting(law, speed, duration / 500, wall=wall)
    depths, pushes = [0.0], []
    for _ in range(510):
        simulation.run(1)
        x, v = simulation.positions, simulation.velocities
        between = x[0] if wall else x[0] - x[1]
        depths.append(simulation.radii.sum() - between @ normal)
        pushes.append(simulation.state()["accelerations"][0] @ normal * simulation.masses[0])
    depths = np.array(depths)
    assert depths.max() == pytest.approx(deepest, rel=1e-4)
    assert max(pushes) == pytest.approx(4 / 3 * modulus * np.sqrt(r) * deepest**1.5, rel=1e-4)
    last = np.flatnonzero(depths > 0)[-1]
    assert 495 < last < 505
    end = last + depths[last] / (depths[last] - depths[last + 1])
    assert end * duration / 500 == pytest.approx(duration, rel=5e-4)
    assert (v[0] if wall else v[0] - v[1]) @ normal == pytest.approx(speed, rel=1e-4)


@pytest.mark.parametrize("wall", [False, True], ids=["spheres", "plane"])
def test_an_impact_that_sticks_turns_the_tangential_speed_round(wall):
    # With 2/7 of the normal stiffness both springs of a contact swing once in its time.
    law = LinearSpring(stiffness=1e7, friction=1e9)
    simulation, normal, across = meeting(law, 1.0, 5e-7, wall=wall, aside=0.5)
    before = simulation.energy.total
    simulation.run(40_000)
    v, w, r = simulation.velocities, simulation.spins, simulation.radii
    slip = v[0] - np.cross(w[0], r[0] * normal)
    if not wall:
        slip = slip - v[1] - np.cross(w[1], r[1] * normal)
    assert slip @ across == pytest.approx(-0.5, rel=0.01)
    assert slip @ normal == pytest.approx(1.0, rel=0.01)
    assert simulation.energy.total == pytest.approx(before, rel=1e-3)
    assert np.linalg.norm(w, axis=1).min() > 1


@pytest.mark.parametrize("wall", [False, True], ids=["spheres", "plane"])
def test_an_impact_that_slides_has_the_impulse_of_friction(wall):
    stiff = Hertz(young=1e12, poisson=0.3, friction=0.1)  # so that the contact hardly turns
    simulation, _, across = meeting(stiff, 1.0, 2e-8, wall=wall, aside=1.5)
    m, _ = reduced(simulation, wall)
    simulation.run(20_000)
    v, w, r = simulation.velocities, simulation.spins, simulation.radii
    relative = v[0] if wall else v[0] - v[1]
    assert relative @ across == pytest.approx(1.5 - 0.1 * 2.0, rel=1e-3)  # normal impulse: 2 m speed
    for sphere in range(len(v)):
        inertia = 0.4 * simulation.masses[sphere] * r[sphere] ** 2
        assert np.linalg.norm(w[sphere]) == pytest.approx(r[sphere] * 0.2 * m / inertia, rel=3e-3)


def on_the_floor(law, slope=0.0, speed=0.0, time_step=None):
    """A sphere at rest in its overlap with a floor whose tilt is that of gravity."""
    pull = 9.81 * np.array([np.sin(slope), 0.0, -np.cos(slope)])
    ball = Simulation(
        np.array([[0.0, 0.0, 0.1]]), 0.1, density=1000.0, contact=law, walls=[FLOOR], gravity=pull, time_step=time_step
    )
    sunk = -ball.masses[0] * pull[2] / law.stiffness
    start = np.array([[0.0, 0.0, 0.1 - sunk]])
    return Simulation(
        start, 0.1, (speed, 0.0, 0.0), density=1000.0, contact=law, walls=[FLOOR], gravity=pull, time_step=time_step
    )


@pytest.mark.parametrize("friction", [0.5, 0.1], ids=["rolls", "slides"])
def test_a_sphere_on_an_incline(friction):
    slope = 0.4
    ball = on_the_floor(LinearSpring(stiffness=1e6, restitution=0.5, friction=friction), slope)
    ball.run(18_000)
    g, t, sine, cosine = 9.81, ball.time, np.sin(slope), np.cos(slope)
    rolls = np.tan(slope) < 3.5 * friction
    assert rolls == (friction == 0.5)
    speed = 5 / 7 * g * sine * t if rolls else g * (sine - friction * cosine) * t
    spin = speed / 0.1 if rolls else 2.5 * friction * g * cosine / 0.1 * t
    assert t > 0.3
    assert ball.velocities[0, 0] == pytest.approx(speed, rel=2e-3)
    assert ball.spins[0, 1] == pytest.approx(spin, rel=2e-3)
    assert ball.positions[0, 0] == pytest.approx(speed * t / 2, rel=2e-3)
    np.testing.assert_allclose(ball.velocities[0, 1:], 0, atol=1e-6)


def test_a_sliding_sphere_begins_to_roll():
    ball = on_the_floor(LinearSpring(stiffness=1e6, restitution=0.5, friction=0.3), speed=1.0)
    until = 2 * 1.0 / (7 * 0.3 * 9.81)
    ball.run(int(0.8 * until / ball.time_step))
    assert ball.velocities[0, 0] == pytest.approx(1 - 0.3 * 9.81 * ball.time, rel=2e-3)
    ball.run(int(1.5 * until / ball.time_step))
    assert ball.velocities[0, 0] == pytest.approx(5 / 7, rel=2e-3)
    assert 0.1 * ball.spins[0, 1] == pytest.approx(5 / 7, rel=2e-3)
