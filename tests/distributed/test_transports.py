# SPDX-License-Identifier: BSD-3-Clause
"""How arrays of a device go through MPI: by copies on the host, or as they are once the stream has ended."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest

from particlemesh.distributed import World, transports


class Device:
    """An array that is not NumPy's: its numbers are read and written by copies only."""

    def __init__(self, numbers):
        self.numbers, self.shape, self.dtype, self.size = numbers, numbers.shape, numbers.dtype, numbers.size
        self.copies, self.flags = [], numbers.flags

    def get(self):
        self.copies.append("to the host")
        return self.numbers.copy()

    def set(self, host):
        self.copies.append("from the host")
        self.numbers[...] = host

    def copy(self):
        return Device(self.numbers.copy())

    def reshape(self, *shape):
        return Device(self.numbers.reshape(*shape))

    def view(self, dtype):
        return Device(self.numbers.view(dtype))

    def __getitem__(self, some):
        return Device(self.numbers[some])


class Loop:
    """A communicator whose messages come back to their sender, in order."""

    def __init__(self):
        self.sent, self.expected, self.log = [], [], []

    def Isend(self, message, rank):  # noqa: N802 - its name there
        self.sent.append(message[0])
        self.log.append((type(message[0]).__name__, message[0].size, rank))

    def Irecv(self, message, rank):  # noqa: N802
        self.expected.append(message[0])

    def Waitall(self, _):  # noqa: N802
        for into, sent in zip(self.expected, self.sent, strict=True):
            target, source = (getattr(x, "numbers", x) for x in (into, sent))
            target[...] = source

    def Allreduce(self, send, receive, op):  # noqa: N802
        receive[...] = 2 * send


@pytest.fixture
def make():
    def world(kind):
        loop, transport = Loop(), object.__new__(kind)
        library = SimpleNamespace(BYTE="byte", SUM="sum", Request=SimpleNamespace(Waitall=loop.Waitall))
        vars(transport).update(rank=0, size=2, _communicator=loop, _mpi=library)
        return World.over(transport), loop

    return world


def test_arrays_of_a_device_are_copied_through_the_host(make, monkeypatch):
    world, loop = make(transports.Host)
    monkeypatch.setattr(transports, "CHUNK", 24)
    sent, got = Device(np.arange(5.0)), Device(np.zeros(5))
    world.exchange({1: sent}, {1: got})
    assert np.array_equal(got.numbers, sent.numbers)
    assert (sent.copies, got.copies) == (["to the host"], ["from the host"])
    assert loop.log == [("ndarray", 24, 1), ("ndarray", 16, 1)]
    assert np.array_equal(world._transport.allreduce(sent, "sum").numbers, 2 * np.arange(5.0))


def test_an_aware_library_gets_the_memory_after_the_stream_has_ended(make, monkeypatch):
    world, loop = make(transports.Aware)
    stream = SimpleNamespace(synchronize=lambda: loop.log.append("synchronized"))
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=SimpleNamespace(get_current_stream=lambda: stream)))
    sent, got = Device(np.arange(5.0)), Device(np.zeros(5))
    world.exchange({1: sent}, {1: got})
    assert loop.log == ["synchronized", ("Device", 40, 1)]
    assert np.array_equal(got.numbers, sent.numbers)
    assert not (sent.copies or got.copies)
    loop.sent, loop.expected, loop.log = [], [], []
    world.exchange({1: np.ones(2)}, {1: np.zeros(2)})
    assert loop.log == [("ndarray", 16, 1)]  # host memory waits for no stream
