# SPDX-License-Identifier: BSD-3-Clause
"""Derivatives by strain of the energy of a field, as sums over its modes.

The energy is ``sum_k factors |spectrum|**2 / 2``. If box and particles are strained together, spectrum and window do
not change. Wave vectors and volume do: ``dk_a = -strain_ab k_b`` and ``dV = V trace(strain)``. So the derivative is
the sum of ``-(G delta_ab + 2 G' k_a k_b) |spectrum|**2 / 2``, where G' is the derivative by k**2.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from particlemesh.backends.base import Backend
from particlemesh.backends.cpu import default_threads, ranges, run
from particlemesh.backends.jit import compiled
from particlemesh.fourier.green import Divisor, table
from particlemesh.fourier.modes import Modes

_SHARE = 4096  # modes that a thread or group sums at once


def tables(
    modes: Modes, factors: NDArray[Any], slope: Callable[[NDArray[Any]], Any], divisor: Divisor | None
) -> NDArray[Any]:
    """Return tables (d (d + 1) / 2, modes), rows of the upper triangle, whose sums are the derivative.

    Parameters
    ----------
    modes : Modes
        With real=True: stored modes count for their opposites.
    factors : array
        Of the potential: Green function over volume and ``divisor``.
    slope : callable
        Derivative of the Green function by k**2.
    divisor : callable or None
        As for :func:`particlemesh.fourier.green.table`.
    """
    last, ndim = len(modes.shape) - 1, len(modes.shape)
    numbers = modes.numbers(last)
    twice = modes.along(last, np.where((numbers == 0) | (2 * numbers == modes.shape[last]), 1.0, 2.0))
    volume = np.prod(modes.shape) * modes.mesh.node_volume

    def product(a: int, b: int) -> Callable[..., Any]:
        return lambda *k: k[a] * k[b] * slope(sum(c**2 for c in k))

    rows = []
    for a, b in itertools.combinations_with_replacement(range(ndim), 2):
        part = table(product(a, b), modes, of="k", zero=None, parameters={}, divisor=divisor, parts=True) / volume
        rows.append(-twice * (part + (a == b) * factors / 2))
    return np.stack(rows).reshape(len(rows), -1)


class Strain:
    """Tables on a backend, and the sums with them.

    Parameters
    ----------
    backend : Backend
    tables : list of arrays (terms, modes)
        One for all spectra, or one per system.
    ndim : int
    dtype : numpy.dtype
        Real type of the spectra.
    threads : int, optional
        CPU threads.
    """

    def __init__(
        self, backend: Backend, tables: list[NDArray[Any]], ndim: int, dtype: np.dtype, threads: int | None
    ) -> None:
        whole = np.ascontiguousarray(np.stack(tables), dtype)
        self.backend, self.ndim, self.dtype = backend, ndim, dtype
        self.owners, self.terms, self.modes = whole.shape
        self.shares = max(1, -(-self.modes // _SHARE))
        self.threads = default_threads(whole.size // 8) if threads is None else threads
        self._table = whole if backend.name == "cpu" else backend.upload(whole)

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
        second(rows * self.ndim**2, partial, totals, rows, self.shares)


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
