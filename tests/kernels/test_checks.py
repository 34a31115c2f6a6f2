# SPDX-License-Identifier: BSD-3-Clause
"""Checks of a program's arguments: what is not allowed is named, and no mask is lost."""

import numpy as np
import pytest

import particlemesh as pm
from particlemesh.kernels import checks, lanes, take

HIDDEN = np.ma.array([1.0, 2.0], mask=[False, True])


@pytest.mark.parametrize(
    "masked",
    [
        [1.0, np.ma.masked],
        [[1.0, 2.0], [3.0, np.ma.masked]],
        [[0.0, 1.0], HIDDEN],
        [[HIDDEN]],
        ([1.0, np.ma.array(2.0)],),
    ],
    ids=["a number", "in a row", "a row", "deeper", "without a mask"],
)
@pytest.mark.filterwarnings("ignore:Warning. converting a masked element")
def test_masks_are_found_at_any_depth(masked):
    for call in (checks.number_array, lambda array, what: take(array, (None,), what)):
        with pytest.raises(TypeError, match="the mask would be lost"):
            call(masked, "x")
    with pytest.raises(TypeError, match="the mask would be lost"):
        pm.spread([0.2, 0.3], masked, pm.Mesh(8, 1.0))


def test_lists_that_hold_themselves_end():
    circle = [1.0]
    circle += [circle, circle]
    with pytest.raises(TypeError, match="x is a list that makes no array of numbers"):
        checks.number_array(circle, "x")


@pytest.mark.parametrize(
    "given", [np.array(True), np.array([[True, False]]), {True, False}, {True: 1, False: 2}, "ab", 1, None]
)
def test_flags_that_are_not_one_for_each_axis_are_refused(given):
    with pytest.raises(TypeError, match="periodic is .*; give True, False or one of them for each axis"):
        checks.flags(given, 2, "periodic")
    with pytest.raises(TypeError, match="periodic is .*; give True, False or one of them for each axis"):
        pm.Box((1.0, 2.0), periodic=given)


def test_masked_flags_and_integers_are_refused():
    with pytest.raises(TypeError, match="the mask would be lost"):
        checks.flags(np.ma.array([True, False]), 2, "periodic")
    with pytest.raises(TypeError, match=r"n is masked_array[^;]*; an integer of 0 to 3 is needed"):
        checks.integer(np.ma.array(2, mask=True), "n", 0, 3)
    assert checks.flags(np.array([True, False]), 2, "periodic") == (True, False)
    assert checks.integer(np.array(2), "n", 0, 3) == 2


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"ndim": 0}, ValueError, "ndim is 0; 1 to 3 is allowed"),
        ({"ndim": 4}, ValueError, "ndim is 4; 1 to 3 is allowed"),
        ({"ndim": 2.0}, TypeError, "ndim is 2.0; an integer of 1 to 3"),
        ({"parts": 3}, ValueError, "parts is 3; 1 to 2 is allowed"),
        ({"dtype": "float16"}, TypeError, "dtype is float16"),
        ({"window": 4}, TypeError, "window"),
    ],
)
def test_rows_of_windows_have_one_to_three_axes(arguments, error, message):
    with pytest.raises(error, match=message):
        lanes.window_rows(**{"window": pm.bspline(4), "ndim": 3, "parts": 1, "dtype": "float64"} | arguments)
