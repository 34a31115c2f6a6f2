# SPDX-License-Identifier: BSD-3-Clause
"""Room for lists of neighbours, and what becomes of it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from particlemesh.backends.memory import empty
from particlemesh.grid.cpu.cells import Cells
from particlemesh.grid.cpu.rows import Rows, no_rows


class Listed(NamedTuple):
    """Neighbours. What was not asked for is None."""

    start: np.ndarray | None  # (rows + 1,) int64 of a csr list
    i: np.ndarray | None  # int32
    j: np.ndarray | None  # int32
    shift: np.ndarray | None  # (..., d) int32
    distance: np.ndarray | None
    vector: np.ndarray | None  # (..., d)
    counts: np.ndarray  # (rows,) int32: neighbours in each row


def rows_for(quantities: str, cells: Cells, total: int, *, blank: bool = False) -> Rows:
    """Return room for ``total`` neighbours; ``blank``: numbers are -1 and all else is zero where nothing is written."""
    real, axes = cells.dtype, 3 - cells.missing

    def room(letter: str, shape: tuple[int, ...], dtype: DTypeLike, void: int) -> np.ndarray:
        size = (total if letter in quantities else 0, *shape)
        made = empty(size, dtype, f"{total:,} pairs")
        if blank:
            made.fill(void)
        return made

    return no_rows(real, axes)._replace(
        i=room("i", (), np.int32, -1),
        j=room("j", (), np.int32, -1),
        shift=room("S", (axes,), np.int32, 0),
        distance=room("d", (), real, 0),
        vector=room("D", (axes,), real, 0),
    )


def listed_of(
    rows: Rows, quantities: str, start: np.ndarray | None, counts: np.ndarray, width: int | None = None
) -> Listed:
    """Return what was asked for, in rows of a width if there is one."""

    def shaped(letter: str, array: np.ndarray) -> np.ndarray | None:
        if letter not in quantities:
            return None
        return array if width is None else array.reshape(len(counts), width, *array.shape[1:])

    return Listed(
        start, shaped("i", rows.i), shaped("j", rows.j), shaped("S", rows.shift), shaped("d", rows.distance),
        shaped("D", rows.vector), counts,
    )  # fmt: skip
