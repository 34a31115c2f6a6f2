# SPDX-License-Identifier: BSD-3-Clause
"""Items of a bin by increasing index, on CUDA and OpenCL, after a counting sort that is not stable."""

from __future__ import annotations

from typing import Any

import numpy as np

from particlemesh.backends.base import Backend, Unread
from particlemesh.sorting.keys import Keys
from particlemesh.sorting.scan import Allocate

_FILE = "sorting/settle.c"
_GROUPS = 512  # that sort crowded bins
CROWDED = 64  # as in settle.c


def settle_items(
    backend: Backend, items: Keys, loose: Any, status: Any, start: Any, rank: Any, allocate: Allocate, *,
    keep_rank: bool = False, order: Any = None, records: Any = None,
) -> None:  # fmt: skip
    """Write the given outputs by increasing index within every bin.

    Parameters
    ----------
    backend, items, status, start, rank
        From ``counting.count_items``; ``rank`` becomes the place of each item if ``keep_rank``.
    loose : (count,) int32, or (count, 4) if there are ``records`` to write
        The order, or the records, from ``counting.place_items``.
    allocate : callable (name, shape, dtype)
        Returns memory.
    order, records
        The outputs.
    """
    if not items.count:
        return
    count, bins = items.count, items.bins
    defines = {
        **items.defines, "COUNT_IS_64": 0, "WANT_RANK": int(keep_rank), "WANT_ORDER": int(order is not None),
        "WANT_RECORDS": int(records is not None),
    }  # fmt: skip
    queue = allocate("crowded", (count // CROWDED + 1,), np.dtype(np.uint32))
    indices = allocate("crowded_indices", (count,), np.dtype(np.int32))
    spare = allocate("crowded_spare", (count,), np.dtype(np.int32))
    outputs = (Unread(status) if order is None else order, Unread(status) if records is None else records)
    run = backend.kernel(_FILE, "settle", defines)
    run(count, *items.arrays, loose, status, start, rank, queue, *outputs, count, bins, *items.records)
    bits = max(1, (count - 1).bit_length())
    run = backend.kernel(_FILE, "settle_crowded", defines)
    run(
        _GROUPS * backend.group_size, *items.arrays, loose, status, start, rank, indices, spare, queue, *outputs,
        count, bins, bits, *items.records,
    )  # fmt: skip
