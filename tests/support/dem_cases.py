# SPDX-License-Identifier: BSD-3-Clause
"""Granular systems that several tests share."""

import numpy as np

from particlemesh.apps.dem import Hertz, Simulation

ROUGH = Hertz(young=1e4, poisson=0.25, restitution=0.7, friction=0.5)


def loose(count, seed=0, spread=(0.35, 0.45), speed=1.0):
    """Positions, radii and velocities of spheres that do not touch, some one per unit cell, and the cells' number."""
    rng = np.random.default_rng(seed)
    side = int(np.ceil(count ** (1 / 3)))
    cells = np.stack(np.meshgrid(*[np.arange(side)] * 3, indexing="ij"), -1).reshape(-1, 3)
    x = cells[rng.permutation(len(cells))[:count]] + 0.55 + rng.uniform(-0.04, 0.04, (count, 3))
    return x, rng.uniform(*spread, count), speed * rng.normal(size=(count, 3)), side


def heap(count=150, dtype="float64", spread=(0.46, 0.53), **options):
    """Rough spheres of many sizes that fall on the floor of a box that repeats along the first axis; many touch."""
    x, radii, v, side = loose(count, spread=spread)
    box = (side, side + 0.1, 3 * side)
    given = dict(density=1.0, contact=ROUGH, box=box, periodic=(True, False, False), gravity=20.0)
    return Simulation(x.astype(dtype), radii, v, **given | options)


def colliding(rng, law, count, spread=3.0, aside=0.0, spin=0.0, overlap=(1e-4, 0.03), cell=8.0, **options):
    """Pairs of spheres of unit density, far from each other, that meet within the first step with random speeds.

    Speeds are such that the overlap reaches a part of the smaller radius within the bounds given. Returns a simulation
    of 2 ``count`` spheres, i and i + ``count`` being a pair, and the normals from the second to the first.
    """
    radii = np.exp(rng.uniform(-np.log(spread) / 2, np.log(spread) / 2, (2, count)))
    masses = 4 / 3 * np.pi * radii**3
    normal = rng.normal(size=(count, 3))
    normal /= np.linalg.norm(normal, axis=1)[:, None]
    m, r = masses.prod(0) / masses.sum(0), radii.prod(0) / radii.sum(0)
    deepest = np.exp(rng.uniform(*np.log(overlap), count)) * radii.min(0)
    if isinstance(law, Hertz):
        modulus = law.young / (2 * (1 - law.poisson**2))
        speed = np.sqrt(16 * modulus * np.sqrt(r) / (15 * m)) * deepest**1.25
    else:
        speed = deepest * np.sqrt(law.stiffness / m)
    step = options.pop("time_step", None) or law.default_time_step(radii.ravel(), masses.ravel())
    side = int(np.ceil(count ** (1 / 3)))
    places = np.stack(np.meshgrid(*[np.arange(side)] * 3, indexing="ij"), -1).reshape(-1, 3)[:count]
    middle = cell * spread**0.5 * (places - (side - 1) / 2)
    gap = rng.uniform(0.02, 0.98, count) * speed * step
    share = masses[::-1] / masses.sum(0)
    x = np.concatenate([middle + (share[0] * (radii.sum(0) + gap))[:, None] * normal,
                        middle - (share[1] * (radii.sum(0) + gap))[:, None] * normal])  # fmt: skip
    across = np.cross(normal, rng.normal(size=(count, 3)))
    across /= np.linalg.norm(across, axis=1)[:, None]
    relative = speed[:, None] * (aside * rng.uniform(0, 1, (count, 1)) * across - normal)
    v = np.concatenate([share[0][:, None] * relative, -share[1][:, None] * relative])
    w = spin * np.concatenate([speed / radii[0], speed / radii[1]])[:, None] * rng.normal(size=(2 * count, 3))
    given = dict(spins=w, density=1.0, contact=law, time_step=step) | options
    return Simulation(x.astype(options.get("dtype", "float64")), radii.ravel(), v, **given), normal, speed


def separated(simulation):
    """Run until no pair touches any more."""
    simulation.run(5)
    while len(simulation.contacts.i):
        simulation.run(50)
    return simulation


def collided(law, x, v, w, radii, masses, step):
    """Velocities and spins of pairs after an impact: the laws of contact integrated in small steps, pair by pair."""
    x, v, w, r, m = (np.array(a).reshape(2, -1, *np.shape(a)[1:]) for a in (x, v, w, radii, masses))
    light, round_ = m.prod(0) / m.sum(0), r.prod(0) / r.sum(0)
    hertz = isinstance(law, Hertz)
    e = law.restitution
    beta = 0.0 if e == 1 else -np.log(e) / np.sqrt(np.log(e) ** 2 + np.pi**2)
    if hertz:
        modulus = law.young / (2 * (1 - law.poisson**2))
        shear = law.young / (4 * (1 + law.poisson) * (2 - law.poisson))
    h, before, met = np.zeros_like(x[0]), np.zeros(len(light)), np.zeros(len(light), bool)
    while True:
        d = x[0] - x[1]
        distance = np.linalg.norm(d, axis=1)
        n, deep = d / distance[:, None], r.sum(0) - distance
        touches = deep > 0
        if (met & ~touches).all():
            return v.reshape(-1, 3), w.reshape(-1, 3)
        met |= touches
        arms = distance * r / r.sum(0)
        at = v[0] - v[1] - np.cross(arms[0][:, None] * w[0] + arms[1][:, None] * w[1], n)
        speed = (at * n).sum(1)
        slip = at - speed[:, None] * n
        a = np.sqrt(round_ * np.maximum(deep, 0)) if hertz else np.ones_like(deep)
        normal = 2 * modulus * a if hertz else law.stiffness * a
        along = 8 * shear * a if hertz else law.tangential * a
        damper = 2 * beta * (np.sqrt(5 / 6) if hertz else 1) * np.sqrt(normal * light)
        push = (2 / 3 if hertz else 1) * normal * deep - damper * speed
        size = np.linalg.norm(h, axis=1)
        h = h - (h * n).sum(1)[:, None] * n
        h *= (size / np.maximum(np.linalg.norm(h, axis=1), 1e-300))[:, None]
        h *= np.where(along < before, along / np.maximum(before, 1e-300), 1.0)[:, None]
        h = h - (along * step)[:, None] * slip
        before = along
        most = law.friction * np.maximum(push, 0)
        size = np.linalg.norm(h, axis=1)
        h *= np.where(size > most, most / np.maximum(size, 1e-300), 1.0)[:, None]
        drag = (
            -(damper * np.sqrt((8 * shear / (2 * modulus)) if hertz else law.tangential / law.stiffness))[:, None]
            * slip
        )
        dot, rate, size = (h * drag).sum(1), (drag * drag).sum(1), (h * h).sum(1)
        root = np.sqrt(np.maximum(dot**2 + rate * np.maximum(most**2 - size, 0), 0))
        part = np.where(size + 2 * dot + rate > most**2, np.clip((root - dot) / np.maximum(rate, 1e-300), 0, 1), 1.0)
        force = np.where(touches[:, None], push[:, None] * n + h + part[:, None] * drag, 0.0)
        h, before = np.where(touches[:, None], h, 0.0), np.where(touches, before, 0.0)
        turn = -np.cross(n, force)
        v = v + step * np.array([force / m[0][:, None], -force / m[1][:, None]])
        w = w + step * np.array([arms[k][:, None] * turn / (0.4 * m[k] * r[k] ** 2)[:, None] for k in range(2)])
        x = x + step * v
