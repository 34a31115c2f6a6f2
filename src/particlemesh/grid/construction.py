# SPDX-License-Identifier: BSD-3-Clause
"""The box of a grid, its cells, and the building."""

from __future__ import annotations

import threading
from dataclasses import replace
from operator import attrgetter
from types import SimpleNamespace, TracebackType
from typing import Any, Self

import numpy as np

from particlemesh import backends
from particlemesh import checks as common
from particlemesh.arrays import operands
from particlemesh.arrays.kinds import Kind, kind_of
from particlemesh.arrays.positions import coordinates
from particlemesh.arrays.systems import indices
from particlemesh.backends.base import NOTHING, Backend
from particlemesh.backends.cpu import at_most_cores
from particlemesh.backends.memory import check_room
from particlemesh.backends.tapes import Tapes
from particlemesh.busy import alone
from particlemesh.choosing import candidates
from particlemesh.grid import checks
from particlemesh.grid.builders import METHODS
from particlemesh.grid.builders.build import build_on_gpu
from particlemesh.grid.builders.builder import Builder
from particlemesh.grid.builders.built import Built
from particlemesh.grid.builders.job import Problem
from particlemesh.grid.cpu.build import build_on_cpu
from particlemesh.grid.queries.pairs import Searcher
from particlemesh.grid.room import Rooms
from particlemesh.grid.sizes import Input, Sizes
from particlemesh.grid.systems import SystemBoxes, boxes_of

_METHODS: Any = METHODS  # as `select` sees them
_SMALL = 10**6  # particles and cells that memory is not in doubt for


class Construction(common.Fixed):
    """A box cut into cells, and how particles get there: see :class:`particlemesh.UniformGrid`."""

    def __init__(
        self,
        box: Any,
        *,
        cell_size: Any = None,
        shape: Any = None,
        periodic: Any = None,
        levels: int | None = None,
        method: str = "auto",
        deterministic: bool = False,
        queries: bool = True,
        dtype: Any = None,
        backend: str | None = None,
        systems: int | None = None,
        threads: int | None = None,
        **options: Any,
    ) -> None:
        domain = checks.box_of(box, periodic)
        cells = checks.cells_along(domain, cell_size, shape)
        number = 1 if levels is None else common.integer(levels, "levels", 1, checks.MOST_LEVELS)
        threads = at_most_cores(None if threads is None else common.integer(threads, "threads", 1, 4096))
        self._sizes = Sizes(
            domain, cells, number, levels is None, common.flag(deterministic, "deterministic"),
            common.flag(queries, "queries"), threads, options,
            None if systems is None else common.integer(systems, "systems", 1, checks.MOST),
        )  # fmt: skip
        checks.few_enough(self.cells, "cells")
        common.method_name(method, METHODS, "method")
        checks.options_of(method, METHODS, options)
        self._method = method
        for builder in METHODS:
            if builder.name == method and builder(**options).one_level:  # an option that is not allowed is an error now
                self._sizes = replace(self._sizes, follows_radii=False)
        self._dtype: Any = None if dtype is None else common.real_type(dtype)
        self._named = backend
        if backend is not None:
            candidates.check_backend(METHODS, method, "method", backend)
        self._backend: Any = None if backend is None else backends.current(backend)
        self._kind: Kind | None = None
        self._place: Any = None
        self._builder: Builder | None = None
        self._problem: Problem | None = None  # that it was chosen for
        self._built: Built | None = None
        self._boxes: SystemBoxes | None = None  # of the last build's systems
        self._rooms: Rooms | None = None  # on a GPU
        self._searcher: Searcher | None = None  # for pairs, with what it has learned
        self._tapes = Tapes()
        self._token: Any = None  # the stream that last worked for this grid
        self._capacity = 0
        self._closed = False
        self.busy = threading.RLock()

    # ---- sizes --------------------------------------------------------------------------------------------

    box: Any = property(attrgetter("_sizes.box"), doc="The domain.")
    dtype: Any = property(attrgetter("_dtype"), doc="Type of the positions; None if it is that of the given ones.")
    backend: Any = property(attrgetter("_backend"), doc="Where the grid is; None until it is named or built.")
    shape: Any = property(attrgetter("_sizes.shape"), doc="Cells along each axis; with several levels, of the finest.")
    cells: Any = property(attrgetter("_sizes.cells"), doc="Cells of all levels.")
    levels: Any = property(attrgetter("_sizes.levels"), doc="Levels of cells.")
    deterministic: Any = property(
        attrgetter("_sizes.deterministic"), doc="Whether particles of a cell are in the order of their indices."
    )
    queries: Any = property(attrgetter("_sizes.queries"), doc="Whether a build ends with what queries need.")
    systems: Any = property(attrgetter("_sizes.systems"), doc="Number of systems; None without systems.")
    threads: Any = property(attrgetter("_sizes.threads"), doc="The most threads on the CPU.")

    # ---- lifetime -------------------------------------------------------------------------------------

    def __reduce__(self) -> tuple[Any, ...]:
        # A recipe, never handles: the copy starts without particles.
        options = dict(
            shape=self.shape, levels=None if self._sizes.follows_radii else self.levels, method=self._method,
            deterministic=self.deterministic, queries=self.queries, backend=self._named, threads=self.threads,
            systems=self.systems, dtype=None if self.dtype is None else self.dtype.name, **self._sizes.options,
        )  # fmt: skip
        return _rebuild, (type(self), self.box, options)

    def __repr__(self) -> str:
        cells = " x ".join(map(str, self.shape)) + (f" on {self.levels} levels" if self.levels > 1 else "")
        cells += f" in each of {self.systems} systems" if self.systems else ""
        held = "empty" if self._built is None else f"{self._built.count:,} particles by {self._built.method.name!r}"
        return f"<UniformGrid of {cells} cells, {held}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    @alone
    def close(self) -> None:
        """Release the grid's memory; using it afterwards is a RuntimeError. May be called twice."""
        self._closed = True
        self._built = self._builder = self._rooms = self._searcher = None
        self._tapes.clear()

    def follow(self) -> Any:
        """Order later work after that of the last call; return the token of the current stream."""
        self._token = token = self.backend.follow(self._token)
        return token

    def _open(self) -> None:
        if self._closed:
            raise RuntimeError("this grid is closed; make a new one.")

    def _ready(self) -> Built:
        self._open()
        if self._built is None:
            raise RuntimeError("this grid has no particles yet: call build first.")
        return self._built

    @property
    def nbytes(self) -> int:
        """Bytes of memory the grid holds."""
        return sum(held.nbytes for held in (self._built, self._rooms) if held is not None)

    # ---- building -------------------------------------------------------------------------------------

    @alone
    def reserve(self, count: int, *, radii: int = 0) -> None:
        """Allocate for up to ``count`` particles, so that builds with ``check=False`` allocate nothing.

        The grid must know where it runs and in which type: name ``backend`` and ``dtype``, or build once before.

        Parameters
        ----------
        count : int
            Particles.
        radii : int
            0: without radii; 1: one radius per particle; d: half the edges of boxes.

        Raises
        ------
        ValueError
            If backend or dtype are not known yet.

        Examples
        --------
        >>> import particlemesh as pm
        >>> grid = pm.UniformGrid((1.0, 1.0, 1.0), shape=(8, 8, 8), backend="cpu", dtype="float64")
        >>> grid.reserve(1000)
        """
        self._open()
        count = common.integer(count, "count", 0, checks.MOST)
        dtype = self.dtype if self.dtype is not None or self._built is None else self._built.problem.dtype
        if self.backend is None or dtype is None:
            raise ValueError("reserve needs to know where and in which type: give UniformGrid backend= and dtype=.")
        if radii not in (0, 1, self.box.ndim):
            raise ValueError(f"radii is {radii!r}; 0, 1 or {self.box.ndim} numbers of each particle are possible.")
        self._capacity = count
        if self.backend.name == "cpu":
            return
        # A build of as many particles, spread evenly, asks for all the memory that any build takes. It has new memory:
        # what is in the grid now stays where it is.
        with self.backend.scope():
            fractions = np.arange(count)[:, None] * np.array((0.618033988749895, 0.754877666246693, 0.8191725133961645))
            spread = (fractions % 1)[:, : self.box.ndim] @ self.box.matrix + self.box.origin
            x = self.backend.upload(np.ascontiguousarray(spread, dtype))
            sizes = None
            if radii:
                sizes = self.backend.upload(np.zeros((count,) if radii == 1 else (count, radii), dtype))
            system = None if self.systems is None else np.arange(count, dtype=np.int32) % self.systems
            self._rooms = None
            self._tapes.clear()
            before = self._built, self._kind, self._boxes
            try:
                self._build(x, sizes, None if system is None else self.backend.upload(system), check=False)
            finally:
                self._built, self._kind, self._boxes = before

    @alone
    def build(
        self, positions: Any, radii: Any = None, *, system: Any = None, boxes: Any = None, check: bool = True
    ) -> Self:
        """Put particles into cells; what the grid held before is gone.

        Parameters
        ----------
        positions : array (N, d), tuple of d arrays (N,), or array (N,) in 1-D
            Positions in the user's length unit; any strides; never modified. A list is taken as the array that NumPy
            makes of it, points (N, d). A tuple always has one array or list for each axis. Periodic axes fold what is
            at most 2**20 boxes away; an open axis takes ``[origin, origin + length]``, both ends included.
        radii : None, number, array (N,) or (N, d)
            Radii of spheres, or half the edges of boxes along the Cartesian axes. They choose the level, and are
            what :meth:`overlaps` compares.
        system : int array (N,)
            The system of each particle, for a grid with ``systems``; any order. Indices on the host are always checked.
            Particles with an index of no system count as outside on a GPU.
        boxes : array (S, d) or (S, d, d), optional
            The box of each system, if they differ: lengths, or lattice vectors as rows. Origin and periodic axes are
            those of the grid's box. Arrays on a GPU are read back; unchanged boxes are not sent again.
        check : bool
            If False, never wait and, after :meth:`reserve`, never allocate: bad particles are left out and
            recorded in :attr:`status`, which :meth:`check` raises.

        Returns
        -------
        UniformGrid
            This grid.

        Raises
        ------
        ValueError
            If a position is not finite or outside an open axis, or a radius is not a finite number of at least
            zero. The message names the first one. The grid is as it was.
        OverflowError
            If the method gives each cell a number of places and a cell needs more; the error names the number.
        particlemesh.MethodNotSuitable
            If the named builder cannot serve; the message says why.
        """
        self._open()
        common.flag(check, "check")
        played = self.systems is None and system is None and boxes is None and (radii is None or np.isscalar(radii))
        if check or self.backend is None or not played:
            self._build(positions, radii, system, boxes, check=check)
            return self._forget_searches()

        def call() -> Any:
            self._build(positions, radii, check=False)
            return self._built, self._kind, self._place

        self._built, self._kind, self._place = self._tapes.again(self, radii, (positions,), call)
        return self._forget_searches()

    @alone
    def build_keys(self, keys: Any, n: int, *, check: bool = True) -> Self:
        """Put items into ``n`` buckets by a number each, as in a hash table: no positions, no queries.

        Parameters
        ----------
        keys : array (N,) of int32 or int64
            The bucket of each item; negative ones take no part.
        n : int
            Buckets.
        check : bool
            As for :meth:`build`.

        Returns
        -------
        UniformGrid
            This grid; ``cell_start``, ``order``, ``rank`` and ``storage`` are of the buckets.

        Raises
        ------
        ValueError
            If a key is ``n`` or more; the first one is named.

        Examples
        --------
        >>> import numpy as np, particlemesh as pm
        >>> grid = pm.UniformGrid(1.0, shape=1).build_keys(np.array([3, 0, 3, -1]), 4)
        >>> grid.cell_start, grid.order
        (array([0, 1, 1, 1, 3], dtype=int32), array([1, 0, 2], dtype=int32))
        """
        self._open()
        common.flag(check, "check")
        n = common.integer(n, "n", 1, checks.MOST)
        kind, array = operands.adopt(keys, "keys")
        if kind.dtype(array).kind not in "iu" or len(array.shape) != 1:
            raise TypeError(
                f"keys have dtype {kind.dtype(array)} and shape {tuple(array.shape)}; integers (N,) are needed."
            )
        if kind.dtype(array) == np.uint64:
            raise TypeError("keys have dtype uint64; int32 or int64 are needed.")
        backend = self.backend or kind.backend(array)
        self._run(kind, backend, array, None, None, n, check)
        return self._forget_searches()

    def _forget_searches(self) -> Self:
        """Drop the errors of unchecked searches: they are about former particles."""
        if self._searcher is not None:
            self._searcher.unread.forget()
        return self

    def _build(self, positions: Any, radii: Any, system: Any = None, boxes: Any = None, *, check: bool) -> Self:
        if self.systems is None and (system is not None or boxes is not None):
            raise TypeError("system or boxes is given, but this grid has no systems: make it with systems=.")
        if self.systems is not None and system is None:
            raise TypeError(f"this grid has {self.systems} systems: give system=, the index of each particle's system.")
        kind, backend, x = coordinates(positions, self.box.ndim, self.backend, upload=self._uploads, least=self.dtype)
        if self.dtype is not None and x.dtype != self.dtype:
            raise TypeError(
                f"positions have dtype {x.dtype}, more than this grid's {self.dtype.name} holds: use "
                "UniformGrid(..., dtype='float64') or convert them yourself."
            )
        given = None if self.systems is None else boxes_of(boxes, self.systems, self.box, self._boxes)
        return self._run(kind, backend, positions, x, radii, 0, check, given, system)

    def _run(
        self, kind: Kind, backend: Backend, given: Any, x: Any, radii: Any, buckets: int, check: bool,
        boxes: SystemBoxes | None = None, system: Any = None,
    ) -> Self:  # fmt: skip
        first = given if x is None else x.user
        count = int(first.shape[0]) if x is None else x.count
        checks.few_enough(count, "particles")
        if self._capacity and not check and count > self._capacity:
            raise ValueError(f"{count} particles, but room is reserved for {self._capacity}: reserve({count}) first.")
        arrays = () if x is None else x.arrays
        sizes = kind_of(radii)
        if sizes is not None and sizes.home == backend.name:
            arrays = (*arrays, sizes.native(radii))
        self._place = SimpleNamespace(device=getattr(first, "device", None))  # names the stream of the user's library
        with kind.scope(first), backend.scope(*arrays):
            token = backend.follow(self._token)
            if boxes is not None:
                system = indices(system, count, boxes.count, backend, upload=self._uploads)
            user_input = Input(kind, given, x, radii, buckets, self._uploads, check, boxes, system)
            if backend.name == "cpu":
                self._built = build_on_cpu(self._sizes, user_input, self._choose)
            else:
                rooms, searcher = self._memory(backend)
                self._built = build_on_gpu(self._sizes.fitted(None), user_input, rooms, searcher, self._choose)
            self._sizes, self._boxes = self._sizes.on_levels(self._built.problem.levels), boxes
            self._backend, self._kind, self._token = backend, kind, token
            backend.mark(*arrays)
        return self

    @property
    def _uploads(self) -> bool:
        """Whether host arrays are copied to the backend, which the user named."""
        return self._named is not None

    def _memory(self, backend: Backend) -> tuple[Rooms, Searcher]:
        """Return the memory of builds and of queries on a GPU, and what searches for pairs in it."""
        if self._rooms is None or self._searcher is None or self._rooms.backend is not backend:
            self._rooms = Rooms(backend, self._tapes)
            self._searcher = Searcher(backend, self._rooms.queries)
        return self._rooms, self._searcher

    def _stream(self) -> Any:
        """Enter the stream that the library of the grid's arrays works on, where it is not the backend's own."""
        local = self._kind is not None and self.backend is not None and self._kind.home == self.backend.name
        return self._kind.scope(self._place) if local else NOTHING  # type: ignore[union-attr]  # it is one

    def _check_memory(self, problem: Problem) -> None:
        """Raise a MemoryError if no builder that can serve has the memory on the CPU."""
        if problem.gpu or problem.count + problem.cells < _SMALL:
            return
        serving = [m for m in METHODS if self._method in ("auto", m.name) and m.declines(problem) is None]
        if serving:
            least = min(m.scratch_bytes(problem) for m in serving)
            check_room(least, f"a grid of {problem.cells:,} cells and {problem.count:,} particles")

    def _choose(self, problem: Problem) -> Builder:
        """Return the builder that serves ``problem``: the one before, if nothing has changed by much."""
        self._check_memory(problem)
        known, before = self._builder, self._problem
        alike = before is not None and replace(problem, count=before.count) == before
        reserved = problem.count <= self._capacity
        near = before is not None and before.count / 2 <= problem.count <= before.count * 2
        if known is not None and alike and (near or reserved):
            return known
        chosen: Any = candidates.choose(_METHODS, problem, self._method)  # type: ignore[arg-type]  # the same interface
        self._builder = known if type(known) is chosen else chosen(**self._sizes.options)
        self._problem = problem
        return self._builder  # type: ignore[return-value]  # just made


def _rebuild(kind: type[Construction], box: Any, options: dict[str, Any]) -> Construction:
    return kind(box, **options)
