# SPDX-License-Identifier: BSD-3-Clause
"""How many neighbours there are at least and at most, before anything is counted."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from particlemesh.grid import checks
from particlemesh.sorting.keys import cells_in

MOST_COUNTED = 2**31 - 1  # neighbours of a particle, in a result of int32


def levels_of(shape: tuple[int, ...], edge: float, diameter: float, systems: int = 1) -> int:
    """Return the levels on which the last has cells for a diameter, if so many cells can be numbered.

    ``edge`` is the largest diameter for cells of the finest level, ``shape``; each of ``systems`` has as many.
    """
    if not edge < diameter < math.inf:
        return 1
    levels = min(1 + math.ceil(math.log2(diameter / edge)), max(shape).bit_length(), checks.MOST_LEVELS)
    while cells_in(shape, levels) * systems > checks.MOST:
        levels -= 1
    return levels


def least_images(radius: float, rows: np.ndarray, periodic: Sequence[bool]) -> int:
    """Return how many images of every particle are at least within ``radius`` of any point of the box.

    ``rows`` (d, d) are the lattice vectors, zeros for missing axes.
    """
    repeated = rows[np.array(periodic, bool)].astype(np.float64)
    if not len(repeated):
        return 0
    diagonal = float(np.linalg.norm(np.abs(rows).sum(0, dtype=np.float64)))
    # Each point of a ball is in the cell of one lattice point, which is no farther away than the cell's diagonal.
    inner = radius - diagonal - float(np.linalg.norm(np.abs(repeated).sum(0)))
    if not 0 < inner < 1e150:
        return 0
    ball = (2.0, math.pi, 4 / 3 * math.pi)[len(repeated) - 1]
    repeated = repeated / inner  # products of six lengths may leave float64
    return int(ball / math.sqrt(np.linalg.det(repeated @ repeated.T)))


def most_images(radius: float, per: np.ndarray, periodic: Sequence[bool]) -> int:
    """Return how many images of a particle are within ``radius`` of a point, at most.

    ``per`` (d,) are the fractions that a distance of one spans across the faces of each axis.
    """
    return math.prod(math.floor(min(2 * radius * p * (1 + 1e-6), 2.0**40)) + 1 for p in per[np.array(periodic, bool)])


def too_many(neighbours: int, *, at_least: bool = False) -> OverflowError:
    """Return the error for a particle with more neighbours than its count can hold."""
    return OverflowError(
        f"a particle has {'at least ' if at_least else ''}{neighbours:,} neighbours; a count is an int32, at most "
        f"{MOST_COUNTED:,}: take a smaller radius."
    )


def least_reach(dtype: np.dtype) -> float:
    """Return the smallest distance whose square a type holds to rounding: 1.1e-19 in float32, 1.5e-154 in float64."""
    info = np.finfo(dtype)
    return math.sqrt(float(info.smallest_subnormal) / float(info.eps))


def check_squares(radius: float, rows: np.ndarray, dtype: np.dtype, *, bounded: bool) -> None:
    """Check that a type holds the squares of distances within a radius.

    ``rows`` are the lattice vectors of one box or of several; ``bounded``: no distance is longer than all of one box.

    Raises
    ------
    ValueError
        If squares overflow, or if the whole box or a radius other than 0 is so small that they vanish beside the
        type's smallest number.
    """
    info = np.finfo(dtype)
    least, most = math.sqrt(float(info.smallest_subnormal)) / float(info.eps), math.sqrt(float(info.max)) / 2
    size = float(np.abs(rows).sum((-2, -1), dtype=np.float64).max())
    if (min(radius, size) if bounded else radius) > most or max(radius, size) < least:
        raise ValueError(
            f"a search within {radius:g} in a box of {size:g}: {dtype.name} holds the squares of lengths from "
            f"{least:.2g} to {most:.2g}. Use another unit of length{', or float64' * (dtype.itemsize < 8)}."
        )
    if 0 < radius < (least := least_reach(dtype)):
        raise ValueError(
            f"a search within {radius:g}: {dtype.name} holds the squares of distances from {least:.2g} on. Use another "
            f"unit of length{', or float64' * (dtype.itemsize < 8)}, or 0 for particles in one place."
        )


def square_within(radius: float, dtype: np.dtype) -> float:
    """Return the largest square whose root, rounded, is not more than the radius, rounded, in a type.

    Searches compare squares with it, so that pairs are those whose returned distances are at most the radius.
    """
    largest = float(np.finfo(dtype).max)
    if radius >= math.sqrt(largest):
        return largest
    rounded = dtype.type(radius)
    square = rounded * rounded
    while square and np.sqrt(above := np.nextafter(square, dtype.type(np.inf))) <= rounded:
        square = above
    return float(square)


def bytes_per_pair(quantities: str, axes: int, itemsize: int) -> int:
    """Return the bytes of one pair in a list."""
    sizes = {"i": 4, "j": 4, "S": 4 * axes, "d": itemsize, "D": axes * itemsize}
    return sum(sizes[letter] for letter in set(quantities))
