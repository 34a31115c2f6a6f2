# SPDX-License-Identifier: BSD-3-Clause
"""CUDA through CuPy: kernels by NVRTC, launched on the caller's current stream."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import itertools
import os
import statistics
import struct
import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from particlemesh.backends import nvrtc, source
from particlemesh.backends.base import LONG, NOTHING, UNKNOWN, As, batch_of, gapless
from particlemesh.backends.branches import Branch
from particlemesh.backends.signature import Signatures
from particlemesh.backends.source import File, Texts
from particlemesh.backends.tapes import FORMS, ArrayForm, Posted, Tape, Taping

_UNASKED = 48 * 1024  # bytes of local memory that need no consent, a kernel's own arrays and what a launch adds


_FEW_BYTES = 256  # that are copied to the host by way of pinned memory: 5 us less than by CUDA's own (H200)
_TO_HOST = 2  # cudaMemcpyDeviceToHost
_FEW_COMMANDS = 3  # of a tape: as many take the host longer as a graph of them
_MOST_GRAPHS = 16  # of a tape


@functools.cache
def _cupy() -> Any:
    import cupy

    return cupy


@functools.cache
def _capture_info() -> Any:
    """Return the driver's function that numbers captures, which CuPy does not have; None if it cannot be found."""
    try:
        return ctypes.CDLL("nvcuda.dll" if os.name == "nt" else "libcuda.so.1").cuStreamGetCaptureInfo_v2
    except (OSError, AttributeError):
        return None


class ParameterBlock:
    """A launch's packed parameters, and the list that points the driver to them."""

    def __init__(self, size: int) -> None:
        self.buffer = ctypes.create_string_buffer(size)
        self._size = ctypes.c_size_t(size)
        # CU_LAUNCH_PARAM_BUFFER_POINTER, CU_LAUNCH_PARAM_BUFFER_SIZE, end
        self._list = (ctypes.c_void_p * 5)(1, ctypes.addressof(self.buffer), 2, ctypes.addressof(self._size), 0)
        self.pointer = ctypes.addressof(self._list)


@functools.lru_cache(maxsize=4096)
def _reach(shape: tuple[int, ...], strides: tuple[int, ...], size: int) -> tuple[int, int]:
    """Return where an array's memory begins and ends, in bytes from its first element."""
    steps = [stride * (n - 1) for stride, n in zip(strides, shape, strict=True) if n]
    return sum(s for s in steps if s < 0), sum(s for s in steps if s > 0) + size


class View(NamedTuple):
    """An array of a tape: by the place of the caller's array that has its memory and a distance, or itself."""

    place: int | None
    distance: int
    array: Any  # itself, or what CuPy makes an array of: shape, dtype and strides

    def of(self, pointers: list[int]) -> Any:
        """Return the array over the memory of a replay's arrays."""
        if self.place is None:
            return self.array
        cupy, (shape, dtype, strides) = _cupy(), self.array
        memory = cupy.cuda.UnownedMemory(pointers[self.place] + self.distance, 0, None)
        return cupy.ndarray(shape, dtype, cupy.cuda.MemoryPointer(memory, 0), strides)


# The commands of a tape: functions of the addresses of a replay's arrays, the stream, and their own arguments.


def _launch(
    pointers: list[int], at: int, launch: Callable[..., None], function: int, groups: int, size: int, local_bytes: int,
    block: ParameterBlock, patches: tuple[tuple[int, int, int], ...],
) -> None:  # fmt: skip
    for offset, place, distance in patches:
        struct.pack_into("=q", block.buffer, offset, pointers[place] + distance)
    launch(function, groups, 1, 1, size, 1, 1, local_bytes, at, 0, block.pointer)


def _clear(
    pointers: list[int], at: int, clear: Callable[..., None], place: int | None, distance: int, size: int
) -> None:
    clear(distance if place is None else pointers[place] + distance, 0, size, at)


def _post(pointers: list[int], at: int, to: int, place: int | None, distance: int, size: int) -> None:
    from_ = distance if place is None else pointers[place] + distance
    _cupy().cuda.runtime.memcpyAsync(to, from_, size, _TO_HOST, at)


def _call(pointers: list[int], at: int, call: Callable[..., None], views: tuple[View, ...]) -> None:
    call(*[view.of(pointers) for view in views])


def _play(launches: list[Any], pointers: list[int], at: int) -> None:
    for command, arguments in launches:
        command(pointers, at, *arguments)


def _fork(pointers: list[int], at: int, branch: Branch, background: list[Any], foreground: list[Any]) -> None:
    with branch.in_background(lambda: _play(background, pointers, branch.stream.ptr)):
        _play(foreground, pointers, at)


class CudaTape(Tape):
    """Launches with their packed parameters and other commands; arrays by place and distance, or by address."""

    def __init__(self, *arrays: Any) -> None:
        self._places: list[tuple[int, int, int]] = []  # address, first and last byte
        self._kept: list[Any] = []  # arrays that are in no place
        self._graphs: dict[tuple[int, ...], Any] | None = {}  # by addresses of a call's arrays; None: none can be made
        self.home: Any = None  # the stream whose pool has the temporaries
        super().__init__(*arrays)

    def place(self, array: Any) -> None:
        at, shape, strides, _, size, _ = FORMS[array.__class__](array)  # type: ignore[misc]  # the call has a signature
        low, high = _reach(shape, strides, size)
        self._places.append((at, at + low, at + high))

    def place_of(self, address: int) -> tuple[int, int] | None:
        """Return the place of the array that has an address, and the distance from its first element, or None."""
        places = list(enumerate(self._places))  # of arrays that overlap, the one that begins there
        exact = ((place, 0) for place, (at, _, _) in places if at == address)
        within = ((place, address - at) for place, (at, low, high) in places if low <= address < high)
        return next(itertools.chain(exact, within), None)

    def patches(self, arguments: tuple[Any, ...]) -> tuple[tuple[int, int, int], ...]:
        """Return which arguments of a launch are the call's arrays: offset in the block, place and distance."""
        patches = []
        for n, argument in enumerate(arguments):
            if not isinstance(argument, int):
                address = argument.__index__() if isinstance(argument, As) else argument.data.ptr
                if (place := self.place_of(address)) is not None:
                    patches.append((8 * n, *place))
                else:
                    self._kept.append(argument)
        return tuple(patches)

    def record_clear(self, array: Any) -> None:
        """Record that memory without gaps is cleared."""
        place = self.place_of(array.data.ptr)
        if place is None:
            self._kept.append(array)
        clear = _cupy().cuda.runtime.memsetAsync
        self.launches.append((_clear, (clear, *(place or (None, array.data.ptr)), array.nbytes)))

    def record_post(self, posted: Posted, to: int, array: Any) -> None:
        """Record that an array is copied to pinned memory of the host, which ``posted`` keeps."""
        place = self.place_of(array.data.ptr)
        self._kept.append(posted)
        if place is None:
            self._kept.append(array)
        self.launches.append((_post, (to, *(place or (None, array.data.ptr)), array.nbytes)))

    def record_call(self, call: Callable[..., None], arrays: tuple[Any, ...], on_device: bool) -> None:
        if not on_device:
            self._graphs = None
        places = [self.place_of(array.data.ptr) for array in arrays]
        views = tuple(
            View(None, 0, array) if place is None else View(*place, (array.shape, array.dtype, array.strides))
            for array, place in zip(arrays, places, strict=True)
        )
        self.launches.append((_call, (call, views)))

    @contextlib.contextmanager
    def forking(self, branch: Branch) -> Iterator[Callable[[], None]]:
        """Record work in the background of the rest of the block, until the function returned is called."""
        whole, background, foreground = self.launches, [], []  # type: ignore[var-annotated]
        whole.append((_fork, (branch, background, foreground)))
        self.launches = background

        def rest() -> None:
            self.launches = foreground

        try:
            yield rest
        finally:
            self.launches = whole

    def play(self, stream: Any, *arrays: Any) -> None:
        native, captured = _cupy().ndarray, stream.is_capturing()
        pointers = [array.data.ptr if array.__class__ is native else array.data_ptr() for array in arrays]
        graph = None if captured or len(self.launches) < _FEW_COMMANDS else self._graph(tuple(pointers))
        if graph is None:
            _play(self.launches, pointers, stream.ptr)
        else:
            graph.launch(stream)
        home = self.home
        if home is not None and home.ptr != stream.ptr and not captured:
            home.wait_event(stream.record())  # it gives the temporaries to others once this tape is dropped

    def _graph(self, pointers: tuple[int, ...]) -> Any:
        """Return a CUDA graph of the commands for arrays at these addresses, from their second replay on, or None.

        Results come from a pool and inputs are often the same, so that addresses return.
        """
        graphs = self._graphs
        if graphs is None:
            return None
        graph = graphs.get(pointers, self)
        if graph is self:  # these addresses are new
            if len(graphs) >= _MOST_GRAPHS:
                graphs.clear()
            graphs[pointers] = graph = None
        elif graph is None:
            with _cupy().cuda.Stream(non_blocking=True) as aside:  # a default stream cannot be captured
                graph = _captured(aside, lambda: _play(self.launches, list(pointers), aside.ptr))
            if graph is None:
                self._graphs = None
            else:
                graphs[pointers] = graph
        return graph


def _fill(array: Any) -> None:
    array.fill(0)


def _copy(target: Any, source_array: Any) -> None:
    _cupy().copyto(target, source_array)


def form_of(array: Any) -> ArrayForm:
    """Return what launches take from a CuPy array."""
    data, dtype = array.data, array.dtype
    return data.ptr, array.shape, array.strides, dtype.char, dtype.itemsize, data.device_id


class CudaKernel:
    """A compiled kernel, one for all. A call packs all arguments: it costs a few microseconds of host time."""

    def __init__(
        self, owner: CudaBackend, raw: Any, group_size: int, most_groups: int, name: str, signatures: Signatures
    ) -> None:
        cupy = _cupy()
        self._name, self._signatures = name, signatures
        self._owner = owner
        self._raw = raw  # keeps the module loaded
        self._function = raw.kernel.ptr
        self._group_size = group_size
        self._most_groups = most_groups
        self._launch = cupy.cuda.driver.launchKernel
        self._stream = cupy.cuda.get_current_stream
        self._array = cupy.ndarray
        self._packer: struct.Struct | None = None
        self._records: tuple[Any, ...] = ()
        self._local_bytes = _UNASKED - raw.shared_size_bytes  # that a launch may add
        self._packing = threading.Lock()

    def _lay_out(self, arguments: tuple[Any, ...]) -> int:
        """Check the arguments of the first launch, and compute where the compiler puts the parameters.

        Records come last. Return the number of arguments before them.
        """
        self._signatures.check(self._name, arguments)
        leading = next((n for n, a in enumerate(arguments) if isinstance(a, bytes)), len(arguments))
        offset = 8 * leading
        self._places = []
        for record in arguments[leading:]:
            offset += -offset % record.alignment
            self._places.append(offset)
            offset += len(record)
        self._block = ParameterBlock(offset)
        self._buffer, self._extra_pointer = self._block.buffer, self._block.pointer
        self._leading = leading
        self._packer = struct.Struct(f"={leading}q")
        return leading

    def _parameters(self) -> ParameterBlock:
        copy = ParameterBlock(len(self._buffer))
        ctypes.memmove(copy.buffer, self._buffer, len(self._buffer))
        return copy

    def __call__(self, items: int, *arguments: Any, local_bytes: int = 0) -> None:
        with self._packing:  # other threads launch it, too
            self._run(items, arguments, local_bytes)

    def _run(self, items: int, arguments: tuple[Any, ...], local_bytes: int) -> None:
        leading = self._leading if self._packer is not None else self._lay_out(arguments)
        array = self._array
        plain = [a.data.ptr if a.__class__ is array else a for a in arguments[:leading]]
        self._packer.pack_into(self._buffer, 0, *plain)  # type: ignore[union-attr]
        records = arguments[leading:]
        if records != self._records:  # identity first: the same objects cost nothing
            for place, record in zip(self._places, records, strict=True):
                self._buffer[place : place + len(record)] = record
            self._records = records
        if local_bytes > self._local_bytes:
            self._raw.max_dynamic_shared_size_bytes = local_bytes
            self._local_bytes = local_bytes
        groups = min(-(-items // self._group_size), self._most_groups)
        if not groups:
            return
        self._launch(
            self._function, groups, 1, 1, self._group_size, 1, 1, local_bytes,
            self._stream().ptr, 0, self._extra_pointer,
        )  # fmt: skip
        tape = self._owner.tape
        if tape is not None:
            patches = tape.patches(arguments[:leading])
            command = self._launch, self._function, groups, self._group_size, local_bytes, self._parameters(), patches
            tape.launches.append((_launch, command))


class Pinned(Posted):
    """Arrays on their way to pinned memory, to which replays of a tape copy them."""

    def __init__(self, backend: CudaBackend, arrays: tuple[Any, ...]) -> None:
        super().__init__(backend, arrays)
        ends = _ends(arrays)
        memory = _cupy().cuda.alloc_pinned_memory(max(ends[-1], 8))
        held = np.frombuffer(memory, np.uint8, ends[-1])  # keeps the memory
        self.addresses = [memory.ptr + at for at in ends[:-1]]
        self._views = [
            held[at : at + array.nbytes].view(array.dtype).reshape(array.shape)
            for at, array in zip(ends, arrays, strict=False)
        ]

    def read(self) -> list[np.ndarray]:
        self._backend.untaped()
        self._backend.synchronize()
        return [view.copy() for view in self._views]


def _ends(arrays: tuple[Any, ...]) -> list[int]:
    """Return where arrays begin in memory of words that holds all of them, and where that ends, in bytes."""
    return list(itertools.accumulate([-(-array.nbytes // 8) * 8 for array in arrays], initial=0))


def facts_of(compute: int) -> dict[str, int]:
    """Return the facts of a compute capability."""
    return {
        "HAS_VECTOR_ATOMIC": int(compute >= 90), "HAS_FP64": 1, "HAS_WARP": 1,
        "HAS_MMA": int(compute >= 80), "HAS_WIDE_MMA": int(compute >= 90),
    }  # fmt: skip


def _timed(stream: Any, work: Callable[[], Any]) -> float:
    """Return the seconds between two events of a stream, around ``work`` on it."""
    cuda = _cupy().cuda
    begin, end = cuda.Event(), cuda.Event()
    begin.record(stream)
    work()
    end.record(stream)
    end.synchronize()
    return float(cuda.get_elapsed_time(begin, end)) / 1e3


def _captured(stream: Any, work: Callable[[], Any]) -> Any:
    """Return a graph of ``work`` on a stream, or None if it cannot be captured; other errors propagate."""
    stream.begin_capture()
    try:
        work()
        return stream.end_capture()
    except BaseException as error:
        with contextlib.suppress(RuntimeError):
            stream.end_capture()  # else the stream would stay in capture mode
        if isinstance(error, RuntimeError):
            return None
        raise


class CudaBackend(Taping):
    """One CUDA device."""

    name = "cuda"
    group_size = 128

    def __init__(self, device: int) -> None:
        super().__init__(CudaTape)
        cupy = _cupy()
        self.ordinal = device
        self._get_device = cupy.cuda.runtime.getDevice
        self._get_stream = cupy.cuda.get_current_stream
        FORMS[cupy.ndarray] = form_of
        with cupy.cuda.Device(device):
            properties = cupy.cuda.runtime.getDeviceProperties(device)
        self.device = properties["name"].decode()
        self.compute = properties["major"] * 10 + properties["minor"]
        self.units = properties["multiProcessorCount"]
        self.local_bytes = properties["sharedMemPerBlockOptin"]
        self._programs: dict[Any, Any] = {}
        self._signatures: dict[Any, Signatures] = {}
        self._kernels: dict[Any, CudaKernel] = {}
        self._pinned = threading.local()

    def signature(self, what: Any, *arrays: Any, same: bool = False) -> tuple[Any, ...] | None:
        key: list[Any] = [what]
        spans: list[tuple[int, int, int]] = []
        several = len(arrays) > 1
        for array in arrays:
            form_of = FORMS.get(array.__class__)
            form = None if form_of is None else form_of(array)
            if form is None:
                return None
            at, shape, strides, char, size, device = form
            key += at if same else at & 15, shape, strides, char, device
            if several:
                low, high = _reach(shape, strides, size)
                for n, (other, first, last) in enumerate(spans):
                    if at + low < last and first < at + high:
                        key += "shared", n, at - other
                spans.append((at, at + low, at + high))
        return tuple(key)

    def same_memory(self, native: Any, array: Any) -> bool:
        form_of = FORMS.get(array.__class__)
        form = None if form_of is None else form_of(array)
        return form is not None and native.data.ptr == form[0] and native.dtype.char == form[3]

    def facts(self) -> dict[str, int]:
        return facts_of(self.compute)

    def scope(self, *arrays: Any) -> contextlib.AbstractContextManager[Any]:
        if self._get_device() == self.ordinal:
            return NOTHING
        return _cupy().cuda.Device(self.ordinal)

    def follow(self, token: Any) -> Any:
        # The previous call's stream may still use a plan's memory. A capture cannot wait for work outside it; the
        # user has waited before starting one.
        stream = self._get_stream()
        if token is not None and token.ptr != stream.ptr and not stream.is_capturing():
            stream.wait_event(token.record())
        return stream

    def mark(self, *arrays: Any) -> None:
        """Streams keep the order; CuPy's arrays keep no events."""

    def kernel(self, file: File, name: str, defines: dict[str, Any], texts: Texts | None = None) -> CudaKernel:
        key = (file, tuple(defines.items()), tuple((texts or {}).items()))
        module = self._programs.get(key)
        if module is None:
            facts = {"GROUP_SIZE": self.group_size, **self.facts(), **defines}
            code, given = source.program("backends/cuda.h", file, facts, texts), source.for_message(file, texts)
            module = nvrtc.module(code, str(file), self.compute, given)
            self._signatures[key] = Signatures("backends/cuda.h", file, facts, texts)
            self._programs[key] = module
        made = self._kernels.get((key, name))
        if made is None:
            raw = self._signatures[key].kernel(name, module.get_function)
            size = defines.get("GROUP_SIZE", self.group_size)
            made = self._kernels[key, name] = CudaKernel(self, raw, size, 2**31 - 1, name, self._signatures[key])
        return made

    def empty(self, shape: tuple[int, ...] | int, dtype: Any) -> Any:
        if (tape := self.tape) is not None and tape.home is None:
            tape.home = self._get_stream()
        return self.allocated(_cupy().empty(shape, dtype))

    def clear(self, array: Any) -> None:
        if gapless(array):
            array.data.memset_async(0, array.nbytes)
            if self.tape is not None:
                self.tape.record_clear(array)
        else:
            self.submit_call(_fill, array, on_device=True)

    def copy(self, target: Any, source_array: Any) -> None:
        self.submit_call(_copy, target, source_array, on_device=True)

    def upload(self, array: np.ndarray) -> Any:
        return _cupy().asarray(array, order="C")

    def download(self, array: Any) -> np.ndarray:
        return self.read(array)[0]

    def post(self, *arrays: Any) -> Posted:
        tape = self.tape
        if tape is None:
            return super().post(*arrays)
        posted = Pinned(self, arrays)
        for to, array in zip(posted.addresses, arrays, strict=True):
            tape.record_post(posted, to, array)
            _post([], self._get_stream().ptr, to, None, array.data.ptr, array.nbytes)
        return posted

    def read(self, *arrays: Any) -> list[np.ndarray]:
        self.untaped()
        ends = _ends(arrays)
        if ends[-1] > _FEW_BYTES or not all([array.flags.c_contiguous for array in arrays]):  # noqa: C419  # quicker
            return [_cupy().asnumpy(array) for array in arrays]
        pinned, copy, stream = self._pinned, _cupy().cuda.runtime.memcpyAsync, self._get_stream()
        if not hasattr(pinned, "bytes"):
            memory = _cupy().cuda.alloc_pinned_memory(_FEW_BYTES)
            pinned.at, pinned.bytes = memory.ptr, np.frombuffer(memory, np.uint8, _FEW_BYTES)
        for array, begin in zip(arrays, ends, strict=False):
            copy(pinned.at + begin, array.data.ptr, array.nbytes, _TO_HOST, stream.ptr)
        stream.synchronize()
        return [
            pinned.bytes[begin : begin + array.nbytes].view(array.dtype).reshape(array.shape).copy()
            for array, begin in zip(arrays, ends, strict=False)
        ]

    def free_bytes(self) -> int:
        cupy = _cupy()
        free, _ = cupy.cuda.runtime.memGetInfo()
        pool = cupy.get_default_memory_pool()
        limit = pool.get_limit() or 2**63
        return min(free + pool.free_bytes(), limit - pool.used_bytes())

    def capturing(self) -> int:
        stream, info = self._get_stream(), _capture_info()
        if not stream.is_capturing():
            return 0
        status, number = ctypes.c_int(), ctypes.c_uint64()
        arguments = ctypes.c_void_p(stream.ptr), ctypes.byref(status), ctypes.byref(number), None, None, None
        return UNKNOWN if info is None or info(*arguments) else int(number.value) + 1

    def seconds(self, call: Callable[[], Any]) -> float:
        # Events around a captured graph of calls: Python's overhead would hide a short kernel. On a separate stream,
        # because a user's default stream cannot be captured.
        self.synchronize()
        stream = _cupy().cuda.Stream(non_blocking=True)
        with stream:
            call()  # allocates memory of this stream
            once = _timed(stream, call)
            if once > LONG:
                return min(once, _timed(stream, call))
            calls = batch_of(once)

            def batch() -> None:
                for _ in range(calls):
                    call()

            graph = _captured(stream, batch)
            if graph is not None:
                graph.launch(stream)
                return statistics.median(_timed(stream, lambda: graph.launch(stream)) for _ in range(3)) / calls
        # A call that cannot be captured is timed on the caller's stream.
        return statistics.median(_timed(self._get_stream(), batch) for _ in range(3)) / calls

    def synchronize(self) -> None:
        _cupy().cuda.get_current_stream().synchronize()


def compile_only(file: source.File, defines: dict[str, Any], compute: int, texts: source.Texts | None = None) -> bytes:
    """Compile a kernel file for compute capability ``compute`` (90 for sm_90); needs NVRTC, no GPU."""
    facts = {"GROUP_SIZE": CudaBackend.group_size, **facts_of(compute), **defines}
    code = source.program("backends/cuda.h", file, facts, texts)
    return nvrtc.compiled(code, str(file), compute, source.for_message(file, texts))


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
        return "CuPy is not installed: pip install 'cupy-cuda13x[ctk]', or 'cupy-cuda12x[ctk]'"
    try:
        return None if cupy.cuda.runtime.getDeviceCount() else "no CUDA device"
    except cupy.cuda.runtime.CUDARuntimeError as error:
        return f"no CUDA driver ({error})"
