# SPDX-License-Identifier: BSD-3-Clause
"""Calls for arrays that came before: what the device got for them is submitted again, without working it out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

MOST_TAPES = 64  # a few kilobytes each


class Tapes:
    """The tapes of a plan or a grid; its owner has a ``backend`` and the ``token`` of the stream that last worked."""

    def __init__(self) -> None:
        self._by_key: dict[Any, Any] = {}

    def clear(self) -> None:
        """Forget all of them: memory that they point at is gone."""
        self._by_key.clear()

    def again(self, owner: Any, key: Any, call: Callable[[], Any], result: Any = None) -> Any:
        """Make a call; from the third time for the same ``key`` on, play what the device got for it.

        ``key`` is a backend's ``signature`` of the call, None where it cannot be taped. A call that is played returns
        ``result`` or, without one, what it returned when it was recorded.
        """
        if key is None:
            return call()
        backend = owner.backend
        known = self._by_key.get(key)
        if known:
            tape, returned = known
            with backend.scope():
                owner.token = backend.follow(owner.token)
                tape.play(owner.token.ptr)
            return returned if result is None else result
        if key not in self._by_key:  # most arrays come once; a tape is made for those that come again
            if len(self._by_key) > MOST_TAPES:
                self._by_key.clear()
            self._by_key[key] = None
            return call()
        with backend.taping() as tape:
            returned = call()
        if tape.complete and key in self._by_key:
            self._by_key[key] = tape, returned
        return returned
