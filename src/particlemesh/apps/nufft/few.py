# SPDX-License-Identifier: BSD-3-Clause
"""Types 1 and 2 for few points on a CPU: one thread, points in the caller's order, one compiled call for each step."""

from __future__ import annotations

import functools
import math
from fractions import Fraction
from typing import Any

import numpy as np

import particlemesh as pm
from particlemesh.apps.nufft.options import Options
from particlemesh.apps.nufft.sizes import Law, Sizes, choose, few_at_points, few_seconds
from particlemesh.apps.nufft.uniform import Uniform
from particlemesh.kernels.cpu import compiled, plain, threads_for
from particlemesh.kernels.lanes import (
    add,
    alternate,
    fma,
    fused,
    horner,
    item,
    load,
    mul,
    put,
    splat,
    store,
    sums,
    window_rows,
)

_FARTHEST = 2.0**50  # nodes: up to here float64 divides them by the nodes of an axis with an error below one
_LINE = 64  # bytes of a cache line
_CACHE = 2**19  # bytes of a mesh that suits half of a core's cache
_SHORT = 4e-4  # seconds: more work than this is shared among threads


class Few(Uniform):
    """Sums between few points and modes; see `Uniform`.

    A plan of particlemesh sorts particles by tile and shares them among threads. For a thousand points that takes
    longer than the sums. Here the fine mesh stays in a cache, so that the order of the points does not matter.

    Parameters
    ----------
    *arguments, **options
        As for `Uniform`; values are complex, and the box begins at 0.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        nodes, missing = self.sizes.nodes, 3 - len(self.sizes.nodes)
        self._slopes, self._table, self._terms, self._width = _tables(self.window, nodes, self.lengths, self.dtype)
        self._nodes3 = (1,) * missing + nodes
        self._rims = (0,) * missing + (self.sizes.support - 1,) * len(nodes)  # that stencils reach beyond the mesh
        self._first, self._fraction = np.empty(0, np.int32), np.empty(0, self.dtype)  # axis by axis
        self._points: tuple[np.ndarray, ...] = ()
        self._planned = False  # whether the plan of `Uniform` has the points
        self._rooms: dict[int, tuple[np.ndarray, np.ndarray]] = {}

    def set_points(self, points: tuple[Any, ...]) -> None:
        """Set native coordinates (N,) per axis."""
        columns = tuple([plain(p.copy()) for p in points])  # the caller may change its own
        size = sum(column.size for column in columns)
        first, fraction = np.empty(size, np.int32), np.empty(size, self.dtype)
        support = self.sizes.support
        if _locate(columns, self._slopes, (support - 1) // 2, support % 2, first, fraction):
            bad = np.flatnonzero(~np.isfinite(columns).all(0))[0]
            given = ", ".join(str(c[bad]) for c in columns)
            raise ValueError(f"point {bad} is not finite: it is ({given}); give finite coordinates.")
        self._first, self._fraction, self._points, self._planned = first, fraction, columns, False

    def to_modes(self, values: Any, sign: int, out: Any = None) -> Any:
        """Return ``sum_j values[j] exp(sign i k x_j)``, shape (b, *modes), for native values (b, N)."""
        room, nodes = self._room(values.shape[0])
        _spread(
            self._first, self._fraction, plain(values).view(self.dtype), self._table, self._terms, self._width,
            self._nodes3, self._rims, values.shape[0], room,
        )  # fmt: skip
        return self.bands.to_modes(nodes, out, sign=sign)

    def to_points(self, modes: Any, sign: int, out: Any = None) -> Any:
        """Return ``sum_k modes[k] exp(sign i k x_j)``, shape (b, N); modes are dense."""
        nodes = self.bands.to_nodes(modes, sign=sign)
        if out is None:
            out = np.empty((modes.shape[0], self._points[0].size), self.complex_dtype)
        room, _ = self._room(modes.shape[0])
        _read(
            self._first, self._fraction, plain(nodes).view(self.dtype), self._table, self._terms, self._width,
            self._nodes3, self._rims, modes.shape[0], room, out.reshape(-1).view(self.dtype),
        )  # fmt: skip
        return out

    def to_points_and_slopes(self, modes: Any, sign: int) -> tuple[Any, Any]:
        """Return the sums and their gradients by the points, shapes (b, N) and (b, N, d)."""
        if not self._planned:
            super().set_points(self._points)
            self._planned = True
        return super().to_points_and_slopes(modes, sign)

    def _room(self, batch: int) -> tuple[np.ndarray, np.ndarray]:
        """Return reals for the meshes of a batch with their rims, and the meshes' nodes within."""
        if batch not in self._rooms:
            shape = [batch, *(n + r for n, r in zip(self._nodes3, self._rims, strict=True))]
            reals = 2 * math.prod(shape[1:])
            room = np.zeros(batch * (reals + len(self._width)), self.dtype)  # lanes may reach past the last node
            rows = room.reshape(batch, -1)[:, :reals].view(self.complex_dtype)
            whole = rows.reshape(shape)
            inner = whole[(slice(None), *(slice(0, n) for n in self._nodes3))]
            self._rooms = {batch: (room, inner.reshape(batch, *self.sizes.nodes))}
        return self._rooms[batch]


def core_of(
    backend: Any, modes: tuple[int, ...], eps: float, law: Law, points: int, vectors: int, dtype: np.dtype,
    options: Options,
) -> tuple[type[Uniform], Sizes]:  # fmt: skip
    """Return which core is faster, and its sizes: `Few`, or `Uniform` with a plan of particlemesh."""
    about = 1 << max(0, points - 1).bit_length()  # so that single transforms find their sizes in the cache
    problem = (modes, eps, law, about, 1 if options.real else 2, dtype, backend.name == "cpu", options.upsampfac)
    if backend.name == "cpu" and options.plain and not options.real:
        sizes, size = choose(*problem, few_seconds), dtype.itemsize
        short = few_at_points(sizes, points * vectors, size) < _SHORT
        if short or threads_for(options.threads, points * vectors) == 1:
            room = 2 * size * math.prod(n + sizes.support for n in sizes.nodes)
            if room <= _CACHE:
                return Few, sizes
    return Uniform, choose(*problem)


@functools.lru_cache(maxsize=64)
def _tables(
    window: pm.Window, nodes: tuple[int, ...], lengths: tuple[float, ...], dtype: np.dtype
) -> tuple[np.ndarray, np.ndarray, int, tuple[int, ...]]:
    """Return nodes per length as head and tail, with the nodes of each axis; and the window's rows of lanes."""
    slopes = np.empty((len(nodes), 3))
    for slope, n, length in zip(slopes, nodes, lengths, strict=True):
        exact = n / Fraction(length)
        slope[:] = float(exact), float(exact - Fraction(float(exact))), n
    rows = window_rows(window, len(nodes), 2, dtype)
    room = np.zeros(rows.table.size + _LINE // dtype.itemsize, dtype)
    table = room[-room.ctypes.data % _LINE // dtype.itemsize :][: rows.table.size]  # no vector crosses a cache line
    table[:] = rows.table
    return slopes, table, rows.terms, rows.width


@compiled
def _locate(columns, slopes, reach, odd, first, fraction):
    """Write first nodes and fractions of stencils, as plans have them; return how many points are not finite.

    A point farther away than `_FARTHEST` has no digits within a node: as in plans, it is at node 0.
    """
    bad, centre = 0, 0.0 if odd else -0.5
    for a in range(len(columns)):
        x, head, tail, count = columns[a], slopes[a, 0], slopes[a, 1], slopes[a, 2]
        per = 1 / count
        for k in range(x.size):
            at = np.float64(x[k])
            whole = np.rint(at * head)
            # The rest of a product is exact, so that points far away are as exact as near ones.
            rest = fused(at, head, -whole) + fused(at, tail, centre)
            shift = np.floor(rest + 0.5)
            near = abs(whole) <= _FARTHEST
            bad += 0 if abs(at) < np.inf else 1
            cell = (whole + shift if near else 0.0) - reach
            cell = fused(-np.floor(cell * per), count, cell)  # the quotient may be wrong by one
            cell = cell + count if cell < 0 else cell
            cell = cell - count if cell >= count else cell
            first[a * x.size + k] = np.int32(cell)
            fraction[a * x.size + k] = rest - shift if near else 0.0
    return bad


@compiled
def _fold(room, outer, nodes, rim, inner):
    """Add the rim behind the nodes of the middle axis of (outer, nodes + rim, inner) to the nodes."""
    for o in range(outer):
        begin = o * (nodes + rim) * inner
        for r in range(rim):
            to, source = room[begin + r % nodes * inner :][:inner], room[begin + (nodes + r) * inner :][:inner]
            for i in range(inner):
                to[i] += source[i]


@compiled
def _repeat(room, outer, nodes, rim, inner):
    """Write the rim behind the nodes of the middle axis of (outer, nodes + rim, inner)."""
    for o in range(outer):
        begin = o * (nodes + rim) * inner
        for r in range(rim):
            to, source = room[begin + (nodes + r) * inner :][:inner], room[begin + r % nodes * inner :][:inner]
            for i in range(inner):
                to[i] = source[i]


# Loops of their own for each number of axes take a half to a third of the time of one for all.


@compiled(inline="always")
def _spread_points(first, fraction, numbers, table, terms, width, support, pitch, plane, begin, weights, room):
    """Spread numbers of a vector onto its mesh."""
    lanes, axis, count = len(width), terms * len(width), numbers.size // 2
    y, z = first.size - 2 * count, first.size - count
    if z == 0:
        for k in range(count):
            along = horner(table, 2 * axis, terms, item(fraction, k), width)
            along = mul(along, alternate(item(numbers, 2 * k), item(numbers, 2 * k + 1), width))
            place = begin + 2 * np.int64(item(first, k))
            store(room, place, add(along, load(room, place, width)))
    elif y == 0:
        for k in range(count):
            store(weights, 0, horner(table, axis, terms, item(fraction, k), width))
            along = horner(table, 2 * axis, terms, item(fraction, z + k), width)
            along = mul(along, alternate(item(numbers, 2 * k), item(numbers, 2 * k + 1), width))
            place = begin + pitch * np.int64(item(first, k)) + 2 * np.int64(item(first, z + k))
            for j in range(support):
                store(room, place, fma(splat(item(weights, j), width), along, load(room, place, width)))
                place += pitch
    else:
        for k in range(count):
            store(weights, 0, horner(table, 0, terms, item(fraction, k), width))
            store(weights, lanes, horner(table, axis, terms, item(fraction, y + k), width))
            along = horner(table, 2 * axis, terms, item(fraction, z + k), width)
            along = mul(along, alternate(item(numbers, 2 * k), item(numbers, 2 * k + 1), width))
            corner = begin + plane * np.int64(item(first, k)) + pitch * np.int64(item(first, y + k))
            corner += 2 * np.int64(item(first, z + k))
            for i in range(support):
                row, place = mul(along, splat(item(weights, i), width)), corner + i * plane
                for j in range(support):
                    store(room, place, fma(splat(item(weights, lanes + j), width), row, load(room, place, width)))
                    place += pitch


@compiled(inline="always")
def _read_points(first, fraction, numbers, table, terms, width, support, pitch, plane, begin, weights, room):
    """Interpolate the numbers of a vector from its mesh."""
    lanes, axis, count = len(width), terms * len(width), numbers.size // 2
    y, z = first.size - 2 * count, first.size - count
    zero = splat(room.dtype.type(0), width)
    if z == 0:
        for k in range(count):
            total = load(room, begin + 2 * np.int64(item(first, k)), width)
            even, odd = sums(mul(horner(table, 2 * axis, terms, item(fraction, k), width), total))
            put(numbers, 2 * k, even)
            put(numbers, 2 * k + 1, odd)
    elif y == 0:
        for k in range(count):
            store(weights, 0, horner(table, axis, terms, item(fraction, k), width))
            place = begin + pitch * np.int64(item(first, k)) + 2 * np.int64(item(first, z + k))
            total = zero
            for j in range(support):
                total = fma(splat(item(weights, j), width), load(room, place, width), total)
                place += pitch
            even, odd = sums(mul(horner(table, 2 * axis, terms, item(fraction, z + k), width), total))
            put(numbers, 2 * k, even)
            put(numbers, 2 * k + 1, odd)
    else:
        for k in range(count):
            store(weights, 0, horner(table, 0, terms, item(fraction, k), width))
            store(weights, lanes, horner(table, axis, terms, item(fraction, y + k), width))
            corner = begin + plane * np.int64(item(first, k)) + pitch * np.int64(item(first, y + k))
            corner += 2 * np.int64(item(first, z + k))
            total = zero
            for i in range(support):
                slab, place = zero, corner + i * plane
                for j in range(support):
                    slab = fma(splat(item(weights, lanes + j), width), load(room, place, width), slab)
                    place += pitch
                total = fma(splat(item(weights, i), width), slab, total)
            even, odd = sums(mul(horner(table, 2 * axis, terms, item(fraction, z + k), width), total))
            put(numbers, 2 * k, even)
            put(numbers, 2 * k + 1, odd)


@compiled
def _spread(first, fraction, values, table, terms, width, nodes, rims, batch, room):
    """Spread complex values (batch, N) onto meshes with rims, then add the rims to the nodes."""
    pitch = 2 * (nodes[2] + rims[2])
    plane = (nodes[1] + rims[1]) * pitch
    size, count = (nodes[0] + rims[0]) * plane, values.size // batch
    each = size + len(width)  # of a vector; lanes beyond a stencil have no weight, but a value that is not finite
    room[:] = 0
    weights = np.empty(2 * len(width), room.dtype)
    for c in range(batch):
        numbers = values[c * count :][:count]
        _spread_points(
            first, fraction, numbers, table, terms, width, rims[2] + 1, pitch, plane, c * each, weights, room
        )  # fmt: skip
        mesh = room[c * each :][:size]
        _fold(mesh, size // pitch, nodes[2], rims[2], 2)
        _fold(mesh, size // plane, nodes[1], rims[1], pitch)
        _fold(mesh, 1, nodes[0], rims[0], plane)


@compiled
def _read(first, fraction, field, table, terms, width, nodes, rims, batch, room, values):
    """Copy meshes (batch, *nodes) and repeat their rims, then interpolate complex values (batch, N)."""
    row = 2 * nodes[2]
    pitch = row + 2 * rims[2]
    plane = (nodes[1] + rims[1]) * pitch
    size, count = (nodes[0] + rims[0]) * plane, values.size // batch
    each = size + len(width)
    for c in range(batch):
        for i in range(nodes[0]):
            for j in range(nodes[1]):
                to = room[c * each + i * plane + j * pitch :][:row]
                source = field[((c * nodes[0] + i) * nodes[1] + j) * row :][:row]
                for k in range(row):
                    to[k] = source[k]
    # Rows and planes of rims are whole ones that were written before.
    for c in range(batch):
        for i in range(nodes[0]):
            _repeat(room[c * each + i * plane :], nodes[1], nodes[2], rims[2], 2)
            _repeat(room[c * each + i * plane :], 1, nodes[1], rims[1], pitch)
        _repeat(room[c * each :], 1, nodes[0], rims[0], plane)
        room[c * each + size :][: len(width)] = 0
    weights = np.empty(2 * len(width), room.dtype)
    for c in range(batch):
        numbers = values[c * count :][:count]
        _read_points(
            first, fraction, numbers, table, terms, width, rims[2] + 1, pitch, plane, c * each, weights, room
        )  # fmt: skip
