# SPDX-License-Identifier: BSD-3-Clause
"""The first call of a process on the CPU: seconds from the import on, and functions compiled.

Each window runs in two processes, one after the other; the second finds what the first compiled on disk.
Writes ``results/first-call-DEVICE.csv``.

    python benchmarks/first_call.py
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile

from cpu import device_name
from measure import write

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
missed = sum(sum(f.stats.cache_misses.values()) for f in functions.values())
found = sum(sum(f.stats.cache_hits.values()) for f in functions.values())
print(json.dumps([seconds, missed, found]))
"""


def main() -> None:
    """Run every window twice."""
    rows = []
    for window in ("bspline6", "kaiser_bessel6"):
        with tempfile.TemporaryDirectory() as home:  # empty, so that the first process compiles everything
            environment = {**os.environ, "NUMBA_CACHE_DIR": home}
            for process in (1, 2):
                command = [sys.executable, "-c", CHILD, window]
                run = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
                seconds, missed, found = json.loads(run.stdout)
                rows.append(
                    dict(window=window, process=process, seconds=round(seconds, 3), compiled=missed, from_disk=found)
                )
                print(*(f"{k}={v}" for k, v in rows[-1].items()))
    print(write("first-call", device_name(), rows))


if __name__ == "__main__":
    main()
