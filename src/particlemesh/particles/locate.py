# SPDX-License-Identifier: BSD-3-Clause
"""Where particles are on the mesh: the first node of each one's stencil, and its fraction.

The cell is decided once, in the type of the positions. Every method reads it from here, so no two places
can round differently. This is the CPU's code, a block of particles at a time; that of GPUs is particles/locate.c.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from particlemesh.arrays.geometry import open_bounds
from particlemesh.backends.jit import compiled
from particlemesh.backends.simd import peek

if TYPE_CHECKING:
    from particlemesh.arrays.geometry import open_bounds
from particlemesh.particles.stencil import Axis

SKIP = -(2**31)  # node of a particle that has no weight anywhere
NOT_FINITE = 1
OUTSIDE = 2
BLOCK = 2048  # particles at a time: all that is known of them stays in the second-level cache, starting costs little
_ON_X, _ON_FRACTION = 1, 2  # what tells whether a particle is on an open axis


class Located(NamedTuple):
    """What locating found wrong: nothing, when both counts are zero."""

    not_finite: int
    outside: int
    first: int  # index of the first bad particle, or -1
    kind: int  # of the first bad particle: NOT_FINITE or OUTSIDE


class Frame(NamedTuple):
    """How positions become nodes."""

    inverse: np.ndarray  # (d, d)
    axes: np.ndarray  # (d,) records of `_axis_type`


def _axis_type(real: np.dtype) -> np.dtype:
    """Return the numbers of an axis, real ones in the type of the positions."""
    reals = (
        "origin",
        "lower",
        "upper",
        "scale",
        "shift",
        "half",  # 1/2 where the support is odd: the nearest node is the cell
        "centre",  # 1/2 where it is even: the middle of the cell is fraction 0
        "below",  # the largest number below 1
    )
    integers = (
        "base",  # from cells to first nodes
        "wrap",  # nodes of an axis that wraps, else 0
        "test",  # 0 on a periodic axis
        "straight",  # the only coordinate that an axis depends on, or -1
    )
    return np.dtype([*((name, real) for name in reals), *((name, np.int32) for name in integers)])


def frame_of(
    axes: Sequence[Axis],
    origin: np.ndarray,
    inverse: np.ndarray,
    periodic: Sequence[bool],
    lengths: np.ndarray | None,
    real: np.dtype,
) -> Frame:
    """Return how positions of type ``real`` become nodes.

    Parameters
    ----------
    axes
        The mesh's three axes as stencils see them, missing ones first.
    origin, inverse : (d,), (d, d)
        ``fractional = inverse (x - origin)``.
    periodic
        Which axes of the box repeat.
    lengths : (d,) or None
        Lengths of an orthorhombic box; None for a triclinic one, whose open axes are
        checked in fractional coordinates.
    real
        Type of the positions.
    """
    ndim = len(origin)
    used = axes[3 - ndim :]
    supports = np.array([axis.support for axis in used])
    shift = np.array([axis.shift for axis in used])
    half = 0.5 * (supports % 2)
    reach = (supports - 1) // 2  # nodes of a stencil before its particle's cell
    base = np.floor(half - shift).astype(np.int64) - reach
    wrap = np.array([axis.size if axis.wraps else 0 for axis in used])
    # On an axis that wraps, whole turns are taken off so that the first node is 0 or more.
    base = np.where(wrap > 0, reach + base // np.maximum(wrap, 1) * wrap, reach)
    lower, upper = open_bounds(np.asarray(origin), np.asarray(inverse), lengths, lengths is not None, real)
    frame = np.empty(ndim, _axis_type(real))
    frame["origin"], frame["lower"], frame["upper"] = origin, lower, upper
    frame["scale"], frame["shift"] = [axis.scale for axis in used], shift
    frame["half"], frame["centre"] = half, 0.5 - half
    frame["below"] = np.nextafter(real.type(1), real.type(0))
    frame["base"], frame["wrap"] = base, wrap
    frame["test"] = np.where(periodic, 0, _ON_FRACTION if lengths is None else _ON_X)
    frame["straight"] = np.where((inverse != 0).sum(1) == 1, np.argmax(inverse != 0, axis=1), -1)
    return Frame(np.array(inverse, dtype=real, order="C"), frame)


@compiled(inline="always")
def _read(address, stride, begin, length, x, one):
    """Copy coordinates of particles from ``begin`` on; return whether all are finite."""
    strange = np.int32(0)
    for b in range(address.size):
        column, first, step = x[b], address[b] + begin * stride[b], stride[b]
        for k in range(length):
            column[k] = peek(first + k * step, one)
        for k in range(length):  # x - x is zero for finite numbers only
            strange += np.int32(0) if column[k] - column[k] == 0 else np.int32(1)
    return strange == 0


@compiled(inline="always")
def _fractional(x, length, frame, a, s):
    """Write the fractional coordinate along axis ``a``."""
    s[:length] = 0
    for b in range(frame.axes.size):
        factor, origin = frame.inverse[a, b], frame.axes[b].origin
        if factor != 0:
            for k in range(length):
                s[k] += factor * (x[b, k] - origin)


@compiled(inline="always")
def _confine(s, tested, length, lower, upper, zero, one, bad):
    """Mark particles off an open axis, and bring fractional coordinates into [0, 1]; return whether any is off."""
    off = np.int32(0)
    for k in range(length):
        outside = np.int32(0) if tested[k] >= lower and tested[k] <= upper else np.int32(1)
        off += outside
        bad[k] |= outside * OUTSIDE
        inside = s[k] if s[k] >= zero else zero  # noqa: FURB136
        s[k] = inside if inside <= one else one  # noqa: FURB136
    return off > 0


@compiled(inline="always")
def _split(source, factor, origin, length, axis, node, fraction):
    """Write first nodes and fractions along one axis, of ``factor * (source - origin)``."""
    zero, below, scale, shift = fraction.dtype.type(0), axis.below, axis.scale, axis.shift
    half, centre, folds, base, wrap = axis.half, axis.centre, axis.test == 0, axis.base, axis.wrap
    for k in range(length):
        t = factor * (source[k] - origin)
        if folds:
            t = t - np.floor(t)
            t = t if t >= zero else zero  # noqa: FURB136 - NaN, where inverse * x overflowed
            t = t if t < below else below  # noqa: FURB136
        u = t * scale - shift
        cell = np.floor(u + half)
        fraction[k] = u - cell - centre
        first = np.int32(np.int32(cell) - base)
        if wrap > 0:
            # first is in [0, 2 * wrap] here: base holds the whole turns
            first = np.int32(first - wrap) if first >= wrap else first
            first = np.int32(first - wrap) if first >= wrap else first
        node[k] = first


@compiled
def block_room(frame):
    """Return memory for a block: coordinates, fractions and first nodes (3, BLOCK), and what is bad (BLOCK,)."""
    real = frame.inverse.dtype
    x, fraction = np.empty((3, BLOCK), real), np.empty((3, BLOCK), real)
    node, bad = np.empty((3, BLOCK), np.int32), np.empty(BLOCK, np.int32)
    for a in range(3 - frame.axes.size):  # axes that the mesh does not have
        for k in range(BLOCK):
            fraction[a, k], node[a, k] = 0, 0
    return x, fraction, node, bad


@compiled
def locate_block(address, stride, frame, begin, length, room):
    """Locate particles from ``begin`` on, in ``room``; return whether any is bad.

    A bad particle has the node ``SKIP`` on the last axis and fractions 0; what is wrong with it is in the room's
    last array, which holds nothing if none is bad. Axes that the mesh does not have are left alone.
    """
    x, fraction, node, bad = room
    ndim = address.size
    zero, one = x.dtype.type(0), x.dtype.type(1)
    bad[:length] = 0
    sound = _read(address, stride, begin, length, x, one)
    if not sound:
        for b in range(ndim):
            for k in range(length):
                bad[k] |= 0 if x[b, k] - x[b, k] == zero else NOT_FINITE
    for a in range(ndim):
        axis = frame.axes[a]
        folds, straight = axis.test == 0, axis.straight
        source, factor, origin = x[straight], frame.inverse[a, straight], frame.axes[straight].origin
        if not folds or straight < 0:
            source, factor, origin = fraction[3 - ndim + a], one, zero
            _fractional(x, length, frame, a, source)
        if not folds:
            tested = x[a] if axis.test == _ON_X else source
            if _confine(source, tested, length, axis.lower, axis.upper, zero, one, bad):
                sound = False
        _split(source, factor, origin, length, axis, node[3 - ndim + a], fraction[3 - ndim + a])
    if sound:
        return False
    for k in range(length):
        if bad[k] != 0:
            node[2, k] = SKIP
            for a in range(3):
                fraction[a, k] = zero
    return True


@compiled(inline="always")
def note_bad(begin, length, bad, record):
    """Count bad particles of a block: not finite, outside, index and kind of the first."""
    for k in range(length):
        if bad[k] != 0:
            kind = NOT_FINITE if bad[k] & NOT_FINITE else OUTSIDE
            record[kind - 1] += 1
            if record[2] < 0:
                record[2], record[3] = begin + k, kind


def located(records: np.ndarray) -> Located:
    """Sum up what `note_bad` wrote, a row for each range of particles."""
    bad = records[records[:, 2] >= 0]
    first = bad[np.argmin(bad[:, 2]), 2:4] if len(bad) else (-1, 0)
    return Located(int(records[:, 0].sum()), int(records[:, 1].sum()), int(first[0]), int(first[1]))
