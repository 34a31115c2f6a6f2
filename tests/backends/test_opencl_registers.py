# SPDX-License-Identifier: BSD-3-Clause
"""Through OpenCL, as many groups share a multiprocessor of NVIDIA's as kernels ask for."""

import re
import time

import numpy as np
import pytest

import particlemesh as pm
from particlemesh import backends
from particlemesh.backends import opencl

if opencl.available() is not None:
    pytestmark = pytest.mark.skip(reason=f"no OpenCL: {opencl.available()}")
else:
    pytestmark = pytest.mark.opencl


@pytest.mark.parametrize(("groups", "registers"), [(1, 255), (3, 168), (4, 128), (5, 96)])
def test_groups_that_share_a_multiprocessor_divide_its_registers(groups, registers):
    assert opencl.bound_of(128 * groups) == f"-cl-nv-maxrregcount={registers}"
    assert groups * 128 * registers <= opencl.REGISTERS


@pytest.mark.parametrize("groups", [0, 4])
def test_who_asks_for_groups_gets_a_bound_and_requires_no_size(groups, monkeypatch):
    import pyopencl as cl

    there, real, asked = backends.current("opencl"), cl.Program, []

    class Program:  # of any OpenCL: the option is not given to its compiler
        def __init__(self, context, code):
            self.program = real(context, code)

        def build(self, options):
            asked.extend(option for option in options if "maxrregcount" in option)
            return self.program.build([option for option in options if "maxrregcount" not in option])

    library = opencl.OpenClBackend(there.context, there.queue.device)
    monkeypatch.setattr(library, "_bounds", 1)
    monkeypatch.setattr(cl, "Program", Program)
    bounded = {"RESIDENT_GROUPS": groups} if groups else {}
    library.kernel("sorting/scan.c", "scan_counts", {"REAL_IS_DOUBLE": 0, "COUNT_IS_64": 1, **bounded})
    [program] = library._programs.values()
    required = {
        kernel.get_work_group_info(cl.kernel_work_group_info.COMPILE_WORK_GROUP_SIZE, library.queue.device)[0]
        for kernel in program.all_kernels()
    }
    assert required == {0 if groups else library.group_size}
    assert asked == ([opencl.bound_of(groups * library.group_size)] if groups else [])


def test_bounded_kernels_leave_room_for_their_groups(monkeypatch):
    import pyopencl as cl

    if not backends.current("opencl").facts()["BOUNDS_REGISTERS"]:
        pytest.skip("the compiler of this OpenCL takes no bound on registers")
    # Which tells of registers, unless the driver has compiled the same before: it keeps programs, not what it said.
    monkeypatch.setattr(opencl, "OPTIONS", [*opencl.OPTIONS, "-cl-nv-verbose", f"-DRUN={time.time_ns()}"])
    here = backends.current("opencl")
    library = opencl.OpenClBackend(here.context, here.queue.device)
    positions, mesh = np.random.default_rng(1).random((2000, 3)), pm.Mesh((24, 24, 24), (1.0, 1.0, 1.0))
    monkeypatch.setattr(opencl, "current", lambda: library)
    for dtype in ("complex64", "complex128"):
        real = np.dtype(dtype).char.lower()
        with pm.Plan(mesh, "bspline6", method="walk", dtype=real, backend="opencl") as plan:
            plan.set_positions(positions.astype(real))
            plan.spread(np.ones(2000, dtype))
    shared = []
    for (_, facts, _), program in library._programs.items():
        if groups := dict(facts).get("RESIDENT_GROUPS"):
            log = program.get_build_info(library.queue.device, cl.program_build_info.LOG)
            used = max(int(n) for n in re.findall(r"Used (\d+) registers", log))
            assert groups * library.group_size * used <= opencl.REGISTERS
            shared.append(groups)
    assert len(shared) >= 2 and max(shared) > 1
