# SPDX-License-Identifier: BSD-3-Clause
"""A list of neighbours in one call on the CPU, without a grid that stays."""

from __future__ import annotations

from typing import Any

import numpy as np

from particlemesh.arrays.positions import Coordinates
from particlemesh.box import Box
from particlemesh.grid import checks
from particlemesh.grid.cpu.locate import Faults, known_cells, locate
from particlemesh.grid.cpu.queries.cloud import cloud_of
from particlemesh.grid.cpu.queries.pairs import pairs
from particlemesh.grid.queries.quantities import FIELDS
from particlemesh.grid.results import Pairs
from particlemesh.grid.sparse import SparseCells, both_sides, crowded
from particlemesh.sorting.cpu import counting_sort


def dense_list(
    x: Coordinates, positions: Any, box: Box, shape: tuple[int, ...], radius: Any, *, half: bool, quantities: str,
    threads: int | None, doubtful: bool,
) -> dict[str, np.ndarray | None] | None:  # fmt: skip
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
    return _by_letter(pairs(cloud, radius, half=half, quantities=quantities, threads=threads))


def sparse_list(
    sparse: SparseCells, radius: Any, *, half: bool, quantities: str, threads: int | None
) -> dict[str, np.ndarray | None]:
    """Return the arrays of a list by letter, from sparse cells."""
    cells, order = sparse.cells, sparse.order
    cloud = cloud_of(cells, sparse.folded, sparse.turns, sparse.start, order, None, threads)
    cloud = cloud._replace(occupied=sparse.occupied)
    if cells.levels == 1:
        return _by_letter(pairs(cloud, radius, half=half, quantities=quantities, threads=threads))
    # Each pair is found once, from the smaller particle: small ones around a large one would be many empty cells.
    wanted = quantities + "".join(letter for letter in "ij" if letter not in quantities)
    found = _by_letter(pairs(cloud, radius, half=True, form="coo", quantities=wanted, threads=threads))
    return {**both_sides({k: a for k, a in found.items() if a is not None}, len(sparse.folded), half=half)}


def raise_bad(faults: Faults, count: int, positions: Any, box: Box) -> None:
    """Raise what locating found wrong with particles."""
    status = checks.GridStatus(count, faults.not_finite, faults.outside, faults.bad_radius, faults.first)
    if status.bad:
        raise checks.bad_particles(status, positions, None, box)


def _by_letter(found: Pairs) -> dict[str, np.ndarray | None]:
    return {letter: getattr(found, field) for letter, field in FIELDS.items()}
