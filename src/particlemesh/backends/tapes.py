# SPDX-License-Identifier: BSD-3-Clause
"""Calls for arrays that came before: what the device got for them is submitted again, without working it out."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

MOST_TAPES = 64  # a few kilobytes each


class Tape:
    """What one call submitted, to be submitted again for the same arrays at the price of the driver alone.

    Arrays of the caller are not kept: their memory is theirs.
    """

    def __init__(self, *arrays: Any) -> None:
        self.launches: list[Any] = []
        self.complete = True  # False once something was submitted that is not on the tape

    def play(self, stream: Any, *arrays: Any) -> None:
        """Submit all of it again, to a stream or queue."""
        raise NotImplementedError


class Taping:
    """The part of a backend whose calls can be taped."""

    def __init__(self, kind: type[Tape]) -> None:
        self._kind = kind
        self._recording = threading.local()  # a tape belongs to one call of one thread

    @property
    def tape(self) -> Any:
        """The tape that records what is submitted, if one does."""
        return getattr(self._recording, "tape", None)

    @contextlib.contextmanager
    def taping(self, *arrays: Any) -> Iterator[Tape]:
        """Record what is submitted for a call with ``arrays``; a call around it is then not on one tape."""
        self.untaped()
        before, tape = self.tape, self._kind(*arrays)
        self._recording.tape = tape
        try:
            yield tape
        finally:
            self._recording.tape = before

    def untaped(self) -> None:
        """Say that something was submitted which is on no tape."""
        if self.tape is not None:
            self.tape.complete = False


class Tapes:
    """The tapes of a plan or a grid; its owner has a ``backend`` and the ``token`` of the stream that last worked."""

    def __init__(self) -> None:
        self._by_key: dict[Any, Any] = {}

    def clear(self) -> None:
        """Forget all of them: memory that they point at is gone."""
        self._by_key.clear()

    def again(self, owner: Any, what: Any, arrays: tuple[Any, ...], call: Callable[[], Any], result: Any = None) -> Any:
        """Make a call; from the third time for the same ``arrays`` on, play what the device got for it.

        ``what`` and the backend's ``signature`` of the arrays tell calls apart. A call that is played returns
        ``result`` or, without one, what it returned when it was recorded.
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
        if key not in self._by_key:  # most arrays come once; a tape is made for those that come again
            if len(self._by_key) > MOST_TAPES:
                self._by_key.clear()
            returned = call()
            self._by_key[key] = None  # not before: only what has prepared once will not do so again
            return returned
        with backend.taping(*arrays) as tape:
            returned = call()
        if tape.complete and key in self._by_key:
            self._by_key[key] = tape, returned if result is None else None  # results of the caller are not kept
        return returned
