# SPDX-License-Identifier: BSD-3-Clause
"""Spectra times a table of factors, in one pass on every backend."""

from __future__ import annotations

from typing import Any

import numpy as np

from particlemesh.arrays.views import COMPLEX
from particlemesh.backends.base import Backend
from particlemesh.backends.cpu import default_threads, ranges, run
from particlemesh.backends.jit import compiled


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
    """

    def __init__(
        self, backend: Backend, table: np.ndarray, dtype: Any, *, turns: bool = False, threads: int | None = None
    ) -> None:
        self.backend, self.dtype = backend, np.dtype(dtype)
        self.shape = table.shape
        whole = np.iscomplexobj(table)
        rounded = np.ascontiguousarray(table, COMPLEX[self.dtype] if whole else self.dtype)
        if backend.name != "cpu":
            rounded = backend.upload(rounded)
        elif turns:
            rounded = 1j * rounded
        self.table = rounded
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


@compiled
def _multiply(source, target, table, share, counter):
    """Write ``source * table``; each thread claims shares of the modes."""
    for begin, end in ranges(counter, table.size, share):
        for c in range(source.shape[0]):
            for k in range(begin, end):
                target[c, k] = source[c, k] * table[k]
