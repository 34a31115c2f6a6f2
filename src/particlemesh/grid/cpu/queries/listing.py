# SPDX-License-Identifier: BSD-3-Clause
"""Room for lists of neighbours, and the lists as users get them."""

from __future__ import annotations

import numpy as np
from numpy.typing import DTypeLike

from particlemesh.backends.memory import empty
from particlemesh.grid.cpu.locate import CpuCells
from particlemesh.grid.cpu.queries.rows import PairRows, no_rows
from particlemesh.grid.results import Pairs

_FEW = 10**6  # pairs whose memory needs no check


def rows_for(quantities: str, cells: CpuCells, total: int, *, blank: bool = False) -> PairRows:
    """Return room for ``total`` neighbours; ``blank``: numbers are -1 and all else is zero where nothing is written."""
    real, axes = cells.dtype, 3 - cells.missing

    def room(letter: str, shape: tuple[int, ...], dtype: DTypeLike, void: int) -> np.ndarray:
        size = (total if letter in quantities else 0, *shape)
        made = np.empty(size, dtype) if total < _FEW else empty(size, dtype, f"{total:,} pairs")
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


def pairs_of(
    rows: PairRows, quantities: str, start: np.ndarray | None = None, counts: np.ndarray | None = None, width: int = 0
) -> Pairs:
    """Return the quantities of rows: behind each other, or with ``counts`` in rows of a ``width``."""

    def shaped(letter: str, array: np.ndarray) -> np.ndarray | None:
        if letter not in quantities:
            return None
        return array if counts is None else array.reshape(len(counts), width, *array.shape[1:])

    return Pairs(
        start, shaped("i", rows.i), shaped("j", rows.j), shaped("S", rows.shift), shaped("d", rows.distance),
        shaped("D", rows.vector), counts,
    )  # fmt: skip
