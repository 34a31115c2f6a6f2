# SPDX-License-Identifier: BSD-3-Clause
"""Particles on their owners, with the ghosts of other ranks around them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from particlemesh.distributed.routes import Departures, Route
from particlemesh.distributed.staging import Staged, module_of
from particlemesh.distributed.surroundings import Surroundings, moved
from particlemesh.distributed.survey import Pass, Segment, Surveyed, segments, stepwise
from particlemesh.distributed.world import World, together
from particlemesh.grid.results import Pairs
from particlemesh.grid.uniform_grid import UniformGrid


@dataclass(frozen=True)
class OwnedParticles:
    """What a build leaves on a rank: its particles, its ghosts, and a local grid of both.

    Local arrays hold ghosts below, then own particles, then ghosts above. Two ranks find a pair of a particle and a
    ghost, and it belongs to the rank whose ghost is above the particle. A half list has a pair in the row of the
    smaller place. Therefore the rows of own particles hold the pairs of this rank, and no others.
    """

    kind: Staged  # of the positions that were given
    xp: Any
    grid: UniformGrid
    around: Surroundings
    route: Route  # from the callers to the owners
    owned: Any  # positions (n, d) as they were given
    rows: Any  # own particles that are ghosts elsewhere, by rank and image
    ghosts: Route  # these, on their way
    pieces: list[Segment]  # of the ghosts that arrive, those below first
    first: int  # number of ghosts below
    named: Named
    carried: Any  # rows of ghosts (m, ...) in the order in which they arrive: positions and numbers

    @property
    def count(self) -> int:
        """Number of own particles."""
        return int(self.owned.shape[0])

    @property
    def numbers(self) -> Any:
        """Numbers of own particles, int64 (n,)."""
        return self.all_numbers[self.first : self.first + self.count]

    @functools.cached_property
    def all_numbers(self) -> Any:
        """Numbers of all local particles, int64 (all,); made where they are asked for."""
        xp, first = self.xp, self.named.firsts
        near = self.named.numbers
        if near is None:
            near = xp.arange(first[self.around.rank], first[self.around.rank] + self.count, dtype=np.int64)
        far = [_columns(xp, self.carried[p.begin : p.end], self.owned.shape[1])[1] + first[p.rank] for p in self.pieces]
        return _joined(xp, near, xp.concatenate([xp.zeros(0, np.int64), *far]), self.first)

    @property
    def arrived(self) -> Any:
        """Positions (m, d) of ghosts in the order in which they arrive."""
        return self.carried[:, : self.owned.shape[1]]

    @functools.cached_property
    def order(self) -> Any:
        """Index from the order in which ghosts arrive to that of local arrays."""
        xp = self.xp
        return xp.concatenate([xp.zeros(0, np.int64), *(xp.arange(p.begin, p.end) for p in self.pieces)])

    @property
    def periods(self) -> Any:
        """Periods added to the positions of all local particles, int64 (all, d)."""
        xp, d = self.xp, self.owned.shape[1]
        near, far = (xp.stack(self.around.place(x, xp).periods, 1) for x in (self.owned, self.arrived))
        images = np.repeat(
            np.array([piece.image for piece in self.pieces], np.int64).reshape(-1, d),
            [piece.end - piece.begin for piece in self.pieces], axis=0,
        )  # fmt: skip
        return _joined(xp, near.astype(np.int64), far[self.order].astype(np.int64) + xp.asarray(images), self.first)

    def at_owners(self, rows: Any, world: World, check: bool) -> Any:
        """Return rows of all local particles from those of the particles that each rank gave; every rank calls."""
        (owned,) = _sent(self.route, world, check, lambda: (rows,))
        (far,) = _sent(self.ghosts, world, check, lambda: (owned[self.rows],))
        return _joined(self.xp, owned, far[self.order], self.first)


class Named(NamedTuple):
    """The numbers of particles."""

    numbers: Any  # of own particles, int64 (n,); None if they are as they were given, one after the other
    firsts: list[int]  # what is to be added to the numbers that come from each rank


class Local(NamedTuple):
    """A local grid, and what finds its particles."""

    around: Surroundings
    grid: UniformGrid
    sweep: Pass | None  # on a GPU

    def survey(self, x: Any, xp: Any) -> Callable[[], Surveyed]:
        """Begin to find the owners of particles (N, d), and the ranks that see them; what is returned may wait."""
        return functools.partial(stepwise, self.around, x, xp) if self.sweep is None else self.sweep.begin(x, xp)

    def carry(self, rows: Any, every: Any, pieces: list[Segment], places: list[int]) -> None:
        """Write the positions of segments of rows to their places, moved into the mesh and by their images."""
        if self.sweep is not None:
            self.sweep.carry(rows, every, pieces, places)
        else:
            _carry(self.around, rows[:, : every.shape[1]], every, pieces, places, module_of(every))


def gathered(
    local: Local, world: World, kind: Staged, x: Any, survey: Callable[[], Surveyed], check: bool, call: str
) -> Callable[[], OwnedParticles]:
    """Bring particles (N, d) to their owners and ghosts to the ranks that see them.

    What is returned does the work that is left and builds the local grid. What may fail on one rank is done before all
    agree and communicate.
    """
    xp, around, rank = module_of(x), local.around, world.rank
    surveyed, coming = _exchanged(local, world, survey, x.shape[0], check, call)
    firsts = [0, *np.cumsum(coming[:, 0]).tolist()]
    route = Route.known(world, surveyed.leaving, np.ascontiguousarray(coming[:, 2:3]))
    if coming[:, 1].any():  # on all ranks: some particle leaves its rank
        first_number = firsts[rank]
        owned, numbers = _sent(route, world, check, lambda: (x, xp.arange(x.shape[0], dtype=np.int64) + first_number))

        def again() -> Surveyed:
            return local.survey(owned, xp)()

        surveyed, coming = _exchanged(local, world, again, 0, check, "ghosts of a grid")
        named = Named(numbers, [0] * world.size)
    else:  # then ghosts travel with their indices
        owned, named = x, Named(None, firsts)
    arriving, leaving = coming[:, 3:], np.zeros((world.size, 1), np.int64)
    for to, size in zip(around.neighbours, surveyed.sizes, strict=True):
        leaving[to.rank] += size
    ghosts = Route.known(
        world,
        Departures(xp, surveyed.rows.shape[0], leaving, True),
        np.ascontiguousarray(arriving.sum(1, keepdims=True)),
    )
    pieces = segments(around, arriving)
    pieces = [p for p in pieces if not p.above] + [p for p in pieces if p.above]
    first = sum(p.end - p.begin for p in pieces if not p.above)
    count = owned.shape[0]

    def packed() -> tuple[Any, Callable[[], Any]]:
        every = xp.empty((count + ghosts.arrived, x.shape[1]), x.dtype)
        if surveyed.home:
            every[first : first + count] = owned
        else:
            here = Segment(0, count, (0,) * x.shape[1], False)
            local.carry(owned, every, [here], [first])
        rows = surveyed.packed
        if rows is None or named.numbers is not None:
            places = surveyed.rows
            rows = _rows(xp, owned[places], places if named.numbers is None else named.numbers[places])
        return every, ghosts.forward(rows)

    every, deliver = together(world, check, "messages of a grid", packed)
    rows = deliver()

    def filled() -> OwnedParticles:
        ends, places = {False: 0, True: first + count}, []
        for piece in pieces:
            places.append(ends[piece.above])
            ends[piece.above] += piece.end - piece.begin
        local.carry(rows, every, pieces, places)
        # The user's array may change later.
        kept = every[first : first + count] if surveyed.home else xp.array(owned, order="C")
        local.grid.build(every)
        return OwnedParticles(
            kind, xp, local.grid, around, route, kept, surveyed.rows, ghosts, pieces, first, named, rows
        )

    return filled


def _exchanged(
    local: Local, world: World, survey: Callable[[], Surveyed], count: int, check: bool, call: str
) -> tuple[Surveyed, np.ndarray]:
    """Return a survey, and what every rank tells this one: see `_announced`. Where one fails, all raise."""

    def work() -> tuple[Surveyed, np.ndarray]:
        surveyed = survey()
        return surveyed, _announced(local.around, surveyed, count, world)

    if not check:
        surveyed, table = work()
        return surveyed, world.counts(table)
    return world.announce(3 + len(local.around.images), call, work)


def _announced(around: Surroundings, surveyed: Surveyed, count: int, world: World) -> np.ndarray:
    """Return what to tell every rank: particles, strays to all, particles for it, and ghosts for it by image."""
    table = np.zeros((world.size, 3 + len(around.images)), np.int64)
    table[:, 0], table[:, 2:3] = count, surveyed.leaving.sent
    table[:, 1] = surveyed.leaving.sent.sum() - surveyed.leaving.sent[world.rank, 0]
    for to, size in zip(around.neighbours, surveyed.sizes, strict=True):
        table[to.rank, 3 + around.images.index(to.image)] = size
    return table


def _rows(xp: Any, x: Any, numbers: Any) -> Any:
    """Return positions (n, d) and numbers (n,) as rows of the positions' type, with all their bits."""
    d, words = x.shape[1], 8 // x.dtype.itemsize
    rows = xp.empty((x.shape[0], d + words), x.dtype)
    rows[:, :d] = x
    rows.view(f"i{x.dtype.itemsize}")[:, d:] = numbers.view(f"i{x.dtype.itemsize}").reshape(-1, words)
    return rows


def _columns(xp: Any, rows: Any, d: int) -> tuple[Any, Any]:
    """Return positions and numbers of rows: the inverse of `_rows`."""
    integers = xp.ascontiguousarray(rows.view(f"i{rows.dtype.itemsize}")[:, d:])
    return xp.ascontiguousarray(rows[:, :d]), integers.view(np.int64).reshape(-1)


def _carry(around: Surroundings, far: Any, every: Any, pieces: list[Segment], places: list[int], xp: Any) -> None:
    """Do the work of `Pass.carry` step by step, for positions (m, d)."""
    for piece, to in zip(pieces, places, strict=True):
        some = far[piece.begin : piece.end]
        periods = tuple(n + a for n, a in zip(around.place(some, xp).periods, piece.image, strict=True))
        every[to : to + some.shape[0]] = moved(some, periods, around.mesh.box.matrix, around.cut)


def _sent(route: Route, world: World, check: bool, arrays: Callable[[], tuple[Any, ...]]) -> list[Any]:
    """Return arrays of particles where a route brings them."""
    ready = together(world, check, "messages of a grid", lambda: [route.forward(rows) for rows in arrays()])
    return [deliver() for deliver in ready]


def _joined(xp: Any, owned: Any, far: Any, first: int) -> Any:
    return xp.concatenate([far[:first], owned, far[first:]])


def own_pairs(
    held: OwnedParticles, pairs: Pairs, order: str, form: str, quantities: str, *, alone: bool = False
) -> Pairs:
    """Return the rows of a rank's own particles from those of particles and ghosts; ``alone``: the others are empty."""
    first, count, xp = held.first, held.count, held.xp
    rows = slice(first, first + count)
    start: Any = pairs.start
    length: Any = pairs.count
    if form == "dense":
        part, length = rows, length[rows]
    else:
        begin, part = 0, slice(None)
        if not alone:
            ends = start[first :: max(count, 1)][:2]  # where the rows of own particles begin and end
            begin, end = (int(n) for n in (ends if xp is np else ends.get())) if count else (0, 0)
            part = slice(begin, end)
        start = start[first : first + count + 1]
        start = start - begin if begin else start
    got: dict[str, Any] = dict(i=pairs.i, j=pairs.j, d=pairs.distance, D=pairs.vector, S=pairs.shift)
    got = {letter: None if array is None else array[part] for letter, array in got.items()}
    if "S" in quantities:
        i, j = (xp.maximum(got[letter], 0) for letter in "ij")
        periods = held.periods
        got["S"] = (got["S"] + periods[j] - periods[i]).astype(np.int32)
    if order == "input":
        for letter in "ij":
            if got[letter] is not None:
                named = held.all_numbers[got[letter]]  # a place of -1 is the last one, which is then replaced
                got[letter] = xp.where(got[letter] < 0, -1, named) if form == "dense" else named
    give = {letter: held.kind.like(got[letter]) if letter in quantities else None for letter in "ijdDS"}
    return Pairs(
        start=None if form != "csr" else held.kind.like(start), i=give["i"], j=give["j"], shift=give["S"],
        distance=give["d"], vector=give["D"], count=None if length is None else held.kind.like(length),
    )  # fmt: skip
