# SPDX-License-Identifier: BSD-3-Clause
"""Results of functions, kept for the next transform of the same sizes: up to so many bytes, the last used ones."""

from __future__ import annotations

import functools
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, ParamSpec, TypeVar

from particlemesh import kernels

_P = ParamSpec("_P")
_R = TypeVar("_R")


class Keeping(Generic[_P, _R]):
    """A function that keeps its last results, as `functools.lru_cache` does by number.

    Parameters
    ----------
    function : callable
        Of hashable arguments without names.
    most : int
        Bytes that are kept. A larger result is not kept at all.
    size : callable
        The bytes of a result.
    """

    def __init__(self, function: Callable[_P, _R], most: int, size: Callable[[_R], int]) -> None:
        functools.update_wrapper(self, function)
        self.make, self.most, self._size = function, most, size
        self.nbytes = 0
        self._kept: OrderedDict[Hashable, tuple[_R, int]] = OrderedDict()
        self._lock = kernels.through_forks(threading.Lock())

    def __call__(self, *arguments: _P.args, **options: _P.kwargs) -> _R:
        key = (*arguments, *options.items())
        with self._lock:
            known = self._kept.get(key)
            if known is not None:
                self._kept.move_to_end(key)
                return known[0]
        result = self.make(*arguments, **options)
        size = self._size(result)
        with self._lock:
            if key not in self._kept and size <= self.most:
                self._kept[key] = result, size
                self.nbytes += size
                while self.nbytes > self.most:
                    self.nbytes -= self._kept.popitem(last=False)[1][1]
        return result


def keeping(most: int, size: Callable[[_R], int]) -> Callable[[Callable[_P, _R]], Keeping[_P, _R]]:
    """Decorate a function with `Keeping`."""
    return lambda function: Keeping(function, most, size)
