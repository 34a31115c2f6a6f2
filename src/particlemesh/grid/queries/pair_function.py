# SPDX-License-Identifier: BSD-3-Clause
"""A function of two particles, which a grid sums over the neighbours of each particle."""

from __future__ import annotations

import functools
import inspect
import re
import warnings
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from particlemesh import checks
from particlemesh.backends.base import Backend
from particlemesh.backends.source import bare

# What a text may not have: it is a part of the library's kernels.
DIRECTIVES = ("define", "undef", "if", "ifdef", "ifndef", "elif", "else", "endif")
OF_GROUPS = re.compile(r"\b(_Pragma|asm|__asm\w*|barrier|BARRIER|WARP_\w+|(?:work|sub)_group_\w+|__(?:sync|shfl)\w+)\b")
MOST = 64  # results, and values: they live in a work-item's registers


class _BeyondError(IndexError):
    """An index beyond an array of a pair function."""


class _Watched(np.ndarray):
    """An array that names itself where an index is beyond it."""

    said: str

    @classmethod
    def of(cls, name: str, words: str, size: int) -> _Watched:
        """Return an array of ones; ``words`` and its length say how many numbers there are."""
        array = np.ones(size).view(cls)
        array.said = f"{name}[{{}}], but {words} {size}."
        return array

    def __array_finalize__(self, other: Any) -> None:
        self.said = getattr(other, "said", "")

    def _watch(self, index: Any) -> None:
        if isinstance(index, (int, np.integer)) and not -len(self) <= index < len(self):
            raise _BeyondError(self.said.format(index))

    def __getitem__(self, index: Any) -> Any:
        self._watch(index)
        return super().__getitem__(index)

    def __setitem__(self, index: Any, value: Any) -> None:
        self._watch(index)
        super().__setitem__(index, value)


class PairFunction(checks.Fixed):
    """A function of two particles, for ``UniformGrid.stream`` to sum over the neighbours of each.

    It is written twice: in C for GPUs, in Python, compiled by Numba, for the CPU. Either may be left out where the
    other one serves. Both see the same names:

    ``r2``, ``d``
        The squared distance, never beyond the radius, and the vector from particle ``i`` to the image of particle
        ``j``. The vector has three numbers. Those of axes that the box does not have come first and are zero.
    ``i``, ``j``
        Indices of the two particles, in the caller's order; equal for a particle and its own image.
    ``a``, ``b``
        What ``values`` holds for ``i`` and for ``j``.
    ``p``
        The parameters.
    ``sum``
        The results of particle ``i``, to be added to; nothing else is written.

    The function is called once for each neighbour of each particle, so each end of a pair gets half its energy.
    Particles in one place are neighbours with ``r2 == 0``. What it returns is not read.

    Compiled code does not check indices: beyond the lengths given here it reads and writes foreign memory. Numbers in
    the C text are compared with the lengths, and the Python function is called once with arrays of them.

    The CPU compiles a function the first time that it is used, which takes some seconds. The compiled code is kept in
    ``~/.cache/particlemesh/cpu`` by the function's text and the constants that it sees, for all objects and processes.
    Compiling is logged by the logger ``"particlemesh"`` and noted on a terminal. Constants read only by
    ``getattr(module, "NAME")``, and globals of functions under ``@register_jitable``, ``@overload`` or ``@vectorize``,
    stay as they were when a process first compiled them.

    Parameters
    ----------
    source : str, optional
        The body of a C function, in the dialect of the library's kernels. Numbers are ``real``, which is ``float`` or
        ``double`` as the positions are: write ``(real)0.5``. Indices are ``i64``. Functions such as ``sqrt``, ``exp``,
        ``pow`` and ``floor`` serve both. Braces, ``return`` and macros with names of their own are allowed. Other
        functions, barriers and ``#include``, ``#line`` or ``#pragma`` are not.
    function : callable, optional
        A Python function ``f(r2, d, i, j, a, b, p, sum)`` that Numba can compile, or has compiled, with arrays ``d``,
        ``a``, ``b``, ``p`` and ``sum`` of the positions' type.
    results : int, optional
        How many sums a particle has, 1 to 64.
    values : int
        How many values a particle brings along, 0 to 64.
    parameters : array_like
        Numbers that all pairs share, in C order. New values need no compilation. They are not NaN, and stay finite in
        the type of the positions.

    Raises
    ------
    TypeError
        If there is neither a source nor a function, something is of the wrong type, or the function returns a value.
    ValueError
        If a count is out of range, a parameter is NaN, or the source has what is not allowed. If the function uses a
        result, value or parameter that is not there.

    Examples
    --------
    Energy of each particle of a Lennard-Jones fluid in a periodic box, and the force on it:

    >>> import numpy as np, particlemesh as pm
    >>> def lennard_jones(r2, d, i, j, a, b, p, sum):
    ...     epsilon, sigma = p
    ...     s6 = (sigma * sigma / r2) ** 3
    ...     sum[0] += 2 * epsilon * (s6 * s6 - s6)  # half of the pair's energy
    ...     pull = 24 * epsilon * (s6 - 2 * s6 * s6) / r2
    ...     for axis in range(3):
    ...         sum[1 + axis] += pull * d[axis]
    >>> source = '''
    ... real s2 = p[1] * p[1] / r2, s6 = s2 * s2 * s2;
    ... sum[0] += 2 * p[0] * (s6 * s6 - s6);
    ... real pull = 24 * p[0] * (s6 - 2 * s6 * s6) / r2;
    ... for (int axis = 0; axis < 3; axis++) sum[1 + axis] += pull * d[axis];
    ... '''
    >>> fluid = pm.PairFunction(source, lennard_jones, results=4, parameters=(1.0, 1.0))
    >>> lattice = 1.2 * np.stack(np.meshgrid(*[np.arange(6)] * 3), -1).reshape(-1, 3)
    >>> x = lattice + np.random.default_rng(1).uniform(-0.05, 0.05, lattice.shape)
    >>> grid = pm.UniformGrid((7.2, 7.2, 7.2), cell_size=2.4).build(x)
    >>> sums = grid.stream(2.5, fluid)
    >>> sums.shape, round(float(sums[:, 0].sum()), 3)
    ((216, 4), -835.138)
    >>> abs(sums[:, 1:].sum(0)).max().round(6)  # no net force
    np.float64(0.0)
    """

    defines: Mapping[str, int] = MappingProxyType({})  # of kernels: see same_bits.py
    beside = 0  # further numbers of a particle's row on the CPU

    def __init__(
        self,
        source: str | None = None,
        function: Callable[..., Any] | None = None,
        results: int = 1,
        values: int = 0,
        parameters: Any = (),
    ) -> None:
        if source is None and function is None:
            raise TypeError("a PairFunction needs source, C for GPUs, or function, Python for the CPU, or both.")
        if source is not None and not isinstance(source, str):
            raise TypeError(f"source is a {type(source).__name__}; give the body of a C function as a str, or None.")
        plain: Any = getattr(function, "py_func", function)
        if function is not None and not inspect.isfunction(plain):
            raise TypeError(f"function is a {type(function).__name__}; give a Python function, or None.")
        try:
            function is None or inspect.signature(plain).bind(*range(8))
        except TypeError:
            count = len(inspect.signature(plain).parameters)
            raise TypeError(f"function takes {count} arguments; f(r2, d, i, j, a, b, p, sum) is needed.") from None
        self.source, self.function = source, function
        self.results = checks.integer(results, "results", 1, MOST)
        self.values = checks.integer(values, "values", 0, MOST)
        given = checks.number_array(parameters, "parameters").ravel()
        if given.dtype.kind not in "biuf":
            raise TypeError(f"parameters have dtype {given.dtype}; real numbers are needed.")
        self.parameters: tuple[float, ...] = tuple(given.astype(np.float64).tolist())
        if np.isnan(self.parameters).any():
            raise ValueError(f"parameters are {self.parameters}; NaN is none: every sum would become NaN.")
        self._check_source()
        self._check_indices()
        self._compiled: Any = None
        self._uploaded: dict[Any, Any] = {}  # the parameters, by type, and on devices by backend and type

    def _check_source(self) -> None:
        """Refuse what would change the library's text around the body, or wait for work-items without a pair."""
        text, depth = bare(self.source or ""), 0
        for word in re.findall(r"^[ \t]*#[ \t]*(\w*)", text, re.MULTILINE):
            if word not in DIRECTIVES:
                raise ValueError(f"source has #{word}; only #define, #undef and conditions such as #if are allowed.")
            depth += word.startswith("if") - (word == "endif") - 2 * (not depth and word in ("else", "elif"))
            if depth < 0:
                break
        braces = [1 if brace == "{" else -1 for brace in re.findall("[{}]", text)] if "#" not in text else [0]
        if depth or "/*" in text or sum(braces) or min(np.cumsum(braces), default=0) < 0:
            raise ValueError(
                "source ends within a comment, braces or #if, or ends what it did not begin: make it whole."
            )
        if group := OF_GROUPS.search(text):
            raise ValueError(f"source has {group[1]}: work-items without a pair never get there. Leave it out.")

    def _check_indices(self) -> None:
        """Find indices beyond what is there, as far as one call in Python and the numbers in the C text show them.

        Compiled code does not check: it would read and write foreign memory.
        """
        values = "values is", self.values
        known = {
            "sum": ("results is", self.results), "a": values, "b": values,
            "p": ("the number of parameters is", len(self.parameters)), "d": ("the number of coordinates is", 3),
        }  # fmt: skip
        text = bare(self.source or "")
        for name, index in re.findall(r"(?<![\w.>])(sum|a|b|p|d)\s*\[\s*(\d+)\s*\]", text):
            words, size = known[name]
            declared = re.search(rf"\b(real|int|i64|float|double)\s+([\w\s\[\]]*,\s*)*{name}\s*\[", text)  # of the body
            if int(index) >= size and not declared:
                raise ValueError(f"source uses {name}[{index}], but {words} {size}.")
        function = getattr(self.function, "py_func", self.function)
        # Not the package's: in Python compiled parts of it would be compiled for this call alone.
        if function is None or (function.__module__ or "").startswith("particlemesh."):
            return
        arrays = {name: _Watched.of(name, words, size) for name, (words, size) in known.items()}
        arrays["p"][:] = self.parameters
        arrays["d"][:] = 0.1, 0.2, 0.3
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                returned = function(0.14, arrays["d"], 0, 1, arrays["a"], arrays["b"], arrays["p"], arrays["sum"])
            except _BeyondError as error:
                raise ValueError(f"function uses {error}") from None
            except Exception:  # noqa: BLE001 - what only Numba can run, or not with these numbers
                return
        if returned is not None:
            raise TypeError(
                f"function returns a {type(returned).__name__}, which nobody reads: add to sum[0], ... instead."
            )

    def __repr__(self) -> str:
        places = [name for name, there in (("CPU", self.function), ("GPU", self.source)) if there is not None]
        return f"PairFunction of {self.values} values, {self.results} results, for {' and '.join(places)}"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.source, self.function, self.results, self.values, self.parameters)

    @functools.cached_property
    def only_adds(self) -> bool:
        """Whether the C body adds to ``sum`` and does nothing else with it, so that work-items can share a sum."""
        adding = re.findall(r"(?:^|[;{})])\s*sum\s*\[[^\]]*\]\s*[+-]=", self.text)  # statements of their own
        return len(re.findall(r"\bsum\b", self.text)) == len(adding)

    def check_adds(self, on_cpu: bool) -> None:
        """Check that the function, or the source, only adds to ``sum``: others have no sums without an order.

        Raises
        ------
        ValueError
            If it has another statement with ``sum``, or uses names of the library's kernels.
        """
        adds = _only_adds(self.on_cpu) if on_cpu else None
        if adds is None:  # no text is kept of what was typed or made by a program: then the source says it
            adds = self.source is not None and self.only_adds
        if not adds:
            raise ValueError(
                f"the {'function' if on_cpu else 'source'} has statements with sum that are not such as sum[0] += r2, "
                "or its text is not known. Sums of a deterministic grid only add: write such statements, or make a "
                "grid without deterministic=True."
            )
        if not on_cpu and (name := re.search(r"\b(VALUES|RESULTS)\b", bare(self.text))):
            raise ValueError(f"source uses {name[0]}, a name of the library's kernels: write the number instead.")

    @property
    def text(self) -> str:
        """The body in C, for kernels.

        Raises
        ------
        TypeError
            If there is none.
        """
        if self.source is None:
            raise TypeError(
                "this PairFunction has a function for the CPU only, and the particles are on a GPU: also give it "
                "source, the body of a C function."
            )
        return self.source

    @property
    def compiled(self) -> Any:
        """The function as Numba compiles it, for the CPU.

        Raises
        ------
        TypeError
            If there is none.
        """
        plain = self.on_cpu
        if self._compiled is None:
            from numba import njit
            from numba.core.dispatcher import Dispatcher

            self._compiled = plain if isinstance(plain, Dispatcher) else njit(nogil=True, error_model="numpy")(plain)
        return self._compiled

    @property
    def on_cpu(self) -> Any:
        """The function in Python, for the CPU.

        Raises
        ------
        TypeError
            If there is none.
        """
        if self.function is None:
            raise TypeError(
                "this PairFunction has a source for GPUs only, and the particles are on the CPU: also give it "
                "function, a Python function f(r2, d, i, j, a, b, p, sum)."
            )
        return self.function

    def parameters_as(self, dtype: np.dtype[Any]) -> np.ndarray:
        """Return the parameters in the type of the positions; a ValueError if one is finite no more."""
        if dtype not in self._uploaded:
            with np.errstate(over="ignore"):
                cast = np.array(self.parameters, dtype)
            if not np.array_equal(np.isfinite(cast), np.isfinite(self.parameters)):
                raise ValueError(
                    f"parameters are {self.parameters}, and not all are finite in {dtype}: use float64 positions."
                )
            self._uploaded[dtype] = cast
        return self._uploaded[dtype]

    def parameters_on(self, backend: Backend, parameters: np.ndarray) -> Any:
        """Return the parameters on a device, once sent there: before any stream may read them."""
        key = backend, parameters.dtype
        if key not in self._uploaded:
            self._uploaded[key] = backend.upload(parameters)
            backend.synchronize()
        return self._uploaded[key]

    def check_values(self, shape: tuple[int, ...] | None, count: int) -> None:
        """Check the shape of what ``count`` particles bring along; None stands for no array.

        Raises
        ------
        ValueError
            If it is not what the function expects.
        """
        if self.values == 0 and shape is None:
            return
        allowed = [(count, self.values)] + ([(count,)] if self.values == 1 else [])
        if self.values and shape is not None and tuple(shape) in allowed:
            return
        given = "there are no values" if shape is None else f"values has shape {tuple(shape)}"
        accepted = " or ".join(map(str, allowed)) if self.values else "no values"
        raise ValueError(f"{given}; this PairFunction of {self.values} values takes {accepted} for {count} particles.")


def _only_adds(function: Any) -> bool | None:
    """Return whether a Python function only adds to elements of its last argument, or None if its text is not kept."""
    plain = getattr(function, "py_func", function)
    try:
        text = re.sub("#.*", "", inspect.getsource(plain))
    except OSError:
        return None
    name = re.escape(list(inspect.signature(plain).parameters)[7])
    adding = re.findall(rf"(?:^|[;:])[ \t]*{name}\s*\[[^\]]*\]\s*[+-]=", text, re.MULTILINE)
    return len(re.findall(rf"\b{name}\b", text)) == len(adding) + 1  # once in the head of the function
