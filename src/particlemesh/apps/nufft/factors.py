# SPDX-License-Identifier: BSD-3-Clause
"""Factors of modes: inverse transforms of the window, which are kept for the next transform of the same sizes."""

from __future__ import annotations

import functools
import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, ParamSpec, TypeVar

import numpy as np

import particlemesh as pm
from particlemesh import kernels
from particlemesh.fourier import mode_numbers

_P = ParamSpec("_P")
_R = TypeVar("_R")


class ByteBoundedCache(Generic[_P, _R]):
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


def byte_bounded_cache(most: int, size: Callable[[_R], int]) -> Callable[[Callable[_P, _R]], ByteBoundedCache[_P, _R]]:
    """Decorate a function with `ByteBoundedCache`."""
    return lambda function: ByteBoundedCache(function, most, size)


def _bytes(factors: np.ndarray) -> int:
    return factors.nbytes


@byte_bounded_cache(2**26, _bytes)
def of_modes(window: pm.Window, nodes: int, modes: int, order: str, half: bool) -> np.ndarray:
    """Return the inverse of the window's transform at the modes of an axis; see `mode_numbers`. Read-only."""
    factors = 1 / window.fourier(2 * math.pi / nodes * mode_numbers(modes, order, half=half))
    factors.flags.writeable = False
    return factors
