# SPDX-License-Identifier: BSD-3-Clause
"""Two Python threads that use one plan: an error for the second, where memory was damaged before."""

import threading

import numpy as np
import pytest

import particlemesh as pm
from particlemesh.arrays import operands

RNG = np.random.default_rng(8)
MESH = pm.Mesh((8, 8, 8), (1.0, 1.0, 1.0))
ERROR = "another thread is using this Plan: make a Plan for each thread, or hold a lock around its calls."


def test_a_second_thread_is_refused_while_a_first_spreads(backend, monkeypatch):
    x, q = backend.array(RNG.random((50, 3))), backend.array(RNG.random(50))
    plan = pm.Plan(MESH, "cic", backend=backend.name, dtype="float64").set_positions(x)
    field = plan.spread(q)
    before, expected = backend.host(field).copy(), backend.host(plan.interpolate(field))
    inside, go_on = threading.Event(), threading.Event()
    take = operands.take

    def waiting(*arguments, **options):
        inside.set()
        assert go_on.wait(60)
        return take(*arguments, **options)

    calls = [
        lambda: plan.set_positions(x), lambda: plan.spread(q), lambda: plan.spread(q, out=field),
        lambda: plan.spread_gradient(x), lambda: plan.interpolate(field), lambda: plan.gradient(field),
        lambda: plan.value_and_gradient(field), lambda: plan.hessian(field), lambda: plan.spread_hessian(x),
        lambda: plan.value_gradient_hessian(field), lambda: plan.reserve(99), lambda: plan.lost(q), plan.explain,
        lambda: plan.status, plan.check, plan.close,
    ]  # fmt: skip
    monkeypatch.setattr(operands, "take", waiting)
    results = []
    thread = threading.Thread(target=lambda: results.append(plan.spread(q)))
    thread.start()
    assert inside.wait(60)
    try:
        for call in calls:
            with pytest.raises(RuntimeError) as refused:
                call()
            assert str(refused.value) == ERROR
    finally:
        go_on.set()
        thread.join()
    assert np.allclose(backend.host(results[0]), before)
    assert np.allclose(backend.host(plan.interpolate(field)), expected)  # the plan is as it was


def test_an_error_inside_a_call_leaves_the_plan_free():
    plan = pm.Plan(MESH, "cic").set_positions(RNG.random((5, 3)))
    for _ in range(2):
        with pytest.raises(ValueError, match="values"):
            plan.spread(np.ones(4))
    freed = []
    thread = threading.Thread(target=lambda: freed.append(plan.spread(np.ones(5)).sum()))
    thread.start()
    thread.join()
    assert np.allclose(freed, 5)
