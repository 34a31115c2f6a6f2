# SPDX-License-Identifier: BSD-3-Clause
"""Native arrays of each backend in any memory order, to and from the host."""

import contextlib
import functools
import warnings
from typing import ClassVar, NamedTuple

import numpy as np

import particlemesh as pm
from particlemesh import backends
from particlemesh.choosing.choice import METHODS
from particlemesh.methods.contract import Problem
from particlemesh.window import window_of


class Law(NamedTuple):
    """A method and its direction."""

    direction: str
    method: type

    def __str__(self):
        return f"{self.direction}-{self.method.name}"

    def plan(self, mesh, window, **options):
        """Return a plan that uses this method in its direction."""
        option = "method" if self.direction == "spread" else "interpolation"
        return pm.Plan(mesh, window, **{option: self.method.name}, **options)

    def declines(self, backend, mesh, window, dtype, count, components=1):
        """Return why the method does not serve a problem, or None."""
        return self.method.declines(
            Problem(mesh, window_of(window), np.dtype(dtype), components, 1, count, False, backend.library)
        )

    def real(self, backend, mesh, window, count):
        """Return float32, or float64 where the method serves no other."""
        return np.dtype(np.float64 if self.declines(backend, mesh, window, np.float32, count) else np.float32)


def laws():
    return [Law(direction, method) for direction, methods in METHODS.items() for method in methods]


def names(direction, backend):
    return [m.name for m in METHODS[direction] if backend in m.backends]


def stored(host, order):
    """Return a flat store, byte strides and the byte offset of ``host``'s elements in a memory order.

    planar is C order; interleaved has the first axis last in memory; strided leaves gaps on every axis;
    reversed runs backwards along every axis; fortran is the reverse of planar. Anything else is a triple: the
    axes from slowest to fastest, for each axis how many times too far apart, and whether it runs backwards.
    """
    host = np.asarray(host)
    size, d = host.dtype.itemsize, host.ndim
    axes = list(range(d))
    if isinstance(order, str):
        memory = {"interleaved": axes[1:] + axes[:1], "fortran": axes[::-1]}.get(order, axes)
        gaps, backwards = [1 + (order == "strided")] * d, [order == "reversed"] * d
    else:
        memory, gaps, backwards = order
    steps, step = [0] * d, size
    for a in reversed(memory):
        steps[a] = step * gaps[a]
        step *= gaps[a] * max(host.shape[a], 1)
    store = np.full(step // size + 3, 77, host.dtype)
    offset = 0 if order in ("planar", "interleaved", "fortran") else 2 * size
    for a in axes:
        if backwards[a] and host.size:
            offset += steps[a] * (host.shape[a] - 1)
            steps[a] = -steps[a]
    if host.size:
        np.ndarray(host.shape, host.dtype, store, offset, steps)[...] = host
    return store, tuple(steps), offset


# One work-item that takes its time: about 0.2 s or more, then writes.
SLOW = """
KERNEL(GLOBAL double* target, GLOBAL const double* source, GLOBAL int* sink, const int count)
{
    int x = sink[0];
    for (int i = 0; i < 200000000; i++) x = x * 1664525 + 1013904223 + (x >> 7);
    sink[0] = x;
    for (int i = 0; i < count; i++) target[i] = source[i];
}
"""


class Device:
    """A backend as tests see it: the NumPy of this file is the CPU's."""

    name: ClassVar[str] = "cpu"

    @staticmethod
    @functools.cache
    def of(name):
        return {"cpu": Device, "opencl": OpenClDevice, "cuda": CudaDevice}[name]()

    @property
    def library(self):
        """The library's backend object."""
        return backends.current(self.name)

    def array(self, host, order="planar"):
        """Return a native array with the content of ``host``, in a memory order of `stored`."""
        store, steps, offset = stored(host, order)
        return self.view(self.flat(store), np.shape(host), np.asarray(host).dtype, offset, steps)

    def flat(self, store):
        return store.copy()

    def view(self, store, shape, dtype, offset, strides):
        return np.ndarray(shape, dtype, store, offset, strides)

    def host(self, array):
        """Return a NumPy copy of a native array of any strides."""
        return np.array(array)

    def raw(self, array):
        """Return the address of the first element, or what stands for it."""
        return array.ctypes.data

    def wait(self):
        pass


class OpenClDevice(Device):
    name = "opencl"

    def __init__(self):
        import pyopencl
        import pyopencl.array

        self.cl = pyopencl
        self.queue = self.library.queue
        self._slow = None

    def flat(self, store):
        return self.cl.array.to_device(self.queue, store)

    def view(self, store, shape, dtype, offset, strides):
        return self.cl.array.Array(self.queue, shape, dtype, strides=strides, data=store.base_data, offset=offset)

    def host(self, array):
        if array.size == 0:
            return np.empty(array.shape, array.dtype)
        queue = array.queue or self.queue
        raw = np.empty(array.base_data.size, np.uint8)
        self.cl.enqueue_copy(queue, raw, array.base_data, wait_for=list(array.events))
        return np.ndarray(array.shape, array.dtype, raw, array.offset, array.strides).copy()

    def raw(self, array):
        return array.base_data.int_ptr, array.offset

    def wait(self):
        self.queue.finish()

    def stream(self):
        """Return a queue of its own."""
        return self.cl.CommandQueue(self.queue.context, self.queue.device)

    def on(self, stream):
        """Work inside goes to ``stream``: with OpenCL to the arrays' queue, which callers give."""
        return contextlib.nullcontext()

    def late(self, host, stream):
        """Return a float64 array that a slow kernel on ``stream`` will fill with ``host``."""
        cl, host = self.cl, np.ascontiguousarray(host, np.float64)
        source, sink = cl.array.to_device(stream, host), cl.array.zeros(stream, 1, np.int32)
        target = cl.array.to_device(stream, np.full(host.shape, np.nan))
        text = SLOW.replace("KERNEL", "__kernel void slow").replace("GLOBAL", "__global")
        if self._slow is None:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", cl.CompilerWarning)  # some compilers always have something to say
                self._slow = cl.Program(stream.context, text).build().slow
        kernel = self._slow
        stream.finish()
        target.add_event(kernel(stream, (1,), (1,), target.data, source.data, sink.data, np.int32(host.size)))
        stream.flush()
        return target


class CudaDevice(Device):
    name = "cuda"

    def __init__(self):
        import cupy

        self.cupy = cupy

    def flat(self, store):
        return self.cupy.asarray(store)

    def view(self, store, shape, dtype, offset, strides):
        return self.cupy.ndarray(shape, dtype, memptr=store.data + offset, strides=strides)

    def host(self, array):
        return self.cupy.asnumpy(array)

    def raw(self, array):
        return array.data.ptr

    def wait(self):
        self.cupy.cuda.get_current_stream().synchronize()

    def stream(self):
        return self.cupy.cuda.Stream(non_blocking=True)

    def on(self, stream):
        return stream

    def late(self, host, stream):
        cupy, host = self.cupy, np.ascontiguousarray(host, np.float64)
        # A GPU's one work-item is slower than a processor.
        text = SLOW.replace("KERNEL", 'extern "C" __global__ void slow').replace("GLOBAL", "")
        kernel = cupy.RawKernel(text.replace("00000000", "0000000"), "slow")
        with stream:
            source, sink = cupy.asarray(host), cupy.zeros(1, np.int32)
            target = cupy.full(host.shape, np.nan)
            stream.synchronize()
            kernel((1,), (1,), (target, source, sink, np.int32(host.size)))
        return target
