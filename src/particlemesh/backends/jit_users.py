# SPDX-License-Identifier: BSD-3-Clause
"""Compiling users' functions for the CPU: once per source, cached in the library's folder.

Numba caches compiled code by the file of a function, so it caches nothing for functions passed as arguments.
Here the key is all that Numba writes into the code as constants.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import types
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import numpy as np
from numba import jit, njit
from numba.core.caching import CompileResultCacheImpl, FunctionCache, _CacheLocator
from numba.core.dispatcher import Dispatcher

from particlemesh.backends.folders import cache, warn
from particlemesh.backends.frozen import Frozen
from particlemesh.backends.jit import _CacheFile, _stamps

_LOG = logging.getLogger("particlemesh")
_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy"}
_loops: dict[Any, Any] = {}  # compiled, by loop, user's function and its options
_read: weakref.WeakKeyDictionary[Callable, Frozen] = weakref.WeakKeyDictionary()


def _frozen(function: Callable) -> Frozen:
    """Return what a function's code depends on; reading it again takes a microsecond if nothing has changed."""
    known = _read.get(function)
    if known is None or not known.holds():
        known = _read[function] = Frozen(function)
    return known


def _copy(function: Any, digest: str, /, **names: Any) -> Any:
    """Return a function under a unique name: all cached code shares one symbol table."""
    copy = types.FunctionType(
        function.__code__, {**function.__globals__, **names}, f"{function.__name__}_{digest}", function.__defaults__,
        function.__closure__,
    )  # fmt: skip
    copy.__qualname__, copy.__module__ = copy.__name__, function.__module__
    return copy


def loop_with(loop: Callable, name: str, function: Any) -> Any:
    """Return a loop, compiled, in which ``name`` is the user's function.

    Parameters
    ----------
    loop
        A plain function at module level that calls ``name``, a global.
    name
        The global through which it calls the user's function.
    function
        A Python function, or one that Numba has compiled.

    Returns
    -------
    callable
        Compiled once for each loop and code of the function, and kept on disk.

    Examples
    --------
    >>> def fill(x, out):
    ...     for i in range(x.size):
    ...         out[i] = term(x[i])
    >>> cubes = np.empty(3)
    >>> loop_with(fill, "term", lambda x: x**3)(np.arange(3.0), cubes)
    >>> cubes
    array([0., 1., 8.])
    """
    options = {"forceinline": True, "nopython": True, **_OPTIONS}
    if isinstance(function, Dispatcher):
        function, options = function.py_func, function.targetoptions
    frozen = _frozen(function)
    key = (loop, frozen.digest, repr(options))
    dispatcher = _loops.get(key)
    if dispatcher is None:
        if len(_loops) >= 256:  # the user creates functions in a loop
            _loops.clear()
        dispatcher = _loops[key] = _loop(loop, name, function, frozen, options)
    return dispatcher


def _loop(loop: Callable, name: str, function: Any, frozen: Frozen, options: dict[str, Any]) -> Any:
    # A call for each pair takes as long as the pair: LLVM inlines larger functions only on request.
    inner = jit(**options)(_copy(function, frozen.digest))
    dispatcher = njit(**_OPTIONS)(_copy(loop, frozen.digest, **{name: inner}))
    folder = cache("particlemesh", "cpu") if frozen.lasting else None
    try:
        stamps = _stamps(loop)
    except OSError:  # typed at a prompt: no file says when it has changed
        stamps, folder = set(), None
    dispatcher._cache = _LoopCache(
        dispatcher.py_func, folder, frozen, (sorted(stamps), repr(options)), function.__name__
    )
    return dispatcher


def _say(what: str, folder: Path | None) -> None:
    kept = f"kept in {folder}" if folder else "kept for this process only"
    text = f"particlemesh: compiling {what!r} for the CPU, some seconds; {kept}."
    _LOG.info(text)
    if sys.stderr is not None and sys.stderr.isatty():
        print(text, file=sys.stderr)  # noqa: T201 - tells the user why this takes long


class _Locator(_CacheLocator):
    """Where one loop's code is kept."""

    def __init__(self, folder: Path, digest: str, stamp: Any) -> None:
        self._folder, self._digest, self._stamp = folder, digest, stamp
        self._py_file = "particlemesh"  # named in Numba's warnings

    def get_cache_path(self) -> str:
        return str(self._folder)

    def get_source_stamp(self) -> Any:
        return self._stamp

    def get_disambiguator(self) -> str:
        return self._digest


class _LoopCache(FunctionCache):
    """Numba's cache of a function in the library's folder; reports when a function has to be compiled."""

    def __init__(self, function: Any, folder: Path | None, frozen: Frozen, stamps: Any, label: str) -> None:
        self._folder, self._label, self._frozen = folder, label, frozen
        stamp, digest = (numba.__version__, np.__version__, stamps), frozen.digest

        class Placed(CompileResultCacheImpl):
            _locator_classes = ()

            def __init__(self) -> None:
                self._lineno, self._locator = 0, _Locator(folder or Path(os.devnull), digest, stamp)
                self._filename_base = self.get_filename_base("pair", getattr(sys, "abiflags", ""))

        self._name, self._py_func, self._impl = repr(function), function, Placed()
        self._cache_path = self._impl.locator.get_cache_path()
        self._cache_file = _CacheFile(self._cache_path, self._impl.filename_base, stamp)
        self._cache_file.variable = "XDG_CACHE_HOME"
        self._enabled = folder is not None

    def load_overload(self, signature: Any, target_context: Any) -> Any:
        loaded = None
        if self._enabled:
            # A damaged pickle raises anything; then the function is compiled again.
            with contextlib.suppress(Exception):
                loaded = super().load_overload(signature, target_context)
        if loaded is None:
            _say(self._label, self._folder if self._enabled else None)
            self._frozen.renew()
        return loaded

    def save_overload(self, signature: Any, data: Any) -> None:
        try:
            super().save_overload(signature, data)
        except OSError as error:  # the next process compiles again
            self._enabled = False
            warn("compiled pair functions", self._cache_path, error.strerror or str(error), "XDG_CACHE_HOME")
