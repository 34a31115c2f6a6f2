# SPDX-License-Identifier: BSD-3-Clause
"""Windows as rows of lanes: the numbers from which a particle's weights are made with vector instructions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.polynomial import polynomial

from particlemesh.backends.simd import width_of

if TYPE_CHECKING:
    from particlemesh.particles.stencil import Axis

# Below so many stencil rows of particles per row of the tile's box, particles go without that box
# (EPYC 9005, 128^3 nodes).
SPARSE = 3.0


class Rows(NamedTuple):
    """A window for values of so many parts.

    Attributes
    ----------
    table
        Polynomials of the three axes, then of their slopes: ``terms`` rows each, highest power first. There is
        one lane per node, on the last axis one per part of a node. Lanes past the support are zero.
    terms
        Rows of each polynomial.
    parts
        Reals of a value.
    width
        Its length is the number of lanes.
    missing
        Axes that the mesh does not have: the first ones, whose only weight is 1.
    """

    table: np.ndarray
    terms: int
    parts: int
    width: tuple[int, ...]
    missing: int


def rows_of(
    window_table: np.ndarray, axes: Sequence[Axis], parts: int, dtype: np.dtype, along: int | None = None
) -> Rows:
    """Return the rows of a window's table (support, degree + 1), ascending powers, for the mesh's axes.

    With ``along``, an axis, they are those of the window's derivative along it: its slopes are second derivatives.
    """
    terms = window_table.shape[1]
    width = width_of(max(axis.support for axis in axes) * parts, np.dtype(dtype).itemsize)
    table = np.zeros((2, 3, terms, len(width)), dtype)
    missing = 0
    for a, axis in enumerate(axes):
        copies = parts if a == 2 else 1
        lanes = axis.support * copies
        if axis.size == 1 and axis.scale == 0:  # a missing axis: weight 1, slope 0
            table[0, a, -1, :lanes] = 1
            missing += 1
            continue
        for slope in (0, 1):
            derived = polynomial.polyder(window_table, slope + (a == along), axis=1)
            table[slope, a, terms - derived.shape[1] :, :lanes] = np.repeat(derived[:, ::-1].T, copies, axis=1)
    return Rows(table.reshape(-1), terms, parts, width, missing)
