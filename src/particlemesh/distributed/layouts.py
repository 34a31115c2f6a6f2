# SPDX-License-Identifier: BSD-3-Clause
"""Which nodes of a mesh each rank holds, and what two ranks exchange when this changes.

A *range* is half-open, a *part* has one range per axis, and a *layout* lists the parts of every rank. All functions
are pure: every rank computes the same lists from the same layouts, so that no message needs an announcement.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

Range = tuple[int, int]
Part = tuple[Range, ...]


def cuts(nodes: int, pieces: int) -> tuple[Range, ...]:
    """Return ``nodes`` cut into ranges whose lengths differ by at most one; some are empty if there are more pieces.

    Examples
    --------
    >>> cuts(7, 3)
    ((0, 2), (2, 4), (4, 7))
    """
    return tuple((nodes * i // pieces, nodes * (i + 1) // pieces) for i in range(pieces))


def shape_of(part: Part) -> tuple[int, ...]:
    """Return the nodes of a part along each axis.

    Examples
    --------
    >>> shape_of(((0, 2), (3, 7)))
    (2, 4)
    """
    return tuple(stop - start for start, stop in part)


def intersection(one: Part, other: Part) -> Part | None:
    """Return the nodes that two parts share, None if there are none.

    Examples
    --------
    >>> intersection(((0, 4),), ((2, 9),)), intersection(((0, 4),), ((4, 9),))
    (((2, 4),), None)
    """
    common = tuple((max(a, c), min(b, d)) for (a, b), (c, d) in zip(one, other, strict=True))
    return common if all(start < stop for start, stop in common) else None


@dataclass(frozen=True)
class Partition:
    """The parts of every rank. Together they cover each node of ``shape`` once.

    Parameters
    ----------
    shape : tuple of int
        Nodes, or modes, along each axis.
    parts : tuple of tuples of parts
        ``parts[rank]`` are those of a rank, in the order of its arrays. A part may be empty.

    Examples
    --------
    >>> layout = Partition.blocks((4, 6), (2, 1))
    >>> layout.parts
    ((((0, 2), (0, 6)),), (((2, 4), (0, 6)),))
    >>> layout.whole(1), layout.whole(0)
    (True, False)
    """

    shape: tuple[int, ...]
    parts: tuple[tuple[Part, ...], ...]

    @classmethod
    def blocks(cls, shape: tuple[int, ...], pieces: tuple[int, ...]) -> Partition:
        """Return the layout with each axis cut evenly into ``pieces``; ranks are numbered in C order."""
        parts: list[Part] = [()]
        for nodes, count in zip(shape, pieces, strict=True):
            parts = [(*part, piece) for part in parts for piece in cuts(nodes, count)]
        return cls(shape, tuple((part,) for part in parts))

    @property
    def size(self) -> int:
        """Number of ranks."""
        return len(self.parts)

    def whole(self, axis: int) -> bool:
        """Return whether every rank has one part, which spans the axis unless it is empty."""
        full = (0, self.shape[axis])
        return all(
            len(parts) == 1 and (parts[0][axis] == full or not math.prod(shape_of(parts[0]))) for parts in self.parts
        )

    def resized(self, axis: int, nodes: int) -> Partition:
        """Return the layout of an array whose axis, whole in every part, has another length: modes instead of nodes."""
        parts = tuple(
            tuple(part[:axis] + (((0, nodes) if part[axis][1] else (0, 0)),) + part[axis + 1 :] for part in of_rank)
            for of_rank in self.parts
        )
        return Partition(self.shape[:axis] + (nodes,) + self.shape[axis + 1 :], parts)


@dataclass(frozen=True)
class Piece:
    """Nodes that two ranks share: the number of an array in a rank's list, and its slices."""

    array: int
    slices: tuple[slice, ...]
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Number of nodes."""
        return math.prod(self.shape)


def pieces(source: Partition, target: Partition, sender: int, receiver: int) -> Iterator[tuple[Piece, Piece]]:
    """Yield what one rank sends another: each piece in the sender's arrays and in the receiver's, in one order.

    Examples
    --------
    >>> rows, columns = Partition.blocks((2, 4), (2, 1)), Partition.blocks((2, 4), (1, 2))
    >>> ((there, here),) = pieces(rows, columns, 0, 1)
    >>> there.slices, here.slices
    ((slice(0, 1, None), slice(2, 4, None)), (slice(0, 1, None), slice(0, 2, None)))
    """
    for i, part in enumerate(source.parts[sender]):
        for j, other in enumerate(target.parts[receiver]):
            common = intersection(part, other)
            if common is not None:
                yield _piece(i, part, common), _piece(j, other, common)


def _piece(array: int, part: Part, common: Part) -> Piece:
    slices = tuple(slice(a - start, b - start) for (a, b), (start, _) in zip(common, part, strict=True))
    return Piece(array, slices, shape_of(common))


@dataclass(frozen=True)
class Stage:
    """Axes that are whole on every rank: transformed without messages, in this order from the last to the first."""

    layout: Partition
    axes: tuple[int, ...]


def near_square(size: int) -> tuple[int, int]:
    """Return two factors of ``size`` that are as equal as possible, the smaller first.

    Examples
    --------
    >>> near_square(12), near_square(7)
    ((3, 4), (1, 7))
    """
    small = max(p for p in range(1, math.isqrt(size) + 1) if size % p == 0)
    return small, size // small


SLABS, PENCILS = "slabs", "pencils"


def kind_for(shape: tuple[int, ...], modes: tuple[int, ...], size: int) -> str:
    """Return "slabs" while every rank gets one, else "pencils"; fewer than three axes have no pencils."""
    return PENCILS if len(shape) == 3 and size > min(shape[0], modes[1]) else SLABS


def stages(domain: Partition, modes: tuple[int, ...], kind: str) -> tuple[Stage, ...]:
    """Return the layouts that a transform passes, the last axis first; the first layout has nodes, the others modes.

    The domain's own layout is the first one if it suits, whatever its cuts are.

    Parameters
    ----------
    domain : Partition
        Nodes of the domain.
    modes : tuple of int
        Modes along each axis: half of the last one for real fields.
    kind : {"slabs", "pencils"}
        Cut one axis, or two.
    """
    shape, size, ndim = domain.shape, domain.size, len(domain.shape)
    if ndim == 1:
        alone = Partition(shape, ((((0, shape[0]),),),) + ((((0, 0),),),) * (size - 1))
        return (Stage(domain if domain.whole(0) else alone, (0,)),)
    if kind == SLABS or ndim == 2:
        local = tuple(range(1, ndim))
        rows = Partition.blocks(shape, (size,) + (1,) * (ndim - 1))
        first = domain if all(domain.whole(axis) for axis in local) else rows
        if first.whole(0):  # one rank has all
            return (Stage(first, tuple(range(ndim))),)
        columns = Partition.blocks(modes, (1, size) + (1,) * (ndim - 2))
        return Stage(first, local), Stage(columns, (0,))
    few, many = near_square(size)
    first = domain if domain.whole(2) else Partition.blocks(shape, (few, many, 1))
    return (
        Stage(first, (2,)),
        Stage(Partition.blocks(modes, (few, 1, many)), (1,)),
        Stage(Partition.blocks(modes, (1, few, many)), (0,)),
    )
