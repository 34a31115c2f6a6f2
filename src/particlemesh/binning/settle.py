# SPDX-License-Identifier: BSD-3-Clause
"""Items of a bin in the order of their indices, on CUDA and OpenCL, after a counting sort that kept none."""

from __future__ import annotations

from typing import Any

import numpy as np

from particlemesh.backends.base import Backend
from particlemesh.binning.keys import Keys
from particlemesh.binning.scan import Allocate

_FILE = "binning/settle.c"
_GROUPS = 512  # that sort crowded bins
CROWDED = 64  # as in settle.c


def settle_items(
    backend: Backend, items: Keys, status: Any, start: Any, rank: Any, scattered: Any, allocate: Allocate, *,
    keep_rank: bool = False, order: Any = None, records: Any = None, turns: Any = None,
) -> None:  # fmt: skip
    """Write what is given, as ``device.place_items`` does, in increasing order of index within every bin.

    Parameters
    ----------
    backend, items, status, start, rank
        As ``device.count_items`` left them; ``rank`` becomes the place of each item if ``keep_rank``.
    scattered : (count,) int32
        The order that ``device.place_items`` wrote.
    allocate : callable (name, shape, dtype)
        Where memory comes from.
    order, records, turns
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
    spare = allocate("spare", (count,), np.dtype(np.int32))
    outputs = [status if output is None else output for output in (order, records, turns)]
    run = backend.kernel(_FILE, "settle", defines)
    run(count, *items.arrays, status, start, rank, scattered, queue, *outputs, count, bins, *items.records)
    bits = max(1, (count - 1).bit_length())
    run = backend.kernel(_FILE, "settle_crowded", defines)
    run(
        _GROUPS * backend.group_size, *items.arrays, status, start, rank, scattered, spare, queue, *outputs,
        count, bins, bits, *items.records,
    )  # fmt: skip
