# SPDX-License-Identifier: BSD-3-Clause
"""The nearest particles of each particle or point, on CUDA and OpenCL."""

from __future__ import annotations

from typing import Any

import numpy as np

from particlemesh.arrays.positions import Coordinates
from particlemesh.backends.base import Record, allocate
from particlemesh.grid import checks
from particlemesh.grid.queries.cloud import Cloud, kernel_radius
from particlemesh.sorting.keys import FIRST, NOT_FINITE, OUTSIDE, STATUS_WORDS

MOST = 128  # a list lives in a work-item's own memory


def nearest(cloud: Cloud, k: int, radius: float, points: Coordinates | None, system: Any) -> tuple[Any, Any]:
    """Return indices and distances (rows, k) of the nearest particles within ``radius`` of each particle or point.

    A particle is not its own neighbour, but its images are; each image counts separately. Equal squared distances go by
    index, so that the result does not depend on the order of particles within cells. Each k is compiled separately.
    Points have a ``system`` each, if particles have one. Waits only to check points.
    """
    backend, cells, dtype = cloud.backend, cloud.cells, cloud.cells.dtype
    reach = kernel_radius(radius, cells, points=points is not None)
    guess = checks.first_radius(k, cells.box.volume, cells.shape, cloud.count / max(cells.systems, 1))
    search = Record(f"=5{dtype.char}", reach, checks.square_within(reach, dtype), *guess)
    rows = cloud.count if points is None else points.count
    indices = allocate(backend, (rows, k), np.int32, "the nearest particles")
    distances = allocate(backend, (rows, k), dtype, "the distances of the nearest particles")
    if not rows:
        return indices, distances
    status = cloud.status
    if points is not None:
        status = backend.empty((STATUS_WORDS,), np.uint64)
        backend.clear(status)
    defines = {**cloud.defines(), "EXTENTS": 0, "K": k, "POINTS": int(points is not None)}
    bins = cells.count
    if points is None:
        empty = backend.kernel("grid/queries/nearest.c", "no_neighbours", defines)
        empty(rows * k, cloud.start, indices, distances, rows, bins)
        x, strides = (cloud.records,) * 3, Record("=6q", *[0] * 6)
    else:
        x, strides = points.arguments(), points.record()
    run = backend.kernel("grid/queries/nearest.c", "nearest", defines)
    run(
        rows, *cloud.rows(system), cloud.records, cloud.start, cloud.start if cloud.ends is None else cloud.ends, *x,
        status, indices, distances, rows, bins, strides, *cloud.geometry(),
        search,
    )  # fmt: skip
    if points is not None:
        words = backend.download(status)
        checks.good_points(int(words[NOT_FINITE]), int(words[OUTSIDE]), int(~words[FIRST]))
    return indices, distances
