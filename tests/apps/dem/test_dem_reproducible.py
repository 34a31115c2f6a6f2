# SPDX-License-Identifier: BSD-3-Clause
"""A deterministic trajectory depends on nothing but the state: no builder, list, thread or restart."""

import numpy as np
import pytest

from dem_cases import heap
from particlemesh.apps.dem import Simulation, motion

MOVING = ("positions", "velocities", "spins", "accelerations", "contact_i", "contact_j", "contact_force")


def same(one, two):
    first, second = one.state(), two.state()
    assert len(first["contact_i"]) > 20
    for name in MOVING:
        np.testing.assert_array_equal(first[name], second[name], err_msg=name)


@pytest.fixture(scope="module")
def expected():
    """States by backend, of the first builder that ran there."""
    return {}


def test_every_builder_gives_the_same_trajectory(builder, backend, expected, request):
    if request.config.thins and backend.name == "opencl" and builder.name not in ("sort", "linked_list_packed"):
        pytest.skip("PoCL compiles slowly: the others are for --thorough and GPUs")
    pile = heap(deterministic=True, method=builder.name, backend=backend.name)
    pile.run(100)
    same(pile, expected.setdefault(backend.name, pile))
    assert pile.rebuilds > 3
    assert pile.contacts.j.min() < 0 < pile.contacts.j.max()


def test_neither_margins_of_lists_nor_threads_nor_calls_change_anything(monkeypatch):
    pile, threads = heap(deterministic=True, threads=1), heap(deterministic=True, threads=2)
    pile.run(200)
    for steps in (1, 0, 99, 100):
        threads.run(steps)
    same(pile, threads)
    monkeypatch.setattr(motion, "SKIN", 0.01)
    often = heap(deterministic=True)
    often.run(200)
    assert often.rebuilds > 2 * pile.rebuilds
    same(pile, often)


@pytest.mark.parametrize("at", [0, 70])
def test_a_restart_continues_with_the_same_bits(backend, at):
    pile = heap(deterministic=True, backend=backend.name)
    pile.run(at)
    again = Simulation.restore(pile.state(), backend=backend.name)
    assert (again.step, again.time, again.walls) == (pile.step, pile.time, pile.walls)
    assert again.energy == pile.energy
    for simulation in (pile, again):
        simulation.run(100 - at)
    same(pile, again)
    assert again.step == 100


def test_both_modes_agree_until_rounding_tells_them_apart():
    exact, quick = heap(deterministic=True), heap()
    for simulation in (exact, quick):
        simulation.run(60)
    np.testing.assert_allclose(exact.positions, quick.positions, rtol=0, atol=1e-12)
