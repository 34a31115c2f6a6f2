# SPDX-License-Identifier: BSD-3-Clause
"""A second process finds everything the first has compiled for the CPU, whatever the window."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from particlemesh.grid.cpu.search import _first_from, _places

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
SUMS = """
import numpy as np, particlemesh as pm
def term(r2, d, i, j, a, b, p, sum):
    sum[0] += NUMBER + r2
grid = pm.UniformGrid(1.0, shape=4).build(np.array([0.05, 0.5, 0.95]))
assert grid.stream(0.2, pm.PairFunction(None, term, 1, 1), np.ones(3)).ravel()[1] == 0
"""
COUNT = """
import json, sys
modules = [m for name, m in sys.modules.items() if name.startswith("particlemesh")]
functions = {id(f): f for m in modules for f in vars(m).values() if hasattr(f, "stats") and hasattr(f, "py_func")}
functions |= {id(f.part): f.part for f in functions.values() if hasattr(f, "part")}
counts = [(sum(f.stats.cache_misses.values()), sum(f.stats.cache_hits.values())) for f in functions.values()]
print(json.dumps([sum(c[0] for c in counts), sum(c[1] for c in counts)]))
"""


@pytest.mark.backends("cpu")
@pytest.mark.parametrize(
    ("first", "second"),
    [(USE, USE), (SUMS.replace("NUMBER", "1.5"), SUMS.replace("NUMBER", "2.5"))],
    ids=["of the library", "what a user's function calls"],
)
def test_a_second_process_compiles_nothing(backend, first, second):
    path = os.pathsep.join([str(SOURCE), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path}  # the run's own cache: what other tests compiled counts, too
    exec(first, {})
    again = subprocess.run(
        [sys.executable, "-c", second + COUNT], env=environment, check=True, capture_output=True, text=True
    )
    misses, hits = json.loads(again.stdout)
    assert misses == 0 < hits


@pytest.mark.backends("cpu")
def test_what_compiled_code_calls_has_machine_code_once_python_calls_it(backend):
    occupied, known = np.array([2, 3, 5, 8, 13]), set(_first_from.overloads)
    places = [_places(np.arange(10, 16), occupied, number, 2) for number in range(12)]
    assert set(_first_from.overloads) == known  # its part is not there either, if `_places` came from the disk
    firsts = [_first_from(occupied, number, 0) for number in range(12)]
    assert firsts == np.searchsorted(occupied, range(12)).tolist()
    assert places == [(10 + n, 10 + np.searchsorted(occupied, k + 2)) for k, n in enumerate(firsts)]
