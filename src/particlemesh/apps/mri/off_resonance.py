# SPDX-License-Identifier: BSD-3-Clause
"""Samples of images whose spins turn at frequencies of their own, by segments of the readout."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from particlemesh.apps import nufft
from particlemesh.apps.mri.density import image_shape
from particlemesh.apps.nufft import shapes
from particlemesh.kernels import Fixed, checks

MOST = 256  # segments
_BINS = (256, 4096)  # of the histogram of frequencies: at least, and at most
_ROUNDING = {"complex64": 1e-6, "complex128": 1e-14}  # relative errors of transforms: at least
_DECIDED = "real", "spreadinterponly", "gpu_spreadinterponly", "n_trans", "isign", "dtype"  # options
_CHUNK = 1024  # times whose interpolators are solved together
INTERPOLATORS = ("least-squares", "hann")


class OffResonance(Fixed):
    r"""Samples of coil images in a field that is not uniform, and the adjoint.

    ``y[b, c, j] = sum_k S[c, k] x[b, k] exp(-2 pi i field_map[k] times[j]) exp(-i k . samples[j])``

    A sum of K transforms has these phases: ``exp(-2 pi i f t)`` is ``sum_l b_l(t) exp(-2 pi i f t_l)``, where the times
    t\ :sub:`l` are spaced evenly over the readout [noll1991]_. The interpolators b are either Hann windows, or have the
    least squares error over the frequencies of the pixels [sutton2003]_. The accuracy chooses K.

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
        Largest error of a phase factor, root mean square over pixels, at any sample; by default 1e-3. At least 1e-5 in
        single precision.
    segments : int, optional
        K, instead of an accuracy.
    interpolator : {"least-squares", "hann"}
        How phases between segments are made.
    eps : float
        Relative error of the transforms; by default a tenth of the accuracy.
    **options
        Those of `particlemesh.apps.nufft.Plan`.

    Attributes
    ----------
    segments : int
        Transforms of a coil image.
    error : float
        Of phase factors, as ``accuracy``, and of transforms. The relative l2 error of samples is at most this on
        average over images whose pixels have random phases.

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
        for name in _DECIDED:
            if options.get(name):
                raise ValueError(f"option {name} is {options[name]!r}; the transforms of an operator decide it.")
            options.pop(name, None)
        self.accuracy = 1e-3 if accuracy is None else checks.positive(accuracy, "accuracy")
        self.interpolator = checks.one_of(interpolator, "interpolator", INTERPOLATORS)
        given = None if segments is None else checks.integer(segments, "segments", 1, MOST)
        real = self._kind.dtype(samples)
        if real not in (np.float32, np.float64):
            raise TypeError(f"samples are of type {real}; float32 or float64 are needed.")
        self._like, self._dtype = samples, np.result_type(real, np.complex64)
        floor = _ROUNDING[self._dtype.name]
        if not 10 * floor <= self.accuracy < 1 or (eps is not None and not 0 < eps < 1):
            raise ValueError(
                f"accuracy is {self.accuracy:g} and eps {eps}; give less than 1, and with samples of {real} an "
                f"accuracy of at least {10 * floor:g}."
            )
        count = len(samples)
        f, t = _real(field_map, "field_map", self.shape), _real(times, "times", (count,))
        # Phases of the middle of the frequencies are exact: the others are smaller.
        middle = (f.min() + f.max()) / 2
        instants, which = np.unique(t, return_inverse=True)
        with np.errstate(over="ignore"):
            largest = abs(f).max() * abs(instants).max()
        if not math.isfinite(float(largest)):
            raise ValueError("field_map times times is beyond float64: check that units are Hz and seconds.")
        chosen = functools.partial(_chosen, f - middle, instants, self.accuracy, given, self.interpolator)
        if eps is None and given is None:
            eps = self.accuracy / 10
        elif eps is None:  # a tenth of the error that so many segments have
            eps = min(0.1, max(chosen(floor)[1] / 10, floor))
        self.segments, self.error, rows, nodes = chosen(max(floor, eps))
        turn = np.exp(-2j * np.pi * middle * t)
        self._rows = self._here((rows[:, which.ravel()] * turn).astype(self._dtype))
        phases = np.exp(-2j * np.pi * nodes.reshape(-1, *[1] * f.ndim) * (f - middle))
        self._phases = self._here(phases.astype(self._dtype))
        self._maps: Any = None if maps is None else self._sensitivities(maps)
        self._plan = nufft.Plan(2, self.shape, self.segments, eps, -1, self._dtype, **options)
        self._made_of = (  # arrays of its own, since the caller's may change
            (samples.copy(), shape, f, t),
            dict(maps=self._maps, accuracy=accuracy, segments=segments, interpolator=interpolator, eps=eps, **options),
        )
        self._plan.setpts(*(samples[:, axis] for axis in range(len(self.shape))))

    def __reduce__(self) -> tuple[Any, ...]:
        given, options = self._made_of
        return functools.partial(type(self), **options), given

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
        maps = np.asarray(maps) if isinstance(maps, (list, tuple)) else maps
        shape = tuple(getattr(maps, "shape", ()))
        if (
            shape[-len(self.shape) :] != self.shape
            or len(shape) - len(self.shape) not in (1, 2)
            or not math.prod(shape)
        ):
            raise ValueError(f"maps have shape {shape}; give (coils, {str(self.shape)[1:]} or with a batch before it.")
        numbers = checks.number_array(_host(maps), "maps")
        self._precise(numbers.dtype, "maps")
        if not np.isfinite(numbers).all():
            raise ValueError("maps have numbers that are not finite.")
        return self._here(numbers.astype(self._dtype))

    def _precise(self, dtype: np.dtype, name: str) -> None:
        if dtype.kind not in "fciu":
            raise TypeError(f"{name} is of type {dtype}; give numbers.")
        if np.result_type(dtype, np.complex64) != self._dtype and dtype.kind in "fc" and self._dtype == np.complex64:
            raise TypeError(
                f"{name} is of type {dtype}, more than {self._dtype} holds: give samples of float64, or convert it."
            )

    def _taken(self, array: Any, name: str, core: tuple[int, ...]) -> Any:
        if type(array) is not type(self._like):
            raise TypeError(
                f"{name} is of type {type(array).__name__}; the samples are of {type(self._like).__name__}: give that."
            )
        shape = tuple(array.shape)
        if shape[-len(core) :] != core or len(shape) > len(core) + 1 or not math.prod(shape):
            raise ValueError(f"{name} has shape {shape}; give {core}, or a batch of these.")
        self._precise(array.dtype, name)
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


def _lines(f: np.ndarray, bins: int) -> tuple[np.ndarray, np.ndarray]:
    """Return frequencies and their shares of the pixels: of each pixel if they are few, or two for each bin.

    Two lines have the mean and the variance of a bin's frequencies.
    """
    values, number = np.unique(f, return_counts=True)
    if len(values) <= bins:
        return values, number / f.size
    edges = np.linspace(values[0], values[-1], bins + 1)
    place = np.clip(np.searchsorted(edges, values, "right") - 1, 0, bins - 1)
    count = np.bincount(place, number, bins)
    mean = np.where(count > 0, np.bincount(place, number * values, bins) / np.maximum(count, 1), 0.0)
    variance = np.bincount(place, number * (values - mean[place]) ** 2, bins) / np.maximum(count, 1)
    # Empty bins count a little: interpolators that fit the others only may be anything between them.
    mean = np.where(count > 0, mean, (edges[1:] + edges[:-1]) / 2)
    away, share = np.sqrt(variance), 0.5 * (0.99 * count / f.size + 0.01 / bins)
    return np.concatenate([mean - away, mean + away]), np.concatenate([share, share])


def _chosen(
    f: np.ndarray, times: np.ndarray, accuracy: float, segments: int | None, interpolator: str, noise: float
) -> tuple[int, float, np.ndarray, np.ndarray]:  # fmt: skip
    """Return K, the error, interpolators (K, T) and the times of segments.

    Lines of the field map choose K; its pixels then tell the error. ``noise`` is the relative error of a transform.
    """
    turns = float((f.max() - f.min()) * (times[-1] - times[0]))
    # A few times tell the error, which is smooth: K is found with these, and then all are solved.
    even = np.searchsorted(times, np.linspace(times[0], times[-1], 256))
    some = times[np.unique([*even, *np.linspace(0, len(times) - 1, 256).round().astype(int)])]
    bins, least = int(np.clip(8 * turns, *_BINS)), 1
    while True:
        lines, share = _lines(f, bins)

        def enough(count: int, lines: np.ndarray = lines, share: np.ndarray = share) -> bool:
            return bool(_solved(lines, share, some, count, interpolator, noise)[0].max() <= accuracy)

        low = high = segments or least
        while not segments and high < MOST and not enough(high):
            low, high = high + 1, min(2 * high, MOST)
        while low < high:
            half = (low + high) // 2
            low, high = (low, half) if enough(half) else (half + 1, high)
        errors, rows, nodes = _solved(lines, share, times, high, interpolator, noise)
        error = max(float(errors.max()), _measured(f, times, rows, nodes, errors, noise))
        if segments or error <= accuracy:
            return high, error, rows, nodes
        if high == MOST:
            raise ValueError(
                f"{MOST} segments by {interpolator} have an error of {error:.2g}, and accuracy is {accuracy:g}. Phases "
                f"differ by {turns:.3g} turns: give a larger accuracy, or check that units are Hz and seconds."
            )
        if bins < _BINS[1] and len(lines) > bins:
            bins = min(4 * bins, _BINS[1])
        else:
            least = high + 1


def _measured(
    f: np.ndarray, times: np.ndarray, rows: np.ndarray, nodes: np.ndarray, errors: np.ndarray, noise: float
) -> float:  # fmt: skip
    """Return the largest error over the pixels themselves, at the times with the largest errors and some others."""
    which = np.unique([*np.argsort(errors)[-8:], *np.linspace(0, len(times) - 1, 8).round().astype(int)])
    squares, some = np.zeros(len(which)), rows[:, which]
    for begin in range(0, f.size, _CHUNK):
        here = f.ravel()[begin : begin + _CHUNK]
        phases = np.exp(-2j * np.pi * np.outer(here, nodes)) @ some
        squares += (abs(np.exp(-2j * np.pi * np.outer(here, times[which])) - phases) ** 2).sum(0)
    return float(np.sqrt(squares / f.size + noise**2 * (abs(some) ** 2).sum(0)).max())


def _solved(
    lines: np.ndarray, share: np.ndarray, times: np.ndarray, segments: int, interpolator: str, noise: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:  # fmt: skip
    """Return the errors at times (T,) of so many segments, their interpolators (K, T), and their times.

    Errors are those of the phases, and those of the transforms, which interpolators multiply. Least squares minimise
    the sum of both: where segments are nearly alike, interpolators stay small.
    """
    first, last = times[0], times[-1]
    nodes = np.linspace(first, last, segments) if segments > 1 else np.array([(first + last) / 2])
    weight = np.sqrt(share)
    basis = weight[:, None] * np.exp(-2j * np.pi * np.outer(lines, nodes))  # (F, K)
    least = interpolator == "least-squares"
    u, size, v = np.linalg.svd(basis if least else np.ones((1, 1)), full_matrices=False)
    rows, errors = np.empty((segments, len(times)), complex), np.empty(len(times))
    for begin in range(0, len(times), _CHUNK):
        t = times[begin : begin + _CHUNK]
        exact = weight[:, None] * np.exp(-2j * np.pi * np.outer(lines, t))
        if least:  # in this order: an inverse as one matrix would lose digits
            part = v.conj().T @ ((u.conj().T @ exact) * (size / (size**2 + noise**2))[:, None])
        elif segments == 1 or last == first:
            part = np.full((segments, len(t)), 1 / segments, complex)
        else:
            away = np.abs(t - nodes[:, None]) * (segments - 1) / (last - first)
            part = np.where(away < 1, 0.5 + 0.5 * np.cos(np.pi * away), 0.0).astype(complex)
        rows[:, begin : begin + _CHUNK] = part
        squares = (abs(exact - basis @ part) ** 2).sum(0) + noise**2 * (abs(part) ** 2).sum(0)
        errors[begin : begin + _CHUNK] = np.sqrt(squares)
    return errors, rows, nodes
