# SPDX-License-Identifier: BSD-3-Clause
"""PoCL on processors newer than its compiler (pocl issue 1049), and without a megabyte of declarations.

The wheel's LLVM of 2022 calls an unknown processor ``generic``. Its own front end refuses that name, so no kernel
compiles. No option changes the name; PoCL reads it from its device record at each compilation, so it is corrected
there.

Before each program the compiler parses Clang's declarations of all of OpenCL C. With the guard of that file defined
it parses none, and ``pocl.h`` declares what kernels need.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from particlemesh.backends import source
from particlemesh.backends.folders import cache, unwritable, warn

UNDECLARED = "-D_OPENCL_H_"  # the guard of Clang's declarations
_WORDS = 200  # of PoCL's device record that are searched; the name is among the first 100
_names: list[Any] = []  # kept alive: the record points to them


def _readable() -> list[tuple[int, int]]:
    regions = []
    with Path("/proc/self/maps").open() as maps:
        for line in maps:
            span, rights = line.split()[:2]
            if rights.startswith("r"):
                begin, end = (int(x, 16) for x in span.split("-"))
                regions.append((begin, end))
    return regions


def repair(cl: Any, device: Any) -> None:
    """Let PoCL compile on a processor unknown to it; does nothing if PoCL compiles already."""
    program = cl.Program(cl.Context([device]), "__kernel void probe(__global int* x) { x[0] = 1; }")
    try:
        program.build(options=[UNDECLARED], cache_dir=False)
    except cl.RuntimeError as error:
        if "unknown target CPU 'generic'" not in str(error):
            raise
    else:
        return
    with Path("/proc/cpuinfo").open() as info:
        flags = next((line for line in info if line.startswith("flags")), "")
    # x86-64-v3 is AVX2, FMA, BMI; clang takes these names for any processor.
    modern = {"avx2", "fma", "bmi2"} <= set(flags.split())
    name = ctypes.create_string_buffer(b"x86-64-v3" if modern else b"x86-64")
    regions = _readable()

    def text(address: int) -> bytes:
        inside = any(begin <= address < end - 32 for begin, end in regions)
        return ctypes.string_at(address, 32).split(b"\0")[0] if inside else b""

    words = (ctypes.c_size_t * _WORDS).from_address(device.int_ptr)
    for n in range(1, _WORDS):
        if text(words[n]) == b"generic" and text(words[n - 1]).startswith(b"x86_64"):  # after the target triple
            _names.append(name)
            words[n] = ctypes.addressof(name)
            return


def keep_somewhere() -> None:
    """Ensure, before PoCL starts, that it has a writable cache folder: without one it has no device.

    If its own is not writable, it gets a temporary folder of this process.
    """
    named = os.environ.get("POCL_CACHE_DIR")
    folder = Path(named) if named else cache("pocl", "kcache")
    reason = "no home folder" if folder is None else unwritable(folder)
    if reason is None:
        return
    warn("OpenCL kernels of PoCL", str(folder or "a cache folder"), reason, "POCL_CACHE_DIR")
    made = tempfile.mkdtemp(prefix="particlemesh-pocl-")
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    os.environ["POCL_CACHE_DIR"] = made  # PoCL reads it when its devices are first listed


def declared(cl: Any, context: Any) -> str | None:
    """Return the declarations for a program compiled with ``UNDECLARED``; None if this PoCL rejects them."""
    declarations = source.text("backends/pocl.h")
    probe = "__kernel void probe(__global uint* x) { atomic_add(x, (uint)get_local_id(0)); }"
    try:
        cl.Program(context, declarations + probe).build(options=[UNDECLARED])
    except cl.RuntimeError:
        return None
    return declarations


def rest(backend: Any) -> None:
    """Sleep until the queue of a CPU is done: a kernel may take a minute there, and waits of OpenCL ignore Ctrl-C."""
    import pyopencl as cl

    done, begin = cl.enqueue_marker(backend.queue), time.monotonic()
    backend.queue.flush()
    # A negative status is that of an error, which the call that follows raises.
    while done.command_execution_status > cl.command_execution_status.COMPLETE:
        time.sleep(min(0.02, 0.1 * (time.monotonic() - begin)))
