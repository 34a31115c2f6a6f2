# SPDX-License-Identifier: BSD-3-Clause
"""Moving particles: lists of neighbours from a grid, steps between two searches, and reports."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

import particlemesh as pm
from particlemesh.apps.dem.contact import Law
from particlemesh.apps.dem.domain import Domain
from particlemesh.apps.dem.engines import engine_on
from particlemesh.apps.dem.given import InitialState
from particlemesh.apps.dem.results import Contacts, Energy
from particlemesh.apps.dem.walls import AXIS, LAW, POINT, SPIN, VELOCITY, Wall, after, apart, in_units, table

SKIN = 0.2  # margin of the lists, in mean radii
_LEVELS = 6  # at most, of cells for particles of many sizes
_MOST_CELLS = 16  # per particle
_CROWDED = 32  # particles that share a large cell with one, on average: from here on sparse cells are faster


class Units(NamedTuple):
    """Powers of two of the user's units. In them sizes, masses and steps are about 1, so that no power leaves its type.

    Scaling by powers of two is exact: it changes no result.
    """

    length: float
    mass: float
    time: float

    @classmethod
    def of(cls, radii: np.ndarray, masses: np.ndarray, time_step: float) -> Units:
        return cls(_middle(radii), _middle(masses), _middle(np.array([time_step])))

    def of_vectors(self, name: str) -> float:
        """Return the unit of the vectors of an array of an engine."""
        length, _, time = self
        return {"x": length, "v": length / time, "w": 1 / time, "a": length / time / time, "b": 1 / time / time}[name]

    def of_last(self, name: str) -> float:
        """Return the unit of the fourth number of its rows."""
        return {"x": self.length, "v": self.mass}.get(name, 1.0)


def _middle(numbers: np.ndarray) -> float:
    """Return the power of two in the middle of positive numbers."""
    if not len(numbers):
        return 1.0
    return 2.0 ** round((math.log2(numbers.min()) + math.log2(numbers.max())) / 2)


class Motion:
    """The particles of a simulation, on its device, in an order and in units of its own."""

    def __init__(
        self, given: InitialState, law: Law, walls: tuple[Wall, ...], domain: Domain, gravity: tuple[float, ...],
        time_step: float, *, deterministic: bool, method: str, threads: int | None, restored: bool = False,
    ) -> None:  # fmt: skip
        radii, masses = given.radii.astype(np.float64), given.masses.astype(np.float64)
        self.count = self.owned = self.total = len(radii)
        self._set(given, law, walls, domain, time_step, (radii, masses), float(radii.mean()) if self.count else 1.0)
        self.deterministic, self._method, self._threads = deterministic, method, threads
        length, mass, _ = self.units
        self.radii, self.masses = radii / length, masses / mass
        positions = (given.positions / length).astype(self.dtype)
        self.order = by_place(positions, self._most)
        with self._on():
            self.engine = engine_on(
                self.backend, self.dtype, self._numbers(time_step, gravity), self.law, self.planes,
                self.order.astype(np.int32), threads,
            )  # fmt: skip
            for name, rows, last in (
                ("x", given.positions, given.radii), ("v", given.velocities, given.masses), ("w", given.spins, None),
            ):  # fmt: skip
                self._put(name, rows, last)
            self._make_grid(positions)
            if not restored:
                self._search()
                self._begin()

    def _set(
        self, given: InitialState, law: Law, walls: tuple[Wall, ...], domain: Domain, time_step: float,
        spheres: tuple[np.ndarray, np.ndarray], mean: float,
    ) -> None:  # fmt: skip
        """Choose units and the margin of the lists for spheres of these radii and masses, and a mean radius."""
        self.kind, self.user, self.backend, self.dtype = given.kind, given.user, given.backend, given.dtype
        self.units = Units.of(*spheres, time_step)
        length, self.user_law, self.rebuilds = self.units.length, law, 0
        self.law, self.domain = law.in_units(*self.units), domain.in_unit(length)
        self.planes = in_units(table(walls, law), law, time_step, *self.units)
        self._window = self.domain  # of the grid that searches
        self._token: Any = None
        self._fault: str | None = None
        self._moving = False  # whether the last forces are those of a step
        self._waits = False  # whether a step has drifted and waits for new lists
        self.skin = SKIN * mean / length
        self._most = 2 * float(spheres[0].max(initial=0.0)) / length + self.skin  # reach of the lists

    def _begin(self) -> None:
        self.engine.begin()
        self._moving = False

    def _numbers(self, time_step: float, gravity: tuple[float, ...]) -> list[float]:
        """Return the numbers of `Motion` in step.c."""
        step, period = time_step / self.units.time, self.domain.periods
        self.gravity = np.array(gravity) / self.units.of_vectors("a")
        return [
            step, step / 2, (self.skin / 2 * 0.999) ** 2, *self.gravity, *self.domain.origin_of_periods, *period,
            *np.divide(1.0, period, where=period > 0, out=np.zeros(3)),
        ]  # fmt: skip

    # ---- changes ----------------------------------------------------------------------------------------

    def move_by(self, time_step: float, gravity: tuple[float, ...], walls: tuple[Wall, ...]) -> None:
        """Take another time step, gravity, and walls from now on."""
        self.planes = in_units(table(walls, self.user_law), self.user_law, time_step, *self.units)
        with self._on():
            self.engine.move_by(self._numbers(time_step, gravity))
            self.engine.put_walls(self.planes, 0)
            self._begin()

    def put(self, name: str, rows: np.ndarray) -> None:
        """Take other positions "x", velocities "v" or spins "w", in the user's units."""
        with self._on():
            last = self.engine.get(name)[:, 3].astype(np.float64)
            last[self.order] = last * self.units.of_last(name)
            self._put(name, rows, last)
            if name == "x":
                self._search()
            self._begin()

    # ---- where ----------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _on(self) -> Iterator[None]:
        """Work on the device and stream of the user's arrays, after what went before on another one."""
        local = self.kind.home == self.backend.name and self.backend.name != "cpu"
        natives = (self.kind.native(self.user),) if local else ()
        with self.kind.scope(self.user) if local else contextlib.nullcontext(), self.backend.scope(*natives):
            self._token = self.backend.follow(self._token)
            yield

    def _put(self, name: str, rows: np.ndarray, last: np.ndarray | None = None) -> None:
        packed = np.zeros((self.count, 4), self.dtype)
        with np.errstate(over="ignore"):  # a speed beyond numbers: the first step says so
            packed[:, :3] = rows[self.order].astype(np.float64) / self.units.of_vectors(name)
        if last is not None:
            packed[:, 3] = last[self.order] / self.units.of_last(name)
        self.engine.put(name, packed)

    def _get(self, name: str) -> np.ndarray:
        rows = np.empty((self.count, 3))
        with self._on():
            rows[self.order] = self.engine.get(name)[:, :3]
        return rows

    def out(self, name: str) -> Any:
        """Return rows of three in the user's order and unit, as an array of the user's kind."""
        with self._on():
            rows = self.engine.rows_of_three(name, self.units.of_vectors(name))
            return self.kind.wrap(rows if self.kind.home == self.backend.name else self.backend.download(rows))

    # ---- lists ----------------------------------------------------------------------------------------

    def _make_grid(self, positions: np.ndarray) -> None:
        reach, method = self._most, self._method
        far = abs(positions).max(1, initial=0.0)
        if len(far) and np.spacing(far.max().astype(self.dtype)) > reach:
            first = int(far.argmax())
            where = tuple((positions[first].astype(np.float64) * self.units.length).tolist())
            raise ValueError(
                f"particle {self._number(first)} is at {where}, where numbers of {self.dtype} are farther apart than "
                "spheres reach"
            )
        box = self._window.grid_box(positions, reach)
        least = float(self.radii.min()) if self.count else 1.0
        ratio = reach / (2 * least + self.skin)
        levels = min(_LEVELS, 1 + int(np.log2(ratio))) if method == "auto" and self.count else 1
        cell = 1.001 * reach / 2 ** (levels - 1)
        least = cell
        while np.maximum(1, box.lengths / cell).prod() > _MOST_CELLS * self.count + 4096:
            cell *= 2
        self._large = cell > least
        self.grid = pm.UniformGrid(
            box, cell_size=tuple(np.minimum(cell, box.lengths)),
            method=method, levels=levels, dtype=self.dtype, threads=self._threads,
        )  # fmt: skip
        # Through an axis shorter than two reaches a pair may be found twice.
        self._images = bool(min(box.lengths) < 2 * reach * (1 + 1e-6))
        self._reach: Any = reach
        if ratio > 1:
            reaches = (self.radii[self.order].astype(np.float64) + self.skin / 2).astype(self.dtype)
            self._reach = reaches if self.backend.name == "cpu" else self.backend.upload(reaches)
        # Levels need radii, and so may a builder that is named.
        asks = method != "auto" or levels > 1
        self._radii = None if not asks else self._reach if ratio > 1 else reach / 2

    def _number(self, row: int) -> int:
        """Return the number of the particle in a row of the host's arrays."""
        return row

    def _search(self) -> None:
        """Search for neighbours and make the lists."""
        if not self.count:
            return
        x = tuple(self.engine.p.x[: self.count, axis] for axis in range(3))
        try:
            self.grid.build(x, self._radii)
        except ValueError:
            place = self._get("x")
            finite = np.isfinite(place).all(1)
            if not finite.all():
                first = int(np.argmin(finite))
                where = tuple((place[first] * self.units.length).tolist())
                raise ValueError(f"particle {first} is at {where}") from None
            self._make_grid(place)  # too far from where the former grid was made
            self.grid.build(x, self._radii)
        self.engine.renew(self._found(x), self._images, self.deterministic)
        self.rebuilds += 1

    def _found(self, x: tuple[Any, ...]) -> pm.Pairs:
        """Return the pairs of the grid's particles."""
        return self._listed(x) if self._large and self._crowded() else self.grid.pairs(self._reach, quantities="j")

    def _crowded(self) -> bool:
        """Return whether large cells hold so many particles that a search compares most of them in vain."""
        held = np.diff(np.asarray(self.backend.download(self.grid.cell_start)).astype(float))
        return float(held @ held) > _CROWDED * self.count

    def _listed(self, x: tuple[Any, ...]) -> pm.Pairs:
        """Search with cells that hold particles only: for particles far from the others."""
        i, j = pm.neighbour_list("ij", x, self._window.box, self._reach, threads=self._threads)
        rows = np.bincount(self.backend.download(i), minlength=self.count)
        start = self.backend.upload(np.concatenate([[0], np.cumsum(rows)]).astype(np.int64))
        return pm.Pairs(start=start, j=j)

    # ---- motion ---------------------------------------------------------------------------------------

    def advance(self, steps: int, at: int) -> Iterator[int]:
        """Make steps, the first of which is number ``at``; yield how many are whole from time to time."""
        self.check()
        left = steps if self.total else 0
        if not self.total and steps:
            yield steps
        while left:
            made, failed = 0, None
            with self._on():
                if not self._waits:
                    made, self._waits = self._steps(left)
                if self._waits:
                    try:
                        self._search()
                        self.engine.finish()
                        self._waits, made = False, made + 1
                    except Exception as error:  # noqa: BLE001 - such as no memory: the next call ends this step
                        failed = error
            left -= made
            if made:
                self._moving = True
                yield made
            if isinstance(failed, ValueError):
                why = str(failed).rstrip(".")
                self._fault = (
                    f"step {at + steps - left}: the motion has left what numbers can hold: {why}. A shorter time_step "
                    "may help; start again from an earlier state."
                )
                raise FloatingPointError(self._fault) from failed
            if failed is not None:
                raise failed

    def check(self) -> None:
        """Raise the error after which no step is possible."""
        if self._fault is not None:
            raise FloatingPointError(self._fault)

    def _steps(self, most: int) -> tuple[int, bool]:
        return self.engine.steps(most)

    # ---- reports --------------------------------------------------------------------------------------

    def _sum(self, numbers: np.ndarray) -> np.ndarray:
        """Return sums of this object's particles over all."""
        return numbers

    def _touching(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return first and second particle of touching pairs and walls, and the history, in the users' numbers."""
        engine, download = self.engine, self.backend.download
        with self._on():
            start, rows, entries, history = (np.asarray(download(array)) for array in engine.lists)
            walls = np.asarray(download(engine.wall_history)) if engine.walls_remember else None
            touched = engine.get("w")[: self.owned, 3].astype(np.int64)
        i, at = entries_that_touch(start, rows[: self.owned], entries)
        code = ~entries[at]
        first = (code & 1).astype(bool)  # each pair from its first particle
        i, at, code = i[first], at[first], code[first]
        force = history[at] if engine.remembers else np.zeros((len(i), 4), self.dtype)
        particle, wall = np.nonzero(touched[:, None] >> np.arange(engine.walls) & 1)
        of_wall = np.zeros((len(wall), 4), self.dtype) if walls is None else walls[particle, wall]
        one = np.concatenate([self.order[i], self.order[particle]])
        two = np.concatenate([self.order[code >> 1], -1 - wall])
        sequence = np.lexsort((two, one))
        return one[sequence], two[sequence], np.concatenate([force, of_wall])[sequence]

    def contacts(self) -> Contacts:
        """Return what touches."""
        touching, (length, mass, time) = self._contacts(), self.units
        return touching._replace(
            overlap=touching.overlap * length, tangential=touching.tangential * (mass * length / time**2),
            stiffness=touching.stiffness * (mass / time**2), force=touching.force * (mass * length / time**2),
        )  # fmt: skip

    def _contacts(self) -> Contacts:
        i, j, history = self._touching()
        x, radii, wall = self._get("x"), self.radii, j < 0
        vector, reach = np.zeros((len(i), 3)), np.empty(len(i))
        pair = ~wall
        apart_by = x[i[pair]] - x[j[pair]]
        periods = self.domain.periods
        apart_by -= periods * np.rint(np.divide(apart_by, periods, where=periods > 0, out=np.zeros_like(apart_by)))
        vector[pair], reach[pair] = apart_by, radii[i[pair]] + radii[j[pair]]
        distance = np.linalg.norm(vector, axis=1)
        unit = np.divide(vector, distance[:, None], where=distance[:, None] > 0, out=np.zeros_like(vector))
        planes = self._walls()[-1 - j[wall]]
        distance[wall], unit[wall] = apart(planes, x[i[wall]])
        reach[wall] = radii[i[wall]]
        force = history.astype(np.float64)
        touching = Contacts(i, j, reach - distance, unit, force[:, :3], force[:, 3], np.zeros_like(vector))
        return touching._replace(force=self._forces(touching, x, distance))

    def _walls(self) -> np.ndarray:
        """Return the rows of walls where they are."""
        with self._on():
            return after(self.planes, self.engine.ran)

    def _laws(self, j: np.ndarray) -> np.ndarray:
        """Return the law of each contact, as loops take it."""
        return np.vstack([self.planes[:, LAW], self.law.slopes()])[np.where(j < 0, -1 - j, len(self.planes))]

    def _forces(self, touching: Contacts, x: np.ndarray, distance: np.ndarray) -> np.ndarray:
        """Return the forces on first particles, as loops have found them: see `contact` in step.c."""
        i, j, overlap, n, history = *touching[:4], touching.tangential
        wall, step = j < 0, self.engine.motion[0] if self._moving else 0.0
        u, s = self._get("u"), self._get("s")
        planes, place, other = self._walls()[-1 - j[wall]], x[i[wall]], np.where(wall, 0, j)
        speed, spin = u[i] - u[other], s[other]
        one, two = self.radii[i], np.where(wall, np.inf, self.radii[other])
        turn = planes[:, SPIN, None] * planes[:, AXIS]
        from_point = place - distance[wall, None] * n[wall] - planes[:, POINT]
        speed[wall] = u[i[wall]] - planes[:, VELOCITY] - np.cross(turn, from_point)
        arm = np.where(wall, distance, distance * one / (one + np.where(wall, 1, two)))
        far = np.where(wall, 0.0, distance - arm)
        speed -= np.cross(arm[:, None] * s[i] + far[:, None] * spin, n)
        normal, _, damping, friction, share, ratio, lag = self._laws(j).T
        mass, mates = self.masses[i], np.where(wall, np.inf, self.masses[other])
        mass = np.where(wall, mass, 1 / (1 / mass + 1 / mates))
        if self.law.hertz:
            normal = normal * np.sqrt(np.maximum(overlap, 0) / (1 / one + 1 / two))
        along = (speed * n).sum(1)
        damper, way = damping * np.sqrt(mass * normal), np.abs(along) * step
        q = np.divide(overlap, way, where=way > 0, out=np.full(len(way), np.inf))
        edge = np.minimum(np.maximum(q, 1e-300), 2)
        if self.law.hertz:
            rise = np.where(edge < 1, 1.32803 * edge, 1.46685 - 0.13882 * edge) / edge**0.25
        else:
            rise = np.where(edge < 1, 1.5 * edge, 2 - edge / 2)
        damper = damper * np.where(q < 2, rise, 1)
        damper = damper / (1 + lag * damper * step / mass)
        size = share * normal * overlap - damper * along
        most = friction * np.maximum(size, 0)
        drag = (ratio * damper)[:, None] * (speed - along[:, None] * n)
        dot, rate, squares = ((a * b).sum(1) for a, b in ((history, drag), (drag, drag), (history, history)))
        left = np.maximum(most**2 - squares, 0)
        part = (dot + np.sqrt(dot**2 + rate * left)) / np.where(rate > 0, rate, 1)
        part = np.where((squares - 2 * dot + rate > most**2) & (rate > 0), np.clip(part, 0, 1), 1)
        rubs = (friction > 0)[:, None]
        return size[:, None] * n + np.where(rubs, history - part[:, None] * drag, 0)

    def on_walls(self) -> tuple[np.ndarray, np.ndarray]:
        """Return forces on walls, and torques about their points, in the user's units."""
        touching, rows, x = self._contacts(), self._walls(), self._get("x")
        of_wall = touching.j < 0
        i, wall = touching.i[of_wall], -1 - touching.j[of_wall]
        nearest = x[i] - (self.radii[i] - touching.overlap[of_wall])[:, None] * touching.normal[of_wall]
        force, torque = np.zeros((2, len(rows), 3))
        np.add.at(force, wall, -touching.force[of_wall])
        np.add.at(torque, wall, -np.cross(nearest - rows[wall, POINT], touching.force[of_wall]))
        length, mass, time = self.units
        force, torque = self._sum(np.stack([force, torque]))
        return force * (mass * length / time**2), torque * (mass * length**2 / time**2)

    def energy(self) -> Energy:
        """Return the energy by its kinds."""
        contacts, radii = self._contacts(), self.radii
        x, v, w, masses, sizes = (a[: self.owned] for a in (*map(self._get, "xvw"), self.masses, radii))
        inertia, slope = 0.4 * masses * sizes**2, self._laws(contacts.j)[:, 0]
        if self.law.hertz:
            other = np.where(contacts.j < 0, np.inf, radii[np.maximum(contacts.j, 0)])
            curvature = 1 / radii[contacts.i] + 1 / other
            normal = 4 / 15 * slope * np.sqrt(1 / curvature) * np.maximum(contacts.overlap, 0) ** 2.5
        else:
            normal = slope / 2 * contacts.overlap**2
        stiffness, squares = contacts.stiffness, (contacts.tangential**2).sum(1)
        along = np.divide(squares, 2 * stiffness, where=stiffness > 0, out=np.zeros(len(squares)))
        unit = self.units.mass * self.units.of_vectors("v") ** 2
        kinds = [
            (masses * (v**2).sum(1)).sum() / 2, (inertia * (w**2).sum(1)).sum() / 2,
            -(masses * (x @ self.gravity)).sum(), normal.sum(), along.sum(),
        ]  # fmt: skip
        return Energy(*(unit * self._sum(np.array(kinds))).tolist())

    # ---- restart --------------------------------------------------------------------------------------

    def places(self) -> np.ndarray:
        """Return the positions of this object's particles in the user's unit."""
        self._check_whole()
        return (self._rows("x") * self.units.length).astype(self.dtype)

    def _check_whole(self) -> None:
        if self._waits:
            raise RuntimeError("a step is not whole, because its search for neighbours failed: end it by run(1).")

    def _rows(self, name: str) -> np.ndarray:
        return self._get(name)

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays of a state.

        Raises
        ------
        RuntimeError
            In the middle of a step.
        """
        self._check_whole()
        names = {"positions": "x", "velocities": "v", "spins": "w", "accelerations": "a", "angular_accelerations": "b"}
        touching = self.contacts()
        return {
            **{
                name: (self._rows(at) * self.units.of_vectors(at)).astype(self.dtype if at in "xvw" else np.float64)
                for name, at in names.items()
            },
            "contact_i": touching.i, "contact_j": touching.j, "contact_force": touching.tangential,
            "contact_stiffness": touching.stiffness,
        }  # fmt: skip

    def restore(self, state: dict[str, Any]) -> None:
        """Take accelerations and contacts of a state."""
        i, j = np.asarray(state["contact_i"], np.int64), np.asarray(state["contact_j"], np.int64)
        length, mass, time = self.units
        force, stiffness = (np.asarray(state[f"contact_{name}"], np.float64) for name in ("force", "stiffness"))
        history = np.column_stack([force / (mass * length / time**2), stiffness / (mass / time**2)]).reshape(-1, 4)
        place = np.empty(self.count, np.int64)
        place[self.order] = np.arange(self.count)
        pair = j >= 0
        one, two = place[i[pair]], place[j[pair]]
        rows = np.concatenate([one, two])
        entries = np.concatenate([2 * two + 1, 2 * one])  # the first end of each pair, and the other
        sequence = np.argsort(rows, kind="stable")
        start = np.searchsorted(rows[sequence], np.arange(self.count + 1))
        walls = np.zeros((self.count, max(self.engine.walls, 1), 4), self.dtype)
        walls[place[i[~pair]], -1 - j[~pair]] = history[~pair]
        touched = np.zeros(self.count, np.int64)
        np.bitwise_or.at(touched, i[~pair], 1 << (-1 - j[~pair]))
        with self._on():
            self._put("a", np.asarray(state["accelerations"]))
            self._put("b", np.asarray(state["angular_accelerations"]))
            self._put("w", np.asarray(state["spins"]), touched)
            self.engine.remember(
                start, ~entries[sequence], np.concatenate([history[pair]] * 2)[sequence],
                walls if self.engine.walls else None,
            )  # fmt: skip
            # Forces of a step have seen the middle of it.
            half = self.engine.motion[1] if state["step"] else 0.0
            for middle, end, change in (("u", "v", "a"), ("s", "w", "b")):
                rows = self.engine.get(end).copy()
                rows[:, :3] -= self.dtype.type(half) * self.engine.get(change)[:, :3]
                self.engine.put(middle, rows)
            self._moving = bool(state["step"])
            self.engine.put_walls(self.planes, int(state.get("walls_steps", 0)))
            self._search()


def entries_that_touch(start: np.ndarray, rows: np.ndarray, entries: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return particles that touch another one, and the places of these contacts in lists."""
    rows = rows.astype(np.int64)
    i = np.repeat(np.arange(len(rows)), rows)
    at = np.arange(len(i)) - np.repeat(np.cumsum(rows) - rows, rows) + np.repeat(start[: len(rows)], rows)
    touching = entries[at] < 0
    return i[touching], at[touching]


def by_place(positions: np.ndarray, cell: float) -> np.ndarray:
    """Return an order in which near particles are near in memory: by cells, then by index."""
    if not len(positions):
        return np.zeros(0, np.int64)
    low = positions.min(0)
    cells = np.minimum((positions - low) / cell, 2.0**20).astype(np.int64)
    return np.argsort((cells[:, 0] << 42) | (cells[:, 1] << 21) | cells[:, 2], kind="stable")
