# SPDX-License-Identifier: BSD-3-Clause
"""The owners of a rank's particles and the ranks that see them, in one pass on a GPU; elsewhere step by step."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from particlemesh.arrays.geometry import open_bounds
from particlemesh.backends.base import Record
from particlemesh.distributed.routes import Departures
from particlemesh.distributed.surroundings import Image, Surroundings, upward

_FILE = "distributed/survey.c"
_BITS = 40  # of an index in a key
_MOST_BOXES = 512  # of neighbours: each particle looks at all of them


class Surveyed(NamedTuple):
    """Where a rank's particles belong, and which ranks see them."""

    leaving: Departures  # to the ranks that own them
    rows: Any  # particles that neighbours see, int64, by neighbour and then ascending
    sizes: list[int]  # how many each neighbour sees
    home: bool  # whether no particle is periods away
    bad: int  # particles that are not finite or outside, where the pass counts them


class Segment(NamedTuple):
    """Ghosts that arrive one behind the other: from one rank, by one image."""

    begin: int
    end: int
    image: Image
    above: bool  # whether they come after the particles of the rank that sees them


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
                list_of.append(Segment(begin, begin + count, image, above))
                begin += count
    return list_of


class Pass:
    """The kernels of one domain, rank and radius on one device."""

    ROOM = 4096  # keys at least

    def __init__(self, around: Surroundings, backend: Any, dtype: np.dtype) -> None:
        self._around, self._backend, self._dtype = around, backend, dtype
        self._defines = {"REAL_IS_DOUBLE": 1, "COORDINATE_IS_DOUBLE": int(dtype.itemsize == 8), "INDEX_BITS": _BITS}
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
        self._keys: Any = None
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

    def survey(self, x: Any, xp: Any) -> Surveyed | None:
        """Survey dense particles (N, d) of the device; waits for it. None if there was no room."""
        around, backend, count = self._around, self._backend, int(x.shape[0])
        size = around.domain.size
        room = max(count // 2, self.ROOM)
        if self._keys is None or self._keys.shape[0] < room:
            self._keys = backend.empty((room,), np.uint64)
        control = backend.upload(np.zeros(3, np.uint64))
        if count:
            run = backend.kernel(_FILE, "survey", self._defines)
            run(count, x, self._planes, self._boxes, self._of, control, self._keys, count, self._box_count, size,
                int(self._keys.shape[0]), self._cuts)  # fmt: skip
        many, bad, away = (int(n) for n in backend.download(control))
        if many > self._keys.shape[0]:
            return None
        keys, starts = self._keys[:many], [n << _BITS for n in range(1, size + len(around.neighbours) + 1)]
        if xp is np:
            keys = np.sort(backend.download(keys).view(np.int64))
            ends = np.searchsorted(keys, starts)
        else:
            keys = xp.sort(keys.view(np.int64))
            ends = xp.searchsorted(keys, around.domain.constants(*starts)).get() if many else np.zeros(len(starts), int)
        numbers = np.diff(ends, prepend=0)
        index = keys & ((1 << _BITS) - 1)
        sent, leave = numbers[:size].reshape(-1, 1).astype(np.int64), int(ends[size - 1])
        sent[around.rank] = count - leave
        leaving = Departures(xp, count, sent, True, index[:leave])
        return Surveyed(leaving, index[leave:], numbers[size:].tolist(), not away, bad)

    def carry(self, rows: Any, every: Any, pieces: list[Segment], places: list[int]) -> None:
        """Write the positions of ghosts, the first numbers of rows (n, ...), to their places in ``every`` (all, d)."""
        table = np.zeros((len(pieces), 5), np.int64)
        segments = sorted(zip(pieces, places, strict=True))  # the kernel goes through them by their first rows
        for line, (piece, to) in zip(table, segments, strict=True):
            line[:2], line[2 : 2 + len(piece.image)] = (piece.begin, to), piece.image
        if pieces:
            run = self._backend.kernel(_FILE, "carry", self._defines)
            run(int(rows.shape[0]), rows, every, self._backend.upload(table.reshape(-1)), int(rows.shape[0]),
                int(rows.shape[1]), len(pieces), self._cuts)  # fmt: skip
