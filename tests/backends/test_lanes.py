# SPDX-License-Identifier: BSD-3-Clause
"""Vectors of numbers in compiled loops, against NumPy."""

import numpy as np
import pytest

from particlemesh.backends import simd
from particlemesh.kernels import lanes
from particlemesh.kernels.cpu import compiled


@compiled
def vectors(a, b, count, out, width):
    x, y = lanes.load(a, 0, width), lanes.load(b, 0, width)
    lanes.store(out[0], 0, lanes.div(x, y))
    lanes.store(out[1], 0, lanes.root(x))
    lanes.store(out[2], 0, lanes.below(x, y, y, x))
    lanes.store(out[3], 0, lanes.keep(x, count))


@pytest.mark.parametrize("number", [4, 12])  # a vector, and two of different lengths
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_lanes_compute_what_numpy_does(number, dtype):
    a = np.random.default_rng(1).uniform(0.1, 4, number).astype(dtype)
    b = a[::-1].copy()
    a[2], b[2] = np.nan, 1.0  # is not below anything
    out = np.zeros((4, number), dtype)
    vectors(a, b, number - 3, out, lanes.WIDTHS[number])
    kept = np.where(np.arange(number) < number - 3, a, 0)
    np.testing.assert_array_equal(out, [a / b, np.sqrt(a), np.where(a < b, b, a), kept])


@compiled
def into_totals(a, b, totals, width):
    lanes.store(
        totals, 0, simd.add_product(lanes.load(a, 0, width), lanes.load(b, 0, width), lanes.load(totals, 0, width))
    )
    for k in range(len(width)):
        totals[len(width) + k] += simd.rounded(a[k] * b[k], totals)


@pytest.mark.parametrize("number", [4, 12])
def test_products_are_added_to_integers_as_the_nearest(number):
    """Halves go to even numbers, as everywhere; sums that leave 64 bits come back."""
    rng, halves = np.random.default_rng(2), [0.5, -0.5, 1.5, -2.5]
    a = np.concatenate([halves, rng.uniform(-(2.0**50), 2.0**50, number - 4)])
    before = rng.integers(-(2**62), 2**62, 2 * number)
    totals = before.copy()
    into_totals(a, np.ones(number), totals, lanes.WIDTHS[number])
    np.testing.assert_array_equal(totals - before, np.tile(np.rint(a).astype(np.int64), 2))
    numbers = np.tile(a, 2)
    into_totals(a, a, numbers, lanes.WIDTHS[number])
    np.testing.assert_allclose(numbers, np.tile(a + a * a, 2), rtol=1e-15)
