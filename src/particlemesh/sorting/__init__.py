# SPDX-License-Identifier: BSD-3-Clause
"""Sorting of particles by bin, shared by spreading, interpolation and grids."""

from __future__ import annotations

from typing import Any, NamedTuple


class Order(NamedTuple):
    """Keys in the order of their bins; arrays of the backend.

    Attributes
    ----------
    start : (bins + 1,)
        Bin b holds ``order[start[b]:start[b + 1]]``.
    order : (N,)
        Indices of the keys, bin by bin. Negative keys are left out: ``order[start[-1]:]`` is undefined.
    rank : (N,)
        Place of each key in ``order``; -1 for a negative key.
    """

    start: Any
    order: Any
    rank: Any
