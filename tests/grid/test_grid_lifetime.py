# SPDX-License-Identifier: BSD-3-Clause
"""What becomes of a grid and of users' arrays: kinds, memory, streams, copies, capture."""

import gc
import itertools
import pickle
import weakref

import numpy as np
import pytest

import particlemesh as pm
from devices import Device
from grid_cases import Case, check_cells, walk
from grid_checks import check_grid, check_order, order_of, own_radii, put, stored
from particlemesh.grid.builders import METHODS
from scarce import Scarce

CASE = Case("mixed", (4, 3, 5), "wrapped", 200, "f8")
BOX, CELLS, X = CASE.domain, CASE.cells, CASE.positions
Y = np.ascontiguousarray(X[::-1] * 0.5 + BOX.origin * 0.5)  # others, in the box too


def keys_of(backend, grid, count=200):
    start, order, rank = order_of(backend, grid)
    return check_order(start[:-1], start[1:], order, rank, count)


def held(backend, grid, x):
    """Check that these are the particles of the grid."""
    check_cells(BOX, CELLS, x, keys_of(backend, grid, len(x)))


# ---- arrays -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["fortran", "interleaved", "strided", "reversed"])
def test_any_strides_equal_a_copy(backend, builder, order):
    radii = own_radii(builder, CASE)
    given = backend.array(X, order)
    sizes = None if radii is None else backend.array(radii, order)
    with CASE.grid(method=builder.name) as grid:
        grid.build(given, sizes)
        check_grid(backend, grid, BOX, CELLS, X, radii)
        grid.build(tuple(backend.array(X[:, a], order) for a in range(3)), sizes)
        check_grid(backend, grid, BOX, CELLS, X, radii)
    np.testing.assert_array_equal(backend.host(given), X)


def test_arrays_stay_as_they_are_and_are_not_needed_any_more(backend, builder):
    radii = own_radii(builder, CASE)
    x, sizes = backend.array(X), None if radii is None else backend.array(radii)
    with CASE.grid(method=builder.name) as grid:
        grid.build(x, sizes)
        np.testing.assert_array_equal(backend.host(x), X)
        x[...] = np.nan
        if sizes is not None:
            np.testing.assert_array_equal(backend.host(sizes), radii)
            sizes[...] = np.nan
        check_grid(backend, grid, BOX, CELLS, X, radii)


def test_host_arrays_of_every_make():
    frozen, expected = X.copy(), CASE.grid(deterministic=True).build(X)
    frozen.setflags(write=False)
    shifted = np.frombuffer(b"x" + X.tobytes(), dtype=np.uint8)[1:].view(np.float64).reshape(X.shape)  # misaligned
    for given in (
        X.tolist(), tuple(X.T.tolist()), tuple(X.T), frozen, X.astype(">f8"), shifted, X.T.copy().T, X[::-1][::-1],
        [tuple(p) for p in X.tolist()],
    ):  # fmt: skip
        grid = CASE.grid(deterministic=True).build(given)
        np.testing.assert_array_equal(grid.order, expected.order)
        assert type(grid.order) is np.ndarray
    whole = pm.UniformGrid((8.0, 8.0), shape=(4, 4)).build(np.array([[1, 2], [7, 0]], np.int32))
    np.testing.assert_array_equal(whole.positions, [[1, 2], [7, 0]])
    assert whole.positions.dtype == np.float64


def test_radii_of_every_make(backend):
    thickness = (1 / np.linalg.norm(BOX.inverse, axis=1) / CELLS).min()
    radii = np.where(np.arange(200) % 3 == 0, thickness, thickness / 4)
    with CASE.grid(levels=2) as grid:
        expected = keys_of(backend, put(backend, grid, X, radii))
        assert len(np.unique(expected >= 60)) == 2
        strided = backend.array(radii, "strided")
        for given in (radii.tolist(), strided, backend.array(radii.astype("f4")), radii, np.repeat(radii, 2)[::2]):
            grid.build(backend.array(X), given)
            np.testing.assert_array_equal(keys_of(backend, grid), expected)
        boxes = backend.array(np.full((200, 3), thickness))
        for given in (thickness, np.float64(thickness), np.array(thickness), boxes):
            grid.build(backend.array(X), given)
            assert (keys_of(backend, grid) >= 60).all()
        np.testing.assert_array_equal(backend.host(strided), radii)


def test_torch_tensors_come_back_as_such():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    expected = CASE.grid(deterministic=True).build(X)
    grid = CASE.grid(deterministic=True).build(torch.tensor(X), torch.full((200,), 0.01, dtype=torch.float64))
    for name in ("cell_start", "order", "rank", "positions"):
        result = getattr(grid, name)
        assert isinstance(result, torch.Tensor)
        np.testing.assert_array_equal(result.numpy(), getattr(expected, name))
    with pytest.raises(TypeError, match="requires grad"):
        grid.build(torch.tensor(X, requires_grad=True))


def test_host_arrays_go_to_the_backend_that_was_named_and_back(backend):
    with CASE.grid(backend=backend.name, levels=2) as grid:
        grid.build(X, np.full(200, 0.2))
        for result in (grid.cell_start, grid.order, grid.rank, grid.positions):
            assert type(result) is np.ndarray
        check_grid(Device.of("cpu"), grid, BOX, CELLS, X, 0.2, levels=2)
        grid.build_keys(np.arange(9) % 4, 4)
        np.testing.assert_array_equal(grid.cell_start, [0, 3, 5, 7, 9])
    if backend.name != "cpu":
        with CASE.grid() as grid:
            put(backend, grid, X)
            with pytest.raises(TypeError, match=f"positions is a NumPy array and the work is on '{backend.name}'"):
                grid.build(X)
            held(backend, grid, X)


# ---- memory -----------------------------------------------------------------------------------------------


def test_many_builds_leak_nothing(backend, builder):
    x, radii = backend.array(X), own_radii(builder, CASE)
    sizes = None if radii is None else backend.array(radii)
    grid = CASE.grid(method=builder.name)
    assert grid.nbytes == 0
    bytes_held = [grid.build(x, sizes, check=k % 3 > 0).nbytes for k in range(60)]
    assert len(set(bytes_held[3:])) == 1 and bytes_held[-1] > 0
    grid.close()
    grid.close()
    assert grid.nbytes == 0
    np.testing.assert_array_equal(backend.host(x), X)


@pytest.mark.parametrize("checked", [True, False])
def test_builds_of_new_arrays_keep_none_of_them(backend, checked):
    grid, known = CASE.grid(), []
    for _ in range(8):
        x = backend.array(X)
        known.append(weakref.ref(x))
        grid.build(x, check=checked)
        del x
    gc.collect()
    assert sum(one() is not None for one in known) <= 2  # of this build, and of what may come again


def test_a_closed_grid_says_so(backend):
    with CASE.grid(backend=backend.name, dtype="float64") as grid:
        for call in (lambda: grid.order, lambda: grid.status, lambda: grid.check(), lambda: grid.explain()):
            with pytest.raises(RuntimeError, match="this grid has no particles yet: call build first"):
                call()
        assert grid.nbytes == 0 and repr(grid).endswith("cells, empty>")
        put(backend, grid, X)
    for call in (
        lambda: put(backend, grid, X), lambda: grid.build_keys(backend.array(np.zeros(3, np.int32)), 2),
        lambda: grid.reserve(5), lambda: grid.status, lambda: grid.check(), lambda: grid.explain(),
        lambda: grid.cell_start, lambda: grid.order, lambda: grid.rank, lambda: grid.positions, lambda: grid.storage,
    ):  # fmt: skip
        with pytest.raises(RuntimeError, match="this grid is closed; make a new one"):
            call()


@pytest.mark.parametrize("sizes", [0, 1, 3])
def test_a_grid_with_reserved_memory_allocates_nothing(backend, builder, sizes, monkeypatch):
    radii = np.full((200, sizes)[: 1 + (sizes > 1)], 0.1)
    given = backend.array(radii) if sizes else None
    x, y, few = backend.array(X), backend.array(Y), backend.array(X[:7])
    with CASE.grid(method=builder.name, backend=backend.name, dtype="float64") as grid:
        if builder.name == "linked_list_tight" and not sizes:
            return
        grid.reserve(250, radii=sizes)
        with monkeypatch.context() as patch:
            patch.setattr(backend.library, "empty", Scarce(backend.library.empty, 0))
            patch.setattr(backend.library, "upload", Scarce(backend.library.upload, 0))
            for some in (x, y, few, x, x, x, y):
                grid.build(some, given if sizes == 0 or len(some) == 200 else given[:7], check=False)
        check_grid(backend, grid, BOX, CELLS, Y, radii if sizes else None)
        grid.check()
        with pytest.raises(ValueError, match=r"300 particles, but room is reserved for 250: reserve\(300\) first"):
            grid.build(backend.array(np.concatenate([X, X[:100]])), check=False)
        held(backend, grid, Y)


def test_out_of_memory_leaves_the_grid_as_it_was(backend, builder, monkeypatch):
    many = np.concatenate([X] * 9)
    case = CASE._replace(count=1800)
    radii = {len(x): own_radii(builder, case, x) for x in (X, many)}
    failures = 0
    for passes in itertools.count():
        grid = CASE.grid(method=builder.name)
        put(backend, grid, X, radii[200])
        scarce = Scarce(backend.library.empty, passes)
        with monkeypatch.context() as patch:
            patch.setattr(backend.library, "empty", scarce)
            try:
                put(backend, grid, many, radii[1800])
            except MemoryError:
                failures += 1
        count = len(grid.rank)
        check_grid(backend, grid, BOX, CELLS, many if count > 200 else X, radii[count])
        put(backend, grid, many, radii[1800])
        held(backend, grid, many)
        grid.close()
        if not scarce.failed:
            break
    assert failures >= 2 or backend.name == "cpu"  # where NumPy allocates


def test_reserve_keeps_what_is_there(backend, builder):
    radii = own_radii(builder, CASE)
    with CASE.grid(method=builder.name) as grid:
        put(backend, grid, X, radii)
        grid.reserve(70, radii=int(radii is not None))  # where and in which type is known from the build
        check_grid(backend, grid, BOX, CELLS, X, radii)
        put(backend, grid, X[:70], None if radii is None else radii[:70], check=False)
        held(backend, grid, X[:70])
    for options in ({}, {"backend": backend.name}, {"dtype": "float64"}):
        with pytest.raises(ValueError, match="reserve needs to know where and in which type"):
            CASE.grid(**options).reserve(5)
    with pytest.raises(ValueError, match="radii is 2; 0, 1 or 3 numbers of each particle are possible"):
        CASE.grid(backend=backend.name, dtype="float64").reserve(5, radii=2)


def test_a_pickled_grid_is_a_recipe(backend):
    options = dict(method="fixed", capacity=50, layout="row", levels=2, threads=2, queries=False)
    with CASE.grid(**options) as grid, CASE.grid(deterministic=True, backend=backend.name, dtype="float32") as other:
        fresh = pickle.loads(pickle.dumps(grid))
        put(backend, grid, X)
        data = pickle.dumps(grid)
        assert len(data) < 2000  # no particles, no compiled code
        for copy in (fresh, pickle.loads(data)):
            assert (copy.box, copy.shape, copy.levels, copy.threads, copy.queries) == (BOX, CELLS, 2, 2, False)
            with pytest.raises(RuntimeError, match="no particles yet"):
                copy.order  # noqa: B018
            put(backend, copy, X)
            assert stored(backend, copy)[2:] == (50, 50, 1)
            held_now, expected = stored(backend, copy), stored(backend, grid)
            np.testing.assert_array_equal(held_now.counts, expected.counts)
        copy = pickle.loads(pickle.dumps(other))
        assert (copy.deterministic, copy.backend is other.backend, copy.dtype) == (True, True, np.float32)


# ---- streams ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("checked", [True, False])
def test_two_grids_in_turn_on_one_device(backend, builder, checked):
    radii = own_radii(builder, CASE)
    sizes = None if radii is None else backend.array(radii)
    with CASE.grid(method=builder.name) as first, CASE.grid(method=builder.name) as second:
        for _ in range(3):
            first.build(backend.array(X), sizes, check=checked)
            second.build(backend.array(Y), sizes, check=checked)
        check_grid(backend, first, BOX, CELLS, X, radii)
        check_grid(backend, second, BOX, CELLS, Y, radii)


@pytest.mark.backends("cuda", "opencl")
@pytest.mark.parametrize("method", ["scan", "linked_list_packed"])
def test_grids_on_streams_of_their_own(backend, method):
    streams = backend.stream(), backend.stream()
    first, second = CASE.grid(method=method), CASE.grid(method=method)
    for grid in (first, second):  # compiles
        put(backend, grid, Y)
    late = [backend.late(x, stream) for x, stream in zip((X, Y), streams, strict=True)]
    for grid, x, stream in zip((first, second), late, streams, strict=True):
        with backend.on(stream):
            grid.build(x, check=False)
    with backend.on(streams[1]):  # the first one's memory is in use on the other stream
        third = backend.late(Y, streams[1])
        first.build(third, check=False)
    for stream in streams:
        stream.finish() if backend.name == "opencl" else stream.synchronize()
    held(backend, first, Y)
    held(backend, second, Y)


@pytest.mark.backends("cuda", "opencl")
@pytest.mark.parametrize("method", ["fixed", "scan"])
def test_positions_are_read_after_their_producer_has_finished(backend, method):
    stream, producer = backend.stream(), backend.stream()
    grid = CASE.grid(method=method)
    put(backend, grid, Y)
    for checked in (True, False):
        late = backend.late(X, producer)
        with backend.on(producer):
            grid.build(late.with_queue(stream) if backend.name == "opencl" else late, check=checked)
        held(backend, grid, X)  # on the default stream: what looks at a build waits for it
        put(backend, grid, Y)


@pytest.mark.backends("cuda", "opencl")
def test_a_status_is_that_of_the_build_before_it(backend):
    stream, bad = backend.stream(), X.copy()
    bad[17, 1] = np.nan
    grid = CASE.grid()
    put(backend, grid, Y)
    with backend.on(stream):
        grid.build(backend.late(bad, stream), check=False)
    assert grid.status[:5] == (200, 1, 0, 0, 17)


def test_unchecked_builds_of_arrays_in_turn(backend, builder):
    # On GPUs calls that come again are played from a tape: the grid must tell of the array of each.
    few = X[:50]
    radii = own_radii(builder, CASE)
    arrays = {len(x): (backend.array(x), None if radii is None else backend.array(radii[: len(x)])) for x in (X, few)}
    with CASE.grid(method=builder.name, backend=backend.name) as grid:
        for count in (200, 200, 200, 50, 200, 50, 50, 50, 200):
            grid.build(*arrays[count], check=False)
            held(backend, grid, {200: X, 50: few}[count])


# ---- capture ----------------------------------------------------------------------------------------------


@pytest.mark.backends("cuda")
@pytest.mark.parametrize("real", ["f4", "f8"])
@pytest.mark.parametrize("queries", [True, False])
def test_a_captured_build_replays_with_other_positions(backend, builder, real, queries):
    import cupy

    radii = own_radii(builder, CASE._replace(dtype=real))
    sizes = None if radii is None else cupy.asarray(radii)
    x = cupy.zeros(X.shape, real)
    x[...] = cupy.asarray(BOX.origin + 0.1)
    grid = CASE.grid(method=builder.name, backend="cuda", dtype=np.dtype(real).name, queries=queries)
    grid.reserve(200, radii=int(radii is not None))
    stream = cupy.cuda.Stream(non_blocking=True)
    grid.build(x, sizes, check=False)  # compiles
    cupy.cuda.Device().synchronize()
    with stream:
        stream.begin_capture()
        grid.build(x, sizes, check=False)
        graph = stream.end_capture()
    for positions in (X, Y, X[::-1]):
        x.set(np.ascontiguousarray(positions, real))
        cupy.cuda.Device().synchronize()
        graph.launch(stream)
        stream.synchronize()
        expected = np.ascontiguousarray(positions, real)
        if queries:
            check_grid(backend, grid, BOX, CELLS, expected, radii)
        elif builder.name != "linked_list_tight":  # what is made of a storage on demand is made once a call
            lists = walk(stored(backend, grid), grid.cells)
            keys = np.full(200, -1)
            for cell, there in enumerate(lists):
                keys[there] = cell
            assert sum(map(len, lists)) == 200
            check_cells(BOX, CELLS, expected, keys)
        assert grid.status[1:4] == (0, 0, 0)


@pytest.mark.backends("cpu")
def test_results_do_not_depend_on_the_threads(backend):
    case = CASE._replace(count=70_000, cloud="uniform")
    for method in METHODS:
        radii = own_radii(method, case)
        seen = set()
        for threads in (1, 2, 3, 64):
            with case.grid(method=method.name, threads=threads) as grid:
                grid.build(case.positions, radii)
                seen.add((grid.order.tobytes(), grid.cell_start.tobytes(), grid.positions.tobytes()))
        assert len(seen) == 1
    with CASE.grid(threads=64) as grid:  # more threads than particles
        grid.build(X[:5])
        held(backend, grid, X[:5])
