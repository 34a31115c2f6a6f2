# SPDX-License-Identifier: BSD-3-Clause
"""A mesh and a window in the form of stencils, three axes in any dimension, and the map from positions to their nodes.

Kernels and CPU loops are written for three dimensions. Missing axes come first and are one node
thick. Their support is one node with weight one. So 1-D and 2-D need no separate code.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from particlemesh.arrays.positions import open_bounds
from particlemesh.box import Box
from particlemesh.mesh import Mesh
from particlemesh.window import Window

PARTS = 3  # numbers that make up a slope: two suffice for near positions
_EXPONENT = 96  # upper bound for slopes: positions in smaller boxes are multiplied by a power of two
_INTEGER = 2**60  # upper bound for integers subtracted from whole nodes


@dataclass(frozen=True)
class Axis:
    """One axis of the field in the form of stencils.

    A stencil covers the nodes ``first, ..., first + support - 1``. On an axis that wraps, ``first``
    is stored in ``[0, size)`` and nodes are taken modulo ``size``. Elsewhere ``first`` lies in
    ``[low, low + extent)`` and nodes outside ``[0, size)`` do not exist. Along an axis of a part, particles whose
    ``first`` lies elsewhere are outside.
    """

    size: int  # nodes of the field, ghosts included
    wraps: bool
    low: int
    extent: int
    support: int
    scale: int  # node coordinate = fractional * scale - shift + before
    shift: float
    before: int = 0  # ghosts before node 0; of a part, less the nodes of the whole mesh before it
    window: int | None = None  # of a part along a periodic axis: the lowest first node that positions fold to
    part: bool = False  # whether there may be particles with other first nodes

    @property
    def count(self) -> int:
        """Nodes per period; on an open axis the intervals between its faces."""
        return self.size if self.wraps else self.scale

    @property
    def node_of_origin(self) -> Fraction:
        """Exact node coordinate of the box's origin."""
        return self.before - Fraction(self.shift)


MISSING = Axis(size=1, wraps=False, low=0, extent=1, support=1, scale=0, shift=0.0)


@functools.lru_cache(maxsize=64)
def axes_of(mesh: Mesh, window: Window) -> tuple[Axis, Axis, Axis]:
    """Return the three axes of ``mesh`` for stencils of ``window``, missing ones first."""
    axes = [MISSING] * (3 - mesh.ndim)
    reach = window.support / 2 - 1  # first = floor(node coordinate - reach), for either parity
    for a in range(mesh.ndim):
        if mesh.cut(a):
            axes.append(_cut(mesh, window.support, a))
            continue
        lower, upper = mesh.ghosts[a]
        wraps = mesh.periodic[a] and lower == 0 and upper == 0
        # Whole periods lead to the same nodes; the remainder is exact.
        shift = math.fmod(mesh.offset[a], mesh.shape[a]) if mesh.periodic[a] else mesh.offset[a]
        size = mesh.shape[a] + lower + upper
        # One spare node at each end, because rounding may move a particle at the end of the box by one node.
        low = 0 if wraps else lower + math.floor(-shift - reach) - 1
        high = size - 1 if wraps else lower + math.floor(mesh.intervals[a] - shift - reach) + 1
        axes.append(Axis(size, wraps, low, high - low + 1, window.support, mesh.intervals[a], shift, lower))
    return (axes[0], axes[1], axes[2])


def _cut(mesh: Mesh, support: int, a: int) -> Axis:
    """Return an axis of a part that is cut or has ghosts."""
    whole, start, nodes, (lower, upper) = mesh.whole, mesh.start[a], mesh.shape[a], mesh.ghosts[a]
    size, intervals, reach = lower + nodes + upper, mesh.intervals[a], (support - 1) // 2
    # Stencils that reach a node of the field, or with ghosts, those that end within it.
    low, high = (0, size - support) if lower or upper else (1 - support, size - 1)
    if mesh.periodic[a]:
        shift = math.fmod(mesh.offset[a], whole.shape[a])
        # The images nearest to the nodes without ghosts, or where other images are not taken, those that are.
        nearest = lower - reach - (intervals - nodes) // 2
        window = min(max(nearest, low), high - intervals + 1)
        return Axis(size, False, low, high - low + 1, support, intervals, shift, lower - start, window, part=True)
    # Beyond an open face there are no nodes.
    shift, begin = mesh.offset[a], lower - start
    first = begin + math.floor(-shift - support / 2 + 1) - 1  # as in the whole mesh
    last = begin + math.floor(intervals - shift - support / 2 + 1) + 1
    low = first if begin >= 0 else max(low, first)
    high = last if size - begin >= whole.shape[a] else min(high, last)
    return Axis(size, False, low, high - low + 1, support, intervals, shift, begin, part=True)


def base_of(axes: tuple[Axis, Axis, Axis]) -> tuple[int, int, int]:
    """Return the node that blocks and packed stencils count from: along z an even one, for walks that move pairs."""
    return axes[0].low, axes[1].low, axes[2].low - axes[2].low % 2


# ---- from positions to node coordinates, accurate at any distance ---------------------------------------------------


# The coordinate of a position x along axis a, in nodes, is ``sum_b slope[a, b] x[b] - constant[a]``. Slopes and
# constants are computed here in rational numbers. A slope is stored as a sum of numbers of the positions' dtype, its
# head first. A product ``slope * x`` is split into a whole number of nodes and a rest: ``fma(slope, x, -whole)`` is the
# rest of the head, rounded once. So a rest is as exact far away as near the origin; whole periods are whole numbers.


class NodeMap(NamedTuple):
    """The map from positions to nodes for three axes, missing ones first.

    Let ``whole + rest = sum_b slope[a, b] * (unit * x[b]) + centre[a]`` with rest in [-1/2, 1/2). The rest is the
    particle's fraction, and its first node follows from ``whole``:

    - ``cell = whole - fold - borrow``, where ``borrow`` is 1 if ``rest < edge`` and else 0;
    - on a periodic axis whole periods are subtracted, so that ``0 <= cell < count``;
    - on an open axis a cell below 0 becomes the lower face, ``count`` or more the upper one: ``rest = edge``;
    - ``first node = cell + borrow + base``.
    """

    slopes: np.ndarray  # (PARTS, 3, 3)
    centre: np.ndarray  # (3,), within [-1/2, 1/2]
    edge: np.ndarray  # (3,): the fraction of a particle at the box's origin; -1/2 on axes that wrap or are cut
    lower: np.ndarray  # (3,): of an open axis, in unit * x where orthorhombic, else in nodes from the origin
    upper: np.ndarray
    unit: np.floating
    near: np.ndarray  # (3,): largest unit * |x[b]| for which two parts of the slopes suffice
    fold: tuple[int, int, int]
    base: tuple[int, int, int]


def _reciprocal(box: Box) -> list[list[Fraction]]:
    """Return the exact reciprocal vectors of a box as three rows."""
    missing = 3 - box.ndim
    rows = [[Fraction(int(a == b)) for b in range(3)] for a in range(3)]
    for a, b in np.ndindex(box.matrix.shape):
        rows[missing + a][missing + b] = Fraction(float(box.matrix[a, b]))

    def minor(a: int, b: int) -> Fraction:
        c, d, e, f = (a + 1) % 3, (a + 2) % 3, (b + 1) % 3, (b + 2) % 3
        return rows[c][e] * rows[d][f] - rows[c][f] * rows[d][e]

    determinant = sum((rows[0][b] * minor(0, b) for b in range(3)), Fraction())
    return [[minor(a, b) / determinant for b in range(3)] for a in range(3)]


def _parts(number: Fraction, real: np.dtype) -> list[float]:
    """Return numbers of a dtype whose sum is ``number``, to the rounding of the last."""
    parts = []
    for _ in range(PARTS):
        with np.errstate(over="ignore", under="ignore"):
            part = float(real.type(float(number)))
        parts.append(part)
        number = number - Fraction(part) if math.isfinite(part) else Fraction()
    return parts


def _exponent(number: Fraction) -> int:
    return number.numerator.bit_length() - number.denominator.bit_length()


@functools.lru_cache(maxsize=64)
def node_map(axes: tuple[Axis, Axis, Axis], box: Box, positions: np.dtype, real: np.dtype | None = None) -> NodeMap:
    """Return the map from positions to nodes.

    Parameters
    ----------
    axes
        The mesh's axes in the form of stencils, missing ones first.
    box
        The mesh's box.
    positions
        Dtype of the positions, which decides the bounds of open axes.
    real
        Dtype of the computation, by default that of the positions.
    """
    real = positions if real is None else real
    missing, precision = 3 - box.ndim, np.finfo(real).nmant + 1
    slopes = [[axis.scale * s for s in row] for axis, row in zip(axes, _reciprocal(box), strict=True)]
    origin = [Fraction()] * missing + [Fraction(float(o)) for o in box.origin]
    steps = max(_exponent(s) for row in slopes for s in row if s) - _EXPONENT
    unit = Fraction(2) ** min(max(steps, 0), np.finfo(positions).maxexp - 2)
    centre, edge, fold, base = [0.0] * 3, [-0.5] * 3, [0] * 3, [0] * 3
    for a in range(missing, 3):
        axis = axes[a]
        corner = sum((s * o for s, o in zip(slopes[a], origin, strict=True)), Fraction())
        start = axis.node_of_origin + Fraction(axis.support % 2, 2)  # floor(this) is the cell of the box's origin
        reach = (axis.support - 1) // 2  # nodes of a stencil before its cell
        turn = math.ceil(corner - start)
        centre[a] = float(turn - corner + start - Fraction(1, 2))
        if axis.wraps:
            fold[a] = turn + reach
        elif axis.window is not None:
            fold[a], base[a] = turn + reach + axis.window, axis.window
        else:
            fold[a], base[a] = turn + math.floor(start), math.floor(start) - reach
            edge[a] = float(start - math.floor(start) - Fraction(1, 2))
        if box.periodic[a - missing]:
            fold[a] %= axis.count
        fold[a] = min(max(fold[a], -_INTEGER), _INTEGER)
    scaled = np.array([[_parts(s / unit, real) for s in row] for row in slopes])
    max_nodes = 2.0 ** (precision - 3)  # so that quotients of nodes are also wrong by less than one
    steepest = np.abs(scaled[missing:, :, 0]).max(0)
    near = np.divide(max_nodes, steepest, out=np.zeros(3), where=steepest > 0)
    if max(axis.count for axis in axes) > max_nodes:
        near[:] = -1
    lower, upper = np.zeros(3), np.zeros(3)
    low, high = open_bounds(box.origin, box.inverse, box.lengths, box.orthorhombic, positions)
    factor = float(unit) if box.orthorhombic else np.array([axis.scale for axis in axes[missing:]])
    lower[missing:], upper[missing:] = low.astype(positions) * factor, high.astype(positions) * factor
    return NodeMap(
        slopes=np.ascontiguousarray(scaled.transpose(2, 0, 1)).astype(real),
        centre=np.array(centre).astype(real),
        edge=np.array(edge).astype(real),
        lower=lower.astype(real),
        upper=upper.astype(real),
        unit=real.type(float(unit)),
        near=near.astype(real),
        fold=(fold[0], fold[1], fold[2]),
        base=(base[0], base[1], base[2]),
    )
