# SPDX-License-Identifier: BSD-3-Clause
"""Searches of sparse cells on GPUs: the cells are made on the host, the pairs are found on the device."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from particlemesh.backends.base import Backend
from particlemesh.backends.tapes import Tapes
from particlemesh.box import Box
from particlemesh.grid.queries.cloud import Cloud
from particlemesh.grid.queries.device_queries import DeviceQueries
from particlemesh.grid.queries.search import Search
from particlemesh.grid.room import Room
from particlemesh.grid.sparse import SparseCells, list_once
from particlemesh.sorting.keys import FOLDED, STATUS_WORDS, Cells

_MOST_TURNS = 2**20  # as in sorting/cells.h


def sparse_list(
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
            turns = turns << np.uint64(21) | (sparse.turns[:, a].astype(np.int64) + _MOST_TURNS).astype(np.uint64)
    shape = sparse.cells.shape[sparse.cells.missing :]
    cells = Cells(box, shape, sparse.cells.levels, float(sparse.cells.edge), real)
    start, occupied = sparse.start.astype(np.uint32), sparse.occupied.astype(np.uint64)
    return Cloud(
        backend, cells, count, backend.upload(records), backend.upload(start), None, backend.upload(turns),
        backend.upload(status), occupied=backend.upload(occupied), occupied_cells=len(occupied),
    )  # fmt: skip
