# SPDX-License-Identifier: BSD-3-Clause
"""Transforms between the nodes of a mesh and a band of its low modes, with a factor per axis and mode."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.fft

from particlemesh import checks
from particlemesh.arrays.kinds import allocate
from particlemesh.arrays.operands import COMPLEX
from particlemesh.backends.base import Backend, Record
from particlemesh.backends.cpu import plain, ranges, run
from particlemesh.backends.jit import compiled
from particlemesh.fourier.engines import BACKWARD, FORWARD, engine
from particlemesh.fourier.long_axis import is_long, modes_to_real, real_to_modes, transform

_TEAM, _PIECE = 32, 256  # work-items that write so many numbers of a row
_PART = 1 << 21  # bytes of a real transform's rows at a time, which stay in a cache: SciPy returns new memory
_FILE = "fourier/bands.c"
ORDERS = ("fft", "centred")


def mode_numbers(modes: int, order: str = "fft", *, half: bool = False) -> np.ndarray:
    """Return the numbers of a band's modes, from ``-(modes // 2)`` to ``(modes - 1) // 2``.

    Parameters
    ----------
    modes : int
        How many.
    order : {"fft", "centred"}
        0, 1, ..., -1 as transforms have them, or ascending.
    half : bool
        Return 0 to ``modes // 2`` instead, in any order: the last axis of a real transform.

    Returns
    -------
    NumPy array of int

    Examples
    --------
    >>> mode_numbers(4).tolist(), mode_numbers(4, "centred").tolist(), mode_numbers(4, half=True).tolist()
    ([0, 1, -2, -1], [-2, -1, 0, 1], [0, 1, 2])
    """
    modes = checks.integer(modes, "modes", 0, 2**31 - 1)
    checks.one_of(order, "order", ORDERS)
    if checks.flag(half, "half"):
        return np.arange(modes // 2 + 1)
    ascending = np.arange(modes) - modes // 2
    return ascending if order == "centred" else np.fft.ifftshift(ascending)


class Bands(checks.Fixed):
    """Transforms from nodes to a band of modes and back; leading axes are batches.

    Parameters
    ----------
    backend : Backend
        Where the arrays are.
    nodes : sequence of 1 to 3 ints
        Nodes per axis of the mesh.
    modes : sequence of ints
        Modes per axis, at most as many as nodes.
    factors : sequence of arrays, optional
        For each axis the factor of each mode, real or complex, in the band's order. By default 1.
    dtype : {"float32", "float64"}
        Real type.
    order : {"fft", "centred"}
        Order of the modes: 0, 1, ..., -1, or from ``-(modes // 2)`` on.
    real : bool
        The field is real; the last axis has the modes 0 to ``modes // 2`` only.
    threads : int, optional
        CPU threads.

    Attributes
    ----------
    shape : tuple of int
        Shape of a band.

    Raises
    ------
    ValueError
        If there are more modes than nodes, or the factors do not fit the modes.

    Examples
    --------
    >>> from particlemesh.kernels import backend
    >>> bands = Bands(backend("cpu"), (8,), (3,), [[0.5, 1.0, 0.5]], "float64", order="centred")
    >>> nodes = np.exp(2j * np.pi * np.arange(8) / 8)
    >>> abs(bands.to_modes(nodes)).round(12)
    array([0., 0., 4.])
    """

    def __init__(
        self, backend: Backend, nodes: Sequence[int], modes: Sequence[int], factors: Sequence[Any] | None = None,
        dtype: Any = "float64", *, order: str = "fft", real: bool = False, threads: int | None = None,
    ) -> None:  # fmt: skip
        self.nodes, self.modes = tuple(nodes), tuple(modes)
        self.order = checks.one_of(order, "order", ORDERS)
        if len(self.nodes) != len(self.modes) or any(m > n for m, n in zip(self.modes, self.nodes, strict=True)):
            raise ValueError(
                f"{self.modes} modes on {self.nodes} nodes: give as many axes, and per axis at most as many modes "
                "as nodes."
            )
        self.dtype, self.real, self.backend = np.dtype(dtype), checks.flag(real, "real"), backend
        self.complex_dtype = COMPLEX[self.dtype]
        self.engine = engine(backend, self.nodes, dtype, real=real, threads=threads)
        ndim = len(self.nodes)
        halves = [real and axis == ndim - 1 for axis in range(ndim)]
        self.shape = tuple(m // 2 + 1 if half else m for m, half in zip(self.modes, halves, strict=True))
        self._negative = tuple(0 if half else m // 2 for m, half in zip(self.modes, halves, strict=True))
        self.factors = self._checked(factors)
        self._spectrum: Any = None
        if backend.name != "cpu":
            table = np.concatenate([np.ones(3 - ndim), *self.factors]).astype(self.complex_dtype)
            self._table = backend.upload(table)

    def _checked(self, factors: Sequence[Any] | None) -> tuple[np.ndarray, ...]:
        if factors is None:
            return tuple(checks.kept(np.ones(m, self.dtype)) for m in self.shape)
        if len(factors) != len(self.shape) or any(
            np.shape(f) != (m,) for f, m in zip(factors, self.shape, strict=True)
        ):
            raise ValueError(
                f"factors have shapes {[np.shape(f) for f in factors]}; this band needs one factor per mode of each "
                f"axis, {[(m,) for m in self.shape]}."
            )
        wide = self.complex_dtype if any(np.iscomplexobj(f) for f in factors) else self.dtype
        return tuple(checks.kept(np.array(f, wide, order="C")) for f in factors)

    @property
    def nbytes(self) -> int:
        """Bytes of the reserved spectrum and of the engine's work memory."""
        return self.engine.nbytes + (0 if self._spectrum is None else int(self._spectrum.nbytes))

    def reserve(self, batch: int) -> None:
        """Allocate for ``batch`` fields, so that calls with ``out`` allocate nothing on a GPU."""
        if self.backend.name != "cpu":
            self._whole((batch,))
            self.engine.reserve(batch)

    def _whole(self, batch: tuple[int, ...]) -> Any:
        """Return memory for the spectra of all modes."""
        return self._kept((int(np.prod(batch)), *self.engine.spectrum_shape)).reshape(
            batch + self.engine.spectrum_shape
        )

    def _kept(self, shape: tuple[int, ...]) -> Any:
        """Return complex memory that is kept between calls."""
        if self._spectrum is None or self._spectrum.shape != shape:
            self._spectrum = None
            self._spectrum = allocate(self.backend, shape, self.complex_dtype, "the spectra of all modes")
        return self._spectrum

    def to_modes(self, field: Any, out: Any = None, *, sign: int = FORWARD) -> Any:
        """Return ``factor[k] * sum_m field[m] exp(sign i k x_m)`` for the modes of the band.

        Parameters
        ----------
        field : native array (..., *nodes)
            Dense; complex, or real for real transforms. A complex field may be overwritten, also by the result.
        out : native array (..., *shape), optional
            Dense and complex.
        sign : {-1, 1}
            Of the exponent; real fields allow -1.
        """
        self._check(sign, FORWARD, field, self.dtype if self.real else self.complex_dtype)
        batch = tuple(field.shape[: field.ndim - len(self.nodes)])
        if self.backend.name == "cpu":
            return self._pruned(field, out, sign)
        if out is None:
            out = allocate(self.backend, batch + self.shape, self.complex_dtype, "modes")
        if self.real:
            spectrum = self.engine.forward(field, self._whole(batch))
        else:
            spectrum = self.engine.run(field, sign, field)
        self._launch("crop", spectrum, out, batch, spectrum, out)
        return out

    def to_nodes(self, modes: Any, out: Any = None, *, sign: int = BACKWARD) -> Any:
        """Return ``sum_k factor[k] * modes[k] exp(sign i k x_m)`` at the nodes.

        Of a real transform the result is that of ``irfftn``: modes with a positive number on the last axis count
        twice, once as their conjugate.

        Parameters
        ----------
        modes : native array (..., *shape)
            Dense and complex.
        out : native array (..., *nodes), optional
            Dense.
        sign : {-1, 1}
            Of the exponent; real fields allow +1.
        """
        self._check(sign, BACKWARD, modes, self.complex_dtype)
        batch = tuple(modes.shape[: modes.ndim - len(self.nodes)])
        if self.backend.name == "cpu":
            return self._padded(modes, out, sign)
        if out is None:
            out = allocate(self.backend, batch + self.nodes, self.engine.field_dtype, "the field")
        spectrum = self._whole(batch) if self.real else out
        self._launch("embed", modes, spectrum, batch, spectrum, modes)
        if self.real:
            return self.engine.backward(spectrum, out)
        return self.engine.run(spectrum, sign, out)

    def _check(self, sign: int, only: int, array: Any, dtype: Any) -> None:
        checks.one_of(sign, "sign", (only,) if self.real else (FORWARD, BACKWARD))
        if array.dtype != dtype:
            raise TypeError(f"the array has dtype {array.dtype}, and these bands take {dtype}: convert it.")

    def _launch(self, name: str, source: Any, target: Any, batch: tuple[int, ...], spectrum: Any, modes: Any) -> None:
        channels = int(np.prod(batch))
        missing = (1,) * (3 - len(self.nodes))
        nodes, shape = missing + self.engine.spectrum_shape, missing + self.shape
        negative = (0,) * len(missing) + self._negative
        # The offset of a PyOpenCL array is not part of its pointer.
        at = [int(getattr(a, "offset", 0)) // self.dtype.itemsize for a in (spectrum, modes)]
        record = Record("=12q", *nodes, *shape, *negative, *at, int(self.order == "centred"))
        facts = {"REAL_IS_DOUBLE": int(self.dtype == np.float64), "TEAM": _TEAM, "PIECE": _PIECE}
        kernel = self.backend.kernel(_FILE, name, facts)
        row = shape if name == "crop" else nodes
        pieces = channels * row[0] * row[1] * -(-row[2] // _PIECE)
        if pieces:
            kernel(pieces * _TEAM, source, target, self._table, channels, record)

    # ---- the CPU: axis by axis, so that later axes transform the band only ---------------------------------

    def _pruned(self, field: np.ndarray, out: Any, sign: int) -> np.ndarray:
        array, threads = field, self.engine.workers  # type: ignore[attr-defined]
        # Strided fields are not overwritten: what `_move` takes is dense.
        keep = not field.flags.c_contiguous
        for axis in reversed(range(len(self.nodes))):
            if self.real and axis == len(self.nodes) - 1:
                array = self._real_to_modes(field, threads, None if axis else out)
                continue
            if axis == len(self.nodes) - 1 and is_long(self.nodes[-1]):
                room = self._whole(field.shape[: -len(self.nodes)])
                if self._parts[axis][0] is None:  # the result is the user's
                    room = np.empty_like(room)
                modes = transform(field.copy() if keep else field, room, sign, threads)
            else:
                modes = self._axis(array, axis, sign, threads, keep=keep and array is field)
            array = self._move(modes, axis, threads, False, None if axis else out)
        return _placed(array, out)

    def _padded(self, modes: np.ndarray, out: Any, sign: int) -> np.ndarray:
        array, threads = modes, self.engine.workers  # type: ignore[attr-defined]
        for axis in range(len(self.nodes)):
            if self.real and axis == len(self.nodes) - 1:
                return self._real_to_nodes(array, threads, out)
            if axis == len(self.nodes) - 1 and is_long(self.nodes[-1]):
                room = self._whole(modes.shape[: -len(self.nodes)])
                _placed(self._move(array, axis, threads, True, room), room)
                fits = _fits(out, room.shape, room.dtype)
                return _placed(transform(room, out if fits else np.empty_like(room), sign, threads), out)
            array = self._move(array, axis, threads, True, out if axis == len(self.nodes) - 1 else None)
            array = self._axis(array, axis, sign, threads, keep=array is modes)
        return _placed(array, out)

    def _axis(self, array: np.ndarray, axis: int, sign: int, threads: int, *, keep: bool = False) -> np.ndarray:
        """Transform one axis of complex numbers."""
        options: dict[str, Any] = {"axis": axis - len(self.nodes), "workers": threads}
        if sign == FORWARD:
            return scipy.fft.fft(array, overwrite_x=not keep, **options)
        return scipy.fft.ifft(array, norm="forward", overwrite_x=not keep, **options)

    def _rows(self, shape: tuple[int, ...]) -> list[slice]:
        """Return parts of the rows of a real field of this shape, as rows of one axis; long rows one by one."""
        rows = math.prod(shape[:-1])
        long = is_long(self.nodes[-1], real=True)
        step = 1 if long else max(1, _PART // (self.engine.spectrum_shape[-1] * self.complex_dtype.itemsize))
        return [slice(k, k + step) for k in range(0, rows, step)]

    def _real_to_modes(self, field: np.ndarray, threads: int, out: Any) -> np.ndarray:
        """Transform the last axis of a real field, and return the band of that axis."""
        axis, shape = len(self.nodes) - 1, (*field.shape[:-1], self.shape[-1])
        band = out if _fits(out, shape, self.complex_dtype) else np.empty(shape, self.complex_dtype)
        source, target = field.reshape(-1, field.shape[-1]), band.reshape(-1, shape[-1])
        for part in self._rows(shape):
            if is_long(self.nodes[-1], real=True):
                kept = self._kept((2, self.engine.spectrum_shape[-1]))
                modes = real_to_modes(np.ascontiguousarray(source[part][0]), kept[0], kept[1, 1:], threads)[None]
            else:
                modes = scipy.fft.rfft(source[part], workers=threads)
            room = target[part]
            moved = self._move(modes, axis, threads, False, room)
            if moved is not room:
                room[...] = moved
        return band

    def _real_to_nodes(self, modes: np.ndarray, threads: int, out: Any) -> np.ndarray:
        """Return the real field of modes that are nodes along the other axes."""
        axis, shape = len(self.nodes) - 1, (*modes.shape[:-1], self.nodes[-1])
        field = out if _fits(out, shape, self.dtype) else np.empty(shape, self.dtype)
        source, target = np.ascontiguousarray(modes).reshape(-1, modes.shape[-1]), field.reshape(-1, shape[-1])
        for part in self._rows(shape):
            if is_long(shape[-1], real=True):
                room = self._kept((1, self.engine.spectrum_shape[-1]))
                _placed(self._move(source[part], axis, threads, True, room), room)
                modes_to_real(room[0], target[part][0], threads)
                continue
            spectrum = self._move(source[part], axis, threads, True, None)
            target[part] = scipy.fft.irfft(spectrum, shape[-1], norm="forward", workers=threads)
        return _placed(field, out)

    def _move(self, array: np.ndarray, axis: int, threads: int, into: bool, room: Any) -> np.ndarray:
        """Return the modes of an axis times their factors, out of the transform's order or ``into`` it.

        The result is ``room`` if that is dense and fits, and the array itself if nothing changes.
        """
        part = self._parts[axis][into]
        if part is None:
            return array
        runs, factor, length, old, inner = part
        shape = list(array.shape)
        shape[axis - len(self.nodes)] = length
        if not _fits(room, tuple(shape), array.dtype):
            room = np.empty(shape, array.dtype)
        source, target = plain(np.ascontiguousarray(array)), room.reshape(-1)
        if factor.dtype == self.dtype:  # complex numbers are pairs of reals
            source, target = source.view(self.dtype), target.view(self.dtype)
        outer = source.size // (old * inner)
        rows = outer if inner == 1 else outer * length
        run(_carry, threads, source, target, factor, runs, outer, old, inner, max(1, rows // 64))
        return room

    @functools.cached_property
    def _parts(self) -> list[tuple[Any, Any]]:
        """Return by axis how `_carry` cuts modes out of a spectrum and puts them into it; None if nothing changes."""
        return [self._part(axis) for axis in range(len(self.nodes))]

    def _part(self, axis: int) -> tuple[Any, Any]:
        nodes, count, factor = self.engine.spectrum_shape[axis], self.shape[axis], self.factors[axis]
        negative = self._negative[axis]
        positive = count - negative
        if count == nodes and self.order == "fft" and (factor == 1).all():
            return None, None
        zero, lowest = (negative, 0) if self.order == "centred" else (0, positive)  # where these modes are
        numbers = positive, negative, nodes - count  # of modes, and of nodes without a mode
        band, spectrum = (zero, lowest, -1), (0, nodes - negative, positive)
        padded = np.zeros(nodes, factor.dtype)
        padded[:positive] = factor[zero : zero + positive]
        padded[nodes - negative :] = factor[lowest : lowest + negative]
        parts = 2 if factor.dtype == self.dtype else 1  # a complex number is two reals
        pairs, inner = (parts, 1) if axis == len(self.nodes) - 1 else (1, parts * math.prod(self.shape[axis + 1 :]))
        crop, embed = np.array([band, spectrum, numbers])[:, :2], np.array([spectrum, band, numbers])
        return (
            (pairs * crop, np.repeat(factor, pairs), count, pairs * nodes, inner),
            (pairs * embed, np.repeat(padded, pairs), nodes, pairs * count, inner),
        )


def _fits(room: Any, shape: tuple[int, ...], dtype: Any) -> bool:
    """Return whether there is memory of this shape and type that is dense."""
    return room is not None and room.shape == shape and room.dtype == dtype and room.flags.c_contiguous


def _placed(array: np.ndarray, out: Any) -> np.ndarray:
    """Return the array in the memory of ``out``, if that is given."""
    if out is None:
        return array
    if array is not out and (array.ctypes.data != out.ctypes.data or array.strides != out.strides):
        np.copyto(out, array)
    return out


@compiled
def _carry(source, target, factor, runs, outer, old, inner, share, counter):
    """Copy runs along the middle axis of (outer, old, inner) times factors; each thread claims shares of the rows.

    A run begins at runs[0] in the target and at runs[1] in the source, and has runs[2] numbers; below 0 it is zeros.
    """
    new = factor.size
    if inner == 1:
        for begin, end in ranges(counter, outer, share):
            for row in range(begin, end):
                for r in range(runs.shape[1]):
                    first, at, count = runs[0, r], runs[1, r], runs[2, r]
                    to = target[row * new + first :][:count]  # slices leave the loops without negative indices
                    if at < 0:
                        to[:] = 0
                        continue
                    numbers, factors = source[row * old + at :][:count], factor[first:][:count]
                    for k in range(count):
                        to[k] = numbers[k] * factors[k]
        return
    for begin, end in ranges(counter, outer * new, share):
        for row in range(begin, end):
            k, to = row % new, target[row * inner :][:inner]
            for r in range(runs.shape[1]):
                behind = k - runs[0, r]
                if behind < 0 or behind >= runs[2, r]:
                    continue
                if runs[1, r] < 0:
                    to[:] = 0
                    continue
                numbers, f = source[(row // new * old + runs[1, r] + behind) * inner :][:inner], factor[k]
                for z in range(inner):
                    to[z] = numbers[z] * f
