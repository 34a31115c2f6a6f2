# SPDX-License-Identifier: BSD-3-Clause
"""Cells that hold particles, and no others, for particles that fill little of their box or reach very differently.

A dense grid has memory for each cell. So its cells are few and large where particles are clustered, and a search looks
at all particles of a cluster. Here cells are as small as a search needs. Only cells with particles are kept, sorted by
number, and a search finds them by bisection. N particles take O(N log N), whatever the size of the box.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from particlemesh.backends.base import Backend
from particlemesh.backends.tapes import Tapes
from particlemesh.box import Box
from particlemesh.grid.checks import MOST_LEVELS, GridStatus, by_letter
from particlemesh.grid.cpu.locate import MOST_TURNS, CpuCells, cells_of, locate
from particlemesh.grid.queries.cloud import Cloud
from particlemesh.grid.queries.device_queries import DeviceQueries
from particlemesh.grid.queries.search import Search
from particlemesh.grid.results import Pairs
from particlemesh.grid.room import Room
from particlemesh.sorting.cpu import counting_sort
from particlemesh.sorting.keys import FOLDED, STATUS_WORDS, Cells, cells_in, level_shapes

_MOST_CELLS = 2**61  # of all levels: numbers have 64 bits
_CROWDED = 32  # particles that share a cell with one, on average: below, a dense grid is faster
_UNEVEN = 16  # volumes around the largest particle for one around the mean: levels of cells are faster from here on


class SparseCells(NamedTuple):
    """Particles in the order of the cells that hold any."""

    cells: CpuCells
    folded: np.ndarray  # (N, 3): positions inside the box, in the caller's order
    turns: np.ndarray | None  # (N, 3) int32: periods taken off
    order: np.ndarray  # (N,) int32: the particle at each place
    start: np.ndarray  # (occupied + 1,) int64
    occupied: np.ndarray  # (occupied,) int64: numbers of cells, ascending
    status: GridStatus


def crowded(start: np.ndarray, count: int) -> bool:
    """Return whether a search would compare so many particles of the same cells that sparse cells are faster."""
    lengths = np.diff(start).astype(np.float64)
    return float(lengths @ lengths) > _CROWDED * count


def uneven(radii: np.ndarray, ndim: int) -> bool:
    """Return whether cells of the largest radius are much too large for most particles."""
    largest = float(radii.max(initial=0))
    return largest > 0 and float(((radii / largest) ** ndim).mean()) * _UNEVEN < 1


def levels_for(radii: np.ndarray) -> tuple[float, int]:
    """Return the size of the finest cells for radii (N,), and how many levels there are."""
    largest, smallest = float(radii.max()), float(radii[radii > 0].min(initial=np.inf))
    if not smallest < largest:
        return 2 * largest, 1
    levels = min(MOST_LEVELS, 1 + math.ceil(math.log2(largest / smallest)))
    return 2 * largest / 2 ** (levels - 1), levels


def close_gaps(x: list[np.ndarray], box: Box, reach: float) -> list[np.ndarray]:
    """Return coordinates with wide gaps made narrow, along axes that no image moves along.

    Particles farther apart than ``reach`` stay so, and other differences keep their bits. Whole clusters move towards
    zero by multiples of a power of two; all moved coordinates are multiples of it as well.
    """
    repeated = box.matrix[np.array(box.periodic)]
    result = []
    for axis, column in enumerate(x):
        if repeated[:, axis].any():  # images fill its gaps
            result.append(column)
            continue
        order = np.argsort(column, kind="stable")
        along = column[order].astype(np.float64)
        gaps, middle = np.diff(along), int(np.abs(along).argmin())
        length = abs(along[middle]) + 4 * float(np.minimum(gaps, 2 * reach).sum())
        unit = max(float(np.spacing(column.dtype.type(length))), 4 * float(np.spacing(np.abs(along).max())))
        spare = np.maximum(gaps - (2 * reach + 4 * unit), 0)
        moved = np.concatenate([[0.0], np.cumsum(np.floor(spare / unit) * unit)])
        moved -= moved[middle]
        closer = np.empty_like(column)
        closer[order] = along - moved
        result.append(closer)
    return result


def shape_of(box: Box, size: float, levels: int, dtype: np.dtype) -> tuple[int, ...]:
    """Return cells of the finest level along each axis, no thinner than ``size`` and no more than can be numbered.

    Nor are they thinner than the rounding of fractions: a search reads all cells within it.
    """
    thickness = 1 / np.linalg.norm(box.inverse, axis=1)
    rounding = np.finfo(dtype).eps * (np.abs(box.inverse) @ (np.abs(box.matrix).sum(0) + 2 * np.abs(box.origin)))
    most = np.minimum(2.0**28, 1 / (32 * rounding))
    cells = np.minimum(thickness / max(size, 1e-300) * (1 + 1e-12), most)
    shape = [max(1, int(n)) for n in cells]
    while cells_in(tuple(shape), levels) > _MOST_CELLS:
        axis = shape.index(max(shape))
        shape[axis] //= 2
    return tuple(shape)


def sparse_cells(
    x: list[np.ndarray], radii: np.ndarray | None, box: Box, size: float, levels: int, dtype: np.dtype,
    threads: int | None,
) -> SparseCells:  # fmt: skip
    """Put particles ``x``, d arrays (N,), into cells no thinner than ``size``.

    With ``radii`` (N,) a particle is on the finest of ``levels`` whose cells are no thinner than twice its radius.
    """
    cells = cells_of(box, shape_of(box, size, levels, dtype), levels, dtype)
    one = cells._replace(shape=(1, 1, 1), levels=1)
    _, folded, turns, status = locate(x, None, one, threads)
    number = numbers_of(folded, radii, cells)
    order = np.argsort(number, kind="stable")
    number = number[order]
    begins = np.flatnonzero(np.concatenate([[True], number[1:] != number[:-1]])[: len(number)])
    start = np.append(begins, len(number)).astype(np.int64)
    return SparseCells(cells, folded, turns, order.astype(np.int32), start, number[begins], status)


def numbers_of(folded: np.ndarray, radii: np.ndarray | None, cells: CpuCells) -> np.ndarray:
    """Return the cell (N,) int64 of positions inside the box (N, 3), on levels by ``radii`` (N,)."""
    shapes = np.array(level_shapes(cells.shape, cells.levels), np.int64)
    first = np.concatenate([np.zeros(1, np.int64), np.cumsum(shapes.prod(1))])
    level = np.zeros(len(folded), np.int64)
    if radii is not None and cells.levels > 1:
        with np.errstate(divide="ignore"):
            finer = np.ceil(np.log2(2 * radii.astype(np.float64) / float(cells.edge)))
        level = np.clip(finer, 0, cells.levels - 1).astype(np.int64)
    number = np.zeros(len(folded), np.int64)
    inverse, origin = cells.inverse[0].astype(np.float64), cells.origin[0].astype(np.float64)
    for a in range(3):
        fraction = (folded - origin) @ inverse[a]
        sizes = shapes[level, a]
        number = number * sizes + np.clip((fraction * sizes).astype(np.int64), 0, sizes - 1)
    return number + first[level]


def list_once(
    sparse: SparseCells, find: Callable[..., Pairs], *, half: bool, quantities: str,
    download: Callable[[Any], np.ndarray] = np.asarray,
) -> dict[str, Any]:  # fmt: skip
    """Return a list by letter from the search ``find(half=, form=, quantities=)`` of sparse cells.

    On several levels each pair is found once, from the smaller particle: small ones around a large one would be many
    empty cells. These lists are on the host.
    """
    if sparse.cells.levels == 1:
        return by_letter(find(half=half, form="csr", quantities=quantities), quantities)
    letters = quantities + "".join(letter for letter in "ij" if letter not in quantities)
    arrays = by_letter(find(half=True, form="coo", quantities=letters), letters)
    arrays = both_sides({k: download(a) for k, a in arrays.items()}, len(sparse.folded), half=half)
    return {letter: arrays[letter] for letter in quantities}


def both_sides(fields: dict[str, np.ndarray], count: int, *, half: bool) -> dict[str, np.ndarray]:
    """Return a half list by ascending i, made a full list unless ``half``.

    ``fields`` are arrays by letter: ``i``, ``j`` and any of ``S``, ``d``, ``D``.
    """
    join = np.concatenate
    if not half:
        away = {letter: -array if letter in "SD" else array for letter, array in fields.items()}
        away["i"], away["j"] = fields["j"], fields["i"]
        fields = {letter: join([array, away[letter]]) for letter, array in fields.items()}
    order = counting_sort(fields["i"], max(count, 1)).order
    return {letter: array[order] for letter, array in fields.items()}


def sparse_on_device(
    backend: Backend, sparse: SparseCells, box: Box, radius: Any, *, half: bool, quantities: str
) -> dict[str, Any]:
    """Return native arrays of a list by letter, for one radius or the sums of radii (N,); see ``neighbour_list``."""
    queries = DeviceQueries(_uploaded(backend, sparse, box), Search(backend, Room(backend, Tapes())))
    reach = float(radius) if np.ndim(radius) == 0 else backend.upload(np.ascontiguousarray(radius))
    find = functools.partial(queries.pairs, reach)
    fields = list_once(sparse, find, half=half, quantities=quantities, download=backend.download)
    return {
        letter: backend.upload(array) if isinstance(array, np.ndarray) else array for letter, array in fields.items()
    }


def _uploaded(backend: Backend, sparse: SparseCells, box: Box) -> Cloud:
    real, count = sparse.cells.dtype, len(sparse.order)
    records = np.empty((count, 4), real)
    records[:, :3] = sparse.folded[sparse.order]
    records.view(np.int32 if real.itemsize == 4 else np.int64)[:, 3] = sparse.order
    status = np.zeros(STATUS_WORDS, np.uint64)
    turns = np.zeros(1, np.uint64)
    if sparse.turns is not None:
        status[FOLDED] = 1
        turns = np.zeros(count, np.uint64)
        for a in range(3):
            turns = turns << np.uint64(21) | (sparse.turns[:, a].astype(np.int64) + MOST_TURNS).astype(np.uint64)
    shape = sparse.cells.shape[sparse.cells.missing :]
    cells = Cells(box, shape, sparse.cells.levels, float(sparse.cells.edge), real)
    start, occupied = sparse.start.astype(np.uint32), sparse.occupied.astype(np.uint64)
    return Cloud(
        backend, cells, count, backend.upload(records), backend.upload(start), None, backend.upload(turns),
        backend.upload(status), occupied=backend.upload(occupied), occupied_cells=len(occupied),
    )  # fmt: skip
