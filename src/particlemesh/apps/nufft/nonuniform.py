# SPDX-License-Identifier: BSD-3-Clause
"""From points to frequencies anywhere: type 3."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

import particlemesh as pm
from particlemesh.apps.nufft.factors import of_coordinates
from particlemesh.apps.nufft.sizes import Law, Sizes, between, choose, fine, window_for
from particlemesh.apps.nufft.uniform import Uniform

_TINY = 1e-300  # smaller numbers have no inverse in float64
_FINE = 7  # binary digits of the ends of an interval: it becomes up to 1.6 % longer


class _Extent(NamedTuple):
    """An interval of coordinates: its middle and half of its length."""

    middle: float
    half: float

    @classmethod
    def of(cls, numbers: np.ndarray, name: str) -> _Extent:
        """Return the interval of coordinates, with ends moved outward to a coarse scale.

        Points that move a little then have the same interval and meshes, and nothing depends on earlier points.
        """
        if not numbers.size:
            return cls(0.0, 0.0)
        low, high = float(numbers.min()), float(numbers.max())
        if not (math.isfinite(low) and math.isfinite(high)):
            bad = int(np.flatnonzero(~np.isfinite(numbers))[0])
            raise ValueError(f"{name}[{bad}] is {numbers[bad]}; every coordinate must be finite.")
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
        self._before: Any = None  # phases of points
        self._after: Any = None  # phases of frequencies over the window's transform

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
        x = [np.ascontiguousarray(self.backend.download(p), np.float64) for p in points]
        s = [np.ascontiguousarray(self.backend.download(f), np.float64) for f in frequencies]
        boxes = [_Extent.of(a, name) for a, name in zip(x, "xyz", strict=False)]
        bands = [_Extent.of(a, name) for a, name in zip(s, "stu", strict=False)]
        layout = self._laid_out(boxes, bands, x[0].size + s[0].size)
        same = self._layout is not None and layout == self._layout
        outer, inner = (self.outer, self.inner) if same else self._plans(layout)
        # Phases move both sets to the middle of their boxes.
        threads, zero = self._options.get("threads"), (0.0,) * len(x)
        middles, centres = [box.middle for box in layout.boxes], [band.middle for band in layout.bands]
        upload, kind = self.backend.upload, self.complex_dtype
        before = upload(of_coordinates(x, zero, centres, kind, threads)) if any(centres) else None
        after = upload(of_coordinates(s, centres, middles, kind, threads, layout.window, layout.spacings))
        outer.set_positions(points)
        try:
            inner.set_points(frequencies)
        except BaseException:
            if outer is self.outer:  # it has the new points already
                self.close()
            raise
        self._layout, self.outer, self.inner, self._before, self._after = layout, outer, inner, before, after

    def close(self) -> None:
        """Release the plans; `set_points` makes new ones."""
        self._layout = None
        self.outer.close()
        self.inner.plan.close()

    def _laid_out(self, boxes: list[_Extent], bands: list[_Extent], count: int) -> _Meshes:
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
            (math.prod(nodes) + 2 * math.prod(inner)) * self.complex_dtype.itemsize,
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

    def _plans(self, layout: _Meshes) -> tuple[pm.Plan, Uniform]:
        nodes, sizes, spacings = layout.sizes.nodes, layout.sizes, layout.spacings
        origin = [box.middle - n / 2 * h for box, n, h in zip(layout.boxes, nodes, spacings, strict=True)]
        lengths = [n * h for n, h in zip(nodes, spacings, strict=True)]
        mesh = pm.Mesh(nodes, tuple(lengths), origin=tuple(origin))
        around_zero = not any(band.middle for band in layout.bands)
        outer = pm.Plan(
            mesh, layout.window, dtype=self.dtype.name, components=1 if self.real and around_zero else 2,
            **self._options,
        )  # fmt: skip
        inner = Uniform(
            self.backend, nodes, sizes._replace(nodes=fine(nodes, sizes.sigma)), self._eps, self.dtype,
            lengths=[2 * math.pi / h for h in spacings], origin=[band.middle for band in layout.bands],
            order="centred", real=False, options=self._options,
        )  # fmt: skip
        return outer, inner

    def forward(self, values: Any, sign: int) -> Any:
        """Return the sums at the frequencies, shape (b, M), for native values (b, N)."""
        nodes = self.outer.spread(self._times(values, self._before, sign))
        if nodes.dtype != self.complex_dtype:
            nodes = nodes.astype(self.complex_dtype)
        return self._times(self.inner.to_points(nodes, sign), self._after, sign)

    def adjoint(self, values: Any, sign: int) -> Any:
        """Return ``sum_k f[k] exp(sign i s_k . x_j)`` at the points, shape (b, N), for native values (b, M)."""
        sums = self._times(self.outer.interpolate(self._nodes(values, sign)), self._before, sign)
        return self._part(sums)

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
        nodes = self.inner.to_modes(self._times(values, self._after, sign), sign)
        return self._part(nodes) if self._before is None else nodes

    def _part(self, array: Any) -> Any:
        """Return the real part for real values at points."""
        if not self.real or array.dtype != self.complex_dtype:
            return array
        return array.real if self.backend.name == "opencl" else array.real.copy()

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
