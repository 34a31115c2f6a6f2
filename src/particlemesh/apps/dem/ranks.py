# SPDX-License-Identifier: BSD-3-Clause
"""The discrete element method over many ranks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from os import PathLike
from typing import Any, Self, TypeVar

import numpy as np

from particlemesh import distributed as pmd
from particlemesh.apps.dem.contact import Contact
from particlemesh.apps.dem.given import STATE_ARRAYS, STATE_CONTACTS, InitialState, checked_state
from particlemesh.apps.dem.overlaps import check_overlaps
from particlemesh.apps.dem.shares import RankMotion
from particlemesh.apps.dem.simulation import Simulation, read_state
from particlemesh.kernels import alone, checks

T = TypeVar("T")
_PARTICLES = "positions", "velocities", "spins"


class DistributedSimulation(Simulation):
    r"""Spheres of many ranks that touch each other and walls: :class:`Simulation` whose space is cut into parts.

    Each rank gives some of the spheres, in any place. They live at the owner of the space around them, and move on to
    others with what their contacts remember. Owners have copies of spheres within reach. Space is cut anew
    where spheres gather. Positions, velocities and spins that you get or set are those of the spheres that this rank
    gave, in its order. Spheres are numbered over all ranks: first those of rank 0, then those of rank 1.

    With ``deterministic=True`` every rank gets the bits of a :class:`Simulation` of all spheres, on any number of
    ranks. Energies and forces on walls are sums over ranks, and differ by rounding.

    All methods and properties are collective, except ``step``, ``time``, ``radii``, ``masses`` and ``len``. If a rank
    raises, all others raise a :class:`particlemesh.distributed.RankError` that names it. Ctrl-C on one rank ends the
    run on all. Each rank computes on the device of its arrays. Neighbours are searched for there, too, but spheres
    change their rank through the host's memory.

    Parameters
    ----------
    world : particlemesh.distributed.World
        The ranks.
    positions : array (N, 3)
        Those of this rank's spheres, also none, in one dtype on all ranks.
    radii, velocities, spins, density, overlaps
        As for :class:`Simulation`, of this rank's spheres.
    contact, walls, box, periodic, gravity, time_step, deterministic, method, dtype
        As for :class:`Simulation`, and the same on every rank.
    backend, threads : optional
        As for :class:`Simulation`; the kind of device is the same on all ranks.

    Raises
    ------
    ValueError, TypeError
        If an argument is not allowed; indices are those of this rank's spheres.
    particlemesh.distributed.RankError
        If another rank raised, or gives other arguments.

    Examples
    --------
    >>> import numpy as np
    >>> from particlemesh import distributed as pmd
    >>> from particlemesh.apps.dem import DistributedSimulation, LinearSpring, Plane
    >>> world = pmd.World()                                 # or World(MPI.COMM_WORLD), each rank with some spheres
    >>> law = LinearSpring(stiffness=1e4, restitution=0.8)
    >>> ball = DistributedSimulation(world, np.array([[0.0, 0.0, 0.1001]]), 0.1, velocities=(0, 0, -1.0),
    ...                              density=1000.0, contact=law, walls=[Plane((0, 0, 0), (0, 0, 1))])
    >>> ball.run(700)
    >>> round(float(ball.velocities[0, 2]), 2)
    0.8
    """

    _motion: RankMotion

    def __init__(
        self, world: pmd.World, positions: Any, radii: Any, velocities: Any = 0.0, *, spins: Any = 0.0, density: Any,
        contact: Contact, walls: Any = (), box: Any = None, periodic: Any = False, gravity: Any = 0.0,
        time_step: float | None = None, deterministic: bool = False, method: str = "auto", backend: str | None = None,
        dtype: Any = None, threads: int | None = None, overlaps: str = "refuse",
    ) -> None:  # fmt: skip
        self.world = world

        def accepted() -> tuple[str, tuple[InitialState, int | None]]:
            given = self._accepted(
                positions, radii, velocities, spins, density, contact, walls, box, periodic, gravity, time_step,
                deterministic, method, backend, dtype, overlaps,
            )  # fmt: skip
            said = f"{contact}, {self._placed}, {self.domain}, {self._gravity}, {time_step=}, {deterministic=}"
            said += f", {method=}, {given.dtype} on {given.backend.name!r}, {overlaps=}"
            return f"DistributedSimulation({said})", (given, checks.threads(threads, backend))

        given, used = self._alike(accepted)
        self._some: Any = None
        self._go(given, time_step, used, overlaps)
        self._warn()
        self._warn_of_distance(given)

    __reduce__: Any = object.__reduce__  # what talks to other ranks is not copied

    def __len__(self) -> int:
        return len(self._radii)

    def __repr__(self) -> str:
        spheres = f"{len(self):,} of {self._motion.total:,} spheres"
        return f"<DistributedSimulation: {spheres} on {self.world}, step {self.step:,}, time {self.time:g}>"

    # ---- what ranks do together -----------------------------------------------------------------------

    def _alike(self, work: Callable[[], tuple[str, T]]) -> T:
        return self.world.alike(work)

    def _any(self, flag: bool) -> bool:
        self._stopped = bool(self.world.allreduce(int(flag), "max"))
        return self._stopped

    def _of_all(self, flags: np.ndarray) -> np.ndarray:
        return self.gathered(flags)

    def _spheres(self) -> tuple[np.ndarray, np.ndarray]:
        if self._some is None:
            self._some = self._extremes(self._radii, self._masses)
        some: tuple[np.ndarray, np.ndarray] = self._some
        return some

    def _extremes(self, radii: np.ndarray, masses: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return radii and masses of spheres from which time steps and units follow as from all."""
        rows = np.stack([radii, masses], 1).astype(np.float64)
        if len(rows):
            # Waves cross one of these first: more than one where rounding may tell.
            speed = rows[:, 1] / rows[:, 0]
            first = rows[speed <= speed.min() * (1 + 1e-12)]
            rows = np.unique(np.concatenate([rows[rows.argmin(0)], rows[rows.argmax(0)], first]), axis=0)
        rows = np.concatenate(self.world.allgather(rows))
        return rows[:, 0].copy(), rows[:, 1].copy()

    def _moving(self, given: InitialState, contact: Contact, *, restored: bool) -> RankMotion:
        self._some = self._extremes(given.radii, given.masses)
        return RankMotion(
            self.world, self._some, given, contact.numbers(), self._placed, self.domain, self._gravity,
            self._time_step, deterministic=self.deterministic, method=self._method, threads=self._threads,
            restored=restored,
        )  # fmt: skip

    def _check_overlaps(self, new: np.ndarray | None = None) -> None:
        with self.world.agreement("overlaps"):
            touching, radii, names = self._motion.deepest()
            check_overlaps(touching, radii, None if new is None else new[names], names)

    def _warn(self) -> None:
        if not self.world.rank:
            super()._warn()

    @alone
    def gathered(self, rows: np.ndarray) -> np.ndarray:
        """Return rows of all ranks in the order of ranks, on every rank.

        Parameters
        ----------
        rows : array (N, ...)
            Such as positions or radii, of this rank's spheres.

        Returns
        -------
        array (M, ...)

        Examples
        --------
        >>> import numpy as np
        >>> from particlemesh import distributed as pmd
        >>> from particlemesh.apps.dem import DistributedSimulation, Hertz
        >>> one = DistributedSimulation(pmd.World(), np.zeros((1, 3)), 1.0, density=1.0, contact=Hertz(1e3))
        >>> one.gathered(one.radii)
        array([1.])
        """
        return np.concatenate(self.world.allgather(np.atleast_1d(rows)))

    def run(
        self, steps: int, *, progress: bool = False, every: int = 1, trajectory: str | PathLike | None = None
    ) -> None:  # fmt: skip
        self._stopped = False
        super().run(steps, progress=progress, every=every, trajectory=trajectory)
        if self._stopped:
            raise KeyboardInterrupt("another rank was interrupted")

    # ---- restart --------------------------------------------------------------------------------------

    @alone
    def state(self) -> dict[str, Any]:
        """Return the state of all spheres, on every rank, as :meth:`Simulation.state` does.

        Returns
        -------
        dict
            Of the same form as that of a :class:`Simulation`, which can continue it, too.
        """
        state = super().state()
        for name in (*STATE_ARRAYS, *STATE_CONTACTS):
            state[name] = self.gathered(state[name])
        return state

    @classmethod
    def restore(  # type: ignore[override]  # with a world
        cls, world: pmd.World, state: Mapping[str, Any], *, backend: str | None = None, threads: int | None = None
    ) -> Self:
        """Return the simulation of a state, with arrays of NumPy: each rank has an equal share of the numbers.

        Parameters
        ----------
        world : particlemesh.distributed.World
            Of any number of ranks.
        state : mapping
            As :meth:`state` or :meth:`Simulation.state` returned it, the same on every rank. A simulation made with
            ``deterministic=True`` continues bit for bit on the same kind of device.
        backend, threads : optional
            As for :class:`Simulation`.

        Returns
        -------
        DistributedSimulation

        Raises
        ------
        ValueError
            If it is no such state.
        """
        new = cls.__new__(cls)
        object.__setattr__(new, "world", world)

        def share() -> tuple[str, dict[str, Any]]:
            held = checked_state(state)
            count, rank = len(held["radii"]), world.rank
            first, last = count * rank // world.size, count * (rank + 1) // world.size
            mine = (held["contact_i"] >= first) & (held["contact_i"] < last)
            said = f"restore of {count} spheres after {held['step']} steps, {backend=}"
            held |= {name: held[name][first:last] for name in STATE_ARRAYS}
            held |= {name: held[name][mine] for name in STATE_CONTACTS}
            return said, held

        held = world.alike(share)
        object.__setattr__(new, "_some", None)
        new._restore(held, backend, threads)
        return new

    @classmethod
    def load(  # type: ignore[override]  # with a world
        cls, world: pmd.World, path: str | PathLike, *, backend: str | None = None, threads: int | None = None
    ) -> Self:
        """Return the simulation of a checkpoint, on any number of ranks, also of one of :meth:`Simulation.save`.

        Parameters
        ----------
        world : particlemesh.distributed.World
        path : path
            Every rank reads it.
        backend : {"cpu", "cuda", "opencl"}, optional
            By default that of the simulation that was saved.
        threads : int, optional

        Returns
        -------
        DistributedSimulation
        """
        state, where = world.alike(lambda: ("load", read_state(path)))
        return cls.restore(world, state, backend=backend or where, threads=threads)
