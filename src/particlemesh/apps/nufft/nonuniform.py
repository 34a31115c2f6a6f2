# SPDX-License-Identifier: BSD-3-Clause
"""From points to frequencies anywhere: type 3."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

import particlemesh as pm
from particlemesh.apps.nufft.factors import of_coordinates
from particlemesh.apps.nufft.sizes import Law, between, choose, fine
from particlemesh.apps.nufft.uniform import Uniform, window_for

_TINY = 1e-300  # smaller numbers have no inverse in float64


class _Extent(NamedTuple):
    """An interval of coordinates: its middle and half of its length."""

    middle: float
    half: float

    @classmethod
    def of(cls, numbers: np.ndarray, name: str) -> _Extent:
        if not numbers.size:
            return cls(0.0, 0.0)
        low, high = float(numbers.min()), float(numbers.max())
        if not (math.isfinite(low) and math.isfinite(high)):
            bad = int(np.flatnonzero(~np.isfinite(numbers))[0])
            raise ValueError(f"{name}[{bad}] is {numbers[bad]}; every coordinate must be finite.")
        middle, half = (low + high) / 2, (high - low) / 2
        # An interval around 0 that is hardly longer needs no phases.
        return cls(0.0, half + abs(middle)) if abs(middle) < 0.1 * half else cls(middle, half)


class NonUniform:
    """Sums ``f[k] = sum_j c[j] exp(sign i s_k . x_j)`` between points x and frequencies s.

    Points are spread onto a mesh around them with one window. A transform of type 2 takes the mesh's nodes as modes
    to the frequencies [lee_greengard2005]_. Phases move both sets to the middle of their boxes. They are computed in
    float64, since products of coordinates are large.

    Parameters
    ----------
    backend : Backend
        Where the arrays are.
    points, frequencies : tuple of native arrays
        Coordinates per axis.
    eps, law, sigma
        Tolerance, the law of widths and the user's oversampling, if any.
    dtype : numpy.dtype
        Real type.
    options : dict
        Further options of `particlemesh.Plan`.
    """

    def __init__(
        self, backend: Any, points: tuple[Any, ...], frequencies: tuple[Any, ...], eps: float, law: Law,
        sigma: float | None, dtype: np.dtype, options: dict[str, Any],
    ) -> None:  # fmt: skip
        self.backend = backend
        self.complex_dtype = np.result_type(dtype, np.complex64)
        x = [np.asarray(backend.download(p), np.float64) for p in points]
        s = [np.asarray(backend.download(f), np.float64) for f in frequencies]
        boxes = [_Extent.of(a, name) for a, name in zip(x, "xyz", strict=False)]
        bands = [_Extent.of(a, name) for a, name in zip(s, "stu", strict=False)]
        halves = [_safe(box.half, band.half) for box, band in zip(boxes, bands, strict=True)]
        # Products of an interval and a band: the modes that the mesh between the windows must resolve.
        products = [2 * a * b / math.pi for a, b in halves]
        sizes = choose(
            [max(1.0, p) for p in products], eps, law, x[0].size + s[0].size, 2, dtype, backend.name == "cpu", sigma
        )
        nodes = between(products, sizes)
        spacings = [math.pi / (sizes.sigma * b) for _, b in halves]
        window = window_for(sizes, eps)
        origin = [box.middle - n / 2 * h for box, n, h in zip(boxes, nodes, spacings, strict=True)]
        lengths = [n * h for n, h in zip(nodes, spacings, strict=True)]
        self.sizes = sizes._replace(nodes=nodes)
        self.outer = pm.Plan(
            pm.Mesh(nodes, tuple(lengths), origin=tuple(origin)), window, dtype=dtype.name, components=2, **options
        ).set_positions(points)  # fmt: skip
        inner = sizes._replace(nodes=fine(nodes, sizes.sigma))
        self.inner = Uniform(
            backend, nodes, inner, eps, dtype, lengths=[2 * math.pi / h for h in spacings],
            origin=[band.middle for band in bands], order="centred", real=False, options=options,
        )  # fmt: skip
        self.inner.set_points(frequencies)
        # Phases move both sets to the middle of their boxes.
        threads, zero = options.get("threads"), (0.0,) * len(x)
        middles, centres = [box.middle for box in boxes], [band.middle for band in bands]
        self._before = None
        if any(centres):
            self._before = backend.upload(of_coordinates(x, zero, centres, self.complex_dtype, threads))
        self._after = backend.upload(of_coordinates(s, centres, middles, self.complex_dtype, threads, window, spacings))

    @property
    def field_bytes(self) -> int:
        """Bytes of the meshes of one vector."""
        return self.inner.field_bytes

    def forward(self, values: Any, sign: int) -> Any:
        """Return the sums at the frequencies, shape (b, M), for native values (b, N)."""
        nodes = self.outer.spread(self._times(values, self._before, sign))
        return self._times(self.inner.to_points(nodes, sign), self._after, sign)

    def adjoint(self, values: Any, sign: int) -> Any:
        """Return ``sum_k f[k] exp(sign i s_k . x_j)`` at the points, shape (b, N), for native values (b, M)."""
        nodes = self.inner.to_modes(self._times(values, self._after, sign), sign)
        return self._times(self.outer.interpolate(nodes), self._before, sign)

    def _times(self, values: Any, factor: Any, sign: int) -> Any:
        """Return values times a factor, or its conjugate for sign -1."""
        if factor is None:
            return values
        factor = factor if sign > 0 else factor.conj()
        if self.backend.name != "opencl":
            return values * factor
        # PyOpenCL multiplies arrays of one shape only.
        result = self.backend.empty(values.shape, self.complex_dtype)
        for row in range(values.shape[0]):
            self.backend.copy(result[row], values[row] * factor)
        return result


def _safe(box: float, band: float) -> tuple[float, float]:
    """Return half lengths of both intervals, neither of which is 0 or tiny beside the other's inverse."""
    if box < _TINY and band < _TINY:
        return 1.0, 1.0
    if box < _TINY:
        return 1 / band, band
    return box, max(band, 1 / box)
