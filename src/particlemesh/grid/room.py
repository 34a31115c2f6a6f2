# SPDX-License-Identifier: BSD-3-Clause
"""Memory of a grid on one backend."""

from __future__ import annotations

from typing import Any

import numpy as np

from particlemesh.arrays.kinds import allocate
from particlemesh.backends.base import Backend, kept
from particlemesh.backends.tapes import Tapes


class Room:
    """Memory of one build, by name. A request for a known name returns the same array if it is large enough."""

    def __init__(self, backend: Backend, tapes: Tapes) -> None:
        self.backend, self.tapes = backend, tapes
        self._held: dict[str, Any] = {}
        self._values: dict[str, float] = {}
        self._tables: dict[str, tuple[np.ndarray, Any]] = {}  # what was sent, and where it is

    def __call__(self, name: str, shape: tuple[int, ...], dtype: Any) -> Any:
        held = self._held.get(name)
        if held is None or held.dtype != dtype or held.shape[1:] != shape[1:] or held.shape[0] < shape[0]:
            self._forget(name)
            room = (max(shape[0], 1), *shape[1:])
            held = self._held[name] = allocate(self.backend, room, dtype, f"{name} of a grid")
        return held

    def forget_tapes(self) -> None:
        """Drop the tapes: this memory gets another use."""
        self.tapes.clear()

    def _forget(self, name: str) -> None:
        if self._held.pop(name, None) is not None:
            self.forget_tapes()  # they hold the old memory's address

    def constant(self, name: str, count: int, value: float, dtype: np.dtype) -> Any:
        """Return an array of ``count`` equal numbers; it is sent to the device only if the number changes."""
        held = self._held.get(name)
        if held is None or held.dtype != dtype or held.shape[0] < count or self._values.get(name) != value:
            self._forget(name)
            held = self._held[name] = self.backend.upload(np.full(max(count, 1), value, dtype))
            self._values[name] = value
        return held

    def table(self, name: str, numbers: np.ndarray) -> Any:
        """Return a copy of a host array; it is sent to the device only if it is another array than before."""
        held = self(name, numbers.shape, numbers.dtype)  # the same memory, as long as it suffices
        sent, place = self._tables.get(name, (None, None))
        if sent is not numbers or place is not held:
            self.backend.copy(held[: len(numbers)], self.backend.upload(numbers))
            self._tables[name] = numbers, held
        return held

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return sum(int(array.nbytes) for array in self._held.values())


class Rooms:
    """Memory of the current build, of a next build that may fail, and of queries; and the kernels of all of them."""

    def __init__(self, backend: Backend, tapes: Tapes) -> None:
        self.backend = kept(backend)
        self.current, self.spare, self.queries = (Room(backend, tapes) for _ in range(3))

    def swap(self) -> None:
        """Make the spare room the current one: the build in it succeeded."""
        self.current, self.spare = self.spare, self.current

    def target(self, check: bool) -> Room:
        """Return where a build goes: a checked one leaves the current one intact."""
        return self.spare if check else self.current

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return sum(room.nbytes for room in (self.current, self.spare, self.queries))
