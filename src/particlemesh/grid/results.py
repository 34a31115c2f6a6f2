# SPDX-License-Identifier: BSD-3-Clause
"""What queries of a grid return."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Pairs:
    """Pairs of particles within reach of each other; what was not asked for is None.

    P is the number of pairs, d that of axes. In the format ``"dense"`` (rows, width) stands for P, and where ``j`` is
    -1 there is no pair.

    Parameters
    ----------
    start : (rows + 1,) int64
        With ``"csr"``: row k holds the pairs ``start[k]`` to ``start[k + 1]`` (excluded).
    i, j : (P,) int32
        The two particles of each pair, or the query point and the particle.
    shift : (P, d) int32
        S: how many times each lattice vector is added to j's position to get the image of j that i sees.
    distance : (P,)
        Length of ``vector``, in the unit of the positions.
    vector : (P, d)
        ``x[j] - x[i] + S @ box.matrix``, in the unit of the positions.
    count : (rows,) int32
        With ``"dense"``: how many pairs each row has.

    Examples
    --------
    >>> from particlemesh.grid.results import Pairs
    >>> pairs = Pairs(start=[0, 1, 1], j=[1])
    >>> pairs.distance is None
    True
    """

    start: Any = None
    i: Any = None
    j: Any = None
    shift: Any = None
    distance: Any = None
    vector: Any = None
    count: Any = None
