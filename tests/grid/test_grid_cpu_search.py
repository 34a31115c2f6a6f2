# SPDX-License-Identifier: BSD-3-Clause
"""Searches on the CPU against all pairs of all images, with NumPy."""

import itertools

import numpy as np
import pytest

from particlemesh import Box
from particlemesh.grid.cpu.locate import cells_of, locate
from particlemesh.grid.cpu.queries.cloud import cloud_of
from particlemesh.grid.cpu.queries.pairs import count, neighbours, overlaps, pairs
from particlemesh.sorting.cpu import counting_sort
from test_grid_cpu import BOXES, arrays_of, columns, points, same


def built(x, box, shape, sizes=None, levels=1, threads=1):
    cells = cells_of(box, shape, levels, x.dtype)
    keys, folded, turns, _ = locate(columns(x), sizes, cells, threads)
    order = counting_sort(keys, cells.total, threads)
    return cloud_of(cells, folded, turns, order.start, order.order, sizes, threads), folded[:, 3 - box.ndim :], turns


def all_images(box, reach):
    """Turns of every image within reach, and their vectors."""
    most = np.where(box.periodic, np.floor(reach * np.linalg.norm(box.inverse, axis=1) + 0.01) + 1, 0).astype(int)
    return np.array(list(itertools.product(*(range(-m, m + 1) for m in most)))).reshape(-1, box.ndim)


def brute(x, near, box, turns, near_turns, reach, own, inside=None):
    """Every (i, j, S) with an image of near[j] in reach of x[i], with the arithmetic of the search, and vectors."""
    rows = box.matrix.astype(x.dtype)
    found = []
    for image in all_images(box, float(np.max(reach, initial=0))):
        shift = np.zeros(box.ndim, x.dtype)
        for a in range(box.ndim):
            shift = shift + x.dtype.type(image[a]) * rows[a]
        d = (near[None] - x[:, None]) + shift
        if inside is None:
            hit = (d * d)[..., ::-1].cumsum(-1)[..., -1] <= reach * reach
        else:
            hit = inside(d)
        if own and not image.any():
            np.fill_diagonal(hit, val=False)
        for i, j in zip(*np.nonzero(hit), strict=True):
            s = image.copy()
            if near_turns is not None:
                s = s - near_turns[j, 3 - box.ndim :]
            if turns is not None:
                s = s + turns[i, 3 - box.ndim :]
            found.append((int(i), int(j), *map(int, s), d[i, j]))
    return found


def as_set(found):
    result = {entry[:-1] for entry in found}
    assert len(result) == len(found)
    return result


def listed(result, counts=None):
    """The (i, j, S) of a list; each once."""
    entries = list(zip(result.i.tolist(), result.j.tolist(), *result.shift.T.tolist(), strict=True))
    assert len(set(entries)) == len(entries)
    return set(entries)


def is_half(entry):
    i, j, *s = entry
    return i < j or (i == j and tuple(s) > (0,) * len(s))


def check(x, box, shape, radius, threads=1):
    """All forms of a search agree with all pairs."""
    cloud, folded, turns = built(x, box, shape)
    real = x.dtype.type(radius)
    found = brute(folded, folded, box, turns, turns, real, own=True)
    expected = as_set(found)
    vectors = {entry[:-1]: entry[-1] for entry in found}
    degree = np.bincount([entry[0] for entry in found], minlength=len(x))
    full = pairs(cloud, radius, half=False, quantities="ijSdD", threads=threads)
    assert listed(full) == expected
    np.testing.assert_array_equal(np.diff(full.start), degree)
    np.testing.assert_array_equal(full.i, np.repeat(np.arange(len(x)), degree))
    given = [vectors[entry] for entry in zip(full.i.tolist(), full.j.tolist(), *full.shift.T.tolist(), strict=True)]
    scale = (np.abs(box.matrix).sum() + np.abs(box.origin).max() + radius) * np.finfo(x.dtype).eps
    np.testing.assert_allclose(full.vector, np.reshape(given, full.vector.shape), atol=8 * scale, rtol=0)
    np.testing.assert_allclose(full.distance, np.linalg.norm(full.vector, axis=1), rtol=1e-5, atol=scale)
    far = 0 if turns is None else np.abs(turns).max()
    unfolded = x[full.j].astype(float) - x[full.i] + full.shift @ box.matrix
    np.testing.assert_allclose(full.vector, unfolded, atol=32 * (1 + far) * scale, rtol=0)
    np.testing.assert_array_equal(count(cloud, radius, threads=threads), degree)
    half = pairs(cloud, radius, quantities="ijS", threads=threads)
    expected_half = {entry for entry in expected if is_half(entry)}
    assert listed(half) == expected_half
    np.testing.assert_array_equal(half.i, np.repeat(np.arange(len(x)), np.diff(half.start)))
    assert listed(pairs(cloud, radius, form="coo", quantities="ijS", threads=threads)) == expected_half
    plain = pairs(cloud, radius, half=False, threads=threads)
    np.testing.assert_array_equal(plain.j, full.j)
    by_place = pairs(cloud, radius, order="grid", quantities="ijS", threads=threads)
    order = cloud.order
    assert all(i < j or i == j for i, j in zip(by_place.i, by_place.j, strict=True))
    renamed = {(int(order[i]), int(order[j]), *s) for i, j, s in
               zip(by_place.i, by_place.j, by_place.shift.tolist(), strict=True)}  # fmt: skip
    turned = {entry if is_half(entry) else (entry[1], entry[0], *(-s for s in entry[2:])) for entry in renamed}
    assert turned == expected_half
    everything = pairs(cloud, radius, half=False, order="grid", quantities="ijS", threads=threads)
    assert {(int(order[i]), int(order[j]), *s) for i, j, s in
            zip(everything.i, everything.j, everything.shift.tolist(), strict=True)} == expected  # fmt: skip
    dense = pairs(cloud, radius, half=False, form="dense", quantities="jd", threads=threads)
    assert dense.j.shape == dense.distance.shape == (len(x), degree.max(initial=0))
    assert np.all((dense.j >= 0).sum(1) == degree)
    np.testing.assert_array_equal(dense.j[dense.j >= 0], full.j)
    return cloud, full


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", BOXES)
def test_pairs_in_boxes_of_all_kinds(name, dtype):
    box = BOXES[name]
    x = points(box, 120, dtype, seed=3, turns=2)
    thickness = (1 / np.linalg.norm(box.inverse, axis=1)).min()
    check(x, box, (5, 3, 7)[: box.ndim], 0.3 * thickness)
    check(x, box, (2, 4, 12)[: box.ndim], 0.11 * thickness, threads=3)


@pytest.mark.parametrize("name", ["cube", "mixed", "skewed, mixed", "left-handed", "skewed plane", "line"])
def test_radii_beyond_the_box_find_every_image(name):
    box = BOXES[name]
    x = points(box, 6, np.float64, seed=4, turns=1)
    for shape in ((1, 1, 1), (3, 2, 5)):
        check(x, box, shape[: box.ndim], 1.7)
    tiny = Box(np.array(box.matrix) / 4, origin=box.origin, periodic=box.periodic)
    check(points(tiny, 6, np.float64, seed=4, turns=1), tiny, (1, 1, 1)[: box.ndim], 0.45)


@pytest.mark.parametrize("many", [0, 1, 2, 33])
def test_few_particles(many):
    for box in (BOXES["cube"], BOXES["open"], BOXES["skewed plane"], BOXES["line"]):
        check(points(box, many, np.float64, seed=many), box, (4, 4, 4)[: box.ndim], 0.4)
        check(points(box, many, np.float32, seed=many), box, (1, 2, 1)[: box.ndim], 1.1, threads=3)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("periodic", [True, False])
def test_distances_of_exactly_the_radius_count(periodic, dtype):
    n = 6
    grid = np.stack(np.meshgrid(*[np.arange(n)] * 3, indexing="ij"), -1).reshape(-1, 3)
    for step, corner in ((1.0, 0.0), (0.25, 0.125), (1.0, -3.0)):
        box = Box((n * step,) * 3, origin=(corner,) * 3, periodic=periodic)
        x = (grid * step + corner).astype(dtype)
        for reach, neighbours_of_one in ((1.0, 6), (np.sqrt(2.0), 18), (2.0, 32)):
            radius = float(
                np.nextafter(dtype(reach * step), dtype(2 * reach * step)) if reach == 2**0.5 else reach * step
            )
            for shape in ((6, 6, 6), (3, 3, 12), (1, 5, 4)):
                cloud, _, _ = built(x, box, shape)
                degree = count(cloud, radius)
                if periodic:
                    assert np.all(degree == neighbours_of_one)
                else:
                    assert degree.max() == neighbours_of_one
                    inner = np.all((grid > 1) & (grid < n - 2), axis=1)
                    assert np.all(degree[inner] == neighbours_of_one)
                half = pairs(cloud, radius)
                assert len(half.j) * 2 == degree.sum()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_crowds_and_long_boxes(dtype):
    rng = np.random.default_rng(5)
    crowd = (0.5 + 1e-3 * rng.standard_normal((150, 3))).astype(dtype)
    check(crowd, BOXES["cube"], (8, 8, 8), 1.3e-3)  # more candidates than a buffer holds come in the next test
    same_place = np.full((60, 3), 0.25, dtype)
    check(same_place, BOXES["cube"], (4, 4, 4), 0.0)
    check(points(BOXES["long"], 200, dtype, seed=6, turns=1), BOXES["long"], (100, 1, 1), 0.6)
    check(points(BOXES["long"], 100, dtype, seed=7), BOXES["long"], (7, 2, 3), 1.2, threads=3)


def test_more_candidates_than_a_buffer_holds():
    rng = np.random.default_rng(8)
    x = rng.random((3000, 3))
    box = BOXES["cube"]
    cloud, _, _ = built(x, box, (3, 3, 3))
    from scipy.spatial import cKDTree

    tree = cKDTree(x, boxsize=1)
    for radius in (0.2, 0.45):
        expected = tree.query_pairs(radius, output_type="ndarray")
        half = pairs(cloud, radius, form="coo", quantities="ij", threads=3)
        assert {*map(tuple, expected.tolist())} == {*zip(half.i.tolist(), half.j.tolist(), strict=True)}
        assert len(half.i) == len(expected) == len(pairs(cloud, radius, order="grid").j)


def test_coordinates_far_away_and_negative():
    for dtype, turns in ((np.float32, 1000), (np.float64, 2**19)):
        x = points(BOXES["cube"], 40, dtype, seed=9, turns=turns)
        check(x, BOXES["cube"], (4, 4, 4), 0.3)


def test_threads_do_not_change_lists():
    box = BOXES["skewed"]
    x = points(box, 4000, np.float64, seed=10, turns=1)
    radii = np.random.default_rng(1).random(4000) * 0.05
    for sizes, levels in ((None, 1), (radii, 3)):
        clouds = [built(x, box, (8, 8, 16), sizes, levels, threads)[0] for threads in (1, 3)]
        for options in ({}, {"half": False}, {"form": "coo", "quantities": "ij"}, {"order": "grid"}):
            lists = [pairs(cloud, 0.07, threads=t, **options) for cloud, t in zip(clouds, (1, 3), strict=True)]
            assert same(*map(arrays_of, lists))
        if sizes is not None:
            lists = [overlaps(cloud, threads=t) for cloud, t in zip(clouds, (1, 3), strict=True)]
            assert same(*map(arrays_of, lists))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", BOXES)
@pytest.mark.parametrize("levels", [1, 3])
def test_radii_that_add_up(name, levels, dtype):
    box = BOXES[name]
    x = points(box, 90, dtype, seed=11, turns=1)
    thickness = (1 / np.linalg.norm(box.inverse, axis=1)).min()
    radii = (np.random.default_rng(2).random(90) ** 3 * 0.6 * thickness).astype(dtype)
    shape = (9, 8, 12)[: box.ndim]
    cloud, folded, turns = built(x, box, shape, radii, levels)
    reach = radii[:, None] + radii
    expected = {e for e in as_set(brute(folded, folded, box, turns, turns, reach, own=True)) if is_half(e)}
    found = overlaps(cloud, quantities="ijS")
    assert listed(found) == expected
    assert listed(overlaps(cloud, shape="sphere", quantities="ijS", threads=3)) == expected
    bare, _, _ = built(x, box, shape)
    assert listed(pairs(bare, radii, quantities="ijS")) == expected
    everything = as_set(brute(folded, folded, box, turns, turns, reach, own=True))
    assert listed(pairs(bare, radii, half=False, quantities="ijS")) == everything
    np.testing.assert_array_equal(
        count(bare, radii), np.bincount([e[0] for e in everything], minlength=90).astype(np.int32)
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", BOXES)
def test_boxes_that_overlap(name, dtype):
    box = BOXES[name]
    x = points(box, 90, dtype, seed=12, turns=1)
    thickness = (1 / np.linalg.norm(box.inverse, axis=1)).min()
    half = (np.random.default_rng(3).random((90, box.ndim)) ** 3 * 0.7 * thickness).astype(dtype)
    both = half[:, None] + half[None]
    for levels in (1, 3):
        cloud, folded, turns = built(x, box, (9, 8, 12)[: box.ndim], half, levels)
        far = np.linalg.norm(both, axis=-1).max()
        found = brute(
            folded, folded, box, turns, turns, far, own=True, inside=lambda d: np.all(abs(d) <= both, axis=-1)
        )
        assert listed(overlaps(cloud, quantities="ijS")) == {e for e in as_set(found) if is_half(e)}
    cubes = (half[:, 0]).copy()
    both = (cubes[:, None] + cubes)[..., None]
    cloud, folded, turns = built(x, box, (5, 4, 6)[: box.ndim], cubes)
    found = brute(
        folded, folded, box, turns, turns, 2 * far, own=True, inside=lambda d: np.all(abs(d) <= both, axis=-1)
    )
    assert listed(overlaps(cloud, shape="box", quantities="ijS")) == {e for e in as_set(found) if is_half(e)}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", BOXES)
def test_neighbours_of_points_anywhere(name, dtype):
    box = BOXES[name]
    x = points(box, 100, dtype, seed=13, turns=1)
    asked = points(box, 50, dtype, seed=14, turns=2)
    asked[::7] += (5 * box.matrix.sum(0)).astype(dtype)  # outside of open axes
    thickness = (1 / np.linalg.norm(box.inverse, axis=1)).min()
    cloud, folded, turns = built(x, box, (4, 6, 3)[: box.ndim])
    everywhere = Box(box.matrix, origin=box.origin, periodic=True)
    _, asked_folded, asked_turns, _ = locate(columns(asked), None, cells_of(everywhere, (1, 1, 1), 1, dtype))
    if not all(box.periodic):  # fold only the axes that are
        asked_turns = asked_turns * np.array([0] * (3 - box.ndim) + list(box.periodic))
        asked_folded = asked.astype(float) - asked_turns[:, 3 - box.ndim :] @ box.matrix
        asked_folded = np.pad(asked_folded, ((0, 0), (3 - box.ndim, 0))).astype(dtype)
    radius = dtype(0.4 * thickness)
    found = brute(asked_folded[:, 3 - box.ndim :], folded, box, asked_turns, turns, radius, own=False)
    for threads in (1, 3):
        result, status = neighbours(cloud, columns(asked), float(radius), quantities="ijSdD", threads=threads)
        assert status[:4] == (0, 0, -1, 0)
        assert listed(result) == as_set(found)
        np.testing.assert_array_equal(result.i, np.repeat(np.arange(50), np.diff(result.start)))


def test_points_that_are_no_points_have_no_neighbours():
    cloud, _, _ = built(points(BOXES["cube"], 50, np.float64), BOXES["cube"], (4, 4, 4))
    asked = np.array([[0.5, 0.5, 0.5], [np.nan, 0.5, 0.5], [0.5, 1e300, 0.5], [0.5, 0.5, 0.5]])
    result, found = neighbours(cloud, columns(asked), 0.3)
    assert found[:4] == (1, 1, 1, 0)
    assert result.start[1] == result.start[3] > 0
    assert result.start[4] == 2 * result.start[1]
    nothing, _ = neighbours(cloud, columns(asked[:0]), 0.3)
    np.testing.assert_array_equal(nothing.start, [0])


def test_particles_left_out_have_no_rows():
    x = points(BOXES["open"], 60, np.float64, seed=15)
    x[[3, 40]] = np.nan
    cloud, _, _ = built(x, BOXES["open"], (3, 3, 3))
    full = pairs(cloud, 0.8, half=False)
    assert len(full.start) == 61
    assert full.start[3] == full.start[4]
    assert full.start[40] == full.start[41]
    assert not np.isin(full.j, [3, 40]).any()
    assert len(pairs(cloud, 0.8, order="grid").start) == 59


def test_what_cannot_be_searched_is_refused():
    cloud, _, _ = built(points(BOXES["cube"], 50, np.float64), BOXES["cube"], (4, 4, 4))
    with pytest.raises(ValueError, match="radii"):
        overlaps(cloud)
    with pytest.raises(ValueError, match="periodic boxes"):
        pairs(cloud, np.inf)
    with pytest.raises(OverflowError, match=r"a row has \d+ pairs and room for 1: give width=\d+ or more"):
        pairs(cloud, 0.5, form="dense", width=1)
    wide = pairs(cloud, 0.3, half=False, form="dense", width=60)
    assert wide.j.shape == (50, 60)
