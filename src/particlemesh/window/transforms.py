# SPDX-License-Identifier: BSD-3-Clause
"""Cached transforms of windows at the Fourier modes of an axis."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from particlemesh.window import admissible
from particlemesh.window.shape_function import Window

# Larger axes are not cached: the cache takes at most 8 MiB.
MOST_NODES, MOST_AXES = 2**13, 128


def modes(nodes: int, half: bool) -> NDArray[np.float64]:
    """Return the mode numbers of an axis in the order of ``fft`` or, if ``half``, of ``rfft``."""
    n = np.arange(nodes // 2 + 1) if half else (np.arange(nodes) + nodes // 2) % nodes - nodes // 2
    return n.astype(np.float64)


def divisor(window: Window, kind: str, power: int, nodes: int, half: bool, axis: int) -> NDArray[np.float64]:
    """Return a window's transform at the modes of an axis, to a power; read-only.

    Raises
    ------
    ValueError
        If the transform vanishes at a mode. The message has the number ``axis``.
    """
    compute = _cached if nodes <= MOST_NODES else _divisor
    return compute(window, kind, power, nodes, half, axis)


def _divisor(window: Window, kind: str, power: int, nodes: int, half: bool, axis: int) -> NDArray[np.float64]:
    numbers = modes(nodes, half)
    if kind == "continuous":
        transform = window.fourier(2 * np.pi * numbers / nodes)
    else:
        transform = window.symbol(nodes)[numbers.astype(np.int64) % nodes]
    admissible.no_zero(transform, float(transform[0]), window.name, axis)
    transform = transform**power
    transform.setflags(write=False)
    return transform


_cached = lru_cache(MOST_AXES)(_divisor)
