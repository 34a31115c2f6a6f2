# SPDX-License-Identifier: BSD-3-Clause
"""Which nodes of a mesh each rank holds, the one transpose when this changes, and a rank's arrays of a field.

A *range* is half-open, a *part* has one range per axis, and a *layout* lists the parts of every rank. Layouts are pure:
every rank computes the same lists from the same layouts, so that no message needs an announcement.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from particlemesh.distributed.domain import Domain, check_ranks
from particlemesh.distributed.packing import Boxed, Packing, sections
from particlemesh.distributed.staging import Staged, batch_of, several
from particlemesh.distributed.transports import module_of
from particlemesh.distributed.world import together

Range = tuple[int, int]
Part = tuple[Range, ...]
Work: TypeAlias = Callable[[], list[Any]]


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
            tuple(part[:axis] + ((0, nodes * (part[axis][0] < part[axis][1])),) + part[axis + 1 :] for part in of_rank)
            for of_rank in self.parts
        )
        return Partition(self.shape[:axis] + (nodes,) + self.shape[axis + 1 :], parts)


class Shared(NamedTuple):
    """Nodes that two ranks share: the number of an array in a rank's list, and its slices."""

    array: int
    slices: tuple[slice, ...]
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Number of nodes."""
        return math.prod(self.shape)


def pieces(source: Partition, target: Partition, sender: int, receiver: int) -> Iterator[tuple[Shared, Shared]]:
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


def _piece(array: int, part: Part, common: Part) -> Shared:
    slices = tuple(slice(a - start, b - start) for (a, b), (start, _) in zip(common, part, strict=True))
    return Shared(array, slices, shape_of(common))


class Stage(NamedTuple):
    """Axes that are whole on every rank: transformed without messages, in this order from the last to the first."""

    layout: Partition
    axes: tuple[int, ...]

    def transformed(self, modes: tuple[int, ...]) -> Partition:
        """Return the layout after the transforms: with modes along these axes."""
        return functools.reduce(lambda layout, axis: layout.resized(axis, modes[axis]), self.axes, self.layout)


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
# Of the model of benchmarks/distributed/model.py, in complex64 that travel in its time at 35 GB/s.
MESSAGE, ROUND = 13_000, 109_000  # 3 µs of one more message, 25 µs of a round
PACKED = 1.035  # with packing and unpacking
SURE = 0.9  # of the price of slabs, at which pencils are taken: their transforms are one axis at a time


def stages(domain: Partition, modes: tuple[int, ...], kind: str) -> tuple[Stage, ...]:
    """Return the layouts that a transform passes, the last axis first: with nodes of axes to come, modes of others.

    The domain's own layout is the first one if it suits, whatever its cuts are.

    Parameters
    ----------
    domain : Partition
        Nodes of the domain.
    modes : tuple of int
        Modes along each axis that are kept: at most half of the last one for real fields.
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
        columns = Partition.blocks((shape[0], *modes[1:]), (1, size) + (1,) * (ndim - 2))
        return Stage(first, local), Stage(columns, (0,))
    few, many = near_square(size)
    first = domain if domain.whole(2) else Partition.blocks(shape, (few, many, 1))
    return (
        Stage(first, (2,)),
        Stage(Partition.blocks((*shape[:2], modes[2]), (few, 1, many)), (1,)),
        Stage(Partition.blocks((shape[0], *modes[1:]), (1, few, many)), (0,)),
    )


# ---- how arrays of one layout become those of another -----------------------------------------------------------


class Form(NamedTuple):
    """What all local arrays of a distributed field have in common."""

    xp: Any  # NumPy or CuPy
    batch: tuple[int, ...]
    dtype: Any

    def empty(self, shape: tuple[int, ...]) -> Any:
        """Return an array of this kind and dtype."""
        return self.xp.empty(shape, self.dtype)

    def buffer(self, nodes: int) -> Any:
        """Return memory for messages of all fields."""
        return self.empty((math.prod(self.batch) * nodes,))


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
        sends = [self._side(0, rank, peer) if peer != rank else [] for peer in others]
        receives = [self._side(1, peer, rank) if peer != rank else [] for peer in others]
        self._kept = [] if self.trivial else list(pieces(source, target, rank, rank))
        self.send_counts = [sum(piece.size for piece in of_rank) for of_rank in sends]
        self.receive_counts = [sum(piece.size for piece in of_rank) for of_rank in receives]
        self._packed = _packings(sends, len(source.parts[rank]))
        self._unpacked = _packings(receives, len(target.parts[rank]))

    def _side(self, side: int, sender: int, receiver: int) -> list[Shared]:
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

        def ready() -> tuple[list[Any], list[Any], Any, Any]:
            arrays = work()
            results = [form.empty(form.batch + shape_of(part)) for part in self.target.parts[self.rank]]
            return arrays, results, *self.messages(arrays, form)

        def unpacked() -> list[Any]:
            for packing, array in zip(self._unpacked, results, strict=True):
                packing.unpack(array, coming)
            return results

        arrays, results, leaving, coming = together(world, check, "a transfer", ready)
        sends, receives = (
            sections(buffer, dict(enumerate(counts)), math.prod(form.batch))
            for buffer, counts in ((leaving, self.send_counts), (coming, self.receive_counts))
        )
        world.exchange(sends, receives, lambda: self._keep(arrays, results))
        return unpacked

    def messages(self, arrays: list[Any], form: Form) -> tuple[Any, Any]:
        """Return what leaves the rank, packed by receiver, and empty memory for what comes, by sender."""
        leaving, coming = (form.buffer(sum(counts)) for counts in (self.send_counts, self.receive_counts))
        for packing, array in zip(self._packed, arrays, strict=True):
            packing.pack(array, leaving)
        return leaving, coming

    def _keep(self, arrays: list[Any], results: list[Any]) -> None:
        """Copy what stays, which may be done while messages travel."""
        for there, here in self._kept:
            results[here.array][(..., *here.slices)] = arrays[there.array][(..., *there.slices)]


def packing_of(parts: list[Part]) -> Packing:
    """Return what packs parts of an array, one behind the other."""
    starts = itertools.accumulate((math.prod(shape_of(part)) for part in parts), initial=0)
    return Packing(
        Boxed(tuple(a for a, _ in part), shape_of(part), before)
        for part, before in zip(parts, starts, strict=False)
    )  # fmt: skip


def _packings(sides: list[list[Shared]], arrays: int) -> list[Packing]:
    """Return what packs or unpacks each of a rank's arrays, of the pieces for each peer."""
    boxes: list[list[Boxed]] = [[] for _ in range(arrays)]
    before = 0
    for piece in itertools.chain(*sides):
        boxes[piece.array].append(Boxed(tuple(s.start for s in piece.slices), piece.shape, before))
        before += piece.size
    return [Packing(some) for some in boxes]


def kind_for(nodes: Partition, modes: tuple[int, ...], real: bool = False) -> str:
    """Return "slabs", or "pencils" where not every rank gets a slab or a model says that they take a tenth less.

    Parameters
    ----------
    nodes : Partition
        Of the domain. Without three axes there are no pencils.
    modes : tuple of int
        Modes along each axis.
    real : bool
        Whether nodes are real numbers, of half of the bytes of modes.
    """
    shape, size = nodes.shape, nodes.size
    if len(shape) < 3 or size == 1:
        return SLABS

    def price(kind: str) -> float:
        """Return the numbers that a rank sends, with messages and rounds counted as numbers."""
        total = 0.0
        for n, move in enumerate(moves(nodes, modes, kind, size // 2)):
            counts = [count for count in move.send_counts if count]
            share = 0.5 if real and n == 0 else 1.0
            total += share * PACKED * sum(counts) + MESSAGE * len(counts) + (ROUND if counts else 0)
        return total

    return PENCILS if size > min(shape[0], modes[1]) or price(PENCILS) < SURE * price(SLABS) else SLABS


def moves(nodes: Partition, modes: tuple[int, ...], kind: str, rank: int) -> list[Transfer]:
    """Return the transfers of a rank in a forward transform: from the domain, then between the stages."""
    passed = stages(nodes, modes, kind)
    after = (stage.transformed(modes) for stage in passed)
    pairs = [(nodes, passed[0].layout), *zip(after, (stage.layout for stage in passed[1:]), strict=False)]
    return [Transfer(*pair, rank) for pair in pairs]


# ---- what a rank gives and gets ---------------------------------------------------------------------------------


def layout_of(cuts: Any, world: Any) -> Partition:
    """Return the parts of all ranks of a domain, or of one part for each rank.

    Raises
    ------
    ValueError
        If they are for another number of ranks.
    """
    if isinstance(cuts, Domain):
        check_ranks(cuts, world)
        of_ranks = tuple(tuple(ranges(part) for part in cuts.parts(rank)) for rank in range(cuts.size))
        return Partition(tuple(cuts.mesh.shape), of_ranks)
    parts = tuple(cuts)
    if len(parts) != world.size:
        raise ValueError(f"there are {len(parts)} parts; give one for each of {world.size} ranks, or a Domain.")
    ends = zip(*(part.upper for part in parts), strict=True)
    return Partition(tuple(map(max, ends)), tuple((ranges(part),) for part in parts))


def ranges(part: Any) -> Part:
    """Return a domain's part as one range per axis."""
    return tuple((start, start + nodes) for start, nodes in zip(part.lower, part.shape, strict=True))


def fields_of(
    given: Any, parts: tuple[Part, ...], what: str, *, promotes: bool = True
) -> tuple[list[Any], Form, Staged]:
    """Return a rank's arrays of NumPy or CuPy, one per part, what they have in common, and their kind.

    Parameters
    ----------
    given : array, or tuple with one for each part of this rank
    parts : tuple of parts
        The rank's.
    what : str
        Name of the argument, for messages.
    promotes : bool
        Integers become float64, as for SciPy; else all numbers stay what they are.

    Raises
    ------
    ValueError, TypeError
        If an array has another shape than its part, or they differ in kind, dtype or leading axes.
    """
    staged = [Staged(one, what) for one in several(given, len(parts), what)]
    arrays = [one.native for one in staged]
    forms = []
    for n, (array, part) in enumerate(zip(arrays, parts, strict=True)):
        batch = batch_of(tuple(array.shape), shape_of(part), what)
        if promotes and array.dtype.kind in "biu":
            arrays[n] = array = array.astype(np.float64)
        if array.dtype.char not in "fdFD" and (promotes or array.dtype.kind not in "biu"):
            raise TypeError(f"{what} has dtype {array.dtype}; float32, float64, complex64 or complex128 is needed.")
        forms.append(Form(module_of(array), batch, array.dtype))
    if any(form != forms[0] for form in forms):
        raise ValueError(f"the arrays of {what} differ in kind, dtype or leading axes; they are parts of one field.")
    return arrays, forms[0], staged[0]


def finished(kind: Staged, arrays: list[Any]) -> Any:
    """Return an array of the caller's kind, or a tuple where the rank has several parts."""
    results = [kind.like(array) for array in arrays]
    return results[0] if len(results) == 1 else tuple(results)


def moved(
    transfer: Transfer, field: Any, world: Any, call: str, cuts: str, check: bool, *, copies: bool = False
) -> Any:
    """Return the arrays of the target, of the caller's kind, from a rank's arrays of any real or complex numbers.

    Where source and target are alike, these are the arrays given, unless it ``copies``.
    """

    def accepted() -> tuple[str, tuple[list[Any], Form, Staged]]:
        made = fields_of(field, transfer.source.parts[world.rank], "field", promotes=False)
        return f"{call} of {made[1].dtype} {made[1].batch}, cuts {cuts}", made

    arrays, form, kind = world.alike(accepted, check)
    with kind.scope():
        dtype = form.dtype
        if dtype.itemsize < 4 and not transfer.trivial:  # packing moves words of at least this size
            form = form._replace(dtype=np.dtype(np.int32))
            arrays = [array.astype(form.dtype) for array in arrays]
        results = transfer.after(lambda: arrays, world, form, check)()
        return finished(kind, [array.astype(dtype, copy=copies and transfer.trivial) for array in results])
