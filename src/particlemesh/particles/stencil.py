# SPDX-License-Identifier: BSD-3-Clause
"""A mesh and a window in the form of stencils: three axes in any dimension.

Kernels and CPU loops are written for three dimensions. Missing axes come first, are one node
thick and have a support of one node with weight one, so 1-D and 2-D need no separate code.
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
    is stored in ``[0, size)`` and nodes are taken modulo ``size``; elsewhere ``first`` lies in
    ``[low, low + extent)`` and nodes outside ``[0, size)`` do not exist.
    """

    size: int  # nodes of the field, ghosts included
    wraps: bool
    low: int
    extent: int
    support: int
    scale: int  # node coordinate = fractional * scale - shift + before
    shift: float
    before: int = 0  # ghosts before node 0

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
