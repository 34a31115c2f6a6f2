# SPDX-License-Identifier: BSD-3-Clause
"""Checks of what users give a grid, the words of their errors, and how many neighbours there are at least and most."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from particlemesh import checks
from particlemesh.box import Box
from particlemesh.sorting.keys import cells_in

MOST = 2**31 - 1  # particles, and cells
MOST_LEVELS = 16
MOST_COUNTED = 2**31 - 1  # neighbours of a particle, in a result of int32
MOST_NEAREST = 128  # neighbours of a list of the nearest: on a GPU it lives in a work-item's own memory
BALL = 2.0, math.pi, 4 / 3 * math.pi  # the volume for a radius of 1, by axes
# Letters of quantities and fields of ``Pairs``, in the order in which kernels take the arrays.
FIELDS = {"i": "i", "j": "j", "S": "shift", "d": "distance", "D": "vector"}


class GridStatus(NamedTuple):
    """What was wrong with the particles of the last build.

    Attributes
    ----------
    count : int
        Particles given.
    not_finite, outside, bad_radius : int
        Particles with a NaN or an infinity. Particles outside an open axis, 2**20 boxes away along a periodic
        one, or with a key past the last. Radii that are negative, not finite, or more than half a tight cell.
        All of them are left out (on GPUs those too wide for a tight cell of the lists only).
    first_bad : int
        Index of the first such particle, -1 if there is none.
    fullest : int
        Particles of the fullest cell, where one has more than there is room for; else 0.
    cell : int
        That cell, -1 if there is none.
    """

    count: int  # type: ignore[assignment]  # a tuple's method of that name is not missed
    not_finite: int = 0
    outside: int = 0
    bad_radius: int = 0
    first_bad: int = -1
    fullest: int = 0
    cell: int = -1

    @property
    def bad(self) -> int:
        """Particles left out."""
        return self.not_finite + self.outside + self.bad_radius


def box_of(box: Any, periodic: Any) -> Box:
    """Return the box, made of lengths or a matrix if need be."""
    if isinstance(box, Box):
        checks.not_beside_a_box(periodic=periodic)
    else:
        box = Box(box, periodic=True if periodic is None else periodic)
    largest = max(float(np.abs(numbers).max()) for numbers in (box.matrix, box.inverse))
    if largest > 1e150:  # squares of distances, and of fractions for a distance
        raise ValueError(f"{box!r}: float64 does not hold the squares of its lengths. Use another unit of length.")
    return box


def cells_along(box: Box, cell_size: Any, shape: Any) -> tuple[int, ...]:
    """Return the cells along each axis, from their least thickness or their number."""
    if (cell_size is None) == (shape is None):
        raise ValueError("give either cell_size, the least thickness of a cell, or shape, the cells along each axis.")
    if shape is not None:
        cells = checks.mesh_shape(shape)
        if len(cells) != box.ndim:
            raise ValueError(f"shape {cells} is for {len(cells)}-D; the box is {box.ndim}-D: give a number per axis.")
    else:
        sizes = checks.per_axis(cell_size, box.ndim, "cell_size")
        if min(sizes) <= 0:
            raise ValueError(f"cell_size is {cell_size!r}; it must be positive.")
        thickness = 1 / np.linalg.norm(box.inverse, axis=1)  # of the box, across the faces of each axis
        # A quotient that is a whole number but for rounding is one: a box of 0.3 holds three cells of 0.1.
        fitting = [int(min(t / s * (1 + 1e-12), 2.0**40)) for t, s in zip(thickness, sizes, strict=True)]
        cells = tuple(max(1, n) for n in fitting)
    if math.prod(cells) > MOST:
        most = MOST ** (1 / box.ndim)
        raise ValueError(
            f"{' x '.join(map(str, cells))} = {math.prod(cells):,} cells; fewer than 2**31 are possible "
            f"(some {most:.0f} an axis): give larger cells."
        )
    return cells


def few_enough(count: int, what: str) -> None:
    """Check that particles can be counted with 31 bits."""
    if count > MOST:
        raise ValueError(f"{count:,} {what}; a grid takes fewer than 2**31: cut them into several grids.")


def options_of(name: str, methods: tuple[Any, ...], given: dict[str, Any]) -> None:
    """Check that options are those of a builder, by name."""
    for option in given:
        owners = [m.name for m in methods if option in m.options]
        if not owners:
            raise TypeError(f"UniformGrid has no argument {option!r}, and no method has such an option.")
        if name not in owners:
            raise TypeError(
                f"{option!r} is an option of method {' and '.join(map(repr, owners))}, and method is {name!r}."
            )


def radius(value: Any) -> float:
    """Return one radius for all."""
    if type(value) is not float:  # the common case
        checks.unmasked(value)
        numeric = getattr(getattr(value, "dtype", None), "kind", "f") in "iuf"  # of a NumPy or CuPy array without axes
        if isinstance(value, (bool, str, bytes)) or not numeric:
            raise TypeError(f"radius is {value!r}; a number is needed.")
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise TypeError(f"radius is {value!r}; a number is needed.") from None
    if not (0 <= number < math.inf):
        raise ValueError(f"radius is {value!r}; a finite number of at least zero is needed.")
    return number


def real_numbers(dtype: np.dtype, what: str) -> None:
    """Check that an array has real numbers of a supported type."""
    if dtype.kind not in "iuf":
        raise TypeError(f"{what}: dtype is {dtype}; real numbers are needed.")
    checks.number_type(dtype, what)


def narrow_enough(source: np.dtype, dtype: np.dtype, *, listed: bool, what: str = "radii") -> None:
    """Check that numbers lose nothing in the type of the positions; those of a list have no type of their own."""
    real_numbers(source, what)
    if source.kind == "f" and source.itemsize > dtype.itemsize and not listed:
        raise TypeError(f"{what}: dtype is {source}, that of the positions {dtype}: convert one of them yourself.")


def keys_are_integers(dtype: np.dtype, shape: tuple[int, ...]) -> None:
    """Check keys of buckets."""
    if dtype.kind not in "iu" or len(shape) != 1:
        raise TypeError(f"keys have dtype {dtype} and shape {shape}; integers (N,) are needed.")
    if dtype == np.uint64:
        raise TypeError("keys have dtype uint64; int32 or int64 are needed.")


def letters(quantities: Any) -> None:
    """Check that quantities are letters of "ijdDS", each once."""
    if not isinstance(quantities, str) or set(quantities) - set("ijdDS") or len(set(quantities)) < len(quantities):
        raise ValueError(f"quantities is {quantities!r}; give letters of 'ijdDS', each at most once.")


def good_points(not_finite: int, outside: int, first: int) -> None:
    """Check that all points of a query are in the range of positions."""
    if not_finite or outside:
        raise ValueError(
            f"{not_finite} points are not finite and {outside} are 2**20 boxes away or more; the first is point "
            f"{first}."
        )


def room_for_pairs(form: str, width: Any, capacity: Any) -> tuple[int | None, int | None]:
    """Return the width of a dense list and the capacity of another; check that the list has what is given."""
    for what, value, dense in (("width", width, True), ("capacity", capacity, False)):
        if value is not None and (form == "dense") != dense:
            has = "rows of one width" if form == "dense" else "a capacity, and no width"
            raise ValueError(f"{what} is {value!r} and format is {form!r}, which has {has}: leave out {what}.")
    width = None if width is None else checks.integer(width, "width", 0, 2**31 - 1)
    return width, None if capacity is None else checks.integer(capacity, "capacity", 0, 2**62)


def wide_enough(longest: int, width: int | None) -> None:
    """Check that rows of a dense list hold the pairs of the longest one."""
    if width is not None and longest > width:
        raise OverflowError(f"a row has {longest:,} pairs and room for {width:,}: give width={longest} or more.")


def one_each(shape: tuple[int, ...], count: int) -> None:
    """Check that there is one cutoff for each particle."""
    if shape != (count,):
        raise ValueError(f"radius has shape {shape}; give one number, or ({count},): one for each particle.")


def compares_boxes(axes: int, shape: str | None) -> bool:
    """Return whether overlaps are those of boxes, not of spheres; check that particles have the radii for it."""
    if shape is not None:
        checks.one_of(shape, "shape", ("sphere", "box"))
    if not axes:
        raise ValueError("these particles have no radii, so nothing overlaps: give them to build.")
    if shape == "sphere" and axes == 3:
        raise ValueError("shape is 'sphere', but the radii are half the edges of boxes, (N, d): build with radii (N,).")
    return shape == "box" or (shape is None and axes == 3)


def radii_shape(shape: tuple[int, ...], count: int, ndim: int) -> int:
    """Return how many extents a particle has, 1 or d, by the shape of an array of them."""
    if shape == (count,):
        return 1
    if shape == (count, ndim):
        return ndim
    raise ValueError(
        f"radii has shape {shape}; give one number, ({count},) for spheres, or ({count}, {ndim}) for half the edges of "
        "boxes."
    )


def bad_particles(
    status: GridStatus, positions: Any, radii: Any, box: Box | None, *, taken: bool = False,
    systems: int | None = None,
) -> ValueError:  # fmt: skip
    """Return the error for particles that cannot be in any cell; the first is named."""
    first, where = status.first_bad, ""
    with contextlib.suppress(Exception):
        point = [x[first] for x in positions] if isinstance(positions, tuple) else np.atleast_1d(positions[first])
        where = f" at ({', '.join(f'{float(x):.17g}' for x in point)})"
        if radii is not None and not np.isscalar(radii):
            where += f" with radius {radii[first]}"
    faults = [
        f"{n} {what}"
        for n, what in (
            (status.not_finite, "not finite"),
            (status.outside, f"outside the box{' of their system, or in no system' if systems else ' or its cells'}"),
            (status.bad_radius, "with a radius that is negative, not finite, or more than half a cell of a tight grid"),
        )
        if n
    ]
    if box is None:
        allowed = "keys below the number of buckets; negative ones take no part"
    else:
        allowed = "finite positions, at most 2**20 boxes away along periodic axes"
        spans = [a for a in range(box.ndim) if not box.periodic[a] and status.outside]
        if systems:
            allowed += f", within the box of their system along open axes, and systems 0 to {systems - 1}"
        elif spans and box.orthorhombic:
            low, high = box.origin, box.origin + box.lengths
            allowed += f", and within {', '.join(f'axis {a}: [{low[a]:g}, {high[a]:g}]' for a in spans)}"
        elif spans:
            allowed += f", and fractions within [0, 1] along lattice vectors {', '.join(map(str, spans))}"
    then = "A grid is as it was; its build with check=False leaves such particles out."
    if taken:
        then = "The grid has left them out and holds the others."
    return ValueError(f"{' and '.join(faults)} of {status.count} particles; the first is {first}{where}. "
                      f"Allowed are {allowed}. {then}")  # fmt: skip


def overflow(status: GridStatus, capacity: int, remedy: str, *, taken: bool = False) -> OverflowError:
    """Return the error for a cell that has more particles than places; ``remedy`` is what a user can do."""
    then = "some particles are in no cell" if taken else "the grid is as it was"
    return OverflowError(
        f"cell {status.cell} has {status.fullest} particles and room for {capacity}: {remedy}; {then}."
    )


def levels_of(shape: tuple[int, ...], edge: float, diameter: float, systems: int = 1) -> int:
    """Return the levels on which the last has cells for a diameter, if so many cells can be numbered.

    ``edge`` is the largest diameter for cells of the finest level, ``shape``; each of ``systems`` has as many.
    """
    if not edge < diameter < math.inf:
        return 1
    levels = min(1 + math.ceil(math.log2(diameter / edge)), max(shape).bit_length(), MOST_LEVELS)
    while cells_in(shape, levels) * systems > MOST:
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
    repeated = repeated / inner  # products of six lengths may leave float64
    return int(BALL[len(repeated) - 1] / math.sqrt(np.linalg.det(repeated @ repeated.T)))


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


@functools.cache
def wants(letters: str) -> dict[str, int]:
    """Return the defines of what a kernel writes, to be read only."""
    return {f"WANT_{field.upper()}": int(letter in letters) for letter, field in FIELDS.items()}


def array_types(
    letters: str, shape: tuple[int, ...], axes: int, real: np.dtype
) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
    """Return shape and type of the array of each quantity, by field, for ``shape`` pairs in a box of ``axes``."""
    index = np.dtype(np.int32)
    return {
        field: ((*shape, axes) if letter in "SD" else shape, real if letter in "dD" else index)
        for letter, field in FIELDS.items()
        if letter in letters
    }


def by_letter(pairs: Any, letters: str) -> dict[str, Any]:
    """Return the arrays of pairs by letter."""
    return {letter: getattr(pairs, FIELDS[letter]) for letter in letters}


def first_radius(k: int, volume: Any, shape: tuple[int, ...], count: float) -> tuple[Any, float, float]:
    """Return scale, mean and power of a first radius for ``k`` neighbours in a box that is cut into ``shape`` cells.

    Of several boxes the scale is an array like the ``volume``.

    The radius is ``scale * (particles of the cell + mean)**power``: the estimated density is the mean of the cell's and
    that of ``count`` particles in the box. With 1.5 k + 3 particles expected, nine of ten such spheres of evenly spread
    particles hold k.
    """
    axes, cells = len(shape), math.prod(shape)
    return (2 * (1.5 * k + 3) * volume / cells / BALL[axes - 1]) ** (1 / axes), max(count / cells, 1e-6), -1 / axes


def bytes_per_pair(quantities: str, axes: int, itemsize: int) -> int:
    """Return the bytes of one pair in a list."""
    types = array_types(quantities, (), axes, np.dtype(f"f{itemsize}"))
    return sum(math.prod(shape) * dtype.itemsize for shape, dtype in types.values())
