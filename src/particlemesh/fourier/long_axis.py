# SPDX-License-Identifier: BSD-3-Clause
"""Transforms of one long axis on the CPU, as two sets of short ones (Bailey 1990), which threads share.

SciPy transforms a row by one thread, and a long row does not fit a cache. Here a row of ``n`` numbers is a table, of
about as many rows as columns. Its columns are transformed, and number (k, j) is multiplied by ``exp(-2 pi i k j / n)``.
Then the columns of the transposed table are transformed. A real row of n numbers is a complex one of n / 2.
"""

from __future__ import annotations

import functools
import math

import numpy as np
import scipy.fft

from particlemesh.backends.cpu import ranges, run
from particlemesh.backends.jit import compiled
from particlemesh.backends.simd import item, put
from particlemesh.fourier.engines import BACKWARD, FORWARD

_LONG = 1 << 16  # numbers of a row: from here on two sets of short transforms take less time, also by one thread
_TILE = 16  # rows and columns that are transposed at a time
_SHARE = 1 << 14  # numbers of a real transform that a thread claims at a time


def transform(source: np.ndarray, target: np.ndarray, sign: int, workers: int) -> np.ndarray:
    """Return ``sum_m source[m] exp(sign 2 pi i k m / n)`` of each row, written to the target; overwrite the source.

    Parameters
    ----------
    source, target : (..., n)
        Complex, dense, with numbers of their rows that `is_long` takes.
    sign : {-1, 1}
        Of the exponent.
    workers : int
        The most threads.
    """
    n = source.shape[-1]
    split = _split(n)
    assert split is not None
    for row, turned in zip(source.reshape(-1, n), target.reshape(-1, n), strict=True):
        _columns(row.reshape(split), sign, workers)
        run(_turn, workers, row, turned, *split, _roots(n, sign))
        _columns(turned.reshape(split[::-1]), sign, workers)
    return target


def real_to_modes(field: np.ndarray, modes: np.ndarray, room: np.ndarray, workers: int) -> np.ndarray:
    """Write ``scipy.fft.rfft(field)`` of one row of n real numbers to ``modes``; ``room`` has n / 2 complex numbers."""
    modes[:-1] = field.view(modes.dtype)
    transform(modes[:-1], room, FORWARD, workers)
    modes[:-1], modes[-1] = room, room[0]
    run(_part, workers, modes, _roots(len(field), FORWARD), FORWARD, 0.5)
    return modes


def modes_to_real(modes: np.ndarray, field: np.ndarray, workers: int) -> np.ndarray:
    """Write ``scipy.fft.irfft(modes, n, norm="forward")`` to a row of n real numbers; overwrite the modes."""
    modes.imag[[0, -1]] = 0  # of a real field
    run(_part, workers, modes, _roots(len(field), BACKWARD), BACKWARD, 1.0)
    transform(modes[:-1], field.view(modes.dtype), BACKWARD, workers)
    return field


def is_long(n: int, *, real: bool = False) -> bool:
    """Return whether a row of so many numbers takes less time here."""
    return not (real and n % 2) and _split(n // 2 if real else n) is not None


def _columns(table: np.ndarray, sign: int, workers: int) -> None:
    """Transform the columns of a table in place."""
    transformed = scipy.fft.fft if sign == FORWARD else functools.partial(scipy.fft.ifft, norm="forward")
    result = transformed(table, axis=0, workers=workers, overwrite_x=True)
    if not np.may_share_memory(result, table):  # SciPy may overwrite; it need not
        table[...] = result


@functools.lru_cache(64)
def _split(n: int) -> tuple[int, int] | None:
    """Return rows and columns of the table of a row, nearly as many; None for a row that stays whole."""
    if n < _LONG:
        return None
    rows = next(d for d in range(math.isqrt(n), 0, -1) if n % d == 0)
    return (rows, n // rows) if rows * 64 > n // rows else None


@functools.lru_cache(8)
def _roots(n: int, sign: int) -> tuple[np.ndarray, np.ndarray, int]:
    """Return ``exp(sign 2 pi i m / n)`` for multiples m of ``2**shift``, near the root of n, for m below, and shift."""
    shift = n.bit_length() // 2
    coarse, fine = (np.exp(sign * 2j * np.pi / n * m) for m in (np.arange(0, n, 1 << shift), np.arange(1 << shift)))
    return coarse, fine, shift


@compiled(inline="always")
def _root(roots, m):
    coarse, fine, shift = roots
    return item(coarse, m >> shift) * item(fine, m & (fine.size - 1))


@compiled
def _turn(table, turned, rows, columns, roots, counter):
    """Write the table transposed, each number times the root of its row times its column."""
    for begin, end in ranges(counter, columns, _TILE):
        for first in range(0, rows, _TILE):
            for j in range(begin, end):
                for k in range(first, min(first + _TILE, rows)):
                    put(turned, j * rows + k, item(table, k * columns + j) * _root(roots, k * j))


@compiled
def _part(row, roots, sign, scale, counter):
    """Turn modes of pairs of real numbers into those of the numbers (sign -1, scale 1/2), or back (1, 1). In place."""
    m = row.size - 1
    for begin, end in ranges(counter, m // 2 + 1, _SHARE):
        for k in range(begin, end):
            low, high = row[k], row[m - k].conjugate()
            even, odd = scale * (low + high), scale * (low - high) * _root(roots, k)
            odd = sign * 1j * odd
            row[k], row[m - k] = even + odd, (even - odd).conjugate()
