# SPDX-License-Identifier: BSD-3-Clause
"""Ctrl-C during long work on the CPU: searches, spreads and interpolations end soon, and so do their threads."""

import os
import subprocess
import sys

import pytest

from pocl_processor import known_to_children

SEARCH = """
import numpy as np, particlemesh as pm
x = np.random.default_rng(1).random((60_000, 3))
grid = pm.UniformGrid((1.0, 1.0, 1.0), shape=(5, 5, 5), threads={threads}).build(x)
grid.count(0.01), grid.pairs(0.01), grid.nearest(1, 0.01)
"""
SYSTEMS = (
    SEARCH
    + """
system = np.arange(60_000) // 40_000
pm.neighbour_list('i', x, grid.box, 0.01, system=system)
"""
)
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
    "systems": (SYSTEMS, "pm.neighbour_list('i', x, grid.box, 2, system=system)", SEARCHED),
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


@pytest.mark.turns(3)
@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("threads", [1, 2])
def test_ctrl_c_ends_long_work(call, threads):
    before, call, after = (text.replace("{threads}", str(threads)) for text in CALLS[call])
    code = CHILD.format(before=before.replace("{count}", "4_000_000"), call=call, after=after)
    ran = subprocess.run([sys.executable, "-c", code], timeout=300, check=False, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr


# A thread presses Ctrl-C when a kernel has run for a while. Whether it still runs when the error arrives says whether
# the kernel was waited for, at any load. A fast machine gets more to do.
DEVICE = """
import _thread, threading, time
import numpy as np, pyopencl as cl, particlemesh as pm
few, many = np.random.default_rng(1).random((9, 3)), np.random.default_rng(2).random((4_000_000, 3))
plan = pm.Plan(pm.Mesh((64, 64, 64), (1.0,) * 3), "bspline4", backend="opencl", method="particle",
               interpolation="particle")
plan.set_positions(few).spread(np.ones((8, 9)))
queue = plan.backend.queue

def busy(seconds):
    done, begin = cl.enqueue_marker(queue), time.monotonic()
    queue.flush()
    while done.command_execution_status != cl.command_execution_status.COMPLETE:
        if time.monotonic() - begin >= seconds:
            return True
        time.sleep(0.01)
    return False

def press():
    while not busy(0.2):
        time.sleep(0.01)
    _thread.interrupt_main()

try:
    threading.Thread(target=press, daemon=True).start()
    for count in (40_000, 400_000, 4_000_000):
        plan.set_positions(many[:count]).spread(np.ones((8, count)))
except KeyboardInterrupt:
    assert busy(0), "the kernel was waited for"
else:
    raise AssertionError("no KeyboardInterrupt")
assert abs(plan.set_positions(few).spread(np.ones(9)).sum() - 9) < 1e-9
"""


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_ctrl_c_does_not_wait_for_a_kernel_of_a_cpu():
    known_to_children()
    pytest.importorskip("pyopencl")
    from particlemesh.backends import opencl

    if opencl.available() or opencl.current()._device.type & 4:  # a GPU
        pytest.skip("no OpenCL on a CPU")
    ran = subprocess.run([sys.executable, "-c", DEVICE], timeout=300, check=False, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
