# SPDX-License-Identifier: BSD-3-Clause
"""The first call of a process on the CPU: seconds from the import on, and functions compiled.

Each window runs in two processes, one after the other; the second finds the functions of the first on disk. Writes
``results/first-call-DEVICE.csv``.

    python benchmarks/core/first_call.py [--small] [--out DIR]
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # the folder of benchmarks, when this file runs

from harness import runs
from harness.place import Place

CHILD = """
import time
begin = time.perf_counter()
import json, sys
import numpy as np
import particlemesh as pm
from particlemesh.window import kaiser_bessel

window = kaiser_bessel(6) if sys.argv[1] == "kaiser_bessel6" else sys.argv[1]
x = np.random.default_rng(1).random((1000, 3))
plan = pm.Plan(pm.Mesh((32, 32, 32), (1.0, 1.0, 1.0)), window)
plan.set_positions(x)
plan.value_and_gradient(plan.spread(np.ones(1000)))
seconds = time.perf_counter() - begin
modules = [m for name, m in sys.modules.items() if name.startswith("particlemesh")]
functions = {id(f): f for m in modules for f in vars(m).values() if hasattr(f, "stats") and hasattr(f, "py_func")}
compiled = sum(sum(f.stats.cache_misses.values()) for f in functions.values())
loaded = sum(sum(f.stats.cache_hits.values()) for f in functions.values())
print(json.dumps([seconds, compiled, loaded]))
"""


def rows(window: str) -> Iterator[dict[str, Any]]:
    """Yield the rows of two processes."""
    with tempfile.TemporaryDirectory() as empty:  # so that the first process compiles everything
        environment = {**os.environ, "NUMBA_CACHE_DIR": empty}
        for process in (1, 2):
            command = [sys.executable, "-c", CHILD, window]
            child = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
            seconds, compiled, loaded = json.loads(child.stdout)
            yield dict(window=window, process=process, seconds=round(seconds, 3), compiled=compiled, from_disk=loaded)


def main() -> None:
    """Run every window twice."""
    asked = runs.parser(__doc__, backend=None).parse_args()
    with runs.Run(Place("cpu"), asked.out) as run:
        windows = ("cic",) if asked.small else ("bspline6", "kaiser_bessel6")
        run.write("first-call", run.measure("windows", windows, rows))
    run.finish()


if __name__ == "__main__":
    main()
