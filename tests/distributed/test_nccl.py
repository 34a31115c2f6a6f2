# SPDX-License-Identifier: BSD-3-Clause
"""What NCCL is asked to do, by a stand-in for CuPy: one group a round, in a stream of its own."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest

from particlemesh.distributed import World, transports
from particlemesh.distributed.transports import Alone


class Device:
    """An array that is not NumPy's, and what a device would do with it, in order."""

    def __init__(self, count, dtype, address, dense=True):
        self.dense, self.flags = dense, SimpleNamespace(c_contiguous=dense)
        self.dtype, self.size, self.nbytes = np.dtype(dtype), count, count * np.dtype(dtype).itemsize
        self.data = SimpleNamespace(ptr=address)
        self.real = SimpleNamespace(dtype=np.empty(0, dtype).real.dtype)

    def view(self, dtype):
        return Device(self.nbytes // np.dtype(dtype).itemsize, dtype, self.data.ptr)


class Stand:
    """CuPy with its NCCL; ``log`` has what was asked of it."""

    def __init__(self):
        self.log = log = []

        class Stream:
            def __init__(self, name, ptr):
                self.name, self.ptr = name, ptr

            def record(self):
                return f"event of {self.name}"

            def wait_event(self, event):
                log.append((self.name, "waits", event))

        class Communicator:
            def __init__(self, *arguments):
                log.append(("communicator", *arguments))

            def send(self, *arguments):
                log.append(("send", *arguments))

            def recv(self, *arguments):
                log.append(("recv", *arguments))

            def allReduce(self, *arguments):  # noqa: N802 - its name there
                log.append(("allReduce", *arguments))

        types = ["INT8", "INT32", "INT64", "UINT32", "UINT64", "FLOAT32", "FLOAT64"]
        names = [f"NCCL_{name}" for name in [*types, "SUM", "MAX", "MIN"]]
        library = SimpleNamespace(
            NcclCommunicator=Communicator, get_unique_id=lambda: "token", groupStart=lambda: log.append("start"),
            groupEnd=lambda: log.append("end"), **{name: name for name in names},
        )  # fmt: skip
        caller = Stream("caller", 1)
        self.cuda = SimpleNamespace(
            nccl=library, Stream=lambda non_blocking, priority: Stream("ours", 2), get_current_stream=lambda: caller
        )
        self.empty_like = lambda array: Device(array.size, array.dtype, 999)
        self.ascontiguousarray = lambda array: array if array.dense else Device(array.size, array.dtype, 555)


BEFORE, AFTER = ("ours", "waits", "event of caller"), ("caller", "waits", "event of ours")


@pytest.fixture
def stand():
    return Stand()


@pytest.fixture
def world(stand):
    transport = transports.Nccl(Alone(), stand)
    transport.rank, transport.size = 1, 3
    return World.over(transport)


def test_a_round_is_one_group_in_our_stream(stand, world):
    assert world.transport == "nccl"
    assert stand.log.pop(0) == ("communicator", 1, "token", 0)
    sends = {0: Device(4, "c8", 100), 2: Device(3, "f8", 200), 1: None}
    sends.pop(1)
    world.exchange(sends, {2: Device(5, "f4", 300), 0: Device(0, "f4", 400)})
    assert stand.log == [
        BEFORE, "start", ("recv", 300, 20, "NCCL_INT8", 2, 2), ("send", 100, 32, "NCCL_INT8", 0, 2),
        ("send", 200, 24, "NCCL_INT8", 2, 2), "end", AFTER,
    ]  # fmt: skip


def test_a_group_ends_when_a_call_fails(stand, world):
    def fail(*_):
        raise RuntimeError("unhandled system error")

    world._transport._communicator.send = fail
    with pytest.raises(RuntimeError, match="system error"):
        world.exchange({0: Device(4, "f4", 1)}, {})
    assert stand.log[-2:] == ["end", AFTER]


def test_sums_of_complex_numbers_are_sums_of_reals(stand, world):
    result = world._transport.allreduce(Device(4, "c16", 100), "sum")
    assert stand.log[1:] == [BEFORE, ("allReduce", 100, 999, 8, "NCCL_FLOAT64", "NCCL_SUM", 2), AFTER]
    assert (result.dtype, result.size, result.data.ptr) == (np.complex128, 4, 999)
    world._transport.allreduce(Device(4, "i4", 100), "max")
    assert stand.log[-2] == ("allReduce", 100, 999, 4, "NCCL_INT32", "NCCL_MAX", 2)
    world._transport.allreduce(Device(4, "i4", 100, dense=False), "max")  # NCCL knows no strides
    assert stand.log[-2] == ("allReduce", 555, 999, 4, "NCCL_INT32", "NCCL_MAX", 2)


def test_host_memory_goes_through_mpi(stand, world):
    del stand.log[:]
    assert world._transport.allreduce(np.arange(3), "sum").tolist() == [0, 1, 2]
    assert world.allgather("x") == ["x"]
    assert world._transport.alltoall(np.array([4])).tolist() == [4]
    with pytest.raises(ValueError, match="one rank cannot exchange"):
        world.exchange({0: np.ones(2)}, {})
    assert not stand.log


@pytest.mark.parametrize(
    ("answers", "why"),
    [
        ([(None, ("a", "0")), (None, ("a", "1")), (None, ("b", "0"))], None),
        ([(None, ("a", "0")), ("has no GPU", ("a", ""))], "rank 1 has no GPU"),
        ([(None, ("a", "0")), (None, ("a", "0"))], "several ranks use the GPU 0 of a"),
    ],
)
def test_what_nccl_needs(answers, why, monkeypatch):
    monkeypatch.setattr(transports, "_device", lambda: answers[0])
    got = transports.missing(SimpleNamespace(allgather=lambda answer: answers))
    assert got is None if why is None else got.startswith(why)


@pytest.mark.parametrize(
    ("others", "devices", "taken"),
    [
        ([("a", "0", 4), ("b", "0", 4), ("a", "0", 4)], 4, [0, 2]),  # ranks 0, 1 and 3 on host a; this is rank 3
        ([("a", "0", 4), ("b", "0", 4), ("a", "1", 4)], 4, None),  # a rank has chosen
        ([("b", "0", 4), ("b", "0", 4), ("b", "0", 4)], 4, None),  # alone on its host
        ([("a", "0", 1), ("a", "0", 1), ("a", "0", 1)], 1, None),  # the launcher has chosen
    ],
)
def test_ranks_of_a_host_share_its_gpus(others, devices, taken, monkeypatch):
    used = []
    runtime = SimpleNamespace(getDeviceCount=lambda: devices)
    cuda = SimpleNamespace(runtime=runtime, Device=lambda n: SimpleNamespace(use=lambda: used.append(n)))
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=cuda))
    monkeypatch.setattr(transports, "_device", lambda: (None, ("a", "0")))
    every = [((host, device), count) for host, device, count in others]
    transports.share_devices(SimpleNamespace(rank=3, allgather=lambda answer: [*every, answer]))
    assert used == ([] if taken is None else taken[1:])


def test_this_machine_answers():
    why, place = transports._device()
    assert why is None or why.startswith("has ")
    assert place[0]
