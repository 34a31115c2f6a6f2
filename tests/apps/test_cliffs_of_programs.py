# SPDX-License-Identifier: BSD-3-Clause
"""Outliers, clusters, dilute and long boxes take programs no more work and memory than even clouds do."""

import math
import tracemalloc

import numpy as np
import pytest

import particlemesh as pm
from particlemesh.apps.brownian import BrownianDynamics, Drag, HarmonicBonds
from particlemesh.apps.brownian.parameters import for_system
from particlemesh.apps.pme import PME, PMEBatch
from particlemesh.apps.pme.parameters import FOURTH
from particlemesh.kernels import backend

RNG = np.random.default_rng(5)


def most_bytes(call):
    """Return the most bytes that NumPy holds during a second call."""
    call()
    tracemalloc.start()
    call()
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return most


@pytest.mark.parametrize("count", [200, 20_000, 2_000_000])
@pytest.mark.parametrize("of", ["PME", "PMEBatch"])
def test_a_box_of_any_shape_and_size_has_as_many_nodes_and_pairs_for_a_charge(of, count):
    """Parameters are in units of the distance of charges, so neither a dilute box nor a long one has more."""
    work = []
    for size, aspect in ((1, 1), (1e4, 1), (1e-4, 1), (1, 36), (1, 1000), (1, 1 / 36)):
        lengths = size * count ** (1 / 3) * np.array([aspect, aspect**-0.5, aspect**-0.5])
        # A system of a batch is chosen for as a call of its own.
        pme = PME(tuple(lengths), accuracy=1e-4) if of == "PME" else PMEBatch(tuple(lengths), 3, accuracy=1e-4)._one
        chosen = pme._chosen(count, np.dtype("f8"), backend("cpu"), FOURTH)
        work.append((math.prod(chosen.shape) / count, 4 / 3 * math.pi * chosen.cutoff**3 * count / lengths.prod()))
    nodes, pairs = np.array(work).T
    least = max(count, 200)
    assert nodes.max() < 100 * max(1, 1000 / least) and pairs.max() < 400
    assert np.ptp(nodes[:3]) < 1e-9 and np.ptp(pairs[:3]) < 1e-6  # a unit of length changes nothing


@pytest.mark.parametrize("count", [1000, 30_000])
def test_spheres_in_a_long_box_have_as_many_nodes_and_pairs(count):
    """A limit of nodes per axis made the cutoff of long boxes long: thirty times the pairs."""
    work = []
    for size, aspect in ((1, 1), (1, 36), (1, 216), (20, 1), (20, 36)):
        lengths = size * count ** (1 / 3) * np.array([aspect, aspect**-0.5, aspect**-0.5])
        system = pm.Box(tuple(lengths)), np.array([0.25]), count, 1e-3, np.dtype("f8"), backend("cpu"), {}, 20
        chosen = for_system(*system)
        work.append((math.prod(chosen.shape) / count, chosen.pairs / count))
    nodes, pairs = np.array(work).T
    assert nodes.max() < 200 and pairs.max() < 200


@pytest.mark.parametrize("deterministic", [False, True])
def test_particles_in_one_cell_take_no_more_memory(deterministic):
    count = 20_000
    mesh = pm.Mesh((24,) * 3, (1.0,) * 3)
    x, values = RNG.random((count, 3)), np.ones(count)
    for at in (x, (x + 12) / 24, np.full((count, 3), 0.5), np.where(np.arange(count)[:, None] == 7, 0.9, x / 1e3)):
        plan = pm.Plan(mesh, "bspline4", deterministic=deterministic, threads=2)
        most = most_bytes(lambda plan=plan, at=at: plan.set_positions(at).interpolate(plan.spread(values)))
        assert most < 4 * 8 * 24**3 + 150 * count, f"{most / count:.0f} bytes a particle"


@pytest.mark.parametrize("far", [1.0, 1e9])
def test_a_bead_far_from_its_chain_costs_nothing(far):
    count = 5000
    x = RNG.random((count, 3)) * 10
    x[0] *= far
    bonds = HarmonicBonds(np.stack([np.arange(1, count - 1), np.arange(2, count)], 1), 1.0, 1.0)

    def steps():
        BrownianDynamics(x, Drag(), bonds, time_step=1e-6, seed=1).run(3)

    assert most_bytes(steps) < 400 * count


@pytest.mark.parametrize("places", ["dilute", "two clusters", "one far away"])
def test_the_nearest_particles_take_memory_by_particles(places):
    count = 5000
    x = RNG.random((count, 3))
    if places == "two clusters":
        x = x / 50 + 0.9 * (np.arange(count)[:, None] % 2)
    elif places == "one far away":
        x = np.where(np.arange(count)[:, None] == 3, 0.99, x / 50)
    grid = pm.UniformGrid((1.0,) * 3, cell_size=1 / 17, periodic=places == "dilute", threads=2)
    assert most_bytes(lambda: grid.build(x).nearest(4, 0.05)) < 250 * count
