# SPDX-License-Identifier: BSD-3-Clause
"""The processor: one pool of threads, started at first use and renewed after a fork."""

from __future__ import annotations

import contextlib
import os
import platform
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, ClassVar

import numpy as np

from particlemesh.backends import memory
from particlemesh.backends.base import NOTHING, seconds_by_host
from particlemesh.backends.jit import compiled
from particlemesh.backends.simd import fetch_add, unowned
from particlemesh.backends.tapes import Posted

# Below this many particles a second thread costs more than it saves: waking one takes 10 to 20 us,
# in which one thread spreads about 500 particles (measured, EPYC 9005).
PARTICLES_PER_THREAD = 2000
CLEARED = 1 << 18  # bytes that a thread clears at a time: about 10 us
_LONG = 2e8  # steps: more work than this leaves the main thread, so that it can handle signals
_LOOK, _PATIENCE = 0.2, 0.5  # seconds: between checks for signals; that an interrupted call waits for its threads
# Of an interrupted call: larger than any number of shares; times the items of a share it is still an int64.
STOPPED = 2**40


class _Call:
    """One function that several threads may join until its caller has finished."""

    def __init__(self, function: Callable, arguments: tuple) -> None:
        self.function = function
        self.arguments = arguments
        self.lock = threading.Lock()
        self.closed = False
        self.inside = 0
        self.empty = threading.Condition(self.lock)
        self.done = False
        self.error: BaseException | None = None

    def join(self) -> None:
        """Take part, unless the work is done."""
        with self.lock:
            if self.closed:
                return
            self.inside += 1
        try:
            self.function(*self.arguments)
        except BaseException as error:  # noqa: BLE001 - the caller's thread raises it
            self.error = error
        finally:
            with self.lock:
                self.inside -= 1
                self.done = True
                self.empty.notify_all()

    def wait(self) -> None:
        """Wait until one thread has finished the work."""
        with self.lock:
            while not self.done:
                self.empty.wait(_LOOK)

    def abandon(self) -> None:
        """Admit no more threads, and wait briefly for those inside."""
        with self.lock:
            self.closed = True
            self.empty.wait_for(lambda: not self.inside, _PATIENCE)

    def finish(self) -> None:
        """Admit no more threads, and wait for those inside."""
        with self.lock:
            self.closed = True
            while self.inside:
                self.empty.wait()


class _Pool:
    """Threads that wait for calls. They never outlive the process and never hold a lock while idle."""

    def __init__(self) -> None:
        self.calls: SimpleQueue[_Call] = SimpleQueue()
        self.lock = threading.Lock()
        self.threads = self.working = 0

    def spare(self, threads: int) -> None:
        """Ensure that so many threads are idle."""
        self.grow(threads + self.working)

    def grow(self, threads: int) -> None:
        with self.lock:
            while self.threads < threads:
                self.threads += 1
                name = f"particlemesh-{self.threads}"
                threading.Thread(target=self._work, name=name, daemon=True).start()

    def _work(self) -> None:
        while True:
            call = self.calls.get()
            with self.lock:
                self.working += 1
            call.join()
            with self.lock:
                self.working -= 1
            del call  # arrays are not kept alive while idle


_pool = _Pool()


def _renew() -> None:
    """Forget the threads of the parent process, which a fork does not copy."""
    global _pool
    _pool = _Pool()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)


def run(function: Callable, threads: int, *arguments: Any, steps: float = 0.0) -> None:
    """Call ``function(*arguments)`` from up to ``threads`` threads at once and wait for all.

    The caller's thread always takes part; others join when they are idle. So ``function`` must finish the
    work for any number of callers: each claims shares of it from a shared counter until none is left.
    Calls from several threads share the pool and cannot deadlock.

    Parameters
    ----------
    function
        A compiled function that releases the interpreter lock. Its last parameter is the shared counter, two int64 from
        zero on: the first number claims shares, the second may number the threads.
    threads
        The most threads that may take part; at most the cores of this process are used.
    *arguments
        The other arguments of every call.
    steps
        The length of the work in steps of about 1 ns. Python handles signals in the main thread, between compiled
        functions only. So other threads do long work, and Ctrl-C ends it at their next share.

    Examples
    --------
    >>> @compiled(cached=False)
    ... def halve(x, counter):
    ...     for begin, end in ranges(counter, x.size, 1000):
    ...         x[begin:end] /= 2
    >>> x = np.full(3000, 4.0)
    >>> run(halve, 2, x)
    >>> x.min(), x.max()
    (np.float64(2.0), np.float64(2.0))
    """
    arguments = (*arguments, np.zeros(2, np.int64))
    if threads > 1:
        threads = min(threads, available_threads())
    if steps > _LONG and threading.current_thread() is threading.main_thread():
        _run_elsewhere(function, threads, arguments)
        return
    if threads <= 1:
        function(*arguments)
        return
    pool = _pool
    pool.grow(threads - 1)
    call = _Call(function, arguments)
    for _ in range(threads - 1):
        pool.calls.put(call)
    try:
        function(*arguments)
    finally:
        call.finish()
    if call.error is not None:
        raise call.error


def _run_elsewhere(function: Callable, threads: int, arguments: tuple) -> None:
    """Run the work in other threads while this one waits for signals."""
    pool = _pool
    pool.spare(threads)
    call = _Call(function, arguments)
    for _ in range(threads):
        pool.calls.put(call)
    try:
        call.wait()
        call.finish()
    except BaseException:
        arguments[-1][0] = STOPPED
        call.abandon()
        raise
    if call.error is not None:
        raise call.error


def available_threads() -> int:
    """Return how many threads this process may run at once."""
    if hasattr(os, "process_cpu_count"):  # from Python 3.13
        return os.process_cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0)) or 1
    return os.cpu_count() or 1


def at_most_cores(threads: int | None) -> int | None:
    """Return the user's number of threads, no larger than the number of cores; None stays None.

    More threads than cores take turns on them and need more memory.
    """
    return None if threads is None else min(threads, available_threads())


def default_threads(work: int) -> int:
    """Return how many threads suit ``work``, counted in particles."""
    most = work // PARTICLES_PER_THREAD
    return min(available_threads(), most) if most > 1 else 1  # asking the system takes longer than little work


def threads_for(threads: int | None, work: int) -> int:
    """Return the user's number of threads, or one that suits the work.

    Parameters
    ----------
    threads : int or None
        What the user gave.
    work : int
        Size of the work in particles: about 10 us for 500 of them.

    Examples
    --------
    >>> threads_for(None, 100), threads_for(3, 100)
    (1, 3)
    """
    return default_threads(work) if threads is None else max(1, int(threads))


# Compiled generators never give back a reference to an array that they take, so these take arrays without.
@compiled(cached=False)
def _claims(counter, shares):
    share = fetch_add(counter, 0, 1)
    while share < shares:
        yield share
        share = fetch_add(counter, 0, 1)


@compiled(cached=False)
def _ranges(counter, count, size):
    for share in _claims(counter, (count + size - 1) // size):
        begin = share * size
        yield begin, min(begin + size, count)


@compiled(cached=False)
def claimed(counter, shares):
    """Yield the numbers of shares that this thread claims, until all of ``shares`` are claimed."""
    return _claims(unowned(counter), shares)


@compiled(cached=False)
def ranges(counter, count, size):
    """Yield the ranges of up to ``size`` items that this thread claims, until all of ``count`` are claimed.

    Examples
    --------
    >>> @compiled(cached=False)
    ... def count(sizes, counter):
    ...     for begin, end in ranges(counter, 25, 10):
    ...         sizes[begin // 10] = end - begin
    >>> sizes = np.zeros(3, np.int64)
    >>> run(count, 1, sizes)
    >>> sizes
    array([10, 10,  5])
    """
    return _ranges(unowned(counter), count, size)


@compiled
def shares_of(begins, size):
    """Return ranges of up to ``size`` places of one system each, (shares, 3): begin, end, system.

    ``begins`` (S + 1,) is where the places of each system begin.
    """
    shares = np.empty((((begins[1:] - begins[:-1] + (size - 1)) // size).sum(), 3), np.int64)
    share = 0
    for s in range(begins.size - 1):
        for begin in range(begins[s], begins[s + 1], size):
            shares[share, 0], shares[share, 1], shares[share, 2] = begin, min(begin + size, begins[s + 1]), s
            share += 1
    return shares


@compiled
def _fill_zero(numbers, share, counter):
    for begin, end in ranges(counter, numbers.size, share):
        numbers[begin:end] = 0


def clear(array: np.ndarray, threads: int | None = None) -> None:
    """Set every element of ``array`` to zero, with several threads where that is faster."""
    if array.nbytes >= 1 << 20:
        array = array.transpose(np.argsort(array.strides)[::-1])  # to C order
    if not array.flags.c_contiguous or array.nbytes < 1 << 20:
        array[...] = 0
        return
    numbers = array.reshape(-1).view(np.uint8)
    shares = numbers.size // CLEARED
    used = min(threads_for(threads, PARTICLES_PER_THREAD * shares), 1 + shares)
    run(_fill_zero, used, numbers, CLEARED)


class _Memory:
    """An array's memory, presented to NumPy as writable."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array  # keeps the memory alive
        address, _ = array.__array_interface__["data"]
        self.__array_interface__ = {**array.__array_interface__, "data": (address, False)}


def plain(array: np.ndarray) -> np.ndarray:
    """Return a contiguous array as a writable one of one axis, for a compiled function that only reads it.

    Numba would compile the function again for read-only arrays.

    Parameters
    ----------
    array : NumPy array
        In C order.

    Examples
    --------
    >>> x = np.arange(3.0)
    >>> x.flags.writeable = False
    >>> plain(x).flags.writeable, plain(x)
    (True, array([0., 1., 2.]))
    """
    flat = array.reshape(-1)
    return flat if flat.flags.writeable else np.asarray(_Memory(flat))


class CpuBackend:
    """NumPy arrays, compiled functions, threads."""

    name: ClassVar[str] = "cpu"
    group_size: ClassVar[int] = 1
    units: ClassVar[int] = os.cpu_count() or 1
    local_bytes: ClassVar[int] = 0
    tape: ClassVar[None] = None  # calls are not taped

    default_threads = staticmethod(default_threads)
    run = staticmethod(run)

    def __init__(self) -> None:
        self.device = platform.processor() or platform.machine()

    def facts(self) -> dict[str, int]:
        return {}

    def scope(self, *arrays: Any) -> contextlib.AbstractContextManager[Any]:
        return NOTHING

    def follow(self, token: Any) -> Any:
        return None

    def mark(self, *arrays: Any) -> None:
        """Calls return when their work is done."""

    def submit_call(self, call: Callable[..., None], *arrays: Any, on_device: bool = False) -> None:
        call(*arrays)

    def untaped(self) -> None:
        """Calls are not taped."""

    def signature(self, what: Any, *arrays: Any, same: bool = False) -> None:
        """Calls are not taped."""

    def returns(self, array: Any) -> None:
        """Calls are not taped."""

    def same_memory(self, native: np.ndarray, array: Any) -> bool:
        return native is array

    def kernel(self, file: str, name: str, defines: dict[str, Any]) -> Any:
        raise RuntimeError("the CPU backend has no kernels: call compiled functions.")

    def empty(self, shape: tuple[int, ...] | int, dtype: Any) -> np.ndarray:
        return np.empty(shape, dtype)

    def clear(self, array: np.ndarray) -> None:
        clear(array)

    def copy(self, target: np.ndarray, source: np.ndarray) -> None:
        np.copyto(target, source)

    def upload(self, array: np.ndarray) -> np.ndarray:
        return np.array(array, order="C")

    def download(self, array: np.ndarray) -> np.ndarray:
        return array

    def read(self, *arrays: np.ndarray) -> list[np.ndarray]:
        return list(arrays)

    def post(self, *arrays: np.ndarray) -> Posted:
        return Posted(self, arrays)

    def free_bytes(self) -> int:
        return memory.free_bytes()

    def capturing(self) -> int:
        return 0

    def seconds(self, call: Callable[[], Any]) -> float:
        return seconds_by_host(call, self.synchronize)

    def synchronize(self) -> None:
        """Calls return when their work is done."""


_backend = CpuBackend()


def current() -> CpuBackend:
    """Return the backend."""
    return _backend


def available() -> str | None:
    """Return None: the CPU is always usable."""
    return None
