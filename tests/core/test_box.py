# SPDX-License-Identifier: BSD-3-Clause
"""Laws of the box: fractions, folding to the last bit, value semantics, and the texts of its errors."""

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from particlemesh.box import Box

DTYPES = (np.float32, np.float64)
TRICLINIC = [[2.0, 0.0, 0.0], [0.5, 3.0, 0.0], [-0.4, 0.7, 4.0]]


def edges(length, origin, dtype):
    """Positions where folding goes wrong if it does."""
    low, high = dtype(origin), dtype(origin) + dtype(length)
    tiny = np.finfo(dtype).smallest_subnormal
    far = dtype(1e6) * dtype(length)
    return np.array(
        [
            low, high, np.nextafter(high, low), np.nextafter(high, dtype(np.inf)), np.nextafter(low, high),
            np.nextafter(low, dtype(-np.inf)), -0.0, tiny, -tiny, -1e-30, 1e-30, far, -far,
            np.nextafter(far, dtype(0)), np.finfo(dtype).max, np.finfo(dtype).min,
        ],
        dtype=dtype,
    )  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("length", "origin"),
    [(6.2, 0.0), (1.0, 0.0), (0.1, 0.3), (3.0, -1.5), (2.0, -2.0), (1e-3, 1e10), (7.0, 1e-3), (1e30, 0.0)],
)
def test_folded_positions_are_inside_to_the_last_bit(length, origin, dtype):
    box = Box(length, origin)
    folded = box.fold(edges(length, origin, dtype))
    fraction = box.fractional(folded)
    assert folded.dtype == dtype
    assert (folded >= dtype(origin)).all()
    assert ((fraction >= 0) & (fraction < 1)).all()
    np.testing.assert_array_equal(box.fold(folded), folded)


@pytest.mark.parametrize("dtype", DTYPES)
def test_border_by_one_ulp(dtype):
    length = dtype(6.2)
    below, above = np.nextafter(length, dtype(0)), np.nextafter(length, dtype(9))
    folded = Box(6.2).fold(np.array([below, length, above, -0.0, -1e-30], dtype))
    assert folded[0] == below
    assert folded[1] == 0
    assert 0 <= folded[2] <= 2 * (above - length)
    assert folded[3] == 0
    assert folded[4] == below


@settings(max_examples=200, deadline=None)
@given(
    position=st.floats(-1e6, 1e6),
    length=st.floats(1e-3, 1e3),
    origin=st.floats(-1e3, 1e3),
    width=st.sampled_from([32, 64]),
)
def test_folding_moves_by_whole_lengths(position, length, origin, width):
    dtype = np.dtype(f"float{width}").type
    box = Box(length, origin)
    x = dtype(position)
    folded = box.fold(np.array([x]))[0]
    moved = (float(folded) - float(x)) / float(dtype(length))
    allowed = 8 * np.finfo(dtype).eps * (abs(position) + abs(origin) + length) / length
    assert abs(moved - round(moved)) <= allowed
    assert 0 <= box.fractional(np.array([folded]))[0] < 1


def test_open_axes_and_inner_positions_stay():
    box = Box((2.0, 3.0), origin=(-1.0, 0.0), periodic=(True, False))
    x = np.array([[0.3, -7.0], [1.5, 9.0]])
    before = x.copy()
    np.testing.assert_array_equal(box.fold(x), [[0.3, -7.0], [-0.5, 9.0]])
    np.testing.assert_array_equal(x, before)


@pytest.mark.parametrize("periodic", [True, (True, True, False)])
def test_triclinic_folding_moves_by_lattice_vectors(periodic):
    box = Box(TRICLINIC, origin=(0.1, -0.2, 0.3), periodic=periodic)
    x = np.random.default_rng(0).uniform(-20, 20, (100, 3))
    folded = box.fold(x)
    whole = (folded - x) @ np.linalg.inv(TRICLINIC)
    np.testing.assert_allclose(whole, np.round(whole), atol=1e-12)
    fraction = box.fractional(folded)[:, list(box.periodic)]
    assert (fraction > -1e-12).all()
    assert (fraction < 1).all()
    if periodic is not True:
        np.testing.assert_allclose(whole[:, 2], 0, atol=1e-12)
    np.testing.assert_array_equal(box.fold(box.origin + [[1.1, 1.2, 1.3]]), box.origin + [[1.1, 1.2, 1.3]])


def test_triclinic_folding_of_huge_positions_is_finite():
    assert np.isfinite(Box(TRICLINIC).fold(np.full((1, 3), 3e38, np.float32))).all()


def test_positions_that_are_not_finite_become_nan():
    folded = Box((1.0, 1.0)).fold([[np.nan, 0.5], [np.inf, 0.5], [0.5, -np.inf]])
    np.testing.assert_array_equal(np.isnan(folded), [[True, False], [True, False], [False, True]])


@pytest.mark.parametrize("lengths", [6.2, (6.2, 3.1), TRICLINIC])
def test_fractions_follow_the_documented_formula(lengths):
    box = Box(lengths, origin=0.25)
    x = np.random.default_rng(1).normal(size=(20, box.ndim))
    expected = [[sum(box.inverse[a, b] * (p[b] - 0.25) for b in range(box.ndim)) for a in range(box.ndim)] for p in x]
    np.testing.assert_allclose(box.fractional(x), expected, atol=1e-14)
    np.testing.assert_allclose(box.origin + box.fractional(x) @ box.matrix, x, atol=1e-14)


def test_one_axis_takes_plain_positions():
    box = Box(2.0)
    assert box.fold(np.array([2.5, -0.5])).tolist() == [0.5, 1.5]
    assert box.fold(np.array([[2.5], [-0.5]])).shape == (2, 1)
    assert box.fold(5).tolist() == 1.0
    assert box.fold(np.zeros(0)).shape == (0,)


def test_attributes():
    box = Box(TRICLINIC, periodic=(False, True, True))
    assert box.ndim == 3
    assert not box.orthorhombic
    np.testing.assert_allclose(box.lengths, np.linalg.norm(TRICLINIC, axis=1))
    assert box.volume == pytest.approx(24)
    assert Box(np.array(TRICLINIC)[::-1]).volume == pytest.approx(24)
    assert Box(np.diag([1.0, 2.0, 3.0])) == Box((1, 2, 3))
    assert Box((1, 2, 3)).orthorhombic
    for array in (box.matrix, box.inverse, box.lengths, box.origin):
        assert not array.flags.writeable


def test_it_is_a_value():
    box = Box(TRICLINIC, origin=(1, 2, 3), periodic=False)
    assert box.volume > 0
    for twin in (pickle.loads(pickle.dumps(box)), copy.deepcopy(box), eval(repr(box))):
        assert twin == box
        assert hash(twin) == hash(box)
        assert not twin.matrix.flags.writeable
    assert Box(1.0, origin=-0.0) == Box(1.0)
    assert repr(Box(1.0, origin=-0.0)) == repr(Box(1.0)) == "Box((1.0,))"
    assert box != Box(TRICLINIC)
    assert Box.of(box) is box
    assert Box.of((1.0, 2.0)) == Box([1.0, 2.0])
    with pytest.raises(AttributeError):
        box.periodic = (True,) * 3


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        (((1.0, -2.0),), ValueError, r"lengths \(1.0, -2.0\); every length must be positive"),
        ((0.0,), ValueError, "must be positive"),
        (((1.0, np.nan),), ValueError, "must be finite"),
        (((1.0,) * 4,), ValueError, r"shape \(4,\); give 1 to 3 lengths"),
        (((),), ValueError, r"shape \(0,\); give 1 to 3 lengths"),
        (
            ([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]],),
            ValueError,
            "a square matrix whose rows are the lattice vectors",
        ),
        (([[1.0, 2.0], [2.0, 4.0]],), ValueError, "linearly dependent: give independent rows"),
        (([[1.0, 2.0], [0.0, 0.0]],), ValueError, "linearly dependent"),
        (("wide",), TypeError, "real numbers are needed"),
        (((1.0, 2.0), (0.0, 0.0, 0.0)), ValueError, r"origin has shape \(3,\); give one number or 2"),
        (((1.0, 2.0), np.inf), ValueError, "origin is inf; every number must be finite"),
        (((1.0, 2.0), None, (True,)), ValueError, "periodic names 1 axis; the box has 2 axes"),
        (((1.0, 2.0), None, 1), TypeError, "give True, False or one of them for each axis"),
        (((1e-200, 1e-200),), ValueError, "choose a unit of length nearer"),
    ],
)
def test_refusals(arguments, error, text):
    with pytest.raises(error, match=text):
        Box(*arguments)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("power", [1000, 700, 340, 100, -100, -330, -700, -1060])
def test_another_unit_of_length_makes_no_vectors_dependent(axes, power):
    matrix = np.array([[1.0, 0.0, 0.0], [0.25, 1.0, 0.0], [0.0, 0.125, 1.0]])[:axes, :axes]
    if abs(power * axes) < 1020:
        assert Box(matrix * 2.0**power).volume == pytest.approx(2.0 ** (power * axes), rel=1e-12)
    elif power * axes > 1024 or power * axes < -1074:
        with pytest.raises(ValueError, match="choose a unit of length nearer"):
            Box(matrix * 2.0**power)
    with pytest.raises(ValueError, match="linearly dependent"):
        Box(np.array([[1.0, 2.0], [2.0, 4.0]]) * 2.0**power)


def test_refused_positions():
    with pytest.raises(ValueError, match=r"shape \(5, 2\); in 3-D \(\.\.\., 3\) is needed"):
        Box((1, 1, 1)).fold(np.zeros((5, 2)))
    with pytest.raises(ValueError, match="in 1-D"):
        Box(1).fold(np.zeros((5, 2)))
    with pytest.raises(TypeError, match="complex128; real numbers"):
        Box(1).fold(np.zeros(3, complex))
