# SPDX-License-Identifier: BSD-3-Clause
"""What PoCL needs: a processor that its compiler knows, a cache folder, and no megabyte of declarations.

Before each program the compiler parses Clang's declarations of all of OpenCL C. With the guard of that file defined
it parses none, and ``pocl.h`` declares what kernels need.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from particlemesh.backends import source
from particlemesh.backends.folders import cache, unwritable, warn

UNDECLARED = "-D_OPENCL_H_"  # the guard of Clang's declarations


def knows_processor(cl: Any, device: Any) -> bool:
    """Return whether a PoCL compiles for the processor it runs on.

    LLVM calls a processor that is newer than itself ``generic``, a name that its own front end refuses (pocl issue
    1049).
    """
    program = cl.Program(cl.Context([device]), "__kernel void probe(__global int* x) { x[0] = 1; }")
    try:
        program.build(options=[UNDECLARED], cache_dir=False)
    except cl.RuntimeError as error:
        if "unknown target CPU 'generic'" not in str(error):
            raise
        return False
    return True


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


def wait_interruptibly(backend: Any) -> None:
    """Sleep until the queue of a CPU is done: a kernel may take a minute there, and waits of OpenCL ignore Ctrl-C."""
    import pyopencl as cl

    queue, begin = backend.queue, time.monotonic()
    done = cl.enqueue_marker(queue)
    queue.flush()
    # A negative status is that of an error, which the call that follows raises.
    while done.command_execution_status > cl.command_execution_status.COMPLETE:
        time.sleep(min(0.02, 0.1 * (time.monotonic() - begin)))
