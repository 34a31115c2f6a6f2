# SPDX-License-Identifier: BSD-3-Clause
"""CUDA through CuPy: kernels by NVRTC, launched on the caller's current stream."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import struct
from typing import Any

import numpy as np

from particlemesh.backends import source
from particlemesh.backends.base import CompilationError

OPTIONS = ("--std=c++17",)


@functools.cache
def _cupy() -> Any:
    import cupy

    return cupy


class CudaKernel:
    """A compiled kernel. Arguments are packed in one go: a launch costs a few microseconds of host time."""

    def __init__(self, raw: Any, group_size: int, most_groups: int) -> None:
        cupy = _cupy()
        self._raw = raw  # keeps the module loaded
        self._function = raw.kernel.ptr
        self._group_size = group_size
        self._most_groups = most_groups
        self._launch = cupy.cuda.driver.launchKernel
        self._stream = cupy.cuda.get_current_stream
        self._packer: struct.Struct | None = None
        self._local_bytes = 0

    def _layout(self, arguments: tuple[Any, ...]) -> struct.Struct:
        # Natural alignment, as the compiler lays out the parameters.
        layout, offset = "=", 0
        for argument in arguments:
            size, alignment = (len(argument), argument.alignment) if isinstance(argument, bytes) else (8, 8)
            pad = -offset % alignment
            layout += f"{pad}x" if pad else ""
            layout += f"{size}s" if isinstance(argument, bytes) else "q"
            offset += pad + size
        self._buffer = ctypes.create_string_buffer(offset)
        self._size = ctypes.c_size_t(offset)
        # CU_LAUNCH_PARAM_BUFFER_POINTER, CU_LAUNCH_PARAM_BUFFER_SIZE, end
        self._extra = (ctypes.c_void_p * 5)(
            1, ctypes.addressof(self._buffer), 2, ctypes.addressof(self._size), 0
        )
        self._extra_pointer = ctypes.addressof(self._extra)
        return struct.Struct(layout)

    def __call__(self, items: int, *arguments: Any, local_bytes: int = 0) -> None:
        plain = [a if isinstance(a, (int, bytes)) else a.data.ptr for a in arguments]
        if self._packer is None:
            self._packer = self._layout(arguments)
        if local_bytes > 48 * 1024 and local_bytes > self._local_bytes:
            self._raw.max_dynamic_shared_size_bytes = local_bytes
            self._local_bytes = local_bytes
        self._packer.pack_into(self._buffer, 0, *plain)
        groups = min(-(-items // self._group_size), self._most_groups)
        self._launch(
            self._function, groups, 1, 1, self._group_size, 1, 1, local_bytes,
            self._stream().ptr, 0, self._extra_pointer,
        )  # fmt: skip


class CudaBackend:
    """One CUDA device."""

    name = "cuda"
    group_size = 128

    def __init__(self, device: int) -> None:
        cupy = _cupy()
        self.ordinal = device
        with cupy.cuda.Device(device):
            properties = cupy.cuda.runtime.getDeviceProperties(device)
        self.device = properties["name"].decode()
        self.compute = properties["major"] * 10 + properties["minor"]
        self.units = properties["multiProcessorCount"]
        self._programs: dict[Any, Any] = {}

    def facts(self) -> dict[str, int]:
        return {"HAS_FLOAT_ATOMIC": 1, "HAS_VECTOR_ATOMIC": int(self.compute >= 90), "HAS_FP64": 1, "HAS_WARP": 1}

    def scope(self, *arrays: Any) -> contextlib.AbstractContextManager[Any]:
        cupy = _cupy()
        if cupy.cuda.runtime.getDevice() == self.ordinal:
            return contextlib.nullcontext()
        return cupy.cuda.Device(self.ordinal)

    def follow(self, token: Any) -> Any:
        # A plan's memory may still be in use on the stream of the call before.
        stream = _cupy().cuda.get_current_stream()
        if token is not None and token.ptr != stream.ptr:
            stream.wait_event(token.record())
        return stream

    def mark(self, *arrays: Any) -> None:
        """Streams keep the order; CuPy's arrays keep no events."""

    def kernel(self, file: str, name: str, defines: dict[str, Any]) -> CudaKernel:
        key = (file, tuple(defines.items()))
        module = self._programs.get(key)
        if module is None:
            cupy = _cupy()
            facts = {"GROUP_SIZE": self.group_size, **self.facts(), **defines}
            code = source.program("backends/cuda.h", file, facts)
            module = cupy.RawModule(code=code, options=OPTIONS)  # CuPy keeps the binary on disk
            try:
                module.compile()
            except cupy.cuda.compiler.CompileException as error:
                raise CompilationError(f"{file} for {self.device}", str(error), code) from error
            self._programs[key] = module
        raw = module.get_function(name)
        return CudaKernel(raw, self.group_size, 2**31 - 1)

    def empty(self, shape: tuple[int, ...] | int, dtype: Any) -> Any:
        return _cupy().empty(shape, dtype)

    def clear(self, array: Any) -> None:
        if array.flags.c_contiguous or array.flags.f_contiguous:
            array.data.memset_async(0, array.nbytes)
        else:
            array.fill(0)

    def copy(self, target: Any, source_array: Any) -> None:
        _cupy().copyto(target, source_array)

    def upload(self, array: np.ndarray) -> Any:
        return _cupy().asarray(array)

    def download(self, array: Any) -> np.ndarray:
        return _cupy().asnumpy(array)

    def stable_order(self, keys: Any, count: int, bins: int) -> Any:
        # The narrowest keys make the fewest radix passes; CuPy's argsort is stable.
        narrow = next(t for t in (np.uint8, np.uint16, np.uint32, np.uint64) if bins - 1 <= np.iinfo(t).max)
        return _cupy().argsort(keys[:count].astype(narrow, copy=False), kind="stable")

    def free_bytes(self) -> int:
        cupy = _cupy()
        free, _ = cupy.cuda.runtime.memGetInfo()
        pool = cupy.get_default_memory_pool()
        limit = pool.get_limit() or 2**63
        return min(free + pool.free_bytes(), limit - pool.used_bytes())

    def synchronize(self) -> None:
        _cupy().cuda.get_current_stream().synchronize()


def compile_only(file: str, defines: dict[str, Any], compute: int) -> bytes:
    """Compile a kernel file for compute capability ``compute`` (90 for sm_90); needs NVRTC, no GPU."""
    from cupy.cuda import nvrtc

    facts = {"HAS_FLOAT_ATOMIC": 1, "HAS_VECTOR_ATOMIC": int(compute >= 90), "HAS_FP64": 1, "HAS_WARP": 1}
    code = source.program("backends/cuda.h", file, {"GROUP_SIZE": CudaBackend.group_size, **facts, **defines})
    program = nvrtc.createProgram(code, file, (), ())
    try:
        nvrtc.compileProgram(program, (*OPTIONS, f"--gpu-architecture=sm_{compute}"))
        return nvrtc.getCUBIN(program)
    except nvrtc.NVRTCError as error:
        raise CompilationError(f"{file} for sm_{compute}", nvrtc.getProgramLog(program), code) from error
    finally:
        nvrtc.destroyProgram(program)


@functools.cache
def backend(device: int) -> CudaBackend:
    """Return the backend of a device, by its ordinal."""
    return CudaBackend(device)


def current() -> CudaBackend:
    """Return the backend of CuPy's current device."""
    return backend(_cupy().cuda.runtime.getDevice())


def available() -> str | None:
    """Return None if a CUDA device can be used, else the reason why not."""
    try:
        cupy = _cupy()
    except ImportError:
        return "CuPy is not installed: pip install 'particlemesh[cuda13]'"
    try:
        return None if cupy.cuda.runtime.getDeviceCount() else "no CUDA device"
    except cupy.cuda.runtime.CUDARuntimeError as error:
        return f"no CUDA driver ({error})"
