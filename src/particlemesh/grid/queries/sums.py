# SPDX-License-Identifier: BSD-3-Clause
"""Sums of a pair function over the neighbours of each particle, on CUDA and OpenCL, without a list."""

from __future__ import annotations

from typing import Any

import numpy as np

from particlemesh.arrays import kinds
from particlemesh.backends.base import Backend, Record
from particlemesh.grid.checks import square_within
from particlemesh.grid.queries import clusters
from particlemesh.grid.queries.cloud import Cloud, kernel_radius
from particlemesh.grid.queries.pair_function import PairFunction
from particlemesh.sorting.scan import Allocate

_FEW = 64  # parameters that are arguments of the kernel
# A particle at a time: work-items that a GPU's multiprocessor needs to hide its loads, the most that share a particle's
# neighbours, and bytes of a group's partial sums, more of which would leave fewer groups (H200).
_BUSY, _MOST_LANES, _MOST_LOCAL = 2048, 4, 2**14
# Clusters (grid/queries/clusters.h, H200).
_EACH = 2048  # particles for each multiprocessor, of which a work-item each hides its loads
_LEAST_NEIGHBOURS = {True: 64, False: 24}  # for which clusters gain, by whether there are so many
_MOST_SUMS = {8: 50, 4: 72}  # registers of a work-item for sums, by the particles of a cluster
_MOST_SUMS_OF_FEW = 112  # particles
_REGISTERS, _OTHERS, _MOST_GROUPS = 512, 33, 8  # of 128 work-items one behind the other; those not for sums
_OTHERS_OF_HALVES = 41  # a neighbour's sums among them


def members_of(cloud: Cloud, radius: float, function: PairFunction) -> int:
    """Return how many particles a warp takes together, or 0 if each one is searched for alone.

    Clusters serve functions that add few sums.
    """
    size, least = cloud.cells.dtype.itemsize, _LEAST_NEIGHBOURS[cloud.count >= _EACH * cloud.backend.units]
    most = clusters.members_of(cloud, radius, least)
    if not most or not function.only_adds:
        return 0
    if most == 8 and registers_of(function, 8, size) <= _MOST_SUMS[8]:
        return 8
    return 4 if registers_of(function, 4, size) <= (_MOST_SUMS_OF_FEW if most == 4 else _MOST_SUMS[4]) else 0


def in_halves(backend: Backend, function: PairFunction, dtype: np.dtype) -> bool:
    """Return whether clusters compute a pair once, and add what it gives the other particle in any order.

    They take two thirds of the time where a device adds four numbers at once (H200). Sums of same bits keep the order.
    """
    return bool(backend.facts()["HAS_VECTOR_ATOMIC"]) and dtype.itemsize == 4 and not function.defines


def registers_of(function: PairFunction, members: int, size: int) -> int:
    """Return how many registers hold the sums of a cluster and the values of a neighbour."""
    return (members * function.results + function.values) * size // 4


def resident_groups(function: PairFunction, members: int, size: int, half: bool = False) -> int:
    """Return how many groups share the registers of a multiprocessor; with more of them sums would spill."""
    others = (_OTHERS_OF_HALVES if half else _OTHERS) * size // 4
    return max(1, min(_MOST_GROUPS, _REGISTERS // (registers_of(function, members, size) + others)))


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

    Neighbours are added in the order of cells, so that the same order gives bit-identical sums, except `in_halves`.
    Sums of particles that were left out are zero. ``values`` and ``out`` are native arrays of any strides; ``allocate``
    provides scratch memory.
    """
    backend, cells, dtype, count = cloud.backend, cloud.cells, cloud.cells.dtype, cloud.count
    radius = kernel_radius(radius, cells)
    ask = Record(f"=2{dtype.char}", radius, square_within(radius, dtype))
    texts = {"pair function": function.text}
    totals = out
    if out is None:
        totals = kinds.allocate(backend, (count, function.results), dtype, "sums over neighbours")
    backend.clear(totals)
    if not count:
        return totals
    parameters = function.parameters_as(dtype) if function.parameters else np.zeros(1, dtype)
    few = len(parameters) <= _FEW
    defines = {
        **cloud.defines(), "EXTENTS": 0, "RESULTS": function.results, "VALUES": function.values,
        "PARAMETERS": len(parameters) * few, **function.defines,
    }  # fmt: skip
    bins, gathered, step = cells.count, cloud.records, dtype.itemsize
    if values is not None:
        gathered = allocate("values", (count * function.values,), dtype)
        column = values.strides[1] // step if len(values.shape) == 2 else 0
        gather = backend.kernel("grid/queries/sums.c", "gather_values", defines, texts)
        gather(
            count * function.values, cloud.records, cloud.start, values, gathered, count, bins,
            getattr(values, "offset", 0) // step, values.strides[0] // step, column,
        )  # fmt: skip
    given = gathered, *([] if few else [function.parameters_on(backend, parameters)]), totals
    places = getattr(totals, "offset", 0) // step, totals.strides[0] // step, totals.strides[1] // step
    records = *cloud.geometry(), ask, *([Record(f"={len(parameters)}{dtype.char}", *parameters)] if few else [])
    if members := members_of(cloud, radius, function):
        half = in_halves(backend, function, dtype)
        groups = resident_groups(function, members, step, half)
        defines |= {"MEMBERS": members, "HALF": int(half), "RESIDENT_GROUPS": groups}
        rows, of_rows = totals, places
        if half:
            row = -(-function.results // 4) * 4
            rows, of_rows = allocate("rows of sums", (count * row,), dtype), (0, row, 1)
            backend.clear(rows)
        run = backend.kernel("grid/queries/cluster_sums.c", "stream", defines, texts)
        run(
            -(-count // members) * 32, *cloud.rows(), cloud.records, cloud.start, *given[:-1], rows, bins, *of_rows,
            *records,
        )  # fmt: skip
        if half:
            backend.kernel("grid/queries/cluster_sums.c", "write_rows", defines, texts)(
                count * function.results, cloud.records, cloud.start, rows, totals, count, bins, *places
            )
        return totals
    ends, lanes = cloud.start if cloud.ends is None else cloud.ends, lanes_of(backend, function, count, step)
    run = backend.kernel("grid/queries/sums.c", "stream", {**defines, "LANES": lanes}, texts)
    run(count * lanes, *cloud.rows(), cloud.records, cloud.start, ends, *given, count, bins, *places, *records)
    return totals
