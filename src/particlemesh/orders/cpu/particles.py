# SPDX-License-Identifier: BSD-3-Clause
"""The particles of a plan on the CPU, in the order of tiles, which every method there reads; on one axis as given.

Two passes over the positions: one counts, one places. Both locate every particle, which takes less time than
writing nodes and fractions in the caller's order and reading them again. The first pass also finds what is wrong,
so that nothing is overwritten for positions that will be refused.

On one axis a stencil is a few neighbouring numbers, so sorting takes longer than all that it could save.

A tile is a box of nodes, small enough that a thread works on a private copy of it in its cache. It holds the particles
whose stencil starts in it. Tiles are at least as wide as a stencil reaches, so only neighbours overlap. Work is cut
into tasks: a tile and at most so many of its particles.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from particlemesh import checks
from particlemesh.arrays.kinds import allocate
from particlemesh.arrays.positions import Coordinates
from particlemesh.backends.base import Backend
from particlemesh.backends.cpu import PARTICLES_PER_THREAD, claimed, ranges, run, threads_for
from particlemesh.backends.jit import compiled
from particlemesh.backends.simd import fetch_add, item, prefetch_to_write, put, store_record
from particlemesh.box import Box
from particlemesh.mesh import Mesh
from particlemesh.particles.locate import (
    BLOCK,
    SKIP,
    Frame,
    block_room,
    columns_of,
    frame_of,
    locate_block,
    new_status,
    note_bad,
    sum_status,
)
from particlemesh.particles.located import Status
from particlemesh.particles.stencil import Axis
from particlemesh.particles.workspace import Workspace
from particlemesh.sorting.cpu import counting_sort, histogram_rows, index_type, scan, share_of

CHUNK = 4096  # particles of a task at most, so that one crowded tile is shared among threads
_LARGE_CHUNK = 16384  # the same of many particles: fewer boxes
_TASKS = 512  # that are enough for many threads
_TOGETHER = 64  # tiles of slabs that are listed together: 16 of each colour. With 128 they leave the caches
LOCAL_BITS = 10  # of each coordinate within a tile, in the record of a particle
# Particles follow each other by cells of a tile, where cells have so many: stencils that overlap are then in the first
# cache. With supports of 7 to 12 spreading takes 0.7 of the time (Xeon, 10**6 particles, 128^3).
_IN_CELLS = 4
MOST_TILES = 2**24  # beyond, as on a mesh of 4096 nodes cubed, tiles grow: counts would cost more than they save
_CROWDED = 64  # a tile with more than this part of all tasks is crowded
_LINE_BYTES = 64  # of the cache
_NONE = np.empty(0, np.int32)  # without systems; another type than an array's would be compiled for
_FEW = 4 * PARTICLES_PER_THREAD
_SHARES = 2  # ranges of particles for each thread, so that a thread that starts late has less left to do

Axes = tuple[Axis, Axis, Axis]


# ---- how a mesh is cut into tiles -----------------------------------------------------------------------------------


class Tiling(NamedTuple):
    """How the mesh is cut: three axes of everything."""

    size: tuple[int, int, int]  # nodes of the field
    wraps: tuple[int, int, int]
    low: tuple[int, int, int]  # smallest first node of a stencil
    extent: tuple[int, int, int]  # how many first nodes there are
    support: tuple[int, int, int]
    bits: tuple[int, int, int]  # a tile is 2**bits wide; the last one of an axis also has the rest
    tiles: tuple[int, int, int]


class Cells(NamedTuple):
    """How the particles of a tile are cut: into cells, by which they follow each other, and into tasks."""

    bits: tuple[int, int, int]  # a cell is 2**bits wide; the last one of an axis also has the rest
    along: tuple[int, int, int]
    chunk: int  # particles of a task at most

    @classmethod
    def of(cls, tiling: Tiling, count: int) -> Cells:
        """Return the cells of three-dimensional tiles with many particles, or one for each tile."""
        chunk = min(max(CHUNK, count // _TASKS), _LARGE_CHUNK)
        if min(tiling.extent) == 1 or count < _IN_CELLS * math.prod(tiling.tiles):
            return cls(tiling.bits, (1, 1, 1), chunk)
        most = 3 if max(tiling.support) < 10 else 2
        bits = _three(min(b, most) for b in tiling.bits)
        along = _three(1 << b - c for b, c in zip(tiling.bits, bits, strict=True))
        if count < _IN_CELLS * math.prod(tiling.tiles) * math.prod(along):
            return cls(tiling.bits, (1, 1, 1), chunk)
        return cls(bits, along, chunk)


def tiling_of(axes: tuple[Axis, ...]) -> Tiling:
    """Return how a mesh is cut into tiles: it depends on nothing else, so results do not.

    Raises
    ------
    MemoryError
        If there are more than `MOST_TILES` of the widest tiles.
    """
    return _tiling(axes, MOST_TILES)


@functools.lru_cache(maxsize=64)
def _tiling(axes: tuple[Axis, ...], most: int) -> Tiling:
    present = sum(axis.size > 1 or axis.support > 1 for axis in axes)
    # Measured on an EPYC 9005 at 128^3: smaller boxes fit the first cache, larger ones have less rim.
    wished = list({0: (0, 0, 0), 1: (0, 0, 9), 2: (0, 5, 5), 3: (3, 4, 5)}[present])
    if present == 3 and np.prod([float(axis.extent) for axis in axes]) < 2**20:
        wished = [3, 3, 4]  # a small mesh: enough tiles for many threads
    for a, axis in enumerate(axes):
        # At least support - 1 wide, so that only neighbours overlap.
        wished[a] = max(wished[a], (axis.support - 2).bit_length() if axis.support > 1 else 0)
    extents = [axis.extent for axis in axes]
    while (tiles := math.prod(_tiles_along(extents, wished))) > most:
        # The last tile of an axis is up to twice as wide as the others.
        wider = [a for a in range(3) if extents[a] >> wished[a] > 1 and wished[a] < LOCAL_BITS - 1]
        checks.tile_count(bool(wider), [axis.size for axis in axes], tiles, most)
        wished[min(wider, key=wished.__getitem__)] += 1
    return Tiling(
        size=_three(axis.size for axis in axes),
        wraps=_three(int(axis.wraps) for axis in axes),
        low=_three(axis.low for axis in axes),
        extent=_three(axis.extent for axis in axes),
        support=_three(axis.support for axis in axes),
        bits=_three(wished),
        tiles=_three(_tiles_along(extents, wished)),
    )


def _tiles_along(extents: Sequence[int], bits: Sequence[int]) -> list[int]:
    return [max(1, extent >> width) for extent, width in zip(extents, bits, strict=True)]


def _three(numbers: Iterable[int]) -> tuple[int, int, int]:
    x, y, z = (int(n) for n in numbers)
    return x, y, z


# ---- particles ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TileOrdering:
    """The particles of one configuration in the order of tiles.

    Attributes
    ----------
    tiling, cells
        How the mesh is cut into tiles, and a tile into cells, by which its particles follow each other.
    records : (4 N,)
        Fractions of each particle in this order, and its place in the tile as the bits of an integer.
    order : (N,)
        The caller's index of each; those from ``kept`` on have no weight.
    tile, begin, end : (tasks,)
        The tasks, as `list_tasks` lists them.
    ready : (tiles, 2)
        Where a tile's particles start, and how many tasks it has.
    """

    tiling: Tiling
    cells: Cells
    records: np.ndarray
    order: np.ndarray
    kept: int
    tile: np.ndarray
    begin: np.ndarray
    end: np.ndarray
    ready: np.ndarray

    @functools.cached_property
    def claims(self) -> tuple[np.ndarray, int, int]:
        """Tasks of crowded tiles, then the others; how many of them are crowded; from how many on a tile is crowded.

        In turns, the tasks of such a tile would keep most threads waiting.
        """
        limit = max(2, len(self.tile) // _CROWDED + 1)
        crowded = self.ready[self.tile, 1] >= limit
        return np.argsort(~crowded, kind="stable"), int(crowded.sum()), limit

    @property
    def nbytes(self) -> int:
        """Bytes beside ``records`` and ``order``, which may be longer than what is shown of them."""
        return self.tile.nbytes + self.begin.nbytes + self.end.nbytes + self.ready.nbytes

    @functools.cached_property
    def packed(self) -> np.ndarray:
        """The records as integers."""
        return self.records.view(np.int32 if self.records.dtype == np.float32 else np.int64)

    def located(self) -> tuple[np.ndarray, np.ndarray]:
        """Return first nodes and fractions (3, N) in the caller's order; nodes without weight are ``SKIP``."""
        count, kept, tiling = len(self.order), self.kept, self.tiling
        order = self.order[:kept]
        node, fraction = np.full((3, count), SKIP, np.int32), np.zeros((3, count), self.records.dtype)
        fraction[:, order] = self.records.reshape(-1, 4)[:kept, :3].T
        starts = self.ready[:, 0]
        tile = np.repeat(np.arange(len(starts)), np.diff(starts, append=kept))
        within = self.packed[3 : 4 * kept : 4].astype(np.int64)
        for a, corner in enumerate(np.unravel_index(tile, tiling.tiles)):
            local = within >> (2 - a) * LOCAL_BITS & (1 << LOCAL_BITS) - 1
            node[a, order] = tiling.low[a] + (corner << tiling.bits[a]) + local
        return node, fraction


class HostParticles:
    """The particles of a plan on the CPU: ``ordering``, in memory of ``rows`` particles.

    ``locate`` only reads and checks the positions; ``place`` writes. So the memory may be that of the previous
    particles.
    """

    line: Line | None = None  # the particles in the caller's order, where they are not sorted

    def __init__(self, backend: Backend, dtype: np.dtype, rows: int, before: HostParticles | None = None) -> None:
        self.count = 0
        self._write: Callable[[np.ndarray, np.ndarray], TileOrdering] | None = None  # of particles that are located
        self._status = Status(0, 0, 0, -1)
        self.rows: int
        self._records: np.ndarray
        self._order: np.ndarray
        if before is not None and before.rows >= rows:
            self.rows, self._records, self._order = before.rows, before._records, before._order
            return
        self.rows = rows
        self._records = _room_for_records(backend, dtype, rows)
        self._order = allocate(backend, (rows,), np.dtype(index_type(rows)), f"the order of {rows:,} particles")

    @property
    def _ordering(self) -> TileOrdering | None:
        """The particles in the order of tiles, if that is made."""
        return self.__dict__.get("ordering")

    @functools.cached_property
    def ordering(self) -> TileOrdering:
        """The particles in the order of tiles; `place` sets it."""
        raise RuntimeError("these particles have no positions yet: call set_positions first.")

    @property
    def nbytes(self) -> int:
        ordering = 0 if self._ordering is None else self._ordering.nbytes
        return int(self._records.nbytes + self._order.nbytes) + ordering

    @property
    def node(self) -> np.ndarray:
        """First nodes (3, count) in the caller's order, computed in each call."""
        return np.empty((3, 0), np.int32) if self._ordering is None else self._ordering.located()[0]

    @property
    def fraction(self) -> np.ndarray:
        """Fractions (3, count) in the caller's order, computed in each call."""
        return np.empty((3, 0), self._records.dtype) if self._ordering is None else self._ordering.located()[1]

    def take_over(self, backend: Backend, other: HostParticles) -> None:
        """Copy the particles of ``other``, which has less memory."""
        self.count, self._status = other.count, other._status
        if other._ordering is not None:
            records, order = self._records[: 4 * self.count], self._order[: self.count]
            backend.copy(records, other._ordering.records)
            backend.copy(order, other._ordering.order)
            self.ordering = replace(other._ordering, records=records, order=order)

    def locate(self, backend: Backend, mesh: Mesh, axes: Axes, x: Coordinates, threads: int | None, **_: Any) -> None:
        """Count the particles of each tile and the bad positions, without writing the particles."""
        if x.count <= _FEW and threads_for(threads, x.count) == 1:
            self._status, self._write = _order_few(x, axes, mesh.box, self._records.dtype)
        else:
            self._status, self._write = _count(x, axes, mesh.box, threads)
        self.count = x.count

    def place(self, workspace: Workspace) -> None:
        """Write the particles that were located."""
        assert self._write is not None
        self.ordering = self._write(self._records[: 4 * self.count], self._order[: self.count])
        self._write = None

    def post_status(self, backend: Backend) -> Callable[[], Status]:
        """Return what reads the status record."""
        return lambda: self._status


class SortedHostParticles(HostParticles):
    """Particles in the order of tiles on the CPU; ``order`` has the caller's indices."""

    def __init__(self, backend: Backend, dtype: np.dtype, rows: int, before: SortedHostParticles | None = None) -> None:
        super().__init__(backend, dtype, rows, before)
        self._places: np.ndarray
        if before is not None and self._order is before._order:
            self._places = before._places
        else:
            self._places = allocate(backend, (self.rows,), self._order.dtype, f"the places of {self.rows:,} particles")
            self._places[:] = np.arange(self.rows, dtype=self._order.dtype)

    @property
    def nbytes(self) -> int:
        return super().nbytes + int(self._places.nbytes)

    @property
    def order(self) -> np.ndarray:
        """The caller's index of the particle at each place."""
        return self._order[: self.count]

    def choose_blocks(self, workspace: Workspace, cells_for: Any) -> None:
        """Do nothing: the memory is allocated."""

    def reserve(self, workspace: Workspace, cells_for: Any, *, stencils: bool) -> None:
        """Do nothing: the memory is allocated."""

    def take_over(self, backend: Backend, other: HostParticles) -> None:
        assert isinstance(other, SortedHostParticles)
        super().take_over(backend, other)
        backend.copy(self._order[: self.count], other.order)
        self._at_their_places()

    def place(self, workspace: Workspace) -> None:
        super().place(workspace)
        self._at_their_places()

    def _at_their_places(self) -> None:
        if self._ordering is not None:
            self.ordering = replace(self._ordering, order=self._places[: self.count])

    def __str__(self) -> str:
        bits = (0, 0, 0) if self._ordering is None else self._ordering.tiling.bits
        return "by tiles of {} x {} x {} nodes".format(*(1 << b for b in bits))


class Line(NamedTuple):
    """Stencils of particles on one axis, in the caller's order."""

    node: np.ndarray  # (rows,) int32: first nodes, SKIP without weight
    fraction: np.ndarray  # (rows,)


class UnsortedHostParticles(HostParticles):
    """Particles of one axis in the caller's order, in memory for two configurations: ``locate`` spares the present one.

    The order of tiles is made once a method reads it.
    """

    def __init__(
        self, backend: Backend, dtype: np.dtype, rows: int, before: UnsortedHostParticles | None = None
    ) -> None:
        self.count = 0
        self.dtype = dtype
        self._backend = backend
        self._status = Status(0, 0, 0, -1)
        self._axes: Axes | None = None
        self._threads: int | None = None
        self._line: Line
        self._other: Line  # until `place` that of the plan's present particles
        self._sorted: np.ndarray | None = None  # memory of the order of tiles
        if before is not None and before.rows >= rows:
            self.rows, self._line, self._other = before.rows, before._other, before._line
            self._sorted = before._sorted
            return
        self.rows = rows
        self._line, self._other = (
            Line(
                allocate(backend, (rows,), np.dtype(np.int32), f"the nodes of {rows:,} particles"),
                allocate(backend, (rows,), dtype, f"the fractions of {rows:,} particles"),
            )
            for _ in range(2)
        )

    @property
    def nbytes(self) -> int:
        held = (*self._line, *self._other, *(() if self._sorted is None else (self._sorted,)))
        return sum(int(array.nbytes) for array in held)

    @property
    def line(self) -> Line:  # type: ignore[override]
        """First nodes and fractions (count,) of stencils."""
        return Line(self._line.node[: self.count], self._line.fraction[: self.count])

    @functools.cached_property
    def ordering(self) -> TileOrdering:
        if self._axes is None:
            raise RuntimeError("these particles have no positions yet: call set_positions first.")
        if self._sorted is None:
            self._sorted = _room_for_records(self._backend, self.dtype, self.rows)
        return _order_line(self.line, self._axes, self._sorted[: 4 * self.count], self._threads)

    @property
    def node(self) -> np.ndarray:
        node = np.zeros((3, self.count), np.int32)
        node[2] = self.line.node
        node[:2, node[2] == SKIP] = SKIP
        return node

    @property
    def fraction(self) -> np.ndarray:
        fraction = np.zeros((3, self.count), self.dtype)
        fraction[2] = self.line.fraction
        return fraction

    def take_over(self, backend: Backend, other: HostParticles) -> None:
        assert isinstance(other, UnsortedHostParticles)
        self.count, self._status = other.count, other._status
        self._axes, self._threads = other._axes, other._threads
        for mine, theirs in zip(self.line, other.line, strict=True):
            backend.copy(mine, theirs)

    def locate(self, backend: Backend, mesh: Mesh, axes: Axes, x: Coordinates, threads: int | None, **_: Any) -> None:
        """Locate particles in memory that the plan's present ones do not use."""
        self.count, self._axes, self._threads = x.count, axes, threads
        self.__dict__.pop("ordering", None)
        columns, address, stride = columns_of(x.arrays)
        of_one, pitch, system = (axes, 0, _NONE) if x.systems is None else (x.systems.axes, x.systems.pitch, x.system)
        used = threads_for(threads, x.count)
        status, frame = new_status(used), frame_of(of_one, mesh.box, columns[0].dtype)
        run(_locate_line, used, address, stride, frame, system, pitch, *self.line, status, steps=10 * x.count)
        del columns  # until here the addresses are valid
        self._status = sum_status(status, x.count)

    def place(self, workspace: Workspace) -> None:
        """Do nothing: the particles are in place."""


def host_kind(mesh: Mesh) -> type[HostParticles]:
    """Return the kind of a plan's particles on the CPU."""
    return UnsortedHostParticles if mesh.ndim == 1 else HostParticles


def _room_for_records(backend: Backend, dtype: np.dtype, rows: int) -> np.ndarray:
    """Return memory for the records of particles in the order of tiles: a record never crosses a cache line."""
    records = allocate(
        backend, (4 * rows + _LINE_BYTES // dtype.itemsize,), dtype, f"the fractions of {rows:,} particles"
    )  # fmt: skip
    skip = -records.ctypes.data % _LINE_BYTES // dtype.itemsize
    return records[skip : skip + 4 * rows]


# ---- the order of tiles ---------------------------------------------------------------------------------------------


class _Given(NamedTuple):
    """Positions as both passes read them."""

    address: np.ndarray
    stride: np.ndarray
    frame: Frame
    tiling: Tiling
    cells: Cells
    system: np.ndarray
    pitch: int


def _given(x: Coordinates, axes: Axes, box: Box) -> tuple[tuple[np.ndarray, ...], _Given]:
    """Return columns that must be kept until they are read, and what reads them."""
    columns, address, stride = columns_of(x.arrays)
    of_one, pitch, system = (axes, 0, _NONE) if x.systems is None else (x.systems.axes, x.systems.pitch, x.system)
    maps = _maps(axes, of_one, box, columns[0].dtype, x.count)
    return columns, _Given(address, stride, *maps, system, pitch)


@functools.lru_cache(maxsize=64)
def _maps(axes: Axes, of_one: Axes, box: Box, real: np.dtype, count: int) -> tuple[Frame, Tiling, Cells]:
    """Return the map from positions to nodes of one of several systems, and how the field of all and tiles are cut."""
    tiling = tiling_of(axes)
    return frame_of(of_one, box, real), tiling, Cells.of(tiling, count)


def _bins(given: _Given) -> int:
    """Return the cells of all tiles, and one for particles without weight."""
    return math.prod(given.tiling.tiles) * math.prod(given.cells.along) + 1


Write = Callable[[np.ndarray, np.ndarray], TileOrdering]  # to records (4 N,) and order (N,)


def _order_few(x: Coordinates, axes: Axes, box: Box, dtype: np.dtype) -> tuple[Status, Write]:
    """Return what is wrong with few positions, and what writes their order, which is made here in new memory."""
    columns, given = _given(x, axes, box)
    count, tiles = x.count, math.prod(given.tiling.tiles)
    status, records, order = new_status(1), np.empty(4 * count, dtype), np.empty(count, index_type(count))
    room, ready = np.empty((3, tiles + count // CHUNK + 1), np.int64), np.empty((tiles, 2), np.int64)
    tasks, kept = _order_at_once(given, _bins(given), status, records, order, room, ready, np.zeros(2, np.int64))
    del columns  # until here the addresses are valid
    tile, begin, end = room[:, :tasks]

    def write(into: np.ndarray, places: np.ndarray) -> TileOrdering:
        into[:], places[:] = records, order
        return TileOrdering(given.tiling, given.cells, into, places, kept, tile, begin, end, ready)

    return sum_status(status, x.count), write


def _count(x: Coordinates, axes: Axes, box: Box, threads: int | None) -> tuple[Status, Write]:
    """Count particles by tile; return what is wrong with positions, and what writes their order.

    It is the same for any number of threads. Writing is fastest where records begin with a line of the cache.
    """
    columns, given = _given(x, axes, box)
    count, bins, threads = x.count, _bins(given), threads_for(threads, x.count)
    rows = histogram_rows(count, bins, threads * _SHARES if threads > 1 else 1)
    histogram, status, used = np.empty((rows, bins), index_type(count)), new_status(rows), min(threads, rows)
    run(_count_cells, used, given, count, histogram, status, steps=20 * count)

    def write(records: np.ndarray, order: np.ndarray) -> TileOrdering:
        start = np.empty(bins + 1, np.int64)
        scan(histogram, start, used)
        run(_place_in_cells, used, given, count, histogram, records, order, steps=20 * count)
        assert columns  # until here the addresses are valid
        return _listed(given.tiling, given.cells, start[: -1 : math.prod(given.cells.along)].copy(), records, order)

    return sum_status(status, x.count), write


def _order_line(line: Line, axes: Axes, records: np.ndarray, threads: int | None) -> TileOrdering:
    """Return the particles in the order of tiles, with ``records``, which are written."""
    tiling, count = tiling_of(axes), len(line.node)
    low, bits, tiles = tiling.low[2], tiling.bits[2], tiling.tiles[2]
    keys = np.minimum(line.node.astype(np.int64) - low >> bits, tiles - 1)
    keys[line.node == SKIP] = tiles
    threads = threads_for(threads, count)
    placed = counting_sort(keys.astype(np.int32), tiles + 1, threads)
    run(_write_records, threads, *line, low, bits, tiles, placed.order, records, steps=20 * count)
    return _listed(tiling, Cells.of(tiling, count), placed.start[:-1].copy(), records, placed.order)


def _listed(
    tiling: Tiling, cells: Cells, start: np.ndarray, records: np.ndarray, order: np.ndarray
) -> TileOrdering:  # fmt: skip
    """Return the order with its tasks listed: the particles of each tile begin at ``start`` (tiles + 1,)."""
    tiles = len(start) - 1
    tile, begin, end = np.empty((3, tiles + len(order) // CHUNK + 1), np.int64)
    ready = np.empty((tiles, 2), np.int64)
    tasks = list_tasks(tiling, cells.chunk, start, tile, begin, end, ready)
    return TileOrdering(
        tiling, cells, records, order, int(start[tiles]), tile[:tasks], begin[:tasks], end[:tasks], ready
    )  # fmt: skip


# ---- compiled -------------------------------------------------------------------------------------------------------


@compiled
def _cells_of(tiling, cells, node, length, last, key, local):
    """Write the cell of each particle of a block and its place in the tile, packed into one integer."""
    one = np.int32(1)
    x, y, z = node[0], node[1], node[2]
    lx, ly, lz = np.int32(tiling.low[0]), np.int32(tiling.low[1]), np.int32(tiling.low[2])
    bx, by, bz = np.int32(tiling.bits[0]), np.int32(tiling.bits[1]), np.int32(tiling.bits[2])
    nx, ny, nz = np.int32(tiling.tiles[0]), np.int32(tiling.tiles[1]), np.int32(tiling.tiles[2])
    cx, cy, cz = np.int32(cells.bits[0]), np.int32(cells.bits[1]), np.int32(cells.bits[2])
    mx, my, mz = np.int32(cells.along[0]), np.int32(cells.along[1]), np.int32(cells.along[2])
    ten = np.int32(LOCAL_BITS)
    if tiling.extent[0] == 1 and tiling.extent[1] == 1:  # one axis
        for k in range(length):
            pz = z[k] - lz
            tz = min(pz >> bz, nz - one)
            key[k] = last if z[k] == SKIP else tz
            local[k] = pz - (tz << bz)
        return
    for k in range(length):
        skipped = z[k] == SKIP
        px, py, pz = x[k] - lx, y[k] - ly, z[k] - lz
        tx, ty, tz = min(px >> bx, nx - one), min(py >> by, ny - one), min(pz >> bz, nz - one)
        tile = (tx * ny + ty) * nz + tz
        px, py, pz = px - (tx << bx), py - (ty << by), pz - (tz << bz)
        qx, qy, qz = min(px >> cx, mx - one), min(py >> cy, my - one), min(pz >> cz, mz - one)
        key[k] = last if skipped else ((tile * mx + qx) * my + qy) * mz + qz
        local[k] = (((px << ten) | py) << ten) | pz


@compiled
def _to_systems(system, pitch, begin, length, z, first):
    """Move the nodes of particles to those of their systems, along the first axis."""
    if pitch:
        for k in range(length):
            first[k] += np.int32(0) if z[k] == SKIP else system[begin + k] * np.int32(pitch)


@compiled(inline="always")
def _locate_cells(given, begin, length, room, last, key, local):
    """Locate a block of particles and write their cells; return whether any is bad."""
    bad = locate_block(given.address, given.stride, given.frame, begin, length, room)
    node = room[0]
    _to_systems(given.system, given.pitch, begin, length, node[2], node[3 - given.frame.native.axes.size])
    _cells_of(given.tiling, given.cells, node, length, last, key, local)
    return bad


@compiled
def _count_cells(given, count, histogram, status, counter):
    """Count the particles of each cell, and those that are bad, a range at a time until none is left."""
    rows = histogram.shape[0]
    last = np.int32(histogram.shape[1] - 1)
    room = block_room(given.frame)
    key, local = np.empty(BLOCK, np.int32), np.empty(BLOCK, np.int32)
    for row in claimed(counter, rows):
        begin, end = share_of(count, rows, row)
        counts = histogram[row]
        counts[:] = 0
        for block in range(begin, end, BLOCK):
            length = min(BLOCK, end - block)
            if _locate_cells(given, block, length, room, last, key, local):
                note_bad(block, length, room[2], status[row])
            for k in range(length):
                put(counts, key[k], item(counts, key[k]) + 1)


@compiled
def _place_in_cells(given, count, place, records, order, counter):
    """Write the particles where the counts say, a range at a time until none is left."""
    rows = place.shape[0]
    last = np.int32(place.shape[1] - 1)
    room = block_room(given.frame)
    fraction = room[1]
    key, local = np.empty(BLOCK, np.int32), np.empty(BLOCK, np.int32)
    target = np.empty(BLOCK, np.int64)
    real = records.dtype.type
    for row in claimed(counter, rows):
        begin, end = share_of(count, rows, row)
        places = place[row]
        for block in range(begin, end, BLOCK):
            length = min(BLOCK, end - block)
            _locate_cells(given, block, length, room, last, key, local)
            # Places are far apart in memory: asked for a block ahead, writing them takes half the time.
            for k in range(length):
                at = item(places, key[k])
                put(places, key[k], at + 1)
                # Never past the end, even if another thread of the caller writes to the positions meanwhile.
                at = min(np.int64(at), count - 1)
                target[k] = at
                prefetch_to_write(records, 4 * at)
                prefetch_to_write(order, at)
            for k in range(length):
                at = target[k]
                put(order, at, block + k)
                store_record(
                    records, 4 * at, real(fraction[0, k]), real(fraction[1, k]), real(fraction[2, k]),
                    np.int64(local[k]),
                )  # fmt: skip


@compiled
def _order_at_once(given, bins, status, records, order, tasks, ready, counter):
    """Do both passes in one call by one thread, since calls take longer than few particles; return both totals."""
    histogram = np.empty((1, bins), order.dtype)
    _count_cells(given, order.size, histogram, status, counter)
    start, total = np.empty(bins + 1, np.int64), np.int64(0)
    for b in range(bins):
        start[b] = total
        total += histogram[0, b]
        histogram[0, b] = start[b]
    start[bins] = total
    counter[0] = 0
    _place_in_cells(given, order.size, histogram, records, order, counter)
    start = start[: bins : (bins - 1) // ready.shape[0]].copy()
    return list_tasks(given.tiling, given.cells.chunk, start, tasks[0], tasks[1], tasks[2], ready), start[-1]


@compiled
def _locate_line(address, stride, frame, system, pitch, nodes, fractions, status, counter):
    """Write first nodes and fractions on one axis, a block at a time until none is left."""
    room = block_room(frame)
    row = fetch_add(counter, 1, 1)
    node, fraction, bad = room[0][2], room[1][2], room[2]
    for begin, end in ranges(counter, nodes.size, BLOCK):
        length = end - begin
        if locate_block(address, stride, frame, begin, length, room):
            note_bad(begin, length, bad, status[row])
        _to_systems(system, pitch, begin, length, node, node)
        some_nodes, some_fractions = nodes[begin:end], fractions[begin:end]  # these loops become vector instructions
        for k in range(length):
            some_nodes[k] = node[k]
        for k in range(length):
            some_fractions[k] = fraction[k]


@compiled
def _write_records(node, fraction, low, bits, tiles, order, records, counter):
    """Write the particles of one axis in the order of tiles."""
    zero = records.dtype.type(0)
    for begin, end in ranges(counter, order.size, BLOCK):
        for k in range(begin, end):
            i = order[k]
            at = np.int64(node[i]) - low
            local = at - (min(at >> bits, tiles - 1) << bits)
            store_record(records, 4 * k, zero, zero, fraction[i], local)


# ---- the order of tasks ---------------------------------------------------------------------------------------------


@compiled
def slabs_together(tiling):
    """Return how many slabs of tiles that do not touch are listed together: enough for many threads."""
    return max(1, _TOGETHER // (tiling.tiles[1] * tiling.tiles[2]))


@compiled
def group_of(x, y, z, together):
    """Return which group of tiles that do not touch a tile belongs to: every other slab of some, and one colour."""
    return 8 * (x // (2 * together)) + 4 * (x & 1) + 2 * (y & 1) + (z & 1)


@compiled
def list_tasks(tiling, size, start, tile, begin, end, ready):
    """List tasks of up to ``size`` particles slab by slab: its field stays in a cache for the next tile.

    Within a slab tiles of one colour (parity in y and z) follow each other, and their chunks take turns. Where slabs
    have few tiles, several take part that do not touch. So many tasks lie between two that overlap, and threads seldom
    wait for each other. This is the order of `group_of`.
    """
    nx, ny, nz = tiling.tiles
    together = slabs_together(tiling)
    active = np.empty(together * (ny // 2 + 1) * (nz // 2 + 1), np.int64)
    tasks = 0
    for slab in range(2 * ((nx - 1) // (2 * together) + 1)):
        first = slab // 2 * 2 * together + slab % 2
        for colour in range(4):
            left = 0
            for x in range(first, min(nx, first + 2 * together), 2):
                for y in range(colour >> 1, ny, 2):
                    for z in range(colour & 1, nz, 2):
                        this = (x * ny + y) * nz + z
                        count = start[this + 1] - start[this]
                        ready[this, 0] = start[this]
                        ready[this, 1] = (count + size - 1) // size
                        if count > 0:
                            active[left] = this
                            left += 1
            chunk = 0
            while left > 0:
                still = 0
                for k in range(left):
                    this = active[k]
                    tile[tasks] = this
                    begin[tasks] = start[this] + chunk * size
                    end[tasks] = min(begin[tasks] + size, start[this + 1])
                    tasks += 1
                    if chunk + 1 < ready[this, 1]:
                        active[still] = this
                        still += 1
                left = still
                chunk += 1
    return tasks
