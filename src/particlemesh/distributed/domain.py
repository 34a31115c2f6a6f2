# SPDX-License-Identifier: BSD-3-Clause
"""A mesh cut into parts, and which part has what another needs. Nothing here communicates."""

from __future__ import annotations

import functools
import math
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from particlemesh import checks
from particlemesh.distributed.transports import module_of
from particlemesh.mesh import Mesh, mesh_of

Nodes: TypeAlias = tuple[int, ...]
PARTS = "blocks", "pencils", "slabs", "bisection"
Reach: TypeAlias = Sequence[tuple[int, int]]  # ghost nodes below and above, per axis
EQUAL = 1.01  # weights of the heavier side, of two cuts that are equally good
ROUNDS, EVEN = 4, 1.25  # of cutting by particles, at most; the heaviest part over the mean that ends them
ONE = 16  # what a particle counts at first, of whole numbers: sums do not depend on the ranks


class Cut(NamedTuple):
    """A plane between two nodes: which axis, the first node above it, and how many parts lie below it."""

    axis: int
    node: int
    below: int


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


Chooser: TypeAlias = Callable[[Nodes, Nodes, int], Cut]


class Part(NamedTuple):
    """A box of nodes: the first of each axis, and one past the last. Nodes are those of the whole mesh, from 0.

    Examples
    --------
    >>> part = Part((2, 0), (4, 6))
    >>> part.shape, part.size
    ((2, 6), 12)
    """

    lower: tuple[int, ...]
    upper: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Nodes per axis; all zero where the part has none."""
        sizes = tuple(b - a for a, b in zip(self.lower, self.upper, strict=True))
        return sizes if all(sizes) else (0,) * len(sizes)

    @property
    def size(self) -> int:
        """Number of nodes."""
        return math.prod(self.shape)


class Piece(NamedTuple):
    """Nodes that one part owns and that a window holds: all of these, without gaps."""

    owner: int  # part
    holder: int  # window: that of a part, or of a rank where each rank holds the whole mesh
    lower: tuple[int, ...]  # the first node, within [0, K)
    shape: tuple[int, ...]
    at: tuple[int, ...]  # the place of the first node in the window's array

    def in_part(self, part: Part) -> tuple[slice, ...]:
        """Return these nodes in the array of their owner."""
        return tuple(slice(a - b, a - b + n) for a, b, n in zip(self.lower, part.lower, self.shape, strict=True))

    def in_window(self) -> tuple[slice, ...]:
        """Return these nodes in the array of the window."""
        return tuple(slice(a, a + n) for a, n in zip(self.at, self.shape, strict=True))


class Messages(NamedTuple):
    """What a rank exchanges, by the other rank, in the same order on both sides; the rank itself is among them."""

    held: dict[int, list[Piece]]  # this rank's windows hold nodes that the other owns
    owned: dict[int, list[Piece]]  # this rank owns nodes that the other's windows hold


@dataclass(frozen=True, init=False, repr=False, eq=False)
class Domain:
    """A mesh cut into parts for a number of ranks: boxes of nodes, each with one owner.

    A value object, and pure: it asks no other rank, so that each rank makes the same one from the same arguments.
    Part p belongs to rank ``p // per_rank``. Where there are more parts than nodes some parts are empty.

    Parameters
    ----------
    mesh : Mesh
        The whole mesh, without ghosts.
    size : int
        Number of ranks.
    parts : {"blocks", "pencils", "slabs", "bisection"} or tuple of ints
        Blocks have the fewest ghosts, pencils leave the last axis whole, slabs cut the first axis only. Bisection
        halves the nodes again and again; `balanced` does so by measured weights. A tuple gives the ranks along each
        axis.
    per_rank : int
        Parts for each rank.

    Attributes
    ----------
    mesh : Mesh
    size : int
    per_rank : int

    Raises
    ------
    ValueError
        If the mesh has ghosts, a tuple's product is not ``size``, or pencils are asked of one axis.
    TypeError
        If an argument is of another type.

    References
    ----------
    Several parts for each process are those of [buyukkececi2013]_.

    Examples
    --------
    >>> import particlemesh as pm
    >>> domain = Domain(pm.Mesh((8, 6), (1.0, 1.0)), 4)
    >>> domain.parts(1)
    (Part(lower=(2, 0), upper=(4, 6)),)
    >>> domain.owner([[0, 0], [7, 5]])
    array([0, 3])
    """

    mesh: Mesh
    size: int
    per_rank: int

    def __init__(self, mesh: Mesh, size: int, parts: Any = "blocks", per_rank: int = 1) -> None:
        if any(map(any, mesh_of(mesh).ghosts)):
            raise ValueError(f"the mesh has ghosts {mesh.ghosts}: give one without; parts have ghosts.")
        size = checks.integer(size, "size", 1, 2**31 - 1)
        per_rank = checks.integer(per_rank, "per_rank", 1, 2**16)
        if isinstance(parts, str):
            checks.one_of(parts, "parts", PARTS)
            if parts == "pencils" and mesh.ndim == 1:
                raise ValueError("parts is 'pencils' and pencils leave the only axis whole: give 'slabs'.")
        if parts == "bisection":
            choose = bisection(mesh.shape, np.ones((1,) * mesh.ndim))
        else:
            grid = grid_of(mesh.shape, size, parts) if isinstance(parts, str) else _grid(parts, mesh, size)
            choose = regular(mesh.shape, grid, per_rank)
        self._set(mesh, size, per_rank, choose)

    def _set(self, mesh: Mesh, size: int, per_rank: int, choose: Chooser) -> None:
        tree, boxes = grow((0,) * mesh.ndim, mesh.shape, size * per_rank, choose)
        values = dict(mesh=mesh, size=size, per_rank=per_rank, _tree=tree, _parts=tuple(Part(*box) for box in boxes))
        for name, value in values.items():
            object.__setattr__(self, name, value)

    _tree: Tree
    _parts: tuple[Part, ...]

    def _key(self) -> tuple[Any, ...]:
        return self.mesh, self.size, self.per_rank, self._parts

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Domain) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        several = f", {self.per_rank} parts each" if self.per_rank > 1 else ""
        sizes = sorted({"x".join(map(str, part.shape)) for part in self._parts})
        shown = " ".join(sizes[:4]) + (" ..." if len(sizes) > 4 else "")
        nodes = " x ".join(map(str, self.mesh.shape))
        return f"<Domain: {nodes} nodes on {self.size} rank{'s' * (self.size > 1)}{several}: {shown}>"

    # ---- parts ----------------------------------------------------------------------------------------

    def parts(self, rank: int | None = None) -> tuple[Part, ...]:
        """Return all parts, or those of a rank."""
        if rank is None:
            return self._parts
        rank = checks.integer(rank, "rank", 0, self.size - 1)
        return self._parts[rank * self.per_rank : (rank + 1) * self.per_rank]

    def part_of(self, cells: Any) -> Any:
        """Return the index of the part that owns each cell; see :meth:`owner`."""
        columns = cells if isinstance(cells, tuple) else _columns(cells, self.mesh.ndim)
        xp = module_of(columns[0])
        if xp is not np and self._tree.axis.size and all(column.dtype == np.int32 for column in columns):
            return descent(self.mesh.ndim)(*columns, *self.on_device())
        whole = []
        for axis, column in enumerate(columns):
            nodes = self.mesh.shape[axis]
            cell = column if column.dtype.itemsize > 2 else column.astype(np.int64)  # that holds every node
            whole.append(cell % nodes if self.mesh.periodic[axis] else xp.clip(cell, 0, nodes - 1))
        return self._tree.parts_of(whole, xp)

    @property
    def tree(self) -> Tree:
        """The planes of the cuts."""
        return self._tree

    def on_device(self) -> tuple[Any, Any, Any, int]:
        """Return what the kernel `descent` needs: nodes and wraps per axis, planes, depth."""
        tree = self._tree
        return (
            self._sent("nodes", lambda: self.mesh.shape, np.int32),
            self._sent("wraps", lambda: self.mesh.periodic, np.int32),
            self._sent("planes", lambda: np.stack([tree.axis, tree.node, tree.below, tree.above], 1), np.int32),
            tree.depth,
        )

    def _sent(self, name: Any, numbers: Any, dtype: type) -> Any:
        """Return numbers on the device; streams may differ, so that the first call waits."""
        import cupy as xp

        key = xp.cuda.runtime.getDevice(), name
        if key not in self._copies:
            self._copies[key] = xp.asarray(np.asarray(numbers(), dtype))
            xp.cuda.get_current_stream().synchronize()
        return self._copies[key]

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_copies"}

    @cached_property
    def _copies(self) -> dict[Any, Any]:
        """Arrays on each device."""
        return {}

    def owner(self, cells: Any) -> Any:
        """Return the rank that owns each cell.

        Parameters
        ----------
        cells : (N, d) ints, or tuple of d arrays (N,)
            A particle's cell is a node of its stencil: see :class:`particlemesh.distributed.Plan`. Periodic axes fold
            cells, and open ones take the first or last node for cells beyond the mesh.

        Returns
        -------
        (N,) int64 array
        """
        owner: Any = self.part_of(cells) // self.per_rank
        return owner.astype(np.int64, copy=False)

    def balanced(self, counts: ArrayLike, *, particle: float = 1.0, node: float = 0.0) -> Domain:
        """Return the domain cut by recursive bisection of measured weights.

        Parameters
        ----------
        counts : (n1, ..., nd) array
            Particles in boxes of nodes: of n boxes along an axis of K nodes, box i covers nodes ``i K // n`` to
            ``(i + 1) K // n``. They are those of all ranks: give every rank the same array. For positions see
            :meth:`particlemesh.distributed.Plan.balanced`, which counts on each plane of nodes.
        particle, node : float
            Weight of a particle and of a node, in any unit, for example seconds.

        Raises
        ------
        ValueError
            If the counts have another number of axes or more boxes than nodes, or a number is negative.

        Examples
        --------
        >>> import particlemesh as pm
        >>> domain = Domain(pm.Mesh(8, 1.0), 2).balanced([6, 1, 1, 0])
        >>> [part.shape for part in domain.parts()]
        [(1,), (7,)]
        """
        array = np.asarray(counts, np.float64)
        shape = self.mesh.shape
        if array.ndim != len(shape) or not all(1 <= n <= nodes for n, nodes in zip(array.shape, shape, strict=True)):
            raise ValueError(f"counts has shape {array.shape}; give 1 to K boxes along each axis of {shape} nodes.")
        if not (np.isfinite(array).all() and (array >= 0).all()):
            raise ValueError("counts has numbers that are negative or not finite; give particles in each box.")
        nodes = np.ones(())
        for n, size in zip(array.shape, shape, strict=True):
            nodes = np.multiply.outer(nodes, np.diff(np.arange(n + 1) * size // n))
        weights = checks.at_least_zero(particle, "particle") * array + checks.at_least_zero(node, "node") * nodes
        return self._cut(bisection(shape, weights if weights.any() else nodes))

    def _cut(self, choose: Chooser) -> Domain:
        domain = object.__new__(Domain)
        domain._set(self.mesh, self.size, self.per_rank, choose)
        return domain

    def shifted(self, offsets: Any) -> Domain:
        """Return the same cuts of the mesh with shifted nodes: see :meth:`particlemesh.Mesh.shifted`.

        Examples
        --------
        >>> import particlemesh as pm
        >>> Domain(pm.Mesh(8, 1.0), 2).shifted(0.5).mesh.offset
        (0.5,)
        """
        return self.on(self.mesh.shifted(offsets))

    def on(self, mesh: Mesh) -> Domain:
        """Return the same cuts of another mesh of as many nodes.

        Examples
        --------
        >>> import particlemesh as pm
        >>> Domain(pm.Mesh(8, 1.0), 2).on(pm.Mesh(8, 2.0)).mesh.box.lengths
        array([2.])
        """
        if mesh.shape != self.mesh.shape or mesh.periodic != self.mesh.periodic:
            raise ValueError(
                f"the mesh has shape {mesh.shape}; the cuts are of {self.mesh.shape} nodes: give a like mesh."
            )
        domain = object.__new__(Domain)
        for name in ("size", "per_rank", "_tree", "_parts"):
            object.__setattr__(domain, name, getattr(self, name))
        object.__setattr__(domain, "mesh", mesh)
        return domain

    # ---- ghosts ---------------------------------------------------------------------------------------

    @cached_property
    def _bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """First nodes and ends of all parts, (parts, d)."""
        lower = np.array([part.lower for part in self._parts], np.int64)
        return lower, lower + np.array([part.shape for part in self._parts], np.int64)

    def windows(self, reach: Reach | None) -> tuple[np.ndarray, np.ndarray]:
        """Return the first node and the shape of each part with its ghosts, int64 (parts, d) each.

        If a part has an axis for itself, its window has all nodes of the axis once and begins at 0. The same holds for
        a periodic axis on which ghosts would meet. Else its first node may be negative. Beyond the ends of an open
        axis, where no part has nodes, windows have one ghost more. Particles may lie there, half a cell before the
        first node. An empty part has an empty window.

        Parameters
        ----------
        reach : d pairs of ints, or None
            Ghost nodes below and above, of any number. With None there is one window for each rank: the whole mesh.
        """
        nodes = np.array(self.mesh.shape, np.int64)
        if reach is None:
            return np.zeros((self.size, nodes.size), np.int64), np.tile(nodes, (self.size, 1))
        lower, upper = self._bounds
        some = (upper > lower).all(1, keepdims=True)
        below, above = np.array(reach, np.int64).T
        periodic = np.array(self.mesh.periodic)
        start = lower - below - (~periodic & (lower == 0))
        stop = upper + above + (~periodic & (upper == nodes))
        whole = np.where(periodic, stop - start >= nodes, upper - lower >= nodes)
        start, stop = np.where(whole, 0, start), np.where(whole, nodes, stop)
        return np.where(some, start, lower), np.where(some, stop - start, 0)

    def messages(self, rank: int, reach: Reach | None) -> Messages:
        """Return what a rank exchanges with the owners of its ghosts and the holders of its nodes.

        Parameters
        ----------
        rank : int
        reach : d pairs of ints, or None
            As for :meth:`windows`.

        Returns
        -------
        Messages
            Pieces by rank. ``messages(r).held[s]`` equals ``messages(s).owned[r]``.

        Examples
        --------
        >>> import particlemesh as pm
        >>> domain = Domain(pm.Mesh(8, 1.0), 2)
        >>> [(p.lower, p.shape, p.at) for p in domain.messages(0, [(1, 2)]).held[1]]
        [((4,), (2,), (5,)), ((7,), (1,), (0,))]
        """
        start, shape = self.windows(reach)
        lower, upper = self._bounds
        windows = 1 if reach is None else self.per_rank
        held, owned = [], []
        for holder in range(rank * windows, (rank + 1) * windows):
            held += self._pieces(lower, upper, start[holder], shape[holder], lambda n, h=holder: (n, h))
        for part in range(rank * self.per_rank, (rank + 1) * self.per_rank):
            owned += self._pieces(lower[part], upper[part], start, shape, lambda n, p=part: (p, n))
        return Messages(_by(held, lambda p: p.owner // self.per_rank), _by(owned, lambda p: p.holder // windows))

    def neighbours(self, part: int, reach: Reach) -> list[int]:
        """Return the parts that own nodes of a part's window, itself among them, in ascending order."""
        start, shape = self.windows(reach)
        pieces = self._pieces(*self._bounds, start[part], shape[part], lambda n: (n, part))
        return sorted({piece.owner for piece in pieces})

    def _pieces(self, lower: Any, upper: Any, start: Any, shape: Any, who: Any) -> list[Piece]:
        """Return the pieces of one window and all parts, or of one part and all windows."""
        nodes, pieces = np.array(self.mesh.shape, np.int64), []
        images = [(-1, 0, 1) if periodic else (0,) for periodic in self.mesh.periodic]
        for image in np.stack(np.meshgrid(*images, indexing="ij"), -1).reshape(-1, nodes.size):
            first = np.maximum(lower + image * nodes, start)
            last = np.minimum(upper + image * nodes, start + shape)
            for n in np.flatnonzero((first < last).all(-1)):
                begin = start if start.ndim == 1 else start[n]
                in_part = first[n] - image * nodes
                numbers = in_part, last[n] - first[n], first[n] - begin
                pieces.append(Piece(*who(int(n)), *(tuple(x.tolist()) for x in numbers)))
        return pieces


def _by(pieces: list[Piece], rank: Any) -> dict[int, list[Piece]]:
    """Return pieces by rank, in an order that both sides know."""
    result: dict[int, list[Piece]] = {}
    for piece in sorted(pieces):
        result.setdefault(rank(piece), []).append(piece)
    return dict(sorted(result.items()))


def _grid(parts: Any, mesh: Mesh, size: int) -> tuple[int, ...]:
    try:
        grid = tuple(checks.integer(n, "parts", 1, size) for n in parts)
    except TypeError:
        raise TypeError(f"parts is {parts!r}; give one of {', '.join(PARTS)}, or the ranks along each axis.") from None
    if len(grid) != mesh.ndim or math.prod(grid) != size:
        raise ValueError(f"parts is {grid}; {mesh.ndim} numbers whose product is {size}, the ranks, are needed.")
    return grid


def _columns(cells: Any, ndim: int) -> tuple[Any, ...]:
    table = cells if hasattr(cells, "dtype") else np.asarray(cells, np.int64)
    if table.ndim != 2 or table.shape[1] != ndim or table.dtype.kind not in "iu":
        raise ValueError(f"cells has shape {table.shape} and dtype {table.dtype}; integers (N, {ndim}) are needed.")
    return tuple(table[:, axis] for axis in range(ndim))


def check_ranks(domain: Any, world: Any) -> None:
    """Raise a ValueError if a domain was made for another number of ranks."""
    if domain.size != world.size:
        raise ValueError(f"the domain is cut for {domain.size} ranks and the world has {world.size}: use world.size.")


def hash_of(domain: Any) -> int:
    """Return a number that is the same for equal meshes and cuts in every process."""
    return zlib.crc32(f"{domain.mesh!r} {domain.parts()!r}".encode()) if isinstance(domain, Domain) else 0


# ---- cuts: a binary tree of planes, whose leaves are the parts -------------------------------------------------


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

    return lambda lower, upper, parts: _halve(lower, upper, parts, lambda axis: profile(axis, lower, upper))


def cut_by_particles(
    domain: Domain, cells: Sequence[Any], total: Callable[[Any], np.ndarray], particle: float, node: float
) -> Domain:
    """Return a domain cut by halving the weight of particles and nodes, from the particles on every plane of nodes.

    Planes through a dense cluster do not halve it well. Where a part has too much, its particles then count more, those
    of light parts less, and the domain is cut again; the most even of these cuts is returned.

    Parameters
    ----------
    domain
        Its mesh and its number of parts stay.
    cells
        An integer array (N,) per axis: those of this rank, of any image.
    total
        Adds an array over all ranks. It is called once for all boxes of one depth, and once for each round.
    particle, node
        Weights of a particle and of a node.
    """
    mesh, xp = domain.mesh, module_of(cells[0])
    folded = zip(cells, mesh.shape, mesh.periodic, strict=True)
    cells = [cell % nodes if periodic else cell.clip(0, nodes - 1) for cell, nodes, periodic in folded]
    best, least, factors = domain, np.inf, None
    for _ in range(ROUNDS):
        made = _cut_once(domain, cells, factors, total, particle, node)
        part = made.part_of(tuple(cells))
        held = particle * total(xp.bincount(part, minlength=len(made.parts())))
        held = held + node * np.array([one.size for one in made.parts()])
        if held.max() < least:
            best, least = made, float(held.max())
        if least <= EVEN * held.mean() or made.parts()[int(held.argmax())].size == 1:  # no cut divides a node
            break
        change = np.sqrt(np.clip(held / held.mean(), 1 / 4, 4))
        factors = xp.rint((ONE if factors is None else factors) * xp.asarray(change)[part]).clip(1, ONE**2)
    return best


def _cut_once(
    domain: Domain, cells: Sequence[Any], factors: Any, total: Callable[[Any], np.ndarray], particle: float, node: float
) -> Domain:
    """Return cuts for particles that count ``factors`` / `ONE` each; see `cut_by_particles`."""
    mesh, parts = domain.mesh, domain.size * domain.per_rank
    xp, axes = module_of(cells[0]), range(mesh.ndim)
    if factors is not None:
        particle = particle / ONE
    cuts: dict[tuple[Nodes, Nodes, int], Cut] = {}
    boxes, at = [((0,) * mesh.ndim, mesh.shape, parts)] * (parts > 1), xp.zeros(cells[0].shape[0], np.int64)
    while boxes:
        lower, upper = (np.array([box[n] for box in boxes], np.int64) for n in (0, 1))
        sizes, ends = upper - lower, np.cumsum(upper - lower, 0)
        first = xp.asarray(ends - upper)  # of each box, the place of node 0 among the planes of all
        planes = [xp.bincount(first[at, a] + cells[a], factors, int(ends[-1, a])) for a in axes]
        counts = np.split(total(xp.concatenate(planes)), np.cumsum(ends[-1])[:-1])

        def below(axis: int, n: int, sizes: Any = sizes, ends: Any = ends, counts: Any = counts) -> np.ndarray:
            across = node * (math.prod(sizes[n].tolist()) // max(int(sizes[n, axis]), 1))
            weights = particle * counts[axis][ends[n, axis] - sizes[n, axis] : ends[n, axis]] + across
            return np.concatenate(([0.0], np.cumsum(weights)))

        made = [_halve(*box, functools.partial(below, n=n)) for n, box in enumerate(boxes)]
        cuts |= dict(zip(boxes, made, strict=True))
        children = []
        for (low, high, count), cut in zip(boxes, made, strict=True):
            children.append((low, _with(high, cut.axis, cut.node), cut.below))
            children.append((_with(low, cut.axis, cut.node), high, count - cut.below))
        axis, plane = xp.asarray([cut.axis for cut in made])[at], xp.asarray([cut.node for cut in made])[at]
        cell = cells[0]
        for a in axes[1:]:
            cell = xp.where(axis == a, cells[a], cell)
        cut_again = np.array([count > 1 for *_, count in children])
        at = xp.asarray(np.where(cut_again, np.cumsum(cut_again) - 1, -1))[2 * at + (cell >= plane)]
        if not cut_again.all():
            inside = at >= 0
            at, cells = at[inside], [cell[inside] for cell in cells]
            factors = None if factors is None else factors[inside]
        boxes = [box for box in children if box[2] > 1]
    return domain._cut(lambda *box: cuts[box])


def _halve(lower: Nodes, upper: Nodes, parts: int, below: Callable[[int], np.ndarray]) -> Cut:
    """Return the plane on whose sides the weight per part is most nearly the same, and how many parts lie below it.

    ``below(axis)`` is the weight below each node, from lower to upper. A side has a quarter of the parts or more, since
    no plane halves a dense cluster well. Of planes that are equally good, the longest axis is cut, which makes the
    fewest ghosts, and then most nearly half of the parts.
    """
    sizes, best = _sizes(lower, upper), []
    least, most = -(-parts // 4), parts - -(-parts // 4)
    for axis, size in enumerate(sizes):
        if 2 * size < max(sizes):  # thin parts have many ghosts
            continue
        across, nodes = max(math.prod(sizes) // max(size, 1), 1), np.arange(size + 1)
        sums = below(axis)
        weight = sums - sums[0] if sums[-1] > sums[0] else across * nodes.astype(float)
        ideal = parts * weight / max(weight[-1], 1e-300)
        left = np.clip(np.stack([np.floor(ideal), np.ceil(ideal)]).astype(np.int64), least, most)
        heavy = np.maximum(weight / left, (weight[-1] - weight) / (parts - left))
        heavy[(left > nodes * across) | (parts - left > (size - nodes) * across)] = np.inf  # parts without nodes
        near = np.nonzero(heavy <= EQUAL * heavy.min())
        count, cost = left[near], heavy[near]
        n = np.lexsort((cost, abs(2 * count - parts)))[0]
        best.append((float(cost[n]), -size, abs(2 * int(count[n]) - parts), axis, int(near[1][n]), int(count[n])))
    as_good = EQUAL * min(best)[0]
    if as_good == np.inf:  # fewer nodes than parts
        axis = int(np.argmax(sizes))
        across = max(math.prod(sizes) // max(sizes[axis], 1), 1)
        return Cut(axis, lower[axis] + min(-(-(parts // 2) // across), sizes[axis]), parts // 2)
    *_, axis, node, left_parts = min((cut for cut in best if cut[0] <= as_good), key=lambda cut: (cut[1:3], cut[0]))
    return Cut(axis, lower[axis] + node, left_parts)
