# SPDX-License-Identifier: BSD-3-Clause
"""Spheres that collide: the discrete element method."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Mapping
from os import PathLike
from typing import Any, Self

import numpy as np

from particlemesh.apps.dem import state as states
from particlemesh.apps.dem.checkpoint import Checkpoints
from particlemesh.apps.dem.contact import LAWS, Contact
from particlemesh.apps.dem.domain import Domain
from particlemesh.apps.dem.given import arrays_of
from particlemesh.apps.dem.motion import Motion
from particlemesh.apps.dem.record import Recorder
from particlemesh.apps.dem.results import Contacts, Energy
from particlemesh.apps.dem.walls import Plane, check_inside, check_room, walls_of
from particlemesh.apps.interrupts import deferred
from particlemesh.kernels import alone, checks


class Simulation(Checkpoints):
    r"""Spheres under gravity that touch each other and walls.

    Steps are those of velocity Verlet: positions, velocities, spins and contacts are of one time, the end of the last
    step. Without dampers the error is of second order in the time step. Dampers see velocities of the middle of the
    step, which is of first order. Each particle adds up the forces of its own neighbours, in no order of threads.

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
        By default a tenth of ``critical_time_step`` for :class:`Hertz`, and 0.05 of it for :class:`LinearSpring`,
        when a contact takes 60 steps. A warning says so if it is more than the critical one.
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
    time_step, critical_time_step : float
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
        self.contact, self.domain = contact, Domain.of(box, periodic)
        down = checks.per_axis(gravity, 1, "gravity")[0] if np.ndim(gravity) == 0 else 0.0
        self.gravity = (0.0, 0.0, -down) if np.ndim(gravity) == 0 else checks.per_axis(gravity, 3, "gravity")
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
        self.critical_time_step = (
            contact.critical_time_step(given.radii, given.masses) if len(given.radii) else float("inf")
        )
        if time_step is None:
            if not len(given.radii):
                raise ValueError("there are no particles to derive a time step from: give time_step.")
            time_step = contact.fraction * self.critical_time_step
            if not 0 < time_step < float("inf"):
                raise ValueError(
                    f"the critical time step of these spheres is {self.critical_time_step:g}: choose other units, or "
                    f"give time_step."
                )
        self.time_step = checks.positive(time_step, "time_step")
        if self.time_step > self.critical_time_step:
            warnings.warn(
                f"time_step is {self.time_step:g}, and the critical one for this stiffness is "
                f"{self.critical_time_step:g}: contacts are not resolved, and energy may grow.", stacklevel=2,
            )  # fmt: skip
        self._start(given, method, threads)

    def _start(self, given: Any, method: str, threads: int | None, *, restored: bool = False) -> None:
        self.step = 0
        self.busy = threading.RLock()
        self._motion = Motion(
            given, self.contact.numbers(), self.walls, self.domain, self.gravity, self.time_step,
            deterministic=self.deterministic, method=method, threads=threads, restored=restored,
        )  # fmt: skip

    def __repr__(self) -> str:
        return f"<Simulation of {len(self):,} spheres, step {self.step:,}, time {self.time:g}>"

    def __len__(self) -> int:
        return self._motion.count

    # ---- state ----------------------------------------------------------------------------------------

    @property
    def time(self) -> float:
        """Time since the start."""
        return self.step * self.time_step

    @property
    @alone
    def positions(self) -> Any:
        """A copy of the centres (N, 3), folded into axes that repeat."""
        return self._motion.out("x")

    @property
    @alone
    def velocities(self) -> Any:
        """A copy of the velocities (N, 3)."""
        return self._motion.out("v")

    @property
    @alone
    def spins(self) -> Any:
        """A copy of the angular velocities (N, 3)."""
        return self._motion.out("w")

    @property
    def radii(self) -> np.ndarray:
        """The radii (N,), a copy in NumPy."""
        return self._motion.radii.copy()

    @property
    def masses(self) -> np.ndarray:
        """The masses (N,), a copy in NumPy."""
        return self._motion.masses.copy()

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
            A file that ends in .gsd, .xyz (OVITO), .vtu (ParaView, a file per frame) or .h5 (H5MD), with positions,
            velocities, spins and radii. A file that exists is continued, if its last frame is not later than the
            present step.

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
        recorder = Recorder(self, steps, every, trajectory, checks.flag(progress, "progress"))
        with deferred() as interrupted, recorder:
            while recorder.left and not interrupted():
                for made in self._motion.advance(recorder.left, self.step):
                    self.step += made
                    recorder.made(made)
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
            ``contact_stiffness`` (C,), as in :class:`Contacts`. Parameters: ``version``, ``step``, ``time_step``,
            ``law``, ``origin``, ``lengths``, ``periodic``, ``gravity``, ``dtype``, ``deterministic`` and ``method``.
            ``law_arguments`` is a dict of numbers. ``walls`` (W, 6) has points and normals of all walls.

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
            **self._motion.arrays(), "version": states.VERSION, "step": self.step, "time_step": self.time_step,
            "law": type(self.contact).__name__, "law_arguments": self.contact.arguments(), "walls": walls,
            "origin": self.domain.origin, "lengths": self.domain.lengths, "periodic": self.domain.periodic,
            "gravity": self.gravity, "dtype": self.dtype.name, "deterministic": self.deterministic,
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
        held = states.check(state)
        law = LAWS.get(str(held["law"]))
        if law is None:
            raise ValueError(f"the state has the law of contact {held['law']!r}; known are {', '.join(LAWS)}.")
        new = cls.__new__(cls)
        new.contact = law(**{name: float(number) for name, number in dict(held["law_arguments"]).items()})
        axes = [tuple(np.asarray(held[name]).tolist()) for name in ("origin", "lengths", "periodic", "gravity")]
        new.domain, new.gravity = Domain(*axes[:3]), axes[3]
        new.deterministic, new._method = bool(held["deterministic"]), str(held["method"])
        new.walls = tuple(Plane(tuple(row[:3]), tuple(row[3:])) for row in np.asarray(held["walls"]).tolist())
        new.time_step = float(held["time_step"])
        given = arrays_of(
            held["positions"], held["radii"], held["velocities"], held["spins"], 1.0, backend, str(held["dtype"])
        )
        given.masses = np.array(held["masses"], given.dtype)
        new.critical_time_step = (
            new.contact.critical_time_step(given.radii, given.masses) if len(given.radii) else np.inf
        )
        new._start(given, new._method, threads, restored=True)
        new.step = int(held["step"])
        new._motion.restore(held)
        return new
