# SPDX-License-Identifier: BSD-3-Clause
"""Two threads on one object of a program: everything that holds memory of its own refuses the second thread."""

import inspect
import threading

import numpy as np
import pytest

import particlemesh as pm
import particlemesh.distributed as pmd
from particlemesh import fourier
from particlemesh.apps import brownian, dem, nufft, pme

X = np.random.default_rng(1).random((20, 3))
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
