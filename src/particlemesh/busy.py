# SPDX-License-Identifier: BSD-3-Clause
"""One thread at a time: plans and grids refuse a second thread, which would damage their memory."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

_P = ParamSpec("_P")
_R = TypeVar("_R")
_S = TypeVar("_S")


def in_use(owner: object) -> RuntimeError:
    """Return the error for an object that another thread is using."""
    what = type(owner).__name__
    return RuntimeError(
        f"another thread is using this {what}: make a {what} for each thread, or hold a lock around its calls."
    )


def alone(method: Callable[Concatenate[_S, _P], _R]) -> Callable[Concatenate[_S, _P], _R]:
    """Decorate a method of an object that only one thread may use at a time.

    The object has a ``threading.RLock`` named ``busy``, so methods may call each other. No call waits for the lock.
    The decorator adds 0.3 us to a call. Methods that take few microseconds repeat its four lines instead, for 0.1 us.

    Parameters
    ----------
    method : function
        A method of the object.

    Raises
    ------
    RuntimeError
        If another thread is inside a method of the same object.

    Examples
    --------
    >>> import threading
    >>> class Counter:
    ...     def __init__(self):
    ...         self.busy, self.count = threading.RLock(), 0
    ...     @alone
    ...     def add(self):
    ...         self.count += 1
    >>> counter = Counter()
    >>> counter.add(), counter.count
    (None, 1)
    """

    @functools.wraps(method)
    def call(self: Any, /, *arguments: _P.args, **options: _P.kwargs) -> _R:
        if not self.busy.acquire(False):
            raise in_use(self)
        try:
            return method(self, *arguments, **options)
        finally:
            self.busy.release()

    return call
