# SPDX-License-Identifier: BSD-3-Clause
"""Spheres that collide: the discrete element method."""

from __future__ import annotations

import functools
import math
import threading
import warnings
from collections.abc import Iterator, Mapping
from os import PathLike
from typing import Any, Self

import numpy as np

from particlemesh.apps.dem.contact import LAWS, Contact
from particlemesh.apps.dem.domain import Domain
from particlemesh.apps.dem.given import STATE_VERSION, InitialState, arrays_of, checked_state, rows_of
from particlemesh.apps.dem.motion import Motion
from particlemesh.apps.dem.record import Recorder
from particlemesh.apps.dem.results import Contacts, Energy
from particlemesh.apps.dem.walls import Plane, check_inside, check_room, walls_of
from particlemesh.apps.files.checkpoint import get, put, reading, writing
from particlemesh.apps.files.libraries import listing
from particlemesh.apps.files.trajectory import FORMATS
from particlemesh.apps.interrupts import deferred
from particlemesh.kernels import Fixed, alone, checks

APPLICATION, FORMAT = "particlemesh.apps.dem", 1


class Simulation(Fixed):
    r"""Spheres under gravity that touch each other and walls.

    Steps are those of velocity Verlet: positions, velocities, spins and contacts are of one time, the end of the last
    step. Without dampers the error is of second order in the time step. Dampers see velocities of the middle of the
    step, which is corrected for impacts: their speeds are of second order, too. Other damped motion is of first order.
    Each particle adds up the forces of its own neighbours, in no order of threads.

    You may set positions, velocities, spins, ``gravity``, ``time_step`` and ``contact`` between runs. The next step
    obeys, and checkpoints hold the new value. Everything else is fixed. NumPy arrays that you get cannot be written to.

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
    walls : sequence of Plane
        Walls beside those of the box.
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

    Attributes
    ----------
    step : int
        Steps made.
    critical_time_step : float
        Beyond it contacts are not resolved.
    walls : tuple of Plane
        All walls, those of the box last.
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
        threads: int | None = None,
    ) -> None:  # fmt: skip
        if not isinstance(contact, Contact):
            raise TypeError(f"contact is a {type(contact).__name__}; give Hertz(...) or LinearSpring(...).")
        self._contact, self.domain = contact, Domain.of(box, periodic)
        self._gravity = _vector(gravity)
        self.deterministic = checks.flag(deterministic, "deterministic")
        self._method = method
        given = arrays_of(positions, radii, velocities, spins, density, backend, dtype)
        self.walls: tuple[Plane, ...] = walls_of(walls, self.domain.walls)
        if len(given.radii):
            largest = float(given.radii.max())
            self.domain.check_radius(largest)
            check_room(self.walls, largest)
        given.positions = self.domain.fold(given.positions)
        check_inside(self.walls, given.positions)
        if time_step is None:
            if not len(given.radii):
                raise ValueError("there are no particles to derive a time step from: give time_step.")
            time_step = contact.default_time_step(*_exact(given.radii, given.masses))
            if not 0 < time_step < float("inf"):
                raise ValueError(
                    f"the time step of these spheres would be {time_step:g}: choose other units, or give time_step."
                )
        self._time_step = checks.positive(time_step, "time_step")
        self._step, self._since = 0, (0, 0.0)
        self._start(given, checks.threads(threads, backend))
        self._warn()
        self._warn_of_distance(given)

    def _start(self, given: InitialState, threads: int | None, *, restored: bool = False) -> None:
        self.busy = threading.RLock()
        self._radii, self._masses, self._threads = given.radii, given.masses, threads
        self._motion = self._moving(given, self._contact, restored=restored)

    def _moving(self, given: InitialState, contact: Contact, *, restored: bool) -> Motion:
        return Motion(
            given, contact.numbers(), self.walls, self.domain, self._gravity, self._time_step,
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
        if not len(self):
            return
        radii, masses = _exact(self._radii, self._masses)
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
        value = checks.positive(value, "time_step")
        self._motion.move_by(value, self._gravity)
        self._since, self._time_step = (self._step, self.time), value
        self._warn()

    @property
    def critical_time_step(self) -> float:
        """Time step beyond which contacts are not resolved."""
        if not len(self):
            return float("inf")
        return self._contact.critical_time_step(*_exact(self._radii, self._masses))

    @property
    def gravity(self) -> tuple[float, ...]:
        """Acceleration, 3 numbers; a new one, also a number g for (0, 0, -g), holds from the next step on."""
        return self._gravity

    @gravity.setter
    @alone
    def gravity(self, value: Any) -> None:
        value = _vector(value)
        self._motion.move_by(self._time_step, value)
        self._gravity = value

    @property
    def contact(self) -> Contact:
        """The law of contact; a new one holds from the next step on. The time step stays."""
        return self._contact

    @contact.setter
    @alone
    def contact(self, value: Contact) -> None:
        if not isinstance(value, Contact):
            raise TypeError(f"contact is a {type(value).__name__}; give Hertz(...) or LinearSpring(...).")
        old = self._motion
        held = old.arrays()
        given = InitialState(
            old.kind, old.user, old.backend, old.dtype, held["positions"], held["velocities"], held["spins"],
            self._radii, self._masses,
        )  # fmt: skip
        motion = self._moving(given, value, restored=True)
        motion.restore(held)
        motion.move_by(self._time_step, self._gravity)
        self._motion, self._contact = motion, value
        self._warn()

    @property
    @alone
    def positions(self) -> Any:
        """The centres (N, 3), folded into axes that repeat; a copy, read-only in NumPy. New ones may be set."""
        return _kept(self._motion.out("x"))

    @positions.setter
    @alone
    def positions(self, value: Any) -> None:
        rows = self._given_rows(value, "positions")
        rows = self.domain.fold(rows)
        check_inside(self.walls, rows)
        self._motion.put("x", rows)

    @property
    @alone
    def velocities(self) -> Any:
        """The velocities (N, 3); a copy, read-only in NumPy. New ones may be set."""
        return _kept(self._motion.out("v"))

    @velocities.setter
    @alone
    def velocities(self, value: Any) -> None:
        self._motion.put("v", self._given_rows(value, "velocities"))

    @property
    @alone
    def spins(self) -> Any:
        """The angular velocities (N, 3); a copy, read-only in NumPy. New ones may be set."""
        return _kept(self._motion.out("w"))

    @spins.setter
    @alone
    def spins(self, value: Any) -> None:
        self._motion.put("w", self._given_rows(value, "spins"))

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
        steps = checks.integer(steps, "steps", 0, 2**62)
        every = checks.integer(every, "every", 1, 2**62)
        if every > 1 and trajectory is None:
            raise ValueError(f"every is {every}, the steps between frames of a trajectory: give trajectory=, too.")
        recorder = Recorder(self, steps, every, trajectory, checks.flag(progress, "progress"))
        with deferred() as interrupted, recorder:
            while recorder.left and not interrupted():
                for made in self._motion.advance(recorder.left, self.step):
                    self._step += made
                    recorder.update_progress(made)
                    if interrupted():
                        break
                recorder.write()

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
            ``time_step``, ``law``, ``origin``, ``lengths``, ``periodic``, ``gravity``, ``dtype``, ``deterministic`` and
            ``method``. ``law_arguments`` is a dict of numbers. ``walls`` (W, 6) has points and normals of all walls.

        Examples
        --------
        >>> import numpy as np
        >>> from particlemesh.apps.dem import Hertz, Simulation
        >>> spheres = Simulation(np.zeros((1, 3)), 1.0, density=1.0, contact=Hertz(1e3))
        >>> state = spheres.state()
        >>> state["step"], state["law"], state["positions"].shape
        (0, 'Hertz', (1, 3))
        """
        walls = np.array([(*wall.point, *wall.normal) for wall in self.walls], np.float64).reshape(-1, 6)
        return {
            **self._motion.arrays(), "radii": self._radii.copy(), "masses": self._masses.copy(),
            "version": STATE_VERSION, "step": self._step, "time": self.time, "time_step": self._time_step,
            "law": type(self._contact).__name__, "law_arguments": self._contact.arguments(), "walls": walls,
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
        held = checked_state(state)
        law = LAWS.get(str(held["law"]))
        if law is None:
            raise ValueError(f"the state has the law of contact {held['law']!r}; known are {', '.join(LAWS)}.")
        new = cls.__new__(cls)
        new._contact = law(**{name: float(number) for name, number in dict(held["law_arguments"]).items()})
        axes = [tuple(np.asarray(held[name]).tolist()) for name in ("origin", "lengths", "periodic", "gravity")]
        new.domain, new._gravity = Domain(*axes[:3]), axes[3]
        new.deterministic, new._method = (
            checks.flag(held["deterministic"], "deterministic of the state"),
            str(held["method"]),
        )
        new.walls = tuple(Plane(tuple(row[:3]), tuple(row[3:])) for row in np.asarray(held["walls"]).tolist())
        new._time_step, new._step = float(held["time_step"]), int(held["step"])
        new._since = new._step, held["time"]
        given = arrays_of(
            held["positions"], held["radii"], held["velocities"], held["spins"], 1.0, backend, str(held["dtype"])
        )
        given.masses = np.array(held["masses"], given.dtype)
        new._start(given, checks.threads(threads, backend), restored=True)
        new._motion.restore(held)
        new._made = frozenset(new.__dict__)
        return new

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
        state = self.state()
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
        with reading(path, APPLICATION, FORMAT) as file:
            if "state" not in file:
                raise KeyError("no state")
            where, state = str(file.attrs["backend"]), get(file, "state", {})
        return cls.restore(state, backend=backend or where, threads=threads)


def _vector(gravity: Any) -> tuple[float, ...]:
    if np.ndim(gravity) == 0:
        return 0.0, 0.0, -checks.per_axis(gravity, 1, "gravity")[0]
    return checks.per_axis(gravity, 3, "gravity")


def _exact(*arrays: np.ndarray) -> Iterator[np.ndarray]:
    """Return radii and masses in a type that holds their powers."""
    return (array.astype(np.float64) for array in arrays)


def _kept(array: Any) -> Any:
    """Return an array whose changes would be lost, read-only where its library has such."""
    if isinstance(array, np.ndarray):
        array.setflags(write=False)
    return array
