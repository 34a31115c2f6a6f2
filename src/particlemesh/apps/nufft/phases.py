# SPDX-License-Identifier: BSD-3-Clause
"""What type 3 does with coordinates and values where they are: bounds, phases, products."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import particlemesh as pm
from particlemesh.kernels import Record, allocate, compile_kernel, kept
from particlemesh.kernels.cpu import compiled, plain, ranges, run, threads_for

_FILE = Path(__file__).with_name("phases.c")
_SHARE = 4096  # numbers that a thread or group claims at once
_MOST_SHARES = 512


class Phases:
    """Phases of points and frequencies on a backend.

    They are computed in float64, since products of coordinates are large: by the host for a device without float64.

    Parameters
    ----------
    backend : Backend
    dtype : numpy.dtype
        Real type of coordinates and values.
    threads : int, optional
        CPU threads.
    """

    def __init__(self, backend: Any, dtype: np.dtype, threads: int | None) -> None:
        self._on_cpu = backend.name == "cpu"
        self._backend: Any = backend if self._on_cpu else kept(backend)
        self._by_host = self._on_cpu or not backend.facts().get("HAS_FP64", 1)
        self.dtype, self.complex_dtype, self._threads = dtype, np.result_type(dtype, np.complex64), threads

    def bounds(self, columns: Sequence[Any], names: str) -> list[tuple[float, float]]:
        """Return the smallest and the largest coordinate of each axis, 0 without points; waits.

        Raises
        ------
        ValueError
            If a coordinate is not finite; the message names the first.
        """
        count, backend = int(columns[0].shape[0]), self._backend
        if not count:
            return [(0.0, 0.0)] * len(columns)
        if self._on_cpu:
            parts = [np.array([column.min(), column.max()]) for column in columns]
        else:
            shares = min(_MOST_SHARES, -(-count // _SHARE))
            rooms = [allocate(backend, (2, shares), self.dtype, "bounds") for _ in columns]
            for column, room in zip(columns, rooms, strict=True):
                self._kernel("extents")(shares * backend.group_size, column, room, count, shares, *self._place(column))
            parts = backend.read(*rooms)
        reached = [(float(part.min()), float(part.max())) for part in parts]
        for bounds, column, name in zip(reached, columns, names, strict=False):
            if not all(map(math.isfinite, bounds)):
                host = backend.download(column)
                bad = int(np.flatnonzero(~np.isfinite(host))[0])
                raise ValueError(f"{name}[{bad}] is {host[bad]}; every coordinate must be finite.")
        return reached

    def of(
        self, columns: Sequence[Any], centres: Sequence[float], middles: Sequence[float], out: Any = None,
        window: pm.Window | None = None, spacings: Sequence[float] = (),
    ) -> Any:  # fmt: skip
        """Return ``exp(i sum_a middles[a] (x[a] - centres[a]))``, divided by the window's transform along each axis.

        Parameters
        ----------
        columns : d native arrays (N,)
            Coordinates x.
        centres, middles : d floats
            Origin of the coordinates, and the middle of those on the other side.
        out : native array (N,), optional
            Complex and dense: memory for the result, used if it has this length.
        window : Window, optional
            By default there is no division.
        spacings : d floats
            The transform's argument is ``spacings[a] (x[a] - centres[a])``, from -pi to pi.
        """
        count, backend = int(columns[0].shape[0]), self._backend
        if out is None or out.shape[0] != count:
            out = allocate(backend, (count,), self.complex_dtype, "phases")
        series = np.empty(0) if window is None else _series(window)
        if self._by_host:
            host = [np.ascontiguousarray(backend.download(column), np.float64) for column in columns]
            sides = [np.array(n, np.float64) for n in (centres, middles, spacings)]
            result = out if self._on_cpu else np.empty(count, self.complex_dtype)
            workers = threads_for(self._threads, count)
            run(_phases, workers, tuple(map(plain, host)), *sides, series, result, _SHARE, steps=50.0 * count)
            if result is not out and count:
                backend.copy(out, backend.upload(result))
        elif count:
            missing = 3 - len(columns)
            three = [*columns, *[columns[0]] * missing]
            numbers = [float(n) for given in (centres, middles, spacings) for n in (*given, *[0.0] * (3 - len(given)))]
            places = zip(*map(self._place, three), strict=True)
            table, axes = _on_device(backend, window), Record("=9d6q", *numbers, *(n for pair in places for n in pair))
            self._kernel("phases", AXES=len(columns))(count, *three, table, out, count, series.size, axes)
        return out

    def times(self, values: Any, factor: Any, sign: int, *, real: bool = False) -> Any:
        """Return dense values (b, N) times a factor (N,), or its conjugate for sign -1; ``real`` parts of them.

        Without a factor values are only converted.
        """
        if self._on_cpu:
            if factor is not None:
                values = values * (factor if sign > 0 else factor.conj())
            return values.real.copy() if real else values.astype(self.complex_dtype, copy=False)
        rows, count = values.shape
        number = self.dtype if real else self.complex_dtype
        out = allocate(self._backend, (rows, count), number, "values at points or frequencies")
        if rows * count:
            parts = {"IN": 1 + (values.dtype.kind == "c"), "OUT": 2 - real, "FACTORS": int(factor is not None)}
            at, size = int(getattr(values, "offset", 0)), self.dtype.itemsize
            multiply, by = self._kernel("times", **parts), values if factor is None else factor
            multiply(rows * count, values, by, out, rows, count, at // size, int(sign < 0))
        return out

    def _place(self, column: Any) -> tuple[int, int]:
        """Return where an array (N,) begins in its memory, and its stride, in reals."""
        size = self.dtype.itemsize
        return int(getattr(column, "offset", 0)) // size, column.strides[0] // size

    def _kernel(self, name: str, **defines: int) -> Any:
        wide = int(not self._by_host)
        defines = {"AXES": 1, "IN": 1, "OUT": 1, "FACTORS": 0, "COORDINATE_IS_DOUBLE": wide, **defines}
        return compile_kernel(self._backend, _FILE, name, self.dtype, **defines)


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


@functools.lru_cache(maxsize=64)
def _on_device(backend: Any, window: pm.Window | None) -> Any:
    """Return the series on a device; some memory without a window."""
    return backend.upload(np.zeros(1) if window is None else _series(window))


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
