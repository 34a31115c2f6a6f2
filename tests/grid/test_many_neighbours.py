# SPDX-License-Identifier: BSD-3-Clause
"""Rows of more neighbours than 31 bits count: they wrapped, and were written past their room."""

import time

import numpy as np
import pytest

import particlemesh as pm
from grid_cases import Case, all_pairs, check_answer, entries
from particlemesh.grid.checks import bytes_per_pair, least_images, most_images

CASE = Case("mixed", (4, 3, 5), "wrapped", 130, "f4")


def test_rows_beyond_32_bits_are_refused_before_they_are_counted(backend):
    x = np.random.default_rng(1).random((6000, 3))
    with pm.UniformGrid((1.0, 1.0, 1.0), cell_size=0.3).build(backend.array(x)) as grid:
        begin = time.perf_counter()
        with pytest.raises(
            OverflowError, match=r"at least 2,\d{3},\d{3},\d{3} neighbours; a count is an int32, at mos"
        ):
            grid.count(50.0)
        for form in ("csr", "coo", "dense"):
            with pytest.raises(MemoryError, match=r"cannot allocate (at least )?\d{2,3},\d{3},\d{3},\d{3},\d{3} bytes"):
                grid.pairs(50.0, format=form)
        assert time.perf_counter() - begin < 300  # counting would take hours


@pytest.mark.backends("cuda", "opencl")
def test_kernels_count_wide_rows_before_narrow_ones_are_trusted(backend, monkeypatch):
    monkeypatch.setattr("particlemesh.grid.queries.search.MOST_COUNTED", 100)
    x, box = CASE.positions, CASE.domain
    with CASE.grid() as grid:
        grid.build(backend.array(x))
        few = grid.pairs(0.5, quantities="ijdDS")
        check_answer(box, x, 0.5, entries(backend, few), all_pairs(box, x, 0.5))
        longest = int(backend.host(grid.count(0.5)).max())
        monkeypatch.setattr("particlemesh.grid.queries.search.MOST_COUNTED", longest - 1)
        grid.build(backend.array(np.ascontiguousarray(x[::-1])))
        for call in (lambda: grid.pairs(0.5), lambda: grid.count(0.5)):
            with pytest.raises(OverflowError, match=f"a particle has {longest:,} neighbours; a count is an int32"):
                call()
        with pytest.raises(ValueError, match="check=False cannot count them"):
            grid.pairs(0.5, capacity=10, check=False)


def test_rows_on_the_cpu_are_counted_with_64_bits(monkeypatch):
    from particlemesh.grid.cpu import queries

    counted = []
    monkeypatch.setattr(queries, "_FEW", 0)  # of few pairs rows are not counted before
    monkeypatch.setattr(queries, "search_for", lambda *_, counts=None, **rows: rows or counted.append(counts))
    grid = CASE.grid().build(CASE.positions)
    grid.count(0.5), grid.pairs(0.5)
    assert [counts.dtype for counts in counted] == [np.int64] * 2

    def many(*_, counts):
        counts[7] = 2**33

    monkeypatch.setattr(queries, "search_for", many)
    for call in (lambda: grid.count(0.5), lambda: grid.pairs(0.5, format="dense", width=2**31 - 1)):
        with pytest.raises(OverflowError, match=r"8,589,934,592"):
            call()
    with pytest.raises(MemoryError, match=r"34,359,738,368 bytes for 8,589,934,592 pairs"):
        monkeypatch.setattr("particlemesh.backends.memory.free_bytes", lambda: 2**30)
        grid.pairs(0.5)


@pytest.mark.parametrize("name", ["periodic", "mixed", "triclinic", "triclinic mixed", "skewed plane", "line"])
def test_bounds_hold_images(name):
    from grid_cases import BOXES

    box = BOXES[name]
    rng = np.random.default_rng(2)
    x = rng.random((4, box.ndim)) @ box.matrix + box.origin
    for radius in (0.3, 2.0, 9.0):
        pairs = all_pairs(box, x, radius)
        each = [((pairs.i == i) & (pairs.j == j)).sum() for i in range(4) for j in range(4) if i != j]
        assert least_images(radius, box.matrix, box.periodic) <= min(each)
        assert most_images(radius, np.linalg.norm(box.inverse, axis=1), box.periodic) >= max(each)
    box = pm.Box((1.0, 1.0, 1.0))
    assert 4e5 < least_images(50.0, box.matrix, box.periodic) < 4 / 3 * np.pi * 50**3


def test_bytes_of_a_pair():
    assert bytes_per_pair("ijSdD", 3, 8) == 4 + 4 + 12 + 8 + 24
