# SPDX-License-Identifier: BSD-3-Clause
"""Two branches of work: the order that their events make, with streams that run nothing, and on a GPU."""

import numpy as np
import pytest

from particlemesh.backends.branches import Branch, branch_of
from particlemesh.backends.cpu import CpuBackend
from streams import Cuda


def test_a_branch_begins_after_the_past_and_ends_before_the_future():
    cuda = Cuda()
    branch = Branch(cuda, CpuBackend())
    for turn in range(3):
        cuda.does(("before", turn))
        with branch.in_background(lambda turn=turn: cuda.does(("branch", turn))):
            cuda.does(("main", turn))
        cuda.does(("after", turn))
        assert cuda.current is cuda.main
    for turn in range(3):
        assert cuda.unordered(("branch", turn), ("main", turn))
        for work in ("branch", "main"):
            assert cuda.after((work, turn), ("before", turn))
            assert cuda.after(("after", turn), (work, turn))
    assert cuda.after(("branch", 2), ("main", 1))
    second = cuda.streams[1]
    assert second.non_blocking
    assert second.priority < 0


@pytest.mark.parametrize("where", ["branch", "main"])
def test_streams_join_after_an_error(where):
    cuda = Cuda()
    branch = Branch(cuda, CpuBackend())

    def work(name):
        cuda.does(name)
        if name == where:
            raise ValueError(name)

    with pytest.raises(ValueError, match=where), branch.in_background(lambda: work("branch")):
        work("main")
    assert cuda.current is cuda.main
    cuda.does("after")
    assert cuda.after("after", "branch")
    with branch.in_background(lambda: cuda.does("again")):
        pass
    cuda.does("end")
    assert cuda.after("end", "again")


def test_a_capture_holds_both_branches_and_has_no_open_end():
    cuda = Cuda()
    branch = Branch(cuda, CpuBackend())

    def step():
        with branch.in_background(lambda: captured.append(cuda.current.captures)):
            captured.append(cuda.current.captures)

    for capturing in (False, True, False, True):
        captured = []
        if capturing:
            with cuda.main.capture():
                step()
                step()
        else:
            step()
        assert captured == [capturing] * (4 if capturing else 2)
    with pytest.raises(AssertionError, match="not joined"), cuda.main.capture():  # the stand-in notices
        branch._forks.record(cuda.main)
        cuda.streams[1].wait_event(branch._forks)
        with cuda.streams[1]:
            cuda.does("left alone")


def test_a_branch_follows_whatever_stream_is_current():
    cuda = Cuda()
    branch, other = Branch(cuda, CpuBackend()), cuda.Stream()
    with other:
        cuda.does("before")
        with branch.in_background(lambda: cuda.does("branch")):
            pass
        cuda.does("after")
    assert cuda.after("branch", "before")
    assert cuda.after("after", "branch")
    assert not cuda.main.past


def test_other_backends_have_no_branches():
    assert branch_of(CpuBackend()) is None


@pytest.mark.backends("cuda")
def test_branches_on_a_gpu_wait_for_each_other(backend):
    cupy = backend.cupy
    branch = branch_of(backend.library)
    stream, host = cupy.cuda.Stream(non_blocking=True), np.arange(1000.0)
    late = backend.late(host, stream)  # a slow kernel fills it
    with stream:
        results = []
        with branch.in_background(lambda: results.append(late + 1)):
            mine = late * 2
        total = results[0] + mine
    stream.synchronize()
    np.testing.assert_array_equal(total.get(), 3 * host + 1)
