# SPDX-License-Identifier: BSD-3-Clause
"""Calls keep no memory: compiled functions give back every array that they take.

``pytest tests/core/test_memory_of_calls.py --thorough -s`` makes 10^5 calls of each verb and application on the CPU
and prints the growth of the process's memory.
"""

import gc
import itertools
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from numba.core.runtime import _nrt_python, rtsys

import particlemesh as pm
from pair_sums import VALUES
from particlemesh import fourier
from particlemesh.apps import brownian, dem, nufft, pme
from particlemesh.grid.builders import METHODS as BUILDERS
from particlemesh.interpolate import METHODS as INTERPOLATE
from particlemesh.kernels import cpu
from particlemesh.spread import METHODS as SPREAD

RNG = np.random.default_rng(1)
N, L = 40, 4.0
X = RNG.random((N, 3)) * L
Q = RNG.normal(size=N)
V = RNG.normal(size=(N, 3))
BOX = pm.Box((L,) * 3)
MESH = pm.Mesh((8,) * 3, BOX)
FIELD = RNG.normal(size=(8,) * 3)
LATTICE = np.stack(np.meshgrid(*[np.arange(4.0) + 0.5] * 3), -1).reshape(-1, 3)
ROWS = {"spread": SPREAD, "interpolate": INTERPOLATE}
METHODS = [(verb, m.name) for verb, methods in ROWS.items() for m in methods if "cpu" in m.backends]


@cpu.compiled(cached=False)
def halve(x, counter):
    for begin, end in cpu.ranges(counter, x.size, 1000):
        x[begin:end] /= 2


def plan(threads=1, **options):
    return pm.Plan(MESH, "bspline4", threads=threads, **options).set_positions(X)


def grid(**options):
    return pm.UniformGrid(BOX, cell_size=1.0, **options)


def method(verb, name):
    return plan(2, **{"method" if verb == "spread" else "interpolation": name})


def sized(g):
    return g.build(X, radii=np.full(N, 0.4))


def simulation(contact):
    return dem.Simulation(LATTICE, 0.4, V[:1] + np.zeros((64, 3)), density=1.0, contact=contact, box=(4.0,) * 3)


def motion(mobility):
    wca = brownian.WCA((L,) * 3, 1.0, 0.1)
    return brownian.BrownianDynamics(X, mobility, [wca], temperature=1.0, time_step=1e-4)


def transform(kind):
    points = [np.ascontiguousarray(a) for a in X.T] * (1 + (kind == 3))
    values = RNG.normal(size=(6, 6, 6) if kind == 2 else N) + 0j
    return nufft.Plan(kind, (6, 6, 6) if kind < 3 else 3, eps=1e-6, nthreads=1), points, values


def transformed(made):
    made[0].setpts(*made[1])
    return made[0].execute(made[2])


PLAN = {
    "set_positions": lambda p: p.set_positions(X),
    "spread_gradient": lambda p: p.spread_gradient(V),
    "spread_hessian": lambda p: p.spread_hessian(np.ones((N, 3, 3))),
    "gradient": lambda p: p.gradient(FIELD),
    "hessian": lambda p: p.hessian(FIELD),
    "value_and_gradient": lambda p: p.value_and_gradient(FIELD),
    "value_gradient_hessian": lambda p: p.value_gradient_hessian(FIELD),
    "spread_integers": lambda p: p.spread_integers(Q, p.bounds(Q)),
    "lost": lambda p: p.lost(Q),
    "moves": lambda p: p.set_positions(X).interpolate(p.spread(Q)),
}
GRID = {
    "build": lambda g: g.build(X),
    "pairs": lambda g: g.build(X).pairs(1.0, quantities="ijSdD"),
    "count": lambda g: g.count(1.0),
    "neighbours": lambda g: g.neighbours(X[:5], 1.0),
    "nearest": lambda g: g.nearest(3, 1.0),
    "stream": lambda g: g.stream(1.0, VALUES, Q),
}
APPLIED = {"spread": lambda p: p.spread(Q), "interpolate": lambda p: p.interpolate(FIELD)}
CALLS = {  # what is made once, and its call
    "run": (lambda: np.ones(10), lambda x: cpu.run(halve, 2, x)),
    **{f"plan.{name}": (plan, call) for name, call in PLAN.items()},
    **{f"{verb} by {name}": (partial(method, verb, name), APPLIED[verb]) for verb, name in METHODS},
    **{f"grid.{name}": (lambda: grid().build(X), call) for name, call in GRID.items()},
    "grid.overlaps": (grid, lambda g: sized(g).overlaps()),
    **{
        f"grid by {m.name}": (partial(grid, method=m.name), sized if "tight" in m.name else GRID["build"])
        for m in BUILDERS
    },
    "neighbour_list": (lambda: BOX, lambda box: pm.neighbour_list("ijSd", X, box, 1.0)),
    "spread": (lambda: MESH, lambda mesh: pm.spread(X, Q, mesh)),
    "Solver": (lambda: fourier.Solver(MESH), lambda s: s.set_positions(X).potential_and_gradient(Q)),
    "VectorSolver": (lambda: fourier.VectorSolver(MESH), lambda s: s.set_positions(X).field(V.T)),
    "power_spectrum": (lambda: MESH, lambda mesh: fourier.power_spectrum(X, np.abs(Q), mesh)),
    **{f"NUFFT {kind}": (partial(transform, kind), transformed) for kind in (1, 2, 3)},
    "PME": (lambda: pme.PME((L,) * 3, 1e-3), lambda p: p(X, Q)),
    "Dispersion": (lambda: pme.Dispersion((L,) * 3, 1e-3), lambda p: p(X, np.abs(Q))),
    "Brownian, drag": (lambda: motion(brownian.Drag(1.0)), lambda m: m.run(1)),
    "Brownian, RPY": (lambda: motion(brownian.RPY((L,) * 3, 0.1, accuracy=1e-2)), lambda m: m.run(1)),
    "DEM, Hertz": (lambda: simulation(dem.Hertz(1e3)), lambda s: s.run(1)),
    "DEM, springs": (lambda: simulation(dem.LinearSpring(1e3)), lambda s: s.run(1)),
}  # fmt: skip


def test_compiled_loops_give_back_their_counter():
    x, counter = np.ones(10), np.zeros(2, np.int64)
    for _ in range(11):
        counter[:] = 0
        halve(x, counter)
    gc.collect()  # Numba's compiler leaves cycles that hold the first arguments
    assert sys.getrefcount(counter) == 2


@pytest.fixture
def counted():
    """Yield a function that returns how many arrays compiled functions hold."""
    _nrt_python.memsys_enable_stats()

    def live():
        gc.collect()
        stats = rtsys.get_allocation_stats()
        return stats.mi_alloc - stats.mi_free

    yield live
    _nrt_python.memsys_disable_stats()


@pytest.mark.turns(8)
@pytest.mark.parametrize("name", CALLS)
def test_calls_keep_no_array(name, counted):
    make, call = CALLS[name]
    made = make()
    for _ in range(3):  # what is kept is kept now
        call(made)
    before = counted()
    for _ in range(5):
        call(made)
    assert counted() == before


def resident():
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4


def test_memory_is_flat(request):
    if not request.config.getoption("--thorough") or not sys.platform.startswith("linux"):
        pytest.skip("10^5 calls of each verb, on Linux: with --thorough")
    for name, (make, call) in CALLS.items():
        made, calls = make(), 100_000
        for _ in range(calls // 20):
            call(made)
        before = resident()
        for _ in itertools.repeat(None, calls):
            call(made)
        grown = resident() - before
        print(f"{name:32s} {calls} calls {grown:8d} KiB {1024 * grown / calls:8.2f} bytes a call")  # noqa: T201 - the table
        assert grown < 0.02 * calls, name  # KiB: an array lost is 0.1 and more
