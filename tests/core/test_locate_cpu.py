# SPDX-License-Identifier: BSD-3-Clause
"""Locating particles on the CPU: cells, fractions, bad positions, strides."""

import itertools

import numpy as np
import pytest

import particlemesh as pm
from particlemesh.orders.cpu.placing import count_positions, place_positions
from particlemesh.particles.locate import NOT_FINITE, OUTSIDE, SKIP
from particlemesh.particles.stencil import MISSING, Axis


def axes_for(sizes, wraps, support):
    axes = [MISSING] * (3 - len(sizes))
    for size, wrap in zip(sizes, wraps, strict=True):
        low, extent = (0, size) if wrap else (1 - support, size + support - 1)
        axes.append(Axis(size, wrap, low, extent, support, size, 0.0))
    return axes


def locate(positions, axes, lengths, dtype=None, threads=None, origin=None, periodic=True, matrix=None):
    columns = [positions[:, b] for b in range(positions.shape[1])]
    count = len(positions)
    box = pm.Box(lengths if matrix is None else matrix, origin, periodic)
    counted = count_positions(columns, tuple(axes), box, threads)
    ordering = place_positions(counted, np.empty(4 * count, dtype or positions.dtype), np.empty(count, np.int32))
    return *ordering.located(), counted.found


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("support", [1, 2, 3, 6, 7, 16])
def test_locates_as_long_double_does(support, dtype):
    rng = np.random.default_rng(support)
    length, origin = 6.2, 0.25
    positions = (rng.random((1500, 3)) * 40 - 20).astype(dtype)
    for size, shift in itertools.product((1, 2, 5, 16, 128), (0.0, 0.5, -0.5, 17.25, -33.75)):
        axes = [Axis(size, True, 0, size, support, size, shift)] * 3
        node, fraction, status = locate(positions, axes, [length] * 3, threads=3, origin=np.full(3, origin))
        wide = np.longdouble
        u = (positions.T - wide(origin)) / wide(length) * size - shift
        cell = np.floor(u + wide(0.5)) if support % 2 else np.floor(u)
        rest = u - cell - wide(0 if support % 2 else 0.5)
        away = (node + (support - 1) // 2 - cell) + (fraction - rest)  # whole turns, and how wrong it is
        assert np.abs(away - np.rint(away / size) * size).max() < np.finfo(dtype).eps
        assert ((node >= 0) & (node < size)).all()
        assert ((fraction >= -0.5) & (fraction < 0.5)).all()
        assert status == (0, 0, -1, 0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_any_finite_position_has_a_cell_inside(dtype):
    length = dtype(6.2)
    special = [0.0, -0.0, length, np.nextafter(length, dtype(0)), -1e-30, 1e-45, -5e-324, 1e6 * 6.2, -1e6 * 6.2]
    special += [np.finfo(dtype).max, -np.finfo(dtype).max, np.finfo(dtype).tiny]
    positions = np.array(special, dtype)[:, None]
    axes = axes_for((16,), (True,), 4)
    for scale in (6.2, 1e-3):  # position / length overflows with the second
        node, fraction, status = locate(positions, axes, [scale])
        assert status == (0, 0, -1, 0)
        assert ((node[2] >= 0) & (node[2] < 16)).all()
        assert (np.abs(fraction) <= 0.5).all()


def test_double_positions_keep_their_cell_with_single_values():
    positions = np.array([[np.nextafter(0.5, 0)], [0.5]])
    axes = axes_for((16,), (True,), 4)
    node, fraction, _ = locate(positions, axes, [1.0], np.float32)
    assert node[2].tolist() == [6, 7]
    assert fraction[2].tolist() == [0.5, -0.5]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_bad_positions_are_counted_named_and_skipped(ndim, dtype):
    sizes = (16,) * ndim
    axes = [MISSING] * (3 - ndim) + [Axis(16, False, -4, 24, 4, 16, 0.0)] * ndim
    length = dtype(6.2)
    positions = np.full((5000, ndim), 3.0, dtype)
    positions[10], positions[11] = 0, length  # closed at both ends
    for index, bad in enumerate((np.nan, np.inf, -np.inf)):
        positions[4000 + index, index % ndim] = bad
    positions[2345, -1] = np.nextafter(length, dtype(7))
    positions[2346, 0] = np.nextafter(dtype(0), dtype(-1))
    for threads in (1, 3):
        node, fraction, status = locate(positions, axes, [6.2] * ndim, threads=threads, periodic=False)
        assert status == (3, 2, 2345, OUTSIDE)
        bad = [2345, 2346, 4000, 4001, 4002]
        assert (node[:, bad] == SKIP).all()
        assert (fraction[:, bad] == 0).all()
        assert (node[2] == SKIP).sum() == 5
    positions[0, 0] = np.nan
    assert locate(positions, axes, [6.2] * ndim, periodic=False)[2] == (4, 2, 0, NOT_FINITE)
    periodic = axes_for(sizes, (True,) * ndim, 4)
    assert locate(positions, periodic, [6.2] * ndim)[2] == (4, 0, 0, NOT_FINITE)


def test_triclinic_open_axes_are_checked_in_fractions():
    matrix = np.array([[4.0, 0, 0], [1.0, 5.0, 0], [0, 2.0, 6.0]])
    axes = [Axis(16, False, -4, 24, 4, 16, 0.0)] * 3
    fractions = np.array([[0.1, 0.2, 0.3], [0.99, 0.5, 0.01], [1.1, 0.5, 0.5], [0.5, -0.1, 0.5]])
    node, fraction, status = locate(fractions @ matrix, axes, None, periodic=False, matrix=matrix)
    assert status == (0, 2, 2, OUTSIDE)
    u = fractions[:2].T * 16
    assert np.allclose(node[:, :2] + 1 + fraction[:, :2] + 0.5, u)


def test_positions_of_any_strides_are_read_and_left_alone():
    rng = np.random.default_rng(0)
    plain = rng.random((300, 3))
    axes = axes_for((16, 17, 18), (True, True, True), 4)
    expected = locate(plain, axes, [1.0] * 3)
    padded = np.zeros((300, 7))
    padded[:, ::3] = plain
    packed = np.zeros(300, np.dtype({"names": ["x"], "formats": ["(3,)f8"], "offsets": [3], "itemsize": 31}))["x"]
    packed[...] = plain  # not aligned
    for positions in (np.asfortranarray(plain), padded[:, ::3], plain[::-1].copy()[::-1], packed):
        positions.setflags(write=False)
        node, fraction, _ = locate(positions, axes, [1.0] * 3)
        assert (node == expected[0]).all()
        assert (fraction == expected[1]).all()
        assert (positions == plain).all()


def test_positions_are_taken_when_they_are_set():
    rng = np.random.default_rng(2)
    mesh, x, q = pm.Mesh((20, 21, 22), (1.0, 2.0, 3.0)), rng.random((5000, 3)), rng.standard_normal(5000)
    with pm.Plan(mesh, "bspline4", threads=3) as plan:
        plan.set_positions(x)
        expected = plan.spread(q)
    with pm.Plan(mesh, "bspline4", threads=3) as plan:
        ours = x.copy()
        plan.set_positions(ours)
        ours[:] = np.nan
        assert (plan.spread(q) == expected).all()
        with pytest.raises(ValueError, match="5000 not finite of 5000; the first is particle 0"):
            plan.set_positions(ours)
        assert (plan.spread(q) == expected).all()
        assert plan.status == (5000, 0, 0, -1, 0)
        plan.reserve(20000)  # what is there moves into new memory
        assert (plan.spread(q) == expected).all()
        ours[:] = x
        ours[[77, 4321]] = np.inf
        plan.set_positions(ours, check=False)
        assert plan.status == (5000, 2, 0, 77, 0)
        assert np.flatnonzero(plan.particles.node[2] == SKIP).tolist() == [77, 4321]
        assert plan.capacity == 20000
        plan.set_positions(x)
        assert (plan.spread(q) == expected).all()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_record_lies_within_one_line_of_the_cache(dtype):
    for count in (1, 7, 100, 100001):
        with pm.Plan(pm.Mesh(8, 1.0), "cic", dtype=dtype) as plan:
            plan.set_positions(np.linspace(0, 1, count))
            records = plan.particles.ordering.records
            assert len(records) == 4 * count
            assert records.ctypes.data % 64 == 0
