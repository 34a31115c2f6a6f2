# SPDX-License-Identifier: BSD-3-Clause
"""Particles on their owners, with the ghosts of other ranks around them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from particlemesh.distributed.routes import Route
from particlemesh.distributed.staging import Staged, module_of
from particlemesh.distributed.surroundings import Surroundings, moved, upward
from particlemesh.distributed.transfer import together
from particlemesh.distributed.world import World
from particlemesh.grid.results import Pairs
from particlemesh.grid.uniform_grid import UniformGrid


@dataclass(frozen=True)
class Held:
    """What a build leaves on a rank: its particles, its ghosts, and a local grid of both.

    Local arrays hold ghosts below, then own particles, then ghosts above. Two ranks find a pair of a particle and a
    ghost, and it belongs to the rank whose ghost is above the particle. A half list has a pair in the row of the
    smaller place. Therefore the rows of own particles hold the pairs of this rank, and no others.
    """

    kind: Staged  # of the positions that were given
    xp: Any
    grid: UniformGrid
    route: Route  # from the callers to the owners
    own: Any  # positions (n, d) as they were given
    numbers: Any  # int64 (n,)
    first: int  # number of ghosts below
    rows: Any  # own particles that are ghosts elsewhere, by rank
    ghosts: Route  # these, on their way
    order: Any  # from the order in which ghosts arrive to that of local arrays
    all_numbers: Any  # of all local particles
    own_periods: tuple[Any, ...]  # of each axis: added to the given positions for the local grid
    far_periods: tuple[Any, ...]

    @property
    def periods(self) -> Any:
        """Periods added to the positions of all local particles, int64 (all, d)."""
        own, far = (self.xp.stack(periods, 1).astype(np.int64) for periods in (self.own_periods, self.far_periods))
        return _joined(self.xp, own, far, self.first)

    def at_owners(self, rows: Any, world: World, check: bool) -> Any:
        """Return rows of all local particles from those of the particles that each rank gave; every rank calls."""
        (own,) = _sent(self.route, world, check, lambda: (rows,))
        (far,) = _sent(self.ghosts, world, check, lambda: (own[self.rows],))
        return _joined(self.xp, own, far[self.order], self.first)


def gathered(
    around: Surroundings, grid: UniformGrid, world: World, kind: Staged, x: Any, check: bool
) -> tuple[Held, Any]:
    """Bring particles (N, d) to their owners and ghosts to those who see them.

    Returns what is held, and positions of all local particles for the grid, which is not built yet. What may fail on
    one rank is done before all agree and communicate.
    """
    xp, d, matrix = module_of(x), x.shape[1], around.mesh.box.matrix
    counts = world.allgather(int(x.shape[0]))

    def named() -> tuple[Any, Any]:
        return xp.arange(x.shape[0], dtype=np.int64) + sum(counts[: world.rank]), around.domain.owner(
            around.place(x, xp).cells
        )

    given, owners = together(world, check, "owners of a grid's particles", named)
    route = Route(world, owners)
    # Where nobody moves, a route returns what it gets: the user's array may change later.
    own, numbers = _sent(route, world, check, lambda: (xp.array(x, order="C"), given))

    def seen() -> tuple[Any, ...]:
        placed = around.place(own, xp)
        indices = [around.seen(placed, to, xp) for to in around.neighbours]
        sizes = [int(some.shape[0]) for some in indices]
        ranks = np.repeat(np.array([to.rank for to in around.neighbours], np.int64), sizes)
        # Of each ghost: its image, and whether it is above the particles of the rank that sees it.
        tags = [
            (*to.image, upward(to.image) or (not any(to.image) and world.rank > to.rank)) for to in around.neighbours
        ]
        table = np.repeat(np.array(tags, np.int64).reshape(-1, d + 1), sizes, axis=0)
        return placed, xp.concatenate([xp.zeros(0, np.int64), *indices]), xp.asarray(ranks), xp.asarray(table)

    placed, rows, ranks, table = together(world, check, "ghosts of a grid", seen)
    ghosts = Route(world, ranks)
    tag, far, names = _sent(ghosts, world, check, lambda: (table, own[rows], numbers[rows]))

    def local() -> tuple[Held, Any]:
        above = tag[:, d] != 0
        order = xp.concatenate([xp.flatnonzero(~above), xp.flatnonzero(above)])
        first = int(order.shape[0]) - int(above.sum())
        away = around.place(far[order], xp).periods
        away = tuple(periods + tag[order, a] for a, periods in enumerate(away))
        near = moved(own, placed.periods, matrix, around.cut)
        every = _joined(xp, near, moved(far[order], away, matrix, around.cut), first)
        everyone = _joined(xp, numbers, names[order], first)
        held = Held(kind, xp, grid, route, own, numbers, first, rows, ghosts, order, everyone, placed.periods, away)
        return held, every

    return together(world, check, "particles and ghosts of a grid", local)


def _sent(route: Route, world: World, check: bool, arrays: Callable[[], tuple[Any, ...]]) -> list[Any]:
    """Return arrays of particles where a route brings them."""
    ready = together(world, check, "messages of a grid", lambda: [route.forward(rows) for rows in arrays()])
    return [deliver() for deliver in ready]


def _joined(xp: Any, own: Any, far: Any, first: int) -> Any:
    return xp.concatenate([far[:first], own, far[first:]])


def own_pairs(held: Held, found: Pairs, order: str, form: str, quantities: str) -> Pairs:
    """Return the rows of a rank's own particles from those of particles and ghosts."""
    first, count, xp = held.first, held.numbers.shape[0], held.xp
    rows = slice(first, first + count)
    start: Any = found.start
    length: Any = found.count
    if form == "dense":
        part, length = rows, length[rows]
    else:
        begin, end = int(start[first]), int(start[first + count])
        part = slice(begin, end)
        start = start[first : first + count + 1] - begin
    got: dict[str, Any] = dict(i=found.i, j=found.j, d=found.distance, D=found.vector, S=found.shift)
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
