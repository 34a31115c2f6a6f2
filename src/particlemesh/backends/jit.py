# SPDX-License-Identifier: BSD-3-Clause
"""Compiling Python functions for the CPU, with a disk cache that tolerates damaged and concurrent files."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from llvmlite.binding import ffi
from numba import njit
from numba.core.caching import IndexDataCacheFile, NullCache
from numba.core.compiler_lock import global_compiler_lock
from numba.core.dispatcher import Dispatcher
from numba.core.errors import NumbaError

from particlemesh.backends.folders import foreign, trusted, warn
from particlemesh.backends.frozen import Frozen
from particlemesh.checks import through_forks

# A compiling thread takes Numba's lock, then LLVM's.
through_forks(ffi.lib._lock._lock)
through_forks(global_compiler_lock)


class _CacheFile(IndexDataCacheFile):
    """Numba's cache file; one that is unreadable, or that others may have written, is a miss: it is a pickle.

    Numba numbers its data files, so two processes that compile different signatures at the same time may
    write different code under one number. Here the signature determines the name.
    """

    variable = "NUMBA_CACHE_DIR"
    values: str | None = None  # digest of constants, if the index is for some of them only

    def _load_index(self) -> dict:
        try:
            return super()._load_index() if self._trusted(self._index_path) else {}
        except Exception:  # noqa: BLE001 - a damaged pickle raises anything
            return {}

    def _load_data(self, name: str) -> Any:
        return super()._load_data(name) if self._trusted(self._data_path(name)) else None

    def _trusted(self, path: str) -> bool:
        return trusted(Path(path), "compiled functions", self.variable)

    def load(self, key: Any) -> Any:
        try:
            return super().load(key)
        except Exception:  # noqa: BLE001 - as above
            return None

    def save(self, key: Any, data: Any) -> None:
        if foreign(Path(self._cache_path)):
            return
        overloads = self._load_index()
        digest = hashlib.sha256(repr((key, self.values) if self.values else key).encode()).hexdigest()[:16]
        overloads[key] = self._data_name_pattern.replace("{number:d}", digest)
        self._save_data(overloads[key], data)
        self._save_index(overloads)


class _NoCache(NullCache):
    """No cache; warns when compiled code could not be kept."""

    def save_overload(self, *_: Any) -> None:
        beside = f"{Path(__file__).parents[1]} or the user's cache folder"
        warn("compiled functions", os.environ.get("NUMBA_CACHE_DIR") or beside, "no permission", "NUMBA_CACHE_DIR")


def _stamps(function: Callable) -> set[tuple[str, int, int]]:
    """Return name, time and size of the files whose code a compiled function contains.

    Numba checks the function's own file only and would keep outdated code of the functions it calls.
    """
    files = {function.__code__.co_filename}
    stamps: set[tuple[str, int, int]] = set()
    for name in function.__code__.co_names:
        used: Any = function.__globals__.get(name)
        if isinstance(used, Dispatcher):
            stamps |= getattr(used, "source_stamps", set())
        elif hasattr(used, "_defn"):  # an intrinsic
            files.add(used._defn.__code__.co_filename)
    for file in files:
        facts = Path(file).stat()
        stamps.add((Path(file).name, facts.st_mtime_ns, facts.st_size))
    return stamps


def _harden(dispatcher: Any, stamps: set[tuple[str, int, int]]) -> None:
    cache, function = dispatcher._cache, dispatcher.py_func
    plain = cache._cache_file
    name = plain._index_name.removesuffix(".nbi")
    ours = function.__module__.partition(".")[0] == "particlemesh"  # whose constants change with its files
    cache._cache_file = _CacheFile(plain._cache_path, name, (plain._source_stamp, sorted(stamps)))
    load, save = cache.load_overload, cache.save_overload

    def load_overload(signature: Any, target_context: Any) -> Any:
        if not ours:
            frozen = Frozen(function)
            cache._enabled = frozen.lasting
            cache._cache_file.values = frozen.digest
            cache._cache_file._source_stamp = (frozen.digest, np.__version__)
        try:
            loaded = load(signature, target_context)
        except Exception:  # noqa: BLE001 - as above
            loaded = None
        if loaded is None and not ours:
            frozen.renew()
        return loaded

    def save_overload(signature: Any, data: Any) -> None:
        # On a full or read-only disk the next process compiles again.
        try:
            save(signature, data)
        except OSError as error:
            warn("compiled functions", str(plain._cache_path), error.strerror or str(error), "NUMBA_CACHE_DIR")

    cache.load_overload, cache.save_overload = load_overload, save_overload


def compiled(function: Callable | None = None, *, cached: bool = True, **options: Any) -> Any:
    """Compile ``function`` at its first call, without the interpreter lock, and keep it on disk.

    Parameters
    ----------
    function
        A function at module level. Globals, closures, default arguments and attributes of modules are constants from
        its first call on. What is kept on disk is found by their values and by the functions that it calls.
    cached
        False for a generator: Numba cannot compile calls of one that it has read from the disk. Compiled callers
        contain its code. Its arguments must not be arrays: Numba's generators never give these back.
    **options
        More options of ``numba.njit``, such as ``inline`` or ``error_model``.

    Examples
    --------
    >>> @compiled(cached=False)
    ... def norm(x, y):
    ...     return (x * x + y * y) ** 0.5
    >>> norm(3.0, 4.0)
    5.0
    """
    if function is None:
        return lambda decorated: compiled(decorated, cached=cached, **options)
    options = {"nogil": True, "error_model": "numpy", **options}
    if not cached:
        dispatcher = njit(**options)(function)
        with contextlib.suppress(OSError):
            dispatcher.source_stamps = _stamps(function)
        return dispatcher
    try:
        dispatcher = njit(cache=True, **options)(function)
    except (RuntimeError, NumbaError):  # no writable folder
        dispatcher = njit(**options)(function)
        dispatcher._cache = _NoCache()
        return dispatcher
    try:
        stamps = _stamps(function)
        _harden(dispatcher, stamps)
        dispatcher.source_stamps = stamps
    except (AttributeError, TypeError, OSError):  # Numba has changed inside: use its own cache
        pass
    return dispatcher


class _Memory:
    """An array's memory, presented to NumPy as writable."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array  # keeps the memory alive
        address, _ = array.__array_interface__["data"]
        self.__array_interface__ = {**array.__array_interface__, "data": (address, False)}


def plain(array: np.ndarray) -> np.ndarray:
    """Return a contiguous array as a writable one of one axis, for a compiled function that only reads it.

    Numba would compile the function again for read-only arrays.

    Parameters
    ----------
    array : NumPy array
        In C order.

    Examples
    --------
    >>> x = np.arange(3.0)
    >>> x.flags.writeable = False
    >>> plain(x).flags.writeable
    True
    """
    flat = array.reshape(-1)
    return flat if flat.flags.writeable else np.asarray(_Memory(flat))
