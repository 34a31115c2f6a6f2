# SPDX-License-Identifier: BSD-3-Clause
"""Multipoles on a mesh by ik: densities of charges, dipoles and quadrupoles, and derivatives of a potential."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from particlemesh.backends.base import Backend, Record
from particlemesh.backends.cpu import default_threads, ranges, run
from particlemesh.backends.jit import compiled
from particlemesh.fourier.modes import Modes
from particlemesh.fourier.multiply import band_of, wave_vector


def moments_of(ndim: int) -> int:
    """Return how many numbers a charge, a dipole and a symmetric quadrupole are: 3, 6 or 10.

    >>> [moments_of(ndim) for ndim in (1, 2, 3)]
    [3, 6, 10]
    """
    return (ndim + 1) * (ndim + 2) // 2


class Moments:
    """Products with powers of ik of spectra (moments, systems, modes), on a backend.

    Moments are coefficients of 1, of the first derivatives and of the second ones, rows of the upper triangle.

    Parameters
    ----------
    backend : Backend
    boxes : sequence of Modes
        Of each system, or of one box.
    systems : int
        How many spectra each moment has.
    dtype : numpy.dtype
        Real type of the spectra.
    threads : int, optional
        CPU threads.
    rows : native array (systems, 3, d), optional
        Reciprocal vectors of systems that are on a GPU.
    """

    def __init__(
        self, backend: Backend, boxes: Sequence[Modes], systems: int, dtype: np.dtype, threads: int | None,
        rows: Any = None,
    ) -> None:  # fmt: skip
        self.backend, self.dtype, self.systems = backend, dtype, systems
        modes = boxes[0]
        self.ndim = ndim = len(modes.shape)
        missing = 3 - ndim
        if rows is None:
            host = np.zeros((systems, 3, ndim), dtype)
            host[:, missing:] = np.stack([each.rows for each in boxes])
            rows = host if backend.name == "cpu" else backend.upload(host)
        self._rows = rows
        self._modes = math.prod(modes.spectrum_shape)
        self._sizes = band_of(modes)
        self._threads = default_threads(self._modes * systems) if threads is None else threads

    def __call__(self, spectra: Any, *, expand: bool) -> None:
        """Make the first field the density of all, or the others derivatives of the first.

        Parameters
        ----------
        spectra : native array (moments, systems, *modes)
            Dense.
        expand : bool
        """
        if not self._modes:
            return
        if self.backend.name == "cpu":
            flat = spectra.reshape(moments_of(self.ndim), self.systems, self._modes)
            run(_moments, self._threads, flat, self._rows, *map(np.array, self._sizes), expand, 1 << 12)
            return
        defines = {"REAL_IS_DOUBLE": int(self.dtype == np.float64), "DIM": self.ndim, "EXPAND": int(expand)}
        at = int(getattr(spectra, "offset", 0)) // self.dtype.itemsize
        self.backend.kernel("fourier/moments.c", "moments", defines)(
            self._modes * self.systems, spectra, self._rows, self._modes, self.systems,
            Record("=11q", *itertools.chain(*self._sizes), at, at),
        )  # fmt: skip


@compiled
def _moments(spectra, rows, shape, nodes, starts, expand, share, counter):
    """Do what the kernel does; each thread claims shares of the modes of all systems."""
    systems, modes, ndim = spectra.shape[1], spectra.shape[2], rows.shape[2]
    q = np.empty(ndim, rows.dtype)
    for begin, end in ranges(counter, systems * modes, share):
        for n in range(begin, end):
            s = n // modes
            k = n - s * modes
            wave_vector(k, rows[s], shape, nodes, starts, q)
            whole = spectra[0, s, k]
            re, im, second = whole.real, whole.imag, ndim
            for c in range(ndim):
                if expand:
                    spectra[1 + c, s, k] = complex(-q[c] * im, q[c] * re)
                else:
                    first = spectra[1 + c, s, k]
                    re += q[c] * first.imag
                    im -= q[c] * first.real
                for d in range(c, ndim):
                    second += 1
                    square = q[c] * q[d]
                    if expand:
                        spectra[second, s, k] = complex(-square * re, -square * im)
                    else:
                        turn = spectra[second, s, k]
                        re -= square * turn.real
                        im -= square * turn.imag
            if not expand:
                spectra[0, s, k] = complex(re, im)
