# SPDX-License-Identifier: BSD-3-Clause
"""How much room queries take, what happens where there is too little, and what they refuse."""

import numpy as np
import pytest

import particlemesh as pm
from grid_cases import Case, all_pairs, check_answer, entries, oracle_of
from grid_checks import WALK, put
from scarce import Scarce

ALL = "ijdDS"
WRAPPED = Case("mixed", (4, 3, 5), "wrapped", 130, "f4")


def test_too_narrow_a_table_is_named(backend):
    with WRAPPED.grid() as grid:
        put(backend, grid, WRAPPED.positions)
        longest = int(backend.host(grid.count(0.5)).max())
        text = f"a row has {longest} pairs and room for {longest - 1}: give width={longest} or more"
        with pytest.raises(OverflowError, match=text):
            grid.pairs(0.5, half=False, format="dense", quantities=ALL, width=longest - 1)
        for width in (longest, longest + 7):
            pairs = grid.pairs(0.5, half=False, format="dense", quantities=ALL, width=width)
            assert pairs.j.shape == (130, width)
            check_answer(WRAPPED.domain, WRAPPED.positions, 0.5, entries(backend, pairs), oracle_of(WRAPPED))


@pytest.mark.backends("cuda", "opencl")
def test_too_little_room_for_unchecked_pairs_is_named(backend):
    x = WRAPPED.positions
    with WRAPPED.grid() as grid:
        put(backend, grid, x)
        total = int(backend.host(grid.pairs(0.5, half=False, quantities=ALL).start)[-1])
        pairs = grid.pairs(0.5, half=False, quantities=ALL, capacity=total + 40, check=False)
        assert pairs.j.shape == (total + 40,)
        used = pm.Pairs(pairs.start, *(getattr(pairs, n)[:total] for n in ("i", "j", "shift", "distance", "vector")))
        check_answer(WRAPPED.domain, x, 0.5, entries(backend, used), oracle_of(WRAPPED))
        grid.check()
        text = f"there are {total:,} pairs and room for {total - 1:,}: give capacity={total} or more"
        for _ in range(4):
            pairs = grid.pairs(0.5, half=False, quantities=ALL, capacity=total - 1, check=False)
            assert backend.host(pairs.start)[-1] == total  # what it takes is there to be read
            with pytest.raises(OverflowError, match=text):
                grid.check()
            grid.check()  # reported once
        for form, what in (("csr", "capacity"), ("dense", "width")):
            with pytest.raises(ValueError, match=f"check=False allocates nothing: give the {what} to reserve"):
                grid.pairs(0.5, format=form, check=False)


@pytest.mark.backends("cuda", "opencl")
def test_unchecked_steps_allocate_nothing(backend, monkeypatch):
    x, y = backend.array(WRAPPED.positions), backend.array(WRAPPED.positions[::-1])
    with WRAPPED.grid(backend=backend.name, dtype="float32") as grid:
        grid.reserve(130)

        def step(positions):
            grid.build(positions, check=False)
            return grid.pairs(0.5, half=False, quantities=ALL, capacity=2000, check=False)

        step(y)
        with monkeypatch.context() as patch:
            patch.setattr(backend.library, "empty", Scarce(backend.library.empty, 0))
            for positions in (y, x, x, x, y, x):
                pairs = step(positions)
        total = int(backend.host(pairs.start)[-1])
        used = pm.Pairs(pairs.start, *(getattr(pairs, n)[:total] for n in ("i", "j", "shift", "distance", "vector")))
        check_answer(WRAPPED.domain, WRAPPED.positions, 0.5, entries(backend, used), oracle_of(WRAPPED))
        grid.check()


@pytest.mark.backends("cuda", "opencl")
def test_unchecked_pairs_are_those_of_the_build_before(backend):
    # On GPUs calls that come again are played from tapes, builds with radii are not: one must not take the other's.
    box, x = WRAPPED.domain, WRAPPED.positions
    arrays = {n: (backend.array(x[:n]), backend.array(np.full(n, 0.1, "f4"))) for n in (130, 50, 90)}
    with WRAPPED.grid() as grid:
        for n in (130, 130, 130, 130, 130, 50, 130, 50, 90, 90, 90, 50, 130):
            grid.build(*arrays[n], check=False)
            pairs = grid.pairs(0.5, half=False, quantities=ALL, capacity=2000, check=False)
            start = backend.host(pairs.start)
            assert len(start) == n + 1
            fields = (getattr(pairs, name)[: int(start[-1])] for name in ("i", "j", "shift", "distance", "vector"))
            few = pm.Pairs(pairs.start, *fields)
            check_answer(box, x[:n], 0.5, entries(backend, few), all_pairs(box, x[:n], 0.5))


def test_room_is_counted_with_64_bits(backend, monkeypatch):
    case = Case("plane", (50, 40), "uniform", 5000, "f4")
    wide, rows = 2**31 - 1, 5000
    empty = backend.library.empty

    def limited(shape, dtype):
        size = int(np.prod(np.array(shape, object))) * np.dtype(dtype).itemsize
        if size > 2**30:
            raise MemoryError("no memory (made up by a test)")
        return empty(shape, dtype)

    with case.grid() as grid:
        put(backend, grid, case.positions)
        with monkeypatch.context() as patch:
            patch.setattr(backend.library, "empty", limited)
            text = f"{4 * wide * rows:,} bytes" if backend.name != "cpu" else "allocate"  # NumPy's own words
            with pytest.raises(MemoryError, match=text):
                grid.pairs(0.05, format="dense", width=wide)
            if backend.name != "cpu":
                with pytest.raises(MemoryError, match=f"{4 * 2**33:,} bytes"):
                    grid.pairs(0.05, capacity=2**33, check=False)
        assert 2 * len(grid.pairs(0.05, half=True).j) == backend.host(grid.count(0.05)).sum()


@pytest.mark.backends("cuda", "opencl")
def test_pairs_beyond_32_bits_are_counted_exactly(backend):
    from particlemesh.backends.tapes import Tapes
    from particlemesh.grid.queries.search import Search
    from particlemesh.grid.room import Room

    words = np.zeros(8, np.uint64)
    words[[4, 5]] = 2**40 + 7, 2**33  # pairs, and those of the longest row
    search = Search(backend.library, Room(backend.library, Tapes()))
    assert search.verdict(backend.array(words)) == (2**40 + 7, 2**33)
    with pytest.raises(OverflowError, match=r"there are 1,099,511,627,783 pairs and room for 1,099,511,627,782: give"):
        search.verdict(backend.array(words), capacity=2**40 + 6)
    with pytest.raises(OverflowError, match=r"a row has 8,589,934,592 pairs .* give width=8589934592 or more"):
        search.verdict(backend.array(words), width=2**31 - 1)


def test_queries_refuse_in_words(backend):
    x = backend.array(WRAPPED.positions)
    grid = WRAPPED.grid().build(x, 0.1)
    points = np.zeros((3, 3), "f4")
    bad = points.copy()
    bad[1, 2] = np.nan
    far = points.copy()
    far[2, 0] = 1e12
    cutoffs = np.full(130, 0.1, "f4")
    cutoffs[5] = -1
    for call, error, text in (
        (lambda: grid.pairs(-1.0), ValueError, "radius is -1.0; a finite number of at least zero is needed"),
        (lambda: grid.count(np.nan), ValueError, "radius is nan; a finite number"),
        (lambda: grid.neighbours(x, np.inf), ValueError, "radius is inf; a finite number"),
        (lambda: grid.pairs("0.1"), TypeError, "radius is"),
        (lambda: grid.pairs(True), TypeError, "radius is True; a number is needed"),
        (
            lambda: grid.pairs(backend.array(cutoffs[:9])),
            ValueError,
            r"radius has shape \(9,\); give one number, or \(",
        ),
        (lambda: grid.pairs(backend.array(cutoffs)), ValueError, "1 radii are negative.* not finite.* of particle 5"),
        (lambda: grid.pairs(backend.array(cutoffs.astype("f8"))), TypeError, "radius: dtype is float64, that of the p"),
        (lambda: grid.pairs(0.1, order="cells"), ValueError, "order is 'cells'; choose from 'input', 'grid'"),
        (lambda: grid.count(0.1, order=None), ValueError, "order is None; choose from 'input', 'grid'"),
        (lambda: grid.pairs(0.1, format="csc"), ValueError, "format is 'csc'; choose from 'csr', 'coo', 'dense'"),
        (lambda: grid.pairs(0.1, quantities="ijk"), ValueError, "quantities is 'ijk'; give letters of 'ijdDS'"),
        (lambda: grid.pairs(0.1, quantities="jj"), ValueError, "quantities is 'jj'; .* each at most once"),
        (lambda: grid.overlaps(quantities=None), ValueError, "quantities is None; give letters"),
        (lambda: grid.pairs(0.1, format="dense", width=-1), ValueError, "width is -1; 0 to 2147483647 is allowed"),
        (lambda: grid.nearest(0, 0.1), ValueError, "k is 0; 1 to 128 is allowed"),
        (lambda: grid.nearest(129, 0.1), ValueError, "k is 129; 1 to 128 is allowed"),
        (lambda: grid.nearest(2.0, 0.1), TypeError, "k is 2.0; an integer of 1 to 128 is needed"),
        (lambda: grid.nearest(2, -0.1), ValueError, "radius is -0.1; a finite number"),
        (lambda: grid.nearest(2, 0.1, backend.array(bad)), ValueError, "1 points are not finite .* is point 1"),
        (lambda: grid.neighbours(backend.array(bad), 0.1), ValueError, "1 points are not finite .* is point 1"),
        (
            lambda: grid.neighbours(backend.array(far), 0.1),
            ValueError,
            r"1 are 2\*\*20 boxes away or more.* is point 2",
        ),
        (lambda: grid.neighbours(backend.array(points.astype("f8")), 0.1), TypeError, "points have dtype float64"),
        (lambda: grid.neighbours(backend.array(points[:, :2].copy()), 0.1), ValueError, r"have shape \(3, 2\); in 3-D"),
    ):
        with pytest.raises(error, match=text):
            call()
    pairs = grid.pairs(0.5, half=True, format="coo", quantities=ALL)
    check_answer(
        WRAPPED.domain, WRAPPED.positions, 0.5, entries(backend, pairs), oracle_of(WRAPPED), half=True,
    )  # fmt: skip


def test_grids_that_answer_no_queries_say_why(backend):
    calls = [
        lambda grid: grid.pairs(0.1), lambda grid: grid.count(0.1), lambda grid: grid.nearest(3, 0.1),
        lambda grid: grid.neighbours(backend.array(np.zeros((3, 3), "f4")), 0.1), lambda grid: grid.overlaps(),
        lambda grid: grid.stream(0.1, WALK, backend.array(np.zeros((130, 2), "f4"))),
    ]  # fmt: skip
    empty, without = WRAPPED.grid(), WRAPPED.grid(queries=False)
    put(backend, without, WRAPPED.positions, np.full(130, 0.01, "f4"))
    keyed = WRAPPED.grid().build_keys(backend.array(np.zeros(130, np.int32)), 4)
    closed = WRAPPED.grid().build(backend.array(WRAPPED.positions))
    closed.close()
    for call in calls:
        with pytest.raises(RuntimeError, match="this grid has no particles yet: call build first"):
            call(empty)
        with pytest.raises(RuntimeError, match="this grid answers no queries: it was made with queries=False"):
            call(without)
        with pytest.raises(RuntimeError, match="this grid is closed; make a new one"):
            call(closed)
        with pytest.raises(
            (RuntimeError, ValueError), match="it has keys, not positions|these particles have no radii"
        ):
            call(keyed)


@pytest.mark.backends("cuda", "opencl")
def test_arrays_of_two_libraries_in_turn_without_waiting(backend):
    # What is played on the device must not answer for arrays that came from the host, nor as if they had.
    box, rng = WRAPPED.domain, np.random.default_rng(8)
    x = backend.array(np.zeros((90, box.ndim)))
    with pm.UniformGrid(box, shape=WRAPPED.cells, backend=backend.name, dtype="float64") as grid:
        grid.reserve(90)
        for turn in range(10):
            host = rng.random((90, box.ndim)) @ box.matrix + box.origin
            backend.library.copy(x, backend.array(host))
            native = turn not in (4, 8)
            grid.build(x if native else host, check=False)
            for _ in range(0 if turn < 4 else 5):  # builds are played by then
                pairs = grid.pairs(0.3, half=False, capacity=90 * 89, check=False)
                assert type(pairs.start) is (type(x) if native else np.ndarray)
                start = backend.host(pairs.start) if native else pairs.start
                assert start[-1] == len(all_pairs(box, host, 0.3).i)
                if not native:
                    pairs.start[:] = -7  # the caller's own


@pytest.mark.backends("cuda", "opencl")
def test_a_search_whose_place_went_to_another_is_not_played(backend):
    with WRAPPED.grid() as grid:
        put(backend, grid, WRAPPED.positions)

        def ask(radius, capacity):
            return grid.pairs(radius, half=True, capacity=capacity, check=False)

        for _ in range(4):
            ask(0.05, 4000)
        for n in range(63):
            ask(0.05 + 1e-4 * (n + 1), 4000)
        grid.check()
        ask(0.3, 10)
        ask(0.05, 4000)
        with pytest.raises(OverflowError, match="pairs and room for 10"):
            grid.check()
