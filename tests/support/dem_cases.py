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
