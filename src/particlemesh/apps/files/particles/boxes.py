# SPDX-License-Identifier: BSD-3-Clause
"""Which arrays beside particles are their box, and boxes from what files have."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np

from particlemesh import Box
from particlemesh.apps.files.lattice import lattice
from particlemesh.apps.files.particles.reader import FileError

NAMES = ("box", "boxsize", "cell", "lengths")
LOOSE = ("cell", "lengths")  # which particles' properties may be called, too
SETTINGS = (*NAMES, "origin", "periodic")
LARGEST = 9  # numbers of a setting


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


def find(
    shapes: Mapping[str, tuple[int, ...]], read: Callable[[str], Any], columns: Collection[str],
    chosen: Collection[str], ndim: int,
) -> Box | None:  # fmt: skip
    """Return the box among the settings of a file, or None.

    An array that is chosen as positions or values is no box. A row of numbers that may be a column is none: with three
    particles ``lengths (3,)`` may be either.

    Parameters
    ----------
    shapes : mapping of str to shape
        The settings, by name.
    read : callable
        Returns the array of a name.
    columns, chosen : collection of str
        All columns, and those that are positions and values.
    ndim : int
        Number of axes of the positions.
    """
    names = {name.lower(): name for name in shapes if name not in chosen}
    for known in NAMES:
        name = names.get(known)
        if name is None or (known in LOOSE and not fits(shapes[name], ndim)):
            continue
        if name not in columns or shapes[name] == (ndim, ndim):
            more = (names.get(key) for key in ("origin", "periodic"))
            return box_of(read(name), ndim, *(None if key is None else read(key) for key in more))
    return None


def box_of(given: Any, ndim: int, origin: Any = None, periodic: Any = None) -> Box | None:
    """Return a box from what a file has; None if all of it is zero, as files without a box have it.

    Parameters
    ----------
    given : array
        A length, which is that of all axes; lengths; a matrix; or three lengths and three angles in degrees.
    ndim : int
        Number of axes of the positions.
    origin, periodic : array, optional
        One of each for all axes, or one per axis.

    Raises
    ------
    FileError
        If these are no box.
    """
    try:
        array = np.asarray(given).astype(np.float64)
        if array.ndim < 2 or 1 in array.shape:
            array = array.ravel()
        if not array.any():
            return None
        if array.size == 1:
            array = np.full(ndim, array[0])
        elif array.shape == (6,) and ndim == 3:
            array = lattice(array[:3], array[3:])
        corner = 0.0 if origin is None else np.ravel(np.asarray(origin, np.float64))
        if np.asarray(periodic).dtype.kind in "US":
            raise ValueError(f"periodic is {str(periodic)!r}; one flag for each axis is needed")
        flags = True if periodic is None else [bool(p) for p in np.ravel(periodic)]
        return Box(
            array,
            origin=np.ravel(corner)[0] if np.size(corner) == 1 else corner,
            periodic=flags[0] if isinstance(flags, list) and len(flags) == 1 else flags,
        )
    except (ValueError, TypeError) as error:
        raise FileError(f"the file's box is none: {error}") from error
