# SPDX-License-Identifier: BSD-3-Clause
"""Positions and numbers of particles as arrays of NumPy or CuPy, and results as the user's kind."""

from __future__ import annotations

import contextlib
import itertools
import sys
from typing import Any

import numpy as np

from particlemesh import kernels
from particlemesh.kernels import Kind, checks

NEIGHBOURS = np.array(list(itertools.product((0, -1, 1), repeat=3)), np.float64)  # a tie keeps the first


def nearest(xp: Any, d: Any, cell: Any, inverse: Any, integers: Any) -> Any:
    """Return the shortest images of vectors (N, 3), as torch and JAX differentiate them.

    Parameters
    ----------
    xp : module
        NumPy, CuPy, torch or ``jax.numpy``.
    d : array (N, 3)
    cell, inverse : array (3, 3) or (N, 3, 3)
        Lattice vectors as rows, and ``inv(cell)``; one box, or one for each vector.
    integers : array (27, 3)
        `NEIGHBOURS`, of d's type and device.

    Examples
    --------
    >>> skewed = np.array([[1.0, 0.0, 0.0], [0.5, 1.0, 0.0], [0.0, 0.0, 1.0]])
    >>> nearest(np, np.array([[0.7, 0.45, 0.0]]), skewed, np.linalg.inv(skewed), NEIGHBOURS)
    array([[-0.3 ,  0.45,  0.  ]])
    """
    d = d[:, None]
    d = d - xp.round(d @ inverse) @ cell
    images = d + integers @ cell
    return (d + integers[(images**2).sum(-1).argmin(1)][:, None] @ cell)[:, 0]


def check_finite(array: Any, what: str, axis: int = -1, system: Any = None) -> None:
    """Raise an error that names the first particle, and its system, if a number is not finite; waits.

    Parameters
    ----------
    array : array
        Of NumPy, CuPy, torch or JAX.
    what : str
        Whose numbers: "charges".
    axis : int
        That of the particles.
    system : array (N,), optional
        The system of each particle.

    Examples
    --------
    >>> check_finite(np.array([1.0, np.nan]), "charges")
    Traceback (most recent call last):
        ...
    ValueError: charges of 1 of 2 particles are not finite; the first is particle 1. Give finite numbers.
    """
    bad = array - array != 0
    if not bool(bad.any()):
        return
    host = np.asarray(bad.get() if hasattr(bad, "get") else bad.cpu() if hasattr(bad, "cpu") else bad)
    first: np.ndarray = np.moveaxis(host, axis, 0).reshape(host.shape[axis], -1).max(1)
    k = int(first.argmax())
    of = "" if system is None else f" of system {int(system[k])}"
    raise ValueError(
        f"{what} of {first.sum()} of {len(first)} particles are not finite; the first is particle {k}{of}. "
        "Give finite numbers."
    )


class Natives:
    """Positions (N, 3) as an array of NumPy or CuPy.

    Parameters
    ----------
    positions : array (N, 3)
        Of any kind whose memory NumPy or CuPy share.

    Attributes
    ----------
    x : array (N, 3)
    xp : module
        NumPy or CuPy.

    Raises
    ------
    ValueError, TypeError
        If shape, dtype or kind are not allowed.

    Examples
    --------
    >>> particles = Natives([[0.0, 0.0, 0.5]])
    >>> particles.x.dtype.name, particles.number([2], "charges")
    ('float64', array([2.]))
    """

    def __init__(self, positions: Any) -> None:
        taken = self._positions = kernels.take(positions, (None, 3), "positions", batch=False, dense=False)
        self.kind: Kind = taken.kind
        if self.kind.home not in ("cpu", "cuda"):
            raise TypeError(f"positions are of {self.kind.name}; give arrays of NumPy, CuPy, torch or JAX.")
        self.xp: Any = np if self.kind.home == "cpu" else sys.modules["cupy"]
        self.user, self.backend, self.dtype, self.x = taken.user, taken.backend, taken.dtype, taken.native

    @property
    def count(self) -> int:
        """Number of particles."""
        return len(self.x)

    def number(self, array: Any, what: str, *core: int) -> Any:
        """Return numbers of the particles, (..., N, *core), of the positions' type."""
        return kernels.take(array, (self.count, *core), what, like=self._positions, dense=False).native

    def pairs(self, array: Any, what: str) -> Any:
        """Return pairs of particles (M, 2) as indices, each checked on the host."""
        indices = checks.number_array(array, what)
        if indices.size == 0:
            indices = np.zeros((0, 2), np.int64)
        if indices.ndim != 2 or indices.shape[1] != 2 or indices.dtype.kind not in "iu":
            raise ValueError(f"{what} has shape {indices.shape} and dtype {indices.dtype}; integers (m, 2) are needed.")
        bad = ((indices < 0) | (indices >= self.count)).any(1) | (indices[:, 0] == indices[:, 1])
        if bad.any():
            row = int(np.flatnonzero(bad)[0])
            raise ValueError(
                f"{what}[{row}] is {indices[row].tolist()}; give two different numbers below {self.count}."
            )
        return self.xp.asarray(indices)

    def scope(self) -> contextlib.AbstractContextManager[Any]:
        """Enter the current stream of the array's library."""
        return self.kind.scope(self.user)

    def wrap(self, native: Any) -> Any:
        """Return a native array as the user's kind; scalars of NumPy as numbers."""
        return native[()] if isinstance(native, np.ndarray) and native.ndim == 0 else self.kind.wrap(native)
