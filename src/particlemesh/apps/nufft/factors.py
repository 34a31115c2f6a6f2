# SPDX-License-Identifier: BSD-3-Clause
"""Factors of modes, points and frequencies: inverse transforms of the window, and phases.

They are kept for the next transform of the same sizes.
"""

from __future__ import annotations

import functools
import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Generic, ParamSpec, TypeVar

import numpy as np

import particlemesh as pm
from particlemesh import kernels
from particlemesh.fourier import mode_numbers
from particlemesh.kernels.cpu import compiled, plain, ranges, run, threads_for

_SHARE = 4096  # numbers that a thread claims at once
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


@functools.lru_cache(maxsize=64)
def _series(window: pm.Window) -> np.ndarray:
    """Return the window's transform for -pi <= k <= pi as a Chebyshev series in 2 (k/pi)**2 - 1."""
    # As many terms as resolve the fastest cosine, and 12 more to reach rounding: the transform is even.
    terms = math.ceil(math.pi / 4 * window.support) + 12
    angles = np.pi / terms * (np.arange(terms) + 0.5)
    values = window.fourier(np.pi * np.sqrt((1 + np.cos(angles)) / 2))
    series = 2 / terms * np.cos(np.outer(np.arange(terms), angles)) @ values
    series[0] /= 2
    return series


def of_coordinates(
    columns: Sequence[np.ndarray], centres: Sequence[float], middles: Sequence[float], dtype: np.dtype,
    threads: int | None, window: pm.Window | None = None, spacings: Sequence[float] = (),
) -> np.ndarray:  # fmt: skip
    """Return ``exp(i sum_a middles[a] (x[a] - centres[a]))``, divided by the window's transform along each axis.

    Phases are computed in float64, since products of coordinates are large.

    Parameters
    ----------
    columns : d float64 arrays (N,)
        Coordinates x.
    centres, middles : d floats
        Origin of the coordinates, and the middle of those on the other side.
    dtype : numpy.dtype
        Complex type of the result.
    threads : int, optional
        CPU threads.
    window : Window, optional
        By default there is no division.
    spacings : d floats
        The transform's argument is ``spacings[a] (x[a] - centres[a])``, from -pi to pi.
    """
    out = np.empty(columns[0].shape, dtype)
    series = np.empty(0) if window is None else _series(window)
    numbers = [np.array(n, np.float64) for n in (centres, middles, spacings)]
    workers = threads_for(threads, out.size)
    run(_phases, workers, tuple(map(plain, columns)), *numbers, series, out, _SHARE, steps=50.0 * out.size)
    return out


@compiled
def _phases(columns, centres, middles, spacings, series, out, share, counter):
    """Write the phases over the sums of the series; each thread claims shares."""
    for begin, end in ranges(counter, out.size, share):
        for j in range(begin, end):
            angle, product = 0.0, 1.0
            for axis in range(len(columns)):
                x = columns[axis][j] - centres[axis]
                angle += middles[axis] * x
                if series.size:
                    k = spacings[axis] * x / np.pi
                    t = 2 * (2 * k * k - 1)
                    one, two = 0.0, 0.0  # Clenshaw's recurrence
                    for n in range(series.size - 1, 0, -1):
                        one, two = series[n] + t * one - two, one
                    product *= series[0] + t / 2 * one - two
            out[j] = complex(math.cos(angle) / product, math.sin(angle) / product)
