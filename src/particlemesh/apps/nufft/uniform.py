# SPDX-License-Identifier: BSD-3-Clause
"""From points to a band of modes and back: types 1 and 2, and the inner half of type 3."""

from __future__ import annotations

import functools
import math
import operator
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Generic, ParamSpec, TypeVar

import numpy as np

import particlemesh as pm
from particlemesh import kernels
from particlemesh.apps.nufft.sizes import Sizes, window_for
from particlemesh.fourier import Bands, Halves, mode_numbers
from particlemesh.kernels import Replays

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


@byte_bounded_cache(2**26, operator.attrgetter("nbytes"))
def of_modes(window: pm.Window, nodes: int, modes: int, order: str, half: bool) -> np.ndarray:
    """Return the inverse of the window's transform at the modes of an axis; see `mode_numbers`. Read-only."""
    factors = 1 / window.fourier(2 * math.pi / nodes * mode_numbers(modes, order, half=half))
    factors.flags.writeable = False
    return factors


def _bytes(bands: Bands) -> int:
    """Return the bytes of a band's tables on the CPU: factors, and those that it makes at its first use."""
    return sum(5 * f.nbytes + 2 * n * f.itemsize for n, f in zip(bands.nodes, bands.factors, strict=True))


@byte_bounded_cache(2**27, _bytes)
def _bands(
    backend: Any, window: pm.Window, nodes: tuple[int, ...], band: tuple[int, ...], dtype: np.dtype, order: str,
    real: bool, threads: int | None,
) -> Bands:  # fmt: skip
    """Return the transforms to modes, divided by the window's transform."""
    factors = [
        of_modes(window, n, k, order, real and axis == len(band) - 1)
        for axis, (k, n) in enumerate(zip(band, nodes, strict=True))
    ]
    return Bands(backend, nodes, band, factors, dtype, order=order, real=real, threads=threads)


class Uniform:
    """Sums between points and the modes of a periodic box.

    Parameters
    ----------
    backend : Backend
        Where the arrays are.
    modes : sequence of 1 to 3 ints
        Modes per axis.
    sizes : Sizes
        The window's support and the fine mesh.
    eps : float
        Tolerance of the transform.
    dtype : numpy.dtype
        Real type.
    lengths, origin : sequence of float
        The box: mode k of an axis is ``exp(i k 2 pi (x - origin) / length)``.
    order : {"fft", "centred"}
        Order of the modes.
    real : bool
        Values at points are real.
    options : dict
        Further options of `particlemesh.Plan`.
    """

    def __init__(
        self, backend: Any, modes: Sequence[int], sizes: Sizes, eps: float, dtype: np.dtype, *,
        lengths: Sequence[float], origin: Sequence[float], order: str, real: bool, options: dict[str, Any],
    ) -> None:  # fmt: skip
        self.backend, self.modes, self.order, self.real, self.sizes = backend, tuple(modes), order, real, sizes
        self.dtype, self.complex_dtype = dtype, np.result_type(dtype, np.complex64)
        self.lengths, self._origin, self._options = tuple(lengths), tuple(origin), options
        self.window = window = window_for(sizes, eps)
        # Of real fields the band is symmetric, -(K // 2) to K // 2: each mode has its conjugate.
        band = tuple(2 * (k // 2) + 1 for k in modes) if real else self.modes
        # On the CPU bands hold tables only, so that transforms share them.
        make = _bands if backend.name == "cpu" else _bands.make
        self.bands = make(
            backend, window, sizes.nodes, band, dtype, "centred" if real else order, real, options.get("threads")
        )
        self._halves = Halves(backend, self.modes, dtype, order, options.get("threads")) if real else None
        self._fields: Any = None

    @functools.cached_property
    def plan(self) -> pm.Plan:
        """The plan that spreads and interpolates."""
        mesh = pm.Mesh(self.sizes.nodes, self.lengths, origin=self._origin)
        components = 1 if self.real else 2
        return pm.Plan(mesh, self.window, dtype=self.dtype.name, components=components, **self._options)

    @functools.cached_property
    def replays(self) -> Replays:
        """What repeats calls."""
        return Replays(self.backend, self.plan)

    @property
    def field_bytes(self) -> int:
        """Bytes of one fine mesh."""
        return math.prod(self.bands.nodes) * self.dtype.itemsize * (1 if self.real else 2)

    def set_points(self, points: tuple[Any, ...]) -> None:
        """Set native coordinates (N,) per axis."""
        self.plan.set_positions(points)

    def _field(self, batch: int) -> Any:
        if self._fields is None or self._fields.shape[0] < batch:
            number = self.dtype if self.real else self.complex_dtype
            self._fields = None
            self._fields = self.backend.empty((batch, *self.bands.nodes), number)
        return self._fields[:batch]

    def to_modes(self, values: Any, sign: int, out: Any = None) -> Any:
        """Return ``sum_j values[j] exp(sign i k x_j)``, shape (b, *modes), for native values (b, N)."""
        field = self.plan.spread(values, out=self._field(values.shape[0]))
        if self._halves is None:
            return self.bands.to_modes(field, out, sign=sign)
        return self._halves.whole(self.bands.to_modes(field), out, conjugate=sign > 0)

    def to_points(self, modes: Any, sign: int, out: Any = None) -> Any:
        """Return ``sum_k modes[k] exp(sign i k x_j)``, shape (b, N), or its real part; modes are dense."""
        return self.plan.interpolate(self._nodes(modes, sign), out=out)

    def to_points_and_slopes(self, modes: Any, sign: int) -> tuple[Any, Any]:
        """Return the sums and their gradients by the points, shapes (b, N) and (b, N, d)."""
        values, slopes = self.plan.value_and_gradient(self._nodes(modes, sign))
        return values, slopes

    def _nodes(self, modes: Any, sign: int) -> Any:
        if self._halves is None:
            return self.bands.to_nodes(modes, self._field(modes.shape[0]), sign=sign)
        half = self._halves.half(modes, conjugate=sign < 0)
        return self.bands.to_nodes(half, self._field(modes.shape[0]))
