# SPDX-License-Identifier: BSD-3-Clause
"""Two threads on one object: everything that holds memory of its own refuses the second thread."""

import inspect
import threading

import numpy as np
import pytest

import particlemesh as pm
import public_calls
from pair_sums import VALUES
from particlemesh.arrays import operands

RNG = np.random.default_rng(8)
MESH = pm.Mesh((8, 8, 8), (1.0, 1.0, 1.0))
PARTS = {"follow", "locate", "ready", "rows_of", "spectra", "take", "track"}  # of calls that have looked
# Methods of each object that read nothing but sizes, or only call others of its methods.
FREE = {
    "Plan": {"empty_field", "to_xarray"} | PARTS, "UniformGrid": PARTS, "fourier.Solver": {"explain"},
    "fourier.Transform": {"compensation", "green", "modes"} | PARTS, "apps.pme.PME": {"core"},
    "apps.pme.DistributedPME": {"core"}, "apps.pme.PMEBatch": {"core"}, "apps.pme.Dispersion": {"explain", "core"},
    "apps.pme.InducedDipoles": {"in_box"},
    "apps.pme.ChargeEquilibration": {"in_box"}, "apps.dem.Simulation": {"save"},
    "apps.brownian.RPY": {"explain", "in_box", "linear_operator", "noise", "settings"},
    "distributed.FFT": {"explain", "wavenumbers"},
}  # fmt: skip
FREE["apps.brownian.DistributedRPY"] = FREE["apps.brownian.RPY"]
VALUE = {"Mesh", "Box", "fourier.Halves", "apps.mri.MRIParticlemesh"}  # these hold no memory of calls
OBJECTS = [name for name in public_calls.OBJECTS if name not in VALUE]


CHECKED_BEFORE = {  # arguments that are
    "nearest": (3, 0.2), "neighbours": (public_calls.X, 0.2), "overlaps": (), "pairs": (0.2,), "count": (0.2,),
    "stream": (0.2, VALUES, public_calls.Q),
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
    thing, free = public_calls.OBJECTS[name](), FREE.get(name, set())
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
