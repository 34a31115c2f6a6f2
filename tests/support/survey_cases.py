# SPDX-License-Identifier: BSD-3-Clause
"""A survey of clustered galaxies, and its spectra by jax-power."""

import csv
from pathlib import Path

import numpy as np

import particlemesh as pm

FILE = Path(__file__).parents[2] / "benchmarks" / "peers" / "jax-power-0.2.0-survey.csv"
LOW, HIGH = np.array([600.0, -400.0, -400.0]), np.array([1400.0, 400.0, 400.0])
CENTRE, EDGE, NODES, POWER = (1000.0, 0.0, 0.0), 1600.0, 48, 2e4
EDGES = np.linspace(0.008, 0.088, 9)
ORDERS = (0, 2, 4)
SCALE = 1e-5 * 1.5  # galaxies per volume at the least distance


def density(positions):
    """The mean density of galaxies, which falls with the distance from the origin."""
    return SCALE * np.exp(-(np.linalg.norm(positions, axis=1) - 600.0) / 500.0)


def survey():
    """Galaxies and randoms as positions, weights and densities, and the mesh; only uniform numbers are drawn."""
    rng = np.random.default_rng(7)
    volume = np.prod(HIGH - LOW)

    def thinned(positions):
        positions = positions[((positions >= LOW) & (positions < HIGH)).all(1)]
        return positions[rng.random(len(positions)) * SCALE < density(positions)]

    # Four of each cluster, within a cube; the mean density far from the border is that of all.
    wide = 40.0
    count = round(SCALE * np.prod(HIGH - LOW + wide) / 4)
    centres = LOW - wide / 2 + rng.random((count, 1, 3)) * (HIGH - LOW + wide)
    galaxies = thinned((centres + wide * (rng.random((count, 4, 3)) - 0.5)).reshape(-1, 3))
    randoms = thinned(LOW + rng.random((round(20 * SCALE * volume), 3)) * (HIGH - LOW))
    weights = 0.8 + 0.4 * rng.random(len(galaxies))
    mesh = pm.Mesh((NODES,) * 3, pm.Box((EDGE,) * 3, origin=np.array(CENTRE) - EDGE / 2))
    sets = (galaxies, weights, density(galaxies)), (randoms, np.ones(len(randoms)), density(randoms))
    return *sets, mesh


def theirs():
    """What jax-power has found: by name of a column."""
    with FILE.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return {name: np.array([float(row[name]) for row in rows]) for name in rows[0]}


def agree(ours, peer):
    """Check a spectrum of ours beside the columns of jax-power."""
    np.testing.assert_array_equal(ours.modes, peer["modes"])
    np.testing.assert_allclose(ours.k, peer["k"], rtol=1e-9)
    # It takes the normalisation from a product of both densities on a mesh: one factor for all.
    factor = peer["power0"] / ours.multipoles[0]
    np.testing.assert_allclose(factor, factor[0], rtol=1e-9)
    assert abs(factor[0] - 1) < 0.05, factor[0]
    np.testing.assert_allclose(factor[0] * ours.shot_noise, peer["noise"], rtol=1e-4)
    # It has the line of sight to a node, and ours is that to the object.
    for order in ORDERS[1:]:
        difference = factor[0] * ours.multipoles[order] - peer[f"power{order}"]
        assert abs(difference).max() < 2e-3 * peer["power0"].max(), order
