# SPDX-License-Identifier: BSD-3-Clause
"""A thinned run leaves out no method, and of the CPU only cases of tests that take turns; it is always the same."""

from types import SimpleNamespace

import pytest

from thinning import thinned


def items(test, backend, methods, cases, **marks):
    """Items of a test with so many cases of each method, as pytest collects them."""
    made = []
    for method in methods:
        for _ in range(cases):
            params = {"backend": backend} | ({"law": method} if method else {})
            made.append(
                SimpleNamespace(
                    path="file", originalname=test, callspec=SimpleNamespace(params=params),
                    get_closest_marker=lambda name: SimpleNamespace(args=marks[name]) if name in marks else None,
                )
            )  # fmt: skip
    return made


@pytest.mark.parametrize("cases", [5, 9, 10, 12, 40])
def test_every_method_with_as_many_cases_as_a_turn_runs(cases):
    methods = [f"spread-{n}" for n in range(20)]
    collected = items("test", "opencl", methods, cases)
    kept, left = thinned(collected)
    assert {item.callspec.params["law"] for item in kept} == set(methods)
    assert len(kept) + len(left) == len(collected) and len(kept) <= len(collected) / 3
    assert [id(item) for item in thinned(collected)[0]] == [id(item) for item in kept]


@pytest.mark.parametrize(("count", "most"), [(1, 1), (2, 1), (4, 2), (9, 3), (40, 8)])
def test_cases_without_a_method_are_one_of_two_to_five(count, most):
    kept, _ = thinned(items("test", "opencl", [""], count))
    assert most - 1 <= len(kept) <= most


def test_the_cpu_and_whole_tests_have_all_cases_and_turns_one_of_each():
    cpu, whole = items("a", "cpu", ["m"], 50), items("b", "opencl", ["m"], 50, whole=())
    turns = items("c", "cpu", [""], 12, turns=(2,))
    kept, _ = thinned(cpu + whole + turns)
    assert kept[:100] == cpu + whole
    assert [sum(item in kept for item in turns[n : n + 2]) for n in range(0, 12, 2)] == [1] * 6
