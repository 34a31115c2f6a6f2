# SPDX-License-Identifier: BSD-3-Clause
"""What Numba writes into compiled code as constants: the key of what is kept.

These are globals, attributes of modules, closures and default arguments, and called functions with theirs.
"""

from __future__ import annotations

import builtins
import dis
import enum
import functools
import hashlib
import sys
import types
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numba.core.caching import NullCache
from numba.core.dispatcher import Dispatcher
from numba.core.types import Type

_LIBRARIES = {"builtins", "cmath", "math", "numba", "numpy", "operator"}  # whose functions keep their meaning
_LOADS = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_CLASSDEREF")
_ATTRIBUTES = {"LOAD_ATTR", "LOAD_METHOD"}
_MISSING = object()


class Frozen:
    """What the compiled code of a function depends on, as it is now.

    Attributes
    ----------
    digest : str
        Of all values. Those without a description count by identity, as long as this object lives.
    lasting : bool
        Whether all values have a description, so that the digest means the same to other processes.
    """

    def __init__(self, function: Callable) -> None:
        self._reads: list[tuple[Callable[[Any], Any], Any, Any]] = []  # how a value was read, and the value
        self._seen: set[int] = set()
        self._called: list[tuple[Any, str]] = []  # what others have compiled, with its text
        self._mutable = False
        self.lasting = True
        self.digest = _digest(self._function(function))

    def holds(self) -> bool:
        """Return whether reading again would give the same values."""
        return not self._mutable and all(read(key) is value for read, key, value in self._reads)

    def renew(self) -> None:
        """Have called functions compiled again if their code may hold older values."""
        for called, digest in self._called:
            if _compiled.get(called) != digest:
                by_values = hasattr(called, "source_stamps") or isinstance(called._cache, NullCache)
                if called.overloads or not by_values:
                    called.recompile()
                _compiled[called] = digest

    def _read(self, read: Callable[[Any], Any], key: Any) -> Any:
        value = read(key)
        self._reads.append((read, key, value))
        return value

    def _function(self, function: Any) -> Any:
        if id(function) in self._seen:
            return "again"
        self._seen.add(id(function))
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
                words = {*code.co_names, *(c for c in code.co_consts if isinstance(c, str))}
                variables |= {(*chain, *names): part for names, part in self._contents(value, words)}
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
        return code.co_code, names, sizes, constants

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
            self.lasting = False
            return "this one", id(value)
        return named

    def _dispatcher(self, value: Any) -> Any:
        stamps = getattr(value, "source_stamps", None)
        if stamps is not None and _library(value.py_func) == "particlemesh":
            return value.py_func.__qualname__, sorted(stamps)
        signatures = () if value._can_compile else sorted(map(str, value.nopython_signatures))
        known = id(value.py_func) in self._seen
        text = repr(sorted(value.targetoptions.items())), signatures, self._function(value.py_func)
        if not known:
            self._called.append((value, _digest(text)))
        return "compiled", text


_compiled: weakref.WeakKeyDictionary[Dispatcher, str] = weakref.WeakKeyDictionary()  # with what values


def _digest(text: Any) -> str:
    return hashlib.sha256(repr(text).encode()).hexdigest()[:20]


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
    if isinstance(value, np.ufunc) or library in _LIBRARIES:
        return library, name, getattr(sys.modules.get(library), "__version__", "")
    return None
