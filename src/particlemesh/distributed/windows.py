# SPDX-License-Identifier: BSD-3-Clause
"""The meshes of local plans and what they exchange: parts with ghost nodes, or parts of ghost particles."""

from __future__ import annotations

import itertools
import math
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from particlemesh.distributed.domain import Domain, Messages, Part, Piece, Reach
from particlemesh.distributed.packing import Boxed, Packing, sections
from particlemesh.distributed.transports import module_of
from particlemesh.distributed.world import World
from particlemesh.mesh import Mesh


def reach_of(support: int, ndim: int) -> list[tuple[int, int]]:
    """Return how many nodes a stencil has below and above its particle's cell, per axis."""
    return [((support - 1) // 2, support // 2)] * ndim


def mesh_of(mesh: Mesh, part: Part, start: tuple[int, ...], shape: tuple[int, ...]) -> Mesh | None:
    """Return the mesh of a window: that of a part and its ghosts, or None if the part is empty."""
    if not all(shape):
        return None
    first, stop, ghosts = [], [], []
    for axis, nodes in enumerate(mesh.shape):
        whole = start[axis] == 0 and shape[axis] == nodes
        first.append(0 if whole else part.lower[axis])
        stop.append(nodes if whole else part.upper[axis])
        ghosts.append((first[-1] - start[axis], start[axis] + shape[axis] - stop[-1]))
    return mesh.part(first, stop, ghosts)


class Halo:
    """The exchange of ghost nodes between the parts of a domain.

    Parameters
    ----------
    domain : Domain
    world : World
    reach : d pairs of ints, or None
        As for :meth:`Domain.windows`.
    """

    def __init__(self, domain: Domain, world: World, reach: Reach | None) -> None:
        self._world, self._parts = world, domain.parts(world.rank)
        self._first_part = world.rank * domain.per_rank
        windows = 1 if reach is None else domain.per_rank
        self._first_window = world.rank * windows
        start, shape = domain.windows(reach)
        self.shapes = [tuple(n) for n in shape[self._first_window : self._first_window + windows].tolist()]
        self.starts = [tuple(n) for n in start[self._first_window : self._first_window + windows].tolist()]
        messages = domain.messages(world.rank, reach)
        filled = np.zeros(windows, np.int64)
        for pieces in messages.held.values():
            for piece in pieces:
                filled[piece.holder - self._first_window] += math.prod(piece.shape)
        self._filled = [n == math.prod(shape) for n, shape in zip(filled.tolist(), self.shapes, strict=True)]
        # The window that a field shares memory with, and where that field is in it.
        self._lent: tuple[Any, Any, Any] = None, None, None
        self._lent_at = 0
        self._cut(messages)
        self._buffers: dict[Any, tuple[Any, dict[int, Any], dict[int, Any]]] = {}

    def _cut(self, messages: Messages) -> None:
        """Work out what is packed where: nodes held of other ranks, own ones of other windows, nodes others hold."""
        rank, parts = self._world.rank, range(len(self._parts))
        inner = messages.owned.get(rank, [])
        # The piece of each part that is the whole part. It is never packed.
        self._main: list[Piece | None] = [
            next((p for p in inner if p.owner - self._first_part == n and p.shape == self._parts[n].shape), None)
            for n in parts
        ]
        across = [piece for piece in inner if piece not in self._main]
        self._held, self._owned = (
            {r: _nodes(pieces) for r, pieces in some.items() if r != rank} for some in (messages.held, messages.owned)
        )
        before, nodes = {}, 0
        far = ([p for r, pieces in some.items() if r != rank for p in pieces] for some in messages)
        for piece in itertools.chain(next(far), across, next(far)):
            before[piece] = nodes
            nodes += math.prod(piece.shape)
        self._packed, self._begin = nodes, nodes - sum(self._owned.values())
        windows: list[list[Boxed]] = [[] for _ in self.shapes]
        fields: list[list[Boxed]] = [[] for _ in parts]
        for some, of in ((messages.held, windows), (messages.owned, fields)):
            for piece in itertools.chain(*some.values()):  # in the order of ranks, in which terms are added
                if piece in before:
                    here = piece.owner - self._first_part
                    inside = piece.in_part(self._parts[here]) if of is fields else piece.in_window()
                    to = here if of is fields else piece.holder - self._first_window
                    of[to].append(Boxed(tuple(s.start for s in inside), piece.shape, before[piece]))
        self._at_windows = [Packing(boxes) for boxes in windows]
        self._at_parts = [Packing(boxes, overlaps=True) for boxes in fields]

    def nodes(self) -> int:
        """Return the number of nodes that this rank sends to fill ghosts, or receives to fold them."""
        return sum(self._owned.values())

    # What may fail on one rank is done at once; what is returned communicates, once all ranks have agreed.

    def fill(self, fields: list[Any], batch: tuple[int, ...]) -> Callable[[], list[Any]]:
        """Make ready to fill the windows (*batch, *shape) of fields (*batch, *part); the result returns the windows.

        Ghosts that no rank owns are zero.
        """
        xp, dtype = module_of(fields[0]), fields[0].dtype
        around = self._around(fields[0], batch)
        windows = [around] if around is not None else [
            (xp.empty if whole else xp.zeros)((*batch, *shape), dtype)
            for shape, whole in zip(self.shapes, self._filled, strict=True)
        ]  # fmt: skip
        buffer, held, owned = self._memory(fields[0].dtype, batch, xp)
        for packing, field in zip(self._at_parts, fields, strict=True):
            packing.pack(field, buffer)

        def copy() -> None:
            for piece, field in zip(self._main, fields, strict=True):
                if piece is not None and around is None:
                    self._window(windows, piece)[...] = field

        def finish() -> list[Any]:
            self._world.exchange(owned, held, copy)
            for packing, window in zip(self._at_windows, windows, strict=True):
                packing.unpack(window, buffer)
            return windows

        return finish

    def fold(self, windows: list[Any], batch: tuple[int, ...]) -> Callable[[], list[Any]]:
        """Make ready to fold windows (*batch, *shape); the result returns fields (*batch, *part).

        Every node gets the sum of what windows hold for it. Fields may share the memory of windows, which change.
        The terms of other parts are added to a part's own ones in the order of ranks, so that sums are reproducible.
        """
        xp = module_of(windows[0])
        buffer, held, owned = self._memory(windows[0].dtype, batch, xp)
        for packing, window in zip(self._at_windows, windows, strict=True):
            packing.pack(window, buffer)

        def finish() -> list[Any]:
            self._world.exchange(held, owned)
            fields = self._of_one_window(windows, batch, xp)
            for packing, field in zip(self._at_parts, fields, strict=True):
                packing.add(field, buffer)
            return fields

        return finish

    def _of_one_window(self, windows: list[Any], batch: tuple[int, ...], xp: Any) -> list[Any]:
        """Return fields (*batch, *part) with the terms of one own window each.

        A field is a view of its window where that is dense and not much larger, so that nothing is copied. Integers
        need not be dense, since no user sees them.
        """
        fields: list[Any] = []
        for piece, part in zip(self._main, self._parts, strict=True):
            if piece is None:
                fields.append(xp.zeros((*batch, *part.shape), windows[0].dtype))
                continue
            window = windows[piece.holder - self._first_window]
            view = self._window(windows, piece)
            alone = len(self._parts) == 1 and window.size <= 2 * view.size
            dense = view.flags.c_contiguous or view.dtype == np.int64
            fields.append(view if alone and dense else view.copy())
            if alone and view.flags.c_contiguous and window.base is None:
                self._lent = weakref.ref(window), view.strides, view.shape
                self._lent_at = _address(view)
        return fields

    def _around(self, field: Any, batch: tuple[int, ...]) -> Any:
        """Return the window that a field is a view of, if it is what the last `fold` has returned; else None.

        Then only ghosts are filled. Nobody else sees the nodes of a window around its field.
        """
        lent, strides, shape = self._lent
        window = None if lent is None else lent()
        if window is None or field.base is not window or not self._filled[0]:
            return None
        same = (field.dtype, field.strides, field.shape) == (window.dtype, strides, shape)
        whole = window.shape == (*batch, *self.shapes[0])
        return window if same and whole and _address(field) == self._lent_at else None

    def _window(self, windows: list[Any], piece: Piece) -> Any:
        return windows[piece.holder - self._first_window][(..., *piece.in_window())]

    def _memory(self, dtype: np.dtype, batch: tuple[int, ...], xp: Any) -> tuple[Any, dict[int, Any], dict[int, Any]]:
        """Return a buffer, and in it the messages of held nodes by owner, and those of own nodes by holder."""
        fields = math.prod(batch)
        if (fields, dtype, xp) not in self._buffers:
            buffer = xp.empty(fields * self._packed, dtype)
            owned = sections(buffer[fields * self._begin :], self._owned, fields)
            self._buffers[fields, dtype, xp] = buffer, sections(buffer, self._held, fields), owned
        return self._buffers[fields, dtype, xp]

    @property
    def nbytes(self) -> int:
        """Bytes of the buffers."""
        return sum(int(buffer.nbytes) for buffer, _, _ in self._buffers.values())


class Crops:
    """Windows of ghost particles: parts without ghosts.

    A particle may reach a part from both sides of a periodic axis, if that has few nodes beyond the part. Then the
    window has the whole axis, and a particle is in it once. Nothing is exchanged. Same members as :class:`Halo`.
    """

    def __init__(self, domain: Domain, world: World, support: int) -> None:
        self._parts = domain.parts(world.rank)
        self.shapes, self.starts = [], []
        for part in self._parts:
            shape, start = [], []
            for axis, nodes in enumerate(part.shape):
                whole = domain.mesh.periodic[axis] and nodes and nodes + support - 1 > domain.mesh.shape[axis]
                shape.append(domain.mesh.shape[axis] if whole else nodes)
                start.append(0 if whole else part.lower[axis])
            self.shapes.append(tuple(shape) if all(shape) else (0,) * len(shape))
            self.starts.append(tuple(start))
        self.nbytes = 0

    def nodes(self) -> int:
        """Return the number of nodes that are exchanged."""
        return 0

    def fill(self, fields: list[Any], batch: tuple[int, ...]) -> Callable[[], list[Any]]:
        """As :meth:`Halo.fill`, but nodes of other parts are zero."""
        windows = []
        for field, part, start, shape in zip(fields, self._parts, self.starts, self.shapes, strict=True):
            window = field
            if shape != part.shape:
                window = module_of(field).zeros((*batch, *shape), field.dtype)
                window[(..., *_inside(part, start))] = field
            windows.append(window)
        return lambda: windows

    def fold(self, windows: list[Any], batch: tuple[int, ...]) -> Callable[[], list[Any]]:
        """As :meth:`Halo.fold`, but nodes of other parts are left out."""
        fields = [
            module_of(window).ascontiguousarray(window[(..., *_inside(part, start))])
            for window, part, start in zip(windows, self._parts, self.starts, strict=True)
        ]
        return lambda: fields


def _inside(part: Part, start: tuple[int, ...]) -> tuple[slice, ...]:
    return tuple(slice(a - b, a - b + n) for a, b, n in zip(part.lower, start, part.shape, strict=True))


def copies(domain: Domain, cells: tuple[Any, ...], parts: Any, support: int) -> tuple[Any, Any]:
    """Return every part that each particle's stencil reaches, its own among them: two arrays, of parts and particles.

    Parameters
    ----------
    cells : d int arrays (N,)
    parts : (N,) int array
        The part that owns each particle.
    """
    xp, mesh = module_of(parts), domain.mesh
    before, _ = reach = reach_of(support, mesh.ndim)[0]
    first = [cell.astype(np.int64) - before for cell in cells]
    rows, goals = [], []
    for part in xp.unique(parts).tolist():
        owned = xp.flatnonzero(parts == part)
        for goal in domain.neighbours(part, [reach] * mesh.ndim):
            if goal == part:
                some = owned
            else:
                reached, box = xp.ones(owned.shape[0], bool), domain.parts()[goal]
                for axis in range(mesh.ndim):
                    reached &= _reaches(first[axis][owned], support, box.lower[axis], box.upper[axis], mesh, axis)
                some = owned[reached]
            rows.append(some)
            goals.append(xp.full(some.shape[0], goal, np.int64))
    none = xp.empty(0, np.int64)
    return xp.concatenate([none, *goals]), xp.concatenate([none, *rows])


def _reaches(first: Any, support: int, lower: int, upper: int, mesh: Mesh, axis: int) -> Any:
    """Return whether stencils from ``first`` on have a node from ``lower`` up to ``upper``."""
    if not mesh.periodic[axis]:
        return (first < upper) & (first + support > lower)
    nodes = mesh.shape[axis]
    return ((first - lower) % nodes < upper - lower) | ((lower - first) % nodes < support)


def _address(array: Any) -> int:
    return int(array.ctypes.data if isinstance(array, np.ndarray) else array.data.ptr)


def _nodes(pieces: list[Piece]) -> int:
    return sum(math.prod(piece.shape) for piece in pieces)
