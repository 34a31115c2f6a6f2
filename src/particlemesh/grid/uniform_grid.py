# SPDX-License-Identifier: BSD-3-Clause
"""Particles by cell: six ways to build, one way to query."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from dataclasses import replace
from operator import attrgetter
from types import SimpleNamespace, TracebackType
from typing import Any, ClassVar, Self

import numpy as np

from particlemesh import backends
from particlemesh import checks as common
from particlemesh.arrays import operands
from particlemesh.arrays.kinds import Kind, kind_of
from particlemesh.arrays.positions import Coordinates, arrays_given, coordinates, indices
from particlemesh.backends.base import NOTHING, Backend
from particlemesh.backends.cpu import at_most_cores
from particlemesh.backends.tapes import Tapes
from particlemesh.checks import alone
from particlemesh.choosing import candidates
from particlemesh.grid import checks
from particlemesh.grid.builders import METHODS
from particlemesh.grid.builders.builder import Build, BuilderChoice, CpuBuild, accepted, build_on_cpu, build_on_gpu
from particlemesh.grid.queries.cloud import few_images
from particlemesh.grid.queries.pair_function import PairFunction
from particlemesh.grid.queries.search import Search
from particlemesh.grid.results import Pairs
from particlemesh.grid.room import Rooms
from particlemesh.grid.sizes import Input, Sizes, spread_evenly
from particlemesh.grid.storage import Storage
from particlemesh.grid.systems import SystemBoxes, boxes_of


class UniformGrid(common.Fixed):
    """A box cut into cells of one size, for finding what is near.

    Only one thread may use a grid at a time: a call from a second thread raises a RuntimeError. Work on a GPU goes to
    the caller's current stream or queue.

    Parameters
    ----------
    box : Box, lengths or matrix
        The domain, of 1 to 3 axes. Lengths or a matrix make a box with ``periodic`` axes.
    cell_size : number or one for each axis
        Least thickness of a cell, across its faces. For pairs within ``r``, cells of ``r`` are good, and cells four
        times thinner along the last axis are better.
    shape : int or ints
        Cells along each axis, instead of ``cell_size``.
    periodic : bool or one for each axis, optional
        Which axes repeat, for a box given by its lengths; by default all.
    levels : int, optional
        Levels of cells for particles of many sizes. The cells of each level are twice as large as those of the level
        before. A particle is on the finest level whose cells hold it. By default each build on the CPU has the
        levels that its array of radii needs. The default on GPUs is 1, because a build does not wait to read radii.
    method : str
        How to build, by name; ``"auto"`` selects the least predicted time.
    deterministic : bool
        Particles of a cell in the order of their indices, so that every result is reproducible. Sums of :meth:`stream`
        then have the same bits in whatever order the particles are given, in two passes over the pairs.
    queries : bool
        Whether a build ends with what queries need. Without it only the builder's own storage is made.
    dtype : {"float32", "float64"}, optional
        Type of the positions; by default that of the given ones.
    backend : {"cpu", "cuda", "opencl"}, optional
        By default where the arrays are. If named, host arrays are copied there and back.
    systems : int, optional
        Number of systems, each with particles of its own that see no others. One call builds or searches all of them:
        :meth:`build` takes ``system``, the index of each particle's system, and ``boxes`` if theirs differ. Every
        system has cells of this ``shape`` in its own box.
    threads : int, optional
        Most threads on the CPU, from 1 to 4096; by default what suits the number of particles. The grid never uses
        more threads than this process may use cores.
    **options
        Options of the method; :doc:`/guide/grid_builders` lists them.

    Attributes
    ----------
    box : Box
        The domain.
    shape : tuple of d int
        Cells along each axis; with several levels, of the first and finest.
    cells : int
        Cells of all levels of the last build, and of all systems.
    methods : tuple of str
        Names of the ways to build.

    Raises
    ------
    ValueError, TypeError
        If an argument is not allowed; the message says what is.

    References
    ----------
    The builders are those of [barbieri2013]_ and [green2008]_.

    Examples
    --------
    >>> import numpy as np, particlemesh as pm
    >>> x = np.random.default_rng(1).random((1000, 3))
    >>> grid = pm.UniformGrid((1.0, 1.0, 1.0), cell_size=0.25).build(x)
    >>> grid.shape, int(grid.cell_start[-1])
    ((4, 4, 4), 1000)
    >>> abs(grid.positions - x[grid.order]).max()
    np.float64(0.0)
    """

    methods: ClassVar[tuple[str, ...]] = tuple(builder.name for builder in METHODS)
    methods_with_radii: ClassVar[tuple[str, ...]] = tuple(builder.name for builder in METHODS if builder.needs_radii)

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
        threads = at_most_cores(common.threads(threads, backend))
        self._sizes = Sizes(
            domain, cells, number, levels is None, common.flag(deterministic, "deterministic"),
            common.flag(queries, "queries"), threads, options,
            None if systems is None else common.integer(systems, "systems", 1, checks.MOST),
        )  # fmt: skip
        checks.few_enough(self.cells, "cells")
        common.method_name(method, METHODS, "method")
        checks.options_of(method, METHODS, options)
        self._choice = BuilderChoice(METHODS, method, options)
        for builder in METHODS:
            if builder.name == method and builder(**options).one_level:  # an option that is not allowed is an error now
                self._sizes = replace(self._sizes, follows_radii=False)
        self._dtype: Any = None if dtype is None else common.real_type(dtype)
        self._named, self._uploads = backend, backend is not None  # host arrays are copied there and back
        if backend is not None:
            candidates.check_backend(METHODS, method, "method", backend)
        self._backend: Any = None if backend is None else backends.current(backend)
        self._kind: Kind | None = None
        self._place: Any = None
        self._built: Build | CpuBuild | None = None
        self._boxes: SystemBoxes | None = None  # of the last build's systems
        self._rooms: Rooms | None = None  # on a GPU
        self._search: Search | None = None  # for pairs, with what it has learned
        self._tapes = Tapes()
        self._token: Any = None  # the stream that last worked for this grid
        self._closed = False
        self.busy = threading.RLock()

    # ---- sizes --------------------------------------------------------------------------------------------

    box: Any = property(attrgetter("_sizes.box"), doc="The domain.")
    dtype: Any = property(attrgetter("_dtype"), doc="Type of the positions; None if it is that of the given ones.")
    backend: Any = property(attrgetter("_backend"), doc="Where the grid is; None until it is named or built.")
    shape: Any = property(attrgetter("_sizes.shape"), doc="Cells along each axis; with several levels, of the finest.")
    cells: Any = property(attrgetter("_sizes.cells"), doc="Cells of all levels.")
    levels: Any = property(attrgetter("_sizes.levels"), doc="Levels of cells.")
    deterministic: Any = property(attrgetter("_sizes.deterministic"), doc="Whether cells are in the order of indices.")
    queries: Any = property(attrgetter("_sizes.queries"), doc="Whether a build ends with what queries need.")
    systems: Any = property(attrgetter("_sizes.systems"), doc="Number of systems; None without systems.")
    threads: Any = property(attrgetter("_sizes.threads"), doc="The most threads on the CPU.")

    # ---- building -----------------------------------------------------------------------------------------

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
        self._choice.capacity = count
        if self.backend.name == "cpu":
            return
        # A build of as many particles, spread evenly, asks for all the memory that any build takes. It has new memory:
        # what is in the grid now stays where it is.
        with self.backend.scope():
            x = self.backend.upload(np.ascontiguousarray(spread_evenly(self.box, count), dtype))
            sizes = self.backend.upload(np.zeros((count, radii) if radii > 1 else count, dtype)) if radii else None
            system = domains = None
            if self.systems is not None:
                domains = boxes_of(None, self.systems, self.box, None)
                system = self.backend.upload(np.arange(count, dtype=np.int32) % domains.count)
            self._rooms = None
            self._tapes.clear()
            before = self._built, self._kind, self._boxes
            try:
                self._build(x, sizes, system, domains, check=False)
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
            those of the grid's box. Arrays on a GPU are read back, and those of the host are sent
            if they changed; :class:`particlemesh.kernels.DeviceBoxes` stay there.
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
        common.systems_given("grid", self.systems, system, boxes)
        domains = None if self.systems is None else boxes_of(boxes, self.systems, self.box, self._boxes)
        one = radii is None or np.isscalar(radii)
        played = one and self._build_from_tape(positions, radii, check, system, domains)
        return self._forget_searches() if played else self._build(positions, radii, system, domains, check=check)

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
        checks.keys_are_integers(kind.dtype(array), tuple(array.shape))
        backend = self.backend or kind.backend(array)
        return self._run(kind, backend, array, None, None, n, check)

    # ---- queries ------------------------------------------------------------------------------------------

    @alone
    def pairs(
        self,
        radius: Any,
        *,
        half: bool = False,
        order: str = "input",
        format: str = "csr",  # noqa: A002 - what it is
        quantities: str = "j",
        width: int | None = None,
        capacity: int | None = None,
        check: bool = True,
    ) -> Pairs:
        """Return all pairs within a distance, images included.

        Parameters
        ----------
        radius : number or array (N,)
            Pairs with distance ≤ ``radius``. With one number per particle, pairs with distance ≤ the sum of both. The
            radius may be larger than a cell, and than the box. For very different radii on a GPU, give them to
            :meth:`build` of a grid with ``levels``: otherwise the largest sets how far all particles search.
        half : bool
            By default each pair is returned from both sides (full list): row i holds all neighbours of particle i, as
            in ASE, freud and :func:`particlemesh.neighbour_list`. With True each pair is returned once (half list),
            with the larger number second. Of a particle and its own image, the pair whose first nonzero shift is
            positive is returned.
        order : {"input", "grid"}
            Number particles by the caller's indices, or by their places in the grid, which is faster.
        format : {"csr", "coo", "dense"}
            Compressed rows; two columns; or a table of ``width`` columns, -1 in empty places.
        quantities : str
            Letters of "ijdDS": what to return, see :class:`particlemesh.Pairs`.
        width : int, optional
            Columns of a dense table; by default as many as the longest row needs.
        capacity : int, optional
            With ``check=False``: room for this many pairs. The next such search reuses the memory.
        check : bool
            If False, never wait. The arrays have the length given by ``capacity`` or ``width``; ``start`` (or
            ``count``) says how much of them is in use. :meth:`check` raises if they were too short. For GPUs.

        Returns
        -------
        Pairs

        Raises
        ------
        ValueError
            If an argument is not allowed.
        OverflowError
            If ``width`` is too small; the error names the width that is needed.

        Examples
        --------
        >>> import numpy as np, particlemesh as pm
        >>> x = np.array([[0.1, 0.5], [0.9, 0.5], [0.5, 0.5]])
        >>> grid = pm.UniformGrid((1.0, 1.0), cell_size=0.25).build(x)
        >>> pairs = grid.pairs(0.25, half=True, format="coo", quantities="ijdS")
        >>> pairs.i, pairs.j, pairs.distance.round(12), pairs.shift
        (array([0], dtype=int32), array([1], dtype=int32), array([0.2]), array([[-1,  0]], dtype=int32))
        """
        common.one_of(order, "order", ("input", "grid"))
        common.one_of(format, "format", ("csr", "coo", "dense"))
        checks.letters(quantities)
        width, capacity = checks.room_for_pairs(format, width, capacity)
        half, check = common.flag(half, "half"), common.flag(check, "check")
        arguments = (half, order, format, quantities, width, capacity, check)
        if check or not isinstance(radius, (int, float)):
            return self._answer(lambda queries: queries.pairs(self._cutoff(radius), *arguments), radius)
        question, built = (self._reach(radius), *arguments), self._built_for_queries()
        what = ("pairs", *question, built.number)
        with self._stream():  # a repeated search of the same memory is played from a tape
            pairs = self._tapes.again(self, what, (), lambda: self._answer(lambda q: q.pairs(*question)))
        built.queries.asked_again(*question)
        return pairs

    def count(self, radius: Any, *, order: str = "input", check: bool = True) -> Any:
        """Return how many neighbours within a distance each particle has, images included.

        Parameters
        ----------
        radius : number or array (N,)
            As for :meth:`pairs`.
        order : {"input", "grid"}
            Whether the counts are in the caller's order or in that of the grid.
        check : bool
            If False, cutoffs of an array are not checked, so that nothing waits.

        Returns
        -------
        array (N,) of int32

        Examples
        --------
        >>> import numpy as np, particlemesh as pm
        >>> pm.UniformGrid(1.0, shape=4).build(np.array([0.05, 0.5, 0.95])).count(0.2)
        array([1, 0, 1], dtype=int32)
        """
        common.one_of(order, "order", ("input", "grid"))
        check = common.flag(check, "check")
        return self._answer(lambda queries: queries.count(self._cutoff(radius), order, check), radius)

    def neighbours(self, points: Any, radius: float, *, quantities: str = "j", system: Any = None) -> Pairs:
        """Return the particles within a distance of each of some points.

        Parameters
        ----------
        points : array (M, d), tuple of d arrays (M,), or array (M,) in 1-D
            Anywhere; periodic axes see all images.
        radius : number
            Particles with distance ≤ ``radius``.
        quantities : str
            Letters of "ijdDS"; ``i`` is the point.
        system : int array (M,)
            With systems: the system of each point, whose particles it sees.

        Returns
        -------
        Pairs
            In the format "csr": row k has the neighbours of point k.

        Raises
        ------
        ValueError
            If a point is not finite; the first one is named.

        Examples
        --------
        >>> import numpy as np, particlemesh as pm
        >>> grid = pm.UniformGrid(1.0, shape=4).build(np.array([0.05, 0.5, 0.95]))
        >>> near = grid.neighbours(np.array([0.45, 1.1]), 0.1)
        >>> near.start, near.j
        (array([0, 1, 2]), array([1, 0], dtype=int32))
        """
        checks.letters(quantities)
        reach = self._reach(radius)
        return self._answer(lambda q: q.neighbours(reach, quantities, *self._points(points, system)), points)

    def nearest(self, k: int, radius: float, points: Any = None, *, system: Any = None) -> tuple[Any, Any]:
        """Return the nearest particles of each particle, or of each of some points.

        Parameters
        ----------
        k : int
            How many, 1 to 128.
        radius : number
            Particles with distance ≤ ``radius``.
        points : array, optional
            As for :meth:`neighbours`; by default the particles, which are not neighbours of themselves (but their
            images are).
        system : int array (M,)
            With systems and points: the system of each point.

        Returns
        -------
        indices : array (M, k) of int32
            By distance, then by index; -1 where there are no more.
        distances : array (M, k)
            In the unit of the positions; infinity where there are no more.

        Examples
        --------
        >>> import numpy as np, particlemesh as pm
        >>> grid = pm.UniformGrid(1.0, shape=4).build(np.array([0.05, 0.5, 0.95]))
        >>> grid.nearest(1, 0.2)[0].ravel()
        array([ 2, -1,  0], dtype=int32)
        """
        k, reach = common.integer(k, "k", 1, checks.MOST_NEAREST), self._reach(radius)
        return self._answer(lambda q: q.nearest(k, reach, *self._points(points, system)))

    def overlaps(self, *, shape: str | None = None, quantities: str = "ij") -> Pairs:
        """Return the pairs of particles that overlap, each once: the broad phase of collision detection.

        Parameters
        ----------
        shape : {"sphere", "box"}, optional
            Spheres, whose centres are no farther apart than both radii together, or boxes along the Cartesian axes.
            By default spheres for radii (N,) and boxes for (N, d) of :meth:`build`; boxes of one radius are cubes.
        quantities : str
            Letters of "ijdDS".

        Returns
        -------
        Pairs
            In the format "coo" and the caller's numbering, ``i < j`` (or i is j, and the first shift that is not
            zero is positive).

        Raises
        ------
        ValueError
            If the particles have no radii.

        Examples
        --------
        >>> import numpy as np, particlemesh as pm
        >>> grid = pm.UniformGrid(1.0, shape=4).build(np.array([0.1, 0.3, 0.95]), radii=np.array([0.1, 0.05, 0.1]))
        >>> pairs = grid.overlaps()
        >>> pairs.i, pairs.j
        (array([0], dtype=int32), array([2], dtype=int32))
        """
        checks.letters(quantities)
        checks.compares_boxes(self.ready().problem.extents, shape)
        return self._answer(lambda queries: queries.overlaps(shape, quantities))

    def stream(self, radius: float, function: PairFunction, values: Any = None, *, out: Any = None) -> Any:
        """Sum a function of pairs over the neighbours of each particle, without making a list.

        Parameters
        ----------
        radius : number
            Neighbours have distance ≤ ``radius``.
        function : PairFunction
            What to sum. It is a ValueError if the grid is deterministic, and the function does not only add to ``sum``.
        values : array (N, function.values) or (N,), optional
            Numbers of each particle that the function sees.
        out : array (N, function.results), optional
            Where to write, in the positions' type. On a GPU such a call never waits, and from the second time on it
            allocates nothing, so that a graph can capture it. With a named ``backend`` host arrays are copied.

        Returns
        -------
        array (N, function.results)
            In the caller's order and the positions' type; zero for particles that were left out.

        Examples
        --------
        >>> import numpy as np, particlemesh as pm
        >>> def mass_around(r2, d, i, j, a, b, p, sum):
        ...     sum[0] += b[0]
        >>> grid = pm.UniformGrid(1.0, shape=4).build(np.array([0.05, 0.5, 0.95]))
        >>> masses = pm.PairFunction("sum[0] += b[0];", mass_around, results=1, values=1)
        >>> grid.stream(0.2, masses, np.array([3.0, 5.0, 7.0])).ravel()
        array([7., 0., 3.])
        """
        if not isinstance(function, PairFunction):
            raise TypeError(f"function is of type {type(function).__name__}; give a particlemesh.PairFunction.")
        reach = self._reach(radius)
        values = None if values is None else operands.adopt(values, "values")[1]
        count = self.ready().count
        function.check_values(None if values is None else tuple(values.shape), count)
        target: Any = None if out is None else self._target(out, (count, function.results), values)
        copies = self.backend.name != "cpu" and isinstance(target, np.ndarray)
        there = None if copies else target
        exact = dict(exact=self.deterministic)
        sums = self._answer(lambda q: q.stream(reach, function, self._native(values, "values"), there, **exact), values)
        if copies:
            target[...] = np.asarray(sums)
        return sums if out is None else out

    # ---- contents; arrays of a GPU are views of the grid's memory, where the next builds write ------------

    @property
    def size(self) -> int:
        """Particles given to the last build, including those left out."""
        return 0 if self._built is None else self._built.count

    @property
    def status(self) -> checks.GridStatus:
        """What was wrong with the last build; waits for the device."""
        return self._from_build(lambda built: built.status(), shows=False)

    @alone
    def check(self) -> None:
        """Raise the errors of the last build and of unchecked queries; waits for the device.

        A build drops the errors of the build before: check after each build whose errors matter.
        """
        built, status = self.ready(), self.status
        if status.bad:
            box = None if built.keyed else self.box
            raise checks.bad_particles(status, None, None, box, taken=True, systems=self.systems)
        if status.fullest:
            raise checks.overflow(status, built.capacity, built.method.remedy(status.fullest), taken=True)
        self._from_build(lambda built: built.check_queries(), shows=False)

    @property
    def storage(self) -> Storage:
        """What the builder stored, arrays included, as one of the types in ``particlemesh.grid.storage``.

        NumPy arrays are read-only, and tensors of the CPU are copies. Never write to arrays of a GPU: kernels use
        their numbers unchecked as indices.
        """
        storage = self._from_build(lambda built: built.public_storage())
        return type(storage)(*map(self._out, storage))

    @property
    def cell_start(self) -> Any:
        """Where each cell starts in the order of cells, (cells + 1,) int32; the last number is how many there are.

        With Morton order this is the start of each cell where it has particles, and ``storage.ends`` its end.
        """
        return self._from_build(lambda built: built.cell_start())

    @property
    def order(self) -> Any:
        """The particle at each place of the order of cells, (n,) int32; those left out are missing. Waits."""
        return self._from_build(lambda built: built.order())

    @property
    def rank(self) -> Any:
        """The place of each particle in the order of cells, (N,) int32; -1 for one that was left out. Waits."""
        return self._from_build(lambda built: built.rank())

    @property
    def positions(self) -> Any:
        """Positions in the order of cells, (n, d), folded into the box; needs ``queries=True``. Waits."""
        return self._from_build(lambda built: built.positions())

    # ---- reports and lifetime -----------------------------------------------------------------------------

    @alone
    def explain(self) -> str:
        """Return each builder's estimate, or why it declines; the chosen one is starred.

        Examples
        --------
        >>> import numpy as np, particlemesh as pm
        >>> grid = pm.UniformGrid((1.0, 1.0), shape=(8, 8)).build(np.random.default_rng(1).random((100, 2)))
        >>> print(grid.explain())  # doctest: +ELLIPSIS
        grid ...
        """
        return self._choice.explain(self.ready())

    @property
    def nbytes(self) -> int:
        """Bytes of memory the grid holds."""
        return sum(held.nbytes for held in (self._built, self._rooms) if held is not None)

    def __repr__(self) -> str:
        cells = " x ".join(map(str, self.shape)) + (f" on {self.levels} levels" if self.levels > 1 else "")
        cells += f" in each of {self.systems} systems" if self.systems else ""
        held = "empty" if self._built is None else f"{self._built.count:,} particles by {self._built.method.name!r}"
        return f"<UniformGrid of {cells} cells, {held}>"

    def __reduce__(self) -> tuple[Any, ...]:
        # A recipe, never handles: the copy starts without particles.
        options = dict(
            shape=self.shape, levels=None if self._sizes.follows_radii else self.levels, method=self._choice.name,
            deterministic=self.deterministic, queries=self.queries, backend=self._named, threads=self.threads,
            systems=self.systems, dtype=None if self.dtype is None else self.dtype.name, **self._sizes.options,
        )  # fmt: skip
        return functools.partial(type(self), self.box, **options), ()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    @alone
    def close(self) -> None:
        """Release the grid's memory; using it afterwards is a RuntimeError. May be called twice."""
        self._closed = True
        self._built = self._rooms = self._search = None
        self._choice.forget()
        self._tapes.clear()

    # ---- for other parts of the library -------------------------------------------------------------------

    def follow(self) -> Any:
        """Order later work after that of the last call; return the token of the current stream."""
        self._token = token = self.backend.follow(self._token)
        return token

    def rows_of(self, radius: float, quantities: str, least: int, most: int) -> Pairs:
        """Return the half list of some particles, on a GPU; the rows of the others are empty."""
        reach = self._reach(radius)
        return self._answer(lambda queries: queries.rows_of(reach, quantities, least, most))

    # ---- how a build is made ------------------------------------------------------------------------------

    def _build_from_tape(self, positions: Any, radii: Any, check: bool, system: Any, boxes: Any) -> bool:
        """Build with positions of the form of earlier ones, from a tape; return whether there is one."""
        rooms, columns = self._rooms, arrays_given(positions)
        if rooms is None or rooms.backend != self.backend:
            return False
        columns = columns if boxes is None else (*columns, system)
        room = rooms.target(check)
        entry = self._tapes.find(self, ("build", radii, check, id(room), boxes), columns)
        if not entry:
            return False
        (tape, built), kind = entry, kind_of(columns[0])
        with kind.scope(columns[0]), self.backend.scope(*columns):  # type: ignore[union-attr]  # it has a signature
            token = self.follow()
            if boxes is not None:  # a build between may have had others
                boxes.on(room, built.problem.dtype)
            tape.play(token, *columns)
            self.backend.mark(*columns)
            if check:
                if not accepted(built, self._sizes, positions, radii):
                    self._tapes.clear()  # the builder has more room now
                    return False
                rooms.swap()
        self._adopt(built, kind, columns[0], boxes)
        return True

    def _adopt(self, built: Any, kind: Any, first: Any, boxes: SystemBoxes | None) -> None:
        """Take a build of arrays like ``first`` in the place of the one before."""
        self._built, self._kind, self._sizes = built, kind, self._sizes.on_levels(built.problem.levels)
        self._boxes = boxes
        self._place = SimpleNamespace(device=getattr(first, "device", None))  # names the stream of the user's library

    def _build(self, positions: Any, radii: Any, system: Any, boxes: SystemBoxes | None, *, check: bool) -> Self:
        kind, backend, x = coordinates(positions, self.box.ndim, self.backend, upload=self._uploads, least=self.dtype)
        if self.dtype is not None and x.dtype != self.dtype:
            raise TypeError(
                f"positions have dtype {x.dtype}, more than this grid's {self.dtype.name} holds: use "
                "UniformGrid(..., dtype='float64') or convert them yourself."
            )
        return self._run(kind, backend, positions, x, radii, 0, check, boxes, system)

    def _run(
        self, kind: Kind, backend: Backend, given: Any, x: Any, radii: Any, buckets: int, check: bool,
        boxes: SystemBoxes | None = None, system: Any = None,
    ) -> Self:  # fmt: skip
        first, count = (given, given.shape[0]) if x is None else (x.user, x.count)
        checks.few_enough(count, "particles")
        if self._choice.capacity and not check and count > self._choice.capacity:
            raise ValueError(
                f"{count} particles, but room is reserved for {self._choice.capacity}: reserve({count}) first."
            )
        arrays = () if x is None else x.arrays
        sizes = kind_of(radii)
        if sizes is not None and sizes.home == backend.name:
            arrays = (*arrays, sizes.native(radii))
        with kind.scope(first), backend.scope(*arrays):
            token = backend.follow(self._token)
            columns = given if isinstance(given, tuple) else (given,)
            if boxes is not None:
                columns = *columns, system
                system = indices(system, count, boxes.count, backend, upload=self._uploads)
                arrays = *arrays, system
            user_input = Input(kind, given, x, radii, buckets, self._uploads, check, boxes, system)
            built: Build | CpuBuild
            if backend.name == "cpu":
                built = build_on_cpu(self._sizes, user_input, self._choice.choose)
            else:
                rooms, search = self._memory(backend)
                what = "build", radii, check, id(rooms.target(check)), boxes
                # Kernels on a tape read the caller's memory, no converted copies.
                taped = self.backend == backend and x is not None and (radii is None or np.isscalar(radii))
                taped = taped and all(any(backend.same_memory(array, c) for c in columns) for array in arrays)
                again = functools.partial(self._tapes.again, self, what, columns) if taped else None
                built = build_on_gpu(self._sizes.fitted(None), user_input, rooms, search, self._choice.choose, again)
            self._adopt(built, kind, first, boxes)
            self._backend, self._token = backend, token
            backend.mark(*arrays)
        return self._forget_searches()

    def _memory(self, backend: Backend) -> tuple[Rooms, Search]:
        """Return the memory of builds and of queries on a GPU, and what searches for pairs in it."""
        if self._rooms is None or self._search is None or self._rooms.backend != backend:
            self._rooms = Rooms(backend, self._tapes)
            self._search = Search(self._rooms.backend, self._rooms.queries)
        return self._rooms, self._search

    def _forget_searches(self) -> Self:
        """Drop the errors of unchecked searches: they are about former particles."""
        if self._search is not None:
            self._search.forget()
        return self

    def _open(self) -> None:
        if self._closed:
            raise RuntimeError("this grid is closed; make a new one.")

    def ready(self) -> Build | CpuBuild:
        """Return the build; an error if there is none."""
        self._open()
        if self._built is None:
            raise RuntimeError("this grid has no particles yet: call build first.")
        return self._built

    @alone
    def _from_build(self, read: Callable[[Any], Any], *, shows: bool = True) -> Any:
        """Read from the build, on the stream or queue that made it, and return the result as the user's kind."""
        built = self.ready()
        if shows:
            self._tapes.show()
        with self._stream(), built.backend.scope():
            self.follow()
            return self._out(read(built))

    def _built_for_queries(self) -> Any:
        built = self.ready()
        if built.queries is None:
            what = "it has keys, not positions" if built.keyed else "it was made with queries=False"
            raise RuntimeError(f"this grid answers no queries: {what}.")
        return built

    @alone
    def _answer(self, ask: Callable[[Any], Any], given: Any = None) -> Any:
        """Run a query on the stream or queue of the arrays ``given``; return arrays of the user's kind."""
        built = self._built_for_queries()
        arrays = given if isinstance(given, tuple) else (given,)
        local = [(kind, x) for x in arrays if (kind := kind_of(x)) is not None and kind.home == self.backend.name]
        stream = local[0][0].scope(arrays[0]) if local else self._stream()
        natives = [kind.native(x) for kind, x in local] if local else []
        with stream, built.backend.scope(*natives):
            self.follow()
            answer = ask(built.queries)
            built.backend.mark(*natives)
            if isinstance(answer, Pairs):
                fields = [(name, getattr(answer, name)) for name in Pairs.__slots__]
                return Pairs(**{name: self._out(array) for name, array in fields if array is not None})
            if isinstance(answer, tuple):
                return tuple(self._out(x) for x in answer)
            return self._out(answer)

    def _stream(self) -> Any:
        """Enter the stream that the library of the grid's arrays works on, where it is not the backend's own."""
        local = self._kind is not None and self.backend is not None and self._kind.home == self.backend.name
        return self._kind.scope(self._place) if local else NOTHING  # type: ignore[union-attr]  # it is one

    def _out(self, array: Any) -> Any:
        """Return a native array as the user's kind; other things as they are."""
        if not hasattr(array, "strides") or self._kind is None:
            return array
        if self._kind.home != self.backend.name:
            return self._kind.wrap(self.backend.download(array))
        if hasattr(array, "with_queue"):
            array = array.with_queue(self.backend.queue)
        return self._kind.wrap(array)

    def _target(self, out: Any, shape: tuple[int, ...], values: Any) -> Any:
        """Return the native array over the memory of an output, checked: of the backend, or of the host."""
        kind, dtype = kind_of(out), self.ready().problem.dtype
        if kind is None:
            raise TypeError(f"out is of type {type(out).__name__}; give an array of the particles' library.")
        if not (kind is self._kind and self._uploads):  # else the result is copied to the host
            operands.to_backend(kind, out, self.backend, "out", upload=False)
        if tuple(out.shape) != shape or kind.dtype(out) != dtype:
            raise ValueError(
                f"out has shape {tuple(out.shape)} and dtype {kind.dtype(out)}; this call writes {shape} of {dtype}."
            )
        target, other = kind.target(out), kind_of(values)
        if other is not None and other.home == kind.home and operands.overlap(target, other.native(values)):
            raise ValueError("out shares memory with the input; give a separate array.")
        return target

    def _reach(self, radius: Any) -> float:
        number = checks.radius(radius)
        few_images(number, self.box, self._boxes and self._boxes.per)
        return number

    def _cutoff(self, radius: Any) -> Any:
        if not isinstance(radius, (list, tuple)) and not getattr(radius, "shape", ()):
            return self._reach(radius)
        native = self._native(radius, "radius")
        count = self.ready().count
        checks.one_each(tuple(native.shape), count)
        dense = self.backend.empty((max(count, 1),), native.dtype)
        if count:
            self.backend.copy(dense[:count], native)
        return dense if self.backend.name != "cpu" else dense[:count]

    def _points(self, points: Any, system: Any) -> tuple[Coordinates | None, Any]:
        """Return points, None for the particles, and the systems of points; None if they have none."""
        if system is not None and self.systems is None:
            raise TypeError("system is given, but this grid has no systems: make it with systems=.")
        if points is None:
            if system is not None:
                raise TypeError("system is given, but no points: particles have the systems given to build.")
            return None, None
        dtype = self.ready().problem.dtype
        _, _, x = coordinates(points, self.box.ndim, self.backend, upload=self._uploads, least=dtype)
        if x.dtype != dtype:
            raise TypeError(f"points have dtype {x.dtype}, more than the {dtype} of the particles: convert them.")
        if self.systems is None:
            return x, None
        if system is None:
            raise TypeError(f"this grid has {self.systems} systems: give system=, the index of each point's system.")
        return x, indices(system, x.count, self.systems, self.backend, upload=self._uploads, what="point")

    def _native(self, array: Any, what: str) -> Any:
        """Return one of the user's arrays on the grid's backend, in the type of the positions."""
        if array is None:
            return None
        dtype = self.ready().problem.dtype
        kind, given = operands.adopt(array, what)
        native = operands.to_backend(kind, given, self.backend, what, upload=self._uploads)
        checks.narrow_enough(native.dtype, dtype, listed=given is not array, what=what)
        return native if native.dtype == dtype else native.astype(dtype)
