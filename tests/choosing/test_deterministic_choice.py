# SPDX-License-Identifier: BSD-3-Clause
"""A reproducible plan takes the same method for the same call, whatever it held before, is free or was measured."""

import numpy as np
import pytest

import particlemesh as pm
from devices import METHODS
from particlemesh.choosing import choice

MESH = pm.Mesh((12, 10, 14), (1.0, 1.0, 1.0))


def chosen(plan):
    return [plan.methods.of(direction).name for direction in METHODS]


def plan_of(backend, **options):
    return pm.Plan(MESH, "bspline4", dtype="float64", backend=backend.name, deterministic=True, **options)


@pytest.mark.parametrize("applications", [1, 1000])
def test_the_method_does_not_depend_on_what_the_plan_held_before(backend, applications):
    x = np.random.default_rng(1).random((100_000, 3))
    names = set()
    for history in ((), (500,), (100_000,), (3, 100_000)):
        plan = plan_of(backend, applications=applications)
        for count in (*history, 300):
            plan.set_positions(backend.array(x[:count]))
            names.add(tuple(chosen(plan)))
    for capacity in (300, 100_000):
        plan = plan_of(backend, applications=applications)
        plan.reserve(capacity)
        names.add(tuple(chosen(plan.set_positions(backend.array(x[:300])))))
    assert len(names) == 1


def test_free_memory_and_measured_times_have_no_say(backend, monkeypatch):
    x = backend.array(np.random.default_rng(1).random((300, 3)))
    before = chosen(plan_of(backend, applications=1000).set_positions(x))
    monkeypatch.setattr(type(backend.library), "free_bytes", lambda self: 100_000)
    monkeypatch.setattr(choice, "known", None)  # calling it would fail
    plan = plan_of(backend, applications=1000).set_positions(x)
    assert chosen(plan) == before
    assert "a reproducible choice" in plan.explain()


def test_measured_times_cannot_choose_reproducibly():
    with pytest.raises(ValueError, match="differ from run to run"):
        pm.Plan(MESH, method="measure", deterministic=True)
