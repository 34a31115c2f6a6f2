# SPDX-License-Identifier: BSD-3-Clause
"""Workers take tests file by file from both ends, so that they seldom compile the same at the same time."""

from types import SimpleNamespace

import pytest

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
