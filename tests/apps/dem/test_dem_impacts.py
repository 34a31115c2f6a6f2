# SPDX-License-Identifier: BSD-3-Clause
"""Impacts at the default time step: the stated restitution, and laws integrated independently."""

import warnings

import numpy as np
import pytest

from dem_cases import collided, colliding, separated
from particlemesh.apps.dem import Hertz, LinearSpring, Plane, Simulation

LAWS = {
    "hertz": lambda **more: Hertz(young=1e5, poisson=0.3, **more),
    "linear": lambda **more: LinearSpring(stiffness=1e4, **more),
}


def after(simulation, normal):
    v = simulation.velocities.astype(np.float64)
    return ((v[: len(normal)] - v[len(normal) :]) * normal).sum(1)


@pytest.mark.parametrize("spread", [1.0, 3.0, 20.0])
@pytest.mark.parametrize("restitution", [0.95, 0.7, 0.5, 0.3, 0.1, 0.02, 1e-3])
@pytest.mark.parametrize("contact", LAWS)
def test_restitution_is_met_at_the_default_step(contact, restitution, spread, request):
    count = 20 if request.config.thins else 400
    for friction in (0.0, 0.5):
        law = LAWS[contact](restitution=restitution, friction=friction)
        simulation, normal, speed = colliding(np.random.default_rng(1), law, count, spread)
        separated(simulation)
        np.testing.assert_allclose(after(simulation, normal) / speed, restitution, rtol=0.01)


@pytest.mark.parametrize("restitution", [0.8, 0.1])
@pytest.mark.parametrize("contact", LAWS)
def test_restitution_of_a_wall(contact, restitution):
    law, count = LAWS[contact](restitution=restitution), 30
    step = law.default_time_step(np.ones(1), np.full(1, 4 / 3 * np.pi))
    x = np.zeros((count, 3))
    x[:, 0], x[:, 2] = 4 * np.arange(count), 1 + 1e-3 * step * np.linspace(0.02, 0.98, count)
    given = dict(density=1.0, contact=law, walls=[Plane((0, 0, 0), (0, 0, 1))])
    balls = separated(Simulation(x, 1.0, (0, 0, -1e-3), **given))
    np.testing.assert_allclose(balls.velocities[:, 2], 1e-3 * restitution, rtol=0.01)


@pytest.mark.backends("opencl", "cuda")
@pytest.mark.parametrize("contact", LAWS)
def test_restitution_on_devices(backend, contact):
    law = LAWS[contact](restitution=0.1)
    here, normal, speed = colliding(np.random.default_rng(2), law, 20)
    there, _, _ = colliding(np.random.default_rng(2), law, 20, backend=backend.name)
    np.testing.assert_allclose(after(separated(there), normal), after(separated(here), normal), rtol=1e-9)
    one = dict(overlap=(0.02, 0.03), dtype="float32", backend=backend.name)
    single, normal, speed = colliding(np.random.default_rng(2), law, 1, **one)
    assert after(separated(single), normal) / speed == pytest.approx(0.1, rel=0.02)


@pytest.mark.parametrize("contact", LAWS)
def test_a_step_that_misses_the_restitution_is_warned_of(contact):
    for restitution in (0.9, 0.5, 0.2, 0.05):
        law = LAWS[contact](restitution=restitution)
        radii, masses = np.ones(1), np.full(1, 4 / 3 * np.pi)
        longest = law.resolved_time_step(radii, masses)
        given = dict(density=1.0, contact=law)
        if longest < law.critical_time_step(radii, masses):
            with pytest.warns(
                UserWarning, match=f"more than {longest:g}, impacts miss the restitution {restitution:g}"
            ):
                Simulation(np.zeros((1, 3)), 1.0, time_step=1.01 * longest, **given)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            Simulation(np.zeros((1, 3)), 1.0, **given)
        simulation, normal, speed = colliding(
            np.random.default_rng(3), law, 40, 1.0, time_step=0.99 * min(longest, law.critical_time_step(radii, masses))
        )
        np.testing.assert_allclose(after(separated(simulation), normal) / speed, restitution, rtol=0.011)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("contact", LAWS)
def test_impacts_of_all_kinds_equal_their_laws(contact, seed, request):
    """Oblique impacts of spinning spheres, against the same laws in steps that are 25 times shorter."""
    if request.config.thins and seed > 1:
        pytest.skip("one of ten is enough here; --thorough runs all")
    rng = np.random.default_rng(seed)
    law = LAWS[contact](restitution=rng.uniform(0.3, 1), friction=rng.choice([0.1, 0.4, 2.0]))
    simulation, _, speed = colliding(rng, law, 20 if request.config.thins else 260, aside=2.0, spin=0.5)
    x, v, w = simulation.positions, simulation.velocities, simulation.spins
    right = collided(law, x, v, w, simulation.radii, simulation.masses, simulation.time_step / 25)
    momentum = (simulation.masses[:, None] * v).sum(0)
    separated(simulation)
    scale = np.tile(speed, 2)[:, None]
    np.testing.assert_allclose(simulation.velocities / scale, right[0] / scale, rtol=0, atol=0.03)
    scale = scale / simulation.radii[:, None]
    np.testing.assert_allclose(simulation.spins / scale, right[1] / scale, rtol=0, atol=0.08)
    kept = (simulation.masses[:, None] * simulation.velocities).sum(0)
    np.testing.assert_allclose(kept, momentum, rtol=0, atol=1e-12 * abs(v).max() * simulation.masses.sum())
