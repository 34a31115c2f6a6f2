# SPDX-License-Identifier: BSD-3-Clause
"""Ghost nodes: from parts to windows with ghosts, and the adjoint, in one round."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from particlemesh.distributed.domain import Domain, Piece, Reach
from particlemesh.distributed.staging import module_of
from particlemesh.distributed.world import World


class Halo:
    """The exchange of ghost nodes between the parts of a domain.

    Parameters
    ----------
    domain : Domain
    world : World
    reach : d pairs of ints, or None
        As for :meth:`Domain.windows`.
    """

    def __init__(self, domain: Domain, world: World, reach: Reach | None) -> None:
        self._world, self._parts = world, domain.parts(world.rank)
        self._first_part = world.rank * domain.per_rank
        windows = 1 if reach is None else domain.per_rank
        self._first_window = world.rank * windows
        start, shape = domain.windows(reach)
        self.shapes = [tuple(n) for n in shape[self._first_window : self._first_window + windows].tolist()]
        self.starts = [tuple(n) for n in start[self._first_window : self._first_window + windows].tolist()]
        self.messages = domain.messages(world.rank, reach)
        filled = np.zeros(windows, np.int64)
        for pieces in self.messages.held.values():
            for piece in pieces:
                filled[piece.holder - self._first_window] += math.prod(piece.shape)
        self._filled = [n == math.prod(shape) for n, shape in zip(filled.tolist(), self.shapes, strict=True)]
        self._buffers: dict[Any, dict[int, Any]] = {}

    def nodes(self) -> int:
        """Return the number of nodes that this rank sends to fill ghosts, or receives to fold them."""
        return sum(_nodes(pieces) for rank, pieces in self.messages.owned.items() if rank != self._world.rank)

    # What may fail on one rank is done at once; what is returned communicates, once all ranks have agreed.

    def fill(self, fields: list[Any], batch: tuple[int, ...]) -> Callable[[], list[Any]]:
        """Make ready to fill the windows (*batch, *shape) of fields (*batch, *part); the result returns the windows.

        Ghosts that nobody owns are zero.
        """
        xp, dtype = module_of(fields[0]), fields[0].dtype
        windows = [
            (xp.empty if whole else xp.zeros)((*batch, *shape), dtype)
            for shape, whole in zip(self.shapes, self._filled, strict=True)
        ]
        for piece in self.messages.held.get(self._world.rank, ()):
            self._window(windows, piece)[...] = self._part(fields, piece)
        exchange = self._exchange(self.messages.owned, self.messages.held, fields, self._part, batch, xp)

        def finish() -> list[Any]:
            for rank, buffer in exchange().items():
                pieces = self.messages.held[rank]
                for piece, term in zip(pieces, _unpacked(buffer, pieces, batch), strict=True):
                    self._window(windows, piece)[...] = term
            return windows

        return finish

    def fold(self, windows: list[Any], batch: tuple[int, ...]) -> Callable[[], list[Any]]:
        """Make ready to fold windows (*batch, *shape); the result returns fields (*batch, *part).

        Every node gets the sum of what windows hold for it.
        Terms are added in the order of ranks, so that the sum has the same bits in every run.
        """
        xp, dtype = module_of(windows[0]), windows[0].dtype
        fields: list[Any] = [xp.zeros((*batch, *part.shape), dtype) for part in self._parts]
        exchange = self._exchange(self.messages.held, self.messages.owned, windows, self._window, batch, xp)

        def finish() -> list[Any]:
            got = exchange()
            for rank, pieces in self.messages.owned.items():
                here = rank == self._world.rank
                terms = [self._window(windows, p) for p in pieces] if here else _unpacked(got[rank], pieces, batch)
                for piece, term in zip(pieces, terms, strict=True):
                    self._part(fields, piece)[...] += term
            return fields

        return finish

    def _window(self, windows: list[Any], piece: Piece) -> Any:
        return windows[piece.holder - self._first_window][(..., *piece.in_window())]

    def _part(self, fields: list[Any], piece: Piece) -> Any:
        here = piece.owner - self._first_part
        return fields[here][(..., *piece.in_part(self._parts[here]))]

    def _exchange(
        self, outgoing: dict[int, list[Piece]], incoming: dict[int, list[Piece]], sources: list[Any],
        place_of: Callable[[list[Any], Piece], Any], batch: tuple[int, ...], xp: Any,
    ) -> Callable[[], dict[int, Any]]:  # fmt: skip
        """Pack the pieces for other ranks; the result sends them in one round and returns what came, packed."""
        dtype = sources[0].dtype
        sends = self._memory("send", outgoing, batch, dtype, xp)
        receives = self._memory("receive", incoming, batch, dtype, xp)
        for rank, buffer in sends.items():
            for piece, packed in zip(outgoing[rank], _unpacked(buffer, outgoing[rank], batch), strict=True):
                packed[...] = place_of(sources, piece)

        def exchange() -> dict[int, Any]:
            self._world.exchange(sends, receives)
            return receives

        return exchange

    def _memory(
        self, what: str, pieces: dict[int, list[Piece]], batch: tuple[int, ...], dtype: np.dtype, xp: Any
    ) -> dict[int, Any]:
        """Return a buffer for each other rank; buffers are made once."""
        size = math.prod(batch)
        key = what, pieces is self.messages.held, size, dtype, xp
        if key not in self._buffers:
            self._buffers[key] = {
                rank: xp.empty(size * _nodes(some), dtype) for rank, some in pieces.items() if rank != self._world.rank
            }
        return self._buffers[key]

    @property
    def nbytes(self) -> int:
        """Bytes of the buffers."""
        return sum(int(array.nbytes) for held in self._buffers.values() for array in held.values())


def _nodes(pieces: list[Piece]) -> int:
    return sum(math.prod(piece.shape) for piece in pieces)


def _unpacked(buffer: Any, pieces: list[Piece], batch: tuple[int, ...]) -> list[Any]:
    """Return views of a buffer for its pieces, (*batch, *shape) each."""
    size, first, views = math.prod(batch), 0, []
    for piece in pieces:
        count = size * math.prod(piece.shape)
        views.append(buffer[first : first + count].reshape((*batch, *piece.shape)))
        first += count
    return views
