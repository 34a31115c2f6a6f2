# SPDX-License-Identifier: BSD-3-Clause
"""A step of the column as one writes it without a grid library: pairs of SciPy's tree, and a Numba loop over them."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from numba import njit
from scipy.spatial import cKDTree

from studies.barbieri.green import COINCIDENT, RADIUS, Green


class Peer:
    """Steps in a box of ``cells`` diameters; the seconds of the last step's parts stay in attributes."""

    def __init__(self, cells: int) -> None:
        self.cells, self.green = cells, Green()
        self.build_s = self.pairs_s = 0.0
        self.pairs = 0

    def step(self, x: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return positions and velocities (N, 3) after a step."""
        begin = time.perf_counter()
        tree = cKDTree(x)
        built = time.perf_counter()
        pairs = tree.query_pairs(1.0, output_type="ndarray")
        self.build_s, self.pairs_s, self.pairs = built - begin, time.perf_counter() - built, len(pairs)
        x, v = x.copy(), v.copy()
        green: Any = self.green.numbers(x.dtype)
        move(x, v, pushes(x, v, pairs, green), green, x.dtype.type(self.cells))
        return x, v


@njit(error_model="numpy")
def pushes(x, v, pairs, green):
    """Return the changes of velocity (N, 3): equal and opposite for both spheres of a pair."""
    spring, friction, shear, one = green[0], green[1] + green[2], green[2], green.dtype.type(1)
    total = np.zeros_like(v)
    for n in range(len(pairs)):
        i, j = pairs[n]
        d0, d1, d2 = x[j, 0] - x[i, 0], x[j, 1] - x[i, 1], x[j, 2] - x[i, 2]
        square = d0 * d0 + d1 * d1 + d2 * d2
        if square < one and square > COINCIDENT:
            w0, w1, w2 = v[j, 0] - v[i, 0], v[j, 1] - v[i, 1], v[j, 2] - v[i, 2]
            r = np.sqrt(square)
            pull = (-spring * (one - r) - shear * (w0 * d0 + w1 * d1 + w2 * d2) / r) / r
            for a, push in ((0, pull * d0 + friction * w0), (1, pull * d1 + friction * w1),
                            (2, pull * d2 + friction * w2)):  # fmt: skip
                total[i, a] += push
                total[j, a] -= push
    return total


@njit(error_model="numpy")
def move(x, v, push, green, size):
    """Move all spheres, in place."""
    radius = green.dtype.type(RADIUS)
    for i in range(len(x)):
        v[i] += push[i]
        v[i, 1] -= green[5] * green[4]
        speed = np.sqrt(v[i, 0] ** 2 + v[i, 1] ** 2 + v[i, 2] ** 2)
        for a in range(3):
            if speed > green[6]:
                v[i, a] *= green[6] / speed
            place = x[i, a] + v[i, a] * green[4]
            x[i, a] = min(max(place, radius), size - radius)
            if x[i, a] != place:
                v[i, a] *= green[3]
