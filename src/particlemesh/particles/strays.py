# SPDX-License-Identifier: BSD-3-Clause
"""Particles that do not belong to a part of a mesh: a GPU lists them as it locates (particles/locate.c)."""

from __future__ import annotations

from typing import Any

import numpy as np

from particlemesh.backends.base import Backend, allocate

_SHARE, _LEAST = 64, 4096  # room for one particle of so many, and for so many at least
ENTRY = 4  # numbers for each: its index and the first node along three axes, missing ones first; the header is as long


def room(backend: Backend, count: int, before: Any) -> Any:
    """Return memory to list strays of ``count`` particles in: that of ``before``, if it is enough."""
    entries = max(count // _SHARE, min(count, _LEAST)) + 1
    if before is not None and before.shape[0] >= ENTRY * entries:
        return before
    return allocate(backend, (ENTRY * entries,), np.dtype(np.uint64), "particles of other parts")


def listed(backend: Backend, strays: Any) -> tuple[int, Any]:
    """Return how many strays there are, and the entries (n, 4), or None if there was no room; waits for the device."""
    count = int(backend.download(strays[:1])[0])
    if ENTRY * (count + 1) > strays.shape[0]:
        return count, None
    return count, strays[ENTRY : ENTRY * (count + 1)]
