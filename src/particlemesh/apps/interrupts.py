# SPDX-License-Identifier: BSD-3-Clause
"""Ctrl-C at the end of a step instead of within it."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any


@contextlib.contextmanager
def deferred() -> Iterator[Callable[[], bool]]:
    """Yield a function that says whether Ctrl-C was pressed; raise the KeyboardInterrupt at the end.

    Python calls handlers in the main thread only, and only handlers that were made in Python can be put back.
    """
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield lambda: False
        return
    pressed: list[Any] = []
    signal.signal(signal.SIGINT, lambda *what: pressed.append(what))
    try:
        yield lambda: bool(pressed)
    finally:
        signal.signal(signal.SIGINT, before)
    if pressed:
        before(*pressed[0])
