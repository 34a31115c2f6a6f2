# SPDX-License-Identifier: BSD-3-Clause
"""The one transpose: arrays of one layout become arrays of another, by one round of messages."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias, TypeVar

from particlemesh.distributed.layouts import Partition, Piece, pieces, shape_of

Work: TypeAlias = Callable[[], list[Any]]
T = TypeVar("T")


def together(world: Any, check: bool, call: str, work: Callable[[], T]) -> T:
    """Return the result of local work, once no rank has failed in it; with ``check=False`` at once.

    Examples
    --------
    >>> from particlemesh.distributed import World
    >>> together(World(), True, "a sum", lambda: 1 + 1)
    2
    """
    return alike(world, check, lambda: (call, work()))


def alike(world: Any, check: bool, work: Callable[[], tuple[str, T]]) -> T:
    """Return the result of local work that also says which call this is, once no rank has failed and all say the same.

    Examples
    --------
    >>> from particlemesh.distributed import World
    >>> alike(World(), True, lambda: ("a sum of two", 1 + 1))
    2
    """
    if not check:
        return work()[1]
    error: BaseException | None = None
    call, result = "", None
    try:
        call, result = work()
    except BaseException as caught:  # noqa: BLE001 - agree raises it, an interrupt too
        error = caught
    world.agree(error, call)
    return result  # type: ignore[return-value]  # agree has raised where there is none


class Form(NamedTuple):
    """What all local arrays of a distributed field have in common."""

    xp: Any  # NumPy or CuPy
    batch: tuple[int, ...]
    dtype: Any

    def empty(self, shape: tuple[int, ...]) -> Any:
        """Return an array of this kind and dtype."""
        return self.xp.empty(shape, self.dtype)


class Transfer:
    """What one rank packs, sends, receives and unpacks so that arrays of ``source`` become arrays of ``target``.

    Transposes of a Fourier transform and moves from one domain to another are the same: intersections of parts.

    Parameters
    ----------
    source, target : Partition
        Of the same shape and number of ranks.
    rank : int
        Whose messages.

    Examples
    --------
    >>> from particlemesh.distributed.layouts import Partition
    >>> rows, columns = Partition.blocks((4, 6), (2, 1)), Partition.blocks((4, 6), (1, 2))
    >>> transfer = Transfer(rows, columns, 0)
    >>> transfer.send_counts, transfer.receive_counts
    ([0, 6], [0, 6])
    """

    def __init__(self, source: Partition, target: Partition, rank: int) -> None:
        if source.shape != target.shape or source.size != target.size:
            raise ValueError(
                f"layouts of {source.shape} on {source.size} ranks and of {target.shape} on {target.size} ranks; "
                "a transfer needs the same nodes and ranks."
            )
        self.source, self.target, self.rank = source, target, rank
        self.trivial = source.parts == target.parts
        others = range(0 if self.trivial else source.size)
        self._sends = [self._side(0, rank, peer) if peer != rank else [] for peer in others]
        self._receives = [self._side(1, peer, rank) if peer != rank else [] for peer in others]
        self._kept = [] if self.trivial else list(pieces(source, target, rank, rank))
        self.send_counts = [sum(piece.size for piece in of_rank) for of_rank in self._sends]
        self.receive_counts = [sum(piece.size for piece in of_rank) for of_rank in self._receives]

    def _side(self, side: int, sender: int, receiver: int) -> list[Piece]:
        return [both[side] for both in pieces(self.source, self.target, sender, receiver)]

    def after(self, work: Work, world: Any, form: Form, check: bool) -> Work:
        """Run local work that returns the rank's arrays of the source, and exchange; every rank calls.

        Parameters
        ----------
        work : function
            Returns a list of arrays (*form.batch, *part), one per part of the source.
        world : World
            What carries the messages.
        form : Form
            Kind of the arrays, their leading axes and dtype: the same on every rank.
        check : bool
            Let all ranks agree that none has failed before they communicate.

        Returns
        -------
        function
            Returns the rank's arrays of the target: the next local work.
        """
        if self.trivial:
            return work

        def ready() -> tuple[list[Any], list[Any], dict[int, Any], dict[int, Any]]:
            arrays = work()
            return arrays, self._results(form), *self.messages(arrays, form)

        arrays, results, sends, received = together(world, check, "a transfer", ready)
        world.exchange(sends, received, lambda: self._keep(arrays, results))
        return lambda: self._unpack(received, results, form)

    def messages(self, arrays: list[Any], form: Form) -> tuple[dict[int, Any], dict[int, Any]]:
        """Return what leaves the rank, packed by receiver, and empty memory for what comes, by sender."""
        many, sends = math.prod(form.batch), {}
        for peer, leaving in enumerate(self._sends):
            if leaving:
                sends[peer] = packed = form.empty((many * self.send_counts[peer],))
                for piece, place in zip(leaving, _places(leaving, many), strict=True):
                    packed[place].reshape(form.batch + piece.shape)[...] = arrays[piece.array][(..., *piece.slices)]
        counts = {peer: count for peer, count in enumerate(self.receive_counts) if count}
        return sends, {peer: form.empty((many * count,)) for peer, count in counts.items()}

    def unpack(self, arrays: list[Any], received: dict[int, Any], form: Form) -> list[Any]:
        """Return the arrays of the target from what was received, by sender, and from what stayed."""
        results = self._results(form)
        self._keep(arrays, results)
        return self._unpack(received, results, form)

    def _results(self, form: Form) -> list[Any]:
        return [form.empty(form.batch + shape_of(part)) for part in self.target.parts[self.rank]]

    def _keep(self, arrays: list[Any], results: list[Any]) -> None:
        """Copy what stays, which may be done while messages travel."""
        for there, here in self._kept:
            results[here.array][(..., *here.slices)] = arrays[there.array][(..., *there.slices)]

    def _unpack(self, received: dict[int, Any], results: list[Any], form: Form) -> list[Any]:
        many = math.prod(form.batch)
        for peer, packed in received.items():
            coming = self._receives[peer]
            for piece, place in zip(coming, _places(coming, many), strict=True):
                results[piece.array][(..., *piece.slices)] = packed[place].reshape(form.batch + piece.shape)
        return results


def _places(pieces: list[Piece], many: int) -> list[slice]:
    """Return where each piece lies in a message of ``many`` fields."""
    ends = list(itertools.accumulate(many * piece.size for piece in pieces))
    return [slice(end - many * piece.size, end) for piece, end in zip(pieces, ends, strict=True)]
