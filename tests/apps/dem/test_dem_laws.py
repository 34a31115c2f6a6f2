# SPDX-License-Identifier: BSD-3-Clause
"""Many particles: what a simulation conserves, what it loses, and where no particle goes."""

import numpy as np
import pytest

import particlemesh as pm
from dem_cases import ROUGH, heap, loose
from particlemesh.apps.dem import Hertz, LinearSpring, Simulation


def totals(simulation):
    """Momentum and angular momentum."""
    x, v, w = simulation.positions, simulation.velocities, simulation.spins
    m, r = simulation.masses[:, None], simulation.radii[:, None]
    return (m * v).sum(0), (np.cross(x, m * v) + 0.4 * m * r**2 * w).sum(0)


def test_momentum_and_angular_momentum_are_kept_without_walls():
    x, radii, v, side = loose(60, spread=(0.45, 0.5), speed=0.5)
    v -= 3 * (x - side / 2)  # towards each other
    cloud = Simulation(x, radii, v, spins=v[:, ::-1], density=1.0, contact=ROUGH)
    before, energy = totals(cloud), cloud.energy.total
    met = 0
    for _ in range(20):
        cloud.run(15)
        met += len(cloud.contacts.i)
    assert met > 80
    for kept, was in zip(totals(cloud), before, strict=True):
        np.testing.assert_allclose(kept, was, atol=1e-11 * np.abs(before).max())
    assert cloud.energy.total < 0.8 * energy


def test_energy_never_grows_under_damping(request):
    many = request.config.getoption("--thorough")
    soft = Hertz(young=1e7, poisson=0.25, restitution=0.6, friction=0.4)
    bed = heap(20_000 if many else 150, spread=(0.35, 0.45), contact=soft, gravity=5.0)
    energies, start = [bed.energy.total], bed.energy.translation
    touching = 0
    for _ in range(100 if many else 500):
        bed.run(50)
        energies.append(bed.energy.total)
        touching = max(touching, len(bed.contacts.i))
        assert bed.contacts.overlap.max(initial=0) < 0.02 * bed.radii.min()  # less than 1 % of a diameter
    assert touching > 50
    assert np.diff(energies).max() <= 1e-6 * energies[0]
    assert energies[0] - energies[-1] > 0.3 * start


@pytest.mark.parametrize("contact", ["hertz", "springs"])
def test_energy_without_damping_is_kept_to_second_order(contact):
    law = Hertz(young=1e4, poisson=0.25) if contact == "hertz" else LinearSpring(stiffness=500)
    x, radii, v, side = loose(60, spread=(0.44, 0.46))
    worst = []
    for parts in (1, 2, 4):
        box = dict(box=(side, side, side + 0.2), periodic=(True, True, False))
        gas = Simulation(x, radii, v, density=1.0, contact=law, time_step=2e-3 / parts, **box)
        before, met, error = gas.energy.total, 0, 0.0
        for _ in range(40):
            gas.run(5 * parts)
            met += len(gas.contacts.i)
            error = max(error, abs(gas.energy.total - before) / before)
        worst.append(error)
        assert met > 100
    assert worst[0] < 0.02
    assert worst[0] / worst[1] > 3
    assert worst[1] / worst[2] > 3


def test_no_sphere_leaves_the_walls():
    x, radii, v, side = loose(200, speed=20.0)
    law = Hertz(young=1e6, poisson=0.25, restitution=0.95, friction=0.2)
    box = (side, side + 0.1, side + 0.2)
    gas = Simulation(x, radii, v, density=1.0, contact=law, box=box, periodic=(True, False, False))
    for _ in range(10):
        gas.run(200)
        place = gas.positions
        assert len(place) == 200
        assert np.isfinite(place).all()
        assert (place >= 0).all()
        assert (place <= box).all()
        assert (place[:, 0] < side).all()
    assert np.linalg.norm(gas.velocities, axis=1).mean() > 2
    assert abs(gas.spins).max() > 1


def slab(z, r, low, high):
    """Volume of spheres between two heights."""

    def below(height):
        h = np.clip(height - (z - r), 0, 2 * r)
        return np.pi * h**2 * (3 * r - h) / 3

    return (below(high) - below(low)).sum()


def test_frictionless_spheres_pack_as_densely_as_random_packings_do(request):
    """Random close packings fill 0.62 to 0.66 of space, away from the floor and the surface."""
    many = request.config.getoption("--thorough")
    count, side = (5600, 14) if many else (400, 6)
    height = -(-count // side**2)
    rng = np.random.default_rng(5)
    cells = np.stack(np.meshgrid(range(side), range(side), range(height), indexing="ij"), -1).reshape(-1, 3)[:count]
    x = 1.1 * cells + 0.55 + rng.uniform(-0.04, 0.04, (count, 3))
    v = rng.normal(size=(count, 3))
    width, law = 1.1 * side, LinearSpring(stiffness=100 * height, restitution=0.1)
    radii = rng.uniform(0.48, 0.52, count)
    v -= np.average(v, axis=0, weights=radii**3)  # nothing stops the whole bed along axes that repeat
    step = 0.15 * law.critical_time_step(radii, 8 * radii**3)
    bed = Simulation(x, radii, v, density=6 / np.pi, contact=law, box=(width, width, 2.2 * height),
                     periodic=(True, True, False), gravity=1.0, time_step=step)  # fmt: skip
    while bed.step < 60_000 and bed.energy.translation > 5e-5 * count:
        bed.run(1000)
    assert bed.energy.translation < 5e-5 * count
    z = bed.positions[:, 2]
    assert len(z) == count
    assert z.min() > 0.4
    low, high = 2.5, np.sort(z)[-side * side * 2] - 0.5
    assert high - low > 3
    fraction = slab(z, radii, low, high) / (width**2 * (high - low))
    assert 0.62 <= fraction <= 0.66
    assert bed.contacts.overlap.max() < 0.03


@pytest.mark.parametrize("kind", ["packed", "one far away", "two heaps", "mixed, one far away"])
def test_spheres_far_from_the_others_cost_nothing(backend, kind, monkeypatch):
    """A search compares few particles in vain, and the spheres of a heap move as they do alone."""
    x = np.stack(np.meshgrid(*[np.arange(9)] * 3, indexing="ij"), -1).reshape(-1, 3) * 1.01
    v = np.random.default_rng(1).normal(0, 0.5, x.shape)
    radii = np.full(len(x), 0.5)
    if kind.startswith("mixed"):
        radii[::2] = 0.4
    where = {"packed": [], "two heaps": x + 1e4}.get(kind, [[1e6, -1e6, 3e5]])
    others = np.array(where).reshape(-1, 3)
    work, search = [], pm.UniformGrid.pairs

    def counted(grid, *arguments, **options):
        held = np.diff(backend.host(grid.cell_start).astype(float))
        work.append(float(held @ held) / grid.size)
        return search(grid, *arguments, **options)

    def moved(x, v, radii):
        heap = Simulation(x, radii, v, density=1.0, contact=Hertz(1e4), time_step=1e-3, backend=backend.name)
        heap.run(60)
        assert heap.rebuilds > 1
        return heap.positions

    alone = moved(x, v, radii)
    monkeypatch.setattr(pm.UniformGrid, "pairs", counted)
    speeds = np.concatenate([v, np.zeros_like(others)])
    together = moved(np.concatenate([x, others]), speeds, np.concatenate([radii, np.full(len(others), 0.5)]))
    assert all(compared <= 64 for compared in work), work
    np.testing.assert_allclose(together[: len(x)], alone, rtol=0, atol=1e-9)


@pytest.mark.filterwarnings("ignore:positions up to")
@pytest.mark.parametrize("real", ["f4", "f8"])
def test_no_folded_position_is_on_the_upper_face(real):
    x = np.array([[-1e-9, 1.0, 3.7], [3.7, -1e-30, 2.0], [-1e-18, 7.4, 1.0]], real)
    v = np.zeros_like(x)
    x[1, 2], v[1, 2] = 1.999e-7, -2e-5  # the first step ends just below 0
    still = Simulation(x, 0.1, v, density=1.0, contact=Hertz(1e3), box=(3.7,) * 3, periodic=True, time_step=1e-2)
    for _ in range(3):
        assert (still.positions >= 0).all() and (still.positions < 3.7).all()
        still.run(1)
