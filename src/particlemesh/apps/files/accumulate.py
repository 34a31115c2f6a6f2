# SPDX-License-Identifier: BSD-3-Clause
"""Spreading, interpolating and the power spectrum of the particles of a file, one part after the other."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from particlemesh import Mesh, Plan, Window
from particlemesh.apps.files.particles import CHUNK, Chunk, Particles
from particlemesh.apps.files.replacing import together
from particlemesh.distributed import World
from particlemesh.fourier import Spectrum, Transform, binned_power
from particlemesh.kernels import checks

OUTSIDE = ("error", "lose")
COMPENSATIONS = ("window", "aliases")
FEW = 2**14  # particles of a first call, which compiles and loads code


@dataclass
class Account:
    """What a pass over a file has done.

    Attributes
    ----------
    particles : int
        Particles of all frames together.
    values : (...) ndarray
        Sum of their values, in double precision; mean over frames.
    lost : (...) ndarray
        Part of this sum that went beyond open faces.
    beyond : int
        Particles beyond open faces, if they are let go of.
    start : float
        Seconds of a first call with few particles, which compiles or loads code.
    seconds : float
        Seconds of plans after that, without reading and writing.
    explanation : str
        The plan's table of methods, for the first part.
    device : str
        Where it ran.
    dtype : numpy.dtype or None
        Precision.

    Examples
    --------
    >>> import tempfile, numpy as np, particlemesh as pm
    >>> from particlemesh.apps.files import open_particles, spread_particles
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(f"{folder}/few.npz", x=np.array([0.1, 0.5, 0.7]), mass=np.array([1.0, 2.0, 3.0]))
    ...     with open_particles(f"{folder}/few.npz", values="mass") as particles:
    ...         _, account = spread_particles(particles, pm.Mesh(4, 1.0), "cic")
    >>> account.particles, float(account.values), float(account.lost)
    (3, 6.0, 0.0)
    """

    particles: int = 0
    values: Any = 0.0
    lost: Any = 0.0
    beyond: int = 0
    start: float = 0.0
    seconds: float = 0.0
    explanation: str = ""
    device: str = ""
    dtype: Any = None
    _frames: int = field(default=1, repr=False)

    def add_up(self, world: World) -> None:
        """Add up the accounts of all ranks; times are the longest."""
        every = world.allgather((self.particles, self.values, self.lost, self.beyond))
        self.particles, self.values, self.lost, self.beyond = map(sum, zip(*every, strict=True))
        self.start, self.seconds = world.allreduce(np.array([self.start, self.seconds]), "max").tolist()


def _nothing(particles: int) -> None:
    """Show no progress."""


def spread_particles(
    particles: Particles, mesh: Mesh, window: Any = "bspline4", *, frames: Sequence[int] = (-1,), size: int = CHUNK,
    progress: Callable[[int], None] = _nothing, dtype: Any = None, outside: str = "error", world: World | None = None,
    **options: Any,
) -> tuple[np.ndarray, Account]:  # fmt: skip
    """Spread the particles of a file in parts; the mean over frames, if there are several.

    Parameters
    ----------
    particles : Particles
    mesh : Mesh
    window : Window or str
    frames : sequence of int
        The last one by default.
    size : int
        Most particles of a part.
    progress : callable (int)
        Called after each part with its number of particles.
    dtype : {"float32", "float64"}, optional
        By default that of the first positions.
    outside : {"error", "lose"}
        What becomes of particles beyond open faces; all of their value can be lost.
    world : particlemesh.distributed.World, optional
        Ranks that share the parts of the file. Each has the whole mesh, and the sum of all ranks.
    **options
        Options of :class:`particlemesh.Plan`.

    Returns
    -------
    field : ndarray (..., *mesh.field_shape)
    account : Account

    Raises
    ------
    ValueError, TypeError
        As for `Particles.chunks` and :class:`particlemesh.Plan`.

    Examples
    --------
    >>> import tempfile, numpy as np, particlemesh as pm
    >>> from particlemesh.apps.files import open_particles, spread_particles
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(f"{folder}/few.npz", x=np.array([0.1, 0.5, 0.7]), mass=np.array([1.0, 2.0, 3.0]))
    ...     with open_particles(f"{folder}/few.npz", values="mass") as particles:
    ...         field, account = spread_particles(particles, pm.Mesh(4, 1.0), "cic", size=2)
    >>> field.sum().round(12), account.values, account.particles
    (np.float64(6.0), np.float64(6.0), 3)
    """
    account = Account(_frames=len(frames))
    with together(world, "spreading a file"), _Plans(mesh, window, dtype, outside, account, options) as plans:
        for frame in frames:
            plans.frame = frame if particles.frames > 1 else None
            for begin, chunk in parts_of(particles, size, frame, world):
                plans.spread(chunk, begin)
                progress(len(chunk.positions))
        total = plans.total
    if world is not None:
        total = _of_all(world, total, account)
    assert total is not None  # a frame has particles
    return total / len(frames) if len(frames) > 1 else total, account


def interpolate_particles(
    particles: Particles, values: np.ndarray, mesh: Mesh, window: Any = "bspline4", *, frame: int = -1,
    size: int = CHUNK, gradient: bool = False, dtype: Any = None, outside: str = "error",
    account: Account | None = None, world: World | None = None, **options: Any,
) -> Iterator[tuple[Chunk, np.ndarray, np.ndarray | None]]:  # fmt: skip
    """Interpolate a field at the particles of a file, and yield the results in parts.

    Parameters
    ----------
    particles : Particles
    values : ndarray (..., *mesh.field_shape)
        The field.
    mesh : Mesh
    window : Window or str
    frame, size, dtype, outside, **options
        As for :func:`spread_particles`.
    gradient : bool
        Whether to return the gradient as well.
    account : Account, optional
        Filled while this goes on.
    world : particlemesh.distributed.World, optional
        Ranks that take the parts of the file in turn. Each yields its own, without messages.

    Yields
    ------
    chunk : Chunk
        The particles.
    results : ndarray (..., n)
    gradients : ndarray (..., n, d), or None

    Raises
    ------
    ValueError, TypeError
        As for `Particles.chunks` and :class:`particlemesh.Plan`.

    Examples
    --------
    >>> import tempfile, numpy as np, particlemesh as pm
    >>> from particlemesh.apps.files import interpolate_particles, open_particles
    >>> field = np.array([0.0, 1.0, 2.0, 3.0])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(f"{folder}/few.npz", x=np.array([0.25, 0.375, 0.5]))
    ...     with open_particles(f"{folder}/few.npz") as particles:
    ...         parts = list(interpolate_particles(particles, field, pm.Mesh(4, 1.0), "cic", size=2))
    >>> [results.round(12).tolist() for _, results, _ in parts]
    [[1.0, 1.5], [2.0]]
    """
    checks.flag(gradient, "gradient")
    account = account if account is not None else Account()
    converted: list[np.ndarray] = []  # once the precision is known

    def call(plan: Plan) -> tuple[np.ndarray, np.ndarray | None]:
        if not converted:
            converted.append(plans.values(values))
        field = converted[0]
        return plan.value_and_gradient(field) if gradient else (plan.interpolate(field), None)

    with _Plans(mesh, window, dtype, outside, account, options) as plans:
        for begin, chunk in parts_of(particles, size, frame, world):
            plan = plans.set(chunk, begin, lambda plan, few: call(plan))
            began = time.perf_counter()
            results, slope = call(plan)
            account.seconds += time.perf_counter() - began
            plans.note(chunk.values)
            yield chunk, results, slope


def power_factors(transform: Transform, compensation: str, interlaced: bool = False) -> np.ndarray:
    """Return the factors of a power per mode that undo the window, or the window with its aliases."""
    checks.one_of(compensation, "compensation", COMPENSATIONS)
    if compensation == "aliases":
        return transform.compensation("power", interlaced=interlaced)
    return transform.compensation("spread") ** 2


def particles_spectrum(
    particles: Particles, mesh: Mesh, window: Window | str = "pcs", *, frame: int = -1, size: int = CHUNK,
    interlaced: bool = True, compensation: str = "window", progress: Callable[[int], None] = _nothing,
    dtype: Any = None, account: Account | None = None, other: Particles | None = None, edges: Any = None,
    mu_bins: int | None = None, multipoles: Sequence[int] = (), line_of_sight: Any = None, world: World | None = None,
    **options: Any,
) -> Spectrum:  # fmt: skip
    """Return the power spectrum of the particles of a file, which are in memory one part at a time.

    It is that of :func:`particlemesh.fourier.power_spectrum`. Fields of one or two meshes stay in memory.

    Parameters
    ----------
    particles : Particles
        With one real value each.
    mesh : Mesh
        Periodic, without ghosts.
    window : Window or str
    frame : int
        The last one by default.
    size : int
        Most particles of a part.
    interlaced, compensation
        As for :func:`particlemesh.fourier.power_spectrum`.
    progress : callable (int)
        Called after each part with its number of particles.
    dtype : {"float32", "float64"}, optional
        By default that of the first positions.
    account : Account, optional
        Filled while this goes on; its seconds are those of both meshes, its values those of `particles`.
    other : Particles, optional
        A second set of particles, for the cross spectrum; its frame has the same number.
    edges, mu_bins, multipoles, line_of_sight
        As for :func:`particlemesh.fourier.power_spectrum`.
    world
        As for :func:`spread_particles`.
    **options
        Options of :class:`particlemesh.Plan`.

    Returns
    -------
    Spectrum
        Powers in units of volume; k in radians per length.

    Raises
    ------
    ValueError, TypeError
        If the mesh has open axes, values have components, are complex or sum to 0, or an argument is not allowed.

    Examples
    --------
    >>> import tempfile, numpy as np, particlemesh as pm
    >>> from particlemesh.apps.files import open_particles, particles_spectrum
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(f"{folder}/dust.npz", positions=np.random.default_rng(1).random((20000, 3)))
    ...     with open_particles(f"{folder}/dust.npz") as particles:
    ...         found = particles_spectrum(
    ...             particles, pm.Mesh((16, 16, 16), (1.0, 1.0, 1.0)), size=3000, compensation="aliases"
    ...         )
    >>> (np.average(found.power, weights=found.modes) * 20000).round(1)  # Poisson's noise is 1
    np.float64(1.0)
    """
    interlaced = checks.flag(interlaced, "interlaced")
    if not all(mesh.periodic):
        raise ValueError("the mesh has open axes; a spectrum takes one that repeats along all axes.")
    account = account if account is not None else Account()
    meshes = [mesh, mesh.shifted(0.5)] if interlaced else [mesh]
    transforms = [Transform(one, window, backend=options.get("backend")) for one in meshes]
    factors = mesh.box.volume * power_factors(transforms[0], compensation, interlaced)
    contrasts = [
        _contrast(one, frame, transforms, window, size, progress, dtype, its, world, options)
        for one, its in ((particles, account), (other, Account()))
        if one is not None
    ]
    (first, squares), (second, _) = contrasts[0], contrasts[-1]
    power, *flipped = ((a * b.conj()).real * factors for a, b in zip(first, second, strict=True))
    noise = 0.0 if other is not None else squares * factors / transforms[0].compensation("power", interlaced=interlaced)
    return binned_power(
        transforms[0], power, flipped=flipped[0] if flipped else None, shot_noise=noise,
        autos=None if other is None else [[abs(half) ** 2 * factors for half in halves] for halves, _ in contrasts],
        edges=edges, mu_bins=mu_bins, multipoles=multipoles, line_of_sight=line_of_sight,
    )  # fmt: skip


def _contrast(
    particles: Particles, frame: int, transforms: list[Transform], window: Any, size: int,
    progress: Callable[[int], None], dtype: Any, account: Account, world: World | None, options: dict[str, Any],
) -> tuple[list[np.ndarray], float]:  # fmt: skip
    """Return modes of the density contrast, and ``sum(w**2) / sum(w)**2``.

    Of interlaced meshes the modes are half of the sum, and of the difference, of those of mesh and twin.
    """
    if particles.components:
        raise ValueError(f"values are {', '.join(particles.values)}; a spectrum has one weight per particle.")
    magnitudes = squares = 0.0
    with together(world, "spreading a file"), contextlib.ExitStack() as stack:
        accounts = [account, *(Account() for _ in transforms[1:])]
        plans = [
            stack.enter_context(_Plans(transform.mesh, window, dtype, "error", its, options))
            for transform, its in zip(transforms, accounts, strict=True)
        ]
        for begin, chunk in parts_of(particles, size, frame, world):
            if np.iscomplexobj(chunk.values):
                raise TypeError("values are complex; weights are real.")
            for one in plans:
                one.spread(chunk, begin)
            weights = plans[0].values(chunk.values).astype(np.float64, copy=False)
            magnitudes, squares = magnitudes + abs(weights).sum(), squares + np.dot(weights, weights)
            progress(len(chunk.positions))
        for its in accounts[1:]:
            account.start, account.seconds = account.start + its.start, account.seconds + its.seconds
        fields = [one.total for one in plans]
    if world is not None:
        fields = [_of_all(world, one, its) for one, its in zip(fields, accounts, strict=True)]
        magnitudes, squares = world.allreduce(np.array([magnitudes, squares]))
    total = float(account.values)
    if not abs(total) > 1e-12 * magnitudes:
        raise ValueError("values sum to 0; a density contrast needs weights with a sum other than 0.")
    modes = [
        np.asarray(transform.forward(one)).astype(np.complex128) / total
        for transform, one in zip(transforms, fields, strict=True)
    ]
    if len(modes) == 2:
        mesh, twin = modes
        modes = [(mesh + twin) / 2, (mesh - twin) / 2]
    return modes, squares / total**2


def parts_of(particles: Particles, size: int, frame: int, world: World | None) -> Iterator[tuple[int, Chunk]]:
    """Yield the parts of a file, each after the number of particles before it; over ranks, those of this rank.

    Every rank reads the whole file, and takes a part in turn.
    """
    rank, ranks, begin = (0, 1, 0) if world is None else (world.rank, world.size, 0)
    if ranks > 1 and particles.count is not None:
        size = max(1, min(size, -(-particles.count // ranks)))
    for number, chunk in enumerate(particles.chunks(size, frame)):
        if number % ranks == rank:
            yield begin, chunk
        begin += len(chunk.positions)


def _of_all(world: World, total: np.ndarray | None, account: Account) -> np.ndarray:
    """Return the sum of the fields of all ranks, of which some may have none, and add up their accounts."""
    kind = None if total is None else (total.shape, total.dtype.str)
    shape, dtype = next(kind for kind in world.allgather(kind) if kind is not None)  # the first rank has a part
    whole: np.ndarray = world.allreduce(np.zeros(shape, dtype) if total is None else total)
    account.add_up(world)
    return whole


class _Plans:
    """One plan for all parts, made for the first one."""

    def __init__(
        self, mesh: Mesh, window: Any, dtype: Any, outside: str, account: Account, options: dict[str, Any]
    ) -> None:  # fmt: skip
        if outside not in OUTSIDE:
            raise ValueError(f"outside is {outside!r}; give {' or '.join(OUTSIDE)}.")
        self.check = outside == "error"
        self.mesh, self.window, self.dtype, self.account, self.options = mesh, window, dtype, account, options
        self.plan: Plan | None = None
        self.total: np.ndarray | None = None  # the field of all parts
        self.frame: int | None = None  # of several

    def spread(self, chunk: Chunk, begin: int) -> None:
        """Add a part to the field of all parts; ``begin`` particles of its frame are before it."""
        plan = self.set(chunk, begin, lambda plan, few: plan.spread(self.values(few.values)))
        values = self.values(chunk.values)
        began = time.perf_counter()
        if self.total is None:
            self.total = plan.spread(values)
        else:
            plan.spread(values, out=self.total, accumulate=True)
        self.account.seconds += time.perf_counter() - began
        self.note(values)

    def set(self, chunk: Chunk, begin: int, warm_up: Callable[[Plan, Chunk], Any]) -> Plan:
        """Return the plan at the positions of a part; the first time, call it with some of them before."""
        account = self.account
        if self.plan is None:
            began = time.perf_counter()
            account.dtype = np.dtype(self.dtype or chunk.positions.dtype)
            self.plan = Plan(self.mesh, self.window, dtype=account.dtype.name, **self.options)
            with np.errstate(over="ignore"):
                few = Chunk(chunk.positions[:FEW].astype(account.dtype, copy=False), chunk.values[..., :FEW])
            self.plan.set_positions(few.positions, check=False)
            warm_up(self.plan, few)
            account.start = time.perf_counter() - began
        began = time.perf_counter()
        with np.errstate(over="ignore"):
            positions = chunk.positions.astype(account.dtype, copy=False)
        if not np.isfinite(positions).all():
            raise ValueError(f"positions up to {abs(chunk.positions).max():.3g} are not finite in {account.dtype}.")
        try:
            self.plan.set_positions(positions, check=self.check)
        except ValueError as error:
            text = str(error).partition(" The plan is unchanged")[0]
            at = "" if self.frame is None else f"frame {self.frame}, "
            raise ValueError(
                f"{at}particles from {begin} on: {text} Give a larger box, or let go of them (--outside lose)."
            ) from error
        account.seconds += time.perf_counter() - began
        account.particles += len(chunk.positions)
        return self.plan

    def values(self, values: np.ndarray) -> np.ndarray:
        """Return values in the plan's precision."""
        real = self.account.dtype  # known once `set` has been called
        with np.errstate(over="ignore"):
            cast = values.astype(np.result_type(real, np.complex64) if np.iscomplexobj(values) else real, copy=False)
        if not np.isfinite(cast).all():
            raise ValueError(f"values up to {abs(values).max():.3g} are not finite in {real}: use float64.")
        return cast

    def note(self, values: np.ndarray) -> None:
        """Add what is conserved, and what is lost on open axes."""
        account, plan = self.account, self.plan
        assert plan is not None
        if not account.explanation:
            account.explanation, account.device = plan.explain(), f"{plan.backend.name}, {plan.backend.device}"
        double = np.complex128 if np.iscomplexobj(values) else np.float64
        with np.errstate(over="ignore", invalid="ignore"):  # a sum that is not finite shows in it
            account.values = account.values + values.sum(axis=-1, dtype=double) / account._frames
        if not all(self.mesh.periodic):
            account.lost = account.lost + plan.lost(self.values(values), outside=True) / account._frames
        if not self.check:
            account.beyond += plan.status.outside

    def __enter__(self) -> _Plans:
        return self

    def __exit__(self, *error: object) -> None:
        if self.plan is not None:
            self.plan.close()
