# SPDX-License-Identifier: BSD-3-Clause
"""Two threads on one object: everything that holds memory of its own refuses the second thread."""

import inspect
import threading

import numpy as np
import pytest

import particlemesh as pm
import particlemesh.distributed as pmd
from particlemesh import fourier
from particlemesh.apps import brownian, dem, nufft, pme
from particlemesh.arrays import operands

RNG = np.random.default_rng(1)
X = RNG.random((20, 3))
BOX = (1.0, 1.0, 1.0)
MESH = pm.Mesh((8, 8, 8), BOX)


def ranks(thing, *arguments, **options):
    return thing(pmd.Domain(MESH, 1), pmd.World(), *arguments, **options)


def spheres():
    return brownian.RPY((20.0,) * 3, accuracy=1e-2).set_positions(20 * X)


PARTS = {"follow", "locate", "ready", "rows_of", "spectra", "take", "track"}  # of calls that have looked
# How each object is made, and its methods that read nothing but sizes, or only call others of its methods.
OBJECTS = {
    "Plan": (lambda: pm.Plan(MESH, "cic").set_positions(X), {"empty_field", "to_xarray"} | PARTS),
    "UniformGrid": (lambda: pm.UniformGrid(BOX, shape=(4, 4, 4)).build(X, 0.05), PARTS),
    "Solver": (lambda: fourier.Solver(MESH, "cic").set_positions(X), {"explain"}),
    "VectorSolver": (lambda: fourier.VectorSolver(MESH, "cic", green=lambda k2: 1 / k2).set_positions(X), set()),
    "Transform": (lambda: fourier.Transform(MESH, "cic"), {"compensation", "green", "modes"} | PARTS),
    "PME": (lambda: pme.PME(BOX, accuracy=1e-2), {"chosen", "core"}),
    "PMEBatch": (lambda: pme.PMEBatch(BOX, 2, accuracy=1e-2), set()),
    "Dispersion": (lambda: pme.Dispersion(BOX, accuracy=1e-2), {"explain"}),
    "RPY": (spheres, {"explain", "linear_operator", "noise", "settings"}),
    "BrownianDynamics": (lambda: brownian.BrownianDynamics(20 * X, spheres(), time_step=0.1), set()),
    "Simulation": (
        lambda: dem.Simulation(20 * X, 0.1, density=1.0, contact=dem.LinearSpring(stiffness=1.0), time_step=0.001),
        {"save"},
    ),
    "nufft.Plan": (lambda: nufft.Plan(1, (8, 8, 8)), set()),
    "distributed.Plan": (lambda: ranks(pmd.Plan, "cic"), set()),
    "distributed.UniformGrid": (lambda: ranks(pmd.UniformGrid, radius=0.2), set()),
    "distributed.FFT": (lambda: ranks(pmd.FFT), {"explain", "wavenumbers"}),
}


SUM = pm.PairFunction("sum[0] += 1;", lambda r2, d, i, j, a, b, p, total: None, 1)
CHECKED_BEFORE = {  # arguments that are
    "nearest": (3, 0.2), "neighbours": (X, 0.2), "overlaps": (), "pairs": (0.2,), "count": (0.2,), "stream": (0.2, SUM),
}  # fmt: skip


def some_arguments(method):
    """Return one argument for each that a method needs: most checks come after the flag."""
    if method.__name__ in CHECKED_BEFORE:
        return CHECKED_BEFORE[method.__name__]
    parameters = list(inspect.signature(method).parameters.values())[1:]
    needed = [p for p in parameters if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return [None] * len(needed)


@pytest.mark.parametrize("name", OBJECTS)
def test_every_method_that_uses_memory_refuses_a_second_thread(name):
    make, free = OBJECTS[name]
    thing = make()
    holder = threading.Thread(target=thing.busy.acquire)
    holder.start()
    holder.join()
    methods = {
        method: function
        for method, function in inspect.getmembers(type(thing), inspect.isfunction)
        if (not method.startswith("_") or method == "__call__") and method not in free
    }
    assert methods.keys() & {"spread", "build", "pairs", "potential", "field", "forward", "__call__", "velocity",
                             "run", "execute"}  # fmt: skip
    for method, function in methods.items():
        with pytest.raises(RuntimeError, match=f"another thread is using this {type(thing).__name__}"):
            function(thing, *some_arguments(function))
            pytest.fail(f"{name}.{method} did not look")


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
