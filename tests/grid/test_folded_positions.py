# SPDX-License-Identifier: BSD-3-Clause
"""Folded positions are inside the box: on or above the lower face, and below the upper one, in their own type."""

import numpy as np
import pytest

import particlemesh as pm
from grid_checks import put

LENGTHS = (1.0, 3.0, 0.1, 7.3, 1e-5, 0.7, 123.4)
ORIGINS = (0.0, -1 / 3, 0.3, -1.0)  # in units of the length


def around(real, origin, length):
    """Coordinates on the faces of an axis and next to them, and turns away."""
    low, high = real(origin), real(origin + length)
    ends = [np.nextafter(face, real(side)) for face in (low, high) for side in (-np.inf, np.inf)]
    tiny = np.finfo(real).smallest_subnormal
    near = [low - real(d) * real(length) for d in (1e-20, 1e-12, 1e-9, 1e-7)]
    turned = [low + real(n) * real(length) for n in (-3, -1, 1, 7)]
    return np.array([low, high, *ends, -tiny, tiny, real(-1e-9), *near, *turned], real)


@pytest.mark.parametrize("systems", [None, 2])
@pytest.mark.parametrize("real", [np.float32, np.float64])
def test_no_folded_position_is_on_the_upper_face_or_below_the_lower_one(backend, real, systems):
    for length in LENGTHS:
        for part in ORIGINS:
            origin = part * length
            x = np.stack([np.roll(around(real, origin, length), turn) for turn in range(3)], 1)
            box = pm.Box((length,) * 3, origin)
            grid = pm.UniformGrid(box, shape=(3, 3, 3), systems=systems)
            system = None if systems is None else backend.array(np.arange(len(x), dtype=np.int32) % 2)
            grid.build(backend.array(x), **({} if system is None else {"system": system}))
            for folded in (backend.host(grid.positions), box.fold(x)):
                assert (folded >= real(origin)).all()
                assert (folded - real(origin) < real(length)).all()
                assert (box.fractional(folded) < 1).all()


@pytest.mark.parametrize(
    ("origin", "upper"), [(-3.1678594129817217, -1.947533275372233), (-16.584538413506888, -14.647307448460673)]
)
def test_a_rounded_origin_lifts_no_position_above_the_upper_face(backend, origin, upper):
    box = pm.Box(upper - origin, origin)
    x = np.array([upper, origin - 1e-9, np.nextafter(np.float32(origin), np.float32(-np.inf))], np.float32)
    grid = pm.UniformGrid(box, shape=3).build(backend.array(x))
    for folded in (backend.host(grid.positions).reshape(-1), box.fold(x)):
        assert (folded.astype(float) < upper).all()


@pytest.mark.parametrize("real", [np.float32, np.float64])
def test_pairs_across_a_face_do_not_depend_on_rounding_at_it(backend, real):
    """The shift of a pair is that of folded positions: with it, vectors are right to rounding."""
    for length in LENGTHS:
        x = np.zeros((13, 3), real)
        x[:, 0] = around(real, 0.0, length)[:13]
        x[:, 1] = np.arange(13) * real(length / 13)
        grid = put(backend, pm.UniformGrid((length,) * 3, shape=(3, 3, 3)), x)
        pairs = grid.pairs(0.16 * length, half=False, quantities="ijD", format="coo")
        i, j, vector = backend.host(pairs.i), backend.host(pairs.j), backend.host(pairs.vector)
        assert np.array_equal(np.unique(i), np.arange(13))
        apart = x[j, 0].astype(float) - x[i, 0]
        apart -= length * np.rint(apart / length)
        np.testing.assert_allclose(vector[:, 0], apart, rtol=0, atol=4 * np.finfo(real).eps * length)
        near = grid.neighbours(backend.array(x + real(length)), 0.16 * length, quantities="j")
        assert len(backend.host(near.j)) == len(j) + 13
