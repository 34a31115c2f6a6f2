# SPDX-License-Identifier: BSD-3-Clause
"""Brownian dynamics of the spheres of many ranks."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable
from os import PathLike
from typing import Any, Self

import numpy as np

from particlemesh import distributed as pmd
from particlemesh.apps.brownian.arrays import to_host
from particlemesh.apps.brownian.drag import Drag
from particlemesh.apps.brownian.dynamics import BrownianDynamics, Noise, Problem, read_state, remade
from particlemesh.apps.brownian.forces import WCA, HarmonicBonds, Sum
from particlemesh.apps.brownian.free import FreeRPY
from particlemesh.apps.brownian.ranks import DistributedRPY, share_of_rows
from particlemesh.apps.brownian.rpy import RPY
from particlemesh.apps.files.recording import checked
from particlemesh.apps.files.trajectory import Frame
from particlemesh.kernels import alone

_WHOLE = RPY, FreeRPY, WCA, HarmonicBonds  # know all particles


class DistributedBrownianDynamics(BrownianDynamics):
    r"""Particles of many ranks that forces and a fluid at temperature T move: :class:`BrownianDynamics` over ranks.

    Each rank gives some of the particles, and keeps them wherever they go. Particles are numbered over all ranks: first
    those of rank 0, then those of rank 1. A particle has the random numbers of its number, so that motion is that of
    one device within rounding, on any number of ranks.

    All methods are collective, and so is setting an attribute; `step`, `time` and reading are not. If a rank raises,
    all others raise a :class:`particlemesh.distributed.RankError` that names it. Shear is not served. Particles move
    on the device of their arrays.

    Parameters
    ----------
    world : particlemesh.distributed.World
        The ranks.
    positions : array (N, 3)
        Those of this rank's particles, also none: of NumPy or CuPy, in one library and dtype on all ranks.
    mobility : object
        `DistributedRPY`, `Drag` with this rank's radii, or any object with the verbs of
        :class:`BrownianDynamics`. All ranks call them at the same time.
    forces : callable or sequence of callables, optional
        Each takes positions (N, 3) of this rank and returns forces (N, 3). All ranks call them at the same time, so
        that they may sum over pairs by :meth:`particlemesh.distributed.UniformGrid.stream`. `WCA` and `HarmonicBonds`
        see particles of one rank only, and are refused.
    temperature, time_step, integrator, seed, difference
        As for :class:`BrownianDynamics`, and the same on every rank. Without a seed all ranks have that of the first.

    Raises
    ------
    ValueError, TypeError
        If an argument is not allowed; indices are those of this rank's particles.
    particlemesh.distributed.RankError
        If another rank raised, or gives other arguments.

    Examples
    --------
    >>> import numpy as np
    >>> from particlemesh import distributed as pmd
    >>> from particlemesh.apps.brownian import DistributedBrownianDynamics, Drag
    >>> world = pmd.World()                                 # or World(MPI.COMM_WORLD), each rank with some particles
    >>> start = np.zeros((20_000, 3))
    >>> free = DistributedBrownianDynamics(world, start, Drag(radius=2.0), time_step=0.1, seed=1)
    >>> free.run(10)
    >>> round(float((free.positions**2).sum(axis=1).mean()), 1)
    3.0
    """

    _least = 0

    def __init__(
        self, world: pmd.World, positions: Any, mobility: Any, forces: Any = None, *, temperature: float = 1.0,
        time_step: float, integrator: str = "euler", seed: int | None = None, difference: float | None = None,
    ) -> None:  # fmt: skip
        self.world = world
        said = f"{type(mobility).__name__}, {temperature=}, {time_step=}, {integrator=}, {seed=}, {difference=}"
        drawn = world.allgather(secrets.randbits(128))[0]  # also where a rank names a seed
        seed = drawn if seed is None else seed

        def accepted() -> tuple[str, None]:
            self._accept(positions, mobility, forces, temperature, time_step, integrator, seed, difference)
            return f"DistributedBrownianDynamics({said}) of {self._module.__name__} in {self._dtype}", None

        world.alike(accepted)
        counts = world.allgather(len(self._positions))
        self._share = sum(counts[: world.rank]), len(self._positions), sum(counts)
        self._problem = self._problem._replace(noise=self._noise(seed))
        self.mobility.set_positions(self._positions)
        self.busy = threading.RLock()

    __reduce__: Any = object.__reduce__  # what talks to other ranks is not copied
    _share = 0, 0, 0  # this rank's first number, its particles, and all

    def __repr__(self) -> str:
        few, count = len(self._positions), self._share[2]
        return f"<DistributedBrownianDynamics: {few:,} of {count:,} particles on {self.world}, step {self.step:,}>"

    def _noise(self, seed: Any) -> Noise:
        noise = RankNoise(super()._noise(seed).seed, self._module, self._dtype)
        noise.share = self._share
        return noise

    def _shear(self, rate: Any) -> None:
        with self.world.agreement("shear_rate"):
            if rate != 0:
                raise ValueError(f"shear_rate is {rate!r}; over ranks boxes do not shear: use BrownianDynamics.")

    def _set(self, name: str, change: Callable[[], Problem]) -> None:
        def changed() -> tuple[str, Problem]:
            problem = change()
            return f"{name}: {problem.temperature}, {problem.time_step}, {problem.noise.seed}", problem

        self._problem = self.world.alike(changed)

    def _force_of(self, forces: Any) -> Any:
        for thing in (self._rest, *_all_of(forces)):
            if isinstance(thing, _WHOLE) and not isinstance(thing, DistributedRPY):
                raise TypeError(
                    f"a {type(thing).__name__} sees the particles of one rank only: give DistributedRPY or Drag as "
                    "mobility, and forces that sum over ranks, such as those of distributed.UniformGrid.stream."
                )
        return super()._force_of(forces)

    # ---- motion ---------------------------------------------------------------------------------------

    @alone
    def run(
        self, steps: int, *, progress: bool = False, every: int = 1, trajectory: str | PathLike | None = None
    ) -> None:  # fmt: skip
        """Make steps; see :meth:`BrownianDynamics.run`. The first rank shows the bar, and writes all particles."""
        state = f"{self.step}, {self.temperature}, {self.time_step}, {self.seed}"
        with self.world.agreement(f"run({steps}, {every=}, {trajectory=}) from {state}"):
            checked(steps, every, trajectory, progress)
        super().run(steps, progress=progress, every=every, trajectory=trajectory)

    def _force(self, forces: Callable[[Any], Any], x: Any, step: int) -> Any:
        with self.world.agreement("forces"):
            return super()._force(forces, x, step)

    def _look(self, after: Any) -> None:
        with self.world.agreement("new positions"):
            super()._look(after)

    def _warn(self, moved: Any) -> None:
        if len(moved):
            super()._warn(moved)

    def _frame(self) -> Frame:
        radii = self._gathered_radii()
        return Frame(self.step, self.time, self._gathered(self._positions), self.box, radii)

    def _gathered(self, rows: Any) -> np.ndarray:
        """Return rows of all ranks in the order of ranks, in the host's memory."""
        return np.concatenate(self.world.allgather(to_host(rows)))

    def _gathered_radii(self) -> Any:
        """Return the radii of all particles, one for all, or None."""
        radii = getattr(self.mobility, "radii", None)
        if radii is None:
            return None
        every = self._gathered(np.broadcast_to(radii, (self._share[1],)))
        return every[:1] if len(every) and (every == every[0]).all() else every

    # ---- files ----------------------------------------------------------------------------------------

    @alone
    def save(self, path: str | PathLike) -> None:
        """Write a checkpoint of all particles: see :meth:`BrownianDynamics.save`. The first rank writes.

        Parameters
        ----------
        path : path
        """
        positions, radii, mobility = self._gathered(self._positions), self._gathered_radii(), self.mobility
        with self.world.agreement("a checkpoint"):
            if not self.world.rank:
                if isinstance(mobility, (DistributedRPY, Drag)):
                    settings = mobility.settings() | {"radius": float(radii[0]) if len(radii) == 1 else radii}
                    settings.pop("parts", None)
                    mobility = (Drag if isinstance(mobility, Drag) else RPY)(**settings)
                self._write(path, self._module.asarray(positions), mobility)

    @classmethod
    def load(  # type: ignore[override]  # with a world
        cls, world: pmd.World, path: str | PathLike, mobility: Any = None, forces: Any = None, *,
        seed: int | None = None,
    ) -> Self:  # fmt: skip
        """Return the simulation of a checkpoint, on any number of ranks, also of one of `BrownianDynamics.save`.

        Each rank has an equal share of the numbers. The parameters of the mobility are those of the checkpoint.

        Parameters
        ----------
        world : particlemesh.distributed.World
        path : path
            Every rank reads it.
        mobility, forces : optional
            As for :meth:`BrownianDynamics.load`, of this rank's share.
        seed : int, optional

        Returns
        -------
        DistributedBrownianDynamics

        Examples
        --------
        >>> import tempfile
        >>> import numpy as np
        >>> from particlemesh import distributed as pmd
        >>> from particlemesh.apps.brownian import BrownianDynamics, DistributedBrownianDynamics, Drag
        >>> dynamics = BrownianDynamics(np.zeros((5, 3)), Drag(), time_step=0.1, seed=1)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     dynamics.save(f"{folder}/state.h5")
        ...     other = DistributedBrownianDynamics.load(pmd.World(), f"{folder}/state.h5")
        >>> dynamics.run(3)
        >>> other.run(3)
        >>> other.step, bool((other.positions == dynamics.positions).all())
        (3, True)
        """

        def read() -> tuple[str, tuple[Any, ...]]:
            arguments, step, since, strain = read_state(path, mobility, forces, seed)
            if arguments.pop("shear_rate") or strain:
                raise ValueError(f"{path} is of a sheared box; over ranks boxes do not shear: use BrownianDynamics.")
            count = len(arguments["positions"])
            first, last = (count * rank // world.size for rank in (world.rank, world.rank + 1))
            arguments["positions"] = arguments["positions"][first:last]
            settings = None if mobility is not None else arguments["mobility"].settings()
            if settings is not None and np.ndim(settings["radius"]):
                settings["radius"] = settings["radius"][first:last]
            return f"load of step {step}", (arguments, settings, step, since)

        arguments, settings, step, since = world.alike(read)
        if isinstance(arguments["mobility"], RPY) and settings is not None:
            arguments["mobility"] = DistributedRPY(world, **settings)
        elif isinstance(arguments["mobility"], Drag) and settings is not None:
            some = np.ndim(settings["radius"]) == 0 or len(settings["radius"])
            arguments["mobility"] = Drag(**settings if some else {**settings, "radius": 1.0})  # of no particle
        return remade(cls, {"world": world, **arguments}, step, since, 0.0)


class RankNoise(Noise):
    """The noise of one rank's particles: it draws the numbers of all, and keeps those of its share."""

    share = 0, 0, 0  # first, count, total

    def normal(self, step: int, draw: int, shape: tuple[int, ...]) -> Any:
        return share_of_rows(self.generator(step, draw), shape[:-2], *self.share, self._dtype)


def _all_of(forces: Any) -> list[Any]:
    """Return the functions of forces, those of sums included."""
    if isinstance(forces, Sum):
        forces = forces.forces
    return [one for force in forces for one in _all_of(force)] if isinstance(forces, (list, tuple)) else [forces]
