# SPDX-License-Identifier: BSD-3-Clause
"""The owners of a rank's particles and the ranks that see them, in one pass on a GPU; elsewhere step by step."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from particlemesh.arrays.geometry import open_bounds
from particlemesh.backends.base import As, Record, kept
from particlemesh.distributed.routes import Departures
from particlemesh.distributed.surroundings import Image, Surroundings, upward
from particlemesh.sorting import radix

_FILE = "distributed/survey.c"
_WORDS = 3  # of the control memory, before the ends of bins
_U32, _U64 = np.dtype(np.uint32), np.dtype(np.uint64)
_MOST_BOXES = 512  # of neighbours: each particle looks at all of them


class Surveyed(NamedTuple):
    """Where a rank's particles belong, and which ranks see them."""

    leaving: Departures  # to the ranks that own them
    rows: Any  # particles that neighbours see, int64, by neighbour and then ascending
    sizes: list[int]  # how many each neighbour sees
    home: bool  # whether no particle is periods away
    bad: int  # particles that are not finite or outside, where the pass counts them
    packed: Any = None  # rows of positions and indices of these particles, where the pass packs them


class Segment(NamedTuple):
    """Ghosts that arrive one behind the other: from one rank, by one image."""

    begin: int
    end: int
    image: Image
    above: bool  # whether they come after the particles of the rank that sees them
    rank: int = 0  # that sends them


def stepwise(around: Surroundings, x: Any, xp: Any) -> Surveyed:
    """Survey particles (N, d) of NumPy or CuPy."""
    domain = around.domain
    placed = around.place(x, xp)
    leaving = Departures.of(domain.owner(placed.cells), around.rank, domain.size, 1)
    indices = [around.seen(placed, to, xp) for to in around.neighbours]
    home = not any(bool(periods.any()) for periods in placed.periods)
    rows = xp.concatenate([xp.zeros(0, np.int64), *indices])
    return Surveyed(leaving, rows, [int(some.shape[0]) for some in indices], home, 0)


def segments(around: Surroundings, arriving: np.ndarray) -> list[Segment]:
    """Return what arrives, of how many ghosts (size, images) each rank sends by each image."""
    list_of, begin = [], 0
    for rank, counts in enumerate(arriving.tolist()):
        for image, count in zip(around.images, counts, strict=True):
            if count:
                above = upward(image) or (not any(image) and rank > around.rank)
                list_of.append(Segment(begin, begin + count, image, above, rank))
                begin += count
    return list_of


class Pass:
    """The kernels of one domain, rank and radius on one device."""

    ROOM = 4096  # particles of a list at least

    def __init__(self, around: Surroundings, backend: Any, dtype: np.dtype) -> None:
        self._around, self._dtype = around, dtype
        self._backend: Any = kept(backend)
        self._defines = {"REAL_IS_DOUBLE": 1, "COORDINATE_IS_DOUBLE": int(dtype.itemsize == 8)}
        tree, corners, of = around.domain.tree, [], []
        for n, to in enumerate(around.neighbours):
            for low, high in around.seen_in(to):
                corners.append((*low, *high))
                of.append(n)
        planes = np.stack([tree.axis, tree.node, tree.below, tree.above], 1).reshape(-1)
        self._planes = backend.upload(np.resize(planes, max(planes.size, 1)).astype(np.int32))
        self._boxes = backend.upload(np.array(corners or [(0.0,) * 6]).reshape(-1))
        self._of = backend.upload(np.array(of or [0], np.int32))
        self._box_count, self._cuts = len(of), self._record()
        self._memory: dict[str, Any] = {}
        self._guess = 0  # what to expect in the next list
        self._table: tuple[Any, Any] = None, None  # segments, and their numbers on the device
        backend.synchronize()  # later calls may come in other streams

    @staticmethod
    def serves(around: Surroundings) -> bool:
        """Return whether the kernels know the domain: open axes of tilted boxes need other bounds."""
        box = around.mesh.box
        many = sum(len(around.domain.parts(to.rank)) for to in around.neighbours)
        return (box.orthorhombic or all(box.periodic)) and many <= _MOST_BOXES

    def _record(self) -> Record:
        """Return ``Cuts`` of survey.c, missing axes last."""
        around, box = self._around, self._around.mesh.box
        d = box.ndim
        lower, upper = open_bounds(box.origin, box.inverse, box.lengths, box.orthorhombic, self._dtype)
        square, line = np.zeros((2, 3, 3)), np.zeros((4, 3))
        square[0, :d, :d], square[1, :d, :d] = around.coefficients, box.matrix
        line[0, :d], line[1, :d], line[2, :d], line[3, :d] = box.origin, around.mesh.offset, lower, upper
        integers = np.zeros((3, 3), int)
        integers[0, :d], integers[1, :d], integers[2, :d] = around.mesh.shape, around.cut, around.mesh.periodic
        domain = around.domain
        return Record(
            "=31d14i", *square.ravel(), *line.ravel(), 1.0, *integers.ravel().tolist(), d, domain.tree.depth,
            domain.per_rank, around.rank, 0,
        )  # fmt: skip

    def _room(self, name: str, shape: tuple[int, ...], dtype: Any) -> Any:
        """Return memory that is kept; larger than asked for, so that it serves a list that grows a little."""
        held = self._memory.get(name)
        if held is None or held.shape[0] < shape[0] or held.dtype != dtype:
            held = self._memory[name] = self._backend.empty((shape[0] * 5 // 4, *shape[1:]), dtype)
        return held

    def _listed(self, x: Any, count: int, room: int) -> tuple[np.ndarray, Any, Any]:
        """Return the control memory of a list with room for so many particles, the particles, and their rows.

        Where there is room for all, they are the last of those returned. It waits once, at the end.
        """
        around, backend = self._around, self._backend
        size, axes = around.domain.size, around.mesh.ndim
        bins = size + len(around.neighbours)
        control = self._room("control", (_WORDS + bins,), _U64)
        index, which = (self._room(name, (room,), _U32) for name in ("index", "bin"))
        for array in (control, index, which):
            backend.clear(array)
        particles, rows = backend.empty((room,), np.int64), self._empty_rows(room)
        if count:
            run = backend.kernel(_FILE, "survey", self._defines)
            run(
                count, x, self._planes, self._boxes, self._of, control, index, which, count, self._box_count, size,
                room, self._cuts,
            )  # fmt: skip
            # Two stable sorts: by index, then by bin. What is empty comes first.
            bits = count.bit_length()
            index, which = radix.sort(backend, index, room, bits, self._of_index, which)
            which, index = radix.sort(backend, which, room, (bins + 1).bit_length(), self._of_bin, index)
            pack = backend.kernel(_FILE, "survey_rows", self._defines)
            pack(room, As(x, _U32), index, particles, As(rows, _U32), room, axes)
        backend.kernel(_FILE, "survey_ends", self._defines)(bins, which, control, bins, room)
        return backend.download(control)[: _WORDS + bins].astype(np.int64), particles, rows

    def _of_index(self, name: str, shape: tuple[int, ...], dtype: Any) -> Any:
        return self._room(f"{name} of indices", shape, dtype)

    def _of_bin(self, name: str, shape: tuple[int, ...], dtype: Any) -> Any:
        return self._room(f"{name} of bins", shape, dtype)

    def _empty_rows(self, room: int) -> Any:
        return self._backend.empty((room, self._around.mesh.ndim + 8 // self._dtype.itemsize), self._dtype)

    def survey(self, x: Any, xp: Any) -> Surveyed:
        """Survey dense particles (N, d) of the device; waits for it once, unless there are more than expected."""
        around, count = self._around, int(x.shape[0])
        size, room = around.domain.size, self._guess or max(count // 8, self.ROOM)
        control, particles, rows = self._listed(x, count, room)
        many = int(control[0])
        self._guess = max(many + many // 8, self._guess * 7 // 8, self.ROOM)  # forgets slowly
        if many > room:
            room = self._guess
            control, particles, rows = self._listed(x, count, room)
        if xp is np:
            particles, rows = self._backend.download(particles), self._backend.download(rows)
        first = room - many
        numbers = np.diff(control[_WORDS:], prepend=first)
        sent, leave = numbers[:size].reshape(-1, 1).copy(), first + int(numbers[:size].sum())
        sent[around.rank] = count - (leave - first)
        leaving = Departures(xp, count, sent, True, particles[first:leave])
        return Surveyed(
            leaving, particles[leave:room], numbers[size:].tolist(), not control[2], int(control[1]), rows[leave:room]
        )

    def carry(self, rows: Any, every: Any, pieces: list[Segment], places: list[int]) -> None:
        """Write the positions of ghosts, the first numbers of rows (n, ...), to their places in ``every`` (all, d)."""
        segments = tuple(sorted(zip(pieces, places, strict=True)))  # the kernel goes through them by their first rows
        if not segments:
            return
        known, table = self._table
        if known != segments:
            numbers = np.zeros((len(segments), 5), np.int64)
            for line, (piece, to) in zip(numbers, segments, strict=True):
                line[:2], line[2 : 2 + len(piece.image)] = (piece.begin, to), piece.image
            table = self._backend.upload(numbers.reshape(-1))
            self._table = segments, table
        run = self._backend.kernel(_FILE, "carry", self._defines)
        run(int(rows.shape[0]), rows, every, table, int(rows.shape[0]), int(rows.shape[1]), len(segments), self._cuts)
