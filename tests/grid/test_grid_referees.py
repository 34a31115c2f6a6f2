# SPDX-License-Identifier: BSD-3-Clause
"""Neighbour lists against those of other people's software: SciPy's k-d tree, and vesin's cell lists."""

import functools
from pathlib import Path

import numpy as np
import pytest
from scipy.spatial import cKDTree

import particlemesh as pm
from grid_cases import codes, entries, rounding
from grid_checks import put

WATER = Path(pm.__file__).parent / "data" / "water.npz"
PROTEIN = Path(__file__).resolve().parents[3] / "shared" / "data" / "dhfr.npz"  # optional
MATRIX = np.array([[3.0, 0.0, 0.0], [0.6, 2.5, 0.0], [-0.4, 0.7, 2.75]])


@functools.cache
def real_data(name):
    """Positions and lengths of a box of water, or of a protein in water."""
    path = {"water": WATER, "protein": PROTEIN}[name]
    if not path.exists():
        pytest.skip(f"{path.name} is not here: the protein is no part of this repository")
    with np.load(path) as data:
        return data["positions"], np.diagonal(data["box"]).copy()


def cloud(lengths, count, seed, wrapped=False):
    rng = np.random.default_rng(seed)
    s = rng.random((count, len(lengths))) + (rng.integers(-2, 3, (count, len(lengths))) if wrapped else 0)
    return s * lengths


def folded(x, lengths):
    return np.minimum(np.mod(x, lengths), np.nextafter(lengths, 0))


# ---- SciPy: one image of each pair, so radii up to half the box --------------------------------------------


def check_tree(backend, grid, x, lengths, radius, periodic):
    tree = cKDTree(folded(x, lengths) if periodic else x, boxsize=lengths if periodic else None)
    apart = rounding(grid.box, x, radius)
    sure, possible = (tree.query_pairs(radius + way * apart, output_type="ndarray") for way in (-1, 1))
    pairs = grid.pairs(radius, half=True, format="coo", quantities="ij")
    i, j = backend.host(pairs.i).astype(int), backend.host(pairs.j).astype(int)
    result, must, may = (np.sort(a * len(x) + b) for a, b in ((i, j), sure.T, possible.T))
    assert len(np.unique(result)) == len(result)
    assert np.isin(must, result).all() and np.isin(result, may).all()
    counts = backend.host(grid.count(radius))
    assert (counts >= tree.query_ball_point(tree.data, radius - apart, return_length=True) - 1).all()
    assert (counts <= tree.query_ball_point(tree.data, radius + apart, return_length=True) - 1).all()
    distances, _ = tree.query(tree.data, k=[2, 3, 4], distance_upper_bound=radius)
    np.testing.assert_allclose(backend.host(grid.nearest(3, radius)[1]), distances, rtol=0, atol=2 * apart)


@pytest.mark.parametrize("periodic", [True, False])
@pytest.mark.parametrize("d", [1, 2, 3])
def test_scipy_agrees_on_random_particles(backend, d, periodic):
    lengths = np.array([3.0, 2.0, 2.5])[:d]
    x = cloud(lengths, 2000, d, wrapped=periodic)
    grid = pm.UniformGrid(lengths, cell_size=0.21, periodic=periodic)
    put(backend, grid, x)
    check_tree(backend, grid, x, lengths, {1: 0.01, 2: 0.07, 3: 0.21}[d], periodic)


def test_scipy_agrees_on_long_rows(backend):
    # More candidates of one particle than any search holds at once.
    x, lengths = cloud(np.ones(3), 2500, 3, wrapped=False), np.ones(3)
    with pm.UniformGrid(lengths, shape=(3, 3, 3)) as grid:
        put(backend, grid, x)
        for radius in (0.2, 0.45):
            check_tree(backend, grid, x, lengths, radius, True)


@pytest.mark.parametrize("name", ["water", "protein"])
def test_scipy_agrees_on_real_matter(backend, name):
    x, lengths = real_data(name)
    if name == "protein" and backend.name == "opencl" and "PoCL" in backend.library.platform:
        x = x[:8000]  # a corner of it is enough where the processor stands in for a GPU
    grid = pm.UniformGrid(lengths, cell_size=0.3)
    put(backend, grid, x)
    check_tree(backend, grid, x, lengths, 0.3, True)


# ---- vesin: all images, partly open and triclinic boxes ----------------------------------------------------


def check_vesin(backend, grid, x, radius, half=False):
    vesin = pytest.importorskip("vesin", reason="vesin is not installed: pip install 'particlemesh[test]'")
    apart = rounding(grid.box, x, radius)
    lists = []
    for reach in (radius - apart, radius + apart):
        finder = vesin.NeighborList(cutoff=reach, full_list=True)
        lists.append(finder.compute(x, grid.box.matrix, grid.box.periodic, "ijSdD"))
    sure, possible = (codes(i.astype(int), j.astype(int), shift) for i, j, shift, *_ in lists)
    i, j, shift, distance, vector = entries(backend, grid.pairs(radius, half=half, quantities="ijdDS"))
    result = codes(i, j, shift)
    assert len(np.unique(result)) == len(result) > 0
    if half:  # one of each two
        result = np.concatenate([result, codes(j, i, -shift)])
        assert len(np.unique(result)) == len(result)
    assert np.isin(sure, result).all() and np.isin(result, possible).all()
    theirs = np.argsort(possible)
    same = theirs[np.searchsorted(possible[theirs], result[: len(i)])]
    np.testing.assert_allclose(distance, lists[1][3][same], rtol=0, atol=2 * apart)
    np.testing.assert_allclose(vector, lists[1][4][same], rtol=0, atol=2 * apart)


@pytest.mark.parametrize("matrix", ["orthorhombic", "triclinic", "left-handed"])
@pytest.mark.parametrize("periodic", [(True, True, True), (True, False, True), (False, False, True), (False,) * 3], ids=str)  # noqa: E501  # fmt: skip
def test_vesin_agrees_on_partly_open_and_triclinic_boxes(backend, matrix, periodic):
    rows = {"orthorhombic": np.diag([3.0, 2.5, 2.75]), "triclinic": MATRIX, "left-handed": MATRIX[[2, 1, 0]]}[matrix]
    rng = np.random.default_rng(21)
    s = rng.random((600, 3)) + rng.integers(-2, 3, (600, 3)) * np.array(periodic)
    x = s @ rows
    grid = pm.UniformGrid(pm.Box(rows, periodic=periodic), cell_size=0.4)
    put(backend, grid, x)
    check_vesin(backend, grid, x, 0.55)
    check_vesin(backend, grid, x, 0.55, half=True)


@pytest.mark.parametrize("tilt", [0.0, 0.3])
def test_vesin_agrees_on_real_matter(backend, tilt):
    x, lengths = real_data("water")
    matrix = np.diag(lengths)
    matrix[1, 0], matrix[2, 1] = tilt * lengths[0], -tilt * lengths[1]
    grid = pm.UniformGrid(pm.Box(matrix, periodic=(True, True, tilt == 0)), cell_size=0.2)
    if tilt:
        x = (x / lengths % 1) @ matrix
    put(backend, grid, x)
    check_vesin(backend, grid, x, 0.35)
