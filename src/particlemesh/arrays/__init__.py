# SPDX-License-Identifier: BSD-3-Clause
"""Array kinds: whatever comes in goes out again, same kind, same device.

Each kind is an adapter of a few lines between the user's array and the native array of a backend
(NumPy, CuPy, PyOpenCL). ``View`` is how methods see an array: reals, with one stride for every axis.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

NOTHING: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
CUPY_ARRAY: Any = None  # set when CuPy is loaded
REALS = {"f": 4, "d": 8, "F": 4, "D": 8}  # bytes of a real, by dtype character


class Kind:
    """One kind of user arrays."""

    name: ClassVar[str]
    home: ClassVar[str]  # backend whose native arrays these are, without a copy
    module: ClassVar[str]  # an array can only be of this kind when it is loaded

    def owns(self, array: Any) -> bool:
        raise NotImplementedError

    def native(self, array: Any) -> Any:
        """Return the native array that shares the user's memory."""
        return array

    def wrap(self, native: Any) -> Any:
        """Return the user's kind of array over a native array's memory."""
        return native

    def dtype(self, array: Any) -> np.dtype:
        return np.dtype(array.dtype)

    def backend(self, array: Any) -> Any:
        """Return the backend object the array lives on."""
        from particlemesh import backends

        return backends.current(self.home)

    def on(self, array: Any, backend: Any) -> bool:
        """Return whether the array lives on ``backend``."""
        return self.backend(array) is backend

    def scope(self, array: Any) -> contextlib.AbstractContextManager[Any]:
        """Enter the stream the array's library works on, where it is not the backend's own."""
        return NOTHING


class NumPyKind(Kind):
    name, home, module = "NumPy", "cpu", "numpy"

    def on(self, array: Any, backend: Any) -> bool:
        return bool(backend.name == "cpu")

    def owns(self, array: Any) -> bool:
        return isinstance(array, np.ndarray)

    def native(self, array: Any) -> Any:
        if isinstance(array, np.ma.MaskedArray):
            raise TypeError("masked arrays are not taken: the mask would be lost. Index the array, or fill in zeros.")
        # Foreign byte order and misalignment would have to be known everywhere: a copy ends them here.
        if not (array.dtype.isnative and array.flags.aligned):
            return array.astype(array.dtype.newbyteorder("="))
        return array


class CuPyKind(Kind):
    name, home, module = "CuPy", "cuda", "cupy"

    def owns(self, array: Any) -> bool:
        return isinstance(array, sys.modules["cupy"].ndarray)

    def backend(self, array: Any) -> Any:
        from particlemesh.backends import cuda

        return cuda.backend(array.device.id)

    def on(self, array: Any, backend: Any) -> bool:
        return backend.name == "cuda" and array.data.device_id == backend.ordinal


class OpenClKind(Kind):
    name, home, module = "PyOpenCL", "opencl", "pyopencl.array"

    def owns(self, array: Any) -> bool:
        return isinstance(array, sys.modules["pyopencl.array"].Array)

    def backend(self, array: Any) -> Any:
        from particlemesh.backends import opencl

        if array.queue is None:
            raise ValueError("this PyOpenCL array has no queue; give it one with array.with_queue(queue).")
        return opencl.backend(array.queue.context, array.queue.device)

    def on(self, array: Any, backend: Any) -> bool:
        return backend.name == "opencl" and array.queue is not None and backend.serves(array.queue)


_NUMBERS = {np.dtype(char).name for char in "?bhilqBHILQefdFD"}


class _Torch(Kind):
    module = "torch"

    def _refuse_grad(self, array: Any) -> None:
        if array.requires_grad:
            raise TypeError(
                "this tensor requires grad, and particlemesh has no autograd yet: gradients would be lost. "
                "Pass tensor.detach() and use Plan.gradient and its adjoints."
            )

    def dtype(self, array: Any) -> np.dtype:
        name = str(array.dtype).removeprefix("torch.")
        if name in _NUMBERS:  # NumPy may have learnt more types from others, and could not hold them
            return np.dtype(name)
        raise TypeError(f"dtype {name} is not supported; use float32, float64, complex64 or complex128.")


class TorchCpuKind(_Torch):
    name, home = "PyTorch (CPU)", "cpu"

    def owns(self, array: Any) -> bool:
        torch = sys.modules["torch"]
        return isinstance(array, torch.Tensor) and array.device.type == "cpu"

    def native(self, array: Any) -> Any:
        self._refuse_grad(array)
        self.dtype(array)
        return array.resolve_conj().resolve_neg().numpy()

    def wrap(self, native: Any) -> Any:
        return sys.modules["torch"].from_numpy(native)


class _ForeignStream:
    """A stream of another library, by the protocol that CuPy takes streams with."""

    def __init__(self, handle: int) -> None:
        self._handle = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self._handle


class TorchCudaKind(_Torch):
    name, home = "PyTorch (CUDA)", "cuda"

    def owns(self, array: Any) -> bool:
        torch = sys.modules["torch"]
        return isinstance(array, torch.Tensor) and array.device.type == "cuda"

    def native(self, array: Any) -> Any:
        import cupy

        self._refuse_grad(array)
        self.dtype(array)
        return cupy.asarray(array.resolve_conj().resolve_neg())

    def wrap(self, native: Any) -> Any:
        return sys.modules["torch"].from_dlpack(native)

    def backend(self, array: Any) -> Any:
        from particlemesh.backends import cuda

        return cuda.backend(array.device.index)

    def scope(self, array: Any) -> contextlib.AbstractContextManager[Any]:
        import cupy

        stream = sys.modules["torch"].cuda.current_stream(array.device)
        if hasattr(cupy.cuda.Stream, "from_external"):
            return cupy.cuda.Stream.from_external(_ForeignStream(stream.cuda_stream))
        return cupy.cuda.ExternalStream(stream.cuda_stream, array.device.index)


KINDS: tuple[Kind, ...] = (NumPyKind(), CuPyKind(), OpenClKind(), TorchCpuKind(), TorchCudaKind())
NUMPY = KINDS[0]
_by_type: dict[type, Kind] = {}


def kind_of(array: Any) -> Kind | None:
    """Return the kind of ``array``, or None if it is of no kind we know."""
    kind = _by_type.get(type(array))  # a torch tensor's type does not tell its device
    if kind is not None:
        return kind
    for kind in KINDS:
        if kind.module in sys.modules and kind.owns(array):
            if kind.module != "torch":
                _by_type[type(array)] = kind
            return kind
    return None


class Layout:
    """Where the reals of an array lie: shape, strides in reals, parts of a number last.

    Layouts are made once for each set of numbers and compared by identity, so that what was worked out
    for a layout is found again at the price of a dictionary's look-up.
    """

    __slots__ = ("alignment", "offset", "overlaps", "shape", "strides")

    def __init__(self, offset: int, shape: tuple[int, ...], strides: tuple[int, ...], alignment: int) -> None:
        self.offset = offset  # of the first real, from the start of the kernel's pointer
        self.shape = shape
        self.strides = strides
        self.alignment = alignment  # of the first real's address, in bytes, up to 16
        self.overlaps = _overlaps(shape, strides)

    @property
    def parts(self) -> int:
        return self.shape[-1]

    @property
    def channels(self) -> int:
        return self.shape[0]


def _overlaps(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Return whether elements may share memory: every axis must step over all that the smaller ones span."""
    span = 1
    for stride, size in sorted((abs(s), n) for n, s in zip(shape, strides, strict=True) if n > 1):
        if stride < span:
            return True
        span = stride * (size - 1) + span
    return False


@dataclass(slots=True)
class View:
    """An array as methods see it: (channels, ..., parts) of reals."""

    array: Any  # native; keeps the memory alive
    layout: Layout

    def numpy(self) -> np.ndarray:
        """Return the strided NumPy array (native arrays of the CPU only)."""
        real = self.array.real
        strides = tuple(s * real.dtype.itemsize for s in self.layout.strides)
        return np.lib.stride_tricks.as_strided(real, self.layout.shape, strides, writeable=real.flags.writeable)


def view(array: Any, core: int, axes: int) -> View | None:
    """Return a view whose last ``core`` axes are kept and whose batch axes are one; None if they cannot be.

    They cannot where the batch axes have no common stride, or a stride is no whole number of reals.
    ``axes`` is how many axes the core shall have: missing ones come first, one element thick.
    """
    offset = getattr(array, "offset", 0)  # PyOpenCL's, in bytes; others point at the first element
    address = array.data.ptr if array.__class__ is CUPY_ARRAY else offset
    layout = _layout(array.shape, array.strides, array.dtype.char, core, axes, offset, address & 15)
    return None if layout is None else View(array, layout)


@functools.lru_cache(maxsize=4096)
def _layout(
    shape: tuple[int, ...], strides: tuple[int, ...], char: str, core: int, axes: int, offset: int, low_bits: int
) -> Layout | None:
    bytes_of_real, parts = REALS[char], 2 if char in "FD" else 1
    batch = len(shape) - core
    channels, step = 1, 0
    empty = 0 in shape[:batch]  # whatever its strides
    for size, stride in zip(reversed(shape[:batch]), reversed(strides[:batch]), strict=True):
        if size == 1 or empty:
            continue
        if channels == 1:
            channels, step = size, stride
        elif stride == step * channels:
            channels *= size
        else:
            return None
    if empty:
        channels = 0
    missing = axes - core
    strides = (step, *(0,) * missing, *strides[batch:])
    if any(s % bytes_of_real for s in strides):
        return None
    shape = (channels, *(1,) * missing, *shape[batch:], parts)
    alignment = low_bits & -low_bits or 16
    return Layout(offset // bytes_of_real, shape, (*(s // bytes_of_real for s in strides), 1), alignment)
