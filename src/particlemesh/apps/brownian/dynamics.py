# SPDX-License-Identifier: BSD-3-Clause
"""Brownian dynamics of spheres in a fluid."""

from __future__ import annotations

import functools
import math
import secrets
import threading
import warnings
from collections.abc import Callable
from os import PathLike
from typing import Any, NamedTuple, Self

import numpy as np

from particlemesh.apps.brownian.arrays import module_of, to_host
from particlemesh.apps.brownian.drag import Drag
from particlemesh.apps.brownian.forces import WCA, HarmonicBonds, Sum
from particlemesh.apps.brownian.free import FreeRPY
from particlemesh.apps.brownian.rpy import RPY
from particlemesh.apps.brownian.shear import prepared, sheared
from particlemesh.apps.files.checkpoint import get, put, reading, writing
from particlemesh.apps.files.libraries import library, listing
from particlemesh.apps.files.recording import Recorder, checked
from particlemesh.apps.files.trajectory import FORMATS, Frame
from particlemesh.kernels import Fixed, alone, checks

SEED_LIMIT = 2**128


class Noise:
    """Normal numbers by seed, step and draw: no state is carried from step to step.

    A simulation that is continued therefore needs its seed and its step only, and a step that failed leaves nothing
    behind. NumPy counts with Philox [salmon2011]_: the seed is its key, step and draw are the high words of its
    counter. CuPy's Philox is seeded anew for each draw, with 64 bits that NumPy's SeedSequence makes of the three.
    Both are independent of the number of threads, and differ from each other.

    Parameters
    ----------
    seed : int
        From 0 to 2**128 - 1.
    module : module
        ``numpy`` or ``cupy``.
    dtype : numpy.dtype
        float32 or float64.

    Examples
    --------
    >>> import numpy as np
    >>> noise = Noise(1, np, np.dtype("f8"))
    >>> bool((noise.normal(5, 0, (4, 3)) == noise.normal(5, 0, (4, 3))).all())
    True
    >>> bool((noise.normal(6, 0, (4, 3)) == noise.normal(5, 0, (4, 3))).any())
    False
    """

    def __init__(self, seed: int, module: Any, dtype: np.dtype) -> None:
        self.seed, self._module, self._dtype = seed, module, dtype
        self._generator: Any = None

    def normal(self, step: int, draw: int, shape: tuple[int, ...]) -> Any:
        """Return the first numbers of a draw of a step."""
        return self.generator(step, draw).standard_normal(shape, dtype=self._dtype)

    def generator(self, step: int, draw: int) -> Any:
        """Return the generator of a draw of a step; CuPy's serves until the next call."""
        if self._module is np:
            bits = np.random.Philox(key=self.seed, counter=np.array([0, 0, draw, step], np.uint64))
            return np.random.Generator(bits)
        if self._generator is None:
            from cupy.random import RandomState
            from cupy_backends.cuda.libs.curand import CURAND_RNG_PSEUDO_PHILOX4_32_10

            self._generator = RandomState(0, CURAND_RNG_PSEUDO_PHILOX4_32_10)
        words = np.random.SeedSequence((self.seed, step, draw)).generate_state(1, np.uint64)
        self._generator.seed(int(words[0]))
        return self._generator


APPLICATION, FORMAT = "particlemesh.apps.brownian", 2
# What a checkpoint holds by its settings(); of other objects it has the name only.
SHIPPED: dict[str, Any] = {kind.__name__: kind for kind in (RPY, FreeRPY, Drag, HarmonicBonds, WCA, Sum)}
MAKERS: dict[str, Any] = SHIPPED | {"Sum": lambda forces: Sum(*forces)}
_NUMBERS = ("temperature", "time_step", "difference")
_LOOKS = 4096  # steps between two looks at how finely positions are resolved
DISPLACEMENT, DIFFERENCE = 0, 1  # draws of random numbers


class Problem(NamedTuple):
    """What a step needs beside positions: kT, the time step, the flow, and what gives forces, velocities, noise."""

    force: Callable[[Any, int], Any] | None  # of positions and the step
    mobility: Any
    temperature: float
    time_step: float
    noise: Noise
    difference: float | None  # spacing of the random finite difference; None where M is free of divergence
    shear_rate: float
    strain: float  # of the boxes of the force and of the mobility
    at_strain: Callable[[Problem, float], Problem]  # returns the same with the boxes of another strain


def euler(problem: Problem, x: Any, step: int) -> Any:
    """Return how a step of Euler and Maruyama moves particles: forces and mobility are those at its start."""
    dt, mobility = problem.time_step, problem.mobility
    force = None if problem.force is None else problem.force(x, step)
    mobility.set_positions(x)
    moved = 0 * x if force is None else dt * mobility.velocity(force)
    if problem.temperature:
        moved = moved + math.sqrt(2 * problem.temperature * dt) * _kicks(problem, x, step)
        moved = _drifted(problem, x, moved, step)
    return _carried(problem, moved, x + moved / 2, dt)


def midpoint(problem: Problem, x: Any, step: int) -> Any:
    """Return how a step moves particles that takes forces and mobility at its middle.

    The middle has the noise of the first half step, which is half of the variance of the whole step [delong2013]_.
    """
    dt, mobility = problem.time_step, problem.mobility
    force = None if problem.force is None else problem.force(x, step)
    mobility.set_positions(x)
    middle = x if force is None else x + dt / 2 * mobility.velocity(force)
    moved = 0 * x
    if problem.temperature:
        first, second = math.sqrt(problem.temperature * dt) * _kicks(problem, x, step, 2)
        middle, moved = middle + first, first + second
    if problem.force is not None:
        middle = _carried(problem, middle, (x + middle) / 2, dt / 2)
        half = problem.at_strain(problem, problem.strain + problem.shear_rate * dt / 2)
        assert half.force is not None
        force = half.force(middle, step)
        half.mobility.set_positions(middle)
        moved = moved + dt * half.mobility.velocity(force)
    if problem.temperature:
        moved = _drifted(problem, x, moved, step)
    return _carried(problem, moved, x + moved / 2, dt)


def _carried(problem: Problem, moved: Any, between: Any, dt: float) -> Any:
    """Add what the flow moves particles by whose mean positions are ``between``."""
    if problem.shear_rate:
        moved = moved.copy()
        moved[:, 0] += problem.shear_rate * dt * between[:, 1]
    return moved


def _kicks(problem: Problem, x: Any, step: int, *batch: int) -> Any:
    """Return vectors (*batch, N, 3) with the covariance of the mobility, by its own way if it has one."""
    if hasattr(problem.mobility, "noise"):
        return problem.mobility.noise(problem.noise.generator(step, DISPLACEMENT), *batch)
    return problem.mobility.square_root(problem.noise.normal(step, DISPLACEMENT, (*batch, *x.shape)))


def _drifted(problem: Problem, x: Any, moved: Any, step: int) -> Any:
    """Add a random finite difference [delong2014]_ with the mean ``kT dt div M``, where that does not vanish."""
    spacing, mobility = problem.difference, problem.mobility
    if spacing is None:
        return moved
    w = problem.noise.normal(step, DIFFERENCE, x.shape)
    mobility.set_positions(x + spacing / 2 * w)
    ahead = mobility.velocity(w)
    mobility.set_positions(x - spacing / 2 * w)
    return moved + problem.temperature * problem.time_step / spacing * (ahead - mobility.velocity(w))


SCHEMES: dict[str, Callable[[Problem, Any, int], Any]] = {"euler": euler, "midpoint": midpoint}


class BrownianDynamics(Fixed):
    r"""Particles that forces and a fluid at temperature T move, without inertia.

    The positions obey ``dx = (M F + kT div M) dt + sqrt(2 kT) M^(1/2) dW``, where M is the mobility. Steps are
    a function of the arguments and the seed: two runs are bit-identical if the mobility and the forces are.

    You may set ``temperature``, ``time_step``, ``forces``, ``seed`` and ``shear_rate`` between runs. The next step
    obeys, and checkpoints hold the new value. Everything else is fixed. The NumPy array ``positions`` cannot be
    written to.

    Parameters
    ----------
    positions : array (N, 3)
        Of NumPy or CuPy, float32 or float64; the simulation runs where they are. They are copied.
    mobility : object
        `RPY`, `FreeRPY`, `Drag`, or any object with ``set_positions(x)``, ``velocity(forces)`` and
        ``square_root(z)``. The last two take (..., N, 3). If it has ``noise(generator, *batch)``, this gives the
        vectors with the covariance of M, as in `RPY`. If it has ``divergence_free = True``, no drift is added.
    forces : callable or sequence of callables, optional
        Each takes positions (N, 3), which it must not change, and returns forces (N, 3).
    temperature : number
        kT, an energy; 0 for a motion without noise.
    time_step : number
        Of the time unit ``length / (mobility * force)``.
    integrator : {"euler", "midpoint"}
        See the notes.
    seed : int, optional
        From 0 to 2**128 - 1; by default one from the operating system. ``seed`` has it.
    difference : number, optional
        Length of a random finite difference for ``div M``, which a mobility without ``divergence_free = True`` needs.
        It is much shorter than a particle, such as 1e-4 radii.
    shear_rate : number
        Of a flow along x that grows with y, ``(shear_rate * y, 0, 0)``, an inverse time. Spheres follow it where they
        are. Boxes of the mobility and of forces lean with it; objects of your own with a ``box`` need ``in_box(box)``.

    Raises
    ------
    ValueError, TypeError
        If an argument is not allowed; the message says what is.

    Notes
    -----
    ``"euler"`` is the scheme of Euler and Maruyama [ermak_mccammon1978]_: one product and one square root of M in a
    step, of weak order 1. ``"midpoint"`` takes forces and mobility at the middle of the step, where it arrives with the
    noise of the first half step [delong2013]_. It needs two products and two square roots. Without noise it has order
    2. With noise it has weak order 2 if M is constant, and 1 otherwise.

    Both schemes use the square root of M at the start of a step (Ito). For periodic and free Rotne-Prager-Yamakawa
    mobilities, overlapping spheres included, ``div M`` vanishes: no drift is missing. For other mobilities the drift is
    ``kT / e (M(x + e w / 2) - M(x - e w / 2)) w`` with normal w and ``e = difference`` [delong2014]_. Its mean is
    ``kT div M`` up to an error of order e\ :sup:`2`.

    Shear deforms boxes as [lees_edwards1972]_. A sphere moves with the flow at the mean of its heights before and after
    the step, so that flow alone is exact. The mobility chooses its parameters in the box that leans most, unless it
    has positions already. Spheres have no stresslets: the flow that rigid spheres disturb is left out.

    Examples
    --------
    The mean square displacement of free particles is 6 kT mobility time:

    >>> import numpy as np
    >>> from particlemesh.apps.brownian import BrownianDynamics, Drag
    >>> start = np.zeros((20_000, 3))
    >>> free = BrownianDynamics(start, Drag(radius=2.0), time_step=0.1, seed=1)
    >>> free.run(10)
    >>> free.step, round(free.time, 12), round(float((free.positions**2).sum(axis=1).mean()), 1)
    (10, 1.0, 3.0)
    """

    def __init__(
        self, positions: Any, mobility: Any, forces: Any = None, *, temperature: float = 1.0, time_step: float,
        integrator: str = "euler", seed: int | None = None, difference: float | None = None, shear_rate: float = 0.0,
    ) -> None:  # fmt: skip
        self._accept(positions, mobility, forces, temperature, time_step, integrator, seed, difference)
        self._shear(shear_rate)
        self.mobility.set_positions(self._positions)  # what it refuses is refused now
        self.busy = threading.RLock()

    _least = 1  # particles

    def _accept(
        self, positions: Any, mobility: Any, forces: Any, temperature: Any, time_step: Any, integrator: Any, seed: Any,
        difference: Any,
    ) -> None:  # fmt: skip
        """Check the arguments, and keep them."""
        on_host = isinstance(positions, np.ndarray) or not hasattr(positions, "dtype")
        x = checks.number_array(positions, "positions") if on_host else positions
        self._module = module_of(x)
        if x.ndim != 2 or x.shape[1] != 3 or len(x) < self._least:
            raise ValueError(f"positions have shape {tuple(x.shape)}; (N, 3) is needed, with one particle or more.")
        if x.dtype.kind not in "iuf":
            raise TypeError(f"positions have dtype {x.dtype}; real numbers are needed.")
        self._dtype = checks.real_type(x.dtype if x.dtype.kind == "f" else np.float64)
        self._positions = self._kept(self._module.array(x, dtype=self._dtype, order="C"))
        self._step, self._since = 0, (0, 0.0)
        self._finite(self._positions, "the position of", 0)
        for verb in ("set_positions", "velocity", "square_root"):
            if not callable(getattr(mobility, verb, None)):
                raise TypeError(f"mobility is a {type(mobility).__name__} without {verb}(); give RPY or Drag.")
        if hasattr(mobility, "world") and not hasattr(self, "world"):
            raise TypeError(
                "mobility is over ranks, and particles of all ranks would have the same noise: call "
                "DistributedBrownianDynamics."
            )
        self._rest = mobility  # in the box without strain
        self._forces = _one(forces)
        time_step = checks.positive(time_step, "time_step")
        self.integrator = checks.one_of(integrator, "integrator", tuple(SCHEMES))
        seed = secrets.randbits(128) if seed is None else seed
        self.difference = None if difference is None else checks.positive(difference, "difference")
        temperature = self._checked_temperature(temperature)
        if self.difference is not None and getattr(mobility, "divergence_free", False):
            raise ValueError(
                f"difference is {difference!r}, and the divergence of {type(mobility).__name__} vanishes: leave it out."
            )
        self._problem = Problem(
            self._force_of(self._forces), mobility, temperature, time_step, self._noise(seed), self.difference,
            0.0, 0.0, self._at_strain,
        )  # fmt: skip

    def _shear(self, rate: Any) -> None:
        number = checks.number_array(rate, "shear_rate")
        if number.ndim or number.dtype.kind == "c" or not np.isfinite(number):
            raise ValueError(f"shear_rate is {rate!r}; one finite number is needed.")
        rate = float(number)
        if rate and self._rest is self.mobility:
            self._rest = prepared(self._rest, self._positions)
        problem = self._problem._replace(shear_rate=rate)
        self._problem = self._at_strain(problem, problem.strain, again=True) if rate else problem

    def _at_strain(self, problem: Problem, strain: float, again: bool = False) -> Problem:
        """Return a problem with the boxes of its force and its mobility at a strain."""
        if strain == problem.strain and not again:
            return problem
        force, mobility = self._force_of(sheared(self._forces, strain)), sheared(self._rest, strain)
        return problem._replace(force=force, mobility=mobility, strain=strain)

    def _force_of(self, forces: Any) -> Callable[[Any, int], Any] | None:
        return None if forces is None else functools.partial(self._force, forces)

    def _noise(self, seed: Any) -> Noise:
        return Noise(checks.integer(seed, "seed", 0, SEED_LIMIT - 1), self._module, self._dtype)

    def _checked_temperature(self, given: Any) -> float:
        temperature = checks.at_least_zero(given, "temperature")
        if temperature and self.difference is None and not getattr(self._rest, "divergence_free", False):
            raise ValueError(
                f"{type(self._rest).__name__} does not say that its divergence vanishes: give difference=, the "
                "length of a random finite difference, such as 1e-4 radii, or let the mobility have "
                "divergence_free = True."
            )
        return temperature

    def __reduce__(self) -> tuple[Any, ...]:
        names = "positions", "forces", "temperature", "time_step", "integrator", "seed", "difference", "shear_rate"
        arguments = {name: getattr(self, name) for name in names} | {"mobility": self._rest}
        return remade, (type(self), arguments, self._step, self._since, self.strain)

    def __repr__(self) -> str:
        return f"<BrownianDynamics of {len(self._positions):,} particles, step {self._step:,}, time {self.time:g}>"

    # ---- state ----------------------------------------------------------------------------------------

    @property
    def positions(self) -> Any:
        """The positions (N, 3), which go on beyond the box: differences are displacements. They are read-only."""
        return self._positions if isinstance(self._positions, np.ndarray) else self._positions.copy()

    @property
    def mobility(self) -> Any:
        """The mobility; with shear that in the present box."""
        return self._problem.mobility

    @property
    def shear_rate(self) -> float:
        """Of the flow ``(shear_rate * y, 0, 0)``; a new one holds from the next step on."""
        return self._problem.shear_rate

    @shear_rate.setter
    @alone
    def shear_rate(self, value: float) -> None:
        self._shear(value)

    def _set(self, name: str, change: Callable[[], Problem]) -> None:
        """Obey what a user sets, once it is right; over ranks, once it is right and alike on all."""
        self._problem = change()

    @property
    def strain(self) -> float:
        """The sum of ``shear_rate * time_step`` over all steps; ``box`` leans by as much, less whole edges."""
        return self._problem.strain

    @property
    def temperature(self) -> float:
        """kT, an energy; a new one holds from the next step on."""
        return self._problem.temperature

    @temperature.setter
    @alone
    def temperature(self, value: float) -> None:
        self._set("temperature", lambda: self._problem._replace(temperature=self._checked_temperature(value)))

    @property
    def time_step(self) -> float:
        """Time of a step; a new one holds from the next step on."""
        return self._problem.time_step

    @time_step.setter
    @alone
    def time_step(self, value: float) -> None:
        since = self._step, self.time
        self._set("time_step", lambda: self._problem._replace(time_step=checks.positive(value, "time_step")))
        self._since = since

    @property
    def forces(self) -> Callable[[Any], Any] | None:
        """The function of positions that returns forces; another one, or a sequence, holds from the next step on."""
        return self._forces

    @forces.setter
    @alone
    def forces(self, value: Any) -> None:
        def change() -> Problem:
            forces, moves = _one(value), self.strain or self.shear_rate
            return self._problem._replace(force=self._force_of(sheared(forces, self.strain) if moves else forces))

        self._set("forces", change)
        self._forces = _one(value)

    @property
    def seed(self) -> int:
        """Seed of the noise; another one gives other noise from the next step on."""
        return self._problem.noise.seed

    @seed.setter
    @alone
    def seed(self, value: int) -> None:
        self._set("seed", lambda: self._problem._replace(noise=self._noise(value)))

    @property
    def folded(self) -> Any:
        """Positions (N, 3) folded into the mobility's box."""
        if self.box is None:
            raise ValueError(f"this {type(self.mobility).__name__} has no box: give it one.")
        return self._module.asarray(self.box.fold(to_host(self._positions)))

    @property
    def box(self) -> Any:
        """The mobility's box, or None; with shear the present one."""
        return getattr(self.mobility, "box", None)

    @property
    def step(self) -> int:
        """Number of steps made."""
        return self._step

    @property
    def time(self) -> float:
        """Time since the first step."""
        step, time = self._since
        return time + (self._step - step) * self.time_step

    # ---- motion ---------------------------------------------------------------------------------------

    @alone
    @listing(ENDINGS=FORMATS)
    def run(
        self, steps: int, *, progress: bool = False, every: int = 1, trajectory: str | PathLike | None = None
    ) -> None:
        """Make steps. An error or a keyboard interrupt leaves the state of the last whole step.

        Parameters
        ----------
        steps : int
            How many.
        progress : bool
            Show a bar on the terminal (standard error).
        every : int
            Frames are written at steps that are multiples of this, the present one included.
        trajectory : path, optional
            A file that ends in ENDINGS. A file that exists is continued, if its last frame is not later than the
            present step.

        Raises
        ------
        FloatingPointError
            If a force or a position is not finite. The message names the step and the first such particle.
        ImportError
            If the trajectory's library is missing; the extra ``io`` has them.
        ValueError
            If an argument is not allowed, or the file has later frames or other particles.

        Examples
        --------
        >>> import numpy as np
        >>> from particlemesh.apps.brownian import BrownianDynamics, Drag
        >>> dynamics = BrownianDynamics(np.zeros((1, 3)), Drag(), time_step=0.1)
        >>> dynamics.run(3)
        >>> dynamics.step
        3
        """
        steps, every, shown = checked(steps, every, trajectory, progress)
        if self.shear_rate and trajectory is not None and str(trajectory).endswith(".h5"):
            raise ValueError(f"{trajectory} has one box for all frames, and shear deforms it: write .gsd or .xyz.")
        scheme = SCHEMES[self.integrator]
        with Recorder(self, self._frame, "Brownian dynamics", steps, every, trajectory, shown) as recorder:
            recorder.write()
            for _ in range(steps):
                moved = scheme(self._problem, self._positions, self._step)
                after = (self._positions + moved).astype(self._dtype, copy=False)
                if self._step % _LOOKS == 0:
                    self._warn(moved)
                self._look(after)
                deformed = self._at_strain(self._problem, self.strain + self.shear_rate * self.time_step)
                self._positions, self._problem = self._kept(after), deformed
                self._step += 1
                recorder.write()
                recorder.update_progress(1)

    def _look(self, after: Any) -> None:
        """Raise a FloatingPointError if a new position is not finite, or too far away to have a place in the box."""
        self._finite(after, "the new position of", self._step)
        if self.box is None or not len(after):
            return
        far = self._module.abs(after).max(1)
        edge = 1 / np.linalg.norm(self.box.inverse, axis=1).max()
        if float(np.spacing(self._dtype.type(far.max()))) > 1e-3 * edge:
            particle = int(far.argmax())
            raise FloatingPointError(
                f"step {self._step}: particle {particle} moves to ({', '.join(f'{v:g}' for v in after[particle])}). "
                f"{self._dtype} has no place in the box so far away. {self._help}"
            )

    def _warn(self, moved: Any) -> None:
        """Warn if positions are too far from the origin for the noise of a step."""
        farthest = float(abs(self._positions).max())
        step, resolved = float((moved * moved).mean()) ** 0.5, float(np.spacing(self._dtype.type(farthest)))
        if self.temperature and resolved > 0.1 * step:
            warnings.warn(
                f"positions up to {farthest:g} are multiples of {resolved:g} in {self._dtype}, and a step moves "
                f"particles by {step:g}: motion is lost. Move the origin"
                f"{', or give positions in float64' * (self._dtype.itemsize < 8)}.", stacklevel=4,
            )  # fmt: skip

    def _frame(self) -> Frame:
        """Return the state for a trajectory."""
        radii = getattr(self.mobility, "radii", None)
        return Frame(
            self._step, self.time, to_host(self._positions), self.box, None if radii is None else np.asarray(radii)
        )

    def _force(self, forces: Callable[[Any], Any], x: Any, step: int) -> Any:
        """Return the forces at ``x``, checked."""
        try:
            force = forces(x)
        except Exception as error:
            error.add_note(f"in step {step} of Brownian dynamics, whose state is that before the step")
            raise
        if getattr(force, "shape", None) != x.shape:
            shape = getattr(force, "shape", f"no shape: it is a {type(force).__name__}")
            raise ValueError(f"step {step}: the array of forces has shape {shape}; {x.shape} is needed.")
        if module_of(force) is not self._module:
            raise TypeError(f"step {step}: forces are of another library than positions: return {self._module}.")
        force = force.astype(self._dtype, copy=False)
        self._finite(force, "the force on", step)
        return force

    def _finite(self, array: Any, what: str, step: int) -> None:
        finite = self._module.isfinite(array)
        if finite.all():
            return
        bad = int(self._module.argmin(finite.all(axis=1)))
        numbers = ", ".join(f"{float(v):g}" for v in to_host(array[bad]))
        if what == "the position of":
            raise ValueError(f"{what} particle {bad} is ({numbers}); finite numbers are needed.")
        raise FloatingPointError(f"step {step}: {what} particle {bad} is ({numbers}). {self._help}")

    @property
    def _help(self) -> str:
        before = f"The state is that before the step, time {self.time:g}."
        return f"{before} A shorter time_step, or a start without overlaps, may help."

    def _kept(self, x: Any) -> Any:
        """Return positions that forces cannot change by accident, where the library has such arrays."""
        if isinstance(x, np.ndarray):
            x.setflags(write=False)
        return x

    # ---- files ----------------------------------------------------------------------------------------

    @alone
    def save(self, path: str | PathLike) -> None:
        """Write a checkpoint, an .h5 file, from which :meth:`load` continues bit-identically.

        The file holds the state and the arguments, those of this module's mobilities and forces included. An existing
        file is replaced once the new one is whole.

        Parameters
        ----------
        path : path

        Raises
        ------
        ImportError
            If h5py is missing; the extra ``io`` has it.
        """
        self._write(path, self.positions, self._rest)

    def _write(self, path: Any, positions: Any, mobility: Any) -> None:
        with writing(path, APPLICATION, FORMAT) as file:
            file.attrs.update(
                step=self.step, time=self.time, seed=str(self.seed), integrator=self.integrator,
                shear_rate=self.shear_rate, strain=self.strain,
                since_step=self._since[0], since_time=self._since[1],
                arrays="numpy" if isinstance(positions, np.ndarray) else "cupy",
            )  # fmt: skip
            file["positions"] = to_host(positions)
            for name in (*_NUMBERS, "forces"):
                put(file, name, getattr(self, name), SHIPPED)
            put(file, "mobility", mobility, SHIPPED)

    @classmethod
    def load(
        cls, path: str | PathLike, mobility: Any = None, forces: Any = None, *, seed: int | None = None
    ) -> Self:  # fmt: skip
        """Return the simulation of a checkpoint.

        Parameters
        ----------
        path : path
            Written by :meth:`save`.
        mobility, forces : optional
            What the checkpoint cannot hold, because it is not of this module: give it again. If given, it replaces the
            checkpoint's.
        seed : int, optional
            Another seed than the checkpoint's.

        Returns
        -------
        BrownianDynamics

        Raises
        ------
        ValueError
            If the file is no checkpoint, or lacks a mobility or a force that is not given.

        Examples
        --------
        >>> import tempfile
        >>> import numpy as np
        >>> from particlemesh.apps.brownian import BrownianDynamics, Drag
        >>> dynamics = BrownianDynamics(np.zeros((5, 3)), Drag(), time_step=0.1, seed=1)
        >>> dynamics.run(3)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     dynamics.save(f"{folder}/state.h5")
        ...     other = BrownianDynamics.load(f"{folder}/state.h5")
        >>> dynamics.run(3)
        >>> other.run(3)
        >>> other.step, bool((other.positions == dynamics.positions).all())
        (6, True)
        """
        return remade(cls, *read_state(path, mobility, forces, seed))


def read_state(path: Any, mobility: Any, forces: Any, seed: Any) -> tuple[Any, ...]:
    """Return what `remade` takes from a checkpoint."""
    with reading(path, APPLICATION, FORMAT) as file:
        arguments = {name: get(file, name, MAKERS) for name in _NUMBERS}
        for name, thing in (("mobility", mobility), ("forces", forces)):
            arguments[name] = get(file, name, MAKERS) if thing is None else thing
        positions = file["positions"][()]
        if file.attrs["arrays"] == "cupy":
            positions = library("cupy", f"{path}, whose positions were on a GPU,").asarray(positions)
        arguments |= dict(
            positions=positions, integrator=str(file.attrs["integrator"]),
            shear_rate=float(file.attrs.get("shear_rate", 0.0)),
            seed=int(file.attrs["seed"]) if seed is None else seed,
        )  # fmt: skip
        step = int(file.attrs["step"])
        time = float(file.attrs.get("time", step * arguments["time_step"]))
        strain = float(file.attrs.get("strain", 0.0))
        since = int(file.attrs.get("since_step", step)), float(file.attrs.get("since_time", time))
    return arguments, step, since, strain


def remade(cls: Any, arguments: dict[str, Any], step: int, since: tuple[int, float], strain: float) -> Any:
    """Return a simulation that has made steps, whose time counts from one of them."""
    dynamics = cls(**arguments)
    dynamics._step, dynamics._since = step, since
    dynamics._problem = dynamics._at_strain(dynamics._problem, strain)
    return dynamics


def _one(forces: Any) -> Callable[[Any], Any] | None:
    """Return one function for a function, a sequence of them, or None."""
    if forces is None or callable(forces):
        return forces
    if not isinstance(forces, (list, tuple)):
        raise TypeError(f"forces is a {type(forces).__name__}; give a function of positions (N, 3), or a list of them.")
    return Sum(*forces)
