# SPDX-License-Identifier: BSD-3-Clause
"""A number of threads beyond the cores is capped: 4096 of them once stayed alive, and each had memory of its own."""

import subprocess
import sys

import numpy as np
import pytest

import particlemesh as pm
from particlemesh.backends import cpu

ALIVE = """
import threading, numpy as np, particlemesh as pm
from particlemesh.backends import cpu
x = np.random.default_rng(1).random((50_000, 3))
mesh = pm.Mesh((16, 16, 16), (1.0, 1.0, 1.0))
for n, method in ((1, "auto"), (3, "single_mesh"), (4096, "colouring"), (4096, "single_mesh")):
    with pm.Plan(mesh, "cic", threads=n, method=method) as plan:
        plan.set_positions(x)
        plan.interpolate(plan.spread(np.ones(len(x))))
    with pm.UniformGrid((1.0, 1.0, 1.0), shape=(8, 8, 8), threads=n) as grid:
        grid.build(x)
        grid.pairs(0.01)
cpu.run(lambda counter: None, 4096)
print(threading.active_count(), cpu.available_threads())
"""


def test_no_more_threads_stay_alive_than_cores_and_one_that_waits():
    done = subprocess.run([sys.executable, "-c", ALIVE], capture_output=True, text=True, check=True)
    alive, cores = map(int, done.stdout.split())
    assert alive <= cores + 1  # during long work on all cores the main thread waits for signals


@pytest.mark.parametrize("threads", [1, 2, 3, 4096])
def test_plans_and_grids_use_at_most_the_cores(monkeypatch, threads):
    monkeypatch.setattr(cpu, "available_threads", lambda: 2)
    plan = pm.Plan(pm.Mesh((8, 8, 8), (1.0, 1.0, 1.0)), "cic", threads=threads)
    grid = pm.UniformGrid((1.0, 1.0, 1.0), shape=(4, 4, 4), threads=threads)
    assert plan.threads == grid.threads == min(threads, 2)
    x = np.random.default_rng(1).random((100, 3))
    plan.set_positions(x)
    np.testing.assert_allclose(plan.spread(np.ones(100)).sum(), 100)


@pytest.mark.parametrize("threads", [0, -1, 4097, 2.0, "2"])
def test_what_is_no_number_of_threads_is_refused(threads):
    for make in (
        lambda: pm.Plan(pm.Mesh((8,), (1.0,)), "cic", threads=threads),
        lambda: pm.UniformGrid((1.0,), shape=(4,), threads=threads),
    ):
        with pytest.raises((ValueError, TypeError), match="threads"):
            make()
