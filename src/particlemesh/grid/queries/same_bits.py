# SPDX-License-Identifier: BSD-3-Clause
"""Sums of a pair function whose bits do not depend on the order of neighbours, in two passes.

The first pass finds the largest size of what a neighbour adds to each sum of a particle, and the number of neighbours.
From these follow units so small that nothing is lost, and so large that sums of whole units are exact in the type of
the positions. The second pass adds whole units, and in further words the rest. Exact sums have no order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from particlemesh.backends.base import Backend
from particlemesh.grid.queries.pair_function import PairFunction

_WORDS = {4: 3, 8: 2}  # of a sum, by the bytes of a real: 39 and 84 bits below the largest number for 500 neighbours
_LARGEST, _WHOLE = 1, 2  # of pair_function.h


def most_bits(dtype: np.dtype[Any]) -> int:
    """Return the bits of the largest number of neighbours for which a sum has the digits of its type.

    Examples
    --------
    >>> most_bits(np.dtype(np.float32)), most_bits(np.dtype(np.float64))
    (15, 25)
    """
    digits = np.finfo(dtype).nmant
    return int(digits - (digits + 1) / _WORDS[dtype.itemsize])


class Pass(PairFunction):
    """A pair function of one pass, with what sums and kernels ask of it.

    Parameters
    ----------
    function : PairFunction
        The user's. On the CPU further results follow, into which it writes.
    words : int
        Of a sum; 0 for the first pass.
    """

    _words: int

    def __init__(self, function: PairFunction, words: int) -> None:  # what the user gave was checked
        terms = function.results
        vars(self).update(vars(function), only_adds=True, _uploaded={}, beside=terms, _words=words)
        vars(self).update(
            results=terms * words if words else terms + 1, values=function.values + (terms + 2 if words else 0),
            defines={"PASS_OF_SUMS": _WHOLE if words else _LARGEST, "WORDS_OF_SUM": words, "RESULTS_OF_USER": terms},
        )  # fmt: skip

    @property
    def on_cpu(self) -> Any:
        """What a neighbour does to a particle's row: the results, then a number for each of the user's."""
        from numba import njit
        from numba.core.dispatcher import Dispatcher

        plain, terms, at, words = super().on_cpu, self.beside, self.results, self._words
        values = self.values - (terms + 2)  # of the user's: functions may read their length
        function = plain if isinstance(plain, Dispatcher) else njit(forceinline=True, error_model="numpy")(plain)

        def largest(r2, d, i, j, a, b, p, sums):
            added = sums[at:]
            added[:] = 0
            function(r2, d, i, j, a, b, p, added)
            for r in range(terms):
                size = abs(added[r])
                sums[r] = max(sums[r], size) if size < np.inf else np.inf
            sums[terms] += 1

        def whole(r2, d, i, j, a, b, p, sums):
            added, factors = sums[at:], a[-2 - terms : -2]
            added[:] = 0
            function(r2, d, i, j, a[:values], b[:values], p, added)
            for r in range(terms):
                left = added[r] * factors[r]
                for w in range(words):
                    units = (left + a[-2]) - a[-2]
                    sums[w * terms + r] += units
                    left = (left - units) * a[-1]

        return whole if words else largest


def passes_of(function: PairFunction, dtype: np.dtype[Any], on_cpu: bool) -> tuple[Pass, Pass]:
    """Return both passes of a pair function for positions of a type; a ValueError if it does not only add."""
    key = "passes", dtype, on_cpu
    if key not in function._uploaded:
        function.check_adds(on_cpu)
        function._uploaded[key] = Pass(function, 0), Pass(function, _WORDS[dtype.itemsize])
    return function._uploaded[key]


def on_cpu(sums: Callable[..., Any], function: PairFunction, values: Any, count: int, dtype: np.dtype[Any]) -> Any:
    """Return the sums (count, results) from those of passes: ``sums(pass, values)`` returns rows (count, ...)."""
    first, second = passes_of(function, dtype, True)
    largest, terms, info = sums(first, values), function.results, np.finfo(dtype)
    exponent = np.maximum(np.frexp(largest[:, :terms])[1], info.minexp)
    bits = np.maximum(np.frexp(largest[:, terms])[1], 1)[:, None]
    one, units = dtype.type(1), np.ldexp(dtype.type(1), info.nmant - bits)
    given = np.empty((count, 0), dtype) if values is None else np.asarray(values, dtype).reshape(count, function.values)
    table = np.concatenate([given, np.ldexp(one, -exponent), np.ldexp(dtype.type(1.5), bits), units], 1)
    words = sums(second, table)[:, : second.results].reshape(count, second.results // terms, terms)
    total = words[:, -1]
    for w in range(words.shape[1] - 2, -1, -1):
        total = words[:, w] + total / units
    finite = np.isfinite(largest[:, :terms]) & (exponent < info.maxexp - 3) & (bits <= most_bits(dtype))
    return np.where(finite, np.ldexp(total, exponent), dtype.type(np.nan))


def on_device(
    sums: Callable[..., Any], backend: Backend, function: PairFunction, values: Any, out: Any, count: int,
    dtype: np.dtype[Any], allocate: Callable[..., Any],
) -> Any:  # fmt: skip
    """Write the sums (count, results) from those of passes: ``sums(pass, values, out)`` writes rows (count, ...)."""
    first, second = passes_of(function, dtype, False)
    step, terms = dtype.itemsize, function.results
    defines = {
        "RESULTS": terms,
        "VALUES": function.values,
        "WORDS_OF_SUM": _WORDS[step],
        "DIGITS": np.finfo(dtype).nmant,
    }
    defines["MOST_BITS"] = most_bits(dtype)
    defines |= {"REAL_IS_DOUBLE": int(step == 8)}

    def launch(name: str, *arrays: Any, strided: Any) -> None:
        strides = [n // step for n in (strided.strides if strided.ndim == 2 else (*strided.strides, 0))]
        run = backend.kernel("grid/queries/same_bits.c", name, defines)
        run(arrays[-1].size, *arrays, count, getattr(strided, "offset", 0) // step, *strides)

    largest = sums(first, values, allocate("largest", (count, first.results), dtype))
    table = allocate("values of units", (count, second.values), dtype)
    given = table if values is None else values
    launch("values_of_units", largest, given, table, strided=given)
    words = sums(second, table, allocate("words", (count, second.results), dtype))
    launch("sums_of_words", largest, words, out, strided=out)
    return out
