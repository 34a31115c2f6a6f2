# SPDX-License-Identifier: BSD-3-Clause
"""When a warp searches for several particles together (grid/queries/clusters.h): a cluster."""

from __future__ import annotations

import functools
import math

import numpy as np

from particlemesh.grid.checks import BALL, MOST
from particlemesh.grid.queries.cloud import Cloud, margin_of
from particlemesh.sorting.keys import Cells

# H200, cubes of uniform particles.
_EACH = 512  # particles for each multiprocessor, of which there are few with less
FEW_NEIGHBOURS = 8  # for which clusters gain if particles are few
_MOST_REACH = 0.99  # fractions of a box along periodic axes: turns are -1, 0 and 1
_MOST_CLUSTERED = 2**26  # particles: candidates of 32 columns and their images are counted in 32 bits


def members_of(cloud: Cloud, radius: float, least: int, least_of_few: int = FEW_NEIGHBOURS) -> int:
    """Return how many particles a cluster has, or 0 if each one is searched for alone.

    Clusters serve one level of cells in their order, and a radius of less than a box. They gain where particles have
    ``least`` neighbours, or are few for the device and have ``least_of_few``. Clusters of four then make more warps,
    which hide their loads.
    """
    backend, cells, count = cloud.backend, cloud.cells, cloud.count
    if not backend.facts()["HAS_WARP"] or cloud.ends is not None or cloud.occupied is not None or cells.levels > 1:
        return 0
    few = count < backend.units * _EACH
    if count * near_of(cells, radius) < (least_of_few if few else least) or count > _MOST_CLUSTERED:
        return 0
    return 4 if few else 8


@functools.lru_cache(maxsize=64)
def near_of(cells: Cells, radius: float) -> float:
    """Return the share of the particles within a radius of one of them, if all are spread evenly over open boxes.

    An open axis with one cell counts as near: its particles are compared all the same. 0 if the radius is a box along a
    periodic axis, or more, or if columns of cells could not be counted in 32 bits.
    """
    box, reach = cells.box, radius * cells.per
    rounding = margin_of(cells) * cells.per / np.sqrt((box.inverse**2).sum(1))  # of the smallest system
    columns = 3 * math.prod(3 * n + 2 for n in cells.shape[:-1])  # with images within reach of a cluster
    if ((reach + rounding) * np.array(box.periodic) > _MOST_REACH).any() or columns > MOST:
        return 0.0
    together = ~np.array(box.periodic) & (np.array(cells.shape) == 1)
    return share_of_ball(np.where(together, 1.0, reach)) / max(cells.systems, 1)


def share_of_ball(reach: np.ndarray) -> float:
    """Return the part of a box that a ball takes, for its radius in fractions along each axis, (d,)."""
    return min(1.0, BALL[len(reach) - 1] * float(np.minimum(reach, 1).prod()))


def columns(neighbours: float, ndim: int) -> np.ndarray:
    """Return sides of cells per radius, (d,): eight particles of a column fill a cube, about one is in a cell.

    The number is rounded, so that a few more particles have the same cells.
    """
    density = 2 ** (round(2 * math.log2(neighbours)) / 2) / BALL[ndim - 1]
    sides = np.full(ndim, min(max(1.1 * (8 / density) ** (1 / ndim), 1 / 2), 1.0))
    sides[-1] = min(max(1 / (density * sides[:-1].prod()), 1 / 16), 1 / 4)
    return sides
