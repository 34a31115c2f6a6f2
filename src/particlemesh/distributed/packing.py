# SPDX-License-Identifier: BSD-3-Clause
"""Boxes of an array and where their nodes lie in messages: one launch packs, unpacks or adds all of them.

A launch reads tables. So what it costs the host does not depend on how many ranks exchange.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from particlemesh.arrays.kinds import kind_of
from particlemesh.backends.base import kept
from particlemesh.backends.cpu import plain
from particlemesh.backends.jit import compiled

_FILE = "distributed/packing.c"
_PACK, _UNPACK, _ADD = range(3)
_AS_REALS = {4: "f4", 8: "f8", 16: "c16"}  # of numbers that are only copied, by bytes
_NUMBERS = "fdFDl"  # what is added


class Boxed(NamedTuple):
    """A box of nodes of an array, and how many nodes of the messages come before it."""

    lower: tuple[int, ...]
    shape: tuple[int, ...]
    before: int


class Packing:
    """What one launch moves between an array (..., *nodes) and a buffer of messages.

    A message has its boxes one behind the other, each of all fields: (fields, *shape).

    Parameters
    ----------
    boxes : list of Boxed
        All of one number of axes, 1 to 3.
    overlaps : bool
        Whether boxes may have nodes in common, which :meth:`add` needs to know.

    Attributes
    ----------
    nodes : int
        Nodes of the array in all boxes, each counted once if boxes may overlap.

    Examples
    --------
    >>> packing = Packing([Boxed((0,), (2,), 0), Boxed((1,), (2,), 2)], overlaps=True)
    >>> field, buffer = np.array([1.0, 2.0, 4.0]), np.empty(4)
    >>> packing.pack(field, buffer)
    >>> buffer
    array([1., 2., 2., 4.])
    >>> packing.add(field, buffer)
    >>> field
    array([2., 6., 8.])
    """

    def __init__(self, boxes: Iterable[Boxed], *, overlaps: bool = False) -> None:
        some = [box for box in boxes if math.prod(box.shape)]
        self._ndim = len(some[0].lower) if some else 0
        cells: list[tuple[int, ...]] = []
        terms: list[tuple[int, ...]] = []
        begin = 0
        for lower, shape, members in _cells(some) if overlaps else ((b.lower, b.shape, [b]) for b in some):
            x, y, z = _three(shape, 1)
            cells.append((begin, *_three(lower, 0), y, z, len(terms)))
            begin += x * y * z
            for box in members:
                _, ny, nz = _three(box.shape, 1)
                inside = _three(tuple(a - b for a, b in zip(lower, box.lower, strict=True)), 0)
                offset = (inside[0] * ny + inside[1]) * nz + inside[2]
                terms.append((box.before, math.prod(box.shape), offset, ny * nz, nz))
        cells.append((begin, 0, 0, 0, 1, 1, len(terms)))
        self.nodes = begin
        self._tables: tuple[np.ndarray, np.ndarray] = np.array(cells, np.int64), np.array(terms, np.int64)
        self._there: dict[Any, tuple[Any, Any, Any]] = {}  # a backend and the tables, on each device

    def pack(self, array: Any, buffer: Any) -> None:
        """Write boxes of an array (..., *nodes) to a buffer of the same dtype."""
        self._launch(array, buffer, _PACK)

    def unpack(self, array: Any, buffer: Any) -> None:
        """Write boxes to the array, which do not overlap."""
        self._launch(array, buffer, _UNPACK)

    def add(self, array: Any, buffer: Any) -> None:
        """Add boxes to the array: a node gets its terms in the order of boxes, one by one."""
        self._launch(array, buffer, _ADD)

    def _launch(self, array: Any, buffer: Any, mode: int) -> None:
        if not (self.nodes and array.size):
            return
        batch = array.ndim - self._ndim
        nodes = (1,) * (3 - self._ndim) + array.shape[batch:]
        fields = array.reshape((-1, *nodes))  # a view wherever leading axes are dense
        if any(stride % array.itemsize for stride in fields.strides):
            fields = fields.copy()
        if isinstance(array, np.ndarray):
            _on_host(fields, buffer, *self._tables, mode)
        else:
            self._on_device(fields, buffer, mode)
        if mode != _PACK and not _same_memory(fields, array):
            array[...] = fields.reshape(array.shape)

    def _on_device(self, fields: Any, buffer: Any, mode: int) -> None:
        """Launch the kernel on arrays (fields, x, y, z) of CuPy or PyOpenCL."""
        kind: Any = kind_of(fields)
        backend = kind.backend(fields)
        if backend not in self._there:
            some = kept(backend)
            self._there[backend] = some, *(some.upload(table.reshape(-1)) for table in self._tables)
            some.synchronize()  # later calls may come in other streams
        mine, cells, terms = self._there[backend]
        dtype, size = fields.dtype, fields.dtype.itemsize
        words = 2 if dtype.kind == "c" else 1
        integers = int(mode == _ADD and dtype.kind == "i")
        defines = {"REAL_IS_DOUBLE": int(size // words == 8), "INTEGERS": integers, "WORDS": words}
        if dtype.kind not in "fc" and not integers:
            fields, buffer = fields.view(f"f{size}"), buffer.view(f"f{size}")
        run = mine.kernel(_FILE, "pack_boxes", defines)
        count = self.nodes * fields.shape[0]
        strides = [stride // size for stride in fields.strides]
        run(count, fields, buffer, cells, terms, len(self._tables[0]) - 1, self.nodes, fields.shape[0], mode, *strides)


def sections(buffer: Any, counts: Mapping[int, int], fields: int) -> dict[int, Any]:
    """Return the messages in a buffer, one behind the other: ``counts`` has the nodes for each rank, or from it.

    Examples
    --------
    >>> sections(np.arange(6), {1: 1, 2: 0, 5: 2}, 2)
    {1: array([0, 1]), 5: array([2, 3, 4, 5])}
    """
    ends = itertools.accumulate(counts.values())
    return {
        rank: buffer[fields * (end - count) : fields * end]
        for (rank, count), end in zip(counts.items(), ends, strict=True) if count
    }  # fmt: skip


def _three(numbers: tuple[int, ...], missing: int) -> tuple[int, ...]:
    return (missing,) * (3 - len(numbers)) + tuple(numbers)


def _same_memory(one: Any, other: Any) -> bool:
    return bool(one.ctypes.data == other.ctypes.data if isinstance(one, np.ndarray) else one.data.ptr == other.data.ptr)


def _cells(boxes: list[Boxed]) -> Iterator[tuple[tuple[int, ...], tuple[int, ...], list[Boxed]]]:
    """Yield boxes without common nodes, (lower, shape), with all of the given boxes that have their nodes."""
    axes = range(len(boxes[0].lower) if boxes else 0)
    ends = {box: tuple(a + n for a, n in zip(box.lower, box.shape, strict=True)) for box in boxes}
    hull = [(min(b.lower[a] for b in boxes), max(ends[b][a] for b in boxes)) for a in axes] if boxes else []
    rest = [(hull, boxes)] if boxes else []
    while rest:
        box, members = rest.pop()
        members = [m for m in members if all(m.lower[a] < box[a][1] and ends[m][a] > box[a][0] for a in axes)]
        for axis, (low, high) in enumerate(box):
            planes = sorted({n for m in members for n in (m.lower[axis], ends[m][axis]) if low < n < high})
            if planes:  # cut there, first along the first axis, which leaves long runs in memory
                plane = planes[len(planes) // 2]
                rest += [([*box[:axis], side, *box[axis + 1 :]], members) for side in ((plane, high), (low, plane))]
                break
        else:
            if members:
                yield tuple(a for a, _ in box), tuple(b - a for a, b in box), members


def _on_host(fields: np.ndarray, buffer: np.ndarray, cells: np.ndarray, terms: np.ndarray, mode: int) -> None:
    size, dtype = fields.itemsize, fields.dtype
    read = dtype if dtype.char in _NUMBERS else np.dtype(_AS_REALS[size])
    strides = np.array([0, *fields.strides], np.int64) // size
    strides[0] = sum(-min(s, 0) * (n - 1) for s, n in zip(strides[1:].tolist(), fields.shape, strict=True))
    line = plain(fields.reshape(-1)) if fields.flags.c_contiguous else _span(fields, strides.tolist())
    _move(line.view(read), plain(buffer).view(read), cells, terms, strides, fields.shape[0], mode)


def _span(fields: np.ndarray, strides: list[int]) -> np.ndarray:
    """Return the memory of an array from its first number to its last."""
    upward = fields[tuple(slice(None, None, -1 if stride < 0 else 1) for stride in strides[1:])]
    length = 1 + sum(abs(s) * (n - 1) for s, n in zip(strides[1:], fields.shape, strict=True))
    return plain(np.lib.stride_tricks.as_strided(upward, (length,), (fields.itemsize,)))


@compiled
def _move(array, buffer, cells, terms, strides, fields, mode):
    """Do the work of packing.c."""
    for c in range(cells.shape[0] - 1):
        ny, nz = cells[c, 4], cells[c, 5]
        nx = (cells[c + 1, 0] - cells[c, 0]) // (ny * nz)
        step = strides[4]
        for field in range(fields):
            for x in range(nx):
                for y in range(ny):
                    at = (
                        strides[0] + field * strides[1] + (cells[c, 1] + x) * strides[2]
                        + (cells[c, 2] + y) * strides[3] + cells[c, 3] * step
                    )  # fmt: skip
                    for t in range(cells[c, 6], cells[c + 1, 6]):
                        there = (
                            fields * terms[t, 0] + field * terms[t, 1] + terms[t, 2] + x * terms[t, 3] + y * terms[t, 4]
                        )
                        line = buffer[there : there + nz]
                        if step == 1:
                            row = array[at : at + nz]
                            if mode == 0:
                                for z in range(nz):
                                    line[z] = row[z]
                            elif mode == 1:
                                for z in range(nz):
                                    row[z] = line[z]
                            else:
                                for z in range(nz):
                                    row[z] += line[z]
                        else:
                            for z in range(nz):
                                if mode == 0:
                                    line[z] = array[at + z * step]
                                elif mode == 1:
                                    array[at + z * step] = line[z]
                                else:
                                    array[at + z * step] += line[z]
