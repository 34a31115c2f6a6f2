# SPDX-License-Identifier: BSD-3-Clause
"""Samples of images whose spins turn at frequencies of their own, by segments of the readout."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from particlemesh.apps import nufft
from particlemesh.apps.mri.density import image_shape
from particlemesh.apps.nufft import shapes
from particlemesh.kernels import Fixed, checks

MOST = 256  # segments
_BINS = (256, 4096)  # of the histogram of frequencies: at least, and at most
_ROUNDING = 1e-14
_CHUNK = 1024  # times whose interpolators are solved together
INTERPOLATORS = ("least-squares", "hann")


class OffResonance(Fixed):
    r"""Samples of coil images in a field that is not uniform, and the adjoint.

    ``y[b, c, j] = sum_k S[c, k] x[b, k] exp(-2 pi i field_map[k] times[j]) exp(-i k . samples[j])``

    A sum of K transforms has these phases: ``exp(-2 pi i f t)`` is ``sum_l b_l(t) exp(-2 pi i f t_l)``, where the times
    t\ :sub:`l` are spaced evenly over the readout [noll1991]_. The interpolators b are either Hann windows, or have the
    least squares error over the histogram of the field map [sutton2003]_. K is the least number with the accuracy.

    Parameters
    ----------
    samples : array (N, d)
        Radians per pixel, from -pi to pi; float32 or float64, of NumPy or CuPy.
    shape : tuple of d ints
        Pixels of an image, (nx, ...).
    field_map : real array (nx, ...)
        Frequencies of the pixels in Hz.
    times : real array (N,)
        Seconds from the excitation to each sample.
    maps : array (coils, nx, ...) or (batch, coils, nx, ...), optional
        Sensitivities of coils, of all images or of each. Without them images have no coils.
    accuracy : float, optional
        Largest error of a phase factor, root mean square over pixels, at any sample; by default 1e-3.
    segments : int, optional
        K, instead of an accuracy.
    interpolator : {"least-squares", "hann"}
        How phases between segments are made.
    eps : float
        Relative error of the transforms; by default a tenth of ``error``.
    **options
        Those of `particlemesh.apps.nufft.Plan`.

    Attributes
    ----------
    segments : int
        Transforms of a coil image.
    error : float
        Of phase factors, as ``accuracy``. The relative l2 error of samples is at most this on average over images
        whose pixels have random phases.

    Raises
    ------
    ValueError, TypeError
        If an argument is not allowed, or 256 segments do not reach the accuracy.

    Examples
    --------
    Two pixels of one brightness, 25 Hz apart, cancel after 20 ms:

    >>> import numpy as np
    >>> from particlemesh.apps.mri import OffResonance
    >>> times = np.array([0.0, 0.01, 0.02])
    >>> pair = OffResonance(np.zeros((3, 1)), (2,), np.array([0.0, 25.0]), times, accuracy=1e-6)
    >>> abs(pair.execute(np.ones(2, complex))).round(4) + 0.0
    array([2.    , 1.4142, 0.    ])
    """

    def __init__(
        self, samples: Any, shape: tuple[int, ...], field_map: Any, times: Any, *, maps: Any = None,
        accuracy: float | None = None, segments: int | None = None, interpolator: str = "least-squares",
        eps: float | None = None, **options: Any,
    ) -> None:  # fmt: skip
        self.shape, self._kind = image_shape(shape), shapes.kind(samples, "samples")
        if len(samples.shape) != 2 or samples.shape[1] != len(self.shape) or not len(samples):
            raise ValueError(
                f"samples have shape {tuple(samples.shape)}; for images of shape {self.shape} give "
                f"(N, {len(self.shape)})."
            )
        if accuracy is not None and segments is not None:
            raise ValueError(f"segments is {segments!r} beside accuracy={accuracy!r}, which chooses them: give one.")
        self.accuracy = 1e-3 if accuracy is None else checks.positive(accuracy, "accuracy")
        self.interpolator = checks.one_of(interpolator, "interpolator", INTERPOLATORS)
        given = None if segments is None else checks.integer(segments, "segments", 1, MOST)
        self._like = samples
        self._dtype = np.result_type(self._kind.dtype(samples), np.complex64)
        count = len(samples)
        f, t = _real(field_map, "field_map", self.shape), _real(times, "times", (count,))
        # Phases of the middle of the frequencies are exact: the others are smaller.
        middle = (f.min() + f.max()) / 2
        turns = float((f.max() - f.min()) * (t.max() - t.min()))
        lines, share = _histogram(f - middle, turns)
        instants, which = np.unique(t, return_inverse=True)
        self.segments, self.error, rows, nodes = _chosen(
            lines, share, instants, self.accuracy, given, self.interpolator, turns
        )
        turn = np.exp(-2j * np.pi * middle * t)
        self._rows = self._here((rows[:, which.ravel()] * turn).astype(self._dtype))
        phases = np.exp(-2j * np.pi * nodes.reshape(-1, *[1] * f.ndim) * (f - middle))
        self._phases = self._here(phases.astype(self._dtype))
        self._maps: Any = None if maps is None else self._sensitivities(maps)
        accurate = min(0.1, max(self.error / 10, 1e-6 if self._dtype == np.complex64 else 1e-14))
        self._plan = nufft.Plan(
            2, self.shape, self.segments, accurate if eps is None else eps, -1, self._dtype, **options
        )
        self._plan.setpts(*(samples[:, axis] for axis in range(len(self.shape))))

    def execute(self, images: Any) -> Any:
        """Return the samples of images.

        Parameters
        ----------
        images : array (nx, ...) or (batch, nx, ...)
            Of the library of the samples.

        Returns
        -------
        array (N,) or (batch, N); with maps (coils, N) or (batch, coils, N)
        """
        data = self._taken(images, "images", self.shape)
        batch = data.reshape(-1, *self.shape)
        made = []
        for b in range(len(batch)):
            coils = batch[b : b + 1] if self._maps is None else batch[b] * self._maps_of(b, len(batch))
            made += [(self._rows * self._transform(coil * self._phases)).sum(0) for coil in coils]
        return np.stack(made).reshape(*data.shape[: -len(self.shape)], *self._coils, -1)

    def execute_adjoint(self, values: Any) -> Any:
        """Return the images of samples: the adjoint of :meth:`execute`, to rounding.

        Parameters
        ----------
        values : array (N,) or (batch, N); with maps (coils, N) or (batch, coils, N)
            Of the library of the samples.

        Returns
        -------
        array (nx, ...) or (batch, nx, ...)
        """
        core = (*self._coils, self._rows.shape[1])
        data = self._taken(values, "values", core)
        batch = data.reshape(-1, *core[:-1] or (1,), core[-1])
        images = []
        for b in range(len(batch)):
            coils = [
                (self._phases.conj() * self._transform(self._rows.conj() * row, adjoint=True)).sum(0)
                for row in batch[b]
            ]
            image = np.stack(coils)
            images.append(image[0] if self._maps is None else (image * self._maps_of(b, len(batch)).conj()).sum(0))
        return np.stack(images).reshape(*data.shape[: -len(core)], *self.shape)

    @property
    def _coils(self) -> tuple[int, ...]:
        return () if self._maps is None else (self._maps.shape[-len(self.shape) - 1],)

    def _maps_of(self, b: int, images: int) -> Any:
        if self._maps.ndim == len(self.shape) + 1:
            return self._maps
        if len(self._maps) != images:
            raise ValueError(f"there are {images} images, and maps for {len(self._maps)}: give maps for each, or all.")
        return self._maps[b]

    def _transform(self, vectors: Any, adjoint: bool = False) -> Any:
        vectors = vectors.astype(self._dtype, copy=False)
        one = vectors if self.segments > 1 else vectors[0]
        result = self._plan.execute_adjoint(one) if adjoint else self._plan.execute(one)
        return result.reshape(self.segments, *result.shape[-1 if not adjoint else -len(self.shape) :])

    def _sensitivities(self, maps: Any) -> Any:
        shape = tuple(getattr(maps, "shape", ()))
        if (
            shape[-len(self.shape) :] != self.shape
            or len(shape) - len(self.shape) not in (1, 2)
            or not math.prod(shape)
        ):
            raise ValueError(f"maps have shape {shape}; give (coils, {str(self.shape)[1:]} or with a batch before it.")
        checks.number_array(_host(maps), "maps")
        return self._here(_host(maps).astype(self._dtype))

    def _taken(self, array: Any, name: str, core: tuple[int, ...]) -> Any:
        if type(array) is not type(self._like):
            raise TypeError(
                f"{name} is of type {type(array).__name__}; the samples are of {type(self._like).__name__}: give that."
            )
        shape = tuple(array.shape)
        if shape[-len(core) :] != core or len(shape) > len(core) + 1 or not math.prod(shape):
            raise ValueError(f"{name} has shape {shape}; give {core}, or a batch of these.")
        if array.dtype.kind not in "fciu":
            raise TypeError(f"{name} is of type {array.dtype}; give numbers.")
        return array

    def _here(self, array: np.ndarray) -> Any:
        """Return an array in the library of the samples, on their device."""
        backend = self._kind.backend(self._like)
        with self._kind.scope(self._like), backend.scope(self._kind.native(self._like)):
            return self._kind.wrap(backend.upload(np.ascontiguousarray(array)))


def _host(array: Any) -> np.ndarray:
    return np.asarray(array.get() if hasattr(array, "get") else array)


def _real(array: Any, name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Return finite real numbers of a shape, on the host in double precision."""
    numbers = checks.number_array(_host(array), name)
    if numbers.shape != shape:
        raise ValueError(f"{name} has shape {numbers.shape}; give {shape}.")
    if numbers.dtype.kind not in "iuf":
        raise TypeError(f"{name} is of type {numbers.dtype}; give real numbers.")
    if not np.isfinite(numbers).all():
        raise ValueError(f"{name} has numbers that are not finite.")
    return numbers.astype(np.float64)


def _histogram(f: np.ndarray, turns: float) -> tuple[np.ndarray, np.ndarray]:
    """Return frequencies and their shares of the pixels: of each pixel if they are few, or else of bins."""
    values, number = np.unique(f, return_counts=True)
    bins = int(min(max(_BINS[0], 8 * turns), _BINS[1]))
    if len(values) <= bins:
        return values, number / f.size
    number, edges = np.histogram(f, bins)
    # Empty bins count a little: interpolators that fit the others only may be anything between them.
    return (edges[1:] + edges[:-1]) / 2, 0.9 * number / f.size + 0.1 / bins


def _chosen(
    lines: np.ndarray,
    share: np.ndarray,
    times: np.ndarray,
    accuracy: float,
    segments: int | None,
    interpolator: str,
    turns: float,
) -> tuple[int, float, np.ndarray, np.ndarray]:
    """Return K, the error, interpolators (K, T) and the times of segments."""
    # A few times tell the error, which is smooth: K is found with these, and then all are solved.
    some = times[np.unique(np.linspace(0, len(times) - 1, 512).round().astype(int))]
    low, high = (segments, segments) if segments else (1, 1)
    error = _solved(lines, share, some, high, interpolator)[0]
    while not segments and error > accuracy:
        if high == MOST:
            raise ValueError(
                f"{MOST} segments by {interpolator} have an error of {error:.2g}, and accuracy is {accuracy:g}. Phases "
                f"differ by {turns:.3g} turns: give a larger accuracy, or check that units are Hz and seconds."
            )
        low, high = high + 1, min(2 * high, MOST)
        error = _solved(lines, share, some, high, interpolator)[0]
    while low < high:  # errors fall with K
        half = (low + high) // 2
        if _solved(lines, share, some, half, interpolator)[0] > accuracy:
            low = half + 1
        else:
            high = half
    return (high, *_solved(lines, share, times, high, interpolator))


def _solved(
    lines: np.ndarray, share: np.ndarray, times: np.ndarray, segments: int, interpolator: str
) -> tuple[float, np.ndarray, np.ndarray]:
    """Return the error of so many segments, their interpolators (K, T), and their times."""
    first, last = times[0], times[-1]
    nodes = np.linspace(first, last, segments) if segments > 1 else np.array([(first + last) / 2])
    weight = np.sqrt(share)
    basis = weight[:, None] * np.exp(-2j * np.pi * np.outer(lines, nodes))  # (F, K)
    least = interpolator == "least-squares"
    u, size, v = np.linalg.svd(basis if least else np.ones((1, 1)), full_matrices=False)
    kept = size > _ROUNDING * size[0]  # others would give large interpolators
    u, size, v = u[:, kept], size[kept], v[kept]
    rows, error = np.empty((segments, len(times)), complex), 0.0
    for begin in range(0, len(times), _CHUNK):
        t = times[begin : begin + _CHUNK]
        exact = weight[:, None] * np.exp(-2j * np.pi * np.outer(lines, t))
        if least:  # in this order: an inverse as one matrix would lose digits
            part = v.conj().T @ ((u.conj().T @ exact) / size[:, None])
        elif segments == 1 or last == first:
            part = np.full((segments, len(t)), 1 / segments, complex)
        else:
            away = np.abs(t - nodes[:, None]) * (segments - 1) / (last - first)
            part = np.where(away < 1, 0.5 + 0.5 * np.cos(np.pi * away), 0.0).astype(complex)
        rows[:, begin : begin + _CHUNK] = part
        error = max(error, float(np.sqrt((abs(exact - basis @ part) ** 2).sum(0).max())))
    return error, rows, nodes
