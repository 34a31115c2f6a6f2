# SPDX-License-Identifier: BSD-3-Clause
"""Compiling Python functions for the CPU, once per source: the library's own, and users' functions within its loops.

Numba's disk cache is made to tolerate damaged and concurrent files. It caches code by the file of a function, so it
caches nothing for functions passed as arguments. There the key is all that Numba writes into the code as constants.
These are globals, attributes of modules, closures and default arguments, and called functions with theirs.
"""

from __future__ import annotations

import builtins
import contextlib
import dis
import enum
import functools
import hashlib
import itertools
import logging
import os
import sys
import types
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numba
import numpy as np
from llvmlite.binding import ffi, parse_bitcode
from numba import jit, njit
from numba.core.bytecode import FunctionIdentity
from numba.core.caching import CompileResultCacheImpl, FunctionCache, IndexDataCacheFile, NullCache, _CacheLocator
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler, CompileResult, compile_result
from numba.core.compiler_lock import global_compiler_lock
from numba.core.dispatcher import Dispatcher
from numba.core.errors import NumbaError
from numba.core.types import Type
from numba.core.typing.templates import builtin_registry

from particlemesh.backends.folders import cache, foreign, trusted, warn
from particlemesh.checks import through_forks

# A compiling thread takes Numba's lock, then LLVM's.
through_forks(ffi.lib._lock._lock)
through_forks(global_compiler_lock)


_LIBRARIES = {"builtins", "cmath", "math", "numba", "numpy", "operator"}  # whose functions keep their meaning
_LOADS = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_CLASSDEREF")
_ATTRIBUTES = {"LOAD_ATTR", "LOAD_METHOD"}
_MISSING = object()
_LOG = logging.getLogger("particlemesh")
# C calls none of these functions, and a wrapper for it takes a twentieth of the time to compile.
_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}
_loops: dict[Any, Any] = {}  # compiled, by loop, user's function and its options
_read: weakref.WeakKeyDictionary[Callable, Frozen] = weakref.WeakKeyDictionary()
_APART = hasattr(FunctionIdentity, "_unique_ids")  # whether `_number_apart` works; otherwise nothing is kept on disk


def _number_apart() -> None:
    """Let this process number compiled functions from a random number on.

    Numba names a function by its number in the process and its arguments' types, records by a number, too. In one table
    of names the first code of a name runs. Two processes that count from one keep different code under one name.
    """
    FunctionIdentity._unique_ids = itertools.count(int.from_bytes(os.urandom(6), "little"))


if _APART:
    _number_apart()
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_number_apart)


class _CacheFile(IndexDataCacheFile):
    """Numba's cache file; one that is unreadable, or that others may have written, is a miss: it is a pickle.

    Numba numbers its data files, so two processes that compile different signatures at the same time may
    write different code under one number. Here the signature and the source determine the name.
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
        overloads[key] = self._data_name_pattern.replace("{number:d}", _digest((key, self.values, self._source_stamp)))
        self._save_data(overloads[key], data)
        self._save_index(overloads)


class _Part(JITCodeLibrary):
    """Code of a compiled function for its callers, which contain it: no machine code, no wrapper for Python."""

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        return 0

    def serialize_using_object_code(self) -> tuple[str, str, bytes]:
        return self.serialize_using_bitcode()

    @property
    def codegen(self) -> Any:
        return self  # for `set_env`

    def set_env(self, name: str, environment: Any) -> None:
        """Do nothing: machine code has the place, and only errors with computed texts read it, which we never raise."""


class _PartCompiler(Compiler):
    def __init__(self, typing: Any, target: Any, library: Any, *arguments: Any) -> None:
        super().__init__(typing, target, library or _Part(target.codegen(), "part"), *arguments)


def _rebuild_part(context: Any, payload: Any) -> CompileResult:
    """Return what `CompileResult._rebuild` does, but for a part."""
    (name, _, code), described, environment, signature, objects, lifted, annotation, reload_init, referenced = payload
    library = _Part(context.codegen(), name)
    library._final_module = parse_bitcode(code)
    library._finalize_final_module()
    return compile_result(
        target_context=context, typing_context=context.typing_context, library=library, environment=environment,
        entry_point=context.get_executable(library, described, environment), fndesc=described, signature=signature,
        objectmode=objects, lifted=lifted, type_annotation=annotation, reload_init=reload_init,
        referenced_envs=referenced,
    )  # fmt: skip


class _NoCache(NullCache):
    """No cache; warns when compiled code could not be kept."""

    def save_overload(self, *_: Any) -> None:
        beside = f"{Path(__file__).parents[1]} or the user's cache folder"
        warn("compiled functions", os.environ.get("NUMBA_CACHE_DIR") or beside, "no permission", "NUMBA_CACHE_DIR")


def _stamps(function: Callable) -> set[tuple[str, int, int]]:
    """Return name, time and size of the files whose code a compiled function contains.

    Numba checks the function's own file only and would keep outdated code of the functions it calls.
    """
    files = {function.__code__.co_filename, __file__}
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


def _serve_callers(dispatcher: Any, stamps: set[tuple[str, int, int]], options: dict[str, Any]) -> None:
    """Let compiled callers take a part.

    Numba compiles what a function calls to machine code, with a wrapper for Python: a quarter of the time. Nobody runs
    that code, since callers contain their own.
    """
    part = njit(cache=True, pipeline_class=_PartCompiler, no_cpython_wrapper=True, **options)(dispatcher.py_func)
    _harden(part, stamps, "-part")
    part._cache._impl.rebuild = _rebuild_part
    dispatcher.part = part
    dispatcher.get_call_template, dispatcher.get_overload = part.get_call_template, part.get_overload


def _harden(dispatcher: Any, stamps: set[tuple[str, int, int]], what: str = "") -> None:
    cache, function = dispatcher._cache, dispatcher.py_func
    plain = cache._cache_file
    name = plain._index_name.removesuffix(".nbi") + what
    ours = function.__module__.partition(".")[0] == "particlemesh"  # whose constants change with its files
    how = sorted(stamp for stamp in stamps if stamp[0] == Path(__file__).name)  # how functions are kept
    cache._cache_file = _CacheFile(plain._cache_path, name, (plain._source_stamp, sorted(stamps)))
    load, save = cache.load_overload, cache.save_overload

    def load_overload(signature: Any, target_context: Any) -> Any:
        if not ours:
            frozen = Frozen(function)
            cache._enabled = frozen.lasting
            cache._cache_file.values = frozen.digest
            cache._cache_file._source_stamp = (frozen.digest, np.__version__, how)
        try:
            loaded = load(signature, target_context)
        except Exception:  # noqa: BLE001 - as above
            loaded = None
        if loaded is None and not ours:
            frozen.renew()
        elif loaded is None:
            _say_once()
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
    options = {**_OPTIONS, **options}
    if not (cached and _APART):
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
        if function.__module__.partition(".")[0] == "particlemesh":
            _serve_callers(dispatcher, stamps, options)
    except (AttributeError, TypeError, OSError):  # Numba has changed inside: use its own cache
        pass
    return dispatcher


# ---- users' functions within loops ----------------------------------------------------------------------------------


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
        options = {**function.targetoptions, "locals": function.locals}
        function = function.py_func
    frozen = _frozen(function)
    key = (loop, _of_loop(loop).digest, frozen.digest, repr(options))
    dispatcher = _loops.get(key)
    if dispatcher is None:
        if len(_loops) >= 256:  # the user creates functions in a loop
            _loops.clear()
        dispatcher = _loops[key] = _loop(loop, name, function, frozen, options)
    return dispatcher


def _loop(loop: Callable, name: str, function: Any, frozen: Frozen, options: dict[str, Any]) -> Any:
    # A call for each pair takes as long as the pair: LLVM inlines larger functions only on request.
    of_loop = _of_loop(loop)
    # Loops may have the same bytes.
    digest = _digest((of_loop.digest, frozen.digest, loop.__module__, loop.__qualname__))
    inner = jit(**options)(_copy(function, digest))
    dispatcher = njit(**_OPTIONS)(_copy(loop, digest, **{name: inner}))
    folder = cache("particlemesh", "cpu") if frozen.lasting and of_loop.lasting and _APART else None
    try:
        stamps = _stamps(loop)
    except OSError:  # typed at a prompt: no file says when it has changed
        stamps, folder = set(), None
    dispatcher._cache = _LoopCache(
        dispatcher.py_func, folder, digest, (of_loop, frozen), (sorted(stamps), repr(options)), function.__name__
    )
    return dispatcher


def _of_loop(loop: Callable) -> Frozen:
    """Return what a loop depends on beside the user's function; the library's own change with their files."""
    return _nothing if _library(loop) == "particlemesh" else _frozen(loop)


@functools.cache
def _say_once() -> None:
    """Tell once in a process that the library compiles: the first calls of all take up to a minute."""
    _tell("particlemesh: compiling for the CPU, once for each kind of call; `particlemesh warm` does it ahead.")


def _tell(text: str) -> None:
    _LOG.info(text)
    if sys.stderr is not None and sys.stderr.isatty():
        print(text, file=sys.stderr)  # noqa: T201 - tells the user why this takes long


def _say(what: str, folder: Path | None) -> None:
    kept = f"kept in {folder}" if folder else "kept for this process only"
    _tell(f"particlemesh: compiling {what!r} for the CPU, some seconds; {kept}.")


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

    def __init__(
        self, function: Any, folder: Path | None, digest: str, frozen: tuple[Frozen, ...], stamps: Any, label: str
    ) -> None:  # fmt: skip
        self._folder, self._label, self._frozen = folder, label, frozen
        stamp = numba.__version__, np.__version__, stamps

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
            for frozen in self._frozen:
                frozen.renew()
        return loaded

    def save_overload(self, signature: Any, data: Any) -> None:
        for frozen in self._frozen:
            frozen.note()
        try:
            super().save_overload(signature, data)
        except OSError as error:  # the next process compiles again
            self._enabled = False
            warn("compiled pair functions", self._cache_path, error.strerror or str(error), "XDG_CACHE_HOME")


# ---- what Numba writes into compiled code as constants --------------------------------------------------------------


class Frozen:
    """What the compiled code of a function depends on, as it is now.

    Attributes
    ----------
    digest : str
        Of all values. Those without a description count by identity, as long as this object lives.
    """

    def __init__(self, function: Callable) -> None:
        self._reads: list[tuple[Callable[[Any], Any], Any, Any]] = []  # how a value was read, and the value
        self._seen: set[int] = set()
        self._open: set[int] = set()
        self._called: list[tuple[Any, str]] = []  # what others have compiled, with its text
        self._mutable = False
        self._described = True
        self.digest = _digest(self._function(function))

    @property
    def lasting(self) -> bool:
        """Whether all values have a description, so that the digest means the same to other processes."""
        return self._described and not _overloaded()

    def holds(self) -> bool:
        """Return whether reading again would give the same values."""
        return not self._mutable and all(read(key) is value for read, key, value in self._reads)

    def renew(self) -> None:
        """Have called functions compiled again if their code may hold older values."""
        for called, digest in self._called:
            if _compiled.get(called) != (digest, frozenset(called.overloads)):  # or compiled by others since
                by_values = hasattr(called, "source_stamps") or isinstance(called._cache, NullCache)
                if called.overloads or not by_values:
                    called.recompile()
        self.note()

    def note(self) -> None:
        """Note for which signatures called functions are compiled with these values."""
        for called, digest in self._called:
            _compiled[called] = digest, frozenset(called.overloads)

    def _read(self, read: Callable[[Any], Any], key: Any) -> Any:
        value = read(key)
        self._reads.append((read, key, value))
        return value

    def _function(self, function: Any) -> Any:
        if id(function) in self._seen:
            self._described &= id(function) not in self._open  # Numba crashes in a recursive function from the disk
            return "again"
        self._seen.add(id(function))
        self._open.add(id(function))
        part = functools.partial(getattr, function)
        code, defaults, named = (self._read(part, name) for name in ("__code__", "__defaults__", "__kwdefaults__"))
        cells = dict(zip(code.co_freevars, function.__closure__ or (), strict=True))

        def variable(name: str) -> Any:
            if name not in cells:
                return function.__globals__.get(name, getattr(builtins, name, _MISSING))
            try:
                return cells[name].cell_contents
            except ValueError:  # not assigned yet
                return _MISSING

        values = [self._value(defaults), self._value(tuple(sorted((named or {}).items())))]
        values += [(chain, self._value(value)) for chain, value in self._variables(code, variable, set(cells))]
        for value in (*(defaults or ()), *(named or {}).values()):
            if isinstance(value, types.ModuleType) and _library(value) not in _LIBRARIES:
                values += [(names, self._value(part)) for names, part in self._contents(value, _words(code))]
        self._open.remove(id(function))
        return "function", self._code(code), values

    def _variables(self, code: types.CodeType, variable: Callable[[str], Any], free: set[str]) -> list[Any]:
        """Return names and values of what code reads, each with the attributes of modules that follow it."""
        variables: dict[tuple[str, ...], Any] = {}
        instructions = list(dis.get_instructions(code))
        for n, load in enumerate(instructions):
            if not load.opname.startswith(_LOADS) or ("DEREF" in load.opname and load.argval not in free):
                continue
            chain, value = [load.argval], self._read(variable, load.argval)
            for attribute in instructions[n + 1 :]:
                if not isinstance(value, types.ModuleType) or attribute.opname not in _ATTRIBUTES:
                    break
                chain.append(attribute.argval)
                value = self._read(functools.partial(_attribute, value), attribute.argval)
            variables[tuple(chain)] = value
            if isinstance(value, types.ModuleType) and _library(value) not in _LIBRARIES:  # another name for it
                variables |= {(*chain, *names): part for names, part in self._contents(value, _words(code))}
        inner = [c for c in code.co_consts if isinstance(c, types.CodeType)]
        return [*variables.items(), *(entry for c in inner for entry in self._variables(c, variable, free))]

    def _contents(self, module: types.ModuleType, words: set[str]) -> Iterator[tuple[tuple[str, ...], Any]]:
        """Yield what is in a module, and in those in it, under any of some names."""
        self._seen.add(id(module))
        for word in sorted(words & vars(module).keys()):
            value = self._read(functools.partial(_attribute, module), word)
            yield (word,), value
            if isinstance(value, types.ModuleType) and id(value) not in self._seen:
                yield from (((word, *names), part) for names, part in self._contents(value, words))

    def _code(self, code: types.CodeType) -> Any:
        names = code.co_varnames, code.co_names, code.co_freevars, code.co_cellvars
        sizes = code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags
        constants = [self._code(c) if isinstance(c, types.CodeType) else self._value(c) for c in code.co_consts]
        return code.co_code, getattr(code, "co_exceptiontable", b""), names, sizes, constants

    def _value(self, value: Any) -> Any:
        if value is None or value is Ellipsis or type(value) in (bool, int, float, complex, str, bytes):
            return type(value).__name__, repr(value)
        if value is _MISSING:
            return "missing"
        if isinstance(value, enum.Enum):
            return "member", value.name, self._value(value.value)
        if isinstance(value, (tuple, list, frozenset)):
            self._mutable |= isinstance(value, list)
            items = [self._value(item) for item in value]
            return (
                type(value).__name__,
                getattr(value, "_fields", ()),
                sorted(items, key=repr) if isinstance(value, frozenset) else items,
            )
        if isinstance(value, np.generic):
            return "number", repr(value.dtype), value.tobytes()
        if isinstance(value, np.ndarray) and not value.dtype.hasobject:
            self._mutable = True
            layout = value.dtype, value.shape, value.flags.c_contiguous, value.flags.f_contiguous, value.flags.aligned
            return "array", repr(layout), _digest(value.tobytes())
        if isinstance(value, (np.dtype, Type)):
            return type(value).__name__, repr(value)
        if isinstance(value, Dispatcher):
            return self._dispatcher(value)
        if isinstance(value, type) and issubclass(value, enum.Enum):
            return "enumeration", value.__name__, [self._value(member) for member in value]
        if isinstance(value, type) and issubclass(value, tuple) and hasattr(value, "_fields"):
            return "named tuple", value.__name__, value._fields
        named = _named(value)
        if named is None:
            self._described = False
            return "this one", id(value)
        return named

    def _dispatcher(self, value: Any) -> Any:
        stamps = getattr(value, "source_stamps", None)
        if stamps is not None and _library(value.py_func) == "particlemesh":
            return value.py_func.__qualname__, sorted(stamps)
        signatures = () if value._can_compile else sorted(map(str, value.nopython_signatures))
        known = id(value.py_func) in self._seen
        options = sorted(value.targetoptions.items()), sorted(map(repr, value.locals.items()))
        text = repr(options), signatures, self._function(value.py_func)
        if not known:
            self._called.append((value, _digest(text)))
        return "compiled", text


# With what values and for which signatures.
_compiled: weakref.WeakKeyDictionary[Dispatcher, tuple[str, frozenset[Any]]] = weakref.WeakKeyDictionary()


def _digest(text: Any) -> str:
    return hashlib.sha256(repr(text).encode()).hexdigest()[:20]


def _words(code: types.CodeType) -> set[str]:
    """Return the names that code may read from a module."""
    return {*code.co_names, *(c for c in code.co_consts if isinstance(c, str))}


def _overloaded() -> bool:
    """Return whether others have told Numba what functions, methods or attributes mean: no digest has that."""
    of_globals = (t for _, kind in builtin_registry.globals for t in getattr(kind, "templates", ()))
    templates = (*builtin_registry.functions, *builtin_registry.attributes, *of_globals)
    modules = (getattr(getattr(t, "_overload_func", None), "__module__", None) or "numba" for t in templates)
    return any(module.partition(".")[0] not in {"numba", "particlemesh"} for module in modules)


def _attribute(module: types.ModuleType, name: str) -> Any:
    return getattr(module, name, _MISSING)


def _library(value: Any) -> str:
    module = value.__name__ if isinstance(value, types.ModuleType) else getattr(value, "__module__", None)
    return (module or type(getattr(value, "__self__", None)).__module__).partition(".")[0]


def _named(value: Any) -> Any:
    """Return the name of what a library defines, or None: of others by version, ours by the time of its file."""
    definition = getattr(value, "_defn", value)  # of an intrinsic
    name = getattr(definition, "__qualname__", None) or getattr(definition, "__name__", None)
    wrapped = type(definition).__module__.startswith("numba.")  # a user's function, such as of cfunc
    if name is None or wrapped or (isinstance(value, np.ufunc) and getattr(np, name, None) is not value):
        return None
    library = _library(definition)
    if library == "particlemesh" and isinstance(definition, types.FunctionType):
        facts = Path(definition.__code__.co_filename).stat()
        return name, facts.st_mtime_ns, facts.st_size
    if isinstance(value, np.ufunc) or (library in _LIBRARIES and _is_there(definition, name)):
        return library, name, getattr(sys.modules.get(library), "__version__", "")
    return None


def _is_there(definition: Any, name: str) -> bool:
    """Return whether a library has this under its name: text that is executed names no module of its own."""
    value: Any = sys.modules.get(getattr(definition, "__module__", None) or type(definition).__module__)
    for part in name.split("."):
        value = getattr(value, part, None)
    return value is definition or not isinstance(definition, types.FunctionType | type)


_nothing = Frozen(lambda: None)
