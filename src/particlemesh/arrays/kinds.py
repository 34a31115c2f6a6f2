# SPDX-License-Identifier: BSD-3-Clause
"""Kinds of arrays: results have the kind and device of the input.

Each kind adapts the user's array to the native array of a backend (NumPy, CuPy, PyOpenCL). Arrays of libraries without
a kind of their own come by DLPack, by the array API, and without labels. A plan then computes with the NumPy or CuPy
array over their memory, and hands its results to their library.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import math
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any, ClassVar

import numpy as np

from particlemesh import backends, checks
from particlemesh.backends.base import NOTHING, Backend
from particlemesh.backends.tapes import FORMS, ArrayForm


def allocate(backend: Backend, shape: tuple[int, ...] | int, dtype: Any, what: str, less: str = "") -> Any:
    """Return a new native array, or raise an error that says what it was for.

    Parameters
    ----------
    backend : Backend
        Where the memory is.
    shape : int or tuple of int
    dtype : dtype_like
    what : str
        Its purpose, for the message.
    less : str
        What the user can do, for the end of the message.

    Returns
    -------
    native array
        In C order; its numbers are not set.

    Raises
    ------
    MemoryError
        With the bytes needed and the bytes that are free.

    Examples
    --------
    >>> from particlemesh.backends import cpu
    >>> allocate(cpu.current(), (2, 3), "float32", "the forces").shape
    (2, 3)
    """
    size = math.prod((shape,) if isinstance(shape, int) else shape) * np.dtype(dtype).itemsize
    try:
        if size > sys.maxsize:  # array libraries fail on such sizes in other ways
            raise MemoryError
        return backend.empty(shape, dtype)
    except MemoryError as error:
        raise MemoryError(
            f"cannot allocate {size:,} bytes for {what}: "
            f"{backend.free_bytes():,} bytes are free on {backend.device}{less}."
        ) from error


class Kind:
    """One kind of arrays: a library, and where its memory is.

    Attributes
    ----------
    name : str
        For messages: ``"PyTorch (CUDA)"``.
    home : str
        The backend whose native arrays share their memory: ``"cpu"``, ``"cuda"`` or ``"opencl"``.

    Examples
    --------
    >>> from particlemesh.kernels import kind_of
    >>> kind = kind_of(np.zeros(3, np.float32))
    >>> kind.name, kind.home, kind.dtype(np.zeros(3, np.float32))
    ('NumPy', 'cpu', dtype('float32'))
    """

    name: str
    home: str  # backend whose native arrays these are, without a copy
    records = False  # whether its library may record calls for derivatives
    module: ClassVar[str]  # loaded wherever such an array exists

    def owns(self, array: Any) -> bool:
        """Return whether an array is of this kind."""
        raise NotImplementedError

    def native(self, array: Any) -> Any:
        """Return the native array that shares the user's memory."""
        return array

    def target(self, out: Any) -> Any:
        """Return the native array that shares the memory of a writeable output."""
        return self.native(out)

    def wrap(self, native: Any) -> Any:
        """Return the user's kind of array over a native array's memory."""
        return native

    def dtype(self, array: Any) -> np.dtype:
        """Return an array's dtype as NumPy has it."""
        return np.dtype(array.dtype)

    def backend(self, array: Any) -> Any:
        """Return the backend object the array lives on."""
        return backends.current(self.home)

    def on(self, array: Any, backend: Any) -> bool:
        """Return whether the array lives on ``backend``."""
        return bool(self.backend(array) == backend)

    def scope(self, array: Any) -> contextlib.AbstractContextManager[Any]:
        """Enter the current stream of the array's library, where it differs from the backend's."""
        return NOTHING

    def recorder(self, array: Any) -> Any:
        """Return our module that makes differentiable calls, if the array's library records what happens to it."""
        return None

    def form(self, array: Any) -> ArrayForm | None:
        """Return what launches take from an array, or None where its calls are not taped."""
        return None

    def new(self, shape: tuple[int, ...], dtype: np.dtype, like: Any, backend: Any) -> Any:
        """Return a new array of this kind on the device of another."""
        return self.wrap(allocate(backend, shape, dtype, "the result"))


class NumPyKind(Kind):
    name, home, module = "NumPy", "cpu", "numpy"

    def on(self, array: Any, backend: Any) -> bool:
        return bool(backend.name == "cpu")

    def owns(self, array: Any) -> bool:
        return isinstance(array, np.ndarray)

    def native(self, array: Any) -> Any:
        if array.__class__ is not np.ndarray:
            checks.unmasked(array)
        # Arrays with foreign byte order or misaligned memory are copied.
        if not (array.dtype.isnative and array.flags.aligned):
            return array.astype(array.dtype.newbyteorder("="))
        return array

    def target(self, out: Any) -> Any:
        native = self.native(out)
        if not native.flags.writeable:
            raise ValueError("out is read-only; give a writeable array.")
        if native is not out:
            raise TypeError("out has foreign byte order or is misaligned; give a native, aligned array.")
        return native


class CuPyKind(Kind):
    name, home, module = "CuPy", "cuda", "cupy"

    def owns(self, array: Any) -> bool:
        return isinstance(array, sys.modules["cupy"].ndarray)

    def backend(self, array: Any) -> Any:
        return backends.module("cuda").backend(array.device.id)

    def on(self, array: Any, backend: Any) -> bool:
        return backend.name == "cuda" and array.data.device_id == backend.ordinal


class OpenClKind(Kind):
    name, home, module = "PyOpenCL", "opencl", "pyopencl.array"

    def owns(self, array: Any) -> bool:
        return isinstance(array, sys.modules["pyopencl.array"].Array)

    def target(self, out: Any) -> Any:
        if hasattr(out.base_data, "svm_ptr"):
            raise TypeError("out lies in shared virtual memory, which is read-only here: give an array in a buffer.")
        return out

    def backend(self, array: Any) -> Any:
        if array.queue is None:
            raise ValueError("this PyOpenCL array has no queue; give it one with array.with_queue(queue).")
        return backends.module("opencl").backend(array.queue.context, array.queue.device)

    def on(self, array: Any, backend: Any) -> bool:
        return backend.name == "opencl" and array.queue is not None and backend.serves(array.queue)


_NUMBERS = {np.dtype(char).name for char in "?bhilqBHILQefdFD"}


@functools.cache
def _dtype_of_tensors(dtype: Any) -> np.dtype | None:
    name = str(dtype).removeprefix("torch.")
    # Not every name that NumPy knows: other packages register types.
    return np.dtype(name) if name in _NUMBERS else None


class _Torch(Kind):
    module, records = "torch", True

    def recorder(self, array: Any) -> Any:
        if array.requires_grad and sys.modules["torch"].is_grad_enabled():
            # Its imports point here: it is loaded by name, at first use.
            return importlib.import_module("particlemesh.autograd.torch_plans")
        return None

    def _unrecorded(self, array: Any) -> Any:
        """Return a resolved tensor outside of autograd, where gradients are not lost by that."""
        if array.requires_grad and sys.modules["torch"].is_grad_enabled():
            raise TypeError(
                "this tensor requires grad, and this call is not differentiable: gradients would be lost. "
                "Pass tensor.detach(), or call it under torch.no_grad(). Functions of particlemesh.autograd.torch "
                "have derivatives."
            )
        self.dtype(array)
        return array.detach().resolve_conj().resolve_neg()

    def form(self, array: Any) -> ArrayForm | None:
        if not array.is_cuda or array.requires_grad or array.is_conj() or array.is_neg():
            return None
        dtype, stream = _dtype_of_tensors(array.dtype), sys.modules["torch"].cuda.current_stream(array.get_device())
        # A tape plays on CuPy's current stream: outside of `scope` it may be another.
        if dtype is None or stream.cuda_stream != sys.modules["cupy"].cuda.get_current_stream().ptr:
            return None
        size = dtype.itemsize
        strides = tuple([size * step for step in array.stride()])
        return array.data_ptr(), tuple(array.shape), strides, dtype.char, size, array.get_device()

    def dtype(self, array: Any) -> np.dtype:
        dtype = _dtype_of_tensors(array.dtype)
        if dtype is not None:
            return dtype
        raise checks.unsupported_type(str(array.dtype).removeprefix("torch."), "a tensor")

    def target(self, out: Any) -> Any:
        if out.is_conj() or out.is_neg():
            raise ValueError(
                "out is a lazy conjugate or negative view of a tensor, whose memory holds other numbers: give a "
                "resolved tensor, such as out.resolve_conj().resolve_neg()."
            )
        return self.native(out)


class TorchCpuKind(_Torch):
    name, home = "PyTorch (CPU)", "cpu"

    def owns(self, array: Any) -> bool:
        torch = sys.modules["torch"]
        return isinstance(array, torch.Tensor) and array.device.type == "cpu"

    def native(self, array: Any) -> Any:
        return self._unrecorded(array).numpy()

    def wrap(self, native: Any) -> Any:
        # torch has no read-only tensors.
        return sys.modules["torch"].from_numpy(native if native.flags.writeable else native.copy())


class _ForeignStream:
    """A stream of another library in CuPy's stream protocol."""

    def __init__(self, handle: int) -> None:
        self._handle = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self._handle


def cuda_stream(handle: int, device: int) -> contextlib.AbstractContextManager[Any]:
    """Return CuPy's name for a stream of another library, given by its address."""
    import cupy

    if hasattr(cupy.cuda.Stream, "from_external"):
        return cupy.cuda.Stream.from_external(_ForeignStream(handle))
    return cupy.cuda.ExternalStream(handle, device)


class TorchCudaKind(_Torch):
    name, home = "PyTorch (CUDA)", "cuda"

    def owns(self, array: Any) -> bool:
        torch = sys.modules["torch"]
        return isinstance(array, torch.Tensor) and array.device.type == "cuda"

    def native(self, array: Any) -> Any:
        import cupy

        return cupy.asarray(self._unrecorded(array))

    def wrap(self, native: Any) -> Any:
        return sys.modules["torch"].from_dlpack(native)

    def new(self, shape: tuple[int, ...], dtype: np.dtype, like: Any, backend: Any) -> Any:
        torch = sys.modules["torch"]
        return torch.empty(shape, dtype=getattr(torch, dtype.name), device=like.device)

    def backend(self, array: Any) -> Any:
        return backends.module("cuda").backend(array.device.index)

    def scope(self, array: Any) -> contextlib.AbstractContextManager[Any]:
        import cupy

        handle, device = sys.modules["torch"].cuda.current_stream(array.device).cuda_stream, array.device.index
        if cupy.cuda.get_current_stream().ptr == handle and cupy.cuda.runtime.getDevice() == device:
            return NOTHING  # there already
        return cuda_stream(handle, device)


class _Jax(Kind):
    module = "jax"

    @staticmethod
    def _traced(array: Any) -> bool:
        return isinstance(array, sys.modules["jax"].core.Tracer)

    def owns(self, array: Any) -> bool:
        if not isinstance(array, sys.modules["jax"].Array):
            return False
        platform = "cpu" if self._traced(array) else next(iter(array.devices())).platform
        return (platform == "cpu") == (self.home == "cpu")

    def _one(self, array: Any) -> Any:
        """Return an array that has numbers, all of them on one device."""
        if self._traced(array):
            raise TypeError(
                "this JAX array is traced by jit, grad or vmap and has no numbers yet: use the functions of "
                "particlemesh.autograd.jax, which can be traced."
            )
        if len(array.devices()) > 1:
            raise ValueError(f"this JAX array lies on {len(array.devices())} devices: give one that lies on one.")
        return array

    def target(self, out: Any) -> Any:
        raise TypeError("out is a JAX array, and those are never written: leave out= out.")

    def wrap(self, native: Any) -> Any:
        jax = sys.modules["jax"]
        with jax.enable_x64(True):  # elsewhere it would round numbers of 64 bits
            return jax.dlpack.from_dlpack(native)


class JaxCpuKind(_Jax):
    name, home = "JAX (CPU)", "cpu"

    def native(self, array: Any) -> Any:
        return np.asarray(self._one(array))

    def wrap(self, native: Any) -> Any:
        return super().wrap(native if native.flags.writeable else native.copy())


class JaxCudaKind(_Jax):
    name, home = "JAX (CUDA)", "cuda"

    def native(self, array: Any) -> Any:
        import cupy

        return cupy.from_dlpack(self._one(array))  # CuPy's current stream waits for the array

    def backend(self, array: Any) -> Any:
        return backends.module("cuda").backend(self.native(array).device.id)

    @contextlib.contextmanager
    def scope(self, array: Any) -> Iterator[None]:
        import cupy

        # A grid keeps no array of the caller, but its device.
        device = (
            self.native(array).device if hasattr(array, "devices") else cupy.cuda.Device(array.device.local_hardware_id)
        )
        with device:
            yield
            cupy.cuda.get_current_stream().synchronize()  # JAX knows no other library's work on memory that it frees


KINDS: tuple[Kind, ...] = (
    NumPyKind(), CuPyKind(), OpenClKind(), TorchCpuKind(), TorchCudaKind(), JaxCpuKind(), JaxCudaKind(),
)  # fmt: skip
NUMPY = KINDS[0]
_by_type: dict[type, Kind] = {}


def kind_of(array: Any) -> Kind | None:
    """Return the kind of an array, or None if the library does not know it.

    Parameters
    ----------
    array : object

    Returns
    -------
    Kind or None

    Examples
    --------
    >>> x = np.zeros(3)
    >>> kind_of(x).name, kind_of(x).dtype(x).itemsize, kind_of([0.0])
    ('NumPy', 8, None)
    """
    kind = _by_type.get(type(array))  # never of torch or JAX: their types do not have the device
    if kind is not None or array is None or array.__class__ is float:
        return kind
    for kind in KINDS:
        if kind.module in sys.modules and kind.owns(array):
            if kind.module not in ("torch", "jax"):
                _by_type[type(array)] = kind
            FORMS.setdefault(type(array), kind.form)  # one function serves all tensors; CuPy's is the backend's
            return kind
    return None


def recorder_of(*arrays: Any) -> Any:
    """Return our module that makes differentiable calls, if a library records what happens to one of the arrays."""
    for array in arrays:
        kind = kind_of(array)
        recorder = None if kind is None else kind.recorder(array)
        if recorder is not None:
            return recorder
    return None


# Of DLPack's DLDeviceType. Memory that is pinned by CUDA is the host's.
_CPU, _CUDA, _PINNED, _MANAGED = 1, 2, 3, 13
_REFUSALS = (BufferError, TypeError, ValueError, RuntimeError, NotImplementedError, AttributeError, IndexError)


# ---- libraries without a kind of their own --------------------------------------------------------------------------


class Foreign(Kind):
    """Arrays of a library that DLPack reaches; natives stand for them from where they come in."""

    module = "numpy"

    def __init__(self, like: Any, home: str) -> None:
        kind = type(like)
        self.name = f"{kind.__module__.partition('.')[0]}.{kind.__qualname__}"
        self.home, self._natives = home, next(kind for kind in KINDS if kind.home == home)
        self._library = _library(like)
        self._device = getattr(like, "device", None)

    def owns(self, array: Any) -> bool:
        return False  # its arrays are natives by now

    def backend(self, array: Any) -> Any:
        return self._natives.backend(array)

    def on(self, array: Any, backend: Any) -> bool:
        return self._natives.on(array, backend)

    def wrap(self, native: Any) -> Any:
        """Return an array of the library, on the device of the input; without a library the native array."""
        library = self._library
        if library is None:
            return native
        if self.home != "cpu":
            return library.from_dlpack(native)
        if not native.flags.writeable:
            native = native.copy()  # a plan's memory
        if not hasattr(library, "asarray"):
            return library.from_dlpack(native)
        number = getattr(library, native.dtype.name, None)  # some libraries have another default than the array's
        options = {"dtype": number, "device": self._device}
        return library.asarray(native, **{name: value for name, value in options.items() if value is not None})


def foreign(array: Any, what: str) -> tuple[Kind, Any] | None:
    """Return the kind and the native array of pandas' columns and of arrays with ``__dlpack__``; None for others.

    Raises
    ------
    TypeError
        If the array's library refuses, or its memory is on a device that no backend reaches.
    """
    if _is_pandas(array):
        numbers = of_pandas(array)
        checks.number_type(numbers.dtype, what)
        return NUMPY, numbers
    if not hasattr(array, "__dlpack__"):
        return None
    try:
        place = array.__dlpack_device__()[0] if hasattr(array, "__dlpack_device__") else _CPU
        if int(place) in (_CUDA, _MANAGED):
            import cupy

            return Foreign(array, "cuda"), cupy.from_dlpack(array)
        return Foreign(array, "cpu"), _on_host(array, int(place))
    except (ImportError, *_REFUSALS) as error:  # half of a protocol, too
        raise TypeError(
            f"{what} is of type {type(array).__name__}, and DLPack gives no array of it ({error}): convert it to NumPy."
        ) from error


def _on_host(array: Any, place: int) -> np.ndarray:
    """Return a NumPy array over the memory of an array, or of a copy where the host does not reach it."""
    if place in (_CPU, _PINNED):
        return np.from_dlpack(array)
    try:
        return np.from_dlpack(array, device="cpu")
    except _REFUSALS:
        return np.asarray(memoryview(array))  # memory that a GPU shares with the host, as in MLX


def _library(array: Any) -> ModuleType | None:
    """Return the namespace that makes arrays like this one, or None."""
    if hasattr(array, "__array_namespace__"):
        namespace: ModuleType = array.__array_namespace__()
        return namespace
    name = type(array).__module__
    while name:
        module = sys.modules.get(name)
        if module is not None and hasattr(module, "from_dlpack"):
            return module
        name = name.rpartition(".")[0]
    return None


def of_pandas(table: Any) -> np.ndarray:
    """Return the numbers of a Series (N,) or a DataFrame (N, columns); missing ones are NaN.

    Columns of pandas' own types, such as Float64, and of Arrow's become NumPy's type of the same numbers. Integers with
    missing ones become float64. What has no numbers becomes objects.
    """
    if table.ndim == 1:
        return _column(table)
    if all(isinstance(dtype, np.dtype) for dtype in table.dtypes) or not len(table.columns):
        return np.asarray(table.to_numpy())
    return np.stack([_column(table.iloc[:, k]) for k in range(len(table.columns))], axis=1)


def _column(series: Any) -> np.ndarray:
    dtype = getattr(series.dtype, "numpy_dtype", series.dtype)  # of extension types
    if dtype is series.dtype or not isinstance(dtype, np.dtype) or dtype.kind not in "iuf":
        return np.asarray(series.to_numpy())
    missing = bool(series.isna().any())
    dtype = np.dtype(np.float64) if missing and dtype.kind in "iu" else dtype
    return np.asarray(series.to_numpy(dtype=dtype, na_value=np.nan) if missing else series.to_numpy(dtype=dtype))


def _is_pandas(array: Any) -> bool:
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(array, (pandas.DataFrame, pandas.Series))
