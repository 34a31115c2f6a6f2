# SPDX-License-Identifier: BSD-3-Clause
"""The domain of particles and meshes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from particlemesh import checks


def _read_only(array: NDArray[np.float64]) -> NDArray[np.float64]:
    array.setflags(write=False)
    return array


def faces(origin: NDArray[Any], lengths: NDArray[Any], dtype: np.dtype[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the first and last representable coordinate inside, per axis of orthorhombic boxes."""
    low, length = origin.astype(dtype), lengths.astype(dtype)
    high = np.minimum(low + np.nextafter(length, dtype.type(0)), np.nextafter(low + length, low))
    # x - origin rounds, so the next number below the face may still have fraction 1. The step has the size of
    # that rounding: near a face at 0 neighbouring numbers are subnormal, and the loop would not end.
    step = np.spacing(np.maximum(abs(low), length))
    while (outside := (high - low) / length >= 1).any():
        high = np.where(outside, np.maximum(high - step, low), high)
    # A rounded origin may lie above the box's own, and with it what is below the rounded face.
    above = high >= origin + lengths
    return low, np.where(above, np.maximum(np.nextafter(high, -dtype.type(np.inf)), low), high)


@dataclass(frozen=True, init=False, repr=False)
class Box:
    """A domain of 1 to 3 axes: lattice vectors, an origin, and which axes repeat.

    A value object: frozen, hashable, comparable, picklable. All lengths are in the user's unit.

    Parameters
    ----------
    lengths : float, sequence of d floats, or (d, d) array_like
        A length (one axis), d positive lengths (an orthorhombic box), or a matrix whose **rows**
        are the lattice vectors (a triclinic box, right- or left-handed).
    origin : float or sequence of d floats, optional
        The corner at fraction 0; zero by default. A scalar applies to every axis.
    periodic : bool or sequence of d bools, default True
        Whether the box repeats along its lattice vectors. A bool applies to every axis.

    Raises
    ------
    ValueError
        If a length is not positive, lattice vectors are linearly dependent, or a number is not finite. If
        the number of axes is not 1 to 3 or differs between arguments.
    TypeError
        If an argument is not numeric, or `periodic` is not boolean.

    Examples
    --------
    >>> box = Box((2.0, 3.0), periodic=(True, False))
    >>> box.volume, box.periodic
    (6.0, (True, False))
    >>> box.fold([[-0.5, 1.0]])
    array([[1.5, 1. ]])
    """

    _rows: tuple[tuple[float, ...], ...]
    _origin: tuple[float, ...]
    periodic: tuple[bool, ...]

    def __init__(self, lengths: ArrayLike, origin: ArrayLike | None = None, periodic: Any = True) -> None:
        matrix = checks.lattice(lengths)
        ndim = len(matrix)
        checks.volume(matrix)
        # Adding 0.0 turns -0.0 into 0.0, so that equal boxes have equal text and bits.
        rows = tuple(map(tuple, (matrix + 0.0).tolist()))
        corner = checks.per_axis(0.0 if origin is None else origin, ndim, "origin")
        object.__setattr__(self, "_rows", rows)
        object.__setattr__(self, "_origin", tuple(x + 0.0 for x in corner))
        object.__setattr__(self, "periodic", checks.flags(periodic, ndim, "periodic"))

    @classmethod
    def of(cls, value: Any) -> Box:
        """Return `value` if it is a box, else ``Box(value)``.

        Examples
        --------
        >>> Box.of((2.0, 3.0)) == Box((2.0, 3.0))
        True
        """
        return value if isinstance(value, cls) else cls(value)

    def __reduce__(self) -> tuple[Any, ...]:
        # Rebuilt, not copied: pickles of NumPy arrays lose their read-only flag.
        return type(self), (self._rows, self._origin, self.periodic)

    def __repr__(self) -> str:
        lengths = tuple(self.lengths.tolist()) if self.orthorhombic else self._rows
        parts = [repr(lengths)]
        if any(self._origin):
            parts.append(f"origin={self._origin}")
        if not all(self.periodic):
            parts.append(f"periodic={self.periodic}")
        return f"Box({', '.join(parts)})"

    @cached_property
    def ndim(self) -> int:
        """Number of axes, 1 to 3."""
        return len(self._rows)

    @cached_property
    def matrix(self) -> NDArray[np.float64]:
        """Lattice vectors as rows, shape (d, d), read-only."""
        return _read_only(np.array(self._rows))

    @cached_property
    def origin(self) -> NDArray[np.float64]:
        """The corner at fraction 0, shape (d,), read-only."""
        return _read_only(np.array(self._origin))

    @cached_property
    def lengths(self) -> NDArray[np.float64]:
        """Lengths of the lattice vectors, shape (d,), read-only."""
        if self.orthorhombic:
            return _read_only(np.diagonal(self.matrix).copy())
        return _read_only(np.linalg.norm(self.matrix, axis=1))

    @cached_property
    def inverse(self) -> NDArray[np.float64]:
        """Matrix from positions to fractions, shape (d, d), read-only.

        ``s_a = sum_b inverse[a, b] (x_b - origin_b)``. It is the transpose of the inverse of `matrix`:
        row a is the reciprocal lattice vector a without the factor 2 pi, in 1/length.
        """
        if self.orthorhombic:
            return _read_only(np.diag(1.0 / np.diagonal(self.matrix)))
        return _read_only(np.ascontiguousarray(np.linalg.inv(self.matrix).T))

    @cached_property
    def orthorhombic(self) -> bool:
        """Whether the matrix is diagonal."""
        return not any(x for a, row in enumerate(self._rows) for b, x in enumerate(row) if a != b)

    @cached_property
    def volume(self) -> float:
        """Length, area or volume of the box, always positive."""
        return checks.volume(self.matrix)

    def fractional(self, positions: ArrayLike) -> NDArray[np.floating]:
        """Return positions in units of the lattice vectors, 0 at the origin.

        Parameters
        ----------
        positions : (..., d) array_like
            Cartesian positions as a NumPy array or convertible. For d = 1 ``(n,)`` is also allowed.

        Returns
        -------
        (..., d) ndarray
            Fractions, not folded, computed in the positions' dtype (integers become float64). An
            orthorhombic box divides by its lengths, so that a position on its upper face gives exactly 1.

        Raises
        ------
        ValueError
            If the last axis of `positions` does not have length d.
        TypeError
            If positions are not real numbers.

        Examples
        --------
        >>> Box((2.0, 4.0), origin=(1.0, 0.0)).fractional([2.0, 1.0])
        array([0.5 , 0.25])
        """
        x = checks.real_positions(positions, self.ndim)
        with np.errstate(over="ignore", invalid="ignore"):
            if self.orthorhombic:
                fraction = (x - self.origin.astype(x.dtype)) / self.lengths.astype(x.dtype)
                return np.asarray(fraction.reshape(x.shape))
            return (x - self.origin.astype(x.dtype)) @ self.inverse.T.astype(x.dtype)

    def fold(self, positions: ArrayLike) -> NDArray[np.floating]:
        """Return the image of each position inside the box; coordinates along open axes do not change.

        Fractions of periodic axes are reduced by ``floor`` in the positions' dtype. They are then clamped
        below 1, because a small negative fraction plus 1 rounds to 1. Positions inside do not change.

        Parameters
        ----------
        positions : (..., d) array_like
            Cartesian positions of any magnitude. For d = 1 ``(n,)`` is also allowed.

        Returns
        -------
        (..., d) ndarray
            A new array in the dtype of `positions`. Every periodic coordinate is at least the origin and has a
            fraction below 1: exactly in an orthorhombic box, to rounding in a triclinic one. A position
            whose fraction overflows is moved to the origin; NaN and infinity become NaN.

        Raises
        ------
        ValueError, TypeError
            As for `fractional`.

        Examples
        --------
        >>> Box(1.0).fold([-0.25, 1.0, 7.5])
        array([0.75, 0.  , 0.5 ])
        """
        x = checks.real_positions(positions, self.ndim)
        dtype = x.dtype
        periodic = np.array(self.periodic)
        fraction = self.fractional(x)
        with np.errstate(over="ignore", invalid="ignore"):
            image = np.floor(fraction)
            inner = np.minimum(fraction - image, np.nextafter(dtype.type(1), dtype.type(0)))
            inner = np.where(np.isfinite(fraction), inner, dtype.type(0))
            inner = np.where(periodic, inner, fraction)
            moved = periodic & ~(image == 0)
            if not self.orthorhombic:
                moved = np.broadcast_to(moved.any(axis=-1, keepdims=True), moved.shape)
                return self._where_finite(x, np.where(moved, self._cartesian(inner), x))
            folded = np.where(moved, self._cartesian(inner), x)
            low, high = faces(self.origin, self.lengths, dtype)
            folded = np.where(periodic, np.clip(folded, low, high), folded)
        return self._where_finite(x, folded)

    def _where_finite(self, x: NDArray[Any], folded: NDArray[Any]) -> NDArray[Any]:
        finite = np.isfinite(x) if self.orthorhombic else np.isfinite(x).all(axis=-1, keepdims=True)
        keep = finite | ~np.array(self.periodic)
        return np.where(keep, folded, x.dtype.type(np.nan)).reshape(x.shape)

    def _cartesian(self, fraction: NDArray[Any]) -> NDArray[Any]:
        dtype = fraction.dtype
        if self.orthorhombic:
            return self.origin.astype(dtype) + fraction * self.lengths.astype(dtype)
        return self.origin.astype(dtype) + fraction @ self.matrix.astype(dtype)
