# SPDX-License-Identifier: BSD-3-Clause
"""Arrays of NumPy and CuPy, and vectors to the nearest image."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from particlemesh import Box
from particlemesh.kernels import Backend, kind_of


def module_of(array: Any) -> Any:
    """Return the module of an array, ``numpy`` or ``cupy``."""
    kind = kind_of(array)
    if kind is not None and kind.name == "NumPy":
        return np
    if kind is not None and kind.name == "CuPy":
        import cupy

        return cupy
    raise TypeError(f"an array of {type(array).__module__} came; arrays of NumPy and CuPy are allowed: convert it.")


def to_host(array: Any) -> np.ndarray:
    """Return an array of NumPy or CuPy in the host's memory."""
    return array if isinstance(array, np.ndarray) else array.get()


def like_numpy(backend: Backend, native: Any) -> tuple[Any, Any]:
    """Return a native array and its library: CuPy's, or NumPy's; OpenCL arrays are copied to the host."""
    if backend.name == "cuda":
        import cupy

        return native, cupy
    return (native if backend.name == "cpu" else backend.download(native)), np


def uploaded(backend: Backend, array: Any) -> Any:
    """Return the native array of one of `like_numpy`, or of random numbers: those of NumPy are copied to a GPU."""
    return backend.upload(array) if isinstance(array, np.ndarray) and backend.name != "cpu" else array


def squares(vectors: Any) -> Any:
    """Return the squared lengths (M, 1) in float64: those of float32 vectors may leave float32."""
    xp = module_of(vectors)
    return xp.multiply(vectors, vectors, dtype=xp.float64).sum(axis=1, keepdims=True)


class Images:
    """Vectors to the nearest image in a box, exact for skewed boxes of any shape.

    Fractions rounded to integers leave a vector within the parallelepiped around 0. The nearest image may still be
    another one. Its lattice vector is no longer than twice the longest half diagonal, and all of these are compared.

    Examples
    --------
    >>> import numpy as np
    >>> Images(Box((4.0, 4.0, 4.0))).nearest(np.array([[3.0, 0.5, -2.5]]))
    array([[-1. ,  0.5,  1.5]])
    """

    def __init__(self, box: Box) -> None:
        self._rows = box.matrix[list(box.periodic)]
        self._shifts = np.empty((0, 3))
        if not len(self._rows):
            return
        self._fractions = np.linalg.pinv(self._rows)  # of the periodic axes; what is normal to them stays
        gram = self._rows @ self._rows.T
        if (gram == np.diag(np.diagonal(gram))).all():
            return
        corners = np.array(list(itertools.product((-0.5, 0.5), repeat=len(self._rows)))) @ self._rows
        longest = 2 * np.linalg.norm(corners, axis=1).max()
        reach = np.floor(longest * np.linalg.norm(self._fractions, axis=0)).astype(int)
        counts = itertools.product(*(range(-n, n + 1) for n in reach))
        shifts = np.array([n for n in counts if any(n)]) @ self._rows
        self._shifts = shifts[np.linalg.norm(shifts, axis=1) <= longest * (1 + 1e-12)]

    def nearest(self, vectors: Any) -> Any:
        """Return the shortest of all images of each vector, (M, 3) of NumPy or CuPy."""
        if not len(self._rows):
            return vectors
        xp, dtype = module_of(vectors), vectors.dtype
        counts = xp.rint(vectors @ xp.asarray(self._fractions, dtype=dtype))
        inside = vectors - counts @ xp.asarray(self._rows, dtype=dtype)
        best, least = inside, squares(inside)
        for shift in self._shifts:
            other = inside - xp.asarray(shift, dtype=dtype)
            squared = squares(other)
            best = xp.where(squared < least, other, best)
            least = xp.minimum(squared, least)
        return best
