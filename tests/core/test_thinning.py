# SPDX-License-Identifier: BSD-3-Clause
"""Which tests run where kernels compile slowly, and how workers share them out."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from thinning import read, thinned


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


def test_long_tests_run_in_part_and_each_method_on_each_backend():
    methods = [f"spread-{n}" for n in range(20)]
    collected = [i for backend in ("cpu", "opencl") for i in items("test", backend, methods, 12)]
    for seconds, most in ((0.0005, 12), (0.0015, 6), (0.1, 2)):
        kept, _ = thinned(collected, {("file", "test"): seconds})
        of = {(item.callspec.params["backend"], item.callspec.params["law"]) for item in kept}
        assert of == {(backend, method) for backend in ("cpu", "opencl") for method in methods}
        assert sum(item.callspec.params["backend"] == "cpu" for item in kept) == most * len(methods)


def test_each_library_keeps_cases_of_its_own():
    collected = items("test", "cpu", [""], 5) + items("test", "cpu", [""], 5, turns=(3,))
    for item in collected[::2]:
        item.callspec.params["library"] = "jax"
    for some in (collected[:5], collected[5:]):
        kept, _ = thinned(some, {("file", "test"): 9.0})
        assert len(kept) == len({item.callspec.params.get("library") for item in kept}) == 2


def test_the_tests_that_have_costs_are_there():
    texts = {path.stem: path.read_text() for path in Path(__file__).parents[1].rglob("test_*.py")}
    assert len(read()) > 300
    gone = [(file, test) for file, test in read() if f"def {test}(" not in texts.get(file, "")]
    assert len(gone) < 30, "write the costs anew: python tests/support/thinning.py junit.xml"


TESTS = [
    "tests/b.py::test_of_both[opencl-1]", "tests/b.py::test_of_both[cpu-1]", "tests/b.py::test_of_both[opencl-2]",
    "tests/a.py::test_of_none", "tests/a.py::test_of_one[law-opencl]", "tests/c.py::test_on_ranks[0-2ranks]",
    "tests/b.py::test_of_both[cpu-2]", "tests/d.py::test_on_ranks[4ranks-1]", "tests/c.py::test_of_none",
]  # fmt: skip


class Worker:
    shutting_down = False

    def __init__(self, name):
        self.gateway, self.done = SimpleNamespace(id=name), []

    def send_runtest_some(self, indices):
        self.done.append([TESTS[i] for i in indices])

    def shutdown(self):
        self.shutting_down = True


def test_files_go_to_one_worker_and_the_second_begins_with_opencl():
    pytest.importorskip("xdist", reason="pytest-xdist is not installed")
    from sharing import FromBothEnds

    config = SimpleNamespace(option=SimpleNamespace(tx=["2*popen"], loadscopereorder=True))
    config.getvalue = config.option.__getattribute__
    scheduler = FromBothEnds(config)
    workers = [Worker("first"), Worker("second")]
    for worker in workers:
        scheduler.add_node(worker)
        scheduler.add_node_collection(worker, TESTS)
    scheduler.schedule()
    while not all(worker.shutting_down for worker in workers):
        for worker in workers:  # both take as long for each of their files
            for test in worker.done[-1]:
                scheduler.mark_test_complete(worker, TESTS.index(test))
    first, second = ([sorted(part) for part in worker.done] for worker in workers)
    assert first[0] == [TESTS[5], TESTS[7]], "all tests on ranks share one start of MPI"
    assert second[0] == [TESTS[0], TESTS[2]]
    assert [TESTS[1], TESTS[6]] in first + second
    assert sorted(test for part in first + second for test in part) == sorted(TESTS)
