# SPDX-License-Identifier: BSD-3-Clause
"""Fast Fourier transforms of dense native arrays on every backend, with memory that is kept between calls."""

from __future__ import annotations

import functools
import importlib.util
import math
from typing import Any, ClassVar

import numpy as np
import scipy.fft

from particlemesh.arrays.kinds import allocate
from particlemesh.arrays.operands import COMPLEX
from particlemesh.backends.base import Backend, gapless
from particlemesh.backends.cpu import default_threads

FORWARD, BACKWARD = -1, 1  # sign of the exponent


def good_size(least: int) -> int:
    """Return the smallest even number >= ``least`` whose prime factors are 2, 3, 5 and 7.

    All engines transform such sizes fast. Even sizes keep halves of the mesh equal.

    Parameters
    ----------
    least : int
        Nodes, at least 1.

    Examples
    --------
    >>> good_size(11), good_size(128), good_size(211)
    (12, 128, 216)
    """
    size = least + least % 2
    while True:
        rest = size
        for prime in (2, 3, 5, 7):
            while rest % prime == 0:
                rest //= prime
        if rest == 1:
            return size
        size += 2


class Engine:
    """Transforms along the last axes of arrays; every leading axis is a batch.

    No direction is normalised: backward after forward multiplies by the number of nodes.

    Parameters
    ----------
    backend : Backend
        Where the arrays are.
    shape : tuple of 1 to 3 ints
        Nodes per axis.
    dtype : numpy.dtype
        Real type: float32 or float64.
    real : bool
        Transform real fields, whose spectrum has the modes of ``rfftn``; else complex fields.
    threads : int, optional
        CPU threads.
    """

    name: ClassVar[str]

    def __init__(
        self, backend: Backend, shape: tuple[int, ...], dtype: Any, *, real: bool, threads: int | None = None
    ) -> None:
        self.backend, self.shape, self.real = backend, tuple(shape), real
        self.dtype = np.dtype(dtype)
        self.complex_dtype = COMPLEX[self.dtype]
        self.field_dtype = self.dtype if real else self.complex_dtype
        self.spectrum_shape = (*shape[:-1], shape[-1] // 2 + 1) if real else self.shape
        self.axes = tuple(range(-len(shape), 0))
        self.threads = threads
        self.size = math.prod(shape)

    def forward(self, field: Any, out: Any = None) -> Any:
        """Return ``sum_m field[m] exp(-i k x_m)``, shape (..., *spectrum_shape).

        ``field`` is dense, of ``field_dtype``. ``out`` is dense; for complex fields it may be ``field`` itself.
        """
        return self.run(field, FORWARD, out)

    def backward(self, spectrum: Any, out: Any = None) -> Any:
        """Return ``sum_k spectrum[k] exp(+i k x_m)``, shape (..., *shape). The spectrum may be overwritten."""
        return self.run(spectrum, BACKWARD, out)

    def run(self, array: Any, sign: int, out: Any = None) -> Any:
        """Transform with the exponent's sign: ``forward`` (-1) or ``backward`` (+1); complex fields allow both."""
        raise NotImplementedError

    def reserve(self, batch: int) -> None:
        """Make plans and work memory for ``batch`` fields, so that later calls allocate nothing."""

    @property
    def nbytes(self) -> int:
        """Bytes of work memory on the device, as far as the library of the transforms reports them."""
        return 0

    def describe(self) -> str:
        """Return one line for ``explain()``."""
        return self.name

    def _out(self, array: Any, out: Any, sign: int) -> tuple[Any, int]:
        """Return the output, and how many fields there are."""
        batch = tuple(array.shape[: array.ndim - len(self.shape)])
        if out is None:
            shape, dtype = self.shape, self.field_dtype
            if sign == FORWARD:
                shape, dtype = self.spectrum_shape, self.complex_dtype
            out = allocate(self.backend, batch + shape, dtype, "a transform")
        return out, math.prod(batch)


class SciPyEngine(Engine):
    """``scipy.fft`` on the CPU."""

    name = "scipy.fft"

    @property
    def workers(self) -> int:
        """Threads of a transform: those of the plan, or as many as suit the size."""
        return default_threads(self.size // 8) if self.threads is None else self.threads

    def describe(self) -> str:
        return f"{self.name}, {self.workers} thread{'s' * (self.workers > 1)}"

    def run(self, array: np.ndarray, sign: int, out: Any = None) -> np.ndarray:
        with scipy.fft.set_workers(self.workers):
            if not self.real:
                transform = scipy.fft.fftn if sign == FORWARD else scipy.fft.ifftn
                norm = "backward" if sign == FORWARD else "forward"
                in_place = out is not None and out is array
                result = transform(array, axes=self.axes, norm=norm, overwrite_x=in_place)
            elif sign == FORWARD:
                result = scipy.fft.rfftn(array, axes=self.axes)
            else:
                result = scipy.fft.irfftn(array, s=self.shape, axes=self.axes, norm="forward", overwrite_x=True)
        if out is None or result is out:
            return result
        np.copyto(out, result)
        return out


class CuFftEngine(Engine):
    """cuFFT through CuPy. Plans and their work areas are kept, so that a CUDA graph can capture a call."""

    name = "cuFFT"

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._plans: dict[tuple[int, int], Any] = {}  # by kind and batch

    @property
    def nbytes(self) -> int:
        return sum(int(plan.work_area.mem.size) for plan in self._plans.values())

    def describe(self) -> str:
        return f"{self.name}, {self.nbytes:,} bytes of work memory"

    def reserve(self, batch: int) -> None:
        for sign in (FORWARD, BACKWARD) if self.real else (FORWARD,):
            self._plan(batch, sign)

    def _plan(self, batch: int, sign: int) -> Any:
        key = (batch, sign if self.real else 0)
        plan = self._plans.get(key)
        if plan is None:
            from cupy.cuda import cufft

            double = self.dtype == np.float64
            names = ("C2C", "Z2Z")
            if self.real:
                names = ("R2C", "D2Z") if sign == FORWARD else ("C2R", "Z2D")
            kind = getattr(cufft, f"CUFFT_{names[double]}")
            field, modes = self.shape, self.spectrum_shape
            source, target = (field, modes) if sign == FORWARD else (modes, field)
            # Dense arrays, one after the other.
            plan = cufft.PlanNd(
                field, source, 1, math.prod(source), target, 1, math.prod(target), kind, batch, "C", len(field), None
            )
            self._plans[key] = plan
        return plan

    def run(self, array: Any, sign: int, out: Any = None) -> Any:
        out, batch = self._out(array, out, sign)
        if batch:
            plan = self._plan(batch, sign)
            self.backend.submit_call(lambda source, target: plan.fft(source, target, sign), array, out, on_device=True)
        return out


class VkFftEngine(Engine):
    """VkFFT through pyvkfft, for PyOpenCL arrays at the start of a buffer and axes of two nodes and more."""

    name = "VkFFT"

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._apps: dict[tuple[int, bool, int], Any] = {}  # by batch, whether in place, queue

    def run(self, array: Any, sign: int, out: Any = None) -> Any:
        out, batch = self._out(array, out, sign)
        if not batch:
            return out
        queue = self.backend.queue  # type: ignore[attr-defined]  # an OpenCL backend
        in_place = out is array
        key = (batch, in_place, queue.int_ptr)
        app = self._apps.get(key)
        if app is None:
            from pyvkfft.opencl import VkFFTApp

            app = self._apps[key] = VkFFTApp(
                (batch, *self.shape),
                self.field_dtype,
                queue,
                ndim=len(self.shape),
                inplace=in_place,
                norm=0,
                r2c=self.real,
            )
        source, target = self._plain(array), array if in_place else self._plain(out)
        source = source.reshape(batch, *source.shape[source.ndim - len(self.shape) :])
        target = source if in_place else target.reshape(batch, *target.shape[target.ndim - len(self.shape) :])
        transform = app.fft if sign == FORWARD else app.ifft
        if in_place:
            self.backend.submit_call(lambda array: transform(array, array), source)
        else:
            self.backend.submit_call(transform, source, target)
        return out

    def _plain(self, array: Any) -> Any:
        if array.offset:
            raise ValueError("VkFFT needs arrays without an offset in their buffer: give a copy.")
        return array


class HostEngine(SciPyEngine):
    """``scipy.fft`` on the host, for OpenCL arrays that VkFFT does not transform. It copies both ways and waits."""

    name = "scipy.fft on the host"

    def describe(self) -> str:
        why = "VkFFT needs two nodes per axis" if _vkfft() else "install pyvkfft to transform on the device"
        return f"{super().describe()} ({why})"

    def run(self, array: Any, sign: int, out: Any = None) -> Any:
        backend, transform = self.backend, super().run
        out, _ = self._out(array, out, sign)

        def by_host(source: Any, target: Any) -> None:
            result = backend.upload(transform(backend.download(source), sign))
            backend.copy(target.reshape(-1), result.reshape(-1))  # copies take five axes

        backend.submit_call(by_host, array, out)
        return out


def plain(native: Any) -> bool:
    """Return whether engines take a native array: in C order, and in OpenCL at the start of its buffer."""
    return bool(native.flags.c_contiguous) and gapless(native) and not getattr(native, "offset", 0)


def dense(backend: Backend, native: Any) -> Any:
    """Return a copy of a native array that engines take."""
    copy = allocate(backend, tuple(native.shape), native.dtype, "a dense copy")
    backend.copy(copy, native)
    return copy


@functools.cache
def _vkfft() -> bool:
    return importlib.util.find_spec("pyvkfft") is not None


def engine(backend: Backend, shape: tuple[int, ...], dtype: Any, *, real: bool, threads: int | None = None) -> Engine:
    """Return the engine of a backend: SciPy, cuFFT, VkFFT, or SciPy on the host; see :class:`Engine`.

    Examples
    --------
    >>> from particlemesh import backends
    >>> transform = engine(backends.current("cpu"), (4,), "float64", real=True)
    >>> transform.forward(np.array([1.0, 0.0, 0.0, 0.0]))
    array([1.+0.j, 1.+0.j, 1.+0.j])
    """
    if backend.name == "opencl":
        kind: type[Engine] = VkFftEngine if _vkfft() and min(shape) > 1 else HostEngine
    else:
        kind = {"cpu": SciPyEngine, "cuda": CuFftEngine}[backend.name]
    return kind(backend, shape, dtype, real=real, threads=threads)
