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
import public_calls
from particlemesh.choosing.choice import METHODS
from particlemesh.grid.builders import METHODS as BUILDERS
from particlemesh.kernels import cpu
from public_calls import BOX, FIELD, MESH, REACH, Q, X


@cpu.compiled(cached=False)
def halve(x, counter):
    for begin, end in cpu.ranges(counter, x.size, 1000):
        x[begin:end] /= 2


def by_method(verb, method):
    option, array = ("method", Q) if verb == "spread" else ("interpolation", FIELD)
    plan = pm.Plan(MESH, "bspline4", threads=2, **{option: method.name}).set_positions(X)
    return partial(getattr(plan, verb), array)


def by_builder(builder):
    return partial(pm.UniformGrid(BOX, shape=(4,) * 3, method=builder.name).build, X, REACH)


CALLS = {  # functions that return a call
    "run": lambda: partial(cpu.run, halve, 2, np.ones(10)),
    **{
        name: partial(public_calls.bound, name, None)
        for name in public_calls.CALLS
        if not name.startswith(("apps.files.", "apps.mri."))
    },
    **{
        f"{verb} by {m.name}": partial(by_method, verb, m)
        for verb, methods in METHODS.items()
        for m in methods
        if "cpu" in m.backends
    },
    **{f"grid by {m.name}": partial(by_builder, m) for m in BUILDERS},
}


def test_compiled_loops_give_back_their_counter():
    x, counter = np.ones(10), np.zeros(2, np.int64)
    for _ in range(11):
        counter[:] = 0
        halve(x, counter)
    gc.collect()  # Numba's compiler leaves cycles that hold the first arguments
    assert sys.getrefcount(counter) == 2


@pytest.fixture(scope="module", autouse=True)
def _few_to_collect():
    """What earlier tests have compiled is no garbage: each collection would look through all of it."""
    gc.collect()
    gc.freeze()


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
    call = CALLS[name]()
    for _ in range(3):  # what is kept is kept now
        call()
    before = counted()
    for _ in range(5):
        call()
    assert counted() == before


def resident():
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4


def test_memory_is_flat(request):
    if not request.config.getoption("--thorough") or not sys.platform.startswith("linux"):
        pytest.skip("10^5 calls of each verb, on Linux: with --thorough")
    for name, make in CALLS.items():
        call, calls = make(), 100_000
        for _ in range(calls // 20):
            call()
        before = resident()
        for _ in itertools.repeat(None, calls):
            call()
        grown = resident() - before
        print(f"{name:32s} {calls} calls {grown:8d} KiB {1024 * grown / calls:8.2f} bytes a call")  # noqa: T201 - the table
        assert grown < 0.02 * calls, name  # KiB: an array lost is 0.1 and more
