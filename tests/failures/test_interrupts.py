# SPDX-License-Identifier: BSD-3-Clause
"""Ctrl-C during long work on the CPU: searches, spreads and interpolations end soon, and so do their threads."""

import os
import subprocess
import sys

import pytest

SEARCH = """
import numpy as np, particlemesh as pm
x = np.random.default_rng(1).random((60_000, 3))
grid = pm.UniformGrid((1.0, 1.0, 1.0), shape=(5, 5, 5), threads={threads}).build(x)
grid.count(0.01), grid.pairs(0.01), grid.nearest(1, 0.01)
"""
SEARCHED = "assert len(grid.pairs(0.01).start) == 60_001"
PLAN = """
import numpy as np, particlemesh as pm
few, many = np.random.default_rng(1).random((9, 3)), {count}
plan = pm.Plan(pm.Mesh((64, 64, 64), (1.0,) * 3), "bspline8", threads={threads}, method="colouring",
               interpolation="tiles")
field = plan.set_positions(few).spread(np.ones(9))
plan.interpolate(field), plan.set_positions(np.random.default_rng(2).random((many, 3)))
values = np.ones((4, many))
fields, targets = np.empty((4, 64, 64, 64)), np.empty((4, many))
"""
PLANNED = "assert abs(plan.set_positions(few).spread(np.ones(9)).sum() - 9) < 1e-9"
CALLS = {
    "count": (SEARCH, "grid.count(1.9)", SEARCHED),
    "nearest": (SEARCH, "grid.nearest(128, 9.0)", SEARCHED),
    "neighbour_list": (SEARCH, "pm.neighbour_list('i', x, grid.box, 2)", SEARCHED),
    "spread": (PLAN, "plan.spread(values, out=fields)", PLANNED),
    "interpolate": (PLAN, "plan.interpolate(fields, out=targets)", PLANNED),
}
# A thread presses Ctrl-C. What the process computes from then on is limited, not the time, which depends on the load.
CHILD = """
import os, signal, threading, time
{before}

def press():
    global pressed
    time.sleep(0.7)
    pressed = time.process_time()
    os.kill(os.getpid(), signal.SIGINT)

try:
    threading.Thread(target=press).start()
    while True:  # a fast machine may end the first call before the signal
        {call}
except KeyboardInterrupt:
    now, last = time.process_time(), pressed - 1
    while now - last > 0.1:  # until no thread goes on
        assert now - pressed < 2.5, "it goes on"
        time.sleep(0.5)
        now, last = time.process_time(), now
{after}
"""


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("call", CALLS)
def test_ctrl_c_ends_long_work(call, threads):
    before, call, after = (text.replace("{threads}", str(threads)) for text in CALLS[call])
    code = CHILD.format(before=before.replace("{count}", "4_000_000"), call=call, after=after)
    ran = subprocess.run([sys.executable, "-c", code], timeout=300, check=False, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
