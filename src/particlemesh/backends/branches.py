# SPDX-License-Identifier: BSD-3-Clause
"""Work beside that of the current stream: a second stream that forks from it and joins it again, by events."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

_AHEAD = -1  # lower numbers run first; that of most streams is 0


class Branch:
    """A second CUDA stream, for work that shares no written memory with that of the current stream.

    Nothing waits on the host, so that a capture of the current stream has both branches. The second stream's groups
    start first where both have some: short kernels then fill the gaps of a long one instead of following it.

    Memory that is allocated inside belongs to the second stream in CuPy's pool. Use it there alone, or after the join.

    Parameters
    ----------
    cuda : module
        ``cupy.cuda``; its current device is that of the stream.
    backend : Backend
        Whose tape records both branches.

    Examples
    --------
    >>> from particlemesh.kernels import backend, branch_of
    >>> device = backend("cpu")  # of "cuda" there is a branch
    >>> sums, branch = device.empty(3, "float64"), branch_of(device)
    >>> if branch is None:
    ...     device.clear(sums)
    ... else:
    ...     with branch.in_background(lambda: device.clear(sums)):
    ...         pass  # other work
    >>> device.download(sums)
    array([0., 0., 0.])
    """

    def __init__(self, cuda: Any, backend: Any) -> None:
        self._current, self._backend = cuda.get_current_stream, backend
        self.stream = cuda.Stream(non_blocking=True, priority=_AHEAD)
        self._forks, self._joins = cuda.Event(disable_timing=True), cuda.Event(disable_timing=True)

    @contextlib.contextmanager
    def in_background(self, work: Callable[[], Any]) -> Iterator[None]:
        """Submit ``work()`` to the second stream, and the block to the current one; both are done after the block.

        The branch begins after all that the current stream has got so far. The streams join also after an error: what
        follows it, such as freeing memory, then comes after both.
        """
        tape = self._backend.tape
        with self.opened() as submit, contextlib.nullcontext(_go_on) if tape is None else tape.forking(self) as go_on:
            submit(work)
            go_on()
            yield

    @contextlib.contextmanager
    def opened(self) -> Iterator[Callable[[Callable[[], Any]], Any]]:
        """Return what submits work to the second stream, at any time of the block: see `in_background`."""
        current = self._current()
        self._forks.record(current)
        self.stream.wait_event(self._forks)

        def submit(work: Callable[[], Any]) -> Any:
            with self.stream:
                return work()

        try:
            yield submit
        finally:
            self._joins.record(self.stream)
            current.wait_event(self._joins)


def _go_on() -> None:
    """Begin the rest of the block: no tape records it."""


def branch_of(backend: Any) -> Branch | None:
    """Return a second stream of a backend's device; None where work goes one after the other.

    Parameters
    ----------
    backend : Backend

    Returns
    -------
    Branch or None

    Examples
    --------
    >>> from particlemesh.kernels import backend, branch_of
    >>> branch_of(backend("cpu")) is None
    True

    It is no method of backends: the shipped times of all methods are those of the files of backends.
    """
    if backend.name != "cuda":
        return None
    import cupy

    with backend.scope():
        return Branch(cupy.cuda, backend)
