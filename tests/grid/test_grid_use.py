# SPDX-License-Identifier: BSD-3-Clause
"""Grids in use: two threads at once, old notes, memory, small conveniences."""

import pickle
import threading
import time
import tracemalloc

import numpy as np
import pytest

import particlemesh as pm
from pair_sums import VALUES
from particlemesh.backends import memory
from particlemesh.grid.builders import METHODS

RNG = np.random.default_rng(5)
X = RNG.random((200, 3))


# ---- threads ----------------------------------------------------------------------------------------------


def test_what_a_grid_holds_is_not_read_while_another_thread_is_inside(backend):
    grid = pm.UniformGrid((1.0, 1.0, 1.0), shape=(4, 4, 4)).build(backend.array(X))
    holder = threading.Thread(target=grid.busy.acquire)
    holder.start()
    holder.join()
    for read in (lambda: grid.status, lambda: grid.order, lambda: grid.storage,
                 lambda: grid.pairs(0.1, capacity=9, check=False)):  # fmt: skip
        with pytest.raises(RuntimeError, match="another thread is using this UniformGrid: make a UniformGrid for each"):
            read()
    assert pickle.loads(pickle.dumps(grid)).build(backend.array(X)).size == 200


def test_threads_that_share_a_grid_get_an_answer_or_an_error(backend):
    many = backend.array(RNG.random((5000, 3)))
    grid = pm.UniformGrid((1.0, 1.0, 1.0), shape=(9, 9, 9)).build(many)
    expected, wrong = backend.host(grid.count(0.1)).tolist(), []

    def work():
        for _ in range(20):
            try:
                grid.build(many)
                if backend.host(grid.count(0.1)).tolist() != expected:
                    wrong.append("another answer")
            except RuntimeError as error:
                if "another thread is using" not in str(error):
                    wrong.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


# ---- old notes --------------------------------------------------------------------------------------------


@pytest.mark.backends("cuda", "opencl")
def test_a_good_build_forgets_what_searches_before_it_found_wrong(backend):
    x = backend.array(X)
    with pm.UniformGrid((1.0, 1.0, 1.0), shape=(4, 4, 4)) as grid:
        for check in (True, False, False, False):
            grid.build(x)
            grid.pairs(0.4, capacity=3, check=False)
            grid.build(x, check=check)
            grid.check()
            grid.pairs(0.4, capacity=3, check=False)  # of the new build
            with pytest.raises(OverflowError, match="room for 3"):
                grid.check()


# ---- memory -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("count", "shape", "real"), [(60_000, 20, "f8"), (60_000, 30, "f4"), (5000, 64, "f8")])
@pytest.mark.parametrize("queries", [True, False])
@pytest.mark.parametrize("method", METHODS)
def test_predicted_bytes_are_those_of_a_build(method, count, shape, real, queries):
    x = (RNG.random((count, 3)) * 3 - 1).astype(real)
    radii = np.full(count, 0.4 / shape, real) if method.name == "linked_list_tight" else None

    def build():
        return pm.UniformGrid((1.0,) * 3, shape=(shape,) * 3, method=method.name, queries=queries, threads=1).build(
            x, radii
        )

    build()
    time.sleep(0.1)
    tracemalloc.start()
    grid = build()
    time.sleep(0.1)  # threads of the pool let go of their last call
    held, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    predicted = method.scratch_bytes(grid._built.problem)
    assert peak / 1.15 <= predicted <= 1.6 * peak
    assert held / 1.2 <= grid.nbytes <= 1.2 * held


def test_what_is_not_free_is_refused_and_not_killed(monkeypatch):
    monkeypatch.setattr(memory, "free_bytes", lambda: 2**30)
    with pytest.raises(MemoryError, match=r"cannot allocate [\d,]+ bytes for a grid of 2,147,483,647 cells and 4 part"):
        pm.UniformGrid(1.0, shape=1).build_keys(np.arange(4), 2**31 - 1)
    with pytest.raises(MemoryError, match="a grid of 1,000,000,000 cells and 200 particles: 1,073,741,824 are free"):
        pm.UniformGrid((1.0,) * 3, shape=(1000,) * 3).build(X)
    grid = pm.UniformGrid((1.0,) * 3, shape=(4,) * 3).build(X)
    with pytest.raises(MemoryError, match=r"pairs"):
        grid.pairs(30.0, quantities="ijSdD")
    assert len(grid.pairs(0.1).start) == 201


def test_free_bytes_are_those_that_a_process_can_get():
    free = memory.free_bytes()
    assert free > 2**20
    memory.check_room(2**10, "little")
    with pytest.raises(MemoryError, match=r"cannot allocate 4,611,686,018,427,387,904 bytes for much: [\d,]+ are free"):
        memory.check_room(2**62, "much")


# ---- conveniences -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["csr", "coo", "dense"])
@pytest.mark.parametrize("half", [False, True])
def test_pairs_have_a_length_and_unpack(backend, form, half):
    grid = pm.UniformGrid((1.0, 1.0, 1.0), shape=(4, 4, 4)).build(backend.array(X))
    whole = grid.pairs(0.2, half=half, format="coo", quantities="ij")
    expected = sorted(zip(backend.host(whole.i).tolist(), backend.host(whole.j).tolist(), strict=True))
    assert len(whole) == len(expected) > 100
    pairs = grid.pairs(0.2, half=half, format=form, quantities="ij" if form == "dense" else "j")
    assert len(pairs) == len(expected)
    i, j = pairs
    assert type(i) is type(j)
    i, j = backend.host(i).ravel(), backend.host(j).ravel()
    assert sorted(zip(i[j >= 0].tolist(), j[j >= 0].tolist(), strict=True)) == expected
    assert i.dtype == np.int32


def test_pairs_without_particles_say_what_to_ask_for():
    grid = pm.UniformGrid((1.0, 1.0, 1.0), shape=(4, 4, 4)).build(X)
    with pytest.raises(ValueError, match="ask for quantities='ij'"):
        _, _ = grid.pairs(0.2, quantities="d")
    assert len(grid.pairs(0.2, quantities="d")) == len(grid.pairs(0.2))
    assert len(grid.pairs(0.2, quantities="")) == len(grid.pairs(0.2))


def test_lists_come_from_both_sides_by_default_in_one_call_and_in_two():
    grid = pm.UniformGrid((1.0, 1.0, 1.0), shape=(4, 4, 4)).build(X)
    i, j = grid.pairs(0.2)
    other = pm.neighbor_list("ij", X, (1.0, 1.0, 1.0), 0.2)
    assert pm.neighbor_list is pm.neighbour_list
    assert sorted(zip(i.tolist(), j.tolist(), strict=True)) == sorted(zip(*(a.tolist() for a in other), strict=True))
    assert 2 * len(grid.pairs(0.2, half=True)) == len(i)


@pytest.mark.parametrize("periodic", [True, False])
@pytest.mark.parametrize("real", ["f4", "f8"])
def test_numbers_at_the_ends_of_a_type_give_errors_of_ours_or_answers(backend, periodic, real):
    x = X[:10].astype(real)
    for radius in (1e39, 1e300):
        if periodic:
            with pytest.raises(ValueError, match=r"radius is .* images of every particle"):
                pm.neighbour_list("i", backend.array(x), (1.0, 1.0, 1.0), radius)
        else:
            assert len(pm.neighbour_list("i", backend.array(x), (1.0, 1.0, 1.0), radius, periodic=False)) == 90
            grid = pm.UniformGrid((1.0,) * 3, shape=(3,) * 3, periodic=False).build(backend.array(x))
            assert (backend.host(grid.count(radius)) == 9).all()
    tiny = pm.Box((1e-38,) * 3, periodic=periodic)
    grid = pm.UniformGrid(tiny, shape=(3,) * 3)
    if real == "f4":
        with pytest.raises(ValueError, match=r"Box\(.*1e-38.* is beyond the range of float32.*float64"):
            grid.build(backend.array(np.zeros((5, 3), real)))
    else:
        assert (backend.host(grid.build(backend.array(x * 1e-38)).count(5e-39)) > 0).any()


def test_streams_read_values_that_are_read_only_and_write_elsewhere():
    x, values = np.random.default_rng(1).random((20, 3)), np.ones(20)
    values.flags.writeable = False

    grid = pm.UniformGrid((1.0, 1.0, 1.0), cell_size=0.25).build(x)
    out = np.empty((20, 1))
    assert grid.stream(0.3, VALUES, values, out=out) is out
    np.testing.assert_array_equal(out[:, 0], grid.count(0.3))
    with pytest.raises(ValueError, match="out shares memory with the input"):
        grid.stream(0.3, VALUES, out[:, 0], out=out)
    with pytest.raises(ValueError, match="read-only"):
        grid.stream(0.3, VALUES, out[:, 0], out=values[:, None])


def test_pairs_are_shown_by_their_shapes():
    pairs = pm.UniformGrid(1.0, shape=4).build(np.array([0.05, 0.5, 0.95])).pairs(0.2)
    assert repr(pairs) == "<Pairs: start (4,), j (2,)>"
    assert repr(pm.Pairs(j=[1])) == "<Pairs: j (1,)>"
