# SPDX-License-Identifier: BSD-3-Clause
"""Lists of pairs on GPUs by marks of candidates: rows with more of them than there is room for, and rows in parts."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest

import particlemesh as pm
from devices import Device
from particlemesh.backends import cuda
from particlemesh.grid.queries import clusters
from particlemesh.grid.queries import pair_lists as marks
from ptx import kernels_of, without_nvrtc

pytestmark = pytest.mark.opencl
CELLS = (1.0, 1.0, 0.25)


def cloud_of(name, count, real):
    """Positions, and the side of their box: about 26 neighbours within 1, more where particles are close."""
    rng, side = np.random.default_rng(3), (count / 6.2) ** (1 / 3)
    x = rng.random((count, 3)) * side
    if name == "clustered":  # the marks of many rows have no room
        x[: count // 8] = x[0] + rng.normal(0, 0.2, (count // 8, 3))
    elif name == "halves":  # twice the mean in a half: not every group has room for its pairs
        x[:, 0] = np.where(rng.random(count) < 0.75, x[:, 0] / 2, x[:, 0])
    return (x % side).astype(real), side


def pairs_of(grid, half, order, **options):
    """The pairs by index as sorted numbers, the smaller index first if each is listed once."""
    pairs, device = grid.pairs(1.0, half=half, order=order, **options), grid.backend
    start, j, places = (np.asarray(device.download(a)) if device.name != "cpu" else a
                        for a in (pairs.start, pairs.j, grid.order))  # fmt: skip
    start, j, places = start.astype(int), j[: start[-1]].astype(int), places.astype(int)
    i = np.repeat(np.arange(len(start) - 1), np.diff(start))
    if half:
        assert (i <= j).all()
    if order == "grid":
        i, j = places[i], places[j]
    low, high = (np.minimum(i, j), np.maximum(i, j)) if half else (i, j)
    return np.sort(low * grid.size + high)


BOUNDARIES = {"open": False, "periodic": True, "mixed": (False, True, True)}
LISTS = [(name, "f4", boundary) for name in ("uniform", "clustered", "halves") for boundary in BOUNDARIES]


WAYS = {"single": {}, "paired": {"LEAST_PAIRED": 0}}


def set_way(monkeypatch, way):
    """Set the switches of a way to search, and return a list to which each search adds its marks."""
    asked, plain = [], marks.Marks.mark
    monkeypatch.setattr(clusters, "members_of", lambda *_: 0)
    for switch, value in WAYS[way].items():
        monkeypatch.setattr(marks, switch, value)
    monkeypatch.setattr(marks.Marks, "mark", lambda self, *a, **k: asked.append(self) or plain(self, *a, **k))
    return asked


CASES = [("single", *case) for case in (*LISTS, ("clustered", "f8", "periodic"))]
CASES += [("paired", *case) for case in (*LISTS, ("clustered", "f8", "open"), ("uniform", "f8", "mixed"))]


@pytest.mark.turns(9)
@pytest.mark.parametrize(("way", "name", "real", "boundary"), CASES)
def test_lists_by_marks_have_the_pairs_of_the_cpu(monkeypatch, way, name, real, boundary):
    asked = set_way(monkeypatch, way)
    x, side = cloud_of(name, 2500, real)
    box, backend = pm.Box((side,) * 3, periodic=BOUNDARIES[boundary]), Device.of("opencl")
    host = pm.UniformGrid(box, cell_size=CELLS).build(x)
    monkeypatch.setattr(marks, "ROWS_AT_ONCE", 1024)  # lists in the order of the grid are made in three parts
    with pm.UniformGrid(box, cell_size=CELLS, backend="opencl") as grid:
        grid.build(backend.array(x))
        for half in (False, True):
            for order in ("grid", "input"):
                right = pairs_of(host, half, order)
                grid._search.means[half, True, 1.0, 0, True] = 20.0  # as a former search of such particles left it
                for _ in range(2):
                    np.testing.assert_array_equal(pairs_of(grid, half, order), right)
                wide = pairs_of(grid, half, order, check=False, capacity=len(right) + 5)
                np.testing.assert_array_equal(wide, right)
    # Half lists in periodic boxes are never paired.
    expected = [way == "paired" and not (m.question.half and boundary != "open") for m in asked]
    assert asked and [m.paired for m in asked] == expected


MATRICES = {  # some boxes of one to three axes, and their periodic axes
    "1-D": ([[90.0]], True, (1.0,)),
    "2-D": ([[14.0, 0.0], [3.0, 11.0]], (False, True), (1.0, 0.25)),
    "2-D periodic": ([[14.0, 0.0], [3.0, 11.0]], True, (1.0, 0.25)),
    "triclinic": ([[7.0, 0.0, 0.0], [2.0, 6.0, 0.0], [-1.0, 1.5, 8.0]], (True, True, False), CELLS),
    "narrow": ([[2.3, 0.0, 0.0], [0.4, 12.0, 0.0], [0.0, 0.3, 9.0]], (True, False, True), CELLS),
    "open": ([[7.0, 0.0, 0.0], [2.0, 6.0, 0.0], [-1.0, 1.5, 8.0]], False, CELLS),
}


@pytest.mark.turns(6)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", MATRICES)
def test_lists_by_marks_in_other_boxes(monkeypatch, name, way):
    asked, (matrix, periodic, cells) = set_way(monkeypatch, way), MATRICES[name]
    ndim = len(matrix)
    x = np.random.default_rng(5).random((701, ndim)) @ np.array(matrix)  # an odd number: the last row has no partner
    if ndim == 2:
        x = x[:599]
    box = pm.Box(matrix, periodic=periodic)
    host = pm.UniformGrid(box, cell_size=cells).build(x.astype("f4"))
    with pm.UniformGrid(box, cell_size=cells, backend="opencl") as grid:
        grid.build(Device.of("opencl").array(x.astype("f4")))
        for half, order in ((False, "grid"), (True, "grid"), (False, "input"), (True, "input")):
            right = pairs_of(host, half, order)
            grid._search.means[half, True, 1.0, 0, True] = max(len(right) / len(x), 1)
            np.testing.assert_array_equal(pairs_of(grid, half, order), right)
        points = x[::3].astype("f4") + np.float32(0.01)
        right = host.neighbours(points, 1.0)
        for _ in range(2):  # the first one finds out how many there are
            pairs = grid.neighbours(Device.of("opencl").array(points), 1.0)
        start, j = (np.asarray(grid.backend.download(a)) for a in (pairs.start, pairs.j))
        np.testing.assert_array_equal(start, right.start)
        for row in range(len(points)):
            here = slice(start[row], start[row + 1])
            np.testing.assert_array_equal(np.sort(j[here]), np.sort(right.j[here]))
    assert asked and any(m.paired for m in asked) == (way == "paired")


@pytest.mark.turns(2)
@pytest.mark.parametrize(("way", "periodic"), [("single", True), ("paired", False)])
def test_lists_by_marks_of_several_systems(monkeypatch, way, periodic):
    asked, rng, device = set_way(monkeypatch, way), np.random.default_rng(6), Device.of("opencl")
    boxes = np.array([[5.0, 6.0, 5.5], [4.5, 5.0, 6.0], [5.2, 4.8, 5.4]])
    system = rng.integers(0, 3, 2001)
    x = (rng.random((2001, 3)) * boxes[system]).astype("f4")

    def built(backend, array):
        grid = pm.UniformGrid(pm.Box((5.0,) * 3, periodic=periodic), shape=(5, 5, 20), systems=3, backend=backend)
        return grid.build(array(x), system=array(system.astype(np.int32)), boxes=boxes)

    host, grid = built("cpu", np.asarray), built("opencl", device.array)
    for half, order in ((False, "grid"), (True, "grid"), (False, "input"), (True, "input")):
        right = pairs_of(host, half, order)
        grid._search.means[half, True, 1.0, 0, True] = len(right) / len(x)
        np.testing.assert_array_equal(pairs_of(grid, half, order), right)
    grid.close()
    assert asked and all(m.question.systems and not m.paired for m in asked)


def test_marks_serve_few_strips_of_few_candidates():
    x, side = cloud_of("uniform", 300, "f4")
    for cells, radius, words in ((CELLS, 1.0, True), ((0.25, 0.25, 0.25), 1.0, False), (CELLS, 0.0, False)):
        with pm.UniformGrid(pm.Box((side,) * 3), cell_size=cells, backend="opencl") as grid:
            grid.build(Device.of("opencl").array(x))
            search, cloud = grid._search, grid._built.cloud
            question = search.ask(cloud, radius, None, False, False)
            assert bool(marks.marks_of_row(question, 26)) == words
            assert not marks.marks_of_row(question, 400)


def test_many_points_in_open_boxes_have_no_marks(monkeypatch):
    x, side = cloud_of("uniform", 300, "f4")
    for periodic in (False, True):
        with pm.UniformGrid(pm.Box((side,) * 3, periodic=periodic), cell_size=CELLS, backend="opencl") as grid:
            grid.build(Device.of("opencl").array(x))
            question = grid._search.ask(grid._built.cloud, 1.0, None, False, False)
            for most, marked in ((300, True), (299, periodic)):
                monkeypatch.setattr(marks, "MOST_POINTS", most)
                of_points = dataclasses.replace(question, points=SimpleNamespace(count=300))
                assert bool(marks.marks_of_row(of_points, 26)) == marked and marks.marks_of_row(question, 26)


@pytest.mark.parametrize("half", [False, True])
def test_many_rows_by_index_have_no_marks(monkeypatch, half):
    x, side = cloud_of("uniform", 300, "f4")
    asked = set_way(monkeypatch, "single")
    host = pm.UniformGrid(pm.Box((side,) * 3), cell_size=CELLS).build(x)
    for most, marked in ((300, True), (299, False)):
        monkeypatch.setattr(marks, "MOST_BY_INDEX", most)
        for order, by_marks in (("input", marked), ("grid", True)):
            asked.clear()
            with pm.UniformGrid(pm.Box((side,) * 3), cell_size=CELLS, backend="opencl") as grid:
                grid.build(Device.of("opencl").array(x))
                right = pairs_of(host, half, order)
                grid._search.means[half, True, 1.0, 0, True] = len(right) / len(x)
                np.testing.assert_array_equal(pairs_of(grid, half, order), right)
            assert bool(asked) == by_marks


@pytest.mark.turns(3)
@pytest.mark.skipif(without_nvrtc() is not None, reason=f"no NVRTC: {without_nvrtc()}")
@pytest.mark.parametrize(
    ("way", "real", "periodic"), [("single", "f4", True), ("single", "f8", False), ("paired", "f4", False)]
)
def test_kernels_of_marks_compile_for_cuda(monkeypatch, way, real, periodic):
    set_way(monkeypatch, way)
    (x, side), device = cloud_of("uniform", 500, real), Device.of("opencl")

    def call():
        with pm.UniformGrid(pm.Box((side,) * 3, periodic=periodic), cell_size=CELLS, backend="opencl") as grid:
            grid.build(device.array(x))
            for half in (False, True):
                grid.pairs(1.0, half=half, order="grid", check=False, capacity=26 * 500)
            grid.pairs(1.0, format="coo", quantities="ij", check=False, capacity=13 * 500)
            for _ in range(2):  # the first one finds out how many there are
                grid.neighbours(device.array(x[:100]), 1.0)

    compiled = set()
    for file, name, defines in kernels_of(monkeypatch, call):
        if file.endswith(("mark_pairs.c", "list_marks.c")):
            assert name.encode() in cuda.compile_only(file, dict(defines) | {"GROUP_SIZE": 128}, 90)
            compiled.add(name)
    assert compiled == {"mark_pairs", "list_marks"}
