# SPDX-License-Identifier: BSD-3-Clause
"""The map from positions to node coordinates, accurate at any distance.

The coordinate of a position x along axis a, in nodes, is ``sum_b slope[a, b] x[b] - constant[a]``. Slopes and constants
are computed here in rational numbers. A slope is stored as a sum of numbers of the positions' dtype, its head first.
A product ``slope * x`` is split into a whole number of nodes and a rest: ``fma(slope, x, -whole)`` is the rest of the
head, rounded once. So a rest is as exact far away as near the origin, and whole periods are whole numbers.
"""

from __future__ import annotations

import functools
import math
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from particlemesh.arrays.positions import open_bounds
from particlemesh.box import Box
from particlemesh.particles.stencil import Axis

PARTS = 3  # numbers that make up a slope: two suffice for near positions
_EXPONENT = 96  # upper bound for slopes: positions in smaller boxes are multiplied by a power of two
_INTEGER = 2**60  # upper bound for integers subtracted from whole nodes


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
