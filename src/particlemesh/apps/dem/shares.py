# SPDX-License-Identifier: BSD-3-Clause
"""The moving particles of one rank of many: its own, copies of those near them, and the way of both."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

import particlemesh as pm
from particlemesh import distributed as pmd
from particlemesh.apps.dem.contact import Law
from particlemesh.apps.dem.domain import Domain
from particlemesh.apps.dem.engines import OnCpu, OnDevice, engine_on
from particlemesh.apps.dem.given import InitialState
from particlemesh.apps.dem.motion import Motion, by_place, entries_that_touch
from particlemesh.apps.dem.results import Contacts
from particlemesh.apps.dem.walls import Wall

_ARRAYS = "x", "v", "w", "a", "b", "u", "s"  # of a particle that goes to another rank
_BOXES = 32  # along an axis, in which particles are counted to cut space
_UNEVEN = 1.2  # times the largest share after the last cut: then space is cut again
_AT_ONCE = 64  # steps between looks at Ctrl-C
_DENSE = 16  # numbers from first to last for each particle: up to here a table finds particles


class Held(NamedTuple):
    """What a rank holds of particles, in the host's memory, and of what touches them."""

    names: np.ndarray  # (n,) numbers over all ranks
    rows: np.ndarray  # (n, 7, 4) of `_ARRAYS`
    walls: np.ndarray  # (n, W, 4), W = 0 where walls remember nothing
    owner: np.ndarray  # (c,) row of the particle of each contact
    partner: np.ndarray  # (c,) number of the other one
    history: np.ndarray  # (c, 4)


class RankMotion(Motion):
    """The particles of one rank. Its own come first, then copies of others within the reach of its lists.

    Copies have the places of their originals: loops take the nearest image, as on one device. So every force is the
    same sum in the same order if ``deterministic``. Each step asks whether a particle of any rank has left the reach of
    its lists. If so, particles go to their owners, and copies are chosen anew, on the host.
    """

    engine: OnCpu | OnDevice

    def __init__(
        self, world: pmd.World, spheres: tuple[np.ndarray, np.ndarray], given: InitialState, law: Law,
        walls: tuple[Wall, ...], domain: Domain, gravity: tuple[float, ...], time_step: float, *, deterministic: bool,
        method: str, threads: int | None, restored: bool = False,
    ) -> None:  # fmt: skip
        self.world, self.given = world, len(given.radii)
        counts = world.allgather((self.given, float(given.radii.sum(dtype=np.float64))))
        self.ends = np.cumsum([count for count, _ in counts])
        self.total, self.first = int(self.ends[-1]), int(self.ends[world.rank]) - self.given
        if self.total >= 2**30:
            raise ValueError(f"there are {self.total} spheres on all ranks; fewer than 2**30 are possible.")
        mean = sum(radii for _, radii in counts) / self.total if self.total else 1.0
        self._set(given, law, walls, domain, time_step, spheres, mean)
        self._largest = float(spheres[0].max(initial=0.0)) / self.units.length
        self.deterministic, self._method, self._threads = deterministic, method, threads
        self._by, self._clock, self._even = (time_step, gravity), 0, 0
        self._cuts: pmd.Domain | None = None
        self._remembering = any(law.friction > 0 for law in self._wall_laws(walls)), len(walls)
        held = self._begun(given)
        if restored:
            self._waiting = held
            return
        with self._on():
            self._settle(held)
            self._begin()

    def _wall_laws(self, walls: tuple[Wall, ...]) -> list[Law]:
        return [self.user_law if wall.contact is None else wall.contact.numbers() for wall in walls]

    def _begun(self, given: InitialState) -> Held:
        """Return the particles that this rank gives."""
        rows = np.zeros((self.given, len(_ARRAYS), 4), self.dtype)
        with np.errstate(over="ignore"):  # a speed beyond numbers: the first step says so
            for n, (vectors, last) in enumerate(
                ((given.positions, given.radii), (given.velocities, given.masses), (given.spins, None))
            ):
                rows[:, n, :3] = self._in_units(_ARRAYS[n], vectors)
                if last is not None:
                    rows[:, n, 3] = last / self.units.of_last(_ARRAYS[n])
        walls = np.zeros((self.given, self._remembering[1] if self._remembering[0] else 0, 4), self.dtype)
        none = np.zeros(0, np.int64)
        return Held(self.first + np.arange(self.given), rows, walls, none, none, np.zeros((0, 4), self.dtype))

    def _in_units(self, name: str, vectors: np.ndarray) -> np.ndarray:
        return (vectors.astype(np.float64) / self.units.of_vectors(name)).astype(self.dtype)

    # ---- to owners ------------------------------------------------------------------------------------

    def _search(self) -> None:
        self._settle(self._taken())

    def _taken(self) -> Held:
        """Return what the engine holds of this rank's own particles."""
        engine, mine, download = self.engine, self.owned, self.backend.download
        start, rows, entries, history = (np.asarray(download(array)) for array in engine.lists)
        i, at = entries_that_touch(start, rows[:mine], entries)
        self._clock = engine.ran
        return Held(
            self.names[:mine], np.stack([engine.get(name)[:mine] for name in _ARRAYS], 1),
            download(engine.wall_history)[:mine] if engine.walls_remember else np.zeros((mine, 0, 4), self.dtype),
            i, self.names[~entries[at] >> 1],
            history[at] if engine.remembers else np.zeros((len(i), 4), self.dtype),
        )  # fmt: skip

    def _settle(self, held: Held) -> None:
        """Send particles to their owners and copies to those near, and make the lists."""
        with self.world.agreement("a search"):
            finite = np.isfinite(held.rows[:, 0, :3]).all(1)
            if not finite.all():
                first = int(np.argmin(np.where(finite, self.total, held.names)))
                where = tuple((held.rows[first, 0, :3].astype(np.float64) * self.units.length).tolist())
                raise ValueError(f"particle {held.names[first]} is at {where}")
        held = self._migrated(held)
        to = self._near(held.rows[:, 0])
        leaving = np.array([len(to.get(rank, ())) for rank in range(self.world.size)])
        coming = self.world.counts(leaving)
        mine = len(held.names)
        self.owned, self.count = mine, mine + int(coming.sum())
        with self.world.agreement("copies of spheres"):
            some = np.concatenate([np.zeros(0, np.int64), *to.values()])
            arrays = held.names[some], held.rows[some]
        self._counts = leaving, coming
        names, rows = (self.world.move(array, *self._counts)[0] for array in arrays)
        with self.world.agreement("lists of spheres"):
            self._make_lists(held, np.concatenate([held.names, names]), np.concatenate([held.rows, rows]))
            self.engine.leaving = self.backend.upload(some.astype(np.int32))
        self.rebuilds += 1
        self._way: Any = None

    def _migrated(self, held: Held) -> Held:
        """Return what this rank owns."""
        size = self.world.size
        if size > 1:
            places = held.rows[:, 0, :3].astype(np.float64)
            owner = self._owners(places)
            shares = self.world.allreduce(np.bincount(owner, minlength=size))
            if shares.max() > _UNEVEN * self._even:
                self._cuts = None
                owner = self._owners(places)
                shares = self.world.allreduce(np.bincount(owner, minlength=size))
                self._even = max(int(shares.max()), 1)
            of, one = pmd.Route(self.world, owner), held.names[held.owner]
            pairs = pmd.Route(self.world, owner[held.owner])
            names, rows, walls = of.send(held.names, held.rows, held.walls)
            one, partner, history = pairs.send(one, held.partner, held.history)
        else:
            names, rows, walls, one = held.names, held.rows, held.walls, held.names[held.owner]
            partner, history = held.partner, held.history
        order = by_place(rows[:, 0, :3], self._most)
        names = names[order]
        return Held(names, rows[order], walls[order], _indices(names, one)[0], partner, history)

    def _owners(self, places: np.ndarray) -> np.ndarray:
        """Return the rank of each place, by cuts that follow the particles."""
        world = self.world
        if self._cuts is None:
            # Beyond numbers where no rank has a particle.
            low, high = places.min(0, initial=np.inf), places.max(0, initial=-np.inf)
            low, high = world.allreduce(low, "min"), world.allreduce(high, "max")
            some = bool(high[0] >= low[0])
            low, high = (low, high) if some else (np.zeros(3), np.ones(3))
            self._corner, self._boxes = low, np.maximum(high - low, self._most) / _BOXES
            mesh = pm.Mesh((_BOXES,) * 3, pm.Box(self._boxes * _BOXES, periodic=False))
            counts = np.zeros((_BOXES,) * 3)
            np.add.at(counts, tuple(self._cells(places).T), 1)
            self._cuts = pmd.Domain(mesh, world.size, "bisection").balanced(world.allreduce(counts))
            self._even = 0
        owner: np.ndarray = self._cuts.owner(self._cells(places))
        return owner

    def _cells(self, places: np.ndarray) -> np.ndarray:
        return np.clip((places - self._corner) / self._boxes, 0, _BOXES - 1).astype(np.int64)

    def _near(self, x: np.ndarray) -> dict[int, np.ndarray]:
        """Return which of this rank's particles (n, 4) are within reach of any of another rank's, by rank."""
        places, reach = x[:, :3].astype(np.float64), (x[:, 3] + self._largest + self.skin) * (1 + 1e-5)
        self._own = places.min(0, initial=np.inf), places.max(0, initial=-np.inf)
        boxes, near = self.world.allgather((*self._own, len(x))), {}
        for rank, (low, high, count) in enumerate(boxes):
            if rank == self.world.rank or not (count and len(x)):
                continue
            middle, half = (low + high) / 2, (high - low) / 2
            mine, wide = (self._own[0] + self._own[1]) / 2, (self._own[1] - self._own[0]) / 2
            if self._apart(mine - middle, half + wide)[0] > self._most * (1 + 1e-5):
                continue
            some = np.flatnonzero(self._apart(places - middle, half) <= reach)
            if len(some):
                near[rank] = some
        return near

    def _apart(self, way: np.ndarray, half: np.ndarray) -> np.ndarray:
        """Return distances from a box, of ways (n, 3) from its middle, with the nearest images."""
        way, periods = np.atleast_2d(way), self.domain.periods
        turns = np.rint(np.divide(way, periods, where=periods > 0, out=np.zeros_like(way)))
        distances: np.ndarray = np.sqrt((np.maximum(abs(way - turns * periods) - half, 0) ** 2).sum(1))
        return distances

    # ---- lists ----------------------------------------------------------------------------------------

    def _make_lists(self, held: Held, names: np.ndarray, rows: np.ndarray) -> None:
        """Make the engine of these particles, and search."""
        mine, count = self.owned, self.count
        self.names, self.order = names, np.arange(count)
        self.radii, self.masses = rows[:, 0, 3].astype(np.float64), rows[:, 1, 3].astype(np.float64)
        self.engine = engine = engine_on(
            self.backend, self.dtype, self._numbers(*self._by), self.law, self.planes, names.astype(np.int32),
            self._threads, mine,
        )  # fmt: skip
        engine.put_walls(self.planes, self._clock)
        for n, name in enumerate(_ARRAYS):
            engine.put(name, rows[:, n])
        if not mine:
            return
        partner, known = _indices(names, held.partner)
        i, j, history = held.owner[known], partner[known], held.history[known]
        codes = 2 * j + (names[i] < names[j])
        order = np.argsort(i, kind="stable")
        start = np.searchsorted(i[order], np.arange(mine + 1))
        engine.remember(start, ~codes[order], history[order], held.walls)
        x = self._around(rows[:, 0, :3])
        self._make_grid(x)
        columns = tuple(self.backend.upload(column) for column in x.T)
        self.grid.build(columns, self._radii)
        pairs = self._found(columns)
        entries = int(self.backend.download(pairs.start[mine : mine + 1])[0])
        engine.renew(pm.Pairs(start=pairs.start[: mine + 1], j=pairs.j[:entries]), self._images, self.deterministic)

    def _number(self, row: int) -> int:
        return int(self.names[row])

    def _around(self, x: np.ndarray) -> np.ndarray:
        """Return places (n, 3) as the images nearest to this rank's own, so that a small grid holds them all."""
        low, high = self._own
        periods = self.domain.periods
        # An axis that this rank's particles and their reach fill stays periodic.
        fills = (periods > 0) & (high - low + 2.1 * self._most >= periods)
        self._window = Domain(
            self.domain.origin, tuple(np.where(fills, periods, np.inf).tolist()), tuple(fills.tolist())
        )
        turns = np.divide(x - (low + high) / 2, periods, where=periods > 0, out=np.zeros(x.shape))
        return np.where(fills, x, x - np.rint(turns) * periods).astype(self.dtype)

    # ---- motion ---------------------------------------------------------------------------------------

    def _refresh(self, *names: str) -> None:
        """Give copies the vectors of their originals."""
        copies, _ = self.world.move(self.engine.message(names), *self._counts)
        self.engine.receive(names, copies)

    def _begin(self) -> None:
        self._refresh("v", "w")
        super()._begin()

    def _steps(self, most: int) -> tuple[int, bool]:
        limit = min(most, _AT_ONCE)
        for k in range(limit):
            if self.world.allreduce(int(self.engine.drift()), "max"):
                return k, True
            self._refresh("x", "u", "s")
            self.engine.finish()
        return limit, False

    # ---- changes --------------------------------------------------------------------------------------

    def move_by(self, time_step: float, gravity: tuple[float, ...], walls: tuple[Wall, ...]) -> None:
        self._by = time_step, gravity
        super().move_by(time_step, gravity, walls)

    def put(self, name: str, rows: np.ndarray) -> None:
        with np.errstate(over="ignore"):
            vectors = self._in_units(name, rows)
        vectors = self._to_owners(vectors)
        with self._on():
            rows = np.array(self.engine.get(name))
            rows[: self.owned, :3] = vectors
            self.engine.put(name, rows)
            if name == "x":
                self._search()
            self._begin()

    # ---- to those that gave the particles ---------------------------------------------------------------

    def _home(self) -> tuple[pmd.Route, np.ndarray]:
        """Return the route to the ranks that gave the particles, and the place of each row that arrives there."""
        if self._way is None:
            names = self.names[: self.owned]
            route = pmd.Route(self.world, self._giver(names))
            self._way = route, route.send(names) - self.first
        return self._way

    def _giver(self, names: np.ndarray) -> np.ndarray:
        return np.searchsorted(self.ends, names, "right").astype(np.int64)

    def _to_givers(self, rows: np.ndarray) -> np.ndarray:
        route, place = self._home()
        result = np.empty((self.given, *rows.shape[1:]), rows.dtype)
        result[place] = route.send(np.ascontiguousarray(rows))
        return result

    def _to_owners(self, rows: np.ndarray) -> np.ndarray:
        route, place = self._home()
        back: np.ndarray = route.back(rows[place])
        return back

    def _rows(self, name: str) -> np.ndarray:
        return self._to_givers(self._get(name)[: self.owned])

    def out(self, name: str) -> Any:
        with self._on():
            rows = self.engine.get(name)[: self.owned, :3] * self.dtype.type(self.units.of_vectors(name))
            rows = self._to_givers(rows)
            return self.kind.wrap(rows if self.kind.home == "cpu" else self.backend.upload(rows))

    def _sum(self, numbers: np.ndarray) -> np.ndarray:
        total: np.ndarray = self.world.allreduce(numbers)
        return total

    def _numbered(self, touching: Contacts) -> Contacts:
        """Return contacts with the numbers of particles over all ranks."""
        other = self.names[np.maximum(touching.j, 0)] if self.count else touching.j
        return touching._replace(i=self.names[touching.i], j=np.where(touching.j < 0, touching.j, other))

    def contacts(self) -> Contacts:
        """Return what touches, on the ranks that gave the first particle of each pair."""
        here = self._numbered(super().contacts())
        widths = [1 if array.ndim == 1 else 3 for array in here[2:]]
        numbers = np.column_stack(here[2:])
        i, j, numbers = pmd.Route(self.world, self._giver(here.i)).send(here.i, here.j, numbers)
        order = np.lexsort((j, i))
        columns = np.split(numbers[order], np.cumsum(widths)[:-1], axis=1)
        return Contacts(i[order], j[order], *(c[:, 0] if c.shape[1] == 1 else c for c in columns))

    def deepest(self) -> tuple[Contacts, np.ndarray, np.ndarray]:
        """Return contacts by the index of particles on this rank, the radii of these, and their numbers."""
        return self._contacts(), self.radii, self.names

    # ---- restart --------------------------------------------------------------------------------------

    def restore(self, state: dict[str, Any]) -> None:
        """Take accelerations of this rank's particles, and contacts whose first particle is one of them."""
        held = self._waiting
        i, j = np.asarray(state["contact_i"], np.int64), np.asarray(state["contact_j"], np.int64)
        length, mass, time = self.units
        force, stiffness = (np.asarray(state[f"contact_{name}"], np.float64) for name in ("force", "stiffness"))
        history = np.column_stack([force / (mass * length / time**2), stiffness / (mass / time**2)]).reshape(-1, 4)
        history = history.astype(self.dtype)
        pair = j >= 0
        ends = pmd.Route(self.world, self._giver(j[pair])).send(j[pair], i[pair], history[pair])
        one, two, of = (np.concatenate(x) for x in zip((i[pair], j[pair], history[pair]), ends, strict=True))
        first, wall, touched = i[~pair] - self.first, -1 - j[~pair], np.zeros(self.given, np.int64)
        np.bitwise_or.at(touched, first, 1 << wall)
        if held.walls.shape[1]:
            held.walls[first, wall] = history[~pair]
        at = {name: held.rows[:, n] for n, name in enumerate(_ARRAYS)}
        at["w"][:, 3] = touched
        at["a"][:, :3] = self._in_units("a", np.asarray(state["accelerations"]))
        at["b"][:, :3] = self._in_units("b", np.asarray(state["angular_accelerations"]))
        # Forces of a step have seen the middle of it.
        half = self.dtype.type(self._numbers(*self._by)[1] if state["step"] else 0.0)
        for middle, end, change in (("u", "v", "a"), ("s", "w", "b")):
            at[middle][:] = at[end]
            at[middle][:, :3] -= half * at[change][:, :3]
        self._moving, self._clock = bool(state["step"]), int(state.get("walls_steps", 0))
        del self._waiting
        with self._on():
            self._settle(held._replace(owner=one - self.first, partner=two, history=of))


def _indices(names: np.ndarray, asked: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return where names are among others, and which are there at all."""
    if not len(names):
        return np.zeros(len(asked), np.int64), np.zeros(len(asked), bool)
    first, width = int(names.min()), int(np.ptp(names)) + 1
    if width <= _DENSE * len(names):
        table = np.full(width, -1)
        table[names - first] = np.arange(len(names))
        index = table[np.clip(asked - first, 0, width - 1)]
    else:
        order = np.argsort(names)
        index = order[np.minimum(np.searchsorted(names[order], asked), len(names) - 1)]
    return index, (index >= 0) & (names[index] == asked)
