# SPDX-License-Identifier: BSD-3-Clause
"""The queries of a grid on the CPU: lists and counts of neighbours, the nearest ones, overlaps, sums.

Distances are those of positions inside the box, computed in their type: ``(x_j - x_i) + shift``, in that order, so
that both ends of a pair agree. Lists take two passes: the first counts, so that no list is too short, the second
writes.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from particlemesh.arrays.positions import Coordinates
from particlemesh.backends.cpu import PARTICLES_PER_THREAD, STOPPED, ranges, run, shares_of, threads_for
from particlemesh.backends.jit import compiled, loop_with
from particlemesh.backends.memory import check_room, empty
from particlemesh.backends.simd import acquire, fetch_add, unowned
from particlemesh.grid import checks
from particlemesh.grid.cpu.locate import CpuCells, level_cells, locate, locate_shares
from particlemesh.grid.cpu.search import (
    DONE,
    PAD,
    POINTS,
    UNIFORM,
    CpuCloud,
    PairRows,
    Query,
    Same,
    Search,
    begin_search,
    gather,
    group_of,
    images_of,
    images_within,
    list_few,
    most_steps,
    no_rows,
    room_of,
    rooms_for,
    search_for,
    search_in,
    search_of,
    search_run,
    squared,
    threads_of,
    width_for,
)
from particlemesh.grid.queries import same_bits
from particlemesh.grid.queries.pair_function import PairFunction
from particlemesh.grid.results import Pairs
from particlemesh.grid.sparse import numbers_of, uneven
from particlemesh.particles.locate import columns_of
from particlemesh.sorting.cpu import SHARE, counting_sort, shares_for, sort_few

_FEW = 10**6  # pairs whose memory needs no check


_GROWTH = 1.5  # of the radius: three times the volume


class CpuQueries:
    """The queries of one build, in NumPy arrays."""

    def __init__(self, cloud: CpuCloud, threads: int | None = None, *, scattered: bool = False) -> None:
        self.cloud, self.threads = cloud, threads
        self.scattered = scattered  # the grid's order is not that of the cells' numbers, in which searches go

    def pairs(
        self, radius: ArrayLike, half: bool, order: str = "input", form: str = "csr", quantities: str = "j",
        width: int | None = None, capacity: int | None = None, check: bool = True, of: np.ndarray | None = None,
    ) -> Pairs:  # fmt: skip
        """Return the neighbours of each particle; see `UniformGrid.pairs`. Searches wait, whatever ``check`` is.

        ``of`` are the indices of particles: the rows of others are empty.
        """
        cloud, uniform, order = self._sized(radius, order)
        letters = quantities + ("i" if form == "coo" and "i" not in quantities else "")
        # A list of pairs without rows is made from each pair once, wherever its particles are in the caller's order.
        named, by_place = half and form == "coo" and order == "input", order == "grid"
        search = search_of(
            cloud, names_of(cloud, "grid" if named else order), uniform, forward=half and (by_place or named)
        )
        query = _own_query(cloud, search, half=half, radius=uniform)
        if of is not None:
            query = query._replace(shares=_shares_with(cloud, of))
        return self._list(
            cloud, search, query, cloud.turns, len(cloud.order) if by_place or named else cloud.particles, letters,
            form, ordered=by_place or named, named=named, width=width,
        )  # fmt: skip

    def count(self, radius: ArrayLike, order: str, check: bool) -> np.ndarray:
        """Return the number of neighbours of each particle, (rows,) int32, images included."""
        cloud, uniform, order = self._sized(radius, order)
        search = search_of(cloud, names_of(cloud, order), uniform)
        counts = np.zeros(len(cloud.order) if order == "grid" else cloud.particles, np.int64)
        query = _own_query(cloud, search, half=False, radius=uniform)
        if (least := _least_pairs(cloud, search, query)) > checks.MOST_COUNTED:
            raise checks.too_many(least, at_least=True)
        search_for(query, search, self._threads(), counts=counts)
        return _counted(counts)

    def neighbours(self, radius: float, quantities: str, points: Coordinates, system: Any) -> Pairs:
        """Return the particles near each point as a csr list. Points have a ``system`` each, if particles have one."""
        cloud = self.cloud
        search = search_of(cloud, names_of(cloud, "input"), radius, points=True)
        query, turned = self._at_points(points.arrays, system)
        return self._list(cloud, search, query, turned, points.count, quantities, "csr")

    def nearest(self, k: int, radius: float, points: Coordinates | None, system: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return the k nearest particles of each particle, or of each point, and their distances.

        A particle is not its own neighbour, but its images are. Each image counts separately. Equal squared distances
        go by index. Rows with fewer than k neighbours end with index -1 and infinite distance.
        """
        cloud = self.cloud
        search = search_of(cloud, names_of(cloud, "input"), radius, points=points is not None)
        if points is None:
            query, rows = _own_query(cloud, search, half=False, radius=radius, k=k), cloud.particles
        else:
            query, _ = self._at_points(points.arrays, system)
            rows = points.count
        return nearest(cloud, search, query, k, rows, threads_for(self.threads, rows))

    def overlaps(self, shape: str | None, quantities: str) -> Pairs:
        """Return the pairs of particles that overlap as a coo list, each once, ``i < j``."""
        cloud = self.cloud
        sizes = np.empty((0, 0)) if cloud.sizes is None else cloud.sizes
        if checks.compares_boxes(len(sizes), shape) and len(sizes) == 1:
            cubes = np.zeros((3, sizes.shape[1]), sizes.dtype)
            cubes[cloud.cells.missing :] = sizes
            cloud = cloud._replace(sizes=cubes)
        search = search_of(cloud, names_of(cloud, "grid"), None, forward=True)
        query, rows = _own_query(cloud, search, half=True), len(cloud.order)
        return self._list(cloud, search, query, cloud.turns, rows, quantities, "coo", ordered=True, named=True)

    def stream(self, radius: float, function: PairFunction, values: Any, out: Any, *, exact: bool) -> np.ndarray:
        """Return the sums (N, results) of a pair function over each particle's neighbours; exact ones in any order."""
        cloud = self.cloud
        search = search_of(cloud, names_of(cloud, "grid"), radius)
        query = _own_query(cloud, search, half=False, radius=radius)
        made = functools.partial(sums, cloud, search, query, threads=self._threads())
        if exact:
            totals = same_bits.on_cpu(made, function, values, cloud.particles, search.x.dtype)
        else:
            totals = made(function, values)
        if out is None:
            return totals
        out[...] = totals
        return out

    def asked_again(self, *question: Any) -> None:
        """Searches wait."""

    def _threads(self) -> int:
        return threads_for(self.threads, len(self.cloud.order))

    def _sized(self, radius: ArrayLike, order: str) -> tuple[CpuCloud, float | None, str]:
        """Return a cloud with the sizes that a search wants, the radius if it is one number, and how it is numbered."""
        cloud = self.cloud
        if order == "grid" and self.scattered:
            raise ValueError("order='grid' on the CPU needs curve='linear': searches go along the cells' numbers.")
        if isinstance(radius, float) or np.ndim(radius) == 0:
            return cloud, float(radius), order  # type: ignore[arg-type]  # one number
        given = np.asarray(radius)[cloud.order]
        wrong = cloud.order[~((given >= 0) & (given < np.inf))]
        if len(wrong):
            raise ValueError(
                f"{len(wrong)} radii are negative or not finite; the first is that of particle {wrong.min()}."
            )
        sizes = sorted_sizes(radius, cloud.order, cloud.particles, cloud.cells)
        same = sizes is not None and cloud.sizes is not None and np.array_equal(sizes, cloud.sizes)
        cloud = cloud._replace(sizes=sizes, by_sizes=same)
        return (cloud, None, order) if cloud.occupied.size else _on_levels(cloud, order, self._threads())

    def _at_points(self, x: Sequence[np.ndarray], system: np.ndarray | None) -> tuple[Query, np.ndarray | None]:
        """Return points as a query in the order of cells, and their turns.

        Raises
        ------
        ValueError
            If a point is not finite; the first one is named.
        """
        cells, threads = self.cloud.cells, threads_for(self.threads, len(x[0]))
        everywhere, periodic = cells.dtype.type(np.inf), np.array(cells.periodic, bool)

        anywhere = cells._replace(
            levels=1,
            lower=np.where(periodic, cells.lower, -everywhere),
            upper=np.where(periodic, cells.upper, everywhere),
        )
        keys, folded, turns, status = locate(x, None, anywhere, threads, system)
        checks.good_points(status.not_finite, status.outside, status.first_bad)
        systems = len(cells.origin)
        ordered = counting_sort(keys, anywhere.total * systems, threads)
        order = ordered.order[: int(ordered.start[-1])]
        none, images = np.empty((0, 3), np.int64), np.zeros(systems + 1, np.int64)
        query = Query(
            sorted_points(folded, order, threads), np.empty((0, PAD), cells.dtype),
            np.concatenate([order, np.zeros(PAD, np.int32)]), 0, 0, none, none.astype(cells.dtype), images,
            shares_of(ordered.start[:: anywhere.total], POINTS),
        )  # fmt: skip
        return query, turns

    def _list(
        self, cloud: CpuCloud, search: Search, query: Query, turned: np.ndarray | None, rows: int, quantities: str,
        form: str, *, ordered: bool = False, named: bool = False, width: int | None = None,
    ) -> Pairs:  # fmt: skip
        """Count, make room and write; ``ordered``: numbers are places, not the caller's indices."""
        real, axes, none = search.x.dtype, 3 - cloud.cells.missing, np.empty((0, 3), np.int32)
        threads = threads_for(self.threads, len(query.points[0]) - PAD)
        named_by: dict[str, Any] = {
            "turns": none if cloud.turns is None else cloud.turns, "turned": none if turned is None else turned,
            "order": cloud.order if ordered else np.empty(0, np.int32), "named": int(named),
        }  # fmt: skip
        few = form != "dense" and most_steps(query, search) < _FEW
        if few and min(threads, len(query.shares)) <= 1:  # no signal waits for long, and no memory needs a check
            places = [PairRows._fields.index(checks.FIELDS[letter]) for letter in quantities]
            want = sum([1 << place for place in places])
            lists = list_few(query, search, rows, want, axes, *named_by.values(), width_for(real))
            made = {PairRows._fields[place]: lists[place] for place in places}
            return Pairs(start=lists[0] if form == "csr" else None, **made)
        if least := int(np.diff(query.shares[:, :2]).sum()) * _least_pairs(cloud, search, query):
            least *= checks.bytes_per_pair(quantities, axes, real.itemsize)
            check_room(least, f"pairs within {float(search.radius):g} (a lower bound)")
        counts, start = np.zeros(rows, np.int64), np.zeros(rows + 1, np.int64)
        search_for(query, search, threads, counts=counts)
        if form == "dense":
            counts = _counted(counts)
            longest = int(counts.max(initial=0))
            checks.wide_enough(longest, width)
            columns = longest if width is None else int(width)
            start[:] = np.arange(rows + 1) * columns
        else:
            np.cumsum(counts, out=start[1:])
        total = int(start[-1])
        made = {}
        for field, (shape, dtype) in checks.array_types(quantities, (total,), axes, real).items():
            made[field] = array = np.empty(shape, dtype) if total < _FEW else empty(shape, dtype, f"{total:,} pairs")
            if form == "dense":  # where nothing is written
                array.fill(-1 if field in "ij" else 0)
        if total and quantities:
            filled = no_rows(real, axes)._replace(start=start, **named_by, **made)
            search_for(query, search, threads, rows=filled)
        if form == "dense":
            tables = {field: array.reshape(rows, columns, *array.shape[1:]) for field, array in made.items()}
            return Pairs(count=counts, **tables)
        return Pairs(start=start if form == "csr" else None, **made)


def names_of(cloud: CpuCloud, order: str) -> np.ndarray:
    """Return what places are called: the caller's indices, or places."""
    if order == "grid":
        return np.arange(len(cloud.order) + PAD, dtype=np.int32)
    return np.concatenate([cloud.order, np.zeros(PAD, np.int32)])


@functools.lru_cache(maxsize=8)
def _shares_of_one(count: int) -> np.ndarray:
    """Return the shares of the particles of one box."""
    return shares_of(np.array([0, count]), POINTS)


def _shares_with(cloud: CpuCloud, of: np.ndarray) -> np.ndarray:
    """Return the shares of some particles: runs of places of one system."""
    chosen = np.zeros(cloud.particles, bool)
    chosen[of] = True
    places = np.flatnonzero(chosen[cloud.order])
    system = np.searchsorted(cloud.start[:: cloud.cells.total], places, "right") - 1
    begins = (np.diff(places, prepend=-2) != 1) | (np.diff(system, prepend=-1) != 0) | (places % POINTS == 0)
    first = np.flatnonzero(begins)
    ends = places[np.append(first[1:], len(places)) - 1] + 1 if len(places) else places
    return np.ascontiguousarray(np.stack([places[first], ends, system[first]], 1))


def _own_query(
    cloud: CpuCloud, search: Search, *, half: bool, radius: float | None = None, k: int | None = None
) -> Query:
    """Return particles as points that look for neighbours, or for the ``k`` nearest.

    With ``radius``, that of the search, what another search within it made is taken.
    """
    one = len(cloud.cells.origin) == 1
    if one and radius is not None:
        images = images_within(Same(cloud.cells), radius, half, k)
    else:
        images = images_of(search, half=half, k=k)
    shares = _shares_of_one(len(cloud.order)) if one else shares_of(cloud.start[:: cloud.cells.total], POINTS)
    return Query(cloud.points, search.sizes, search.numbers, 1, int(half), *images, shares)


def _least_pairs(cloud: CpuCloud, search: Search, query: Query) -> int:
    """Return how many pairs a row has at least."""
    if search.criterion != UNIFORM or search.spans < 1 or len(search.rows) > 1:
        return 0  # some particles may have none
    images = checks.least_images(float(search.radius), search.rows[0], search.periodic.tolist())
    return images * (len(cloud.order) - query.is_particle) // (1 + query.half)


def _counted(counts: np.ndarray) -> np.ndarray:
    """Return counts as int32."""
    if (longest := int(counts.max(initial=0))) > checks.MOST_COUNTED:
        raise checks.too_many(longest)
    return counts.astype(np.int32)


def _on_levels(cloud: CpuCloud, order: str, threads: int) -> tuple[CpuCloud, None, str]:
    """Return a cloud for searches with its own radii, and the order that says how its particles are numbered.

    One large radius would set how far all particles of a level search. Where radii are that uneven, the build may
    not have put particles on levels by them. Then this is done here: O(N), far less than such a search.
    """
    cells, n = cloud.cells, len(cloud.order)
    if len(cells.origin) > 1:
        return cloud, None, order  # levels are those of the build
    assert cloud.sizes is not None
    radii = cloud.sizes[0, :n]
    levels = checks.levels_of(cells.shape, float(cells.edge), 2 * float(radii.max(initial=0)))
    if levels == 1 or not uneven(radii, 3 - cells.missing) or (cloud.by_sizes and cells.levels >= levels):
        return cloud, None, order
    cells = cells._replace(levels=levels)
    placed = counting_sort(numbers_of(cloud.points[:, :n].T, radii, cells), cells.total, threads)
    again = np.concatenate([placed.order, np.arange(n, n + PAD, dtype=placed.order.dtype)])
    points, sizes = (np.take(array, again, axis=1) for array in (cloud.points, cloud.sizes))  # contiguous
    cloud = cloud._replace(cells=cells, start=placed.start, points=points, sizes=sizes, by_sizes=True)
    if order != "grid":
        return cloud._replace(order=cloud.order[placed.order]), None, order
    # Its input are the places of the grid.
    turns = None if cloud.turns is None else cloud.turns[cloud.order]
    return cloud._replace(order=placed.order, particles=n, turns=turns), None, "input"


@compiled
def _gather(folded, order, points, counter):
    """Copy shares of positions to their places."""
    for begin, end in ranges(counter, order.size, SHARE):
        for k in range(begin, end):
            i = order[k]
            points[0, k], points[1, k], points[2, k] = folded[i, 0], folded[i, 1], folded[i, 2]


def sorted_points(folded: np.ndarray, order: np.ndarray, threads: int | None = None) -> np.ndarray:
    """Return positions (count, 3) in an order (n,) as rows for axes, (3, n + PAD), zero behind."""
    points = np.empty((3, len(order) + PAD), folded.dtype)
    used = shares_for(len(order), threads_for(threads, len(order)))
    run(_gather, used, folded, order, points)
    points[:, len(order) :] = 0
    return points


def sorted_sizes(sizes: ArrayLike | None, order: np.ndarray, count: int, cells: CpuCells) -> np.ndarray | None:
    """Return the radii (1, n + PAD) or half extents (3, n + PAD) of ``count`` particles in an order (n,)."""
    if sizes is None:
        return None
    given = np.asarray(sizes, cells.dtype)
    result = np.zeros((1 if given.ndim < 2 else 3, len(order) + PAD), cells.dtype)
    if given.ndim < 2:
        result[0, : len(order)] = np.broadcast_to(given, (count,))[order]
    else:
        result[cells.missing :, : len(order)] = given[order].T
    return result


@compiled
def _place_few(address, stride, count, cells):
    """Locate and order few particles by one thread, and copy them in this order."""
    real, shares = cells.origin.dtype, np.array([[0, count, 0]])
    keys, folded, turns = np.empty(count, np.int32), np.empty((count, 3), real), np.zeros((count, 3), np.int32)
    faults = np.zeros((1, 5), np.int64)
    faults[0, 3] = -1
    none = np.empty(0, real)
    locate_shares(address, stride, shares, none, cells, keys, folded, turns, faults, np.zeros(2, np.int64))
    start, order, _ = sort_few(keys, level_cells(cells, cells.levels)[0])
    order = order[: start[-1]]
    points = np.zeros((3, order.size + PAD), real)
    _gather(folded, order, points, np.zeros(2, np.int64))
    return start, order, points, turns, faults[0]


def cloud_in(x: Coordinates, cells: CpuCells, threads: int | None) -> tuple[CpuCloud, checks.GridStatus]:
    """Return a cloud of particles without radii in one box, and what is wrong with them.

    Of few particles all is done in one compiled call: Python's part would take most of the time.
    """
    if x.count > PARTICLES_PER_THREAD:
        keys, folded, turns, status = locate(x.arrays, None, cells, threads)
        ordered = counting_sort(keys, cells.total, threads)
        return cloud_of(cells, folded, turns, ordered.start, ordered.order, None, threads), status
    columns, address, stride = columns_of(x.arrays)
    start, order, points, turns, faults = _place_few(address, stride, x.count, cells)
    del columns  # until here the addresses are valid
    not_finite, outside, bad_radius, first, far = faults.tolist()
    cloud = CpuCloud(cells, start, order, points, x.count, turns if far else None, None)
    return cloud, checks.GridStatus(x.count, not_finite, outside, bad_radius, first)


def cloud_of(
    cells: CpuCells, folded: np.ndarray, turns: np.ndarray | None, start: np.ndarray, order: np.ndarray,
    sizes: ArrayLike | None = None, threads: int | None = None,
) -> CpuCloud:  # fmt: skip
    """Return a cloud of located and sorted particles.

    ``order`` from ``start[-1]`` on is ignored. ``sizes`` are radii or half extents in the caller's order.
    """
    order = order[: int(start[-1])]
    points = sorted_points(folded, order, threads)
    extents = sorted_sizes(sizes, order, len(folded), cells)
    return CpuCloud(cells, start, order, points, len(folded), turns, extents)


# ---- the nearest particles of each particle or point ----------------------------------------------------------------


# A first radius is guessed from how many particles the cell holds, and grows until it holds enough of them.


@compiled(forceinline=True)
def _insert(squares, indices, row, length, square, index):
    """Put a neighbour into a sorted list, by square, then index; return the new length."""
    at = length
    if length == squares.shape[1]:
        at -= 1
        if square > squares[row, at] or (square == squares[row, at] and index >= indices[row, at]):
            return length
    while at > 0 and (
        square < squares[row, at - 1] or (square == squares[row, at - 1] and index < indices[row, at - 1])
    ):
        squares[row, at], indices[row, at] = squares[row, at - 1], indices[row, at - 1]
        at -= 1
    squares[row, at], indices[row, at] = square, index
    return min(length + 1, squares.shape[1])


@compiled
def _nearest_rows(query, systems, guess, squares, indices, rooms, width, counter):
    """List the nearest particles of shares of points until no share is left."""
    query, systems, squares, indices = unowned(query), unowned(systems), unowned(squares), unowned(indices)
    room = unowned(room_of(rooms, fetch_add(counter, 1, 1)))
    low, high, extent = unowned(room.bounds[0]), unowned(room.bounds[1]), unowned(room.bounds[2])
    bx, by, bz = unowned(room.real[0]), unowned(room.real[1]), unowned(room.real[2])
    points, sizes, runs, shifts, hits, held = query.points, query.sizes, room.runs, room.shifts, room.hits, room.place
    called, numbers, most = room.called, query.numbers, squares.shape[1]
    real = squares.dtype.type
    scales, mean, power = guess
    while True:  # as in `search_rows`
        share = fetch_add(counter, 0, 1)
        if share >= query.shares.shape[0]:
            return
        k, last, s = query.shares[share, 0], query.shares[share, 1], query.shares[share, 2]
        search, scale = unowned(search_in(systems, s)), scales[s]
        while k < last:
            if acquire(counter, 0) >= STOPPED:
                return
            members = group_of(points, k, last, search, low, high)
            cell = 0
            for a in range(3):
                size = search.shape[0, a]
                place = min(max(low[a] * real(size), real(0)), real(size - 1))
                cell = cell * size + np.int64(place)
            radius = scale * (real(search.start[cell + 1] - search.start[cell]) + mean) ** power
            while True:
                radius = min(search.radius, radius)
                begin_search(search, k, members, sizes, room.state, extent)
                extent[0] = radius
                reach = search.square if radius == search.radius else radius * radius
                held[:members] = 0
                while room.state[DONE] == 0:
                    run_count = gather(
                        search, k, low, high, extent, room.state, room.reach, room.real, bx, by, bz, called, runs,
                        shifts, width,
                    )  # fmt: skip
                    for n in range(members):
                        x, y, z = points[0, k + n], points[1, k + n], points[2, k + n]
                        number = np.int64(numbers[k + n])
                        mine = number if query.is_particle else np.int64(-1)
                        for r in range(run_count):
                            bound = min(reach, squares[number, most - 1]) if held[n] == most else reach
                            got = search_run(
                                bx, by, bz, bx, bx, bx, called, runs[r, 0], runs[r + 1, 0], x, y, z, sizes, k + n,
                                shifts, r, UNIFORM, bound, mine, -1, hits, 1, width,
                            )  # fmt: skip
                            for h in range(got):
                                p = hits[h]
                                dx, dy = (bx[p] - x) + shifts[r, 0], (by[p] - y) + shifts[r, 1]
                                square = squared(dx, dy, (bz[p] - z) + shifts[r, 2])
                                held[n] = _insert(squares, indices, number, held[n], square, called[p])
                full = True
                for n in range(members):
                    number = np.int64(numbers[k + n])
                    for m in range(query.first[s], query.first[s + 1]):
                        square = squared(query.vectors[m, 0], query.vectors[m, 1], query.vectors[m, 2])
                        if square <= reach:
                            held[n] = _insert(squares, indices, number, held[n], square, number)
                    full = full and held[n] == most
                if full or radius == search.radius:
                    break
                radius *= real(_GROWTH)
            for n in range(members):
                number = np.int64(numbers[k + n])
                for m in range(most):
                    inside = m < held[n]
                    squares[number, m] = np.sqrt(squares[number, m]) if inside else real(np.inf)
                    indices[number, m] = indices[number, m] if inside else -1
            k += members


def nearest(
    cloud: CpuCloud, search: Search, query: Query, k: int, rows: int, threads: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return indices and distances (rows, k) of the particles nearest to each point of a query."""
    real = search.x.dtype
    indices, distances = np.full((rows, k), -1, np.int32), np.full((rows, k), np.inf, real)
    used = threads_of(query, threads)
    missing = cloud.cells.missing
    volumes = abs(np.linalg.det(search.rows[:, missing:, missing:].astype(float)))
    scales, mean, power = checks.first_radius(k, volumes, cloud.cells.shape[missing:], len(cloud.order) / len(volumes))
    guess = scales.astype(real), real.type(mean), real.type(power)
    run(
        _nearest_rows, used, query, search, guess, distances, indices, rooms_for(used, search.x), width_for(real),
        steps=most_steps(query, search),
    )  # fmt: skip
    return indices, distances


# ---- sums of a user's pair function over neighbours, without a list -------------------------------------------------

# The function is compiled into the loop, so the loop is compiled for each function anew. What it calls is not.


# The search of a system is made in these two: held by the user's loop, it makes sums up to a tenth slower.
@compiled
def _begin(query, systems, s, room, k, last):
    """Begin a group at place ``k``; return how many members it has."""
    search = unowned(search_in(unowned(systems), s))
    low, high, extent = room.bounds[0], room.bounds[1], room.bounds[2]
    members = group_of(query.points, k, last, search, low, high)
    begin_search(search, k, members, query.sizes, room.state, extent)
    return members


@compiled
def _candidates(systems, s, room, k, width):
    """Fill the room with the next candidates; return how many runs there are."""
    search = unowned(search_in(unowned(systems), s))
    low, high, extent = room.bounds[0], room.bounds[1], room.bounds[2]
    return gather(
        search, k, low, high, extent, room.state, room.reach, room.real, room.real[0], room.real[1], room.real[2],
        room.called, room.runs, room.shifts, width,
    )  # fmt: skip


@compiled
def _hits(room, r, x, y, z, sizes, criterion, square, k, width):
    """Write where in the room the neighbours of place ``k`` in one run are; return how many there are."""
    b, runs = room.real, room.runs
    return search_run(
        b[0], b[1], b[2], b[3], b[4], b[5], room.called, runs[r, 0], runs[r + 1, 0], x, y, z, sizes, k, room.shifts,
        r, criterion, square, k, -1, room.hits, 1, width,
    )  # fmt: skip


def pair_function(r2, d, i, j, a, b, p, sums):
    """Stand for the user's function, which takes this name when the loop is compiled."""
    raise NotImplementedError


def _sum_rows(query, systems, order, values, parameters, totals, rooms, width, counter):
    """Add up over the neighbours of shares of particles until no share is left; ``pair_function`` is the user's."""
    query, systems, order = unowned(query), unowned(systems), unowned(order)
    values, parameters, totals = unowned(values), unowned(parameters), unowned(totals)
    room = unowned(room_of(rooms, fetch_add(counter, 1, 1)))
    b, hits, called, shifts, points = room.real, room.hits, room.called, room.shifts, query.points
    vector, criterion, limit = unowned(room.bounds[3]), systems.criterion, systems.square
    while True:  # as in `search_rows`
        share = fetch_add(counter, 0, 1)
        if share >= query.shares.shape[0]:
            return
        k, last, s = query.shares[share, 0], query.shares[share, 1], query.shares[share, 2]
        while k < last:
            members = _begin(query, systems, s, room, k, last)
            while room.state[DONE] == 0:
                run_count = _candidates(systems, s, room, k, width)
                for q in range(k, k + members):
                    x, y, z = points[0, q], points[1, q], points[2, q]
                    i = np.int64(order[q])
                    for r in range(run_count):
                        for h in range(_hits(room, r, x, y, z, query.sizes, criterion, limit, q, width)):
                            p = hits[h]
                            vector[0] = (b[0, p] - x) + shifts[r, 0]
                            vector[1] = (b[1, p] - y) + shifts[r, 1]
                            vector[2] = (b[2, p] - z) + shifts[r, 2]
                            square = squared(vector[0], vector[1], vector[2])
                            j = called[p]
                            pair_function(
                                square, vector, i, np.int64(order[j]), values[q], values[j], parameters, totals[i]
                            )
            for q in range(k, k + members):
                i = np.int64(order[q])
                for m in range(query.first[s], query.first[s + 1]):
                    for a in range(3):  # Numba compiles a message for shapes of slices, which takes seconds
                        vector[a] = query.vectors[m, a]
                    square = squared(vector[0], vector[1], vector[2])
                    if square <= limit:
                        pair_function(square, vector, i, i, values[q], values[q], parameters, totals[i])
            k += members


def sums(
    cloud: CpuCloud, search: Search, query: Query, function: PairFunction, values: Any, threads: int
) -> np.ndarray:
    """Return the sums (count, results) of a pair function over the neighbours of the particles of a query."""
    real = search.x.dtype
    per_particle = np.empty((cloud.particles, 0), real) if values is None else values
    per_particle = per_particle if per_particle.ndim == 2 else per_particle[:, None]
    by_place = np.ascontiguousarray(per_particle[cloud.order], real)
    totals = np.zeros((cloud.particles, function.results + function.beside), real)
    used = threads_of(query, threads)
    run(
        loop_with(_sum_rows, "pair_function", function.on_cpu), used, query, search, cloud.order, by_place,
        function.parameters_as(real), totals, rooms_for(used, search.x), width_for(real),
        steps=most_steps(query, search),
    )  # fmt: skip
    return totals
