# SPDX-License-Identifier: BSD-3-Clause
"""Counting sort and scan on each backend, against NumPy."""

import numpy as np
import pytest

from particlemesh.sorting import counting, cpu, radix, scan


def counting_sort(backend, keys, bins, *, stable=False, threads=None, allocate=None):
    if backend.name == "cpu":
        return cpu.counting_sort(keys, bins, threads)
    allocate = allocate or (lambda name, shape, dtype: backend.library.empty(shape, dtype))
    return counting.counting_sort(backend.library, keys, keys.shape[0], bins, stable=stable, allocate=allocate)


def check(backend, keys, bins, stable, threads=None):
    given = backend.array(keys)
    start, order, rank = counting_sort(backend, given, bins, stable=stable, threads=threads)
    start, order, rank = (backend.host(a).astype(np.int64) for a in (start, order, rank))
    taken = keys[keys >= 0]
    counts = np.bincount(taken, minlength=bins)[:bins]
    np.testing.assert_array_equal(start[: bins + 1], np.concatenate([[0], np.cumsum(counts)]))
    order, rank = order[: len(taken)], rank[: len(keys)]
    np.testing.assert_array_equal(np.sort(order), np.flatnonzero(keys >= 0))
    np.testing.assert_array_equal(keys[order], np.sort(taken))
    assert np.all(rank[keys < 0] == -1)
    np.testing.assert_array_equal(rank[order], np.arange(len(taken)))
    if stable or backend.name == "cpu":
        by_key = np.argsort(keys, kind="stable")
        np.testing.assert_array_equal(order, by_key[keys[by_key] >= 0])
    np.testing.assert_array_equal(backend.host(given), keys)  # the keys are as they were


@pytest.mark.parametrize("stable", [False, True])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("count", [0, 1, 33, 5000])
def test_random_keys(backend, stable, dtype, count):
    rng = np.random.default_rng(count)
    for bins in (1, 2, 7, 255, 256, 257, 3000):
        check(backend, rng.integers(0, bins, count).astype(dtype), bins, stable)


@pytest.mark.parametrize("stable", [False, True])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_negative_keys_take_no_part(backend, stable, dtype):
    rng = np.random.default_rng(1)
    for low, high in ((-3, 5), (-1, 1), (-5, 0)):
        check(backend, rng.integers(low, high, 700).astype(dtype), max(high, 1), stable)
    check(backend, np.array([np.iinfo(dtype).min, 0, -1], dtype), 1, stable)


@pytest.mark.parametrize("stable", [False, True])
def test_all_in_one_bin(backend, stable):
    for bin_of_all in (0, 499, 999):
        check(backend, np.full(5000, bin_of_all, np.int32), 1000, stable)
    check(backend, np.arange(5000, dtype=np.int32)[::-1].copy(), 5000, stable)


@pytest.mark.parametrize("stable", [False, True])
def test_more_bins_than_one_scan_sums_by_itself(backend, stable):
    # More than 1024 tiles of the scan, whose totals are scanned in turn.
    bins = (1024 + 3) * 16 * max(backend.library.group_size, 32) + 5
    rng = np.random.default_rng(2)
    keys = rng.integers(0, bins, 4000).astype(np.int32)
    keys[:3] = [0, bins - 1, bins // 2]
    check(backend, keys, bins, stable)


@pytest.mark.backends("cpu")
@pytest.mark.parametrize("threads", [1, 2, 3, 64])
def test_any_number_of_threads_gives_the_same_order(backend, threads):
    rng = np.random.default_rng(3)
    for count, bins in ((5, 3), (5000, 10), (5000, 4999), (20000, 40000)):
        check(backend, rng.integers(-1, bins, count), bins, stable=True, threads=threads)


def test_memory_comes_from_the_caller(backend):
    names = []

    def allocate(name, shape, dtype):
        names.append(name)
        return backend.library.empty(shape, dtype)

    keys = backend.array(np.array([2, 0, 1, 0], np.int32))
    result = counting_sort(backend, keys, 3, allocate=allocate)
    assert backend.host(result.start).tolist() == [0, 2, 3, 4]
    if backend.name != "cpu":
        assert {"work", "start", "order", "rank"} <= set(names)


@pytest.mark.backends("cuda", "opencl")
@pytest.mark.parametrize("dtype", [np.uint32, np.uint64])
def test_a_scan_over_any_number_of_tiles(backend, dtype):
    library = backend.library
    tile = scan.PER_ITEM * library.group_size
    rng = np.random.default_rng(4)
    for bins in (0, 1, 2, 3, 5, tile - 1, tile, tile + 1, 33 * tile, 130 * tile + 7, 300_001):
        counts = rng.integers(0, 1000 if dtype == np.uint32 else 2**40, bins).astype(dtype)
        expected = np.concatenate([np.zeros(1, dtype), np.cumsum(counts, dtype=dtype)])
        given = backend.array(np.concatenate([counts, np.full(1, 77, dtype)]))  # what comes after does not count
        start, control = library.empty((bins + 1,), dtype), scan.allocate_control(library, bins, named(library))
        for _ in range(2):  # the books are cleared every time
            scan.scan(library, given, start, bins, control)
            np.testing.assert_array_equal(backend.host(start), expected)
        # Counts with the books behind them; a kernel counts, here a copy does.
        both = scan.allocate_counts(library, bins, dtype, named(library))
        whole = np.zeros(both.shape, np.uint64)
        whole.view(dtype)[:bins] = counts
        library.copy(both, backend.array(whole))
        scan.scan(library, both, start, bins)
        np.testing.assert_array_equal(backend.host(start), expected)
        # And with something before them.
        both = scan.allocate_counts(library, bins, dtype, named(library), skip=8)
        whole = np.zeros(both.shape, np.uint64)
        whole[:8] = 99
        whole[8:].view(dtype)[:bins] = counts
        library.copy(both, backend.array(whole))
        scan.scan(library, both, start, bins, skip=8)
        np.testing.assert_array_equal(backend.host(start), expected)


@pytest.mark.backends("cuda", "opencl")
@pytest.mark.parametrize("bits", [1, 6, 9, 10, 18, 21, 32])
def test_a_radix_sort_is_stable(backend, bits):
    library = backend.library
    tile = radix.KEYS * library.group_size
    rng = np.random.default_rng(5)
    for count in (0, 1, 31, 32, 33, tile - 1, tile, tile + 1, 7 * tile + 3):
        drawn = rng.integers(0, 2**bits, count, dtype=np.uint64).astype(np.uint32)
        rare = np.where(rng.random(count) < 0.01, drawn, 2**bits - 1).astype(np.uint32)
        values = rng.integers(-(2**31), 2**31, count).astype(np.int32)
        for keys in (drawn, np.sort(drawn), np.sort(drawn)[::-1].copy(), rare, np.full(count, 2**bits - 1, np.uint32)):
            order = np.argsort(keys, kind="stable")
            given = backend.array(np.append(keys, np.uint32(0)))  # what comes after does not count
            result, places = radix.sort(library, given, count, bits, named(library))
            np.testing.assert_array_equal(backend.host(result)[:count], keys[order])
            np.testing.assert_array_equal(backend.host(places)[:count], order)
            into = library.empty((count + 1,), np.int32)
            carried = backend.array(np.append(values, np.int32(0)))
            result, places = radix.sort(library, given, count, bits, named(library), carried, into)
            assert places is into
            np.testing.assert_array_equal(backend.host(result)[:count], keys[order])
            np.testing.assert_array_equal(backend.host(into)[:count], values[order])
            np.testing.assert_array_equal(backend.host(given)[:count], keys)  # the keys are as they were


@pytest.mark.backends("cuda", "opencl")
def test_a_radix_sort_allocates_once(backend):
    library, held, fresh = backend.library, {}, []

    def allocate(name, shape, dtype):
        if name not in held or held[name].shape[0] < shape[0]:
            held[name] = library.empty(shape, dtype)
            fresh.append(name)
        return held[name]

    rng = np.random.default_rng(6)
    radix.reserve(library, 3000, 20, allocate)
    fresh.clear()
    for count, bits in ((3000, 20), (2999, 20), (1, 20), (3000, 20)):
        keys = rng.integers(0, 2**bits, count).astype(np.uint32)
        result = radix.sort(library, backend.array(keys), count, bits, allocate)
        np.testing.assert_array_equal(backend.host(result[1])[:count], np.argsort(keys, kind="stable"))
    assert not fresh


def named(library):
    """What `allocate` arguments are: always new memory here."""
    return lambda name, shape, dtype: library.empty(shape, dtype)
