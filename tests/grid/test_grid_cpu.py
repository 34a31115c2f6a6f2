# SPDX-License-Identifier: BSD-3-Clause
"""The CPU's grids: particles to cells and their storages, against NumPy."""

import numpy as np
import pytest

from particlemesh import Box
from particlemesh.grid.cpu.builders import lists, slots, sorting, tight
from particlemesh.grid.cpu.locate import cells_of, level_shape, locate
from particlemesh.sorting.cpu import counting_sort

SKEW = [[1.0, 0.2, -0.1], [0.3, 1.1, 0.2], [-0.2, 0.1, 0.9]]
BOXES = {
    "cube": Box((1.0, 1.0, 1.0)),
    "open": Box((1.0, 2.0, 3.0), origin=(-1.0, 0.5, 4.0), periodic=False),
    "mixed": Box((2.0, 1.0, 0.5), origin=(0.25, -0.5, 0.0), periodic=(True, False, True)),
    "skewed": Box(SKEW),
    "skewed, mixed": Box(SKEW, origin=(1.0, 2.0, 3.0), periodic=(True, False, True)),
    "left-handed": Box([SKEW[1], SKEW[0], SKEW[2]], periodic=(False, True, True)),
    "long": Box((100.0, 1.0, 1.0)),
    "plane": Box((1.0, 1.5), periodic=(False, True)),
    "skewed plane": Box([[1.0, 0.0], [0.4, 0.8]]),
    "line": Box(2.0, origin=-1.0),
}


def points(box, count, dtype, seed=0, turns=0):
    """Positions inside the box, or turns away along periodic axes."""
    rng = np.random.default_rng(seed)
    s = rng.random((count, box.ndim)) * 0.998 + 0.001
    s += rng.integers(-turns, turns + 1, s.shape) * np.array(box.periodic)
    return (s @ box.matrix + box.origin).astype(dtype)


def columns(x):
    return tuple(x[:, a] for a in range(x.shape[1]))


def located(box, shape, x, radii=None, levels=1, threads=1):
    cells = cells_of(box, shape, levels, x.dtype)
    return (cells, *locate(columns(x), radii, cells, threads))


def same(first, second):
    """Equal arrays, numbers and None, however deep."""
    if isinstance(first, tuple):
        return len(first) == len(second) and all(same(a, b) for a, b in zip(first, second, strict=True))
    if isinstance(first, np.ndarray):
        return first.dtype == second.dtype and np.array_equal(first, second)
    return first == second


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", BOXES)
def test_every_particle_is_in_its_cell(name, dtype):
    box, eps = BOXES[name], np.finfo(dtype).eps
    shape = (5, 3, 7)[: box.ndim]
    x = points(box, 3000, dtype, turns=3)
    _, keys, folded, turns, found = located(box, shape, x)
    assert found[:4] == (0, 0, -1, 0)
    missing = 3 - box.ndim
    assert np.all(folded[:, :missing] == 0)
    inner = folded[:, missing:].astype(float)
    turned = np.zeros((3000, 3), np.int32) if turns is None else turns
    shift = turned[:, missing:] @ box.matrix
    size = np.abs(box.matrix).sum() * 5 + np.abs(box.origin).max()
    np.testing.assert_allclose(inner + shift, x, atol=16 * eps * size, rtol=0)
    s = (inner - box.origin) @ box.inverse.T
    cell = np.array(np.unravel_index(keys, shape)).T
    slack = 64 * eps * size
    assert np.all(s * shape >= cell - slack * np.array(shape))
    assert np.all(s * shape <= cell + 1 + slack * np.array(shape))
    unmoved = ~turned.any(1)
    np.testing.assert_array_equal(folded[unmoved, missing:], x[unmoved])
    assert same((keys, folded, turns, found), located(box, shape, x, threads=3)[1:])
    strided = np.asfortranarray(np.repeat(x, 2, axis=0))[::2]
    assert same((keys, folded, turns, found), located(box, shape, strided, threads=2)[1:])


def test_no_turns_are_kept_where_there_are_none():
    box = BOXES["cube"]
    _, _, folded, turns, found = located(box, (4, 4, 4), points(box, 100, np.float64))
    assert turns is None
    assert found.turns == 0
    np.testing.assert_array_equal(folded, points(box, 100, np.float64))


def test_what_is_wrong_with_positions_is_counted():
    box = Box((1.0, 1.0, 1.0), periodic=(True, True, False))
    x = points(box, 5000, np.float64)
    x[4000] = np.nan
    x[100, 1] = np.inf
    x[200, 2] = 1.5
    x[300, 0] = 2.0**21
    x[301, 0] = 1e300
    x[400, 2] = 1.0  # on the face
    x[401, 2] = 0.0
    radii = np.full(5000, 0.1)
    radii[[10, 11, 100]] = -1.0, np.nan, np.inf
    _, keys, _, _, found = located(box, (4, 4, 4), x, radii)
    assert found[:4] == (2, 3, 10, 2)
    np.testing.assert_array_equal(np.flatnonzero(keys < 0), [10, 11, 100, 200, 300, 301, 4000])
    assert keys[400] % 4 == 3
    assert keys[401] % 4 == 0
    assert same((keys, found), located(box, (4, 4, 4), x, radii, threads=3)[1::3])


def test_a_coordinate_just_below_the_box_is_on_its_face():
    for dtype in (np.float32, np.float64):
        x = np.array([[-1e-30], [0.0], [1.0], [np.nextafter(dtype(1), dtype(0))]], dtype)
        _, keys, folded, turns, _ = located(Box(1.0), (8,), x)
        np.testing.assert_array_equal(keys, [0, 0, 0, 7])
        np.testing.assert_array_equal(turns[:, 2], [0, 0, 1, 0])
        np.testing.assert_array_equal(folded[:, 2], [0, 0, 0, x[3, 0]])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_radii_choose_levels(dtype):
    box, shape = Box((1.0, 2.0, 1.0)), (16, 33, 16)
    x = points(box, 2000, dtype)
    edge = 2 / 33
    radii = np.random.default_rng(0).choice([0, edge / 2, 0.51 * edge, edge, 1.1 * edge, 3 * edge, 50], 2000)
    radii = radii.astype(dtype)
    cells, keys, _, _, _ = located(box, shape, x, radii, levels=3)
    assert cells.total == sum(np.prod(level_shape(shape, level)) for level in range(3)) == len_of_levels(shape, 3)
    level = np.select([2 * radii <= cells.edge, 2 * radii <= 2 * cells.edge], [0, 1], 2)
    firsts = np.array([0, len_of_levels(shape, 1), len_of_levels(shape, 2)])
    for here in range(3):
        sizes = np.array(level_shape(shape, here))
        cell = np.minimum((x[level == here] * box.inverse.diagonal().astype(dtype) * sizes).astype(int), sizes - 1)
        expected = firsts[here] + np.ravel_multi_index(tuple(cell.T), tuple(sizes))
        np.testing.assert_array_equal(keys[level == here], expected)
    boxes = np.zeros((2000, 3), dtype)
    boxes[np.arange(2000), np.arange(2000) % 3] = radii
    np.testing.assert_array_equal(located(box, shape, x, boxes, levels=3)[1], keys)


def len_of_levels(shape, levels):
    return sum(int(np.prod([max(1, n >> level) for n in shape])) for level in range(levels))


def some_keys(count, cells, kind):
    rng = np.random.default_rng(count)
    if kind == "one":
        return np.full(count, cells - 1, np.int32)
    return rng.integers(-1 if kind == "bad" else 0, cells, count).astype(np.int32)


KEYS = [(0, 5, "all"), (1, 1, "all"), (2, 7, "all"), (33, 4, "bad"), (5000, 64, "bad"), (70000, 3000, "all"),
        (70000, 20000, "bad"), (4000, 100, "one"), (100, 40000, "all")]  # fmt: skip


def in_order(keys, cells):
    """The place of each cell and the particles, with NumPy."""
    order = np.argsort(keys, kind="stable")
    order = order[keys[order] >= 0]
    return np.concatenate([[0], np.cumsum(np.bincount(keys[keys >= 0], minlength=cells))]), order


def arrays_of(pairs):
    """The fields of a list of pairs."""
    return tuple(getattr(pairs, name) for name in type(pairs).__slots__)


def same_order(cells, start, order):
    np.testing.assert_array_equal(cells.start, start)
    np.testing.assert_array_equal(cells.order, order)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(("count", "cells", "kind"), KEYS)
def test_storages_hold_every_particle_once(count, cells, kind, threads):
    keys = some_keys(count, cells, kind)
    start, order = in_order(keys, cells)
    most = int(np.diff(start).max())
    for strides in ((most, 1), (1, cells)):
        grid, fullest = slots.slots_of(keys, cells, most, strides, threads)
        assert fullest == (int(np.diff(start).argmax()), most)
        np.testing.assert_array_equal(grid.counts, np.diff(start))
        same_order(slots.order_of_slots(grid, threads), start, order)
        few, needed = slots.slots_of(keys, cells, 1, (1, cells) if strides[0] == 1 else (1, 1), threads)
        assert needed == fullest
        np.testing.assert_array_equal(few.counts, grid.counts)
        first = order[start[:-1][np.diff(start) > 0]]
        np.testing.assert_array_equal(slots.order_of_slots(few, threads).order, first)
    loose = lists.linked_lists(keys, cells, threads)
    same_order(lists.order_of_lists(*loose, threads), start, order)
    assert np.all(loose.next[keys < 0] == 0)
    for dtype, bits in ((np.float32, np.int32), (np.float64, np.int64)):
        folded = np.random.default_rng(0).random((count, 3)).astype(dtype)
        packed = lists.packed_lists(keys, folded, cells, threads)
        np.testing.assert_array_equal(packed.heads, loose.heads)
        np.testing.assert_array_equal(packed.nodes[:, :3], folded)
        np.testing.assert_array_equal(packed.nodes.view(bits)[:, 3], loose.next)


@pytest.mark.parametrize(("count", "cells", "kind"), KEYS)
def test_sorted_along_a_line_and_along_a_curve(count, cells, kind):
    keys = some_keys(count, cells, kind)
    start, order = in_order(keys, cells)
    result = sorting.along_curve(keys, (1, 1, cells), cells)
    np.testing.assert_array_equal(result.start, start)
    np.testing.assert_array_equal(result.order, order)
    assert result.ends is None
    np.testing.assert_array_equal(counting_sort(keys, cells).order[: start[-1]], order)
    shape = (1, 1, cells) if cells != 64 else (4, 2, 8)
    result = sorting.along_curve(keys, shape, cells, "morton")
    for cell in range(0, cells, max(1, cells // 50)):
        np.testing.assert_array_equal(
            result.order[result.start[cell] : result.ends[cell]], order[start[cell] : start[cell + 1]]
        )


def test_a_morton_curve_takes_turns_between_axes():
    shape = (4, 4, 4)
    keys = np.arange(64, dtype=np.int32)
    order = sorting.along_curve(keys, shape, 64, "morton").order
    corners = np.array(np.unravel_index(order, shape)).T
    np.testing.assert_array_equal(corners[:8], np.array(np.unravel_index(np.arange(8), (2, 2, 2))).T)
    assert np.all(np.ptp(corners.reshape(8, 8, 3), axis=1) == 1)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", BOXES)
def test_a_tight_list_holds_a_particle_in_every_cell_that_it_touches(name, dtype):
    box = BOXES[name]
    shape = (4, 3, 2)[: box.ndim]
    x = points(box, 500, dtype)
    cells, keys, folded, _, _ = located(box, shape, x)
    keys[::50] = -1
    thickness = 1 / np.linalg.norm(box.inverse, axis=1) / shape
    radii = (np.random.default_rng(1).random(500) * thickness.min() / 2).astype(dtype)
    entries = tight.tight_lists(keys, folded, radii, cells)
    found = set()
    for cell in range(cells.total):
        entry = entries.heads[cell]
        while entry:
            found.add((cell, entry - 1 >> box.ndim, entry - 1 & (1 << box.ndim) - 1))
            entry = entries.next[entry - 1]
    s = (folded[:, 3 - box.ndim :].astype(float) - box.origin) @ box.inverse.T
    reach = radii[:, None] * np.linalg.norm(box.inverse, axis=1)
    low, high = np.floor((s - reach) * shape).astype(int), np.floor((s + reach) * shape).astype(int)
    expected = set()
    for i in np.flatnonzero(keys >= 0):
        for mask in range(1 << box.ndim):
            corner = []
            for a in range(box.ndim):
                first, last = low[i, a], high[i, a]
                if not box.periodic[a]:
                    first, last = np.clip([first, last], 0, shape[a] - 1)
                corner.append((first + (mask >> a & 1)) % shape[a] if first + (mask >> a & 1) <= last else None)
            if None not in corner:
                expected.add((int(np.ravel_multi_index(corner, shape)), int(i), mask))
    assert found == expected
    assert same(entries, tight.tight_lists(keys, folded, radii, cells, 3))
