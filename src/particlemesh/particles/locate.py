# SPDX-License-Identifier: BSD-3-Clause
"""The first node of each particle's stencil, and its fraction, on the CPU (GPUs: particles/locate.c).

The cell is computed once, exactly, and every method reads it, so that roundings cannot differ. The fraction is rounded
once or twice (`particlemesh.particles.stencil`). Particles are located in blocks.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from particlemesh.backends.cpu import ranges, run, threads_for
from particlemesh.backends.jit import compiled
from particlemesh.backends.simd import fetch_add, fused, peek
from particlemesh.particles.located import Status
from particlemesh.particles.stencil import node_map

if TYPE_CHECKING:
    from particlemesh.box import Box
    from particlemesh.particles.stencil import Axis

SKIP = -(2**31)  # node of a particle with zero weight
NOT_FINITE = 1
OUTSIDE = 2
BLOCK = 1024  # particles at a time: their data along an axis fit the first-level cache
_FARTHEST = 2.0**50  # nodes: up to here float64 divides them by the nodes of an axis with an error below one
_IN_X, _IN_NODES = 1, 2  # unit of the test of whether a particle is on an open axis: position, or node


class Arithmetic(NamedTuple):
    """The numbers of a `NodeMap` in one real type."""

    slopes: np.ndarray  # (2, d, d)
    unit: np.ndarray  # (1,)
    near: np.ndarray  # (d,)
    axes: np.ndarray  # (d,) records of `_axis_type`


class Frame(NamedTuple):
    """The map from positions to nodes."""

    native: Arithmetic  # in the type of the positions, for near ones
    wide: Arithmetic  # in float64


def _axis_type(real: np.dtype) -> np.dtype:
    """Return the record type of an axis."""
    reals = ("centre", "edge", "lower", "upper", "fold", "count")
    integers = (
        "base",
        "test",  # 0 on a periodic axis
        "straight",  # the only coordinate that an axis depends on, or -1
        "low",  # of a part: the lowest first node of a stencil, and the highest
        "high",
        "part",  # whether that counts
    )
    return np.dtype([*((name, real) for name in reals), *((name, np.int32) for name in integers)])


@functools.lru_cache(maxsize=64)
def frame_of(axes: tuple[Axis, Axis, Axis], box: Box, positions: np.dtype) -> Frame:
    """Return the map from positions of a dtype to nodes.

    Parameters
    ----------
    axes
        The mesh's three axes in the form of stencils, missing ones first.
    box
        The mesh's box.
    positions
        Dtype of the positions.
    """
    native, wide = (_arithmetic(axes, box, positions, np.dtype(real)) for real in (positions, np.float64))
    return Frame(native, wide)


def _arithmetic(axes: tuple[Axis, Axis, Axis], box: Box, positions: np.dtype, real: np.dtype) -> Arithmetic:
    exact, missing = node_map(axes, box, positions, real), 3 - box.ndim
    used = np.empty(box.ndim, _axis_type(real))
    for name in ("centre", "edge", "lower", "upper", "fold", "base"):
        used[name] = getattr(exact, name)[missing:]
    used["count"] = [axis.count for axis in axes[missing:]]
    used["test"] = np.where(box.periodic, 0, _IN_X if box.orthorhombic else _IN_NODES)
    used["low"] = [axis.low for axis in axes[missing:]]
    used["high"] = [axis.low + axis.extent - 1 for axis in axes[missing:]]
    used["part"] = [axis.part for axis in axes[missing:]]
    depends = box.inverse != 0
    used["straight"] = np.where(depends.sum(1) == 1, np.argmax(depends, axis=1), -1)
    slopes = np.ascontiguousarray(exact.slopes[:2, missing:, missing:])
    return Arithmetic(slopes, np.array([exact.unit], real), exact.near[missing:].copy(), used)


@compiled(inline="always")
def _read(address, stride, begin, length, near, unit, x, one):
    """Copy coordinates of particles from ``begin`` on; return whether all are near, hence finite."""
    far = np.int32(0)
    for b in range(address.size):
        column, first, step, most = x[b], address[b] + begin * stride[b], stride[b], near[b]
        for k in range(length):
            column[k] = peek(first + k * step, one) * unit
        for k in range(length):
            far += np.int32(0) if abs(column[k]) <= most else np.int32(1)
    return far == 0


@compiled
def _set_apart(address, stride, begin, length, near, unit, x, which, wide, bad):
    """Copy particles that are not near to float64, replace them by zeros, and return their number.

    ``which`` gets their indices, ``bad`` marks those that are not finite.
    """
    ndim, count = address.size, 0
    zero, factor = x.dtype.type(0), np.float64(unit)
    for k in range(length):
        close = True
        for b in range(ndim):
            close &= abs(x[b, k]) <= near[b]
        if not close:
            which[count] = k
            bad[count] = 0
            for b in range(ndim):
                given = peek(address[b] + (begin + k) * stride[b], zero)
                finite = given - given == zero
                bad[count] |= 0 if finite else NOT_FINITE
                wide[b, count] = np.float64(given) * factor if finite else 0.0
                x[b, k] = zero
            count += 1
    return count


@compiled
def _split(x, length, slopes, a, axis, whole, rest):
    """Write node coordinates along axis ``a`` as whole numbers and remainders of any size."""
    begun = False
    for b in range(slopes.shape[1]):
        head, tail, centre = slopes[0, a, b], slopes[1, a, b], axis.centre
        if axis.straight >= 0 and axis.straight != b:
            continue
        for k in range(length):
            t = np.rint(x[b, k] * head)
            r = fused(x[b, k], head, -t)
            if begun:
                whole[k] += t
                rest[k] += r
                rest[k] = fused(x[b, k], tail, rest[k])
            else:
                whole[k] = t
                rest[k] = r + fused(x[b, k], tail, centre)
        begun = True


@compiled
def _tame(whole, rest, length):
    """Move particles to node 0 that are too far away for a defined place on the axis."""
    for k in range(length):
        if not (abs(whole[k]) <= _FARTHEST and abs(rest[k]) <= _FARTHEST):  # or NaN
            whole[k] = rest[k] = 0


@compiled
def _place(whole, rest, length, axis, node, fraction):
    """Write first nodes and fractions along a periodic axis."""
    real = whole.dtype.type
    zero, half, one = real(0), real(0.5), real(1)
    edge, fold, count, base = axis.edge, axis.fold, axis.count, axis.base
    per = one / count
    borrows = edge > -half  # outside of the loop, so that the compiler makes two loops
    for k in range(length):
        m = np.floor(rest[k] + half)
        r = rest[k] - m
        below = r < -half  # where rest + 1/2 was rounded up
        r = r + one if below else r
        m = m - one if below else m
        borrow = one if borrows and r < edge else zero
        cell = whole[k] + m - fold - borrow
        cell = fused(-np.floor(cell * per), count, cell)  # the quotient may be wrong by one
        cell = cell + count if cell < zero else cell
        cell = cell - count if cell >= count else cell
        node[k] = np.int32(cell + borrow) + base
        fraction[k] = r


@compiled
def _place_inside(x, whole, rest, length, axis, node, fraction, bad):
    """Write first nodes and fractions along an open axis, mark particles off it, and return whether any is off."""
    real = whole.dtype.type
    zero, half, one = real(0), real(0.5), real(1)
    edge, fold, count, base, lower, upper = axis.edge, axis.fold, axis.count, axis.base, axis.lower, axis.upper
    in_x = axis.test == _IN_X
    off = np.int32(0)
    for k in range(length):
        m = np.floor(rest[k] + half)
        r = rest[k] - m
        below = r < -half
        r = r + one if below else r
        m = m - one if below else m
        cell = whole[k] + m - fold
        tested = x[k] if in_x else cell + (r - edge)
        outside = np.int32(0) if tested >= lower and tested <= upper else np.int32(1)
        off += outside
        bad[k] |= outside * OUTSIDE
        cell = cell - one if r < edge else cell
        # On the faces: beyond them by rounding, or outside.
        inside = cell >= zero and cell < count
        borrow = one if inside and r < edge else zero
        cell = cell if cell >= zero else zero  # noqa: FURB136 - NaN
        cell = cell if cell <= count else count  # noqa: FURB136
        node[k] = np.int32(cell + borrow) + base
        fraction[k] = r if inside else edge
    return off > 0


@compiled
def _keep_to_part(length, axis, node, bad):
    """Mark particles with stencils that a part does not take, and return whether there is any."""
    low, high, off = axis.low, axis.high, np.int32(0)
    for k in range(length):
        outside = np.int32(0) if node[k] >= low and node[k] <= high else np.int32(1)
        off += outside
        bad[k] |= outside * OUTSIDE
    return off > 0


@compiled
def _locate(x, length, arithmetic, tame, whole, rest, node, fraction, bad):
    """Locate the particles of a block; return whether any is outside."""
    ndim = arithmetic.axes.size
    off = False
    for a in range(ndim):
        axis, n, f = arithmetic.axes[a], node[3 - ndim + a], fraction[3 - ndim + a]
        _split(x, length, arithmetic.slopes, a, axis, whole, rest)
        if axis.test == 0:
            if tame:
                _tame(whole, rest, length)
            _place(whole, rest, length, axis, n, f)
        elif _place_inside(x[a], whole, rest, length, axis, n, f, bad):
            off = True
        if axis.part and _keep_to_part(length, axis, n, bad):
            off = True
    return off


@compiled
def block_room(frame):
    """Return memory for a block.

    - first nodes (3, BLOCK), fractions (3, BLOCK), and the kinds of bad particles (BLOCK,)
    - coordinates, whole nodes and remainders (5, BLOCK)
    - the same arrays for particles set apart, and their indices
    """
    real = frame.native.slopes.dtype
    node, fraction, bad = np.empty((3, BLOCK), np.int32), np.empty((3, BLOCK), real), np.empty(BLOCK, np.int32)
    for a in range(3 - frame.native.axes.size):  # missing axes
        for k in range(BLOCK):
            fraction[a, k], node[a, k] = 0, 0
    apart = np.empty((3, BLOCK), np.int32), np.empty((3, BLOCK), np.float64), np.empty(BLOCK, np.int32)
    return node, fraction, bad, np.empty((5, BLOCK), real), apart, np.empty((5, BLOCK), np.float64), np.empty_like(bad)


@compiled
def _locate_apart(frame, count, room):
    """Locate the particles of a block that were set apart."""
    node, fraction, bad, _, apart, wide, which = room
    real = fraction.dtype.type
    highest = np.nextafter(real(0.5), real(0))  # float64 below 1/2 may round to it
    _locate(wide, count, frame.wide, True, wide[3], wide[4], *apart)
    for n in range(count):
        k = which[n]
        bad[k] = apart[2][n]
        for a in range(3 - frame.wide.axes.size, 3):
            node[a, k] = apart[0][a, n]
            fraction[a, k] = min(real(apart[1][a, n]), highest)


@compiled
def locate_block(address, stride, frame, begin, length, room):
    """Locate particles from ``begin`` on, in ``room``; return whether any is bad.

    A bad particle has the node ``SKIP`` on the last axis and fractions 0. The room's third array has its kind; the
    array is zero if no particle is bad. Missing axes are not written. The result for a particle does not depend on the
    other particles of its block.
    """
    node, fraction, bad, x, apart, wide, which = room
    native = frame.native
    bad[:length] = 0
    far = 0
    if not _read(address, stride, begin, length, native.near, native.unit[0], x, x.dtype.type(1)):
        far = _set_apart(address, stride, begin, length, native.near, native.unit[0], x, which, wide, apart[2])
    off = _locate(x, length, native, False, x[3], x[4], node, fraction, bad)
    if far > 0:
        _locate_apart(frame, far, room)
    elif not off:
        return False
    any_bad = False
    for k in range(length):
        if bad[k] != 0:
            any_bad = True
            node[2, k] = SKIP
            for a in range(3):
                fraction[a, k] = 0
    return any_bad


@compiled
def _locate_all(address, stride, frame, cells, fractions, status, counter):
    """Write cells and fractions (d, N), a block at a time until none is left."""
    ndim, count = cells.shape
    room = block_room(frame)
    row = fetch_add(counter, 1, 1)
    for begin, end in ranges(counter, count, BLOCK):
        if locate_block(address, stride, frame, begin, end - begin, room):
            note_bad(begin, end - begin, room[2], status[row])
        for a in range(ndim):
            for k in range(end - begin):
                bad = room[0][2, k] == SKIP
                cells[a, begin + k] = SKIP if bad else room[0][3 - ndim + a, k]
                fractions[a, begin + k] = room[1][3 - ndim + a, k]


def locate_all(
    columns: tuple[np.ndarray, ...], axes: tuple[Axis, Axis, Axis], box: Box
) -> tuple[np.ndarray, np.ndarray, Status]:
    """Return first nodes and fractions of stencils (d, N) in the order of the positions, and what is wrong with them.

    Parameters
    ----------
    columns
        Positions, an array (N,) for each axis of the box.
    axes, box
        As for `frame_of`.
    """
    columns, address, stride = columns_of(columns)
    real, count = columns[0].dtype, len(columns[0])
    cells, fractions = np.empty((len(columns), count), np.int32), np.empty((len(columns), count), real)
    threads = threads_for(None, count)
    status = new_status(threads)
    run(_locate_all, threads, address, stride, frame_of(axes, box, real), cells, fractions, status, steps=10 * count)
    return cells, fractions, sum_status(status, count)


def columns_of(columns: tuple[np.ndarray, ...]) -> tuple[tuple[np.ndarray, ...], np.ndarray, np.ndarray]:
    """Return columns in native byte order, which must outlive their use, and their addresses and strides in bytes."""
    columns = tuple([x if x.dtype.isnative else x.astype(x.dtype.newbyteorder("=")) for x in columns])
    address = np.array([x.__array_interface__["data"][0] for x in columns])
    return columns, address, np.array([x.strides[0] for x in columns])


@compiled(inline="always")
def note_bad(begin, length, bad, record):
    """Count bad particles of a block: not finite, outside, and index of the first."""
    for k in range(length):
        if bad[k] != 0:
            kind = NOT_FINITE if bad[k] & NOT_FINITE else OUTSIDE
            record[kind - 1] += 1
            if record[2] < 0:
                record[2] = begin + k


def new_status(rows: int) -> np.ndarray:
    """Return records for `note_bad`, one row per range of particles."""
    status = np.zeros((rows, 8), np.int64)
    status[:, 2] = -1
    return status


def sum_status(records: np.ndarray, count: int) -> Status:
    """Return the sums of the records of `note_bad` for ``count`` particles."""
    if len(records) == 1 and records[0, 2] < 0:  # at once, as calls with few particles take no longer than that
        return Status(count, 0, 0, -1)
    bad = records[records[:, 2] >= 0]
    first = int(bad[:, 2].min()) if len(bad) else -1
    return Status(count, int(records[:, 0].sum()), int(records[:, 1].sum()), first)
