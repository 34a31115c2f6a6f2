# SPDX-License-Identifier: BSD-3-Clause
"""Where particles are on the mesh: the first node of each one's stencil, and its fraction.

The cell is decided once, in the type of the positions; every method reads it from here, so no two
places can round differently.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from particlemesh.backends.cpu import run, threads_for
from particlemesh.backends.jit import compiled
from particlemesh.backends.simd import fetch_add, peek

if TYPE_CHECKING:
    from particlemesh.stencil import Axis

SKIP = -(2**31)  # node of a particle that has no weight anywhere
NOT_FINITE = 1
OUTSIDE = 2
_ON_X, _ON_FRACTION = 1, 2  # what tells whether a particle is on an open axis
_BLOCK = 1024  # particles at a time, so that their coordinates stay in the first-level cache
_SHARE = 8  # blocks a thread claims at a time


class Located(NamedTuple):
    """What locating found wrong: nothing, when both counts are zero."""

    not_finite: int
    outside: int
    first: int  # index of the first bad particle, or -1
    kind: int  # of the first bad particle: NOT_FINITE or OUTSIDE


class _Geometry(NamedTuple):
    """Numbers per axis in the type of the positions."""

    inverse: np.ndarray
    origin: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    scale: np.ndarray
    shift: np.ndarray
    half: np.ndarray  # 1/2 where the support is odd: the nearest node is the cell
    centre: np.ndarray  # 1/2 where it is even: the middle of the cell is fraction 0
    below: np.ndarray  # 0, 1, and the largest number below 1


@compiled
def _fold(s, length, zero, below):
    """Fold fractional coordinates into [0, 1)."""
    for k in range(length):
        folded = s[k] - np.floor(s[k])
        folded = folded if folded >= zero else zero  # noqa: FURB136 - NaN, where inverse * x overflowed
        s[k] = folded if folded < below else below  # noqa: FURB136


@compiled
def _confine(s, tested, length, lower, upper, zero, one, bad):
    """Mark particles off an open axis, and bring fractional coordinates into [0, 1]."""
    for k in range(length):
        bad[k] |= np.uint8(0) if tested[k] >= lower and tested[k] <= upper else np.uint8(OUTSIDE)
        inside = s[k] if s[k] >= zero else zero  # noqa: FURB136
        s[k] = inside if inside <= one else one  # noqa: FURB136


@compiled
def _split(s, length, scale, shift, half, centre, base, wrap, node, fraction):
    """Write first nodes and fractions of one axis."""
    for k in range(length):
        u = s[k] * scale - shift
        cell = np.floor(u + half)
        fraction[k] = u - cell - centre
        first = np.int32(cell) - base
        if wrap > 0:
            # first is in [0, 2 * wrap] here: base holds the whole turns
            first = first - wrap if first >= wrap else first
            first = first - wrap if first >= wrap else first
        node[k] = first


@compiled
def _locate(count, address, stride, geometry, base, wrap, test, nodes, fractions, status, counter):
    """Locate particles, a share at a time, until none is left."""
    ndim = address.size
    s = np.empty((3, _BLOCK), geometry.below.dtype)
    x = np.empty((3, _BLOCK), geometry.below.dtype)
    bad = np.empty(_BLOCK, np.uint8)
    record = status[fetch_add(counter, 1, 1)]
    zero, one, below = geometry.below[0], geometry.below[1], geometry.below[2]
    while True:
        share = fetch_add(counter, 0, 1) * _SHARE * _BLOCK
        if share >= count:
            return
        for begin in range(share, min(share + _SHARE * _BLOCK, count), _BLOCK):
            length = min(_BLOCK, count - begin)
            bad[:length] = 0
            for b in range(ndim):
                for k in range(length):
                    x[b, k] = peek(address[b] + (begin + k) * stride[b], one)
                for k in range(length):  # x - x is zero for finite numbers only
                    bad[k] |= np.uint8(0) if x[b, k] - x[b, k] == zero else np.uint8(NOT_FINITE)
            for a in range(ndim):
                s[a, :length] = zero
                for b in range(ndim):
                    factor, origin = geometry.inverse[a, b], geometry.origin[b]
                    if factor != zero:
                        for k in range(length):
                            s[a, k] += factor * (x[b, k] - origin)
                if test[a] == 0:
                    _fold(s[a], length, zero, below)
                else:
                    tested = x[a] if test[a] == _ON_X else s[a]
                    _confine(s[a], tested, length, geometry.lower[a], geometry.upper[a], zero, one, bad)
            for a in range(ndim):
                _split(
                    s[a], length, geometry.scale[a], geometry.shift[a], geometry.half[a], geometry.centre[a],
                    base[a], wrap[a], nodes[a][begin:], fractions[a][begin:],
                )  # fmt: skip
            if bad[:length].any():
                for k in range(length):
                    if bad[k]:
                        kind = NOT_FINITE if bad[k] & NOT_FINITE else OUTSIDE
                        record[kind - 1] += 1
                        if record[2] < 0:
                            record[2], record[3] = begin + k, kind
                        for a in range(ndim):
                            nodes[a][begin + k] = SKIP
                            fractions[a][begin + k] = zero


def locate_cpu(
    coordinates: Sequence[np.ndarray],
    axes: Sequence[Axis],
    origin: np.ndarray,
    inverse: np.ndarray,
    periodic: Sequence[bool],
    lengths: np.ndarray | None,
    node: np.ndarray,
    fraction: np.ndarray,
    threads: int | None = None,
) -> Located:
    """Write the stencils' first nodes and fractions; say what was wrong, and never raise for it.

    Parameters
    ----------
    coordinates : d arrays of shape (N,), float32 or float64
        Positions, of any stride.
    axes
        The mesh's three axes as stencils see them, missing ones first.
    origin, inverse : (d,), (d, d)
        ``fractional = inverse (x - origin)``.
    periodic
        Which axes of the box repeat.
    lengths : (d,) or None
        Lengths of an orthorhombic box; None for a triclinic one, whose open axes are
        checked in fractional coordinates.
    node : (3, N) int32
        Written. A bad particle has ``SKIP`` in every axis.
    fraction : (3, N)
        Written, in its own type.
    threads
        The most threads to use; by default as many as suit N.
    """
    ndim = len(coordinates)
    missing = 3 - ndim
    count = len(coordinates[0])
    real = np.dtype(coordinates[0].dtype.type)
    used = axes[missing:]
    supports = np.array([axis.support for axis in used])
    odd = supports % 2
    shift = np.array([axis.shift for axis in used])
    half = 0.5 * odd
    reach = (supports - 1) // 2  # nodes of a stencil before its particle's cell
    base = np.floor(half - shift).astype(np.int64) - reach
    wrap = np.array([axis.size if axis.wraps else 0 for axis in used])
    # On an axis that wraps, whole turns are taken off so that the first node is 0 or more.
    base = np.where(wrap > 0, reach + base // np.maximum(wrap, 1) * wrap, reach)
    if lengths is None:
        lower, upper = np.zeros(ndim), np.ones(ndim)
    else:
        lower, upper = origin, np.asarray(origin) + lengths
    below = np.array([0, 1, np.nextafter(real.type(1), real.type(0))])
    scale = [axis.scale for axis in used]
    numbers = (inverse, origin, lower, upper, scale, shift, half, 0.5 - half, below)
    geometry = _Geometry(*(np.ascontiguousarray(x, dtype=real) for x in numbers))
    test = np.where(periodic, 0, _ON_FRACTION if lengths is None else _ON_X)
    node[:missing] = 0
    fraction[:missing] = 0
    workers = min(threads_for(threads, count), 1 + count // (_SHARE * _BLOCK))
    status = np.full((workers, 8), -1, np.int64)
    status[:, :2] = 0
    coordinates = [x if x.dtype.isnative else x.astype(real) for x in coordinates]
    run(
        _locate,
        workers,
        count,
        np.array([x.ctypes.data for x in coordinates]),
        np.array([x.strides[0] for x in coordinates]),
        geometry,
        base.astype(np.int32),
        wrap.astype(np.int32),
        test,
        tuple(node[missing + min(a, ndim - 1)] for a in range(3)),
        tuple(fraction[missing + min(a, ndim - 1)] for a in range(3)),
        status,
        np.zeros(2, np.int64),
    )
    if missing:  # a skipped particle is skipped on every axis
        node[:missing][:, node[2] == SKIP] = SKIP
    bad = status[status[:, 2] >= 0]
    first = bad[np.argmin(bad[:, 2]), 2:4] if len(bad) else (-1, 0)
    return Located(int(status[:, 0].sum()), int(status[:, 1].sum()), int(first[0]), int(first[1]))
