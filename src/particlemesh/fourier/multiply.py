# SPDX-License-Identifier: BSD-3-Clause
"""Spectra times tables of factors: products, projections of vectors, sums over modes; on every backend."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from particlemesh import checks
from particlemesh.arrays.operands import COMPLEX
from particlemesh.arrays.positions import check_size
from particlemesh.backends.base import Backend, Record
from particlemesh.backends.cpu import default_threads, ranges, run
from particlemesh.backends.jit import compiled
from particlemesh.fourier.green import Divisor, Green, free_space
from particlemesh.fourier.modes import Modes

_NOT_FINITE = "the slope of green is not finite at a mode other than k = 0; change it, or the unit of length."
_SHARE = 4096  # modes that a thread or group sums at once
_LANES = 32  # of strain.c
PROJECTIONS = (None, "transverse", "longitudinal")


def band_of(modes: Modes) -> tuple[tuple[int, ...], ...]:
    """Return for three axes, missing ones first: the modes that are here, nodes, and the first mode."""
    starts = tuple(start for start, _ in modes.part)
    missing = 3 - len(starts)
    return tuple((fill,) * missing + n for n, fill in ((modes.spectrum_shape, 1), (modes.shape, 1), (starts, 0)))


class Factors:
    """A table of factors per mode on a backend.

    Parameters
    ----------
    backend : Backend
        Where the spectra are.
    table : NumPy array
        Real or complex factors, shape of a spectrum.
    dtype : {"float32", "float64"}
        Real type of the spectra.
    turns : bool
        Also multiply by i; the table is real.
    threads : int, optional
        CPU threads.
    largest : float, optional
        About the largest of the factors, where they are real numbers on the GPU already.

    Raises
    ------
    ValueError
        If the type does not hold the factors.
    """

    def __init__(
        self, backend: Backend, table: Any, dtype: Any, *, turns: bool = False, threads: int | None = None,
        largest: float | None = None,
    ) -> None:  # fmt: skip
        self.backend, self.dtype = backend, np.dtype(dtype)
        self.shape = table.shape
        self.largest = float(np.abs(table).max(initial=0.0)) if largest is None else largest
        check_size(self.largest, self.dtype, "factors of Fourier modes")
        whole = largest is None and np.iscomplexobj(table)
        if largest is None:
            table = np.ascontiguousarray(table, COMPLEX[self.dtype] if whole else self.dtype)
            table = backend.upload(table) if backend.name != "cpu" else 1j * table if turns else table
        self.table = table
        self.threads = default_threads(table.size // 8) if threads is None else threads
        self._defines = {
            "REAL_IS_DOUBLE": int(self.dtype == np.float64), "PARTS": 1 + whole, "TURNS": int(turns)
        }  # fmt: skip

    @property
    def nbytes(self) -> int:
        """Bytes of the table."""
        return int(self.table.nbytes)

    def __call__(self, source: Any, target: Any, component: int = 0, components: int = 1) -> None:
        """Write the products.

        Parameters
        ----------
        source : native array (channels, *shape)
            Dense spectra.
        target : native array (channels, *shape), or (channels, components, *shape)
            Dense; it may be ``source``. In the second form only one component is written.
        component, components : int
            Which component of how many.
        """
        modes, channels = int(np.prod(self.shape)), source.shape[0]
        if not (modes and channels):
            return
        if self.backend.name == "cpu":
            flat = source.reshape(channels, modes), target.reshape(channels, components, modes)[:, component]
            run(_multiply, self.threads, *flat, self.table.reshape(-1), 1 << 13)
            return
        kernel = self.backend.kernel("fourier/multiply.c", "multiply", self._defines)
        size = self.dtype.itemsize
        at = [int(getattr(a, "offset", 0)) // size for a in (source, target)]
        kernel(
            modes, source, target, self.table, modes, channels, at[0], 2 * modes, at[1] + 2 * modes * component,
            2 * modes * components
        )  # fmt: skip


class Projection:
    """A table of factors per mode times a projection of vectors onto or across k, on a backend.

    Parameters
    ----------
    backend : Backend
        Where the spectra are.
    modes : Modes
        The modes of a real transform.
    tables : NumPy arrays (*modes.spectrum_shape)
        Real factors. Each is another product with the same projection.
    dtype : {"float32", "float64"}
        Real type of the spectra.
    forms : NumPy array (m, *modes.spectrum_shape), optional
        Form factors of m vectors.
    onto : {"transverse", "longitudinal", None}
        The part of a vector that is kept: across k, along k, or all. The highest mode of an even axis has no direction
        along that axis, as for slopes by ik.
    threads : int, optional
        CPU threads.
    """

    def __init__(
        self, backend: Backend, modes: Modes, tables: Sequence[np.ndarray], dtype: Any, *,
        forms: np.ndarray | None = None, onto: str | None = "transverse", threads: int | None = None,
    ) -> None:  # fmt: skip
        self.backend, self.dtype, self.ndim = backend, np.dtype(dtype), len(modes.shape)
        self.shape = modes.spectrum_shape
        self._onto = PROJECTIONS.index(onto)
        for one in tables:
            check_size(one, self.dtype, "factors of Fourier modes")

        def placed(array: Any) -> Any:
            rounded = np.ascontiguousarray(array, self.dtype)
            return rounded if backend.name == "cpu" else backend.upload(rounded)

        self.tables = [placed(table) for table in tables]
        self.forms = placed(np.ones((1, 1)) if forms is None else forms.reshape(len(forms), -1))
        missing = 3 - self.ndim
        rows = np.zeros((3, self.ndim))
        # Only directions count. Squares of wavenumbers in the user's unit may leave the type's range.
        rows[missing:] = np.ldexp(modes.rows, -np.frexp(np.abs(modes.rows).max())[1])
        self._rows = placed(rows)
        self._sizes = band_of(modes)
        self.threads = default_threads(math.prod(self.shape) // 8) if threads is None else threads

    @property
    def nbytes(self) -> int:
        """Bytes of the tables."""
        return sum(int(array.nbytes) for array in (*self.tables, self.forms))

    def __call__(self, source: Any, target: Any, which: int = 0) -> None:
        """Write the products with table ``which``.

        Parameters
        ----------
        source : native array (channels, m, d, *shape)
            Dense spectra of m vectors, or of one, which has no form factor.
        target : native array (channels, m, d, *shape)
            Dense; it may be ``source`` if both have as many vectors.
        which : int
            Number of the table.
        """
        modes, channels = math.prod(self.shape), int(source.shape[0])
        sources, targets = int(source.shape[1]), int(target.shape[1])
        if not (modes and channels):
            return
        if self.backend.name == "cpu":
            spectra = (a.reshape(channels, a.shape[1], self.ndim, modes) for a in (source, target))
            run(
                _project, self.threads, *spectra, self.tables[which].reshape(-1), self.forms, self._rows,
                *map(np.array, self._sizes), self._onto, 1 << 12,
            )  # fmt: skip
            return
        defines = {
            "REAL_IS_DOUBLE": int(self.dtype == np.float64), "PROJECTION": self._onto, "DIM": self.ndim,
            "SOURCES": sources, "TARGETS": targets,
        }  # fmt: skip
        at = [int(getattr(a, "offset", 0)) // self.dtype.itemsize for a in (source, target)]
        kernel = self.backend.kernel("fourier/multiply.c", "project", defines)
        kernel(
            modes, source, target, self.tables[which], self.forms, self._rows, modes, channels,
            Record("=11q", *itertools.chain(*self._sizes), *at),
        )  # fmt: skip


# ---- derivatives by strain, as sums over modes ------------------------------------------------------------
#
# The energy is ``sum_k factors |spectrum|**2 / 2``. If box and particles are strained together, spectrum and window do
# not change. Wave vectors and volume do: ``dk_a = -strain_ab k_b`` and ``dV = V trace(strain)``. So the derivative is
# the sum of ``-(G delta_ab + 2 G' k_a k_b) |spectrum|**2 / 2``, where G' is the derivative by k**2.


def strain_tables(
    modes: Modes, factors: NDArray[Any], green: Green | None, slope: Callable[[NDArray[Any]], Any],
    divisor: Divisor | None, dtype: Any,
) -> NDArray[Any]:  # fmt: skip
    """Return tables (d (d + 1) / 2, modes), rows of the upper triangle, whose sums are the derivative.

    Parameters
    ----------
    modes : Modes
        With real=True: stored modes count for their opposites.
    factors : array
        Of the potential: Green function over volume and ``divisor``.
    green : Green or None
        The Green function where axes are open.
    slope : callable
        Its derivative by k**2.
    divisor : callable or None
        As for :func:`particlemesh.fourier.green.table`.
    dtype : dtype
        Of the tables: they take most of the time, and of the memory.
    """
    ndim = len(modes.shape)
    numbers = modes.numbers(ndim - 1)
    twice = modes.along(ndim - 1, np.where((numbers == 0) | (2 * numbers == modes.shape[-1]), 1.0, 2.0))
    scale = twice / (np.prod(modes.shape) * modes.mesh.node_volume)
    pairs = list(itertools.combinations_with_replacement(range(ndim), 2))
    tables = np.zeros((len(pairs), *modes.spectrum_shape), dtype)
    if green is not None and not all(modes.mesh.periodic):
        with np.errstate(over="ignore", invalid="ignore"):
            for row, values in zip(tables, free_space(green, modes, divisor, pairs), strict=True):
                row[...] = scale / 2 * values
        if not np.isfinite(tables).all():
            raise ValueError(_NOT_FINITE)
        return tables.reshape(len(pairs), -1)
    # Of a box along the Cartesian axes, signs change products of two components only, and their mean is 0.
    along = np.count_nonzero(modes.rows) == ndim
    axes = range(0 if along else ndim)
    weights = [modes.share([axis]) for axis in axes]
    if divisor is not None:
        weights += [1 / modes.along(a, divisor(modes.numbers(a), nodes, a)) for a, nodes in enumerate(modes.shape)]
    weights.append(-scale)
    weights = [np.broadcast_to(weight, modes.spectrum_shape) for weight in weights]
    halves = np.broadcast_to(twice / 2, modes.spectrum_shape)

    def write(signs: tuple[int, ...], region: tuple[slice, ...]) -> None:
        k = modes.vectors(signs, region)
        crossed = modes.vectors((0,) * ndim, region) if along else k
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            of_all = slope(modes.squares(signs, region))
        for weight in weights:
            of_all = of_all * weight[region]
        if modes.has_zero and min(signs) > 0 and region[0].start == 0:
            of_all[(0,) * ndim] = 0
        if not np.isfinite(of_all).all():
            raise ValueError(_NOT_FINITE)
        for row, (a, b) in zip(tables, pairs, strict=True):
            part = (k[a] * k[b] if a == b else crossed[a] * crossed[b]) * of_all
            if a == b and min(signs) > 0:  # all modes, once
                part -= halves[region] * factors[region]
            row[region] += part

    modes.in_parts(axes, write)
    return tables.reshape(len(pairs), -1)


class Strain:
    """Tables on a backend, and the sums with them.

    Parameters
    ----------
    backend : Backend
    tables : list of arrays (terms, modes), or native array (systems, terms, modes)
        One for all spectra, or one per system, of the real type of the spectra.
    ndim : int
    threads : int, optional
        CPU threads.
    """

    def __init__(self, backend: Backend, tables: Any, ndim: int, threads: int | None) -> None:
        whole = tables if not isinstance(tables, list) else np.stack(tables) if len(tables) > 1 else tables[0][None]
        self.backend, self.ndim, self.dtype = backend, ndim, whole.dtype
        self.owners, self.terms, self.modes = whole.shape
        self.shares = max(1, -(-self.modes // _SHARE))
        self.threads = default_threads(whole.size // 8) if threads is None else threads
        self._table = backend.upload(whole) if backend.name != "cpu" and isinstance(tables, list) else whole

    @property
    def nbytes(self) -> int:
        """Bytes of the tables."""
        return int(self._table.nbytes)

    def __call__(self, spectra: Any, partial: Any, totals: Any) -> None:
        """Write the derivatives.

        Parameters
        ----------
        spectra : native array (rows, *shape)
            Dense.
        partial : native array of at least rows * shares * terms reals
            Scratch memory; float64 on the CPU.
        totals : native array (rows, d, d)
            Dense.
        """
        rows = spectra.shape[0]
        if self.backend.name == "cpu":
            partial = partial[: rows * self.shares * self.terms].reshape(rows, self.shares, self.terms)
            run(_shares, self.threads, spectra.reshape(rows, -1), self._table, partial, _SHARE)
            upper = np.triu_indices(self.ndim)
            totals[:, upper[0], upper[1]] = totals[:, upper[1], upper[0]] = partial.sum(1)
            return
        defines = {"REAL_IS_DOUBLE": int(self.dtype == np.float64), "TERMS": self.terms, "NDIM": self.ndim}
        first = self.backend.kernel("fourier/strain.c", "strain_shares", defines)
        second = self.backend.kernel("fourier/strain.c", "strain_totals", defines)
        at = int(getattr(spectra, "offset", 0)) // self.dtype.itemsize
        first(
            rows * self.shares * self.backend.group_size, spectra, self._table, partial, self.modes, rows, self.owners,
            self.shares, at,
        )  # fmt: skip
        second(rows * self.terms * _LANES, partial, totals, rows, self.shares)


def checked(factors: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Return a user's factors per mode, broadcast to ``shape``."""
    array = checks.number_array(factors, "factors")
    try:
        return np.broadcast_to(array, shape)
    except ValueError:
        raise ValueError(f"factors have shape {array.shape}; this transform has {shape} modes.") from None


@compiled
def _multiply(source, target, table, share, counter):
    """Write ``source * table``; each thread claims shares of the modes."""
    for begin, end in ranges(counter, table.size, share):
        for c in range(source.shape[0]):
            for k in range(begin, end):
                target[c, k] = source[c, k] * table[k]


@compiled
def _slope_number(k, nodes):
    return k if 2 * k < nodes else 0 if 2 * k == nodes else k - nodes


@compiled
def wave_vector(k, rows, shape, nodes, starts, q):
    """Write the wave vector of a mode for slopes by ik."""
    row = k // shape[2]
    n2 = _slope_number(starts[2] + k - row * shape[2], nodes[2])
    n1 = _slope_number(starts[1] + row % shape[1], nodes[1])
    n0 = _slope_number(starts[0] + row // shape[1], nodes[0])
    for c in range(len(q)):
        q[c] = n0 * rows[0, c] + n1 * rows[1, c] + n2 * rows[2, c]


@compiled
def _project(source, target, table, forms, rows, shape, nodes, starts, onto, share, counter):
    """Write the products of ``project`` in multiply.c; each thread claims shares of the modes."""
    ndim = source.shape[2]
    q = np.empty(ndim, table.dtype)
    v = np.empty(ndim, source.dtype)
    for begin, end in ranges(counter, table.size, share):
        for k in range(begin, end):
            square = table.dtype.type(0)
            wave_vector(k, rows, shape, nodes, starts, q)
            for c in range(ndim):
                square += q[c] * q[c]
            inverse = 1 / square if square > 0 else square
            for channel in range(source.shape[0]):
                for c in range(ndim):
                    v[c] = source[channel, 0, c, k]
                if source.shape[1] > 1:
                    for c in range(ndim):
                        v[c] *= forms[0, k]
                        for m in range(1, source.shape[1]):
                            v[c] += forms[m, k] * source[channel, m, c, k]
                if onto:
                    along = q[0] * v[0]
                    for c in range(1, ndim):
                        along += q[c] * v[c]
                    along *= inverse
                    for c in range(ndim):
                        v[c] = v[c] - q[c] * along if onto == 1 else q[c] * along
                for m in range(target.shape[1]):
                    factor = table[k] * forms[m, k] if target.shape[1] > 1 else table[k]
                    for c in range(ndim):
                        target[channel, m, c, k] = factor * v[c]


@compiled
def _shares(spectra, table, partial, share, counter):
    """Write the sums of each share of the modes; each thread claims shares."""
    for begin, end in ranges(counter, spectra.shape[1], share):
        for row in range(spectra.shape[0]):
            factors = table[row % table.shape[0]]
            for t in range(table.shape[1]):
                total = 0.0
                for k in range(begin, end):
                    a = spectra[row, k]
                    total += factors[t, k] * (a.real * a.real + a.imag * a.imag)
                partial[row, begin // share, t] = total
