# SPDX-License-Identifier: BSD-3-Clause
"""A mesh and a window in the form of stencils: three axes in any dimension.

Kernels and CPU loops are written for three dimensions. Missing axes come first and are one node
thick. Their support is one node with weight one. So 1-D and 2-D need no separate code.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from fractions import Fraction

from particlemesh.mesh import Mesh
from particlemesh.window import Window


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
