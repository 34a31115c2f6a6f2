# SPDX-License-Identifier: BSD-3-Clause
"""Boxes from what files have: lengths, angles, matrices; and which arrays beside particles are their box."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

import numpy as np

from particlemesh import Box
from particlemesh.apps.files.libraries import FileError

NAMES = ("box", "boxsize", "cell", "lengths")
LOOSE = ("cell", "lengths")  # which particles' properties may be called, too
SETTINGS = (*NAMES, "origin", "periodic")
ATTRIBUTE = "@"  # between a group and the name of its attribute
LARGEST = 9  # numbers of a setting
SHARPEST = 5.0  # degrees between lattice vectors: smaller angles are in radians


def lattice(lengths: np.ndarray, angles: np.ndarray) -> np.ndarray:
    """Return lattice vectors (3, 3) in rows, a along x and b in the plane of x and y; a ValueError if none have these.

    Angles are alpha between b and c, beta between a and c, gamma between a and b, in degrees.
    """
    listed = ", ".join(f"{x:g}" for x in angles)
    if not ((angles >= SHARPEST) & (angles < 180)).all():
        raise ValueError(f"angles are {listed}; give 3 angles in degrees, of {SHARPEST:g} or more and below 180")
    alpha, beta, gamma = np.where(angles == 90, 0.0, np.cos(np.radians(angles)))  # 90 degrees gives exact zeros
    sine = math.sqrt(max(0.0, 1 - gamma**2))
    across = (alpha - beta * gamma) / sine if sine else math.inf
    height = 1 - beta**2 - across**2
    if not height > 0:
        raise ValueError(f"angles are {listed} degrees; no cell has these")
    a, b, c = lengths
    return np.array([[a, 0, 0], [b * gamma, b * sine, 0], [c * beta, c * across, c * math.sqrt(height)]])


class Cell(NamedTuple):
    """What a file says of a box."""

    rows: np.ndarray  # (d, d), lattice vectors; zeros along an axis that has none
    periodic: tuple[bool, ...] | None = None  # None if the file does not say, and all axes repeat
    origin: np.ndarray | None = None

    def same(self, other: Cell | None, rounding: float = 0.0) -> bool:
        """Return whether another cell is equal, but for a part of the lengths."""
        if other is None or self.periodic != other.periodic or self.rows.shape != other.rows.shape:
            return False
        mine, theirs = (np.zeros(len(self.rows)) if c.origin is None else c.origin for c in (self, other))
        room = rounding and rounding * abs(self.rows).max()
        pairs = (self.rows, other.rows), (mine, theirs)
        return all(np.allclose(*pair, rtol=0, atol=room, equal_nan=True) for pair in pairs)

    def box(self, bounds: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]) -> Box | None:
        """Return the box; None if there is nothing of one; a FileError if the numbers are none.

        An open axis without a lattice vector is orthogonal to the others, and holds all particles. ``bounds`` takes
        directions as columns, and returns the least and largest coordinates of particles along each.
        """
        rows, ndim = np.array(self.rows, np.float64), len(self.rows)
        repeats = (True,) * ndim if self.periodic is None else self.periodic
        missing: np.ndarray = ~np.any(rows, axis=1)
        if missing.all() and (self.periodic is None or not any(repeats)):
            return None
        try:
            wrong = [axis for axis in range(ndim) if missing[axis] and repeats[axis]]
            if wrong:
                raise ValueError(f"axis {wrong[0]} repeats, and its lattice vector is zero: give --box or --periodic")
            origin = np.zeros(ndim) if self.origin is None else np.array(self.origin, np.float64)
            if missing.any():
                for axis in np.flatnonzero(missing):
                    rows[axis] = _across(rows, int(axis))
                inverse = np.linalg.inv(rows)
                low, high = (end - origin @ inverse for end in bounds(inverse))
                low, high = np.where(missing, low, 0.0), np.where(missing, high, 1.0)
                origin, rows = origin + low @ rows, rows * (high - low)[:, None]
            tilted = (rows - np.diag(np.diagonal(rows))).any() or (np.diagonal(rows) <= 0).any()
            return Box(rows if tilted else np.diagonal(rows), origin=origin, periodic=repeats)
        except (ValueError, TypeError, np.linalg.LinAlgError) as error:
            raise FileError(f"the file's box cannot be used: {error}") from error


def _across(rows: np.ndarray, axis: int) -> np.ndarray:
    """Return a direction orthogonal to all rows, the nearest to an axis."""
    basis = np.linalg.svd(rows)[2][np.linalg.matrix_rank(rows) :]  # of what is orthogonal
    parts = basis.T @ basis  # row k: the part of direction k that is orthogonal to the rows
    best = parts[axis] if parts[axis].any() else parts[np.argmax(np.diagonal(parts))]
    return np.where(abs(best) < 1e-12, 0.0, best) / np.linalg.norm(best)


def is_setting(name: str, shape: tuple[int, ...]) -> bool:
    """Return whether an array may be a box, an origin or flags, by its name and shape."""
    return name.lower() in SETTINGS and len(shape) <= 2 and math.prod(shape) <= LARGEST


def is_shared(name: str, shape: tuple[int, ...], rows: Collection[int | None]) -> bool:
    """Return whether an array that may be a box may also be a column, of as many rows as others have."""
    loose = name.lower() in LOOSE or not any(fits(shape, ndim) for ndim in (1, 2, 3))
    return name.lower() in NAMES and loose and len(shape) > 0 and shape[0] in rows


def fits(shape: tuple[int, ...], ndim: int) -> bool:
    """Return whether an array of this shape is a box of some axes: a length, lengths, rows, or lengths and angles."""
    lengths = {(), (1,), (1, 1), (ndim,), (1, ndim), (ndim, 1)}
    return shape in lengths | {(ndim, ndim)} or (ndim == 3 and shape in {(6,), (1, 6)})


def key_of(name: str) -> str:
    """Return which setting an array or an attribute may be."""
    return name.rpartition(ATTRIBUTE)[2].lower()


def find(
    shapes: Mapping[str, tuple[int, ...]], read: Callable[[str], Any], columns: Collection[str],
    chosen: Collection[str], ndim: int,
) -> Cell | None:  # fmt: skip
    """Return the box among the settings of a file, whose shapes and a reader are given, or None.

    An array that is chosen as positions or values is no box. A row of numbers that may be a column is none: with three
    particles ``lengths (3,)`` may be either.
    """
    names: dict[str, list[str]] = {key: [] for key in SETTINGS}
    for name in shapes:
        if name not in chosen:
            names[key_of(name)].append(name)
    for name in itertools.chain.from_iterable(names[known] for known in NAMES):
        if key_of(name) in LOOSE and not fits(shapes[name], ndim):
            continue
        if name not in columns or shapes[name] == (ndim, ndim):
            return cell_of(read(name), ndim, *(read(names[key][0]) if names[key] else None for key in SETTINGS[-2:]))
    return None


def cell_of(numbers: Any, ndim: int, origin: Any = None, periodic: Any = None) -> Cell:
    """Return a cell from a length for all axes, lengths, a matrix, or lengths and angles; else raise a FileError.

    ``origin`` and ``periodic`` have one entry for all axes, or one per axis; ``ndim`` is that of the positions.
    """
    try:
        rows = np.asarray(numbers).astype(np.float64)
        if rows.ndim < 2 or 1 in rows.shape:
            rows = rows.ravel()
        if rows.size == 1:
            rows = np.full(ndim, rows[0])
        elif rows.shape == (6,) and ndim == 3:
            rows = lattice(rows[:3], rows[3:]) if rows.any() else np.zeros(3)
        if rows.ndim == 1:
            rows = np.diag(rows)
        if not (np.isfinite(rows).all() and rows.shape == (len(rows),) * 2):
            raise ValueError(f"it has {rows.shape} numbers, or some that are not finite")
        corner = None if origin is None else np.broadcast_to(np.ravel(np.asarray(origin, np.float64)), len(rows))
        if periodic is None:
            return Cell(rows, None, corner)
        if not np.isin(periodic, (0, 1)).all():
            raise ValueError(f"periodic is {np.asarray(periodic).tolist()!r}; one flag for each axis is needed, 0 or 1")
        flags = np.broadcast_to(np.ravel(periodic).astype(bool), len(rows))
        return Cell(rows, tuple(flags.tolist()), corner)
    except (ValueError, TypeError) as error:
        raise FileError(f"the file's box cannot be used: {error}") from error
