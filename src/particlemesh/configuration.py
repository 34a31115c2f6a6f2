# SPDX-License-Identifier: BSD-3-Clause
"""What a plan holds: sizes, positions, methods and their memory. :class:`Plan` adds the values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, cast

import numpy as np

from particlemesh import backends, checks, operands
from particlemesh.arrays import Kind
from particlemesh.backends.base import Backend, Record, allocate
from particlemesh.backends.cpu import at_most_cores
from particlemesh.backends.tapes import Tapes
from particlemesh.choosing import candidates
from particlemesh.choosing.choice import BY_ITSELF, KEYWORDS, METHODS, Choice
from particlemesh.mesh import Mesh
from particlemesh.methods.contract import Method, Problem
from particlemesh.orders import block_order
from particlemesh.particles import sorted as sorted_particles
from particlemesh.particles.located import Particles, Status, TiledParticles, packable
from particlemesh.particles.stencil import axes_of
from particlemesh.window import Window, window_of

MANY = 100_000  # particles

if TYPE_CHECKING:
    from particlemesh.plan import Plan


class Configuration:
    """Everything of a plan but the values: see :class:`particlemesh.Plan`."""

    def __init__(
        self,
        mesh: Mesh,
        window: Window | str,
        *,
        dtype: Any = None,
        components: int = 1,
        applications: int = 1,
        method: str = "auto",
        interpolation: str = "auto",
        backend: str | None = None,
        deterministic: bool = False,
        threads: int | None = None,
        options: Mapping[str, Mapping[str, Any]] | None = None,
        order: str = "caller",
    ) -> None:
        if not isinstance(mesh, Mesh):
            raise TypeError(f"mesh is of type {type(mesh).__name__}; give a particlemesh.Mesh.")
        self.mesh = mesh
        self.window = window_of(window)
        checks.enough_ghosts(mesh, self.window.support)
        self.dtype: Any = None if dtype is None else checks.real_type(dtype)
        self.components = checks.integer(components, "components", 1, 2**31)
        self.applications = checks.integer(applications, "applications", 1, 2**63)
        self.threads = at_most_cores(None if threads is None else checks.integer(threads, "threads", 1, 4096))
        self.deterministic = checks.flag(deterministic, "deterministic")
        self._choice = Choice({"spread": method, "interpolate": interpolation})
        for what, name in self._choice.wanted.items():
            checks.method_name(name, METHODS[what], KEYWORDS[what], BY_ITSELF)
        self.options = candidates.options_of(options, METHODS.values())
        self._sorted = checks.one_of(order, "order", ("caller", "sorted")) == "sorted"
        self._order: Any = None  # of sorted particles, in the user's kind
        self._named = backend
        if backend is not None:
            for what, name in self._choice.wanted.items():
                candidates.check_backend(METHODS[what], name, KEYWORDS[what], backend)
        self.backend: Any = None if backend is None else backends.current(backend)
        self.axes = axes_of(mesh, self.window)
        self._shape = mesh.field_shape
        self._kind: Kind | None = None
        self.particles: Any = None
        self._spare: Particles | None = None
        self._methods: dict[str, Method] = {}
        self._chosen_for = 0  # particles
        self._reserved = False  # methods stay, and with them what they have allocated
        self._prepared: set[str] = set()
        self._scratch: dict[str, Any] = {}
        self._tapes = Tapes()
        self._captured = False  # set_positions or a preparation was: a replay changes what is there, and does not tell
        self._capturing = False  # the last call was captured
        self.token: Any = None  # the stream that last worked for this plan
        self._closed = False
        self.shared: dict[Any, Any] = {}  # orderings, kept for one configuration
        self.kernels: dict[Any, Any] = {}  # those that orderings keep (backends.base.kept)
        self.counted_ahead: tuple[int, int, int] | None = None  # cells of the blocks that set_positions counts
        if self.dtype is not None:
            self._bind(self.dtype)

    __init__.__qualname__ = "Plan"  # Python's errors about arguments name what the caller wrote

    # ---- lifetime -------------------------------------------------------------------------------------

    def __reduce__(self) -> tuple[Any, ...]:
        # A recipe, never handles: the copy starts without positions.
        options = dict(
            dtype=None if self.dtype is None else self.dtype.name, components=self.components,
            applications=self.applications, method=self._choice.wanted["spread"],
            interpolation=self._choice.wanted["interpolate"], backend=self._named,
            deterministic=self.deterministic, threads=self.threads, options=self.options,
            order="sorted" if self._sorted else "caller",
        )  # fmt: skip
        return _rebuild, (type(self), self.mesh, self.window, options)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Release the plan's memory; using it afterwards is a RuntimeError. May be called twice."""
        self._closed = True
        self.particles = self._spare = self._order = None
        self._methods.clear()
        self._scratch.clear()
        self._tapes.clear()
        self.shared.clear()
        self.kernels.clear()

    @property
    def nbytes(self) -> int:
        """Bytes of memory the plan holds."""
        held = [self.particles, self._spare, *self._scratch.values(), *self.shared.values()]
        return sum(int(getattr(x, "nbytes", 0)) for x in held)  # orders lie in scratch memory

    def _bind(self, dtype: np.dtype) -> None:
        self.dtype = dtype
        char = dtype.char
        self.window_record = Record(f"={self.window.table.size}{char}", *self.window.table.ravel())
        # d(node coordinate) / d(position); rows and columns of missing axes are zero.
        slope = np.zeros((3, 3))
        d = self.mesh.ndim
        slope[3 - d :, 3 - d :] = np.array(self.mesh.intervals)[:, None] * self.mesh.box.inverse
        self.jacobian_record = Record(f"=9{char}", *slope.ravel())
        self.jacobian = np.ascontiguousarray(slope[:, 3 - d :].astype(dtype))

    # ---- positions ------------------------------------------------------------------------------------

    @property
    def count(self) -> int:
        """Number of particles."""
        return self.particles.count if self.particles is not None else 0

    @property
    def capacity(self) -> int:
        """Particles that fit without allocation."""
        return self.particles.rows if self.particles is not None else 0

    def reserve(self, count: int) -> None:
        """Allocate for up to ``count`` particles, so that later calls allocate nothing.

        Many methods have memory for slopes only once these are wanted: if :meth:`Plan.spread_gradient` or
        :meth:`Plan.gradient` are in a capture, call them once before.

        The plan must know where it runs and in which type: name ``backend`` and ``dtype``, or set
        positions once before.

        Parameters
        ----------
        count : int
            Particles.

        Raises
        ------
        ValueError
            If backend or dtype are not known yet.

        Examples
        --------
        >>> import particlemesh as pm
        >>> plan = pm.Plan(pm.Mesh(16, 1.0), "cic", backend="cpu", dtype="float64")
        >>> plan.reserve(1000)
        >>> plan.capacity
        1000
        """
        self._open()
        count = checks.integer(count, "count", 0, 2**62)
        if self.backend is None or self.dtype is None:
            raise ValueError("reserve needs to know where and in which type: give Plan backend= and dtype=.")
        self._choice.check_reserve(self.count)
        with self.backend.scope():
            self.token = self.backend.follow(self.token)
            if self.capacity < count:
                kind = self._particle_kind(self.backend)
                room = kind(self.backend, self.dtype, count)
                self._spare = Particles(self.backend, self.dtype, count) if kind is Particles else None
                if self.particles is not None:
                    room.take_over(self.backend, self.particles)
                self.particles = room
                self._tapes.clear()  # they hold the old room's addresses
                # Methods get larger memory, too: what they had made of the positions does not move there.
                self._prepared.clear()
                self.shared.clear()
            methods = [self._method(what) for what in METHODS]
            for held in (self.particles, self._spare):
                if isinstance(held, Particles):
                    held.make_room(packed=self._packs(count) and packable(self.axes, self.dtype))
            if self._sorted:
                self.particles.reserve(self, stencils=not self._packs(count))
            for method in methods:
                method.reserve(cast("Plan", self))
            self._reserved = True

    def set_positions(self, positions: Any, *, check: bool = True) -> None:
        """Take a particle configuration: everything that depends on positions only.

        Parameters
        ----------
        positions : array (N, d), tuple of d arrays (N,), or array (N,) in 1-D
            Positions in the user's length unit; any strides; never modified. Periodic axes fold any finite
            number; an open axis takes ``[origin, origin + length]``, both ends included.
        check : bool
            If False, never synchronise and, after :meth:`reserve`, never allocate: particles that are not
            finite or off an open axis get zero weight and are recorded in :attr:`status`. A CUDA graph can then
            capture it. A replay does not tell the plan: from then on each call that is not captured prepares anew.
            What a graph prepares is there for graphs captured after it: replay them in that order.

        Raises
        ------
        ValueError
            If a position is not finite or outside an open axis (the first one is named), or the shape is
            wrong. The plan keeps its former positions.
        """
        self._open()
        kind, backend, x = operands.coordinates(positions, self.mesh.ndim, self.backend, upload=self._named is not None)
        if self._reserved and not check and x.count > self.capacity:
            raise ValueError(
                f"{x.count} particles, but room is reserved for {self.capacity}: reserve({x.count}) first."
            )
        first = positions[0] if isinstance(positions, tuple) else positions
        dtype = x.dtype if self.dtype is None else self.dtype
        with kind.scope(first), backend.scope(*x.arrays):
            token = backend.follow(self.token)
            room = self._room(backend, dtype, x.count, check)
            counting = block_order.counting(cast("Plan", self), x.count)
            packed = self._packs(x.count)
            room.locate(backend, self.mesh, self.axes, x, self.threads, packed=packed, counting=counting)
            if check:
                status = room.read_status(backend)
                if status.not_finite or status.outside:
                    raise checks.bad_positions(status, positions, self.mesh)
            anew = not (self._reserved or self._chosen_for / 2 <= x.count <= self._chosen_for * 2)
            if check and anew:
                self._choice.look(cast("Plan", self), backend, x)
            elif anew:
                self._choice.look_away()
            if self._sorted:
                room.hold(self)
            # Nothing can fail from here on: the new configuration takes the old one's place.
            if self.dtype is None:
                self._bind(dtype)
            self.backend, self._kind, self.token = backend, kind, token
            if anew:
                self._methods.clear()  # another method may be faster for so many
                self._chosen_for, self.counted_ahead = x.count, None
            self._capturing = not check and backend.capturing()
            self._captured = self._captured or self._capturing
            self._prepared.clear()
            self._tapes.clear()
            self.shared.clear()
            block_order.counted(cast("Plan", self), counting)
            before, self.particles = self.particles, None  # its memory may be written to: no way back
            room.place(cast("Plan", self))
            self.particles = room
            self._order = sorted_particles.shown(room, kind, backend) if self._sorted else None
            if room is not before and isinstance(before, Particles):
                self._spare = before

    def _particle_kind(self, backend: Backend) -> Any:
        if self._sorted:
            return sorted_particles.kind_on(backend)
        return TiledParticles if backend.name == "cpu" else Particles

    def _room(self, backend: Backend, dtype: np.dtype, count: int, check: bool) -> Any:
        """Return where ``count`` particles can be located while those of now stay as they are."""
        kind = self._particle_kind(backend)
        if kind is not Particles:
            return kind(backend, dtype, count, self.particles)
        if not check and self.particles is not None and self.capacity >= count:
            return self.particles
        if check and self._spare is not None and self._spare.rows >= count:
            return self._spare
        return Particles(backend, dtype, max(count, self.capacity))

    def _packs(self, count: int) -> bool:
        """Return whether particles are kept packed: where methods, as far as they are known, read orders only."""
        known = [type(method) for method in self._methods.values()]
        known += [m for what, name in self._choice.wanted.items() for m in METHODS[what] if m.name == name]
        # Of methods still to be chosen, those that are fastest for many particles read orders.
        return all(not m.reads_stencils for m in known) if known else count >= MANY

    @property
    def status(self) -> Status:
        """What the last :meth:`set_positions` found; waits for the device."""
        self._ready()
        with self.backend.scope():
            status = self.particles.read_status(self.backend)
        # A method that is not prepared has seen no values of these particles, and may remember some of others.
        bad = any(m.non_finite_values() for what, m in self._methods.items() if what in self._prepared)
        return status._replace(non_finite_values=bad)

    def check(self) -> None:
        """Raise for what unchecked calls have recorded.

        Raises
        ------
        ValueError
            If positions were not finite or off an open axis, or values were not finite where it matters.
        """
        status = self.status
        if status.not_finite or status.outside:
            raise checks.bad_positions(status, None, self.mesh, taken=True)
        if status.non_finite_values:
            raise ValueError("values were not all finite; the field is NaN everywhere.")

    # ---- methods --------------------------------------------------------------------------------------

    def problem(self) -> Problem:
        """Return what methods are asked about."""
        return Problem(
            self.mesh, self.window, self.dtype, self.components, self.applications, self.count or self.capacity,
            self.deterministic, self.backend, self.options, self._sorted, *self._choice.arrangement, self.threads,
        )  # fmt: skip

    def _method(self, what: str) -> Method:
        method = self._methods.get(what)
        if method is None:
            method = self._methods[what] = self._choice.choose(cast("Plan", self), what)()
        return method

    def _prepare(self, what: str, method: Method) -> None:
        if self._captured or what not in self._prepared:
            capturing = self.backend.capturing()
            # What was made before is of other positions, or in no graph; what a graph makes is there after a replay.
            if (self._captured or capturing) and not (capturing and self._capturing):
                self._forget_positions()
                self._prepared -= METHODS.keys() if capturing else {what}
            self._captured, self._capturing = self._captured or capturing, capturing
        if what not in self._prepared:
            method.prepare(cast("Plan", self))
            self._prepared.add(what)

    def _forget_positions(self) -> None:
        """Forget what was made of the positions, which may have changed in a replay."""
        self.shared.clear()
        self.particles.spell_out_again()

    def scratch(self, name: str, shape: tuple[int, ...], dtype: Any) -> Any:
        """Return memory for a method, kept under ``name`` for its next call; the first axis may be longer."""
        held = self._scratch.get(name)
        fits = held is not None and held.dtype == dtype and (
            held.shape[1:] == shape[1:] and held.shape[0] >= shape[0] if shape else held.shape == shape
        )  # fmt: skip
        if fits:
            return held
        self._scratch.pop(name, None)
        self._tapes.clear()  # they hold the old memory's addresses
        held = self._scratch[name] = allocate(self.backend, shape, dtype, f"scratch ({name})", self._frugal())
        return held

    def _frugal(self) -> str:
        """Return which methods need no memory of their own, for an error."""
        problem = self.problem()
        names = [
            f"{what} by {c.method.name!r}"
            for what, methods in METHODS.items()
            for c in (candidates.ask(m, problem) for m in methods)
            if c.reason is None and c.bytes == 0
        ]
        return f"; no scratch memory is needed to {' or '.join(names)}" if names else ""

    def _again(self, what: Any, arrays: tuple[Any, ...], call: Callable[[], Any], result: Any) -> Any:
        """Make a call; from the third time for the same arrays on, play what the device got for it."""
        # Without out= results are other arrays each time. What a graph has captured makes calls prepare anew.
        return call() if result is None or self._captured else self._tapes.again(self, what, arrays, call, result)

    def _open(self) -> None:
        if self._closed:
            raise RuntimeError("this plan is closed; make a new one.")

    def _ready(self) -> None:
        self._open()
        if self.particles is None:
            raise RuntimeError("this plan has no particles yet: call set_positions first.")


def _rebuild(plan: type[Configuration], mesh: Mesh, window: Window, options: dict[str, Any]) -> Configuration:
    return plan(mesh, window, **options)
