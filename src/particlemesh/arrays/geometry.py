# SPDX-License-Identifier: BSD-3-Clause
"""A box as a kernel argument (particles/coordinates.h): three axes, missing ones first."""

from __future__ import annotations

import numpy as np

from particlemesh.backends.base import Record
from particlemesh.box import Box, faces


def open_bounds(
    origin: np.ndarray, inverse: np.ndarray, lengths: np.ndarray | None, orthorhombic: bool, dtype: np.dtype
) -> tuple[np.ndarray, np.ndarray]:
    """Return the bounds of positions on open axes: coordinates, or fractions of a triclinic box.

    Coordinates are exact. Fractions are rounded, so their bounds allow for the rounding.
    """
    if orthorhombic and lengths is not None:
        return origin, origin + lengths
    reach = np.abs(np.linalg.inv(inverse)).sum(1) + 2 * np.abs(origin)  # of |x| + |origin|, by coordinate
    slack = 4 * np.finfo(dtype).eps * (np.abs(inverse) @ reach)
    return -slack, 1 + slack


def bounds_of(box: Box, dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    """Return the bounds of positions: those of open axes, and the first and last numbers inside periodic ones.

    They are coordinates, or fractions of a triclinic box.
    """
    open_ones = open_bounds(box.origin, box.inverse, box.lengths, box.orthorhombic, dtype)
    unit = np.zeros(box.ndim), np.ones(box.ndim)
    inside = faces(box.origin, box.lengths, dtype) if box.orthorhombic else faces(*unit, dtype)
    lower, upper = (np.where(box.periodic, a, b) for a, b in zip(inside, open_ones, strict=True))
    return lower, upper


def tails_of(numbers: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return the rounding errors of float64 numbers in a dtype."""
    return np.asarray(numbers - numbers.astype(dtype).astype(np.float64))


def check_range(box: Box, dtype: np.dtype) -> None:
    """Check that a dtype holds a box: its lattice vectors, and their inverse.

    Raises
    ------
    ValueError
        If numbers overflow or underflow.
    """
    largest = max(float(np.abs(a).max()) for a in (box.matrix, box.inverse, box.origin))
    if largest > float(np.finfo(dtype).max) / 16:
        raise ValueError(
            f"{box!r} is beyond the range of {dtype.name}: lengths, origin and 1 / length must be below "
            f"{float(np.finfo(dtype).max) / 16:.2g}. Use another unit of length{', or float64' * (dtype.itemsize < 8)}."
        )


def check_size(sizes: np.ndarray | float, dtype: np.dtype, what: str) -> None:
    """Check that a dtype holds numbers of these sizes to rounding, and sums of them; 0, NaN and infinity are no sizes.

    Raises
    ------
    ValueError
        If the largest is near either end of the dtype's range.
    """
    size, info = float(np.max(np.abs(sizes), initial=0.0)), np.finfo(dtype)
    least, most = float(info.tiny) * 2**16, float(info.max) / 2**16
    if 0 < size < np.inf and not least <= size <= most:
        raise ValueError(
            f"{what} are of size {size:.2g}; {dtype.name} holds sizes from {least:.2g} to {most:.2g}. "
            f"Use another unit of length{', or float64' * (dtype.itemsize < 8)}."
        )


def geometry_record(box: Box, dtype: np.dtype) -> Record:
    """Return ``Geometry`` in the coordinates' dtype."""
    check_range(box, dtype)
    missing = 3 - box.ndim
    origin, lower, upper = np.zeros(3), np.zeros(3), np.zeros(3)
    inverse, rows = np.zeros((3, 3)), np.zeros((3, 3))
    origin[missing:] = box.origin
    inverse[missing:, missing:] = box.inverse
    rows[missing:, missing:] = box.matrix
    lower[missing:], upper[missing:] = bounds_of(box, dtype)
    tails = tails_of(rows, dtype)
    numbers = (origin, inverse.ravel(), rows.ravel(), tails.ravel(), lower, upper, [1.0])
    return Record(f"=37{dtype.char}", *np.concatenate(numbers))


def frame_record(box: Box) -> Record:
    """Return ``Frame``."""
    missing = 3 - box.ndim
    return Record("=5i", *[0] * missing, *(int(p) for p in box.periodic), int(box.orthorhombic), missing)
