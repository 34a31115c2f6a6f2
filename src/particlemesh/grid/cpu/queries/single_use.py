# SPDX-License-Identifier: BSD-3-Clause
"""A list of neighbours in one call on the CPU, without a grid that stays."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from particlemesh.arrays.positions import Coordinates
from particlemesh.box import Box
from particlemesh.grid import checks
from particlemesh.grid.cpu.locate import Faults, known_cells, locate
from particlemesh.grid.cpu.queries.cloud import cloud_of
from particlemesh.grid.cpu.queries.pairs import pairs
from particlemesh.grid.queries.quantities import by_letter
from particlemesh.grid.sparse import SparseCells, crowded, list_once
from particlemesh.sorting.cpu import counting_sort


def dense_list(
    x: Coordinates, positions: Any, box: Box, shape: tuple[int, ...], radius: Any, *, half: bool, quantities: str,
    threads: int | None, doubtful: bool,
) -> dict[str, np.ndarray] | None:  # fmt: skip
    """Return the arrays of a list by letter, from a dense grid.

    None where it is ``doubtful`` that the grid suits, and its cells hold too many particles each.
    """
    cells = known_cells(box, shape, 1, x.dtype)
    keys, folded, turns, faults = locate(x.arrays, None, cells, threads)
    raise_bad(faults, x.count, positions, box)
    ordered = counting_sort(keys, cells.total, threads)
    if doubtful and crowded(ordered.start, x.count):
        return None
    cloud = cloud_of(cells, folded, turns, ordered.start, ordered.order, None, threads)
    return by_letter(pairs(cloud, radius, half=half, quantities=quantities, threads=threads), quantities)


def sparse_list(
    sparse: SparseCells, radius: Any, *, half: bool, quantities: str, threads: int | None
) -> dict[str, np.ndarray]:
    """Return the arrays of a list by letter, from sparse cells."""
    cloud = cloud_of(sparse.cells, sparse.folded, sparse.turns, sparse.start, sparse.order, None, threads)
    cloud = cloud._replace(occupied=sparse.occupied)
    return list_once(sparse, functools.partial(pairs, cloud, radius, threads=threads), half=half, quantities=quantities)


def raise_bad(faults: Faults, count: int, positions: Any, box: Box) -> None:
    """Raise what locating found wrong with particles."""
    status = checks.GridStatus(count, faults.not_finite, faults.outside, faults.bad_radius, faults.first)
    if status.bad:
        raise checks.bad_particles(status, positions, None, box)
