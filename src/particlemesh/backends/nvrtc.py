# SPDX-License-Identifier: BSD-3-Clause
"""CUDA's run-time compiler, and its binaries on disk.

CuPy always compiles with subnormal float32 numbers flushed to zero: a particle just below an open edge would
count as inside. So kernels are compiled here, with IEEE arithmetic.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from pathlib import Path
from typing import Any

from particlemesh.backends.base import CompilationError
from particlemesh.backends.folders import cache, trusted, warn
from particlemesh.backends.source import Texts

OPTIONS = ("--std=c++17",)


def compiled(code: str, file: str, compute: int, texts: Texts | None = None) -> bytes:
    """Compile a complete source for compute capability ``compute`` (90 for sm_90); needs no GPU.

    The result is a binary, or PTX where the compiler is older than the chip.
    """
    from cupy.cuda import nvrtc

    known = nvrtc.getSupportedArchs() if hasattr(nvrtc, "getSupportedArchs") else [compute]
    binary = compute in known
    target = f"sm_{compute}" if binary else f"compute_{max(a for a in known if a <= compute)}"
    program = nvrtc.createProgram(code, file, (), ())
    try:
        nvrtc.compileProgram(program, (*OPTIONS, f"--gpu-architecture={target}"))
        made = nvrtc.getCUBIN(program) if binary else nvrtc.getPTX(program)
        return made if isinstance(made, bytes) else made.encode()
    except nvrtc.NVRTCError as error:
        raise CompilationError(f"{file} for {target}", nvrtc.getProgramLog(program), code, texts) from error
    finally:
        nvrtc.destroyProgram(program)


def folder() -> Path | None:
    """Return where binaries are kept: ``$XDG_CACHE_HOME/particlemesh/cuda``; None without a home folder."""
    return cache("particlemesh", "cuda")


def module(code: str, file: str, compute: int, texts: Texts | None = None) -> Any:
    """Return the loaded module of a source, compiled unless its binary is on disk.

    A file is written under a temporary name and renamed, so processes may start at once. A file that does not
    load is compiled again.
    """
    import cupy
    from cupy.cuda import nvrtc

    key = repr((code, OPTIONS, compute, nvrtc.getVersion()))
    binaries = folder()
    path = binaries and binaries / f"{hashlib.sha256(key.encode()).hexdigest()}.cubin"
    if path and path.exists() and trusted(path, "CUDA kernels", "XDG_CACHE_HOME"):
        with contextlib.suppress(cupy.cuda.driver.CUDADriverError):
            return _loaded(path)
    binary = compiled(code, file, compute, texts)
    if path:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            _write(path, binary)
            return _loaded(path)
        except OSError as error:
            warn("CUDA kernels", str(path.parent), error.strerror or str(error), "XDG_CACHE_HOME")
    with tempfile.TemporaryDirectory() as home:
        path = Path(home) / "kernel.cubin"
        path.write_bytes(binary)
        return _loaded(path)


def _loaded(path: Path) -> Any:
    import cupy

    loaded = cupy.RawModule(path=str(path))
    loaded.compile()
    return loaded


def _write(path: Path, content: bytes) -> None:
    handle, name = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        Path(name).replace(path)
    except OSError:
        Path(name).unlink(missing_ok=True)
        raise
