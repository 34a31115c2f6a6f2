# SPDX-License-Identifier: BSD-3-Clause
"""From points to frequencies anywhere, type 3: meshes, and phases of points and frequencies."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import particlemesh as pm
from particlemesh.apps.nufft.sizes import Law, Sizes, between, choose, fine, window_for
from particlemesh.apps.nufft.uniform import Uniform
from particlemesh.kernels import Record, Replays, allocate, compile_kernel, kept
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


_TINY = 1e-300  # smaller numbers have no inverse in float64
_FINE = 7  # binary digits of the ends of an interval: it becomes up to 1.6 % longer


class _Extent(NamedTuple):
    """An interval of coordinates: its middle and half of its length."""

    middle: float
    half: float

    @classmethod
    def of(cls, low: float, high: float) -> _Extent:
        """Return the interval of coordinates, with ends moved outward to a coarse scale.

        Points that move a little then have the same interval and meshes, and nothing depends on earlier points.
        """
        unit = math.ldexp(1.0, max(-1000, math.frexp(high / 2 - low / 2)[1] - _FINE))
        if low < high and math.isfinite(low / unit) and math.isfinite(high / unit):
            low, high = unit * math.floor(low / unit), unit * math.ceil(high / unit)
        middle, half = low / 2 + high / 2, high / 2 - low / 2
        # An interval around 0 that is hardly longer needs no phases.
        return cls(0.0, half + abs(middle)) if abs(middle) < 0.1 * half else cls(middle, half)


class _Meshes(NamedTuple):
    """Both meshes, with the boxes that they are for."""

    boxes: list[_Extent]
    bands: list[_Extent]
    sizes: Sizes
    spacings: list[float]  # of the mesh around the points
    window: pm.Window


class NonUniform:
    """Sums ``f[k] = sum_j c[j] exp(sign i s_k . x_j)`` between points x and frequencies s.

    Points are spread onto a mesh around them with one window. A transform of type 2 takes the mesh's nodes as modes
    to the frequencies [lee_greengard2005]_. Phases move both sets to the middle of their boxes. They are computed in
    float64, since products of coordinates are large.

    Parameters
    ----------
    backend : Backend
        Where the arrays are.
    eps, law, sigma
        Tolerance, the law of widths and the user's oversampling, if any.
    dtype : numpy.dtype
        Real type.
    real : bool
        Values at points are real. The mesh around the points then is, if the frequencies lie around 0.
    options : dict
        Further options of `particlemesh.Plan`.
    """

    def __init__(
        self, backend: Any, eps: float, law: Law, sigma: float | None, dtype: np.dtype, real: bool,
        options: dict[str, Any],
    ) -> None:  # fmt: skip
        self.backend, self.dtype, self.real = backend, dtype, real
        self.complex_dtype = np.result_type(dtype, np.complex64)
        self._eps, self._law, self._sigma, self._options = eps, law, sigma, options
        self._layout: _Meshes | None = None
        self.outer: Any = None  # plans of both meshes
        self.inner: Any = None
        self._phases = Phases(backend, dtype, options.get("threads"))
        self._before: Any = None  # phases of points
        self._after: Any = None  # phases of frequencies over the window's transform
        self.replays: Any = None  # repeats calls with these plans and phases

    @property
    def sizes(self) -> Sizes:
        """Sizes of the mesh around the points."""
        assert self._layout is not None
        return self._layout.sizes

    @property
    def has_points(self) -> bool:
        """Whether both sets are there; an error in `set_points` may have closed the plans."""
        return self._layout is not None

    @property
    def field_bytes(self) -> int:
        """Bytes of the meshes of one vector."""
        return int(self.inner.field_bytes)

    def set_points(self, points: tuple[Any, ...], frequencies: tuple[Any, ...]) -> None:
        """Set native coordinates per axis.

        The meshes follow from the boxes of both sets alone. They stay if these are the same. After an error the sets
        are the earlier ones, or the plans are closed.
        """
        phases = self._phases
        layout = self._layout_for(points, frequencies)
        same = self._layout is not None and layout == self._layout
        outer, inner = (self.outer, self.inner) if same else self._plans(layout)
        outer.set_positions(points)
        try:
            inner.set_points(frequencies)
        except BaseException:
            if outer is self.outer:  # it has the new points already
                self.close()
            raise
        if not same:
            self.replays = self._replays(outer, inner)
        # Phases move both sets to the middle of their boxes.
        zero, room = (0.0,) * len(points), (self._before, self._after) if same else (None, None)
        middles, centres = [box.middle for box in layout.boxes], [band.middle for band in layout.bands]
        with self._agreement("phases"):
            before = phases.of(points, zero, centres, room[0]) if any(centres) else None
            after = phases.of(frequencies, centres, middles, room[1], layout.window, layout.spacings)
        if before is not room[0] or after is not room[1]:
            self.replays.clear()
        self._layout, self.outer, self.inner, self._before, self._after = layout, outer, inner, before, after

    def _layout_for(self, points: Sequence[Any], frequencies: Sequence[Any]) -> _Meshes:
        """Return the meshes of both sets."""
        bounds = self._phases.bounds(points, "xyz"), self._phases.bounds(frequencies, "stu")
        return self._laid_out(*bounds, int(points[0].shape[0]) + int(frequencies[0].shape[0]))

    def _agreement(self, call: str) -> Any:
        return contextlib.nullcontext()

    def _replays(self, outer: Any, inner: Any) -> Any:
        return Replays(self.backend, outer, inner.plan)

    def close(self) -> None:
        """Release the plans; `set_points` makes new ones."""
        self._layout = None
        self.outer.close()
        self.inner.plan.close()

    def _laid_out(self, reached: Any, asked: Any, count: int, ranks: int = 1) -> _Meshes:
        """Return meshes for the bounds of points and frequencies, cut into parts for so many ranks."""
        boxes, bands = ([_Extent.of(*bounds) for bounds in given] for given in (reached, asked))
        # Products of an interval and a band: the modes that the mesh between the windows must resolve.
        products = [_product(*pair) for pair in zip(boxes, bands, strict=True)]
        on_cpu = self.backend.name == "cpu"
        least = [max(1.0, p) for p in products]
        about = 1 << max(0, count - 1).bit_length()
        sizes = choose(least, self._eps, self._law, about, 2, self.dtype, on_cpu, self._sigma)
        halves = [_safe(box.half, band.half) for box, band in zip(boxes, bands, strict=True)]
        spacings = [math.pi / (sizes.sigma * b) for _, b in halves]
        nodes = between(products, sizes)
        inner = fine(nodes, sizes.sigma)
        # The mesh around the points, the fine one, and the one between the transforms of its axes.
        needed, free = (
            (math.prod(nodes) + 2 * math.prod(inner)) * self.complex_dtype.itemsize // ranks,
            self.backend.free_bytes(),
        )
        if needed > free:
            raise MemoryError(
                f"type 3 needs meshes of {' x '.join(map(str, nodes))} and {' x '.join(map(str, inner))} nodes, "
                f"{needed:,} bytes; {free:,} are free on {self.backend.device}. Meshes grow with the box of the points "
                "times that of the frequencies: split one of them into smaller boxes and add the results, or give "
                "complex64 or a larger eps."
            )
        return _Meshes(boxes, bands, sizes._replace(nodes=nodes), spacings, window_for(sizes, self._eps))

    def _plans(self, layout: _Meshes) -> tuple[Any, Any]:
        """Return the plan of the mesh around the points, and the inner transform."""
        nodes, sizes, spacings = layout.sizes.nodes, layout.sizes, layout.spacings
        origin = [box.middle - n / 2 * h for box, n, h in zip(layout.boxes, nodes, spacings, strict=True)]
        lengths = [n * h for n, h in zip(nodes, spacings, strict=True)]
        mesh = pm.Mesh(nodes, tuple(lengths), origin=tuple(origin))
        around_zero = not any(band.middle for band in layout.bands)
        outer = self._outer(
            mesh, layout.window, dtype=self.dtype.name, components=1 if self.real and around_zero else 2,
            **self._options,
        )  # fmt: skip
        inner = self._inner(
            self.backend, nodes, sizes._replace(nodes=fine(nodes, sizes.sigma)), self._eps, self.dtype,
            lengths=[2 * math.pi / h for h in spacings], origin=[band.middle for band in layout.bands],
            order="centred", real=False, options=self._options,
        )  # fmt: skip
        return outer, inner

    def _outer(self, *given: Any, **options: Any) -> Any:
        return pm.Plan(*given, **options)

    def _inner(self, *given: Any, **options: Any) -> Any:
        return Uniform(*given, **options)

    def _to_inner(self, nodes: Any) -> Any:
        return nodes

    def _to_outer(self, modes: Any) -> Any:
        return modes

    def forward(self, values: Any, sign: int) -> Any:
        """Return the sums at the frequencies, shape (b, M), for native values (b, N)."""
        nodes = self.outer.spread(self._times(values, self._before, sign))
        if nodes.dtype != self.complex_dtype:
            nodes = self._phases.times(nodes.reshape(values.shape[0], -1), None, sign).reshape(nodes.shape)
        return self._times(self.inner.to_points(self._to_inner(nodes), sign), self._after, sign)

    def adjoint(self, values: Any, sign: int) -> Any:
        """Return ``sum_k f[k] exp(sign i s_k . x_j)`` at the points, shape (b, N), for native values (b, M)."""
        sums = self.outer.interpolate(self._nodes(values, sign))
        if self._before is None:
            return sums
        return self._phases.times(sums, self._before, sign, real=self.real)

    def gradient(self, values: Any, sign: int) -> tuple[Any, Any]:
        """Return the sums of `adjoint` and their gradients by the points, shapes (b, N) and (b, N, d)."""
        sums, slopes = self.outer.value_and_gradient(self._nodes(values, sign))
        if self._before is None:
            return sums, slopes
        assert self._layout is not None
        # PyOpenCL has no broadcasting: its arrays go by the host.
        host = self.backend.name == "opencl"
        before, sums, slopes = (self.backend.download(a) if host else a for a in (self._before, sums, slopes))
        phases = before if sign > 0 else before.conj()
        sums, slopes = sums * phases, slopes * phases[:, None]
        for axis, band in enumerate(self._layout.bands):
            slopes[..., axis] += sign * 1j * band.middle * sums
        sums, slopes = self._part(sums), self._part(slopes)
        return (self.backend.upload(sums), self.backend.upload(slopes)) if host else (sums, slopes)

    def _nodes(self, values: Any, sign: int) -> Any:
        """Return the mesh around the points for values at the frequencies; its real part if that is enough."""
        nodes = self._to_outer(self.inner.to_modes(self._times(values, self._after, sign), sign))
        if self._before is not None or not self.real:
            return nodes
        return self._phases.times(nodes.reshape(values.shape[0], -1), None, sign, real=True).reshape(nodes.shape)

    def _part(self, array: Any) -> Any:
        """Return the real part for real values at points."""
        return array.real if self.real and array.dtype == self.complex_dtype else array

    def _times(self, values: Any, factor: Any, sign: int) -> Any:
        """Return values times a factor, or its conjugate for sign -1; the same values if there is none."""
        return values if factor is None else self._phases.times(values, factor, sign)


def _product(box: _Extent, band: _Extent) -> float:
    a, b = _safe(box.half, band.half)
    return 2 * a * b / math.pi


def _safe(box: float, band: float) -> tuple[float, float]:
    """Return half lengths of both intervals, neither of which is 0 or tiny beside the other's inverse."""
    if box < _TINY and band < _TINY:
        return 1.0, 1.0
    if box < _TINY:
        return 1 / band, band
    return box, max(band, 1 / box)
