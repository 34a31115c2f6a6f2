# SPDX-License-Identifier: BSD-3-Clause
"""Particles by cell: six ways to build, one way to query."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from particlemesh import checks as common
from particlemesh.arrays import operands
from particlemesh.busy import in_use
from particlemesh.grid import checks
from particlemesh.grid.asking import Asking
from particlemesh.grid.builders import METHODS
from particlemesh.grid.queries import nearest
from particlemesh.grid.queries.pair_function import PairFunction
from particlemesh.grid.results import Pairs


class UniformGrid(Asking):
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
        Particles of a cell in the order of their indices, so that every result is reproducible.
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
    >>> bool((grid.positions == x[grid.order]).all())
    True
    """

    methods: ClassVar[tuple[str, ...]] = tuple(builder.name for builder in METHODS)
    methods_with_radii: ClassVar[tuple[str, ...]] = tuple(builder.name for builder in METHODS if builder.needs_radii)

    # ---- queries --------------------------------------------------------------------------------------

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
        if width is not None:
            width = common.integer(width, "width", 0, 2**31 - 1)
        if capacity is not None:
            capacity = common.integer(capacity, "capacity", 0, 2**62)
        half, check = common.flag(half, "half"), common.flag(check, "check")
        arguments = (half, order, format, quantities, width, capacity, check)
        if check or not isinstance(radius, (int, float)):
            return self._answer(lambda queries: queries.pairs(self._cutoff(radius), *arguments), radius)
        question = (self._reach(radius), *arguments)
        if not self.busy.acquire(False):
            raise in_use(self)
        try:
            built = self._built_for_queries()
            what = ("pairs", *question, built.number)
            with self._stream():  # a repeated search of the same memory is played from a tape
                pairs = self._tapes.again(self, what, (), lambda: self._ask(lambda q: q.pairs(*question)))
            built.queries.asked_again(*question)
            return pairs
        finally:
            self.busy.release()

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

        def ask(queries: Any) -> Any:
            x = self._points(points)
            return queries.neighbours(x, reach, quantities, self._systems_of(system, x))

        return self._answer(ask, points)

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
        k, reach = common.integer(k, "k", 1, nearest.MOST), self._reach(radius)

        def ask(queries: Any) -> Any:
            x = None if points is None else self._points(points)
            return queries.nearest(k, reach, x, self._systems_of(system, x))

        return self._answer(ask)

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
        checks.compares_boxes(self._ready().problem.extents, shape)
        return self._answer(lambda queries: queries.overlaps(shape, quantities))

    def stream(self, radius: float, function: PairFunction, values: Any = None, *, out: Any = None) -> Any:
        """Sum a function of pairs over the neighbours of each particle, without making a list.

        Parameters
        ----------
        radius : number
            Neighbours have distance ≤ ``radius``.
        function : PairFunction
            What to sum.
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
        count = self._ready().count
        function.check_values(None if values is None else tuple(values.shape), count)
        target: Any = None if out is None else self._target(out, (count, function.results), values)
        copies = self.backend.name != "cpu" and isinstance(target, np.ndarray)
        there = None if copies else target
        sums = self._answer(lambda q: q.stream(reach, function, self._native(values, "values"), there), values)
        if copies:
            target[...] = np.asarray(sums)
        return sums if out is None else out
