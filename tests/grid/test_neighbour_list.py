# SPDX-License-Identifier: BSD-3-Clause
"""Neighbour lists in one call: letters, order, any box and any place, against all images of all pairs and others."""

import concurrent.futures
import itertools
import math
import sys

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import particlemesh as pm
from grid_cases import BOXES, SKEWED, all_pairs
from grid_checks import check_list as check
from grid_checks import cloud
from particlemesh.grid.neighbour_list import _cells, _Grid, drop_grids
from particlemesh.grid.uniform_grid import UniformGrid

# ---- letters ----------------------------------------------------------------------------------------------


def test_arrays_come_in_the_order_of_the_letters(backend):
    box, x = BOXES["mixed"], cloud(BOXES["mixed"], 60)
    x_there = backend.array(x)
    whole = dict(zip("ijdDS", pm.neighbour_list("ijdDS", x_there, box, 0.7), strict=True))
    whole = {letter: backend.host(array) for letter, array in whole.items()}
    assert len(whole["i"]) > 30
    some = ["S", "SijdD", "dDSij", "jdSDi"]  # each set of letters is a program of its own on GPUs
    if backend.name == "cpu":
        some = ["".join(letters) for length in (1, 2, 3, 5) for letters in itertools.permutations("ijdDS", length)]
    for letters in some:
        arrays = pm.neighbour_list(letters, x_there, box, 0.7)
        assert isinstance(arrays, tuple) == (len(letters) > 1)
        for letter, array in zip(letters, arrays if len(letters) > 1 else [arrays], strict=True):
            assert type(array) is type(x_there)
            result, known = backend.host(array), whole[letter]
            assert result.dtype == known.dtype and result.shape == known.shape
            for row in np.unique(whole["i"]):  # a row's pairs come in any order
                here = whole["i"] == row
                np.testing.assert_array_equal(np.sort(result[here], axis=0), np.sort(known[here], axis=0))
    for letter, kind in zip("ijdDS", ("i4", "i4", "f8", "f8", "i4"), strict=True):
        assert whole[letter].dtype == kind
        assert whole[letter].shape == (len(whole["i"]),) + ((3,) if letter in "DS" else ())


def test_letters_that_are_none():
    for letters in ("", "ii", "x", "ijP", 3, None):
        with pytest.raises(ValueError, match="quantities is"):
            pm.neighbour_list(letters, np.zeros((2, 2)), (1.0, 1.0), 0.1)


# ---- boxes and places -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "real"), list(zip(BOXES, ("f4", "f8") * 7, strict=True)))
def test_any_box_and_both_kinds_of_list(backend, name, real):
    box = BOXES[name]
    x, radius = cloud(box, 90, real), 0.1 if box.ndim == 1 else 0.5
    full, half = (check(backend, box, x, radius, half=half) for half in (False, True))
    assert full == 2 * half > 0


@pytest.mark.parametrize("real", ["f4", "f8"])
@pytest.mark.parametrize("name", [n for n, box in BOXES.items() if not all(box.periodic)])
def test_along_open_axes_particles_may_lie_anywhere(backend, name, real):
    box = BOXES[name]
    for beyond, move in ((3.0, 0.0), (0.7, 50.0), (0.7, -1000.0)):
        x = cloud(box, 90, real, beyond=beyond)
        x += (move * (~np.array(box.periodic)) @ box.matrix).astype(real)
        assert check(backend, box, x, 0.75, half=False) > 0


def test_the_length_of_an_open_axis_does_not_matter(backend):
    x = cloud(pm.Box((3.0, 2.0, 2.5)), 100)
    lists = []
    for length in (1e-3, 1.0, 2.5, 1e4):
        box = pm.Box((3.0, 2.0, length), periodic=(True, True, False))
        lists.append([backend.host(a) for a in pm.neighbour_list("ij", backend.array(x), box, 0.6)])
    for i, j in lists[1:]:
        assert set(zip(i.tolist(), j.tolist(), strict=True)) == set(zip(*(a.tolist() for a in lists[0]), strict=True))


@pytest.mark.parametrize("count", [1, 2, 40])
@pytest.mark.parametrize("matrix", [np.eye(3), SKEWED], ids=["upright", "skewed"])
def test_particles_in_a_plane_a_line_and_a_point_of_open_axes(backend, matrix, count):
    rng = np.random.default_rng(4)
    for flat in ((2,), (0, 2), (0, 1, 2)):
        s = rng.random((count, 3))
        s[:, flat] = 7.25
        for radius in (0.3, 1e-7, 0.0):
            box = pm.Box(matrix, periodic=[a not in flat for a in range(3)])
            check(backend, box, s @ matrix, radius)


@settings(max_examples=30)
@given(
    seed=st.integers(0, 2**31), d=st.integers(1, 3), skew=st.floats(0, 0.6), count=st.integers(0, 60),
    radius=st.just(0.0) | st.floats(1e-18, 1.4), periodic=st.tuples(*[st.booleans()] * 3),
    beyond=st.sampled_from([0.0, 1.0, 30.0]),
    half=st.booleans(), real=st.sampled_from(["f4", "f8"]),
)  # fmt: skip
def test_any_box_any_boundaries(backend, seed, d, skew, count, radius, periodic, beyond, half, real):
    rng = np.random.default_rng(seed)
    matrix = np.diag(rng.uniform(0.6, 2.0, d)) + skew * rng.uniform(-1, 1, (d, d))
    if abs(np.linalg.det(matrix)) < 0.1:
        return
    box = pm.Box(matrix, origin=rng.normal(size=d), periodic=periodic[:d])
    check(backend, box, cloud(box, count, real, beyond=beyond, seed=seed), radius, half=half)


# ---- arguments --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["mixed", "skewed plane", "open line"])
def test_cutoffs_of_each_particle_add_up(backend, name):
    box = BOXES[name]
    x = cloud(box, 80, beyond=1.0)
    widths = np.random.default_rng(5).random(80) ** 3 * 0.6
    widths[::7] = 0
    oracle = all_pairs(box, x, 2 * widths.max())
    for half in (False, True):
        check(backend, box, x, widths[oracle.i] + widths[oracle.j], oracle=oracle, half=half, widths=widths)


def test_one_cutoff_for_all_may_come_in_many_forms():
    x = cloud(pm.Box((1.0, 1.0)), 50)
    expected = pm.neighbour_list("ij", x, (1.0, 1.0), 0.2)
    for radius in (np.float32(0.2), np.float64(0.2), np.array(0.2), [0.1] * 50, np.full(50, 0.1)):
        arrays = pm.neighbour_list("ij", x, (1.0, 1.0), radius)
        assert abs(len(arrays[0]) - len(expected[0])) <= 2  # float32 is another number


@pytest.mark.parametrize("count", [0, 1, 2])
@pytest.mark.parametrize("periodic", [True, False])
def test_few_particles_or_none(backend, count, periodic):
    x = np.array([[0.2, 0.3], [0.9, 0.3]])[:count]
    arrays = pm.neighbour_list("ijdDS", backend.array(x), (1.0, 1.0), 0.5, periodic=periodic)
    assert [a.shape for a in arrays] == [(2 * (count == 2 and periodic),)] * 3 + [(len(arrays[0]), 2)] * 2
    widths = backend.array(np.full(count, 0.25))
    assert pm.neighbour_list("d", backend.array(x), (1.0, 1.0), widths, periodic=periodic).shape == arrays[0].shape


def test_radius_zero_finds_particles_in_one_place(backend):
    for count in (5, 300):
        x = np.repeat(np.random.default_rng(8).random((count, 3)), 2, axis=0)
        for periodic in (True, False):
            arrays = pm.neighbour_list("ijd", backend.array(x), (1.0,) * 3, 0, periodic=periodic)
            i, j, d = (backend.host(a) for a in arrays)
            np.testing.assert_array_equal(i, np.arange(2 * count))
            np.testing.assert_array_equal(j, i ^ 1)
            assert not d.any()


def test_whole_numbers_and_boxes():
    x = np.random.default_rng(9).random((40, 2))
    line = pm.neighbour_list("ij", np.array([0, 3, 4, 9]), 10, 1)  # whole numbers along one axis
    assert [a.tolist() for a in line] == [[0, 1, 2, 3], [3, 2, 1, 0]]
    box = pm.Box((1.0, 1.0), periodic=(True, False))
    expected = pm.neighbour_list("i", x, (1.0, 1.0), 0.2, periodic=(True, False))
    np.testing.assert_array_equal(pm.neighbour_list("i", x, box, 0.2), expected)
    with pytest.raises(ValueError, match="periodic"):
        pm.neighbour_list("i", x, box, 0.2, periodic=True)


@pytest.mark.backends("opencl", "cuda")
def test_host_arrays_go_to_a_named_backend_and_back(backend):
    box, x = BOXES["triclinic mixed"], cloud(BOXES["triclinic mixed"], 80, beyond=2.0)
    for radius in (0.5, np.full(80, 0.25)):
        i, shift = pm.neighbour_list("iS", x, box, radius, backend=backend.name)
        assert isinstance(i, np.ndarray) and isinstance(shift, np.ndarray)
        np.testing.assert_array_equal(i, pm.neighbour_list("i", x, box, radius))


def test_threads_change_nothing():
    box, x = BOXES["open"], cloud(BOXES["open"], 500)
    for a, b in zip(*(pm.neighbour_list("ijS", x, box, 0.4, threads=n) for n in (1, 2)), strict=True):
        np.testing.assert_array_equal(np.sort(a, axis=0), np.sort(b, axis=0))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("matrix", [np.eye(3) * 3, SKEWED], ids=["upright", "skewed"])
def test_positions_that_are_no_numbers_are_named(backend, matrix, bad):
    x = cloud(pm.Box(matrix), 20)
    x[[5, 12], 1] = bad
    for periodic in (True, False, (True, False, True)):
        with pytest.raises(ValueError, match="2 not finite of 20 particles; the first is 5"):
            pm.neighbour_list("ij", backend.array(x), matrix, 0.3, periodic=periodic)
    with pytest.raises(ValueError, match="20 not finite"):
        pm.neighbour_list("ij", backend.array(np.full((20, 3), bad)), matrix, 0.3, periodic=False)


@pytest.mark.parametrize(("radius", "kind", "said"), [
    (-1.0, ValueError, "radius is"), (math.nan, ValueError, "radius is"), (math.inf, ValueError, "radius is"),
    ("1", TypeError, "number is needed"), (True, TypeError, "number is needed"),
    (np.full(9, 0.1), ValueError, "shape (9,)"), (np.full((10, 1), 0.1), ValueError, "shape (10, 1)"),
    ([0.1, 0.1, -0.2, 0.1, math.nan] * 2, ValueError, "4 radii are negative or not finite; the first is that of"),
])  # fmt: skip
def test_wrong_radii(radius, kind, said):
    with pytest.raises(kind) as error:
        pm.neighbour_list("ij", np.random.default_rng(1).random((10, 2)), (1.0, 1.0), radius)
    assert said in str(error.value)


# ---- cells ------------------------------------------------------------------------------------------------


@settings(max_examples=200)
@given(
    lengths=st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=3), count=st.integers(0, 10**6), thin=st.booleans(),
    reach=st.sampled_from([0.0, 1e-300, 1e-9, 1.0, 1e9]),
)  # fmt: skip
def test_cells_are_as_thick_as_the_reach_and_not_too_many(lengths, reach, count, thin):
    box = pm.Box(lengths)
    cells = _cells(tuple(box.lengths.tolist()), reach, 8 * count + 4096, count, thin=thin)
    assert math.prod(cells) <= 8 * count + 4096
    sizes = np.full(box.ndim, reach / (2 if thin else 1))
    sizes[-1] = reach / (16 if thin else 1)
    for n, length, size in zip(cells, lengths, sizes, strict=True):
        assert n == 1 or length / n >= size * (1 - 1e-9)


def test_plain_cells_on_the_cpu_and_thin_ones_on_gpus():
    lengths = (10.0, 10.0, 10.0)
    assert _cells(lengths, 1.0, 12_096, 1000, thin=False) == (10, 10, 10)
    assert _cells(lengths, 1.0, 12_096, 1000, thin=True) == (10, 10, 40)
    assert math.prod(_cells(lengths, 0.01, 12_096, 1000, thin=True)) > 4000  # no fewer than there may be, by much
    for count in (70_000, 71_000):  # 293 neighbours: eight of a column fill a cube, about one is in a cell
        assert _cells(lengths, 1.0, 10**6, count, thin=True) == (17, 17, 160)
    assert _cells(lengths, 1.0, 10**6, 10**6, thin=True) == (20, 20, 160)
    assert _cells(lengths, 1.0, 10**6, 30_000, thin=True) == (10, 10, 40)  # 126 neighbours: rows are counted one by one
    assert _cells(lengths[:2], 1.0, 10**6, 4_000, thin=True) == (10, 40)
    assert _cells(lengths[:2], 1.0, 10**6, 8_000, thin=True) == (20, 160)
    assert _cells(lengths, 1.0, 10**6, 70_000, thin=False) == (10, 10, 10)


# ---- grids that are kept between calls --------------------------------------------------------------------


def test_kept_grids_change_no_result(backend):
    drop_grids()
    kept = []
    for turn, (count, radius, real) in enumerate([(300, 0.2, "f8"), (500, 0.2, "f8"), (300, 0.15, "f4")] * 3):
        x = np.random.default_rng(turn).random((count, 3)).astype(real)
        got = pm.neighbour_list("ijS", backend.array(x), (1.0, 1.0, 1.0), radius)
        kept.append((got, pm.neighbour_list("ijS", x, (1.0, 1.0, 1.0), radius)))
    assert drop_grids() or backend.name == "cpu"  # which has plain arrays
    for pair in kept:  # no call writes to another's result
        one, other = (np.column_stack([backend.host(a) if arrays is pair[0] else a for a in arrays]) for arrays in pair)
        assert sorted(one.tolist()) == sorted(other.tolist())


def test_repeated_lists_of_systems_follow_all_that_is_given(backend):
    """The same arrays in place, other ones, other boxes and back, systems in another order: as in a first call."""
    drop_grids()
    random = np.random.default_rng(3)
    x, ids = random.random((240, 3)).astype("f4"), (np.arange(240) % 6).astype("i4")
    boxes = [np.full((6, 3), 1.0), random.uniform(0.8, 1.3, (6, 3)), random.uniform(0.8, 1.3, (6, 3))]
    here = backend.array(x), backend.array(ids)
    for turn in range(12):
        which = boxes[(0, 0, 0, 1, 0, 1, 1, 1, 2, 1, 0, 0)[turn]]
        if turn % 3 == 2:
            x, ids = random.random((240, 3)).astype("f4"), random.permutation(ids)
            here = backend.array(x), backend.array(ids)
        got = pm.neighbour_list("ijS", here[0], (1.0,) * 3, 0.3, system=here[1], boxes=backend.array(which))
        got = np.column_stack([backend.host(a) for a in got]).tolist()
        right = []
        for s in range(6):
            mine = np.flatnonzero(ids == s)
            i, j, turns = pm.neighbour_list("ijS", x[mine], tuple(which[s].tolist()), 0.3)
            right += np.column_stack([mine[i], mine[j], turns]).tolist()
        assert sorted(got) == sorted(right), turn


def test_lists_of_systems_name_what_is_wrong_at_every_call(backend):
    drop_grids()
    x, ids = np.random.default_rng(4).random((90, 2)), np.arange(90, dtype="i4") % 3
    boxes = backend.array(np.ones((3, 2)))
    for turn in range(6):
        bad_x, bad_ids = x.copy(), ids.copy()
        if turn % 2:
            bad_x[7, 1] = np.nan
            said = r"the first is (that of particle )?7"
        else:
            bad_ids[11] = 3
            said = r"first is (that of particle )?11"
        with pytest.raises(ValueError, match=said):
            pm.neighbour_list("ij", backend.array(bad_x), (1.0, 1.0), 0.2, system=backend.array(bad_ids), boxes=boxes)
        good = pm.neighbour_list("i", backend.array(x), (1.0, 1.0), 0.2, system=backend.array(ids), boxes=boxes)
        assert good.shape[0] > 0


def test_threads_share_no_kept_grid():
    x = [np.random.default_rng(n).random((400, 2)) for n in range(8)]
    system = np.arange(400) % 5
    alone = [pm.neighbour_list("ij", one, (1.0, 1.0), 0.2, system=system) for one in x]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        many = pool.map(lambda n: pm.neighbour_list("ij", x[n % 8], (1.0, 1.0), 0.2, system=system), range(64))
        for n, got in enumerate(many):
            np.testing.assert_array_equal(got, alone[n % 8])


def test_kept_grids_keep_no_positions(backend):
    x = backend.array(np.random.default_rng(1).random((300, 3)))
    for _ in range(3):
        pm.neighbour_list("ij", x, (1.0, 1.0, 1.0), 0.2)
    pm.neighbour_list("ij", backend.array(np.random.default_rng(2).random((300, 3))), (1.0, 1.0, 1.0), 0.2)
    backend.wait()
    assert sys.getrefcount(x) == 2  # this function and the call


def test_where_memory_lacks_kept_grids_make_room(backend, monkeypatch):
    x = backend.array(np.random.default_rng(1).random((300, 3)))
    system = backend.array(np.zeros(300, np.int32))
    expected = pm.neighbour_list("j", x, (1.0, 1.0, 1.0), 0.2, system=system)
    pairs, failed = UniformGrid.pairs, []

    def full(grid, *arguments, **options):
        if not failed:
            failed.append(grid)
            raise MemoryError("made up by a test")
        return pairs(grid, *arguments, **options)

    def none(*_, **__):
        raise MemoryError("made up by a test")

    monkeypatch.setattr(UniformGrid, "pairs", full)
    monkeypatch.setattr(_Grid, "listed", none)
    pm.neighbour_list("j", backend.array(np.random.default_rng(2).random((90, 2))), (1.0, 1.0), 0.2, system=system[:90])
    failed.clear()
    got = pm.neighbour_list("j", x, (1.0, 1.0, 1.0), 0.2, system=system)
    # Rows come in any order on GPUs.
    np.testing.assert_array_equal(np.sort(backend.host(got)), np.sort(backend.host(expected)))
    monkeypatch.setattr(UniformGrid, "pairs", lambda *_, **__: full(failed.clear()))
    with pytest.raises(MemoryError, match="made up"):
        pm.neighbour_list("j", x, (1.0, 1.0, 1.0), 0.2, system=system)
