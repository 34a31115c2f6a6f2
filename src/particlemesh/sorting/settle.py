# SPDX-License-Identifier: BSD-3-Clause
"""Items of a bin in the order of their indices, on CUDA and OpenCL, after a counting sort that kept none."""

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
    """Write what is given in increasing order of index within every bin.

    Parameters
    ----------
    backend, items, status, start, rank
        As ``device.count_items`` left them; ``rank`` becomes the place of each item if ``keep_rank``.
    loose : (count,) int32, or (count, 4) if there are ``records`` to write
        The order, or the records, that ``device.place_items`` wrote.
    allocate : callable (name, shape, dtype)
        Where memory comes from.
    order, records
        What to write.
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
