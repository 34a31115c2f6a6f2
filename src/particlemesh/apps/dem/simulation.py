# SPDX-License-Identifier: BSD-3-Clause
"""Spheres that collide: the discrete element method."""

from __future__ import annotations

import functools
import math
import threading
import warnings
from collections.abc import Callable, Mapping
from os import PathLike
from typing import Any, Self, TypeVar

import numpy as np

from particlemesh.apps.dem.contact import LAWS, Contact
from particlemesh.apps.dem.domain import Domain
from particlemesh.apps.dem.given import STATE_VERSION, InitialState, arrays_of, checked_state, rows_of, to_host
from particlemesh.apps.dem.motion import Motion
from particlemesh.apps.dem.overlaps import check_overlaps
from particlemesh.apps.dem.record import Recorder
from particlemesh.apps.dem.results import Contacts, Energy, WallForces
from particlemesh.apps.dem.walls import Plane, Wall, check_inside, check_room, wall_of, walls_of
from particlemesh.apps.files.checkpoint import get, put, reading, writing
from particlemesh.apps.files.libraries import listing
from particlemesh.apps.files.recording import checked
from particlemesh.apps.files.replacing import together
from particlemesh.apps.files.trajectory import FORMATS
from particlemesh.apps.interrupts import deferred
from particlemesh.kernels import Fixed, alone, checks

_VECTORS = "positions", "velocities", "spins", "accelerations", "angular_accelerations"  # of a state
APPLICATION, FORMAT = "particlemesh.apps.dem", 1
T = TypeVar("T")


class Simulation(Fixed):
    r"""Spheres under gravity that touch each other and walls.

    Steps are those of velocity Verlet: positions, velocities, spins and contacts are of one time, the end of the last
    step. Without dampers the error is of second order in the time step. Dampers see velocities of the middle of the
    step, which is corrected for impacts: their speeds are of second order, too. Other damped motion is of first order.
    Each particle adds up the forces of its own neighbours, in no order of threads.

    You may set positions, velocities, spins, ``gravity``, ``time_step``, ``contact`` and ``walls`` between runs. The
    next step obeys, and checkpoints hold the new value. ``insert`` and ``remove`` change the particles. All else is
    fixed. NumPy arrays that you get cannot be written to.

    Parameters
    ----------
    positions : array (N, 3)
        Centres, of any kind of array that :class:`particlemesh.UniformGrid` takes; they are copied. The simulation runs
        where they are, and its results are arrays of this kind.
    radii : number or array (N,)
    velocities : number, 3 numbers, or array (N, 3)
    spins : number, 3 numbers, or array (N, 3)
        Angular velocities.
    density : number or array (N,)
        Mass per volume.
    contact : Hertz or LinearSpring
        The law of contact of particles and walls.
    walls : sequence of Plane, Rectangle, Disc, Cylinder or Cone
        Walls beside those of the box. They may move, turn, and have a law of contact of their own.
    box : None, Box or 3 lengths
        Axes that are not periodic have walls at both ends. An axis of infinite length, or a simulation without a box,
        has no end, and only ``walls`` are there. Lengths begin at 0.
    periodic : bool or 3 bools
        Which axes repeat, for a box given by its lengths.
    gravity : number or 3 numbers
        Acceleration; a number g is (0, 0, -g).
    time_step : number, optional
        By default a tenth of ``critical_time_step`` for :class:`Hertz`, and 1/63 of a contact for
        :class:`LinearSpring`. With a restitution below 0.1 it is shorter. A warning says so if it is more than the
        critical one, or too long for the restitution.
    deterministic : bool
        Whether forces on a particle are added up in the order of its neighbours' numbers. Then a trajectory depends
        neither on the grid's method, nor on where lists were renewed, and a restart continues bit-identically.
    method : str
        Builder of the grid, by name.
    backend : {"cpu", "cuda", "opencl"}, optional
        By default where the positions are. If named, host arrays are copied there, and results back.
    dtype : {"float32", "float64"}, optional
        By default that of the positions.
    threads : int, optional
        Most threads on the CPU.
    overlaps : {"refuse", "allow"}
        Whether particles may start deeper in others or in walls than half of the smaller radius: they would burst
        apart. :func:`relaxed_positions` moves them apart first.

    Attributes
    ----------
    step : int
        Steps made.
    critical_time_step : float
        Beyond it contacts are not resolved.
    walls : tuple
        All walls where they are now, those of the box last. The same number of other ones may be set.
    rebuilds : int
        How often neighbours were searched for. Lists hold pairs a little farther apart than they touch, and are renewed
        once a particle has moved half of that margin.

    Raises
    ------
    ValueError, TypeError
        If an argument is not allowed; the message says what is.

    References
    ----------
    The forces are those of :class:`Hertz` and :class:`LinearSpring`, the lists those of [verlet1967]_.

    Examples
    --------
    A ball drops on a floor and bounces with a coefficient of restitution of 0.8:

    >>> import numpy as np
    >>> from particlemesh.apps.dem import LinearSpring, Plane, Simulation
    >>> law = LinearSpring(stiffness=1e4, restitution=0.8)
    >>> ball = Simulation(np.array([[0.0, 0.0, 0.1001]]), 0.1, velocities=(0, 0, -1.0), density=1000.0, contact=law,
    ...                   walls=[Plane((0, 0, 0), (0, 0, 1))])
    >>> ball.run(700)
    >>> round(float(ball.velocities[0, 2]), 2)
    0.8
    """

    def __init__(
        self, positions: Any, radii: Any, velocities: Any = 0.0, *, spins: Any = 0.0, density: Any, contact: Contact,
        walls: Any = (), box: Any = None, periodic: Any = False, gravity: Any = 0.0, time_step: float | None = None,
        deterministic: bool = False, method: str = "auto", backend: str | None = None, dtype: Any = None,
        threads: int | None = None, overlaps: str = "refuse",
    ) -> None:  # fmt: skip
        given = self._accepted(
            positions, radii, velocities, spins, density, contact, walls, box, periodic, gravity, time_step,
            deterministic, method, backend, dtype, overlaps,
        )  # fmt: skip
        self._go(given, time_step, checks.threads(threads, backend), overlaps)
        self._warn()
        self._warn_of_distance(given)

    def _accepted(
        self, positions: Any, radii: Any, velocities: Any, spins: Any, density: Any, contact: Any, walls: Any, box: Any,
        periodic: Any, gravity: Any, time_step: Any, deterministic: Any, method: Any, backend: Any, dtype: Any,
        overlaps: Any,
    ) -> InitialState:  # fmt: skip
        """Check arguments, keep what steps need, and return the particles."""
        if not isinstance(contact, Contact):
            raise TypeError(f"contact is a {type(contact).__name__}; give Hertz(...) or LinearSpring(...).")
        self._contact, self.domain = contact, Domain.of(box, periodic)
        self._gravity = _vector(gravity)
        self.deterministic = checks.flag(deterministic, "deterministic")
        self._method = method
        given = arrays_of(positions, radii, velocities, spins, density, backend, dtype)
        self._placed: tuple[Wall, ...] = walls_of(walls, self.domain.walls)
        self._largest(given)
        given.positions = self.domain.fold(given.positions)
        check_inside(self._placed, given.positions)
        checks.one_of(overlaps, "overlaps", ("refuse", "allow"))
        if time_step is not None:
            checks.positive(time_step, "time_step")
        return given

    def _go(self, given: InitialState, time_step: float | None, threads: int | None, overlaps: str) -> None:
        self._radii, self._masses, self._threads = given.radii, given.masses, threads
        spheres = self._spheres()
        if time_step is None:
            if not len(spheres[0]):
                raise ValueError("there are no particles to derive a time step from: give time_step.")
            time_step = self._contact.default_time_step(*spheres)
            if not 0 < time_step < float("inf"):
                raise ValueError(
                    f"the time step of these spheres would be {time_step:g}: choose other units, or give time_step."
                )
        self._time_step = checks.positive(time_step, "time_step")
        self._step, self._since, self._walls_since = 0, (0, 0.0), 0
        self._start(given)
        if overlaps == "refuse":
            self._check_overlaps()

    def _check_overlaps(self, new: np.ndarray | None = None) -> None:
        check_overlaps(self._motion.contacts(), self._radii, new)

    def _of_all(self, flags: np.ndarray) -> np.ndarray:
        """Return flags of all particles, in the order of their numbers."""
        return flags

    def _spheres(self) -> tuple[np.ndarray, np.ndarray]:
        """Return radii and masses of which time steps are derived, in a type that holds their powers."""
        return self._radii.astype(np.float64), self._masses.astype(np.float64)

    def _alike(self, work: Callable[[], tuple[str, T]]) -> T:
        """Return the result of work on what the user gives; the text says what all ranks give alike."""
        return work()[1]

    def _start(self, given: InitialState, *, restored: bool = False) -> None:
        self.busy = threading.RLock()
        self._motion = self._moving(given, self._contact, restored=restored)

    def _largest(self, given: InitialState) -> None:
        """Check that the largest sphere has room."""
        if len(given.radii):
            largest = float(given.radii.max())
            self.domain.check_radius(largest)
            check_room(self._placed, largest)

    def _moving(self, given: InitialState, contact: Contact, *, restored: bool) -> Motion:
        return Motion(
            given, contact.numbers(), self._placed, self.domain, self._gravity, self._time_step,
            deterministic=self.deterministic, method=self._method, threads=self._threads, restored=restored,
        )  # fmt: skip

    def _warn_of_distance(self, given: InitialState) -> None:
        """Warn if positions are too far from the origin for the motion of a step."""
        if not len(self):
            return
        farthest, least = float(abs(given.positions).max()), float(given.radii.min())
        resolved = float(np.spacing(given.dtype.type(farthest)))
        lost = resolved / 2 / self._time_step
        speed = max(float(abs(given.velocities).max()), (2 * math.hypot(*self._gravity) * least) ** 0.5)
        if resolved > 1e-3 * least or lost > 0.05 * speed > 0:
            warnings.warn(
                f"positions up to {farthest:g} are multiples of {resolved:g} in {given.dtype}: spheres slower than "
                f"{lost:g} do not move, and the least radius is {least:g}. Move the origin"
                + ", or give dtype='float64'" * (given.dtype.itemsize < 8) + ".",
                stacklevel=3,
            )  # fmt: skip

    def _warn(self) -> None:
        """Warn of what this time step cannot resolve."""
        radii, masses = self._spheres()
        if not len(radii):
            return
        longest = self._contact.resolved_time_step(radii, masses)
        if self._time_step > self.critical_time_step:
            warnings.warn(
                f"time_step is {self._time_step:g}, and the critical one for this stiffness is "
                f"{self.critical_time_step:g}: contacts are not resolved, and energy may grow.", stacklevel=3,
            )  # fmt: skip
        elif self._time_step > longest:
            warnings.warn(
                f"time_step is {self._time_step:g}: with more than {longest:g}, impacts miss the restitution "
                f"{self._contact.restitution:g} by over 1 %.", stacklevel=3,
            )  # fmt: skip

    def __repr__(self) -> str:
        return f"<Simulation of {len(self):,} spheres, step {self.step:,}, time {self.time:g}>"

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy has arrays of NumPy, and goes on where this simulation is.
        threads = self._threads if self.backend == "cpu" else None
        return functools.partial(self.restore, backend=self.backend, threads=threads), (self.state(),)

    def __len__(self) -> int:
        return self._motion.count

    # ---- state ----------------------------------------------------------------------------------------

    @property
    def step(self) -> int:
        """Steps made."""
        return self._step

    @property
    def time(self) -> float:
        """Time since the start."""
        step, time = self._since
        return time + (self._step - step) * self._time_step

    @property
    def time_step(self) -> float:
        """Time of a step; a new one holds from the next step on."""
        return self._time_step

    @time_step.setter
    @alone
    def time_step(self, value: float) -> None:
        value = self._alike(lambda: (f"time_step {(step := checks.positive(value, 'time_step'))}", step))
        self._change(time_step=value)
        self._since, self._time_step = (self._step, self.time), value
        self._warn()

    @property
    def critical_time_step(self) -> float:
        """Time step beyond which contacts are not resolved."""
        radii, masses = self._spheres()
        return self._contact.critical_time_step(radii, masses) if len(radii) else float("inf")

    @property
    def gravity(self) -> tuple[float, ...]:
        """Acceleration, 3 numbers; a new one, also a number g for (0, 0, -g), holds from the next step on."""
        return self._gravity

    @gravity.setter
    @alone
    def gravity(self, value: Any) -> None:
        value = self._alike(lambda: (f"gravity {_vector(value)}", _vector(value)))
        self._change(gravity=value)
        self._gravity = value

    def _change(self, *, walls: Any = None, time_step: float | None = None, gravity: Any = None) -> None:
        """Let steps go on with other numbers; walls begin to move from where they are."""
        placed = self.walls if walls is None else walls
        self._motion.move_by(
            self._time_step if time_step is None else time_step, self._gravity if gravity is None else gravity, placed
        )
        self._placed, self._walls_since = placed, self._step

    @property
    def walls(self) -> tuple[Wall, ...]:
        """All walls where they are now, those of the box last.

        The next step obeys new ones, as many as before and with those of the box. A wall remembers what touches it.
        """
        time = (self._step - self._walls_since) * self._time_step
        return tuple(wall.moved(time) for wall in self._placed)

    @walls.setter
    @alone
    def walls(self, value: Any) -> None:
        places = self._motion.places()
        walls = self._alike(lambda: (f"walls {(walls := self._other_walls(value, places))}", walls))
        self._change(walls=walls)

    def _other_walls(self, value: Any, places: np.ndarray) -> tuple[Wall, ...]:
        """Return other walls, checked."""
        walls = walls_of(value, [])
        if len(walls) != len(self._placed):
            raise ValueError(f"there are {len(walls)} walls; this simulation has {len(self._placed)}: give as many.")
        rubs = [any(law.friction > 0 for law in self._laws(each)) for each in (walls, self._placed)]
        if rubs[0] and not rubs[1]:
            raise ValueError("a wall has friction now, and none had when the simulation began: make a new simulation.")
        if len(self):
            check_room(walls, float(self._radii.max()))
            check_inside(walls, places)
        return walls

    def _laws(self, walls: tuple[Wall, ...]) -> list[Any]:
        return [(self._contact if wall.contact is None else wall.contact).numbers() for wall in walls]

    @property
    def contact(self) -> Contact:
        """The law of contact; a new one holds from the next step on. The time step stays."""
        return self._contact

    @contact.setter
    @alone
    def contact(self, value: Contact) -> None:
        def law() -> tuple[str, Contact]:
            if not isinstance(value, Contact):
                raise TypeError(f"contact is a {type(value).__name__}; give Hertz(...) or LinearSpring(...).")
            return f"contact {value}", value

        self._renew(self._alike(law), self._motion.arrays(), self._radii, self._masses)
        self._warn()

    def _renew(self, contact: Contact, held: dict[str, Any], radii: np.ndarray, masses: np.ndarray) -> None:
        """Go on with these particles and this law."""
        old, placed = self._motion, self.walls
        given = InitialState(
            old.kind, old.user, old.backend, old.dtype, held["positions"], held["velocities"], held["spins"], radii,
            masses,
        )  # fmt: skip
        motion = self._moving(given, contact, restored=True)
        motion.restore({**held, "step": self._step})
        motion.move_by(self._time_step, self._gravity, placed)
        self._motion, self._contact, self._radii, self._masses = motion, contact, radii, masses
        self._placed, self._walls_since = placed, self._step

    @alone
    def insert(
        self, positions: Any, radii: Any, velocities: Any = 0.0, *, spins: Any = 0.0, density: Any,
        overlaps: str = "refuse",
    ) -> None:  # fmt: skip
        """Add particles between two runs; they get the next numbers. For a stream of particles, call it now and then.

        Parameters
        ----------
        positions, radii, velocities, spins, density, overlaps
            As for :class:`Simulation`; with "refuse", new particles may be no deeper in those that are there, either.

        Raises
        ------
        ValueError, TypeError
            If an argument is not allowed. The simulation stays as it was.

        Examples
        --------
        >>> import numpy as np
        >>> from particlemesh.apps.dem import Hertz, Simulation
        >>> rain = Simulation(np.zeros((1, 3)), 1.0, density=1.0, contact=Hertz(1e3), gravity=10.0, time_step=0.01)
        >>> rain.run(100)
        >>> rain.insert(np.zeros((1, 3)), 0.5, density=1.0)
        >>> len(rain), rain.positions[:, 2].round(12).tolist()
        (2, [-5.0, 0.0])
        """

        def accepted() -> tuple[str, InitialState]:
            checks.one_of(overlaps, "overlaps", ("refuse", "allow"))
            new = arrays_of(to_host(positions, "positions"), radii, velocities, spins, density, "cpu", self.dtype)
            self._largest(new)
            new.positions = self.domain.fold(new.positions)
            check_inside(self.walls, new.positions)
            return f"insert, {overlaps=}", new

        new = self._alike(accepted)
        before, (old_radii, old_masses) = self._motion.arrays(), (self._radii, self._masses)
        held, zeros = dict(before), np.zeros((len(new.radii), 3))
        rows = (new.positions, new.velocities, new.spins, zeros, zeros)
        for name, more in zip(_VECTORS, rows, strict=True):
            held[name] = np.concatenate([held[name], more])
        old = self._of_all(np.arange(len(old_radii) + len(new.radii)) < len(old_radii))
        names, j = np.append(np.flatnonzero(old), 0), held["contact_j"]
        held["contact_i"], held["contact_j"] = names[held["contact_i"]], np.where(j < 0, j, names[np.maximum(j, 0)])
        self._renew(
            self._contact, held, np.concatenate([old_radii, new.radii]), np.concatenate([old_masses, new.masses])
        )
        if overlaps == "refuse":
            try:
                self._check_overlaps(~old)
            except (ValueError, RuntimeError):
                self._renew(self._contact, before, old_radii, old_masses)
                raise
        self._warn()

    @alone
    def remove(self, which: Any) -> None:
        """Take particles out between two runs; those behind them move up.

        Parameters
        ----------
        which : array (N,) of bool

        Raises
        ------
        ValueError
            If it is no such array.

        Examples
        --------
        >>> import numpy as np
        >>> from particlemesh.apps.dem import Hertz, Simulation
        >>> three = Simulation(3.0 * np.eye(3), 1.0, density=1.0, contact=Hertz(1e3))
        >>> three.remove(three.positions[:, 0] > 1)
        >>> three.positions.tolist()
        [[0.0, 3.0, 0.0], [0.0, 0.0, 3.0]]
        """

        def accepted() -> tuple[str, np.ndarray]:
            out = np.asarray(which)
            if out.shape != (len(self),) or out.dtype != bool:
                raise ValueError(f"which is {out.dtype} {out.shape}; ({len(self)},) of bool is needed.")
            return "remove", ~out

        stay = self._alike(accepted)
        held, all_stay = self._motion.arrays(), self._of_all(stay)
        names = np.append(np.cumsum(all_stay) - 1, 0)
        i, j = held["contact_i"], held["contact_j"]
        kept = all_stay[i] & ((j < 0) | all_stay[np.maximum(j, 0)])
        for name in _VECTORS:
            held[name] = held[name][stay]
        for name in ("contact_force", "contact_stiffness"):
            held[name] = held[name][kept]
        held["contact_i"], held["contact_j"] = names[i[kept]], np.where(j < 0, j, names[np.maximum(j, 0)])[kept]
        self._renew(self._contact, held, self._radii[stay], self._masses[stay])

    @property
    @alone
    def positions(self) -> Any:
        """The centres (N, 3), folded into axes that repeat; a copy, read-only in NumPy. New ones may be set."""
        return _kept(self._motion.out("x"))

    @positions.setter
    @alone
    def positions(self, value: Any) -> None:
        def rows() -> tuple[str, np.ndarray]:
            rows = self.domain.fold(self._given_rows(value, "positions"))
            check_inside(self.walls, rows)
            return "positions", rows

        self._motion.put("x", self._alike(rows))

    @property
    @alone
    def velocities(self) -> Any:
        """The velocities (N, 3); a copy, read-only in NumPy. New ones may be set."""
        return _kept(self._motion.out("v"))

    @velocities.setter
    @alone
    def velocities(self, value: Any) -> None:
        self._motion.put("v", self._alike(lambda: ("velocities", self._given_rows(value, "velocities"))))

    @property
    @alone
    def spins(self) -> Any:
        """The angular velocities (N, 3); a copy, read-only in NumPy. New ones may be set."""
        return _kept(self._motion.out("w"))

    @spins.setter
    @alone
    def spins(self, value: Any) -> None:
        self._motion.put("w", self._alike(lambda: ("spins", self._given_rows(value, "spins"))))

    def _given_rows(self, value: Any, what: str) -> np.ndarray:
        return rows_of(value, what, len(self), self.dtype, 3)

    @property
    def radii(self) -> np.ndarray:
        """The radii (N,), a copy in NumPy."""
        return _kept(self._radii.copy())

    @property
    def masses(self) -> np.ndarray:
        """The masses (N,), a copy in NumPy."""
        return _kept(self._masses.copy())

    @property
    def rebuilds(self) -> int:
        """How often neighbours were searched for."""
        return self._motion.rebuilds

    @property
    def backend(self) -> str:
        """Where the simulation runs: ``"cpu"``, ``"cuda"`` or ``"opencl"``."""
        return str(self._motion.backend.name)

    @property
    def dtype(self) -> np.dtype:
        """Type of the numbers that move."""
        return self._motion.dtype

    @property
    @alone
    def contacts(self) -> Contacts:
        """What touches now; waits for the device."""
        return self._motion.contacts()

    @property
    @alone
    def wall_forces(self) -> WallForces:
        """Forces and torques of particles on walls, of the last step; waits for the device."""
        return WallForces(*self._motion.on_walls())

    @property
    @alone
    def energy(self) -> Energy:
        """The energy, by its kinds; waits for the device."""
        return self._motion.energy()

    # ---- motion ---------------------------------------------------------------------------------------

    @alone
    @listing(ENDINGS=FORMATS)
    def run(
        self, steps: int, *, progress: bool = False, every: int = 1, trajectory: str | PathLike | None = None
    ) -> None:
        """Make steps. Ctrl-C ends with the state of a whole step.

        Parameters
        ----------
        steps : int
            How many.
        progress : bool
            Show a bar on the terminal (standard error), with particles per second, energy and contacts.
        every : int
            Frames are written at steps that are multiples of this, the present one included.
        trajectory : path, optional
            A file that ends in ENDINGS, with positions, velocities, spins and radii. A file that exists is continued,
            if its last frame is not later than the present step.

        Raises
        ------
        FloatingPointError
            If a position is not finite any more; the message names the step and the particle.
        ImportError
            If the trajectory's library is missing; the extra ``io`` has them.
        KeyboardInterrupt
            After Ctrl-C, once the present step is whole; ``step`` says which one.

        Examples
        --------
        >>> import numpy as np
        >>> from particlemesh.apps.dem import Hertz, Simulation
        >>> falling = Simulation(np.zeros((1, 3)), 1.0, density=1.0, contact=Hertz(1e3), gravity=10.0, time_step=0.01)
        >>> falling.run(100)
        >>> falling.step, round(falling.time, 12), falling.positions.round(12)
        (100, 1.0, array([[ 0.,  0., -5.]]))
        """

        def accepted() -> tuple[str, tuple[int, int, bool]]:
            numbers = checked(steps, every, trajectory, progress)
            self._motion.check()
            return f"a run of {numbers}, {trajectory}", numbers

        steps, every, shown = self._alike(accepted)
        with deferred() as interrupted, Recorder(self, steps, every, trajectory, shown) as recorder:
            recorder.write()
            while recorder.left and not self._any(interrupted()):
                for made in self._motion.advance(recorder.left, self.step):
                    self._step += made
                    recorder.update_progress(made)
                    if self._any(interrupted()):
                        break
                recorder.write()

    def _any(self, flag: bool) -> bool:
        return flag

    # ---- restart --------------------------------------------------------------------------------------

    @alone
    def state(self) -> dict[str, Any]:
        """Return all that a restart needs, as NumPy arrays, numbers, strings and tuples of these.

        Returns
        -------
        dict
            Arrays ``positions``, ``velocities``, ``spins``, ``accelerations``, ``angular_accelerations`` (N, 3),
            ``radii``, ``masses`` (N,). What touches: ``contact_i``, ``contact_j`` (C,), ``contact_force`` (C, 3),
            ``contact_stiffness`` (C,), as in :class:`Contacts`. Parameters: ``version``, ``step``, ``time``,
            ``since_step`` and ``since_time`` (from which time counts), ``time_step``, ``law``, ``origin``, ``lengths``,
            ``periodic``, ``gravity``, ``dtype``, ``deterministic`` and ``method``. ``law_arguments`` is a dict of
            numbers. ``walls`` (W, 18) has all walls where they were ``walls_steps`` before.

        Examples
        --------
        >>> import numpy as np
        >>> from particlemesh.apps.dem import Hertz, Simulation
        >>> spheres = Simulation(np.zeros((1, 3)), 1.0, density=1.0, contact=Hertz(1e3))
        >>> state = spheres.state()
        >>> state["step"], state["law"], state["positions"].shape
        (0, 'Hertz', (1, 3))
        """
        walls = np.array([wall.state() for wall in self._placed], np.float64).reshape(-1, 18)
        return {
            **self._motion.arrays(), "radii": self._radii.copy(), "masses": self._masses.copy(),
            "version": STATE_VERSION, "step": self._step, "time": self.time, "since_step": self._since[0],
            "since_time": self._since[1], "time_step": self._time_step,
            "law": type(self._contact).__name__, "law_arguments": self._contact.arguments(), "walls": walls,
            "walls_steps": self._step - self._walls_since,
            "origin": self.domain.origin, "lengths": self.domain.lengths, "periodic": self.domain.periodic,
            "gravity": self._gravity, "dtype": self.dtype.name, "deterministic": self.deterministic,
            "method": self._method,
        }  # fmt: skip

    @classmethod
    def restore(cls, state: Mapping[str, Any], *, backend: str | None = None, threads: int | None = None) -> Self:
        """Return the simulation of a :meth:`state`, with arrays of NumPy.

        Parameters
        ----------
        state : mapping
            As :meth:`state` returned it. A simulation made with ``deterministic=True`` continues bit for bit on
            the same device.
        backend, threads : optional
            As for :class:`Simulation`.

        Returns
        -------
        Simulation

        Raises
        ------
        ValueError
            If it is no such state.

        Examples
        --------
        >>> import numpy as np
        >>> from particlemesh.apps.dem import Hertz, Simulation
        >>> spheres = Simulation(np.zeros((1, 3)), 1.0, (1.0, 0, 0), density=1.0, contact=Hertz(1e3), time_step=0.1)
        >>> spheres.run(5)
        >>> again = Simulation.restore(spheres.state())
        >>> again.run(5)
        >>> again.step, again.positions.round(12)
        (10, array([[1., 0., 0.]]))
        """
        new = cls.__new__(cls)
        new._restore(checked_state(state), backend, threads)
        return new

    def _restore(self, held: dict[str, Any], backend: str | None, threads: int | None) -> None:
        """Become the simulation of a checked state."""
        law = LAWS.get(str(held["law"]))
        if law is None:
            raise ValueError(f"the state has the law of contact {held['law']!r}; known are {', '.join(LAWS)}.")
        self._contact = law(**{name: float(number) for name, number in dict(held["law_arguments"]).items()})
        axes = [tuple(np.asarray(held[name]).tolist()) for name in ("origin", "lengths", "periodic", "gravity")]
        self.domain, self._gravity = Domain(*axes[:3]), axes[3]
        self.deterministic = checks.flag(held["deterministic"], "deterministic of the state")
        self._method = str(held["method"])
        rows = np.asarray(held["walls"], np.float64).tolist()
        if held["version"] == 1:  # which had planes only
            self._placed = tuple(Plane(tuple(row[:3]), tuple(row[3:])) for row in rows)
        else:
            self._placed = tuple(wall_of(row, str(held["law"])) for row in rows)
        self._time_step, self._step = float(held["time_step"]), int(held["step"])
        self._walls_since = self._step - held["walls_steps"]
        self._since = held["since"]
        given = arrays_of(
            held["positions"], held["radii"], held["velocities"], held["spins"], 1.0, backend, str(held["dtype"])
        )
        given.masses = np.array(held["masses"], given.dtype)
        self._radii, self._masses, self._threads = given.radii, given.masses, checks.threads(threads, backend)
        self._start(given, restored=True)
        self._motion.restore(held)
        self._made = frozenset(self.__dict__)

    @alone
    def save(self, path: str | PathLike) -> None:
        """Write a checkpoint, an .h5 file with :meth:`state`.

        An existing file is replaced once the new one is whole. The file has a checksum, and a damaged one is refused.

        Parameters
        ----------
        path : path

        Raises
        ------
        ImportError
            If h5py is missing; the extra ``io`` has it.
        """
        state, world = self.state(), getattr(self, "world", None)
        with together(world, "a checkpoint"):
            if world is None or not world.rank:
                with writing(path, APPLICATION, FORMAT) as file:
                    file.attrs["backend"] = self.backend
                    put(file, "state", state, {})

    @classmethod
    def load(cls, path: str | PathLike, *, backend: str | None = None, threads: int | None = None) -> Self:
        """Return the simulation of a checkpoint, with arrays of NumPy.

        Parameters
        ----------
        path : path
            Written by :meth:`save`. A simulation made with ``deterministic=True`` continues bit for bit on the
            same device.
        backend : {"cpu", "cuda", "opencl"}, optional
            By default that of the simulation that was saved.
        threads : int, optional
            As for :class:`Simulation`.

        Returns
        -------
        Simulation

        Raises
        ------
        ImportError
            If h5py is missing; the extra ``io`` has it.
        ValueError
            If the file is no checkpoint, or a damaged one.

        Examples
        --------
        >>> import tempfile
        >>> import numpy as np
        >>> from particlemesh.apps.dem import Hertz, Simulation
        >>> spheres = Simulation(np.zeros((1, 3)), 1.0, (1.0, 0, 0), density=1.0, contact=Hertz(1e3), time_step=0.1)
        >>> spheres.run(5)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     spheres.save(f"{folder}/state.h5")
        ...     again = Simulation.load(f"{folder}/state.h5")
        >>> again.run(5)
        >>> again.step, again.positions.round(12)
        (10, array([[1., 0., 0.]]))
        """
        state, where = read_state(path)
        return cls.restore(state, backend=backend or where, threads=threads)


def read_state(path: Any) -> tuple[dict[str, Any], str]:
    """Return the state of a checkpoint, and the backend that it was on."""
    with reading(path, APPLICATION, FORMAT) as file:
        if "state" not in file:
            raise KeyError("no state")
        return get(file, "state", {}), str(file.attrs["backend"])


def _vector(gravity: Any) -> tuple[float, ...]:
    if np.ndim(gravity) == 0:
        return 0.0, 0.0, -checks.per_axis(gravity, 1, "gravity")[0]
    return checks.per_axis(gravity, 3, "gravity")


def _kept(array: Any) -> Any:
    """Return an array whose changes would be lost, read-only where its library has such."""
    if isinstance(array, np.ndarray):
        array.setflags(write=False)
    return array
