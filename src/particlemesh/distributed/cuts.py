# SPDX-License-Identifier: BSD-3-Clause
"""Cuts of a mesh: a binary tree of planes, whose leaves are the parts."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

Nodes: TypeAlias = tuple[int, ...]


class Cut(NamedTuple):
    """A plane between two nodes: which axis, the first node above it, and how many parts lie below it."""

    axis: int
    node: int
    below: int


Chooser: TypeAlias = Callable[[Nodes, Nodes, int], Cut]


class Tree(NamedTuple):
    """Planes as arrays (n,). A child is the index of a plane, or ``-1 - part``. Without planes there is one part."""

    axis: np.ndarray
    node: np.ndarray
    below: np.ndarray
    above: np.ndarray
    depth: int

    def parts_of(self, cells: Sequence[Any], xp: Any = np) -> Any:
        """Return the part of each cell, int64 (N,); ``cells`` has one integer array (N,) per axis."""
        count = cells[0].shape[0]
        if not self.axis.size:
            return xp.zeros(count, xp.int64)
        axis, node, below, above = (xp.asarray(x) for x in (self.axis, self.node, self.below, self.above))
        at = xp.zeros(count, xp.int64)
        for _ in range(self.depth):
            plane = xp.maximum(at, 0)
            along, cell = axis[plane], cells[0]
            for a in range(1, len(cells)):
                cell = xp.where(along == a, cells[a], cell)
            at = xp.where(at < 0, at, xp.where(cell < node[plane], below[plane], above[plane]))
        return -1 - at


# In CUDA: from ``cells`` of any image to the part, with the arrays of :meth:`Domain.on_device`.
_DESCEND = """
for (int a = 0; a < {ndim}; a++) {{
    const int n = nodes[a], c = cells[a];
    cells[a] = wraps[a] ? (c % n + n) % n : min(max(c, 0), n - 1);
}}
int at = 0;
for (int level = 0; level < depth && at >= 0; level++)
    at = planes[4 * at + (cells[planes[4 * at]] < planes[4 * at + 1] ? 2 : 3)];
const int owner = -1 - at;
"""
_GEOMETRY = "raw int32 nodes, raw int32 wraps, raw int32 planes, int32 depth"


@functools.cache
def descent(ndim: int) -> Any:
    """Return CuPy's kernel for :meth:`Tree.parts_of` in one pass, which also folds or clips cells."""
    import cupy

    axes = range(ndim)
    return cupy.ElementwiseKernel(
        "".join(f"int32 cell{a}, " for a in axes) + _GEOMETRY,
        "int32 part",
        f"int cells[] = {{{', '.join(f'cell{a}' for a in axes)}}};{_DESCEND.format(ndim=ndim)}part = owner;",
        f"parts_of_{ndim}_axes",
    )


def grow(lower: Nodes, upper: Nodes, parts: int, choose: Chooser) -> tuple[Tree, list[tuple[Nodes, Nodes]]]:
    """Cut a box of nodes into parts; return the tree and the first and last-plus-one node of each part."""
    planes: list[list[int]] = []
    boxes: list[tuple[Nodes, Nodes]] = []

    def divide(lower: Nodes, upper: Nodes, parts: int, depth: int) -> tuple[int, int]:
        if parts == 1:
            boxes.append((lower, upper))
            return -len(boxes), depth
        cut = choose(lower, upper, parts)
        here = len(planes)
        planes.append([cut.axis, cut.node, 0, 0])
        planes[here][2], left = divide(lower, _with(upper, cut.axis, cut.node), cut.below, depth + 1)
        planes[here][3], right = divide(_with(lower, cut.axis, cut.node), upper, parts - cut.below, depth + 1)
        return here, max(left, right)

    _, depth = divide(lower, upper, parts, 0)
    axis, node, below, above = np.array(planes, np.int64).reshape(-1, 4).T.copy()
    return Tree(axis, node, below, above, depth), boxes


def _with(nodes: Nodes, axis: int, value: int) -> Nodes:
    return (*nodes[:axis], value, *nodes[axis + 1 :])


def regular(shape: Nodes, grid: Nodes, per_rank: int) -> Chooser:
    """Return a chooser for ``grid`` equal parts along each axis, each then in blocks of ``per_rank``."""

    def choose(lower: Nodes, upper: Nodes, parts: int) -> Cut:
        if parts <= per_rank:  # inside of a rank
            return _even(lower, upper, grid_of(_sizes(lower, upper), parts, "blocks"))
        # Boxes are cut along the first axes first, so that what lies behind an axis is whole.
        slabs = [parts // per_rank // math.prod(grid[axis + 1 :]) for axis in range(len(grid))]
        axis = next(a for a, count in enumerate(slabs) if count > 1)
        planes = np.arange(grid[axis] + 1) * shape[axis] // grid[axis]
        below = slabs[axis] // 2
        first = int(np.searchsorted(planes, upper[axis], "right")) - 1 - slabs[axis]
        return Cut(axis, int(planes[first + below]), parts // slabs[axis] * below)

    return choose


def _even(lower: Nodes, upper: Nodes, grid: Nodes) -> Cut:
    axis = next(a for a, count in enumerate(grid) if count > 1)
    count, parts = grid[axis], math.prod(grid)
    below = count // 2
    return Cut(axis, lower[axis] + (upper[axis] - lower[axis]) * below // count, parts // count * below)


def _sizes(lower: Nodes, upper: Nodes) -> Nodes:
    return tuple(b - a for a, b in zip(lower, upper, strict=True))


def factors(parts: int, axes: int) -> Iterator[Nodes]:
    """Yield all ways to write a number as a product of ``axes`` numbers."""
    if axes == 1:
        yield (parts,)
        return
    for first in range(1, parts + 1):
        if parts % first == 0:
            for others in factors(parts // first, axes - 1):
                yield (first, *others)


def grid_of(shape: Nodes, parts: int, kind: str) -> Nodes:
    """Return the parts along each axis of slabs, pencils or blocks: few without nodes, then few ghosts."""
    cut = {"slabs": 1, "pencils": len(shape) - 1, "blocks": len(shape)}[kind]
    sizes = [max(n, 1) for n in shape]

    def price(grid: Nodes) -> tuple[Any, ...]:
        idle = sum(max(count - size, 0) for count, size in zip(grid, sizes, strict=True))
        planes = sum(count * math.prod(sizes) // size for count, size in zip(grid, sizes, strict=True) if count > 1)
        # Cuts along the first axes leave the longest runs in memory.
        return idle, planes, tuple(-count for count in grid)

    return min(((*grid, *(1,) * (len(shape) - cut)) for grid in factors(parts, cut)), key=price)


def bisection(shape: Nodes, weights: np.ndarray) -> Chooser:
    """Return a chooser that halves weights, given for boxes of nodes: box i of n covers the nodes i K // n and on."""
    edges = [np.arange(n + 1) * size // n for n, size in zip(weights.shape, shape, strict=True)]

    def profile(axis: int, lower: Nodes, upper: Nodes) -> np.ndarray:
        """Return the weight of a box below each node of an axis, from lower to upper."""
        sums = weights
        for b in reversed(range(len(shape))):
            if b != axis:
                inside = np.minimum(edges[b][1:], upper[b]) - np.maximum(edges[b][:-1], lower[b])
                share = np.maximum(inside, 0) / np.diff(edges[b])
                sums = (np.moveaxis(sums, b, -1) * share).sum(-1)
        below = np.concatenate(([0.0], np.cumsum(sums)))
        return np.interp(np.arange(lower[axis], upper[axis] + 1), edges[axis], below)

    def choose(lower: Nodes, upper: Nodes, parts: int) -> Cut:
        sizes, best = _sizes(lower, upper), []
        below = parts // 2
        for axis, size in enumerate(sizes):
            if 2 * size < max(sizes):  # thin parts have many ghosts
                continue
            across = max(math.prod(sizes) // max(size, 1), 1)
            least, most = min(-(-below // across), size), max(size - -(-(parts - below) // across), 0)
            sums = profile(axis, lower, upper)
            for node in {min(max(n, least), most) for n in _near(sums, below / parts)} if least <= most else {least}:
                heavy = max((sums[node] - sums[0]) / below, (sums[-1] - sums[node]) / (parts - below))
                best.append((heavy, -size, axis, node))
        _, _, axis, node = min(best)
        return Cut(axis, lower[axis] + node, below)

    return choose


def _near(sums: np.ndarray, share: float) -> list[int]:
    """Return the nodes below which nearly a share of the weight lies; without weight, of the nodes."""
    if sums[-1] <= sums[0]:
        return [round((sums.size - 1) * share)]
    target = sums[0] + (sums[-1] - sums[0]) * share
    after = min(int(np.searchsorted(sums, target)), sums.size - 1)
    return list(itertools.takewhile(lambda n: n >= 0, (after, after - 1)))
