# SPDX-License-Identifier: BSD-3-Clause
"""Where a rank's particles belong and which ranks see them: in one pass on a GPU, elsewhere step by step.

A GPU writes, sorts and packs lists of particles by bin, and nothing waits before all is submitted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from particlemesh.arrays.positions import open_bounds
from particlemesh.backends.base import As, Record, kept
from particlemesh.backends.tapes import Tapes
from particlemesh.distributed.domain import Domain
from particlemesh.distributed.routes import Departures
from particlemesh.distributed.surroundings import Image, Surroundings, upward
from particlemesh.sorting import radix

_LISTING, _SURVEY = "distributed/listing.c", "distributed/survey.c"
_DEFINES = {"REAL_IS_DOUBLE": 0}
_U32, _U64 = np.dtype(np.uint32), np.dtype(np.uint64)
STRAY = 4  # numbers of each in a plan's list, which particles/locate.c writes, and before them
_HEADER = 3  # numbers that a pass counts, before the ends of bins
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
        self._planes = _uploaded(tree, backend)
        self._boxes = backend.upload(np.array(corners or [(0.0,) * 6]).reshape(-1))
        self._of = backend.upload(np.array(of or [0], np.int32))
        self._box_count, self._cuts = len(of), self._record()
        self._listing = Listing(backend)
        self.backend, self._token = self._backend, None  # of the last call's stream
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

    def _listed(self, x: Any, count: int, room: int) -> tuple[List, Any, Any]:
        """Return a sorted list with room for so many particles, the particles, and their rows; waits for nothing."""
        backend, axes, listing = self._backend, self._around.mesh.ndim, self._listing
        size = self._around.domain.size
        bins = size + len(self._around.neighbours)

        def submitted() -> tuple[Any, Any]:
            some = listing.begin(bins, room, _HEADER)
            if count:
                run = backend.kernel(_SURVEY, "survey", self._defines)
                run(
                    count, x, self._planes, self._boxes, self._of, some.control, some.index, some.which, count,
                    self._box_count, size, room, self._cuts,
                )  # fmt: skip
            some = listing.sort(some, count)
            particles = listing.particles(some)
            rows = backend.empty((room, axes + 8 // self._dtype.itemsize), self._dtype)
            backend.returns(rows)
            if count:
                pack = backend.kernel(_SURVEY, "survey_rows", self._defines)
                pack(room, As(x, _U32), some.index, As(rows, _U32), room, axes)
            return particles, rows

        # A list of the same room for as many particles is a replay: its dozen launches take the host longer than a GPU.
        particles, rows = listing.tapes.again(self, ("survey", room), (x,), submitted, new_array=backend.empty)
        return listing.list_of(bins, room, _HEADER), particles, rows

    def follow(self) -> Any:
        """Order later work after that of the last call; return the token of the current stream."""
        self._token = token = self._backend.follow(self._token)
        return token

    def begin(self, x: Any, xp: Any) -> Callable[[], Surveyed]:
        """Begin to survey dense particles (N, d); what is returned waits, once unless there are more than expected."""
        count = int(x.shape[0])
        begun = self._listed(x, count, self._guess or _rounded(max(count // 8, self.ROOM)))

        def finish() -> Surveyed:
            some, particles, rows = begun
            (many, bad, away), ends = self._listing.read(some)
            needed = max(many + many // 8, self.ROOM)
            if not needed <= self._guess <= 2 * needed:  # for a replay a list keeps its room
                self._guess = _rounded(max(needed, self._guess * 7 // 8))  # forgets slowly
            if many > some.room:
                some, particles, rows = self._listed(x, count, self._guess)
                _, ends = self._listing.read(some)
            if xp is np:
                particles, rows = self._backend.download(particles), self._backend.download(rows)
            size, numbers = self._around.domain.size, np.diff(ends)
            first, leave = int(ends[0]), int(ends[size])
            sent = numbers[:size].reshape(-1, 1).copy()
            sent[self._around.rank] = count - (leave - first)
            leaving, seen = Departures(xp, count, sent, True, particles[first:leave]), slice(leave, some.room)
            return Surveyed(leaving, particles[seen], numbers[size:].tolist(), not away, bad, rows[seen])

        return finish

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
        run = self._backend.kernel(_SURVEY, "carry", self._defines)
        run(int(rows.shape[0]), rows, every, table, int(rows.shape[0]), int(rows.shape[1]), len(segments), self._cuts)


# ---- lists by bin ---------------------------------------------------------------------------------------------------


class List(NamedTuple):
    """Memory of one list."""

    control: Any  # uint64: a header of the caller's kernels, then where bins end
    index: Any  # uint32: particles, counted from 1
    which: Any  # uint32: their bins, counted from 1
    bins: int
    room: int
    header: int


class Listing:
    """The memory and the kernels of lists, one at a time.

    Parameters
    ----------
    backend : Backend
        CUDA or OpenCL.
    """

    def __init__(self, backend: Any) -> None:
        self.backend: Any = kept(backend)
        self.tapes = Tapes()  # of work in this memory
        self._memory: dict[str, Any] = {}

    def _room(self, name: str, shape: tuple[int, ...], dtype: Any) -> Any:
        """Return memory that is kept; larger than asked for, so that it serves a list that grows a little."""
        held = self._memory.get(name)
        if held is None or held.shape[0] < shape[0] or held.dtype != dtype:
            self.tapes.clear()
            held = self._memory[name] = self.backend.empty((shape[0] * 5 // 4, *shape[1:]), dtype)
        return held

    def list_of(self, bins: int, room: int, header: int) -> List:
        """Return the memory of a list with room for so many particles."""
        control = self._room("control", (header + bins + 1,), _U64)
        index, which = (self._room(name, (room,), _U32) for name in ("index", "bin"))
        return List(control, index, which, bins, room, header)

    def begin(self, bins: int, room: int, header: int) -> List:
        """Return an empty list with room for so many particles."""
        some = self.list_of(bins, room, header)
        for array in some[:3]:
            self.backend.clear(array)
        return some

    def sort(self, some: List, count: int) -> List:
        """Sort a list of indices below ``count`` by bin, then by index; its control memory says where bins end."""

        def room(of: str) -> Callable[..., Any]:
            return lambda name, shape, dtype: self._room(f"{name} of {of}", shape, dtype)

        # Two stable sorts. What was not written comes first.
        bits = max(count.bit_length(), 1)
        index, which = radix.sort(self.backend, some.index, some.room, bits, room("index"), some.which)
        bits = (some.bins + 1).bit_length()
        which, index = radix.sort(self.backend, which, some.room, bits, room("bin"), index)
        run = self.backend.kernel(_LISTING, "list_ends", _DEFINES)
        run(some.bins + 1, which, some.control, some.bins, some.header, some.room)
        return some._replace(index=index, which=which)

    def particles(self, some: List) -> Any:
        """Return the particles of a sorted list, int64 (room,): those that were listed are the last ones."""
        result = self.backend.empty((some.room,), np.int64)
        self.backend.returns(result)
        self.backend.kernel(_LISTING, "list_particles", _DEFINES)(some.room, some.index, result, some.room)
        return result

    def read(self, some: List) -> tuple[list[int], np.ndarray]:
        """Return the header, and where bins end: first that of what was not written. Waits for the device."""
        numbers = self.backend.download(some.control)[: some.header + some.bins + 1].astype(np.int64)
        return numbers[: some.header].tolist(), numbers[some.header :]


class StrayListing:
    """Lists of a part's strays by the parts that own them.

    Parameters
    ----------
    domain : Domain
        With one part a rank.
    shift : tuple of ints
        From a part's first node of a stencil to the whole mesh's cell.
    backend : Backend
    """

    def __init__(self, domain: Domain, shift: tuple[int, ...], backend: Any) -> None:
        self._listing, self._parts = Listing(backend), domain.size
        tree, mesh, d = domain.tree, domain.mesh, domain.mesh.ndim
        self._planes = _uploaded(tree, backend)
        numbers = np.zeros((3, 3), int)
        numbers[0, :d], numbers[1, :d], numbers[2, :d] = mesh.shape, mesh.periodic, shift
        self._record = Record("=12i", *numbers.ravel().tolist(), d, tree.depth, domain.size)
        backend.synchronize()  # later calls may come in other streams

    def begin(self, strays: Any, count: int, room: int) -> tuple[Any, Callable[[], np.ndarray | None]]:
        """Begin to sort the first ``room`` strays, of ``count`` particles.

        Return the particles, int64 (room,), of which those that are listed are the last, by part and with bad ones
        last. What else is returned waits, and returns where parts end: first where the list begins. It returns None if
        there may be more strays.
        """
        listing = self._listing
        room = max(min(room, strays.shape[0] // STRAY - 1), 1)
        some = listing.begin(self._parts + 1, room, 0)
        run = listing.backend.kernel(_LISTING, "list_strays", _DEFINES)
        run(room, strays, self._planes, some.index, some.which, room, self._record)
        some = listing.sort(some, count)
        particles = listing.particles(some)

        def read() -> np.ndarray | None:
            _, ends = listing.read(some)
            return None if ends[0] == 0 else ends

        return particles, read


def _rounded(room: int) -> int:
    """Return the next number with three binary digits."""
    step = 1 << max(room.bit_length() - 3, 0)
    return -(-room // step) * step


def _uploaded(tree: Any, backend: Any) -> Any:
    """Return the planes of cuts on a device."""
    planes = np.stack([tree.axis, tree.node, tree.below, tree.above], 1).reshape(-1)
    return backend.upload(np.resize(planes, max(planes.size, 1)).astype(np.int32))
