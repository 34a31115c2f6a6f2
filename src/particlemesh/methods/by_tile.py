# SPDX-License-Identifier: BSD-3-Clause
"""What the CPU's methods share: what a task costs, rows of the window, the box of a task, turns.

Particles come in the order of tiles (``orders/cpu/particles.py``), which are cut into tasks. A thread works on a
private copy of the nodes that a task reaches. Threads claim tasks in a fixed order (``spread/colouring.py``).

Stencils are read from rows of lanes, from which a particle's weights are made with vector instructions.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.polynomial import polynomial

from particlemesh.backends.cpu import threads_for
from particlemesh.backends.jit import compiled
from particlemesh.backends.simd import WIDTHS, acquire, add, give_way, item, load, splat, store, width_of
from particlemesh.methods.contract import Method, Problem
from particlemesh.orders.cpu.particles import Tiling, group_of, slabs_together
from particlemesh.particles.stencil import Axis
from particlemesh.particles.workspace import Workspace
from particlemesh.window import Window

CALL = 5e-5  # seconds of a call, whatever it is for
_FEW = 256  # particles: a smaller box saves them less time than finding it takes
_ALIGN = 8
# Below so many stencil rows of particles per row of the tile's box, particles go without that box
# (EPYC 9005, 128^3 nodes).
SPARSE = 3.0

_LINE = 64  # bytes
_CACHE = 32e6  # bytes of the last cache of a common processor; beyond it a line takes twice as long


def cold(problem: Problem) -> float:
    """Return how many lines of a particle's stencil no other particle has read or written just before.

    Lines beyond the last cache count twice.
    """
    met = problem.count * problem.stencil / (problem.nodes * problem.filled)  # contributions to a node
    number = problem.components * problem.dtype.itemsize
    beyond = max(0.0, 1 - _CACHE / (problem.nodes * problem.filled * number))
    lines = problem.window.support ** (problem.mesh.ndim - 1) * (1 + (problem.window.support * number - 1) / _LINE)
    return float(lines * (1 + beyond) / (1 + met / 0.6))


def matrix_seconds(problem: Problem, entry: float, add: float) -> tuple[float, float]:
    """Return the seconds of building a stored matrix, ``entry`` each, and of applying it, ``add`` each and real.

    What its rows take comes on top. Constants are of one thread, as those of tiles.
    """
    entries, used = problem.count * problem.stencil, threads_for(problem.threads, problem.count)
    built = CALL + (problem.count * 1.5e-7 + entries * entry) / used
    return built, 3 * CALL + (problem.count * 1.1e-8 + entries * problem.components * add) / used


# On one axis, where particles stay in the caller's order. Seconds, EPYC, one thread: 81 problems of 10^4 to 10^6
# particles, 10^3 to 10^6 nodes, supports 2 to 8.
_VECTOR = 0.25e-9  # of 32 bytes of a polynomial's terms for all nodes
_FAR = 1.5e-9  # of a stencil that is in no cache of the core
_CORE_CACHE = 1e6  # bytes of that
_NUMBER = 2e-11  # per byte of a field that is cleared


def seconds_on_line(problem: Problem, particle: float, copies: int = 0) -> tuple[float, float]:
    """Return the seconds that threads share, and those of one thread, with so many fields that are added in the end."""
    numbers = problem.components * problem.dtype.itemsize
    vectors = -(-problem.window.support * numbers // 32) * problem.window.table.shape[1]
    beyond = max(0.0, 1 - _CORE_CACHE / (problem.nodes * numbers))
    cleared = problem.nodes * numbers * _NUMBER
    return problem.count * (particle + _VECTOR * vectors + _FAR * beyond), cleared * (1 + 2 * copies)


class TileMethod(Method):
    """A method of the CPU over tiles: threads share its tasks, and results are reproducible for any number of threads.

    Particles come in the order of tiles from ``set_positions``, so there is nothing to prepare.
    """

    backends = frozenset({"cpu"})
    deterministic = True
    derivatives = 2
    # Of a particle, of a row of its stencil, of 32 bytes of that, of a line touched for the first time, of a node.
    seconds: ClassVar[tuple[float, float, float, float, float]]
    clears: ClassVar[bool] = False  # whether all of the field is cleared before

    def __init__(self) -> None:
        self._rows: dict[tuple[int, int | None], Rows] = {}

    @classmethod
    def cost(cls, problem: Problem) -> tuple[float, float]:
        a_particle, a_row, a_vector, a_line, a_node = cls.seconds
        rows = problem.window.support ** (problem.mesh.ndim - 1)
        vectors = -(-problem.window.support * problem.components * problem.dtype.itemsize // 32)
        each = a_particle + (a_row + a_vector * vectors) * rows
        each += a_line * cold(problem) * (0.3 if problem.mesh.ndim < 3 else 1.0)
        nodes = min(problem.nodes * problem.filled, 50 * problem.count) * problem.components
        cleared = cls.clears * problem.nodes * problem.components * problem.dtype.itemsize * 7e-11
        used = threads_for(problem.threads, problem.count)
        # Tiles of one and two axes are longer, and their nodes are walked faster; EPYC, one thread, 81 problems each.
        a_node *= (0.25, 0.4, 1.0)[problem.mesh.ndim - 1]
        return 0.0, CALL + (problem.count * each + a_node * nodes) / used + cleared

    def rows(self, workspace: Workspace, parts: int, along: int | None = None) -> Rows:
        """Return the window's rows for numbers of ``parts`` reals, or those of its derivative along an axis."""
        key = parts, along
        if key not in self._rows:
            self._rows[key] = rows_of(workspace.window, workspace.axes, parts, workspace.dtype, along)
        return self._rows[key]

    def derived(self, workspace: Workspace, parts: int) -> Iterator[tuple[Rows, np.ndarray]]:
        """Yield for each axis the rows of the window's derivative along it, and its slopes in user coordinates.

        Second derivatives are gradients of these first ones, one axis after the other.
        """
        for axis in range(3 - workspace.mesh.ndim, 3):
            yield self.rows(workspace, parts, axis), workspace.jacobian[axis]


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

    Examples
    --------
    Along each of three axes a cubic has 4 rows of 4 lanes for its weights, and as many for its slopes:

    >>> from particlemesh import bspline
    >>> from particlemesh.kernels.lanes import window_rows
    >>> rows = window_rows(bspline(4), 3, 1, "float64")
    >>> rows.terms, len(rows.width), rows.table.shape
    (4, 4, (96,))
    """

    table: np.ndarray
    terms: int
    parts: int
    width: tuple[int, ...]
    missing: int


@functools.lru_cache(maxsize=64)
def rows_of(window: Window, axes: tuple[Axis, ...], parts: int, dtype: np.dtype, along: int | None = None) -> Rows:
    """Return the rows of a window for the mesh's axes.

    With ``along``, an axis, they are those of the window's derivative along it: its slopes are second derivatives.
    """
    coefficients = window.table  # (support, degree + 1), ascending powers
    terms = coefficients.shape[1]
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
            derived = polynomial.polyder(coefficients, slope + (a == along), axis=1)
            table[slope, a, terms - derived.shape[1] :, :lanes] = np.repeat(derived[:, ::-1].T, copies, axis=1)
    return Rows(table.reshape(-1), terms, parts, width, missing)


# ---- the nodes and the weights of a stencil -------------------------------------------------------------------------


@compiled
def place_of(node, size, wraps):
    """Return the place of a node along one axis, or -1 if there is none."""
    if wraps:
        return node % size if node >= size else node
    return node if 0 <= node < size else -1


@compiled
def corner_of(low, local):
    """Return the first node of a particle's stencil, of its tile's first node and its place in the tile."""
    return low[0] + (local >> 20), low[1] + (local >> 10 & 1023), low[2] + (local & 1023)


# One particle's weights, for methods that store them: their time is not what counts.


@compiled
def factors_at(table, terms, lanes, x, y, z, slopes, factors):
    """Write the weights along the three axes, and if ``slopes`` then theirs, ``lanes`` numbers each.

    ``table``, ``terms`` and ``lanes`` are those of `Rows` for one part.
    """
    for number in range(6 if slopes else 3):
        axis = number % 3
        at = x if axis == 0 else y if axis == 1 else z
        out, row = number * lanes, number * terms * lanes
        for j in range(lanes):
            factors[out + j] = table[row + j]
        for _ in range(1, terms):
            row += lanes
            for j in range(lanes):
                factors[out + j] = factors[out + j] * at + table[row + j]


@compiled
def slopes_of(factors, lanes, i, j, jacobian, across):
    """Write what a node's weight and slope along z are multiplied by to give its slope in user coordinates.

    For each coordinate b: ``across[2 b] * wz + across[2 b + 1] * dz``.
    """
    wx, wy = factors[i], factors[lanes + j]
    dx, dy = factors[3 * lanes + i], factors[4 * lanes + j]
    for b in range(jacobian.shape[1]):
        across[2 * b] = jacobian[0, b] * dx * wy + jacobian[1, b] * wx * dy
        across[2 * b + 1] = jacobian[2, b] * wx * wy


# ---- the private box of a task --------------------------------------------------------------------------------------


def box_size(tiling: Tiling, parts: int, lanes: int) -> int:
    """Return how many numbers the private box of any tile takes."""
    size = 1
    for a, support in enumerate(tiling.support):
        width, tiles = 1 << tiling.bits[a], tiling.tiles[a]
        starts = max(width if tiles > 1 else 0, tiling.extent[a] - (tiles - 1) * width)
        nodes = starts + support - 1
        size *= nodes if a < 2 else box_pitch(nodes, support, parts, lanes)
    return size


@compiled
def box_pitch(nodes, support, parts, lanes):
    """Return how many numbers lie between rows of ``nodes`` nodes: a vector may start at any stencil."""
    return ((nodes - support) * parts + lanes + _ALIGN - 1) // _ALIGN * _ALIGN


@compiled
def last_stencil(tiling, nodes, parts, pitch):
    """Return where in a box its last stencil begins.

    Places are limited to it: if another thread of the caller writes to positions while they are placed, particles may
    be in the wrong cell. Their sums are wrong then, but no other memory is written.
    """
    sx, sy, sz = tiling.support
    return ((nodes[0] - sx) * nodes[1] + nodes[1] - sy) * pitch + (nodes[2] - sz) * parts


@compiled
def box_of(tiling, tile):
    """Return the first node of a tile's stencils and how many nodes they cover, per axis."""
    nx, ny, nz = tiling.tiles
    x, y, z = tile // nz // ny, tile // nz % ny, tile % nz
    (bx, by, bz), (ex, ey, ez), (sx, sy, sz) = tiling.bits, tiling.extent, tiling.support
    low = (tiling.low[0] + (x << bx), tiling.low[1] + (y << by), tiling.low[2] + (z << bz))
    nodes = (
        (1 << bx if x < nx - 1 else ex - (x << bx)) + sx - 1,
        (1 << by if y < ny - 1 else ey - (y << by)) + sy - 1,
        (1 << bz if z < nz - 1 else ez - (z << bz)) + sz - 1,
    )
    return low, nodes


@compiled
def _reached(first, nodes, end, is_last):
    """Return how many of a tile's nodes some stencils reach that end at ``end``; the last cell also has the rest."""
    return nodes - first if is_last else min(nodes, end) - first


@compiled
def box_of_task(tiling, cells, packed, tile, first, last):
    """Return first node, nodes per axis, and packed place in the tile, of the box in which a task works.

    Its particles follow each other by cells, from the first's to the last's. So in a cluster its box is that of one
    cell or a few. It fits the first cache, and little is added to the field. Few particles get the tile's.
    """
    low, nodes = box_of(tiling, tile)
    if last - first < _FEW:
        return low, nodes, 0
    (bx, by, bz), (mx, my, mz), (sx, sy, sz) = cells.bits, cells.along, tiling.support
    a, b = item(packed, 4 * first + 3), item(packed, 4 * last + 3)
    x0, x1 = min(a >> 20 >> bx, mx - 1), min(b >> 20 >> bx, mx - 1)
    y0, y1 = min((a >> 10 & 1023) >> by, my - 1), min((b >> 10 & 1023) >> by, my - 1)
    z0, z1 = min((a & 1023) >> bz, mz - 1), min((b & 1023) >> bz, mz - 1)
    if x0 != x1:  # cells of an axis follow each other only within one cell of the axes before it
        y0, y1 = 0, my - 1
    if x0 != x1 or y0 != y1:
        z0, z1 = 0, mz - 1
    x, y, z = x0 << bx, y0 << by, z0 << bz
    nodes = (
        _reached(x, nodes[0], (x1 + 1 << bx) + sx - 1, x1 == mx - 1),
        _reached(y, nodes[1], (y1 + 1 << by) + sy - 1, y1 == my - 1),
        _reached(z, nodes[2], (z1 + 1 << bz) + sz - 1, z1 == mz - 1),
    )
    return (low[0] + x, low[1] + y, low[2] + z), nodes, x << 20 | y << 10 | z


# ---- turns ----------------------------------------------------------------------------------------------------------


@compiled
def await_count(counts, place, target):
    """Wait until a count that other threads raise is ``target``."""
    turns = 0
    while acquire(counts, place) < target:
        turns += 1
        if turns > 100:
            give_way()


@compiled
def await_turn(tiling, ready, limit, done, tile, chunk):
    """Wait until every task that overlaps this one and is listed before it has been added.

    Tiles with ``limit`` tasks and more take no turns.

    Those tasks were claimed before this one, by threads that are running, and wait only for still
    earlier ones: some thread can always go on. The order is that of `list_tasks`: group, chunk, tile.
    """
    nx, ny, nz = tiling.tiles
    tz = tile % nz
    ty = tile // nz % ny
    tx = tile // nz // ny
    together = slabs_together(tiling)
    mine = group_of(tx, ty, tz, together)
    for n in range(27):
        x, y, z = tx + n // 9 % 3 - 1, ty + n // 3 % 3 - 1, tz + n % 3 - 1
        if tiling.wraps[0]:
            x = (x + nx) % nx
        if tiling.wraps[1]:
            y = (y + ny) % ny
        if tiling.wraps[2]:
            z = (z + nz) % nz
        if x < 0 or x >= nx or y < 0 or y >= ny or z < 0 or z >= nz:
            continue
        other = (x * ny + y) * nz + z
        target = ready[other, 1]
        group = group_of(x, y, z, together)
        if group > mine or target >= limit:
            continue
        if group == mine:  # itself, or across the seam of an odd number of tiles
            target = min(target, chunk + 1 if other < tile else chunk)
        await_count(done, other, target)


# ---- boxes of nodes between a field and private memory, by true modulo or clipped -----------------------------------


_WIDTH = WIDTHS[8]


@compiled
def add_rows(tiling, parts, box, low, rows, pitch, planes, lines, clears, field):
    """Add rows of the private ``box``, of a range of planes and of lines, to the field. See `add_box`."""
    size = tiling.size[2]
    zero = splat(box.dtype.type(0), _WIDTH)
    for i in range(planes[0], planes[1]):
        x = place_of(low[0] + i, tiling.size[0], tiling.wraps[0])
        for j in range(lines[0], lines[1]):
            y = place_of(low[1] + j, tiling.size[1], tiling.wraps[1])
            source = (i * rows[1] + j) * pitch
            if x >= 0 and y >= 0:
                target = (x * tiling.size[1] + y) * size * parts
                k = 0 if tiling.wraps[2] else max(0, -low[2])
                last = rows[2] if tiling.wraps[2] else min(rows[2], size - low[2])
                while k < last:
                    z = (low[2] + k) % size
                    length = min(last - k, size - z) * parts
                    a, b = target + z * parts, source + k * parts
                    whole = length - length % 8
                    for n in range(0, whole, 8):
                        store(field, a + n, add(load(field, a + n, _WIDTH), load(box, b + n, _WIDTH)))
                    for n in range(whole, length):
                        field[a + n] += box[b + n]
                    k += size - z
            if clears:
                for n in range(0, pitch, 8):  # the pitch is a multiple of 8
                    store(box, source + n, zero)


@compiled
def add_box(tiling, parts, box, low, rows, pitch, field):
    """Add the private ``box`` to the field and clear it.

    ``low`` is the box's first node and ``rows`` its number of nodes, per axis. Two of its rows along the
    last axis begin ``pitch`` numbers apart.
    """
    add_rows(tiling, parts, box, low, rows, pitch, (0, rows[0]), (0, rows[1]), True, field)


@compiled
def copy_box(tiling, parts, field, low, rows, pitch, box):
    """Copy part of the field into the private ``box``, as `add_box` adds it; zero where there is no node."""
    size = tiling.size[2]
    zero = splat(box.dtype.type(0), _WIDTH)
    for i in range(rows[0]):
        x = place_of(low[0] + i, tiling.size[0], tiling.wraps[0])
        for j in range(rows[1]):
            y = place_of(low[1] + j, tiling.size[1], tiling.wraps[1])
            target = (i * rows[1] + j) * pitch
            if x < 0 or y < 0 or not tiling.wraps[2]:
                for n in range(0, pitch, 8):
                    store(box, target + n, zero)
            if x >= 0 and y >= 0:
                source = (x * tiling.size[1] + y) * size * parts
                k = 0 if tiling.wraps[2] else max(0, -low[2])
                last = rows[2] if tiling.wraps[2] else min(rows[2], size - low[2])
                while k < last:
                    z = (low[2] + k) % size
                    length = min(last - k, size - z) * parts
                    a, b = source + z * parts, target + k * parts
                    whole = length - length % 8
                    for n in range(0, whole, 8):
                        store(box, b + n, load(field, a + n, _WIDTH))
                    for n in range(whole, length):
                        box[b + n] = field[a + n]
                    k += size - z
