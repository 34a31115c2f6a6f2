# SPDX-License-Identifier: BSD-3-Clause
"""A second process finds everything the first has compiled for the CPU, whatever the window."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src"
USE = """
import numpy as np, particlemesh as pm
from particlemesh.window import kaiser_bessel
x = np.random.default_rng(1).random((100, 3))
for window in (pm.bspline(4), kaiser_bessel(4)):
    plan = pm.Plan(pm.Mesh((8, 8, 8), (1.0, 1.0, 1.0)), window)
    plan.set_positions(x)
    plan.interpolate(plan.spread(np.ones(100)))
"""
COUNT = """
import json, sys
modules = [m for name, m in sys.modules.items() if name.startswith("particlemesh")]
functions = {id(f): f for m in modules for f in vars(m).values() if hasattr(f, "stats") and hasattr(f, "py_func")}
counts = [(sum(f.stats.cache_misses.values()), sum(f.stats.cache_hits.values())) for f in functions.values()]
print(json.dumps([sum(c[0] for c in counts), sum(c[1] for c in counts)]))
"""


@pytest.mark.backends("cpu")
def test_a_second_process_compiles_nothing(backend):
    path = os.pathsep.join([str(SOURCE), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path}  # the run's own cache: what other tests compiled counts, too
    exec(USE, {})
    second = subprocess.run(
        [sys.executable, "-c", USE + COUNT], env=environment, check=True, capture_output=True, text=True
    )
    misses, hits = json.loads(second.stdout)
    assert misses == 0 < hits
