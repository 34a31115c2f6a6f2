# SPDX-License-Identifier: BSD-3-Clause
"""Arrays of libraries that have no kind of their own: by DLPack, by the array API, and without labels.

A plan computes with the NumPy or CuPy array over their memory, and hands its results to their library.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import numpy as np

from particlemesh import backends, checks
from particlemesh.arrays.kinds import NUMPY, Kind

# Of DLPack's DLDeviceType. Memory that is pinned by CUDA is the host's.
_CPU, _CUDA, _PINNED, _MANAGED = 1, 2, 3, 13
_REFUSALS = (BufferError, TypeError, ValueError, RuntimeError, NotImplementedError, AttributeError, IndexError)


class Foreign(Kind):
    """Arrays of a library that DLPack reaches; natives stand for them from where they come in."""

    module = "numpy"

    def __init__(self, like: Any, home: str) -> None:
        kind = type(like)
        self.name = f"{kind.__module__.partition('.')[0]}.{kind.__qualname__}"
        self.home = home
        self._library = _library(like)
        self._device = getattr(like, "device", None)

    def owns(self, array: Any) -> bool:
        return False  # its arrays are natives by now

    def backend(self, array: Any) -> Any:
        if self.home == "cpu":
            return backends.current("cpu")
        from particlemesh.backends import cuda

        return cuda.backend(array.device.id)

    def on(self, array: Any, backend: Any) -> bool:
        if self.home == "cpu":
            return bool(backend.name == "cpu")
        return backend.name == "cuda" and array.data.device_id == backend.ordinal

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
