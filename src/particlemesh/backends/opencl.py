# SPDX-License-Identifier: BSD-3-Clause
"""OpenCL through PyOpenCL: PoCL where there is no GPU; as fast as CUDA where the compiler accepts PTX."""

from __future__ import annotations

import contextlib
import functools
import math
import os
import shutil
import sys
import threading
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import repeat
from operator import floordiv
from typing import Any

import numpy as np

from particlemesh.backends import pocl, source
from particlemesh.backends.base import As, CompilationError, Record, gapless, seconds_by_host
from particlemesh.backends.folders import cache, unwritable
from particlemesh.backends.signature import Signatures
from particlemesh.backends.source import File, Texts
from particlemesh.backends.tapes import Tape, Taping
from particlemesh.checks import through_forks

PTX_PROBE = '__kernel void probe(__global float* p) { asm volatile("red.global.add.f32 [%0], %1;" :: "l"(p), "f"(1.0f) : "memory"); }'  # noqa: E501  # one line of C


@functools.cache
def _cl() -> Any:
    folder = cache("pytools")  # PyOpenCL's own cache: unwritable, it would fail
    if sys.platform == "linux" and (folder is None or unwritable(folder)):
        os.environ.setdefault("PYOPENCL_NO_CACHE", "1")
    import pyopencl
    import pyopencl.array

    return pyopencl


OPTIONS = ["-cl-std=CL1.2"]  # of the compiler
REGISTERS = 65536  # per multiprocessor, NVIDIA
# Errors for lack of memory, at a launch and at an allocation. At a launch NVIDIA's driver reports a crashed kernel as
# OUT_OF_RESOURCES.
LAUNCHING = ("MEM_OBJECT_ALLOCATION_FAILURE", "OUT_OF_HOST_MEMORY")
ALLOCATING = (*LAUNCHING, "OUT_OF_RESOURCES", "INVALID_BUFFER_SIZE")

_generating = through_forks(
    threading.Lock()
)  # PyOpenCL generates code for a kernel object, under a name that is free at that moment

# Takes arguments, a size (of the launch or of the memory), and which of the arguments belong to the caller.
Command = Callable[[list[Any], tuple[int, ...], Collection[int]], None]


@functools.cache
def _local_memory(size: int) -> Any:
    return _cl().LocalMemory(size)


class OpenClKernel:
    """A compiled kernel and its arguments; so plans do not share kernel objects."""

    def __init__(self, owner: OpenClBackend, program: Any, group_size: int, name: str, signatures: Signatures) -> None:
        self._owner = owner
        self._group_size = group_size
        self._name, self._signatures = name, signatures
        with _generating:
            self._kernel = signatures.kernel(name, functools.partial(_cl().Kernel, program))
        self._enqueue = _cl().enqueue_nd_range_kernel
        self._known: list[Any] = []  # the arguments last set

    def __call__(self, items: int, *arguments: Any, local_bytes: int = 0) -> None:
        if not self._known:  # the first launch
            self._signatures.check(self._name, arguments)
        values = [a if isinstance(a, (int, bytes)) else a.base_data for a in arguments]
        if local_bytes:
            values.append(_local_memory(local_bytes))
        if groups := min(-(-items // self._group_size), self._owner.most_groups):  # PoCL dies of a launch of none
            self._owner.submit(self._launch, values, (groups * self._group_size,))

    def _launch(self, values: list[Any], items: tuple[int, ...], borrowed: Collection[int]) -> None:
        kernel, known = self._kernel, self._known
        if len(known) != len(values):
            known[:] = [self] * len(values)
        for n, value in enumerate(values):
            if value is not known[n]:  # setting an argument costs a microsecond
                kernel.set_arg(n, np.int64(value) if isinstance(value, int) else value)
                known[n] = value
        for n in borrowed:  # keep no reference to the caller's memory
            known[n] = self
        local, enqueue, size = self._owner.local, self._enqueue, (self._group_size,)
        queue = getattr(local, "queue", None) or self._owner.queue
        try:
            local.event = enqueue(queue, kernel, items, size)
        except _cl().Error as error:
            out_of_memory(LAUNCHING, error)
            raise


class OpenClTape(Tape):
    """Commands with their arguments; buffers of the caller's arrays by their position among these."""

    def __init__(self, *arrays: Any) -> None:
        self._places: list[int | None] = []  # of buffers
        super().__init__(*arrays)

    def place(self, array: Any) -> None:
        self._places.append(None if array.base_data is None else array.base_data.int_ptr)  # an empty result has none

    def record(self, command: Command, values: list[Any], size: tuple[int, ...]) -> Collection[int]:
        """Record a command; return which of its arguments belong to the caller."""
        pointers = {n: v.int_ptr for n, v in enumerate(values) if isinstance(v, _cl().MemoryObjectHolder)}
        borrowed = {n: self._places.index(p) for n, p in pointers.items() if p in self._places}
        fixed = [None if n in borrowed else value for n, value in enumerate(values)]
        self.launches.append((command, fixed, borrowed, size))
        return borrowed

    def record_call(self, call: Callable[..., None], arrays: tuple[Any, ...], on_device: bool) -> None:
        kind = _cl().array.Array
        forms = [((a.queue, a.shape, a.dtype), {"strides": a.strides, "offset": a.offset}) for a in arrays]

        def repeat(values: list[Any], _: tuple[int, ...], borrowed: Collection[int]) -> None:
            call(*(kind(*form, data=value, **more) for value, (form, more) in zip(values, forms, strict=True)))

        self.record(repeat, [array.base_data for array in arrays], ())

    def play(self, stream: Any, *arrays: Any) -> None:
        for command, fixed, borrowed, size in self.launches:
            values = fixed.copy()
            for n, place in borrowed.items():
                values[n] = arrays[place].base_data
            command(values, size, borrowed)


class OpenClBackend(Taping):
    """One OpenCL context and device. Work goes to the queue of the arrays."""

    name = "opencl"

    def __init__(self, context: Any, device: Any, *, portable: bool = False) -> None:
        super().__init__(OpenClTape)
        cl = _cl()
        self.context = context
        self._device = device
        self._process = os.getpid()
        self.device = device.name.strip()
        self._wait = (
            functools.partial(pocl.wait_interruptibly, self) if device.type & cl.device_type.CPU else lambda: None
        )
        self.platform = device.platform.version.strip()
        self._default = cl.CommandQueue(context, device)
        self.local = threading.local()
        self._programs: dict[Any, Any] = {}
        self._signatures: dict[Any, Signatures] = {}
        self._served: dict[int, bool] = {}
        self._queues: list[Any] = []
        extensions = device.extensions.split()
        if "cl_khr_int64_base_atomics" not in extensions:
            raise RuntimeError(f"{self.device} has no 64-bit atomics (cl_khr_int64_base_atomics)")
        self._fp64 = int(bool(device.double_fp_config))
        self._ptx = 0 if portable else self._takes_ptx()
        self._bounds = int(self._ptx and "cl_nv_compiler_options" in extensions)
        # Without sub-groups of 32 the work-group is the warp.
        self.group_size = 128 if self._ptx else 32
        self.units = int(device.max_compute_units)
        self.local_bytes, self._memory = int(device.local_mem_size), int(device.global_mem_size)
        self.most_groups = 2**20 if self._ptx else 64 * self.units
        self._declared = pocl.declared(cl, context) if "PoCL" in self.platform else None
        # For inline PTX: MMA of float32 and float64 needs 8.0, vector reductions need 9.0.
        self.compute = 10 * device.compute_capability_major_nv + device.compute_capability_minor_nv if self._ptx else 0

    def _takes_ptx(self) -> int:
        if "NVIDIA" not in self._device.vendor:
            return 0
        try:
            _cl().Program(self.context, PTX_PROBE).build()
        except _cl().RuntimeError:
            return 0
        return 1

    @property
    def queue(self) -> Any:
        """The queue of the current scope."""
        if os.getpid() != self._process:  # it would wait for threads that a fork does not copy
            raise RuntimeError("OpenCL does not survive a fork: start processes by 'spawn', or before its first use.")
        return getattr(self.local, "queue", None) or self._default

    def facts(self) -> dict[str, int]:
        vector, mma = int(self.compute >= 90), int(self.compute >= 80)
        return {
            "HAS_VECTOR_ATOMIC": vector, "HAS_FP64": self._fp64,
            "HAS_WARP": self._ptx, "HAS_PTX": self._ptx, "HAS_MMA": mma, "HAS_WIDE_MMA": vector,
            "BOUNDS_REGISTERS": self._bounds,
        }  # fmt: skip

    @contextlib.contextmanager
    def scope(self, *arrays: Any) -> Iterator[None]:
        cl = _cl()
        before = getattr(self.local, "queue", None)
        if before is None:
            queue = next((a.queue for a in arrays if getattr(a, "queue", None) is not None), None) or self.queue
            if queue.properties & cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE:
                queue = self._default  # in order; events order it after the user's queue
            self.local.queue, self.local.event = queue, None
        else:  # a call within a call stays on its queue: memory of the owner was made on that of an earlier call
            queue = before
        if arrays:
            # Other queues may still write to the arrays; `mark` makes them wait for this work in turn.
            done = cl.command_execution_status.COMPLETE
            waiting = [
                e for a in arrays for e in getattr(a, "events", None) or ()
                if e.command_queue != queue and e.command_execution_status != done
            ]  # fmt: skip
            if waiting:
                cl.enqueue_barrier(queue, wait_for=waiting)
        try:
            yield
        finally:
            self.local.queue = before

    def serves(self, queue: Any) -> bool:
        """Return whether a queue belongs to this context and device."""
        known = self._served.get(queue.int_ptr)
        if known is None:
            known = queue.context == self.context and queue.device == self._device
            self._served[queue.int_ptr] = known
            self._queues.append(queue)  # kept alive, so that its address is not reused
        return known

    def follow(self, token: Any) -> Any:
        queue = getattr(self.local, "queue", None) or self.queue
        if token is not None and token != queue:  # the previous call's queue may still use a plan's memory
            _cl().enqueue_barrier(queue, wait_for=[_cl().enqueue_marker(token)])
        return queue

    def mark(self, *arrays: Any) -> None:
        event = getattr(self.local, "event", None)
        for array in arrays:
            if event is not None and hasattr(array, "add_event"):
                array.events = [event]  # this work has waited for earlier events

    def submit(self, command: Command, values: list[Any], size: tuple[int, ...]) -> None:
        """Submit a command, and record it on the current tape."""
        tape = getattr(self._recording, "tape", None)
        command(values, size, () if tape is None else tape.record(command, values, size))

    def signature(self, what: Any, *arrays: Any, same: bool = False) -> tuple[Any, ...] | None:
        key, native, holder = [what], _cl().array.Array, _cl().MemoryObjectHolder
        buffers: dict[int, int] = {}
        for array in arrays:
            if array.__class__ is not native or array.queue is None or not isinstance(array.base_data, holder):
                return None
            at = array.base_data.int_ptr
            buffer = buffers.setdefault(at, len(buffers))
            key += at if same else buffer, array.offset, array.shape, array.strides
            key += array.dtype.str, array.queue.int_ptr
        return tuple(key)

    def kernel(self, file: File, name: str, defines: dict[str, Any], texts: Texts | None = None) -> OpenClKernel:
        key = (file, tuple(defines.items()), tuple((texts or {}).items()))
        program, size = self._programs.get(key), defines.get("GROUP_SIZE", self.group_size)
        if program is None:
            cl = _cl()
            if not self._fp64 and (defines.get("REAL_IS_DOUBLE") or defines.get("COORDINATE_IS_DOUBLE")):
                raise RuntimeError(f"{self.device} has no float64; use float32 or another backend")
            facts = {"GROUP_SIZE": self.group_size, **self.facts(), **defines}
            code, given = source.program("backends/opencl.h", file, facts, texts), source.for_message(file, texts)
            options = OPTIONS
            self._signatures[key] = Signatures("backends/opencl.h", file, facts, texts)
            if self._declared and not given:  # a user's text may call anything
                code, options = self._declared + code, [*OPTIONS, pocl.UNDECLARED]
            if self._bounds and "RESIDENT_GROUPS" in defines:
                options = [*OPTIONS, bound_of(size * defines["RESIDENT_GROUPS"])]
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", cl.CompilerWarning)
                try:
                    program = self._build(code, options)
                except cl.RuntimeError as error:
                    raise CompilationError(f"{file} for {self.device}", str(error), code, given) from error
            self._programs[key] = program
        return OpenClKernel(self, program, size, name, self._signatures[key])

    def _build(self, code: str, options: list[str]) -> Any:
        """Compile a program.

        PoCL gets three attempts: processes that fill its cache at once may fail without a message (its issue 1480).
        """
        tries = 3 if "PoCL" in self.platform else 1
        while True:
            tries -= 1
            try:
                return _cl().Program(self.context, code).build(options=options)
            except _cl().RuntimeError as error:
                if tries == 0 or "error:" in str(error):
                    raise

    def empty(self, shape: tuple[int, ...] | int, dtype: Any) -> Any:
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        size, most = math.prod(shape) * np.dtype(dtype).itemsize, self._memory
        if size > most:  # NVIDIA's driver has returned buffers of 2**60 bytes
            raise MemoryError(f"cannot allocate {size:,} bytes: {self.device} has {most:,}.")
        return self.allocated(with_memory(ALLOCATING, _cl().array.empty, self.queue, shape, np.dtype(dtype)))

    def _strided(self, target: Any, source_array: Any) -> None:
        if target.size == 0:
            return
        words, pad = target.dtype.itemsize // 4, 5 - target.ndim
        shape, none = [1] * pad + list(target.shape) + [words], [0] * pad
        # Strides in words; a generator would add a function for each axis to every call.
        there, here = map(floordiv, target.strides, repeat(4)), map(floordiv, source_array.strides, repeat(4))
        strides = *none, *there, 1, *none, *here, 1
        layout = Record("=20q", *shape, *strides, target.offset // 4, source_array.offset // 4)
        clears = int(source_array is target)
        kernel = self.kernel("backends/strided.c", "strided", {"REAL_IS_DOUBLE": 0})
        to, what = As(target, np.uint32), As(source_array, np.uint32)
        kernel(target.size * words, to, what, target.size * words, clears, layout)

    def clear(self, array: Any) -> None:
        if gapless(array):
            if array.nbytes:
                self.submit(self._fill, [array.base_data], (array.offset, array.nbytes))
        else:
            self._strided(array, array)

    def _fill(self, values: list[Any], piece: tuple[int, ...], borrowed: Collection[int]) -> None:
        queue = getattr(self.local, "queue", None) or self.queue
        try:
            self.local.event = _cl().enqueue_fill_buffer(queue, *values, np.uint32(0), *piece)
        except _cl().Error as error:
            out_of_memory(LAUNCHING, error)
            raise

    def copy(self, target: Any, source_array: Any) -> None:
        self._strided(target, source_array)

    def upload(self, array: np.ndarray) -> Any:
        self._wait()
        return with_memory(ALLOCATING, _cl().array.to_device, self.queue, np.ascontiguousarray(array))

    def download(self, array: Any) -> np.ndarray:
        self.untaped()
        if array.size and not (array.flags.c_contiguous or array.flags.f_contiguous):
            dense = self.empty(array.shape, array.dtype)
            self.copy(dense, array)
            array = dense
        self._wait()
        return array.get(queue=self.queue)

    def read(self, *arrays: Any) -> list[np.ndarray]:
        return [self.download(array) for array in arrays]  # after the first the queue is empty

    def free_bytes(self) -> int:
        return self._memory  # OpenCL does not report free memory

    def capturing(self) -> int:
        return 0

    def seconds(self, call: Callable[[], Any]) -> float:
        # The user's queue may lack profiling.
        return seconds_by_host(call, self.synchronize)

    def synchronize(self) -> None:
        self._wait()
        self.queue.finish()


_backends: dict[Any, OpenClBackend] = {}
_lock = through_forks(threading.Lock())


def backend(context: Any, device: Any, *, portable: bool = False) -> OpenClBackend:
    """Return the backend of a context's device; ``portable`` restricts a new one to standard OpenCL."""
    with _lock:
        key = (context.int_ptr, device.int_ptr)
        if key not in _backends:
            _backends[key] = OpenClBackend(context, device, portable=portable)
        return _backends[key]


def with_memory(lacking: Sequence[str], call: Callable[..., Any], *arguments: Any) -> Any:
    """Make a call; raise errors named in ``lacking`` as ``MemoryError``, like other backends."""
    try:
        return call(*arguments)
    except _cl().Error as error:
        out_of_memory(lacking, error)
        raise


def out_of_memory(lacking: Sequence[str], error: Exception) -> None:
    """Raise a ``MemoryError`` for an error that is named in ``lacking``."""
    if any(name in str(error) for name in lacking):
        raise MemoryError(str(error)) from error


def bound_of(items: int) -> str:
    """Return the compiler option that limits registers so that ``items`` are resident (cl_nv_compiler_options).

    The compiler ignores it for kernels that require a group size: see backends/opencl.h.
    """
    return f"-cl-nv-maxrregcount={min(255, REGISTERS // items // 8 * 8)}"


@functools.cache
def devices() -> list[Any]:
    """Return all OpenCL devices with 64-bit atomics, GPUs first."""
    cl = _cl()
    present, platforms = [], cl.get_platforms()
    if any("Portable" in platform.name for platform in platforms):
        pocl.keep_somewhere()
    for platform in platforms:
        with contextlib.suppress(cl.RuntimeError):
            present += platform.get_devices()
    usable = [d for d in present if "cl_khr_int64_base_atomics" in d.extensions.split()]
    if shutil.which("ld") is not None:
        usable = [d for d in usable if "PoCL" not in d.version or pocl.knows_processor(cl, d)]
    return sorted(usable, key=lambda d: 0 if d.type & cl.device_type.GPU else 1)


@functools.cache
def current() -> OpenClBackend:
    """Return the backend for NumPy arrays: the first GPU, else the first device."""
    device = devices()[0]
    return backend(_cl().Context([device]), device)


def available() -> str | None:
    """Return None if an OpenCL device can be used, else the reason why not."""
    try:
        cl = _cl()
    except ImportError:
        return "PyOpenCL is not installed: pip install pyopencl mako"
    try:
        if shutil.which("ld") is None and any("Portable" in p.name for p in cl.get_platforms()):
            return "PoCL links kernels with 'ld' and aborts without it: install binutils"
        if devices():
            return None
        if any("Portable" in p.name for p in cl.get_platforms()):
            return "PoCL does not know this processor: install a newer one (conda install pocl), or another OpenCL"
        return "no OpenCL device with 64-bit atomics"
    except cl.Error as error:
        return f"no OpenCL platform ({error})"
