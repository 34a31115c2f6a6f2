# SPDX-License-Identifier: BSD-3-Clause
"""Self tests in several processes at once: compiling is most of what they do the first time.

For ``particlemesh info`` the methods of the CPU, its grids and each device have a process of their own. A driver that
crashes is a failed test.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import multiprocessing
import os
import queue
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any, NamedTuple

from particlemesh import backends
from particlemesh.backends.cpu import available_threads
from particlemesh.command import survey

PROCESSES = available_threads()  # with one, tests run in this process
_PARTS = {"methods": survey.adjointness, "grids": survey.grids}


class Row(NamedTuple):
    """A test that has ended, and the backend that it ran on."""

    backend: str
    check: survey.Check


def names() -> list[str]:
    """Return the names of the backends that work here."""
    return [name for name in backends.NAMES if backends.module(name).available() is None]


def count(name: str) -> int:
    """Return how many tests a backend has."""
    return survey.checks(backends.current(name))


def rows(seconds: float | None) -> Iterator[Row]:
    """Test the backends and yield each test when it has ended; begin no test after ``seconds``.

    The method that a plan selects by default is tested first.
    """
    end = None if seconds is None else time.time() + seconds
    jobs: list[tuple[str, tuple[str, ...]]] = [(name, (part,)) for name in names() if name == "cpu" for part in _PARTS]
    jobs += [(name, tuple(_PARTS)) for name in names() if name != "cpu"]
    if PROCESSES == 1:
        for job in jobs:
            yield from _tests(*job, end)
    else:
        yield from _in_processes(jobs, end)


def _tests(name: str, parts: tuple[str, ...], end: float | None) -> Iterator[Row]:
    backend = backends.current(name)
    for check in itertools.chain(*(_PARTS[part](backend) for part in parts)):
        yield Row(name, check)
        if end is not None and time.time() > end:
            return


def _work(results: Any, number: int, name: str, parts: tuple[str, ...], end: float | None) -> None:
    """Put the number of the job and each row into a queue, and None at the end; the body of a process."""
    for row in _tests(name, parts, end):
        results.put((number, row))
    results.put((number, None))


@contextlib.contextmanager
def _spawning() -> Iterator[Any]:
    """Yield a context whose processes run no file of the present folder: Python starts them as ``python -c``."""
    before = os.environ.get("PYTHONSAFEPATH")
    os.environ["PYTHONSAFEPATH"] = "1"
    try:
        yield multiprocessing.get_context("spawn")  # a fork would have our threads' locks
    finally:
        if before is None:
            del os.environ["PYTHONSAFEPATH"]
        else:
            os.environ["PYTHONSAFEPATH"] = before


def _in_processes(jobs: list[tuple[str, tuple[str, ...]]], end: float | None) -> Iterator[Row]:
    with _spawning() as context:
        results: Any = context.Queue()
        workers = {
            number: context.Process(target=_work, args=(results, number, *job, end), daemon=True)
            for number, job in enumerate(jobs)
        }
        for worker in workers.values():
            worker.start()
    while workers:
        ended = [number for number, worker in workers.items() if worker.exitcode is not None]
        try:
            number, row = results.get(timeout=0.2)
            while True:
                if row is None:
                    workers.pop(number).join()
                else:
                    yield row
                number, row = results.get(timeout=0.05)
        except queue.Empty:
            for number in set(ended) & workers.keys():  # what it had to say has been read
                code, (name, parts) = workers.pop(number).exitcode, jobs[number]
                yield Row(name, survey.Check(" and ".join(parts), "", math.nan, f"the process ended with code {code}"))


def beside(function: Callable[..., Any], *arguments: Any) -> Callable[[], Any]:
    """Call a function in another process; return a function that waits for its result."""
    if PROCESSES == 1:
        return lambda: function(*arguments)
    with _spawning() as context:
        pool = ProcessPoolExecutor(1, mp_context=context)
        result = pool.submit(function, *arguments)
    pool.shutdown(wait=False)
    return result.result
