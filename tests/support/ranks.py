# SPDX-License-Identifier: BSD-3-Clause
"""Ranks that are threads of one process: every law of distributed work can be tested without MPI."""

import contextlib
import functools
import inspect
import threading
from collections import defaultdict
from queue import SimpleQueue

import numpy as np
import pytest

from particlemesh.distributed import World
from particlemesh.distributed.transports import Transport, _like

PATIENCE = 300  # seconds that a rank waits for another, which may compile


class _Room:
    """What the threads share."""

    def __init__(self, size):
        self.size = size
        self.barrier = threading.Barrier(size)
        self.table = [None] * size
        self.mail = defaultdict(SimpleQueue)

    def gather(self, rank, thing):
        self.barrier.wait(PATIENCE)
        self.table[rank] = thing
        self.barrier.wait(PATIENCE)
        return list(self.table)


class Threads(Transport):
    """The transport of one rank."""

    name = "threads"

    def __init__(self, room, rank):
        self.room, self.rank, self.size = room, rank, room.size
        self.rounds = []  # ranks and bytes sent in each exchange

    def exchange(self, sends, receives):
        assert self.rank not in sends and self.rank not in receives
        self.rounds.append({rank: array.nbytes for rank, array in sends.items()})
        for rank, array in sends.items():
            assert array.flags.c_contiguous
            self.room.mail[self.rank, rank].put(array.tobytes())
        for rank, array in receives.items():
            assert array.flags.c_contiguous
            got = self.room.mail[rank, self.rank].get(timeout=PATIENCE)
            host = np.frombuffer(got, array.dtype).reshape(array.shape)
            if isinstance(array, np.ndarray):
                array[...] = host
            else:  # CuPy's
                array.set(host)

    def allreduce(self, array, op):
        function = {"sum": np.add, "max": np.maximum, "min": np.minimum}[op]
        host = array.copy() if isinstance(array, np.ndarray) else array.get()
        result = np.asarray(function.reduce(np.stack(self.room.gather(self.rank, host))))
        return result if isinstance(array, np.ndarray) else _like(array, result)

    def alltoall(self, counts):
        return np.stack([row[self.rank] for row in self.room.gather(self.rank, counts.copy())])

    def allgather(self, thing):
        return self.room.gather(self.rank, thing)


def outcomes(size, work, grace=0.0):
    """Call ``work(world)`` on every rank; return the results, and the errors, None where there is none.

    Ranks that wait for one that has raised get a BrokenBarrierError after so many seconds.
    """
    room, results, errors = _Room(size), [None] * size, [None] * size
    ended = threading.Barrier(size)

    def call(rank):
        try:
            results[rank] = work(World.over(Threads(room, rank)))
        except BaseException as error:
            errors[rank] = error
            with contextlib.suppress(threading.BrokenBarrierError):
                ended.wait(grace)
            room.barrier.abort()
        else:
            with contextlib.suppress(threading.BrokenBarrierError):
                ended.wait(PATIENCE)

    threads = [threading.Thread(target=call, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results, errors


def on_threads(size, work):
    """Call ``work(world)`` on every rank, and return the results; the first error is raised."""
    results, errors = outcomes(size, work)
    failed = [e for e in errors if e is not None and not isinstance(e, threading.BrokenBarrierError)]
    for error in failed or [e for e in errors if e is not None]:
        raise error
    return results


def on_ranks(*sizes, each=(None,)):
    """Mark a test ``f(world)``, or ``f(world, item)`` for each of several items: `mpi.on_ranks` without MPI."""

    def mark(function):
        def call(size, number):
            item = each[number]
            on_threads(size, lambda world: function(world, *(() if item is None else (item,))))

        return for_ranks(call, function, sizes, each, "threads")

    return mark


def for_ranks(call, function, sizes, each, kind):
    """Return a test of each number of ranks and each item, which calls ``call``; ``function`` is the law."""
    test = functools.wraps(function)(call)
    test.__signature__ = inspect.signature(call, follow_wrapped=False)
    del test.__wrapped__
    test.test_on_ranks = function, sizes, each
    names = [str(n) if item is None or not isinstance(item, tuple) else f"{n}-{item[0]}" for n, item in enumerate(each)]
    test = pytest.mark.parametrize("number", range(len(each)), ids=names)(test)
    test = pytest.mark.turns(3 if len(each) > 1 else 1)(test)  # each compiles
    return pytest.mark.parametrize("size", sizes, ids=lambda n: f"{n}{kind}")(test)
