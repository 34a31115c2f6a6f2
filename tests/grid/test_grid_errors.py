# SPDX-License-Identifier: BSD-3-Clause
"""What grids refuse, in words that say what was given, what is allowed, and what became of the grid."""

import re

import numpy as np
import pytest

import particlemesh as pm
from grid_cases import BOXES, Case
from grid_checks import check_grid, order_of, own_radii, put
from particlemesh.grid import checks
from particlemesh.grid.builders import METHODS

CASE = Case("mixed", (4, 3, 5), "wrapped", 200, "f8")
BOX, CELLS, X = CASE.domain, CASE.cells, CASE.positions
CUBE = (1.0, 1.0, 1.0)


def crowd(count=40):
    """Particles of which ``count`` are in one cell of CASE, number 22, and 5 elsewhere."""
    rng = np.random.default_rng(4)
    x = BOX.origin + (np.array([1, 1, 2]) + 0.1 + 0.8 * rng.random((count + 5, 3))) * BOX.lengths / CELLS
    x[-5:] = BOX.origin + 0.05 * rng.random((5, 3))
    return x


# ---- particles --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("real", ["f4", "f8"])
def test_bad_particles_are_named_and_the_grid_is_as_it_was(backend, builder, real):
    case = CASE._replace(dtype=real)
    good, radii = case.positions, own_radii(builder, case)
    x = good.copy()
    x[37, 0], x[64, 2], x[150, 1], x[151, 1] = np.nan, -np.inf, 0.39, 2.5  # axis 1 is open: [0.4, 2.4]
    x[180, 0] = x[199, 2] = 1e20  # too far to tell where
    with case.grid(method=builder.name) as grid:
        put(backend, grid, good, radii)
        text = (
            r"2 not finite and 4 outside the box or its cells of 200 particles; the first is 37.*\. Allowed are finite "
            r"positions, at most 2\*\*20 boxes away along periodic axes, and within axis 1: \[0\.4, 2\.4\]\. A grid "
            r"is as it was; its build with check=False leaves such particles out\."
        )
        for _ in range(2):
            with pytest.raises(ValueError, match=text):
                put(backend, grid, x, radii)
            check_grid(backend, grid, BOX, CELLS, good, radii)
            assert grid.status == (200, 0, 0, 0, -1, 0, -1)
            grid.check()


@pytest.mark.parametrize("real", ["f4", "f8"])
def test_unchecked_bad_particles_are_left_out_and_recorded(backend, builder, real):
    case = CASE._replace(dtype=real)
    x, radii = case.positions.copy(), own_radii(builder, case)
    x[37, 0], x[64, 2], x[150, 1], x[180, 0] = np.nan, -np.inf, 0.39, 1e20
    sizes = np.zeros(200, real) if radii is None else radii
    sizes[[5, 37, 190]] = -1, -1, np.nan  # the second one is bad already
    good = np.setdiff1d(np.arange(200), [5, 37, 64, 150, 180, 190])
    with case.grid(method=builder.name) as grid:
        put(backend, grid, x, sizes, check=False)
        assert grid.status == (200, 2, 2, 2, 5, 0, -1)
        assert grid.status.bad == 6
        text = (
            "2 not finite and 2 outside .* and 2 with a radius that is negative, not finite.* of 200 .*; the first is 5"
            ".*The grid has left them out and holds the others"
        )
        with pytest.raises(ValueError, match=text):
            grid.check()
        start, order, rank = order_of(backend, grid)
        np.testing.assert_array_equal(np.sort(order), good)
        assert start[-1] == len(good) == len(backend.host(grid.positions))
        np.testing.assert_array_equal(np.flatnonzero(rank < 0), np.setdiff1d(np.arange(200), good))
        assert np.isfinite(backend.host(grid.positions)).all()
        with pytest.raises(ValueError, match="3 with a radius that is negative, not finite"):
            put(backend, grid, case.positions, sizes)
        sizes[[5, 37, 190]] = 0
        put(backend, grid, case.positions, sizes, check=False)
        grid.check()
        check_grid(backend, grid, BOX, CELLS, case.positions, None if radii is None else sizes)


def test_the_range_of_a_triclinic_box_is_in_fractions(backend):
    box = BOXES["triclinic mixed"]
    x = (np.array([[0.5, 0.5, 0.5], [1.2, 0.5, 0.5], [-0.1, 0.2, 0.1]]) @ box.matrix) + box.origin
    grid = pm.UniformGrid(box, shape=(4, 3, 3))
    text = r"2 outside .* the first is 1.* fractions within \[0, 1\] along lattice vectors 0\."
    with pytest.raises(ValueError, match=text):
        put(backend, grid, x)
    assert repr(grid).endswith("cells, empty>")
    put(backend, grid, x[:1])


def test_host_arrays_are_named_with_their_numbers():
    x, radii = X.copy(), np.full(200, 0.1)
    x[9, 1], radii[7] = 5.25, -0.5
    grid = CASE.grid(backend="cpu")
    with pytest.raises(ValueError, match=r"the first is 9 at \([-\d.]+, 5\.25, [-\d.]+\)"):
        grid.build(x)
    with pytest.raises(ValueError, match=r"the first is 9 at \([-\d.]+, 5\.25, [-\d.]+\)"):
        grid.build(tuple(x.T))
    with pytest.raises(ValueError, match=r"the first is 7 at \(.*\) with radius -0\.5"):
        grid.build(X, radii)
    with pytest.raises(ValueError, match=r"the first is 1 at \(7\)\. Allowed are keys below the number of buckets"):
        grid.build_keys([0, 7], 7)


def test_bad_radii_are_refused(backend):
    x, grid = backend.array(X), CASE.grid()
    for bad in (-1.0, np.nan, np.inf, -np.inf):
        with pytest.raises(ValueError, match="radius is .*; a finite number of at least zero is needed"):
            grid.build(x, bad)
    for bad in (True, "0.1", b"1"):
        with pytest.raises(TypeError, match="radius is .*; a number is needed"):
            grid.build(x, bad)
    for shape in ((199,), (200, 2), (200, 1, 1), (1, 200)):
        text = rf"radii has shape {re.escape(str(shape))}; give one number, \(200,\) for spheres, or \(200, 3\) for"
        with pytest.raises(ValueError, match=text):
            grid.build(x, backend.array(np.zeros(shape)))
    for bad, text in (
        (np.zeros(200, complex), "radii: dtype is complex128; real numbers are needed"),
        (np.zeros(200, "?"), "radii: dtype is bool; real numbers are needed"),
    ):
        with pytest.raises(TypeError, match=text):
            grid.build(x, backend.array(bad))
    for axis in range(3):
        boxes = np.full((200, 3), 0.1)
        boxes[170, axis] = -0.1
        with pytest.raises(ValueError, match="1 with a radius that is negative.* the first is 170"):
            grid.build(x, backend.array(boxes))
    assert repr(grid).endswith("cells, empty>")
    with pytest.raises(TypeError, match="radii: dtype is float64, that of the positions float32: convert one of them"):
        grid.build(backend.array(X.astype("f4")), backend.array(np.zeros(200)))
    grid.build(backend.array(X.astype("f4")), [0.0] * 200)  # numbers of a list have no type of their own


def test_too_wide_for_tight_cells(backend):
    thickness = (1 / np.linalg.norm(BOX.inverse, axis=1) / CELLS).min()
    radii = np.full(200, 0.49 * thickness)
    with CASE.grid(method="linked_list_tight") as grid:
        put(backend, grid, X, radii)
        radii[[23, 77]] *= 1.05
        with pytest.raises(ValueError, match="2 with a radius that is .*more than half a cell of a tight grid.* is 23"):
            put(backend, grid, X, radii)
        check_grid(backend, grid, BOX, CELLS, X, np.full(200, 0.49 * thickness))
        put(backend, grid, X, radii, check=False)
        assert grid.status == (200, 0, 0, 2, 23, 0, -1)
        with pytest.raises(pm.MethodNotSuitable, match="needs radii: without them a particle touches one cell"):
            put(backend, grid, X)


# ---- room -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", ["row", "column"])
def test_a_full_cell_is_named_and_the_grid_still_answers(backend, layout):
    with CASE.grid(method="fixed", capacity=17, layout=layout) as grid:
        put(backend, grid, X)
        for crowded in (40, 18):
            text = (
                rf"cell 22 has {crowded} particles and room for 17: give capacity={crowded} or more, grow=True, or "
                "another method; the grid is as it was"
            )
            with pytest.raises(OverflowError, match=text):
                put(backend, grid, crowd(crowded))
            check_grid(backend, grid, BOX, CELLS, X)
            grid.check()
        put(backend, grid, crowd(17))  # exactly full
        check_grid(backend, grid, BOX, CELLS, crowd(17))


def test_unchecked_overflow_is_recorded(backend):
    with CASE.grid(method="fixed", capacity=17) as grid:
        put(backend, grid, crowd(40), check=False)
        assert grid.status == (45, 0, 0, 0, -1, 40, 22)
        with pytest.raises(OverflowError, match="cell 22 has 40 particles and room for 17.*some particles are in no c"):
            grid.check()
        start, order, rank = order_of(backend, grid)
        assert start[-1] == len(order) == 22
        assert (rank >= 0).sum() == 22 and (rank[-5:] >= 0).all()
        put(backend, grid, crowd(17), check=False)
        grid.check()
        check_grid(backend, grid, BOX, CELLS, crowd(17))


@pytest.mark.parametrize("options", [{"grow": True, "capacity": 3}, {"capacity": None}, {}])
def test_cells_that_may_grow_do(backend, options):
    with CASE.grid(method="fixed", **options) as grid:
        put(backend, grid, X[:9])
        few = grid.storage.capacity
        put(backend, grid, crowd(300))
        check_grid(backend, grid, BOX, CELLS, crowd(300))
        assert few < 300 <= grid.storage.capacity
        assert grid.status.fullest == 0
        put(backend, grid, crowd(310)[:300], check=False)  # the room is kept
        grid.check()


def test_reserved_fixed_cells_have_room_for_as_many(backend):
    with CASE.grid(method="fixed", backend=backend.name, dtype="float64") as grid:
        put(backend, grid, X[:7])
        grid.reserve(200)
        put(backend, grid, X, check=False)
        grid.check()
        check_grid(backend, grid, BOX, CELLS, X)


def test_counts_beyond_31_bits_are_refused_before_anything_is_done():
    for count in (2**31, 2**40):
        with pytest.raises(ValueError, match=f"{count:,} particles; a grid takes fewer than 2\\*\\*31: cut them into"):
            checks.few_enough(count, "particles")
    checks.few_enough(2**31 - 1, "particles")
    many = np.lib.stride_tricks.as_strided(np.zeros(3), (2**31, 3), (0, 8), writeable=False)  # of 24 bytes
    with pytest.raises(ValueError, match="2,147,483,648 particles; a grid takes fewer than"):
        pm.UniformGrid(CUBE, shape=(2, 2, 2)).build(many)
    keys = np.lib.stride_tricks.as_strided(np.zeros(1, np.int32), (2**31,), (0,), writeable=False)
    with pytest.raises(ValueError, match="2,147,483,648 particles; a grid takes fewer than"):
        pm.UniformGrid(CUBE, shape=(2, 2, 2)).build_keys(keys, 7)
    with pytest.raises(ValueError, match="count is 2147483648; 0 to 2147483647 is allowed"):
        pm.UniformGrid(CUBE, shape=(2, 2, 2), backend="cpu", dtype="float32").reserve(2**31)


# ---- arguments --------------------------------------------------------------------------------------------


REFUSED = [
    ({}, ValueError, "give either cell_size, the least thickness of a cell, or shape"),
    ({"cell_size": 0.1, "shape": (2, 2, 2)}, ValueError, "give either cell_size, .*, or shape"),
    ({"cell_size": 0}, ValueError, "cell_size is 0; it must be positive"),
    ({"cell_size": (0.1, -0.1, 0.1)}, ValueError, "cell_size is .*; it must be positive"),
    ({"cell_size": np.nan}, ValueError, "cell_size is nan; every number must be finite"),
    ({"cell_size": (0.1, 0.1)}, ValueError, r"cell_size has shape \(2,\); give one number or 3"),
    ({"cell_size": "thin"}, TypeError, "cell_size is 'thin'; real numbers are needed"),
    ({"cell_size": 1e-4}, ValueError, r"10000 x 10000 x 10000 = 1,000,000,000,000 cells; fewer than 2\*\*31 are"),
    ({"cell_size": 1e-300}, ValueError, r"cells; fewer than 2\*\*31 are possible \(some 1290 an axis\): give larger"),
    ({"shape": (2, 2)}, ValueError, r"shape \(2, 2\) is for 2-D; the box is 3-D"),
    ({"shape": (0, 1, 1)}, ValueError, r"shape\[0\] is 0; 1 to 2147483647 is allowed"),
    ({"shape": (2.0, 2, 2)}, TypeError, r"shape\[0\] is 2\.0; an integer of 1 to 2147483647 is needed"),
    ({"shape": (2**31, 1, 1)}, ValueError, r"shape\[0\] is 2147483648; 1 to 2147483647 is allowed"),
    ({"shape": (1300, 1300, 1300)}, ValueError, r"1300 x 1300 x 1300 = 2,197,000,000 cells; fewer than 2\*\*31 are"),
    ({"shape": (1290, 1290, 1290), "levels": 3}, ValueError, r"2,448,411,373 cells; a grid takes fewer than 2\*\*31"),
    ({"levels": 0}, ValueError, "levels is 0; 1 to 16 is allowed"),
    ({"levels": 1.5}, TypeError, "levels is 1.5; an integer of 1 to 16 is needed"),
    ({"method": "hash"}, ValueError, "method is 'hash'; choose 'auto' or one of fixed, scan, sort, linked_list_loose"),
    ({"method": None}, ValueError, "method is None; choose 'auto' or one of"),
    ({"capacity": 3}, TypeError, "'capacity' is an option of method 'fixed', and method is 'auto'"),
    ({"method": "scan", "capacity": 3}, TypeError, "'capacity' is an option of method 'fixed', and method is 'scan'"),
    ({"method": "fixed", "curve": "morton"}, TypeError, "'curve' is an option of method 'sort', and method is 'fixed'"),
    ({"treads": 2}, TypeError, "UniformGrid has no argument 'treads', and no method has such an option"),
    ({"method": "fixed", "capacity": 0}, ValueError, "capacity is 0; 1 to 2147483647 is allowed"),
    ({"method": "fixed", "capacity": 2.5}, TypeError, "capacity is 2.5; an integer of 1 to 2147483647 is needed"),
    ({"method": "fixed", "layout": "slabs"}, ValueError, "layout is 'slabs'; choose from 'column', 'row'"),
    ({"method": "sort", "curve": "hilbert"}, ValueError, "curve is 'hilbert'; choose from 'linear', 'morton'"),
    ({"dtype": "int32"}, TypeError, "dtype is int32; give 'float32' or 'float64'"),
    ({"backend": "hip"}, ValueError, "backend 'hip' is unknown; choose one of cpu, cuda, opencl"),
    ({"threads": 0}, ValueError, "threads is 0; 1 to 4096 is allowed"),
    ({"threads": 1.5}, TypeError, "threads is 1.5; an integer of 1 to 4096 is needed"),
    ({"periodic": (True, False)}, ValueError, "periodic names 2 axes; the box has 3 axes: give one bool per axis"),
    ({"periodic": 1}, TypeError, "periodic is 1; give True, False or one of them for each axis"),
]


@pytest.mark.parametrize(("options", "error", "text"), REFUSED, ids=str)
def test_arguments_that_are_not_allowed_are_refused_in_words(options, error, text):
    cells = {} if not options or options.keys() & {"cell_size", "shape"} else {"shape": (2, 2, 2)}
    with pytest.raises(error, match=text):
        pm.UniformGrid(CUBE, **cells, **options)


def test_cells_are_as_thick_as_asked():
    for name, box in BOXES.items():
        sizes = np.linspace(0.19, 0.27, box.ndim)
        grid = pm.UniformGrid(box, cell_size=sizes if box.ndim > 1 else 0.19)
        thickness = 1 / np.linalg.norm(box.inverse, axis=1)
        assert np.all(thickness / grid.shape >= sizes * (1 - 1e-12)), name
        assert np.all(thickness / (np.array(grid.shape) + 1) < sizes), name
        assert grid.cells == np.prod(grid.shape)
    assert pm.UniformGrid((0.3, 0.3), cell_size=0.1).shape == (3, 3)  # 0.3 / 0.1 is 2.9999999999999996
    assert pm.UniformGrid((1.0, 1.0), cell_size=7.0).shape == (1, 1)
    assert pm.UniformGrid((8.0, 5.0), shape=(5, 3), levels=4).cells == 15 + 2 + 1 + 1
    assert pm.UniformGrid(2.0, shape=7, periodic=False).box == pm.Box(2.0, periodic=False)


def test_types_that_do_not_fit_are_refused(backend):
    with pytest.raises(TypeError, match="positions have dtype float64, more than this grid's float32 holds: use"):
        put(backend, CASE.grid(dtype="float32"), X)
    grid = CASE.grid(dtype="float64")
    put(backend, grid, X.astype("f4"))
    assert grid.positions.dtype == np.float64
    with pytest.raises(TypeError, match="positions have dtype complex128; real numbers are needed"):
        put(backend, grid, X + 0j)
    for keys, n, error, text in (
        (np.zeros(3), 4, TypeError, r"keys have dtype float64 and shape \(3,\); integers \(N,\) are needed"),
        (np.zeros((3, 1), int), 4, TypeError, r"keys have dtype int64 and shape \(3, 1\); integers"),
        (np.zeros(3, np.uint64), 4, TypeError, "keys have dtype uint64; int32 or int64 are needed"),
        (np.zeros(3, int), 0, ValueError, "n is 0; 1 to 2147483647 is allowed"),
        (np.zeros(3, int), 2.5, TypeError, "n is 2.5; an integer of 1 to 2147483647 is needed"),
        (np.array([1, 2**32 + 1, -(2**40)]), 4, ValueError, "1 outside .* of 3 particles; the first is 1"),
    ):
        with pytest.raises(error, match=text):
            grid.build_keys(backend.array(keys), n)
    assert len(grid.rank) == 200
    for bad in (X[:, :2], X[0], X[None]):
        with pytest.raises(ValueError, match=r"positions have shape \(.*\); in 3-D \(n, 3\)"):
            put(backend, grid, np.ascontiguousarray(bad))


def test_builders_that_cannot_serve_say_why(backend):
    for method in METHODS:
        if backend.name not in method.backends:
            with pytest.raises(pm.MethodNotSuitable, match=f"{method.name!r} cannot .*: runs on"):
                put(backend, CASE.grid(method=method.name), X)
    with pytest.raises(pm.MethodNotSuitable, match="'linked_list_packed' cannot .*: needs positions to lay the links"):
        CASE.grid(method="linked_list_packed").build_keys(backend.array(np.zeros(3, np.int32)), 2)


def test_a_box_has_its_own_periodic_axes():
    with pytest.raises(ValueError, match="periodic is True beside a Box, which has its own periodic: give it to"):
        pm.UniformGrid(pm.Box(CUBE), cell_size=0.1, periodic=True)
