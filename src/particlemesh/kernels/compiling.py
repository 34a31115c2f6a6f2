# SPDX-License-Identifier: BSD-3-Clause
"""Compiling kernels of programs beside the library."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np

from particlemesh import checks
from particlemesh.backends.base import Backend, Kernel
from particlemesh.backends.source import Code, code_of, read

_PACKAGE = Path(__file__).parents[1]
_IS_DOUBLE = {np.dtype(np.float32): 0, np.dtype(np.float64): 1}


def compile_kernel(backend: Backend, source: str | Path, name: str, dtype: Any, **defines: int) -> Kernel:
    """Compile a kernel in the dialect that CUDA and OpenCL share.

    Compiled programs are kept, in the process and on disk. Keep one kernel for each object of yours: it holds
    the arguments of its last launch.

    Parameters
    ----------
    backend : Backend
        A GPU, or OpenCL on the CPU.
    source : str or Path
        The C code, or the file that holds it. A file may include files beside it and files of the library by their
        paths in it: ``#include "particles/coordinates.h"``. Files of yours are read at each call: edited ones, included
        ones among them, are compiled again.
    name : str
        Which of its kernels.
    dtype : {"float32", "float64"}
        What ``real`` is.
    **defines : int
        Macros that the code uses: each choice of them is compiled once.

    Returns
    -------
    Kernel
        ``kernel(items, *arguments)`` launches at least so many work-items, and does not wait. Arguments are native
        arrays, integers (``i64``) and :class:`Record`. The first launch compares them with the kernel's parameters.

    Raises
    ------
    CompilationError
        With the first error, and the line of the source.
    FileNotFoundError
        If a file, or one that it includes, is not there.
    ValueError
        If there is no kernel of this name, or includes without guards go in a circle.
    RuntimeError
        If the backend is the CPU, or the device has no float64.

    Examples
    --------
    >>> code = '''
    ... KERNEL twice(GLOBAL real* x, const i64 count)
    ... {
    ...     for (i64 i = GROUP_ID * GROUP_SIZE + LOCAL_ID; i < count; i += GROUP_COUNT * GROUP_SIZE) x[i] *= FACTOR;
    ... }
    ... '''
    >>> from particlemesh.kernels import backend
    >>> device = backend("opencl")
    >>> x = device.upload(np.arange(3.0))
    >>> twice = compile_kernel(device, code, "twice", x.dtype, FACTOR=2)
    >>> twice(x.size, x, x.size)
    >>> device.download(x)
    array([0., 2., 4.])
    """
    is_double = _IS_DOUBLE.get(dtype)
    if is_double is None:
        is_double = _IS_DOUBLE[checks.real_type(dtype)]
    file: str | Code | None
    if isinstance(source, str):
        if source.endswith((".c", ".h", ".cl")) and "\n" not in source:
            raise TypeError(f"source is the string {source!r}, which names a file; give Path({source!r}).")
        file = code_of(source)
    else:
        file = _of_package(source) or read(source)  # again, because it may have been edited
    return backend.kernel(file, name, {"REAL_IS_DOUBLE": is_double, **defines})


@functools.cache
def _of_package(path: Path) -> str | None:
    """Return the path of a file within this package, or None."""
    return path.relative_to(_PACKAGE).as_posix() if path.is_relative_to(_PACKAGE) else None
