# SPDX-License-Identifier: BSD-3-Clause
"""Inputs that made a search compare nearly all particles with all: outliers, clusters, radii of many sizes."""

import numpy as np
import pytest

import particlemesh as pm
from grid_cases import BOXES, all_pairs
from grid_checks import check_list, cloud
from particlemesh.grid.cpu.locate import cells_of, margins
from particlemesh.grid.sparse import close_gaps, shape_of

RNG = np.random.default_rng(3)


@pytest.fixture
def sparse_only(monkeypatch):
    monkeypatch.setattr("particlemesh.grid.neighbour_list._Call.dense", lambda self, radius: None)


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize(("name", "real"), list(zip(BOXES, ("f4", "f8") * 7, strict=True)))
def test_sparse_cells_find_all_pairs_of_any_box(backend, sparse_only, name, real, half):
    box = BOXES[name]
    x, radius = cloud(box, 90, real, beyond=1.0), 0.1 if box.ndim == 1 else 0.5
    assert check_list(backend, box, x, radius, half=half) > 0


@pytest.mark.parametrize("name", ["mixed", "skewed plane", "open line"])
def test_levels_of_sparse_cells_find_all_pairs_of_many_sizes(backend, sparse_only, name):
    box = BOXES[name]
    x = cloud(box, 80, beyond=1.0)
    widths = 10.0 ** RNG.uniform(-5, -0.5, 80)
    widths[::9] = 0
    oracle = all_pairs(box, x, 2 * widths.max())
    for half in (False, True):
        check_list(backend, box, x, widths[oracle.i] + widths[oracle.j], half=half, oracle=oracle, widths=widths)


def clouds():
    """Positions, whether axes repeat, and radii: each compared all particles with all before."""
    x = RNG.random((3000, 3))
    far = x.copy()
    far[0] = 1e6, -1e7, 1e12
    two = x.copy()
    two[1500:] += 1e4
    clusters = (x * 1e-3 + RNG.random((20, 3))[RNG.integers(0, 20, len(x))]) % 1
    line = x[:, :1] * np.ones(3) + 1e-5 * x
    one = np.full(3000, 0.01)
    one[7] = 0.4
    spread = 10 ** RNG.uniform(-4, -1.5, 3000)
    apart = np.where(np.arange(3000) < 1500, 1e-3, 0.1)  # small ones crowded, large ones elsewhere
    mixed = np.where(apart[:, None] < 0.01, x * 0.1, 0.2 + 0.8 * x)
    return {
        "one far away": (far, False, 0.05), "two clusters": (two, False, 0.05), "clusters": (clusters, True, 2e-4),
        "a line": (line, False, 1e-3), "one large radius": (x, True, one), "radii of many sizes": (x, True, spread),
        "small ones crowded": (mixed, True, apart),
    }  # fmt: skip


@pytest.mark.parametrize("name", list(clouds()))
@pytest.mark.parametrize("real", ["f4", "f8"])
def test_particles_compared_are_as_many_as_particles_and_pairs(monkeypatch, name, real):
    from particlemesh.grid.cpu import queries, search

    x, periodic, radius = clouds()[name]
    x = x.astype(real)
    radius = radius.astype(real) if np.ndim(radius) else radius
    compared = []

    def counted(query, cells, *rest, counts=None, **rows):
        search.search_for(query, cells, *rest, counts=counts, **rows)
        if counts is not None:
            compared.append(candidates(cells))

    monkeypatch.setattr(queries, "search_for", counted)
    i, j = pm.neighbour_list("ij", x, (1.0, 1.0, 1.0), radius, periodic=periodic)
    assert len(compared) == 1
    assert compared[0] <= 60 * (len(x) + len(i))
    box = pm.Box((1.0, 1.0, 1.0), periodic=periodic)
    widths = np.full(len(x), radius / 2) if np.ndim(radius) == 0 else radius
    few = RNG.choice(len(x), 40, replace=False)
    for k in few:
        d = x[:, :] - x[k]
        d = d - np.round(d) if periodic else d
        near = np.flatnonzero((d.astype("f8") ** 2).sum(1) < (0.999 * (widths + widths[k])) ** 2)
        assert set(near.tolist()) - {k} <= set(j[i == k].tolist()), box


def candidates(search):
    """Particles that a search copies for all its particles, by levels: those of a group's cells and of cells around."""
    n = search.x.size - 16
    total = 0
    for level in range(len(search.shape)):
        ends = search.first[level : level + 2]
        if search.occupied.size:
            begin, end = np.searchsorted(search.occupied, ends)
        else:
            begin, end = ends
        lengths = np.diff(search.start[begin : end + 1]).astype(float)
        total += float(lengths @ lengths)
    return total + 0 * n


def in_reach(search):
    """Pairs of particles that a search with radii may compare in a periodic unit cube: those of cells in reach."""
    n = search.numbers.size - 16
    level = np.searchsorted(search.start[search.first[1:]], np.arange(n), side="right")
    reach = search.sizes[0, :n, None] + search.most[0, level, 0]
    compared = np.ones((n, n), bool)
    for a, x in enumerate((search.x, search.y, search.z)):
        away = np.abs(x[:n, None] - x[:n])
        compared &= np.minimum(away, 1 - away) <= reach + 2 / search.shape[level, a]
    return compared.sum()


def test_closing_gaps_keeps_the_bits_of_differences():
    for real in ("f4", "f8"):
        x = np.concatenate([RNG.random(50), 1e5 + RNG.random(50), [-3e6], 7e7 + RNG.random(20)]).astype(real)
        box = pm.Box(1.0, periodic=False)
        (closer,) = close_gaps([x], box, 0.3)
        assert np.ptp(closer) < 200 and closer.dtype == x.dtype
        for begin, end in ((0, 50), (50, 100), (101, 121)):
            np.testing.assert_array_equal(np.diff(closer[begin:end]), np.diff(x[begin:end]))
        order = np.argsort(x, kind="stable")
        wide = np.diff(x[order].astype("f8")) > 0.3
        assert (np.diff(closer[order].astype("f8"))[wide] > 0.3).all()


def test_a_periodic_axis_keeps_its_gaps():
    x = [1e5 * RNG.random(9), 1e5 * RNG.random(9)]
    for along, kept in ((0.5, True), (0.0, False)):
        box = pm.Box([[1.0, along], [0.0, 1.0]], periodic=(True, False))
        closer = close_gaps(x, box, 1e-3)
        assert np.array_equal(closer[0], x[0])
        assert np.array_equal(closer[1], x[1]) == kept


def test_a_grid_has_the_levels_that_radii_take_on_the_cpu():
    x, radii = RNG.random((500, 3)), np.full(500, 0.01)
    radii[3] = 0.2
    grid = pm.UniformGrid((1.0, 1.0, 1.0), cell_size=0.02)
    one = pm.UniformGrid((1.0, 1.0, 1.0), cell_size=0.02, levels=1)
    assert (grid.build(x, radii).levels, one.build(x, radii).levels) == (6, 1)
    for ask in (lambda g: g.overlaps(), lambda g: g.pairs(radii, half=True, format="coo")):
        pairs, expected = (sorted(zip(*(a.tolist() for a in ask(g)), strict=True)) for g in (grid, one))
        assert pairs == expected
    with pytest.raises(ValueError, match="not finite"):
        grid.build(x * np.nan)
    assert grid.levels == 6 and grid.cell_start.shape == (grid.cells + 1,)
    assert grid.build(x).levels == 1 and grid.cells == 50**3


@pytest.mark.turns(2)
@pytest.mark.parametrize("order", ["input", "grid"])
@pytest.mark.parametrize("built", ["no radii", "other radii", "one level"])
def test_one_large_radius_of_a_search_does_not_set_how_far_all_particles_search(monkeypatch, built, order):
    from particlemesh.grid.cpu import queries, search

    x, _, radii = clouds()["one large radius"]
    compared = []

    def counted(query, cells, *rest, counts=None, **rows):
        search.search_for(query, cells, *rest, counts=counts, **rows)
        if counts is not None:
            compared.append(in_reach(cells))

    monkeypatch.setattr(queries, "search_for", counted)
    grid = pm.UniformGrid((1.0,) * 3, cell_size=0.05, levels=1 if built == "one level" else None)
    grid.build(x * 3 - 1, {"no radii": None, "other radii": np.roll(radii, 5), "one level": radii}[built])
    names = grid.order if order == "grid" else np.arange(len(x))
    placed, cutoffs = (x * 3 - 1)[names] % 1, radii[names]
    difference = placed - placed[:, None]
    shift = -np.round(difference)
    difference += shift
    within = (difference**2).sum(-1) <= (cutoffs[:, None] + cutoffs) ** 2
    np.fill_diagonal(within, False)
    full = grid.pairs(radii, order=order, quantities="ijdDS")
    for half in (False, True):
        i, j = np.nonzero(np.triu(within) if half else within)
        for form in ("csr", "coo"):
            pairs = grid.pairs(radii, half=half, order=order, format=form, quantities="ijD")
            ordered = np.lexsort((pairs.j, pairs.i))
            np.testing.assert_array_equal((pairs.i[ordered], pairs.j[ordered]), (i, j))
            np.testing.assert_allclose(pairs.vector[ordered], difference[i, j], atol=1e-14)
    moved = (x * 3 - 1)[names]
    vectors = moved[full.j] - moved[full.i] + full.shift
    np.testing.assert_allclose(full.vector, placed[full.j] - placed[full.i] + shift[full.i, full.j], atol=1e-14)
    if order == "input":
        np.testing.assert_allclose(full.vector, vectors, atol=1e-14)
    np.testing.assert_array_equal(grid.count(radii, order=order), within.sum(1))
    assert max(compared) <= 60 * (len(x) + within.sum()) and len(compared) == 6


@pytest.mark.parametrize("real", ["f4", "f8"])
@pytest.mark.parametrize("far", [-100.0, 3e7])
def test_one_place_is_found_beside_a_particle_far_away(backend, real, far):
    """Gaps are closed to rounding then: a box much shorter than its distance from zero had billions of rows to read."""
    x = np.random.default_rng(0).random((40, 3)).astype(real)
    x[0], x[7], x[9] = far, x[8], x[8]
    for radius in (0.0, 1e-9):
        i, j = (backend.host(a) for a in pm.neighbour_list("ij", backend.array(x), (1.0,) * 3, radius, periodic=False))
        assert sorted(zip(i.tolist(), j.tolist(), strict=True)) == [(7, 8), (7, 9), (8, 7), (8, 9), (9, 7), (9, 8)]


@pytest.mark.parametrize("real", ["f4", "f8"])
@pytest.mark.parametrize("far", [0.0, 1.0, 1e5])
def test_cells_are_not_thinner_than_rounding(real, far):
    for name in ("open", "triclinic mixed", "skewed plane", "open line"):
        matrix = np.asarray(BOXES[name].matrix) * 1e-4
        box = pm.Box(matrix, np.full(len(matrix), far), BOXES[name].periodic)
        cells = cells_of(box, shape_of(box, 0.0, 1, np.dtype(real)), 1, np.dtype(real))
        rows, shape = margins(cells.origin, cells.inverse, cells.rows)[0] * cells.shape, np.array(cells.shape)
        assert ((rows <= 1) | (shape == 1)).all()
