# SPDX-License-Identifier: BSD-3-Clause
"""A neighbour list in one call, with the interface of molecular simulations."""

from __future__ import annotations

import atexit
import contextlib
import functools
import math
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from particlemesh import backends
from particlemesh import checks as common
from particlemesh.arrays import operands
from particlemesh.arrays.kinds import Kind, allocate, kind_of, recorder_of
from particlemesh.arrays.positions import Coordinates, arrays_given, coordinates, indices
from particlemesh.backends.base import Backend
from particlemesh.backends.cpu import at_most_cores
from particlemesh.box import Box
from particlemesh.checks import alone, through_forks
from particlemesh.grid import checks, forms
from particlemesh.grid.cpu.locate import known_cells
from particlemesh.grid.cpu.queries import CpuQueries, cloud_in, cloud_of
from particlemesh.grid.ends import Cloud, Lattice, ends_on_device, ends_on_host
from particlemesh.grid.queries.cloud import few_images
from particlemesh.grid.queries.clusters import columns, share_of_ball
from particlemesh.grid.queries.device_queries import lists_of
from particlemesh.grid.queries.search import verdict_of
from particlemesh.grid.sparse import close_gaps, crowded, levels_for, list_once, sparse_cells, sparse_on_device, uneven
from particlemesh.grid.systems import SystemBoxes, boxes_of, fitted, widened
from particlemesh.grid.uniform_grid import UniformGrid

# A search on a GPU reads the cells along the last axis in one go: thinner ones there waste less of what it reads.
_THINNER = 4
_IN_COLUMNS = 150  # neighbours from which lists by clusters gain by cells of their own (H200)
_TOGETHER = 256  # particles are compared with all others in less time than open axes are fitted to them
_CELLS_A_PARTICLE, _FEW_CELLS = 8, 4096  # more would hold nothing and take their time and memory all the same
_MOST_GRIDS, _MOST_BYTES, _MOST_KEPT_BOXES = 4, 1 << 28, 20_000  # that are kept for later calls
_grids: dict[Any, tuple[_Grid, int]] = {}  # with bytes; no call uses these, the longest unused one first
_lock = through_forks(threading.Lock())


def neighbour_list(
    quantities: str,
    positions: Any,
    box: Any,
    radius: Any,
    *,
    periodic: Any = None,
    half: bool = False,
    system: Any = None,
    boxes: Any = None,
    most: int | None = None,
    sort_by: str = "i",
    of: Any = None,
    backend: str | None = None,
    threads: int | None = None,
) -> Any:
    """Return all pairs of particles within a distance, as arrays named by letters.

    The letters are those of ASE's ``neighbor_list``, and so is their meaning. The cells are chosen here. To ask again
    and again, or for something else, make a :class:`particlemesh.UniformGrid`.

    Parameters
    ----------
    quantities : str
        Letters of "ijdDSns", each at most once: what to return, and in which order.
    positions : array (N, d), tuple of d arrays (N,), or array (N,) in 1-D
        Positions in the user's length unit, on the CPU or a device. Periodic axes fold what is at most 2**20 boxes
        away; along an open axis they may lie anywhere, whatever the box's length. ``d`` and ``D`` of torch tensors that
        require grad are differentiable by positions, box and boxes (:doc:`/guide/autograd`).
    box : Box, lengths or matrix
        The domain. Lengths or a matrix, whose rows are the lattice vectors, make a box with ``periodic`` axes.
    radius : number or array (N,)
        Pairs with distance ≤ ``radius``. With one number per particle, pairs with distance ≤ the sum of both. It may be
        larger than the box.
    periodic : bool, one for each axis, or bools (S, d), optional
        Which axes repeat, for a box given by its lengths; by default all. With ``system`` also those of each system.
    half : bool
        Each pair once, with ``i < j``, or of a particle and its own image with the first shift that is not zero
        positive. By default every pair is returned from both sides.
    system : int array (N,), optional
        The system of each particle, from 0 on, in any order: particles see those of their own system only.
    boxes : array (S, d) or (S, d, d), optional
        The box of each of S systems, if they differ: lengths, or lattice vectors as rows. Origin and periodic axes are
        those of ``box``.
    most : int, optional
        Keep the nearest neighbours of each particle, so many of them, and sort them by distance. Of equal distances the
        smaller index comes first, then the smaller image. All within the radius are listed before, which takes time
        and memory; :meth:`UniformGrid.nearest` keeps no others, up to 128.
    sort_by : {"i", "j", "d"}
        "i": by the first particle. "d": also by distance for each of them. "j": by the second particle, then the first.
    of : int array (M,) or bool array (N,), optional
        The rows of these particles only: pairs with one of them as ``i``. The CPU searches for no others; a GPU makes
        the whole list first.
    backend : {"cpu", "cuda", "opencl"}, optional
        By default where the positions are. If named, host arrays are copied there and back.
    threads : int, optional
        Most threads on the CPU.

    Returns
    -------
    array or tuple of arrays
        One for each letter, in their order; for a single letter the array itself. They are of the positions' kind:

        - ``i``, ``j`` (P,) int32: the two particles of each pair; ``i`` ascends.
        - ``S`` (P, d) int32: how many times each lattice vector is added to j's position.
        - ``D`` (P, d): ``x[j] - x[i] + S @ matrix``, with the positions as they were given.
        - ``d`` (P,): the length of ``D``.
        - ``n`` (N,) int32: how many pairs each particle has as i: all neighbours, unless ``half``.
        - ``s`` (N + 1,) int64: where the pairs of each particle begin, as in a sparse matrix by rows. The last number
          is P. It is for lists sorted by "i" or "d". :func:`particlemesh.neighbour_matrix` makes a matrix of a list.

    Raises
    ------
    ValueError, TypeError
        If an argument is not allowed, or a position is not finite; the first one is named. If the positions' type does
        not hold the squares of distances within the radius.

    Notes
    -----
    The call waits for the device, because the number of pairs decides the length of the results. Box and cells are
    fitted to the particles. For that, a device finds how far particles reach along open axes. Up to 256 particles, and
    systems that have no more on average, are compared without a fit. Copied to the host are an array of radii, boxes of
    systems, and indices of systems where no boxes are given. Positions are where lattice vectors lean along an open
    axis, or where cells are sparse.

    N particles with k pairs take O(N log N + k), wherever they are. Where particles are clustered, only cells that
    hold particles are kept, and gaps along open axes are closed. Radii of many sizes are put on levels of cells; there
    k counts the pairs within twice the distance. With ``system`` the cells are always dense, as many in each system.

    Examples
    --------
    >>> import numpy as np, particlemesh as pm
    >>> x = np.array([[0.1, 0.5], [0.9, 0.5], [0.5, 0.5]])
    >>> i, j, S, d = pm.neighbour_list("ijSd", x, (1.0, 1.0), 0.25)
    >>> i, j, d.round(12)
    (array([0, 1], dtype=int32), array([1, 0], dtype=int32), array([0.2, 0.2]))
    >>> S.tolist()
    [[-1, 0], [1, 0]]
    >>> pm.neighbour_list("j", x, (1.0, 1.0), 0.25, periodic=False).size
    0
    """
    if type(quantities) is not str or sort_by != "i" or most is not None:
        most = forms.checked(quantities, sort_by, most, half=half)
    listed = forms.needed(quantities, sort_by, most)
    common.flag(half, "half")
    columns = positions if type(positions) is tuple else (positions,)
    kind = kind_of(columns[0]) if columns else None
    recorder = recorder_of(*columns, box, boxes) if kind is not None and kind.records else None
    if recorder is not None:
        options: Any = dict(half=half, system=system, boxes=boxes, backend=backend, threads=threads)
        options |= dict(most=most, sort_by=sort_by, of=of)
        return recorder.neighbour_list(quantities, positions, box, radius, periodic=periodic, **options)
    threads = None if threads is None else at_most_cores(common.threads(threads, backend))
    flags = None if periodic is None or type(periodic) is bool else _of_each(periodic)
    if flags is not None and system is None:
        raise TypeError("periodic has the axes of each system, but system is missing: give each particle's system.")
    domain = _domain(box, periodic if flags is None else flags.any(0).tolist())
    kind, home, x = coordinates(positions, len(domain.periodic), None, upload=False)
    checks.few_enough(x.count, "particles")
    chosen = None if of is None else forms.chosen(of, x.count)
    if chosen is not None and "i" not in listed:
        listed += "i"
    reach, radii = reach_of(radius, x.count, x.dtype)
    place = home if backend is None else backends.current(backend)
    with kind.scope(x.user), home.scope(*x.arrays):
        call = _Call(
            listed, positions, kind, home, place, x, domain, reach, radii, half, threads, backend, flags, chosen
        )  # fmt: skip
        arrays = None
        while arrays is None:  # again, when the error holds no memory any more
            try:
                arrays = call.answer(radius, system, boxes)
            except MemoryError:
                if not drop_grids():
                    raise
    if chosen is not None and not call.narrowed:
        arrays = forms.rows_of(arrays, chosen, x.count)
    if listed != quantities or sort_by != "i" or most is not None:
        arrays = forms.arranged(arrays, quantities, x.count, sort_by, most)
    results = tuple([arrays[letter] for letter in quantities])
    return results if len(results) > 1 else results[0]


class _Grid(UniformGrid):
    """A grid that also builds and lists in one go."""

    _lists: Any = None  # of the last call
    _posted: Any = None  # what its kernels noted, on the way to the host
    _measured: tuple[Any, int] = None, 0  # a build, and the grid's bytes after it

    @alone
    def listed(
        self, positions: Any, radius: Any, half: bool, quantities: str, system: Any = None, boxes: Any = None
    ) -> dict[str, Any] | None:
        """Return rows of pairs on a GPU as `build` and `pairs` do; None if positions are wrong or a cell is too full.

        A repeated call is played as one, and the host waits once. The stream of the positions is entered.
        """
        columns = arrays_given(positions) if boxes is None else (*arrays_given(positions), system)

        def submitted() -> tuple[Any, ...]:
            self._build(positions, None, system, boxes, check=False)
            built: Any = self.ready()
            self._lists = lists_of(built.queries, self._cutoff(radius), half, quantities)
            start, arrays = self._lists.submit(None)
            self._posted = self.backend.post(self._lists.words, built.words)
            return (start, *arrays.values())

        kind, backend = kind_of(columns[0]), self.backend
        if self._rooms is None or kind is None or kind.home != backend.name or not np.isscalar(radius):
            start, *arrays = submitted()
        else:
            new = functools.partial(allocate, backend, what="lists of pairs")
            what = "listed", radius, half, quantities, boxes, id(self._rooms.current)
            with backend.scope(*columns):
                if boxes is not None:  # a build between may have had others
                    self.follow()
                    boxes.on(self._rooms.current, self.dtype)
                start, *arrays = self._tapes.again(self, what, columns, submitted, state=self, new_array=new)
                self._adopt(self._built, kind, columns[0], boxes)
        built: Any = self.ready()
        words, status = self._posted.read()
        wrong = built.status_of(status)
        if wrong.bad or wrong.fullest:
            return None
        pairs = self._lists.conclude(start, self._lists.named(arrays), verdict_of(words)[0])
        return {letter: self._out(array) for letter, array in checks.by_letter(pairs, quantities).items()}

    def starts(self) -> np.ndarray:
        """Return where each cell starts, on the host: nobody gets memory of the grid, so that calls stay played."""
        return np.asarray(self.backend.download(self.ready().cell_start()))

    # What a call leaves, as tapes see it: builds of one kind are in the same memory.

    def key(self) -> tuple[Any, ...]:
        return () if self._search is None else (self._search.learned,)  # which decides the room for pairs

    def now(self) -> Any:
        return self._built, self._lists, self._posted

    def restore(self, state: Any) -> None:
        self._built, self._lists, self._posted = state

    @property
    def nbytes(self) -> int:
        """Bytes of memory the grid holds: replays take no more."""
        if self._measured[0] is not self._built:
            self._measured = self._built, super().nbytes
        return self._measured[1]


@contextlib.contextmanager
def _grid(box: Box, place: Backend, dtype: np.dtype, **options: Any) -> Iterator[_Grid]:
    """Lend a grid to one call: that of an earlier one of the same kind, whose memory and kernels are there."""
    key = (box, place, dtype, *options.items())
    with _lock:
        grid, _ = _grids.pop(key, (None, 0))
    grid = grid or _Grid(box, dtype=dtype, **options)
    try:
        yield grid
    except BaseException:
        grid.close()
        raise
    with _lock:
        _grids[key] = grid, grid.nbytes
        while len(_grids) > _MOST_GRIDS or sum(size for _, size in _grids.values()) > _MOST_BYTES:
            _grids.pop(next(iter(_grids)))[0].close()


def drop_grids() -> bool:
    """Release the memory of all grids that are kept for later calls; return whether there were any."""
    with _lock:
        kept = [*_grids.values()]
        _grids.clear()
    for grid, _ in kept:
        grid.close()
    return bool(kept)


atexit.register(drop_grids)  # before the libraries of devices end


@functools.lru_cache(maxsize=32)
def _made(lengths: tuple[float, ...], periodic: Any) -> Box:
    return Box(lengths, periodic=periodic)


def _domain(box: Any, periodic: Any) -> Box:
    """Return the box; a box of the same lengths is made once."""
    lengths = type(box) is tuple and all(type(length) is float for length in box)
    flags = [periodic] if periodic is None or type(periodic) is bool else periodic
    if lengths and (type(flags) is list or (type(flags) is tuple and all(type(flag) is bool for flag in flags))):
        return _made(box, True if periodic is None else periodic if type(periodic) is not list else tuple(periodic))
    domain = checks.box_of(box, periodic)
    leans = not (domain.orthorhombic or any(domain.periodic))  # then it does not matter where lattice vectors point
    return Box(domain.lengths, domain.origin, domain.periodic) if leans else domain


@dataclass
class _Call:
    """One call: what was given, and what was made of it."""

    quantities: str
    positions: Any
    kind: Kind
    home: Backend
    place: Backend
    x: Coordinates
    box: Box
    reach: float
    radii: np.ndarray | None  # on the host
    half: bool
    threads: int | None
    named: str | None
    flags: np.ndarray | None  # which axes repeat, of each system
    of: np.ndarray | None = None  # indices of the particles that have rows
    narrowed: bool = False  # whether only they were searched for

    def answer(self, radius: Any, system: Any, boxes: Any) -> dict[str, Any]:
        """Return the arrays by their letters."""
        if system is not None or boxes is not None:
            return self.of_systems(radius, system, boxes)
        arrays = self.dense(radius)
        return self.sparse() if arrays is None else arrays

    def dense(self, radius: Any) -> dict[str, Any] | None:
        """Search with a dense grid; None where sparse cells suit better."""
        x, box, thin = self.x, self.box, self.place.name != "cpu"
        opened = x.count > 0 and not all(box.periodic)
        if opened and x.count <= _TOGETHER and (wide := _widened(box)) is not None:
            with contextlib.suppress(ValueError):  # of what is farther away, or wrong, which the fit tells apart
                few_images(self.reach, wide)
                shape = _flat_cells(wide.periodic, tuple(wide.lengths.tolist()), self.reach, x.count, 1, thin)
                return self._in_cells(wide, shape, radius)
        if opened:
            box = _fitted(box, self.cloud(), self.reach)
        if self.radii is not None and x.count and uneven(self.radii, box.ndim):
            return None
        shape, doubtful = _dense_cells(box, self.reach, x.count, thin)
        return self._in_cells(box, shape, radius, doubtful=doubtful or self.radii is not None)

    def _in_cells(
        self, box: Box, shape: tuple[int, ...], radius: Any, *, doubtful: bool = False
    ) -> dict[str, Any] | None:
        """Search with dense cells; None if the particles, where that is ``doubtful``, are too many of a cell."""
        x, place = self.x, self.place
        if self.home.name == place.name == "cpu":
            return self._on_cpu(box, shape, doubtful=doubtful)
        with _grid(box, place, x.dtype, shape=shape, backend=self.named, threads=self.threads) as grid:
            if not doubtful:
                return self._search(grid, radius)
            grid.build(self.positions)
            return None if crowded(grid.starts(), x.count) else self._listed(grid, radius)

    def _search(self, grid: _Grid, radius: Any, **systems: Any) -> dict[str, Any]:
        """Build and search; what is wrong with the particles is read when nothing is left to wait for."""
        if self.place.name != "cpu" and self.x.count:
            # From a checked build errors of positions come first.
            with contextlib.suppress(ValueError, OverflowError, MemoryError):
                arrays = grid.listed(self.positions, radius, self.half, self.quantities, **systems)
                if arrays is not None:
                    return arrays
        grid.build(self.positions, **systems)  # raises what is wrong, or has more room
        return self._listed(grid, radius)

    def _listed(self, grid: UniformGrid, radius: Any) -> dict[str, Any]:
        if self.of is not None and self.place.name == "cpu":
            return self._some(grid.ready().queries)
        pairs = grid.pairs(radius, half=self.half, quantities=self.quantities)
        return checks.by_letter(pairs, self.quantities)

    def _some(self, queries: Any) -> dict[str, Any]:
        """Return the rows of some particles, or of all, on the CPU."""
        self.narrowed = True
        radius = self.reach if self.radii is None else self.radii
        pairs = queries.pairs(radius, half=self.half, quantities=self.quantities, of=self.of)
        return self._wrapped(checks.by_letter(pairs, self.quantities))

    def _on_cpu(self, box: Box, shape: tuple[int, ...], *, doubtful: bool) -> dict[str, Any] | None:
        """Search with dense cells on the CPU, without a grid that stays."""
        cells = known_cells(box, shape, 1, self.x.dtype)
        cloud, status = cloud_in(self.x, cells, self.threads)
        if status.bad:
            raise checks.bad_particles(status, self.positions, None, box)
        if doubtful and crowded(cloud.start, self.x.count):
            return None
        return self._some(CpuQueries(cloud, self.threads))

    def sparse(self) -> dict[str, Any]:
        """Search with cells that hold particles only."""
        x, box, dtype = self.columns, self.box, self.x.dtype
        if not all(np.isfinite(column).all() for column in x):
            box = Box(box.matrix, box.origin)  # an open axis has no length yet
        elif not all(box.periodic):
            x = close_gaps(x, box, self.reach)
            box = _fitted(box, Cloud(ends_on_host(x, None, 1), dtype, lambda: x, None), self.reach)
        size, levels = (self.reach, 1) if self.radii is None else levels_for(self.radii)
        few_images(self.reach, box)
        made = sparse_cells(x, self.radii, box, size, levels, dtype, self.threads)
        if made.status.bad:
            raise checks.bad_particles(made.status, self.positions, None, self.box)
        radius = self.reach if self.radii is None else self.radii.astype(dtype)
        options: Any = dict(half=self.half, quantities=self.quantities)
        if self.place.name == "cpu":
            cloud = cloud_of(made.cells, made.folded, made.turns, made.start, made.order, None, self.threads)
            queries = CpuQueries(cloud._replace(occupied=made.occupied), self.threads)
            if levels == 1 and self.of is not None:
                return self._some(queries)
            return self._wrapped(list_once(made, functools.partial(queries.pairs, radius), **options))
        with self.place.scope():
            return self._wrapped(sparse_on_device(self.place, made, box, radius, **options))

    def of_systems(self, radius: Any, system: Any, boxes: Any) -> dict[str, Any]:
        """Search particles of several systems with dense cells."""
        if system is None:
            raise TypeError("boxes is given, but not system: give the index of each particle's system.")
        mixed = self.flags is not None and not self.flags.all()
        fits = self.x.count and (mixed or not all(self.box.periodic))

        def ids() -> np.ndarray:
            kind, array = operands.adopt(system, "system")
            with kind.scope(array):
                return self._host(array)

        given: tuple[int, ...]  # their number follows from the indices, if there are no boxes
        given = self._count(ids()) if boxes is None else operands.adopt(boxes, "boxes")[1].shape[:1]
        count = given[0] if given else 1
        if self.flags is not None and self.flags.shape != (count, self.box.ndim):
            raise ValueError(f"periodic has shape {self.flags.shape}; ({count}, {self.box.ndim}) is needed.")
        domains = self._domains(boxes, count)
        if fits and not mixed and self.x.count <= _TOGETHER * count and domains.wide is not None:
            arrays = self._together(radius, system, domains.wide)
            if arrays is not None:
                return arrays
        if fits:
            domains = fitted(domains, self.cloud(system, count, ids), self.reach, self.flags)
        most = (_CELLS_A_PARTICLE * self.x.count + _FEW_CELLS) / count
        thin = self.place.name != "cpu"
        shape = _cells(domains.thickness, self.reach, max(most, 1.0), self.x.count / count, thin=thin)
        options: Any = dict(shape=shape, systems=count, backend=self.named, threads=self.threads)
        with _grid(self.box, self.place, self.x.dtype, **options) as grid:
            return self._search(grid, radius, system=system, boxes=domains)

    def _together(self, radius: Any, system: Any, wide: SystemBoxes) -> dict[str, Any] | None:
        """Search with one cell along open axes; None if too many particles share one, or are farther away or wrong."""
        count = self.x.count
        thin = self.place.name != "cpu"
        shape = _flat_cells(wide.box.periodic, wide.thickness, self.reach, count, wide.count, thin)
        options: Any = dict(shape=shape, systems=wide.count, backend=self.named, threads=self.threads)
        with _grid(self.box, self.place, self.x.dtype, **options) as grid, contextlib.suppress(ValueError):
            grid.build(self.positions, check=False, system=system, boxes=wide)
            lengths = np.diff(grid.starts()).astype(np.float64)
            if float(lengths @ lengths) <= _TOGETHER * count:
                arrays, status = self._listed(grid, radius), grid.status
                if not (status.bad or status.fullest):
                    return arrays
        return None

    def _count(self, ids: np.ndarray) -> tuple[int, ...]:
        return _systems(ids) if self.flags is None else self.flags.shape[:1]

    def _domains(self, boxes: Any, count: int) -> SystemBoxes:
        """Return the boxes of systems. Those of an earlier call have their inverses, also on the device."""
        if boxes is None:
            return _boxes_of(self.box, count, None)
        if count > _MOST_KEPT_BOXES:
            return _straight(boxes_of(boxes, count, self.box, None))
        kind, array = operands.adopt(boxes, "boxes")
        with kind.scope(array):
            host = self._host(array)
        return _boxes_of(self.box, count, (host.shape, host.dtype.str, host.tobytes()))

    def cloud(self, system: Any = None, count: int = 1, ids: Callable[[], np.ndarray] | None = None) -> Cloud:
        """Return how far the particles reach, in each of ``count`` systems if there are several."""
        x, ends, on_host = self.x, None, self.home.name == "cpu"
        if not on_host:
            mine = None if system is None else indices(system, x.count, count, self.home, upload=False)
            ends = ends_on_device(x, self.home, mine, count)
        if ends is None:
            host = None if ids is None else indices(ids(), x.count, count, backends.current("cpu"), upload=False)
            ends = ends_on_host(self.columns, host, count)
        return Cloud(ends, x.dtype, lambda: self.columns, ids)

    @functools.cached_property
    def columns(self) -> list[np.ndarray]:
        """The coordinates along each axis on the host."""
        return _on_host(self.x, self.home)

    def _host(self, array: Any) -> np.ndarray:
        kind = kind_of(array)
        return np.asarray(array) if kind is None or kind.home == "cpu" else self.place.download(kind.native(array))

    def _wrapped(self, arrays: dict[str, Any]) -> dict[str, Any]:
        """Return arrays as the user's kind."""
        here, wrap = self.kind.home == self.place.name, self.kind.wrap
        return {letter: wrap(array if here else self.place.download(array)) for letter, array in arrays.items()}


@functools.lru_cache(maxsize=4)
def _boxes_of(box: Box, count: int, given: tuple[tuple[int, ...], str, bytes] | None) -> SystemBoxes:
    if given is None:
        return boxes_of(None, count, box, None)
    shape, dtype, numbers = given
    return _straight(boxes_of(np.frombuffer(numbers, dtype).reshape(shape), count, box, None))


def _straight(boxes: SystemBoxes) -> SystemBoxes:
    """Return boxes with no lattice vector that leans, if no axis repeats: then it does not matter where they point."""
    if any(boxes.box.periodic) or boxes.orthorhombic.all():
        return boxes
    lengths = np.linalg.norm(boxes.rows, axis=2)
    return SystemBoxes(boxes.box, lengths[:, None] * np.eye(boxes.box.ndim), boxes.origins)


def _of_each(periodic: Any) -> np.ndarray | None:
    """Return which axes of each system repeat (S, d), if that is what is given."""
    if np.ndim(periodic) != 2:
        return None
    kind, array = operands.adopt(periodic, "periodic")
    backend = kind.backend(array)
    with kind.scope(array), backend.scope(kind.native(array)):
        flags = np.asarray(backend.download(kind.native(array)))
    if not len(flags):
        raise ValueError("periodic has the axes of no system: give a row of bools for each.")
    if flags.dtype != bool:
        raise TypeError(f"periodic has dtype {flags.dtype}; give bools, one for each system and axis.")
    return flags


def reach_of(radius: Any, count: int, dtype: np.dtype) -> tuple[float, np.ndarray | None]:
    """Return how far apart two particles may be at most, and the radii on the host if each has its own."""
    if np.isscalar(radius) or not getattr(radius, "shape", True):
        return checks.radius(radius), None
    kind, array = operands.adopt(radius, "radius")
    checks.real_numbers(kind.dtype(array), "radius")
    native = kind.native(array)
    checks.one_each(tuple(native.shape), count)
    checks.narrow_enough(np.dtype(native.dtype), dtype, listed=array is not radius, what="radius")
    if not count:
        return 0.0, np.empty(0, dtype)
    home = kind.backend(array)
    with kind.scope(array), home.scope(native):
        radii = home.download(native)
    wrong = np.flatnonzero(~((radii >= 0) & (radii < math.inf)))
    if len(wrong):
        raise ValueError(
            f"{len(wrong)} radii are negative or not finite; the first is that of particle {wrong[0]}, "
            f"{radii[wrong[0]]}."
        )
    return 2.0 * float(radii.max()), radii.astype(dtype)


def _on_host(x: Coordinates, home: Backend) -> list[np.ndarray]:
    """Return the coordinates along each axis; waits for the device."""
    here = {id(native): home.download(native) for native in x.arrays}
    columns = [here[id(native)] for native in x.arrays]
    return [column if column.ndim == 1 else column[:, axis] for axis, column in enumerate(columns)]


def _fitted(box: Box, cloud: Cloud, reach: float) -> Box:
    """Return the box with its open axes as long as the particles take."""
    periodic = np.array(box.periodic)
    fit = _lattice(box).fit(cloud, reach, periodic[:, None], periodic)
    return _fitted_box(box, *map(tuple, fit[:, :, 0].tolist()))


@functools.lru_cache(maxsize=64)
def _lattice(box: Box) -> Lattice:
    return Lattice(box.origin[:, None], box.inverse[:, :, None])


@functools.lru_cache(maxsize=64)
def _fitted_box(box: Box, lengths: tuple[float, ...], begins: tuple[float, ...]) -> Box:
    return Box(box.matrix * np.array(lengths)[:, None], box.origin + np.array(begins) @ box.matrix, box.periodic)


@functools.lru_cache(maxsize=64)
def _widened(box: Box) -> Box | None:
    wide = widened(box.matrix[None], box.origin[None], np.array(box.periodic))
    return None if wide is None else Box(wide[0][0], wide[1][0], box.periodic)


@functools.lru_cache(maxsize=64)
def _flat_cells(
    periodic: tuple[bool, ...], thickness: tuple[float, ...], reach: float, count: int, systems: int, thin: bool
) -> tuple[int, ...]:
    """Return cells of each of some systems with ``count`` particles in all, one along each open axis."""
    some = tuple(t if turns else min(reach, 1e30) or 1.0 for t, turns in zip(thickness, periodic, strict=True))
    most = max((_CELLS_A_PARTICLE * count + _FEW_CELLS) / systems, 1.0)
    shape = _cells(some, reach, most, count / systems, thin=thin)
    return tuple(n if turns else 1 for n, turns in zip(shape, periodic, strict=True))


@functools.lru_cache(maxsize=64)
def _dense_cells(box: Box, reach: float, count: int, thin: bool) -> tuple[tuple[int, ...], bool]:
    """Return cells of a dense grid, and whether they are so large that they may hold all that is clustered."""
    few_images(reach, box)
    thickness = tuple((1 / np.linalg.norm(box.inverse, axis=1)).tolist())
    shape = _cells(thickness, reach, _CELLS_A_PARTICLE * count + _FEW_CELLS, count, thin=thin)
    return shape, any(
        n > 2 * m * max(reach, 1e-300 * max(1.0, *thickness)) for n, m in zip(thickness, shape, strict=True)
    )


def _systems(ids: np.ndarray) -> tuple[int]:
    """Return how many systems there are, if the last one has particles."""
    numbers = ids.size and ids.dtype.kind in "iu"
    return (max(1, int(ids.max()) + 1) if numbers else 1,)


@functools.lru_cache(maxsize=64)
def _cells(thick: tuple[float, ...], reach: float, most: float, count: float, *, thin: bool) -> tuple[int, ...]:
    """Return cells along axes of some thickness: as thick as the reach, unless these are more than ``most``.

    With ``thin`` they are as a GPU's search reads ``count`` particles fastest.
    """
    thickness, ndim = np.array(thick), len(thick)
    sizes = np.full(ndim, reach)
    if thin:
        neighbours = count * share_of_ball(reach / thickness)
        sizes[-1] /= _THINNER
        if neighbours >= _IN_COLUMNS:
            sizes = reach * columns(neighbours, ndim)
    # Cells of one size along all axes would be so many if they were of this size: much smaller ones need no trial.
    sizes = np.maximum(sizes, (thickness ** (1 / ndim)).prod() / most ** (1 / ndim) / _THINNER)
    while True:
        cells = tuple(max(1, int(min(n, 2.0**40))) for n in thickness / sizes * (1 + 1e-12))
        excess = math.prod(cells) / most
        if excess <= 1:
            return cells
        sizes = sizes * max(excess ** (1 / ndim), 1.02)


neighbor_list = neighbour_list  # as ASE, vesin and American English spell it
