# SPDX-License-Identifier: BSD-3-Clause
"""The base of :class:`Plan`: sizes, positions, methods and their memory."""

from __future__ import annotations

import functools
import itertools
import threading
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any, Self

import numpy as np

from particlemesh import backends, checks
from particlemesh.arrays.kinds import Kind, recorder_of
from particlemesh.arrays.positions import Coordinates, coordinates
from particlemesh.backends.base import Backend
from particlemesh.backends.cpu import at_most_cores
from particlemesh.backends.tapes import Tapes
from particlemesh.busy import alone, in_use
from particlemesh.choosing import candidates
from particlemesh.choosing.choice import BY_ITSELF, KEYWORDS, METHODS, Choice
from particlemesh.ghosts import check_enough
from particlemesh.mesh import Mesh
from particlemesh.methods.contract import Method, Problem
from particlemesh.methods.repeats import Located, Placed, PlanState, again_in, good, set_again, stay
from particlemesh.orders import block_order
from particlemesh.particles import sorted_particles
from particlemesh.particles.located import DeviceParticles, packable
from particlemesh.particles.systems import Boxes, Systems, belong
from particlemesh.particles.unsorted import host_kind
from particlemesh.particles.workspace import Memory, Workspace
from particlemesh.walk.by_block import cells_to_sort_by
from particlemesh.window import DEFAULT, Window, window_of

MANY = 100_000  # particles
_CELLS_FOR = functools.partial(cells_to_sort_by, tuple(itertools.chain(*METHODS.values())))


class Configuration(checks.Fixed):
    """A plan without the calls for values: see :class:`particlemesh.Plan`."""

    def __init__(
        self,
        mesh: Mesh,
        window: Window | str = DEFAULT,
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
        systems: int | None = None,
    ) -> None:
        if not isinstance(mesh, Mesh):
            raise TypeError(f"mesh is of type {type(mesh).__name__}; give a particlemesh.Mesh.")
        self.mesh = mesh
        self.window = window_of(window)
        check_enough(mesh, self.window.support)
        self._dtype: Any = None if dtype is None else checks.real_type(dtype)
        self.components = checks.integer(components, "components", 1, 2**31)
        self.applications = checks.integer(applications, "applications", 1, 2**63)
        self.threads = at_most_cores(None if threads is None else checks.integer(threads, "threads", 1, 4096))
        self.deterministic = checks.flag(deterministic, "deterministic")
        self._choice = Choice({"spread": method, "interpolate": interpolation}, self.deterministic)
        for what, name in self._choice.names.items():
            checks.method_name(name, METHODS[what], KEYWORDS[what], BY_ITSELF)
        self.options = candidates.options_of(options, METHODS.values())
        self._sorted = checks.one_of(order, "order", ("caller", "sorted")) == "sorted"
        self._order: Any = None  # of sorted particles, in the user's kind
        self._named = backend
        if backend is not None:
            for what, name in self._choice.names.items():
                candidates.check_backend(METHODS[what], name, KEYWORDS[what], backend)
        self._device: Any = None if backend is None else backends.current(backend)
        self.systems: int | None = None if systems is None else checks.integer(systems, "systems", 1, 2**31)
        if self.systems is not None:
            checks.not_a_part(mesh, "systems")
        self._systems = None if self.systems is None else Systems(mesh, self.window, self.systems)
        self._shape: tuple[int, ...] = mesh.field_shape if self.systems is None else (self.systems, *mesh.field_shape)
        self._boxes: Boxes | None = None  # of systems, where they differ from the mesh's
        self._kind: Kind | None = None
        self._tracked: list[Any] = []  # positions that derivatives are taken by; a new list for each configuration
        self._spare: DeviceParticles | None = None
        self._strays: Any = None  # memory of distributed/residents.py
        self._methods: dict[str, Method] = {}
        self._chosen_for = 0  # particles
        self._reserved = False  # methods stay, because their memory is allocated
        self._prepared: set[str] = set()
        self._tapes, self._state = Tapes(), PlanState(self)
        self._captured = False  # whether set_positions or a preparation was: replays change it without notice
        self._capturing = False  # whether the last call was captured
        self._token: Any = None  # the stream of the last call
        self._closed = False
        self.busy = threading.RLock()
        # None until backend and dtype are known; without particles until positions are set.
        self._workspace: Workspace | None = None
        if self._device is not None and self._dtype is not None:
            self._workspace = self._bare(self._device, self._dtype)

    __init__.__qualname__ = "Plan"  # the name in Python's errors about arguments

    def _bare(self, backend: Backend, dtype: np.dtype) -> Workspace:
        """Return a workspace without particles."""
        mesh = self.mesh if self._systems is None else self._systems.stacked
        return Workspace(
            mesh, self.window, dtype, self.components, self.applications, 0, self.deterministic, backend,
            self.options, self._sorted, self.threads, memory=Memory(backend, self._tapes.clear, self._frugal),
        )  # fmt: skip

    workspace: Any = property(attrgetter("_workspace"), doc="All that methods see of the plan; None without a backend.")

    @property
    def backend(self) -> Any:
        """Backend of the plan; None until it is named or positions are set."""
        return self._device if self._workspace is None else self._workspace.backend

    @property
    def dtype(self) -> Any:
        """Real type of the values; None until it is named or positions are set."""
        return self._dtype if self._workspace is None else self._workspace.dtype

    @property
    def particles(self) -> Any:
        """The located particles; None without positions."""
        return None if self._workspace is None else self._workspace.particles

    # ---- positions ------------------------------------------------------------------------------------

    @property
    def count(self) -> int:
        """Number of particles."""
        return 0 if self._workspace is None else self._workspace.count

    @property
    def capacity(self) -> int:
        """Number of particles that fit without allocation."""
        return 0 if self._workspace is None else self._workspace.capacity

    @alone
    def reserve(self, count: int) -> None:
        """Allocate for up to ``count`` particles, so that later calls allocate nothing.

        Many methods allocate memory for derivatives in their first such call. Before you capture
        :meth:`Plan.spread_gradient`, :meth:`Plan.gradient` or second derivatives, call them once. So does any call of a
        plan with ``systems`` for their fields.

        The plan needs its backend and dtype: give ``backend`` and ``dtype``, or set positions first.

        Parameters
        ----------
        count : int
            Particles.

        Raises
        ------
        ValueError
            If the backend or dtype is not known yet.

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
        workspace = self._workspace
        if workspace is None:
            raise ValueError("reserve needs a backend and a dtype: give Plan backend= and dtype=.")
        self._choice.check_reserve(self.count)
        backend = workspace.backend
        with backend.scope():
            self._token = backend.follow(self._token)
            if workspace.particles is None or workspace.capacity < count:
                kind = self._particle_kind(backend)
                room = kind(backend, workspace.dtype, count)
                self._spare = DeviceParticles(backend, workspace.dtype, count) if kind is DeviceParticles else None
                if workspace.particles is not None:
                    room.take_over(backend, workspace.particles)
                # Methods get larger memory; their preparation is not copied there.
                self._workspace = workspace = workspace.over(room, room.count)
                workspace.memory.counted = None
                self._prepared.clear()
                self._tapes.clear()  # they hold addresses of the old memory
            methods = [self._method(what) for what in METHODS]
            for held in (workspace.particles, self._spare):
                if isinstance(held, DeviceParticles):
                    held.make_room(packed=self._packs(count) and packable(workspace.axes, workspace.dtype))
            if self._sorted:
                workspace.particles.reserve(workspace, _CELLS_FOR, stencils=not self._packs(count))
            for method in methods:
                method.reserve(workspace)
            self._reserved = True

    @alone
    def set_positions(self, positions: Any, *, system: Any = None, boxes: Any = None, check: bool = True) -> Self:
        """Set the particles' positions and do all work that depends on them only.

        Parameters
        ----------
        positions : array (N, d), tuple of d arrays (N,), or array (N,) in 1-D
            Positions in the user's length unit, with any strides; never modified. A list is converted by NumPy to
            points (N, d). A tuple has one array or list per axis. Periodic axes fold any finite number; an open axis
            allows ``[origin, origin + length]``, both ends included.
        system : int array (N,)
            The system of each particle, for a plan with ``systems``; any order. Indices on the host are always checked.
            Particles with an index of no system count as outside on a GPU.
        boxes : array (S, d) or (S, d, d), optional
            The box of each system on a periodic mesh, if they differ: lengths, or lattice vectors as rows. Their origin
            is that of the mesh's box. Derivatives are per user length in each box. Arrays on a GPU are read back.
        check : bool
            If False, never synchronise and, after :meth:`reserve`, never allocate. Particles that are not finite or
            off an open axis then get zero weight and are recorded in :attr:`status`. A CUDA graph can capture such
            a call. The plan has no notice of replays: after a capture, each call outside of captures prepares
            again. Graphs reuse the preparation of graphs captured before them: replay them in that order.

        Returns
        -------
        Plan
            The plan itself.

        Raises
        ------
        ValueError
            If a position is not finite or outside an open axis (the message names the first), or the shape is
            wrong. The plan keeps its previous positions.
        TypeError
            If positions are not real numbers of a supported dtype.
        """
        self._open()
        checks.flag(check, "check")
        recorder = recorder_of(*(positions if isinstance(positions, tuple) else (positions,)))
        if recorder is not None:
            recorder.track(self, positions, system=system, boxes=boxes, check=check)
            return self
        if system is None and boxes is None and set_again(self, positions, check=check):
            return self
        kind, backend, x = coordinates(positions, self.mesh.ndim, self.backend, upload=self._named is not None)
        if self._reserved and not check and x.count > self.capacity:
            raise ValueError(
                f"{x.count} particles, but room is reserved for {self.capacity}: reserve({x.count}) first."
            )
        with kind.scope(x.user), backend.scope(*x.arrays):
            placed = self._located(kind, backend, x, system, boxes, check, positions=positions)
            backend.mark(*x.arrays)
            if check:
                good(self, placed.room.read_status(backend), positions)
            self._take(placed, check)
        return self

    def _located(
        self, kind: Kind, backend: Backend, x: Coordinates, system: Any, boxes: Any, check: bool, strays: Any = None,
        positions: Any = None,
    ) -> Placed:  # fmt: skip
        """Locate particles; with ``check`` those that the plan has stay as they are."""
        token = backend.follow(self._token)
        bare = self._workspace or self._bare(backend, x.dtype if self._dtype is None else self._dtype)
        of_boxes = belong(x, self._systems, system, boxes, bare, upload=self._named is not None, before=self._boxes)
        room = self._room(bare, x.count, check)
        workspace = bare.over(room, x.count)
        packed = backend.name != "cpu" and self._packs(x.count) and packable(bare.axes, bare.dtype)
        options = {} if strays is None else {"strays": strays}

        def locate() -> Located:
            counting = block_order.counting(workspace)
            room.locate(
                backend, self.mesh, workspace.axes, x, self.threads, packed=packed, counting=counting, **options
            )
            return Located(kind, packed, counting)

        stays = positions is not None and stay(self, room, x.count)
        located = again_in(self, room, positions, x, locate) if stays else locate()
        return Placed(located, token, x, of_boxes, bare, room, workspace, stays)

    def _take(self, placed: Placed, check: bool) -> None:
        """Take located particles in the place of those that the plan has."""
        located, token, x, of_boxes, bare, room, workspace, stays = placed
        choose_again = not (self._reserved or self._chosen_for / 2 <= x.count <= self._chosen_for * 2)
        if check and choose_again and self._systems is None:
            self._choice.look(workspace, x)
        elif choose_again:
            self._choice.look_away()
        if self._sorted:
            room.hold(workspace, _CELLS_FOR)
        if choose_again:
            self._methods.clear()  # another method may be faster for this number
            self._chosen_for, workspace.memory.block_cells = x.count, None
        self._capturing = bool(not check and workspace.backend.capturing())
        self._captured = self._captured or self._capturing
        if choose_again or not stays or self._captured:
            self._tapes.clear()
        self._adopt(workspace, located, token, of_boxes, bare)

    def _adopt(self, workspace: Workspace, located: Located, token: Any, boxes: Any, bare: Workspace) -> None:
        """Replace the old configuration by that of ``workspace``: nothing can fail any more."""
        room = workspace.particles
        self._kind, self._token, self._boxes, self._tracked = located.kind, token, boxes, []
        self._prepared.clear()
        block_order.counted(workspace, located.counting)
        before, self._workspace = bare.particles, bare.over(None, 0)  # their memory may be overwritten below
        room.place(workspace)
        self._workspace = workspace
        self._order = sorted_particles.shown(room, located.kind, workspace.backend) if self._sorted else None
        if room is not before and isinstance(before, DeviceParticles):
            self._spare = before

    def _particle_kind(self, backend: Backend) -> Any:
        if self._sorted:
            return sorted_particles.kind_on(backend)
        return DeviceParticles if backend.name != "cpu" else host_kind(self.mesh)

    def _room(self, before: Workspace, count: int, check: bool) -> Any:
        """Return memory to locate ``count`` particles in; with ``check`` those of ``before`` stay intact."""
        backend, held, kind = before.backend, before.particles, self._particle_kind(before.backend)
        if kind is not DeviceParticles:
            return kind(backend, before.dtype, count, held)
        if not check and held is not None and held.rows >= count:
            return held
        if check and self._spare is not None and self._spare.rows >= count:
            return self._spare
        return DeviceParticles(backend, before.dtype, max(count, before.capacity))

    def _packs(self, count: int) -> bool:
        """Return whether particles are stored packed: if all known methods read orders only."""
        known = [type(method) for method in self._methods.values()]
        known += [m for what, name in self._choice.names.items() for m in METHODS[what] if m.name == name]
        # The methods that are fastest for many particles read orders.
        return all(not m.reads_stencils for m in known) if known else count >= MANY

    # ---- methods --------------------------------------------------------------------------------------

    def problem(self) -> Problem:
        """Return the problem that methods are chosen for."""
        return self._choice.problem(self._working())

    def _working(self) -> Workspace:
        assert self._workspace is not None
        return self._workspace

    def _method(self, what: str) -> Method:
        method = self._methods.get(what)
        if method is None:
            method = self._methods[what] = self._choice.choose(self._working(), what)()
        return method

    def _prepare(self, what: str, method: Method) -> None:
        workspace = self._working()
        if self._captured or what not in self._prepared:
            capturing = workspace.backend.capturing()
            # Earlier preparations are of other positions or in no graph; a graph's own is made again by each replay.
            if (self._captured or capturing) and not (capturing and self._capturing):
                workspace.forget()
                self._prepared -= self._prepared.copy() if capturing else {what}
            self._captured, self._capturing = bool(self._captured or capturing), bool(capturing)
        if what not in self._prepared:
            method.prepare(workspace)
            self._prepared.add(what)

    def _frugal(self) -> str:
        """Return the methods that need no scratch memory, for an error."""
        if self._workspace is None:
            return ""
        problem = self.problem()
        names = [
            f"{what} by {c.method.name!r}"
            for what, methods in METHODS.items()
            for c in (candidates.ask(m, problem) for m in methods)
            if c.reason is None and c.bytes == 0
        ]
        return f"; no scratch memory is needed to {' or '.join(names)}" if names else ""

    def _again(self, what: Any, arrays: tuple[Any, ...], call: Callable[[], Any], result: Any) -> Any:
        """Make a call; from the third call with the same arrays on, replay its recorded launches."""
        recorder = recorder_of(arrays[0], *self._tracked)
        if recorder is not None:
            return recorder.record(self, what, *arrays)
        if not self.busy.acquire(False):
            raise in_use(self)
        try:
            # Without out= each result is a new array. A capture and calls after it prepare again.
            if result is None or self._captured or self.backend is None or self.backend.capturing():
                return call()
            return self._tapes.again(self, what, arrays, call, result, self._state)
        finally:
            self.busy.release()

    def _open(self) -> None:
        if self._closed:
            raise RuntimeError("this plan is closed; make a new one.")

    def _ready(self) -> None:
        self._open()
        if self.particles is None:
            raise RuntimeError("this plan has no particles yet: call set_positions first.")
