# SPDX-License-Identifier: BSD-3-Clause
"""Tapes: the device commands of a repeated call, recorded once and replayed."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

MOST_TAPES = 64  # of a few kilobytes each


class Tape:
    """The commands of one call, to be replayed for the same arrays with the driver's overhead only.

    A tape keeps no reference to the caller's arrays.
    """

    def __init__(self, *arrays: Any) -> None:
        self.launches: list[Any] = []
        self.complete = True  # False once something was submitted that is not recorded

    def play(self, stream: Any, *arrays: Any) -> None:
        """Submit all commands to a stream or queue."""
        raise NotImplementedError


class Taping:
    """The part of a backend whose calls can be taped."""

    def __init__(self, kind: type[Tape]) -> None:
        self._kind = kind
        self._recording = threading.local()  # a tape belongs to one call of one thread

    @property
    def tape(self) -> Any:
        """The tape that is recording, if any."""
        return getattr(self._recording, "tape", None)

    @contextlib.contextmanager
    def taping(self, *arrays: Any) -> Iterator[Tape]:
        """Record the commands of a call with ``arrays``; the tape of an enclosing call becomes incomplete."""
        self.untaped()
        before, tape = self.tape, self._kind(*arrays)
        self._recording.tape = tape
        try:
            yield tape
        finally:
            self._recording.tape = before

    def untaped(self) -> None:
        """Report that something was submitted that is on no tape."""
        if self.tape is not None:
            self.tape.complete = False


class Tapes:
    """The tapes of a plan or a grid; its owner has a ``backend`` and the ``token`` of the stream that last worked."""

    def __init__(self) -> None:
        self._by_key: dict[Any, Any] = {}

    def clear(self) -> None:
        """Drop all tapes: the memory they refer to is freed."""
        self._by_key.clear()

    def again(self, owner: Any, what: Any, arrays: tuple[Any, ...], call: Callable[[], Any], result: Any = None) -> Any:
        """Make a call; from the third time on for the same ``arrays``, replay its commands.

        ``what`` and the backend's ``signature`` of the arrays identify a call. A replayed call returns ``result`` or,
        by default, what it returned when it was recorded.
        """
        backend = owner.backend
        key = backend.signature(what, *arrays)
        if key is None:
            return call()
        known = self._by_key.get(key)
        if known:
            tape, returned = known
            with backend.scope(*arrays):
                owner.token = backend.follow(owner.token)
                tape.play(owner.token, *arrays)
                backend.mark(*arrays)
            return returned if result is None else result
        if key not in self._by_key:  # most arrays come once: record at the second time
            if len(self._by_key) > MOST_TAPES:
                self._by_key.clear()
            returned = call()
            self._by_key[key] = None  # not before the call: only then is its preparation done
            return returned
        with backend.taping(*arrays) as tape:
            returned = call()
        if tape.complete and key in self._by_key:
            self._by_key[key] = tape, returned if result is None else None  # keep no reference to the caller's result
        return returned
