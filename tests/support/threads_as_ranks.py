# SPDX-License-Identifier: BSD-3-Clause
"""Ranks that are threads of one process: what needs messages but no MPI is tested with these."""

import contextlib
import itertools
import queue
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from particlemesh.distributed.transports import Transport
from particlemesh.distributed.world import World

PATIENCE = 60  # seconds until ranks that wait for each other fail


class Threads(Transport):
    """Copies arrays from thread to thread; when a rank fails, those that wait for it fail as well."""

    name = "threads"

    def __init__(self, rank, board, barrier, boxes):
        self.rank, self.size = rank, barrier.parties
        self._board, self._barrier, self._boxes = board, barrier, boxes

    def _told(self, thing):
        """Return what each rank says, once all have said it."""
        self._board[self.rank] = thing
        self._barrier.wait(PATIENCE)
        things = list(self._board)
        self._barrier.wait(PATIENCE)  # nobody writes before everybody has read
        return things

    def exchange(self, sends, receives):
        for rank, array in sends.items():
            self._boxes[self.rank, rank].put(array.copy())
        for rank, array in receives.items():
            message = self._from(rank)
            assert array.flags.c_contiguous and message.nbytes == array.nbytes
            array.reshape(-1).view(np.uint8)[...] = message.reshape(-1).view(np.uint8)

    def _from(self, rank):
        end = time.monotonic() + PATIENCE
        while not self._barrier.broken and time.monotonic() < end:
            with contextlib.suppress(queue.Empty):
                return self._boxes[rank, self.rank].get(timeout=0.05)
        raise threading.BrokenBarrierError

    def allreduce(self, array, op):
        return {"sum": np.sum, "max": np.max, "min": np.min}[op](np.stack(self._told(np.asarray(array))), axis=0)

    def alltoall(self, counts):
        return np.array([row[self.rank] for row in self._told(counts.copy())])

    def allgather(self, thing):
        return self._told(thing)


def on_ranks(size, work):
    """Return ``work(world)`` of every rank, or raise what the first rank that failed raised."""
    board, barrier = [None] * size, threading.Barrier(size)
    boxes = {pair: queue.Queue() for pair in itertools.product(range(size), repeat=2)}

    def one(rank):
        try:
            return work(World.over(Threads(rank, board, barrier, boxes)))
        except BaseException:
            barrier.abort()
            raise

    with ThreadPoolExecutor(size) as pool:
        futures = [pool.submit(one, rank) for rank in range(size)]
        errors = [future.exception() for future in futures]
    broken = [error for error in errors if error is not None and not isinstance(error, threading.BrokenBarrierError)]
    for error in broken or [error for error in errors if error is not None]:
        raise error
    assert all(box.empty() for box in boxes.values()), "a message that nobody received"
    return [future.result() for future in futures]
