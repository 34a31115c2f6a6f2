# SPDX-License-Identifier: BSD-3-Clause
"""Sums of a pair function over the neighbours of each particle, on CUDA and OpenCL, without a list."""

from __future__ import annotations

from typing import Any

import numpy as np

from particlemesh.backends import base
from particlemesh.backends.base import Backend, Record
from particlemesh.grid.checks import square_within
from particlemesh.grid.queries.cloud import Cloud, kernel_radius
from particlemesh.grid.queries.pair_function import PairFunction
from particlemesh.sorting.scan import Allocate

_FEW = 64  # parameters that are arguments of the kernel
# Work-items that a GPU's multiprocessor needs to hide its loads, and those of a particle at most (H200).
_BUSY = 2048
_MOST_LANES = 4
_MOST_LOCAL = 2**14  # bytes of a group's partial sums: more would leave fewer groups per multiprocessor


def lanes_of(backend: Backend, function: PairFunction, count: int, size: int) -> int:
    """Return how many work-items share a particle's neighbours: several where particles are few for the device."""
    partial = backend.group_size * function.results * size
    if not backend.facts()["HAS_WARP"] or not function.only_adds or partial > _MOST_LOCAL:
        return 1
    lanes = 1
    while lanes < _MOST_LANES and count * lanes < backend.units * _BUSY:
        lanes *= 2
    return lanes


def sums(
    cloud: Cloud, radius: float, function: PairFunction, values: Any = None, out: Any = None, *, allocate: Allocate
) -> Any:
    """Return the sums (N, results) of ``function`` over each particle's neighbours, in the caller's order; never waits.

    Neighbours are added in the order of cells: the same order gives bit-identical sums. Sums of particles that were
    left out are zero. ``values`` and ``out`` are native arrays of any strides; ``allocate`` provides scratch memory.
    """
    backend, cells, dtype, count = cloud.backend, cloud.cells, cloud.cells.dtype, cloud.count
    radius = kernel_radius(radius, cells)
    ask = Record(f"=2{dtype.char}", radius, square_within(radius, dtype))
    texts = {"pair function": function.text}
    totals = out
    if out is None:
        totals = base.allocate(backend, (count, function.results), dtype, "sums over neighbours")
    backend.clear(totals)
    if not count:
        return totals
    parameters = np.array(function.parameters or (0.0,), dtype)
    few = len(parameters) <= _FEW
    defines = {
        **cloud.defines(), "EXTENTS": 0, "RESULTS": function.results, "VALUES": function.values,
        "PARAMETERS": len(parameters) * few,
    }  # fmt: skip
    lanes = lanes_of(backend, function, count, dtype.itemsize)
    bins, gathered, step = cells.count, cloud.records, dtype.itemsize
    if values is not None:
        gathered = allocate("values", (count * function.values,), dtype)
        column = values.strides[1] // step if len(values.shape) == 2 else 0
        gather = backend.kernel("grid/queries/sums.c", "gather_values", defines, texts)
        gather(
            count * function.values, cloud.records, cloud.start, values, gathered, count, bins,
            getattr(values, "offset", 0) // step, values.strides[0] // step, column,
        )  # fmt: skip
    run = backend.kernel("grid/queries/sums.c", "stream", {**defines, "LANES": lanes}, texts)
    run(
        count * lanes, *cloud.rows(), cloud.records, cloud.start,
        cloud.start if cloud.ends is None else cloud.ends, gathered,
        *([] if few else [function.parameters_on(backend, parameters)]), totals, count, bins,
        getattr(totals, "offset", 0) // step, totals.strides[0] // step, totals.strides[1] // step, *cloud.geometry(),
        ask, *([Record(f"={len(parameters)}{dtype.char}", *parameters)] if few else []),
    )  # fmt: skip
    return totals
