# SPDX-License-Identifier: BSD-3-Clause
"""Parameters of mobilities: the model of times beside the shipped times of a GPU, and what no parameters reach."""

import warnings

import numpy as np
import pytest

from particlemesh.apps.brownian import RPY, formulas, parameters
from particlemesh.choosing import tables


def fastest(narrow, size):
    """Return seconds of both ways per node of a stencil and component, of the fastest methods for sparse particles."""
    (table,) = [t for t in map(tables.read, tables.SHIPPED.glob("cuda-*.csv")) if "H200" in t.device]
    best = {}
    for row in table.rows:
        problem = (row.nodes, row.support, row.dtype, row.components, row.particles, row.in_order)
        sparse = 8e3 <= row.particles <= 3e6 and 0.005 < row.particles / row.nodes**3 < 2 and row.filled == 1
        if sparse and np.dtype(row.dtype).itemsize == size and row.support > 3 and (row.support <= 8) == narrow:
            seconds = (row.apply + row.prepare / 20) / row.particles / row.support**3 / row.components
            key = problem, row.direction
            best[key] = min(seconds, best.get(key, np.inf))
    both = [best[p, "spread"] + best[p, "interpolate"] for p, d in best if d == "spread" and (p, "interpolate") in best]
    return np.array(both)


@pytest.mark.parametrize("size", [4, 8])
@pytest.mark.parametrize("narrow", [True, False])
def test_times_of_windows_on_a_gpu_are_those_measured(narrow, size):
    support, count = 6 if narrow else 12, 10**5
    model = parameters.seconds(count, size, False, 1, 1, 0.0, (1, 1, 1), support) / 3 / count / support**3
    assert 0.5 < model / np.median(fastest(narrow, size)) < 2


def test_a_wide_window_is_as_fast_per_node_as_a_narrow_one():
    per_node = [parameters.seconds(10**5, 4, False, 1, 1, 0.0, (1, 1, 1), s) / s**3 for s in (8, 9, 14)]
    np.testing.assert_allclose(per_node, per_node[0], rtol=1e-6)


@pytest.mark.parametrize(("dtype", "accuracy"), [("float32", 1e-7), ("float64", 1e-15)])
def test_an_accuracy_below_rounding_is_warned_of(dtype, accuracy):
    x = np.zeros((1, 3), dtype)
    with pytest.warns(UserWarning, match=f"rounding in {dtype} leaves errors of about"):
        RPY((9.0, 9.0, 9.0), accuracy=accuracy).set_positions(x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        RPY((9.0, 9.0, 9.0)).set_positions(x)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_near_parts_of_radii_do_not_depend_on_how_many_there_are(count):
    radii = np.linspace(0.3, 1, 9)
    for xi in np.linspace(0.3, 3, 20):
        assert np.array_equal(formulas.near_self(radii, xi)[:count], formulas.near_self(radii[:count], xi))
