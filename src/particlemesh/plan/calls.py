# SPDX-License-Identifier: BSD-3-Clause
"""What calls of a plan work with: room for its particles, its methods, and the way of values through them.

On a GPU repeated calls are played from tapes (``backends/tapes.py``), which submit kernels by the addresses of arrays.
New positions of as many particles in the same memory need the same kernels again: those that locate, prepare a method
and apply it. So a time step whose arrays stay in place is replayed as a whole. What such a call would change in the
plan is restored from the tape.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from particlemesh.arrays import operands
from particlemesh.arrays.kinds import Kind
from particlemesh.arrays.positions import check_size
from particlemesh.backends.base import Backend
from particlemesh.backends.tapes import Tapes
from particlemesh.choosing import candidates
from particlemesh.choosing.candidates import MethodNotSuitable
from particlemesh.choosing.choice import KEYWORDS, METHODS, Choice
from particlemesh.mesh import Mesh
from particlemesh.methods.contract import Method, Problem
from particlemesh.orders import sorted_particles
from particlemesh.orders.cpu.particles import host_kind
from particlemesh.particles.located import DeviceParticles, Status, packable
from particlemesh.particles.systems import Boxes
from particlemesh.particles.workspace import Workspace

MANY = 100_000  # particles
_DERIVATIVES = ", derivatives of order "
_INTEGERS = "spread, integers"
INPUTS = "values", "vectors", "tensors"  # by the order of the derivative
_POWERS = "", "", "**2"
_RESULTS = "values", "gradient", "hessian"


# ---- positions ------------------------------------------------------------------------------------------------------


class Tracked(tuple[Any, ...]):
    """Positions that derivatives are taken by; another object for each configuration."""

    __slots__ = ()


class Located(NamedTuple):
    """Particles that are located, before the plan takes them."""

    workspace: Workspace
    kind: Kind
    packed: bool
    counting: Any  # the blocks by which they are counted
    status: Callable[[], Status] | None  # reads what is wrong with them, if they are checked
    boxes: Boxes | None
    stays: bool  # whether tapes stay valid


class Rooms:
    """Where the particles of a plan are located: on a GPU beside the present ones, which bad positions leave intact.

    Attributes
    ----------
    spare : DeviceParticles or None
        Memory of earlier particles.
    """

    def __init__(self, mesh: Mesh, ordered: bool) -> None:
        self._mesh, self._ordered = mesh, ordered
        self.spare: DeviceParticles | None = None

    def room(self, before: Workspace, count: int, check: bool) -> Any:
        """Return memory to locate ``count`` particles in; with ``check`` those of ``before`` stay intact."""
        backend, held, kind = before.backend, before.particles, self._kind(before.backend)
        if kind is not DeviceParticles:
            return kind(backend, before.dtype, count, held)
        if not check and held is not None and held.rows >= count:
            return held
        if check and self.spare is not None and self.spare.rows >= count:
            return self.spare
        return DeviceParticles(backend, before.dtype, max(count, before.capacity))

    def larger(self, workspace: Workspace, count: int) -> Any:
        """Return memory for ``count`` particles, in which the present ones are, and have as much to spare."""
        backend, kind = workspace.backend, self._kind(workspace.backend)
        room = kind(backend, workspace.dtype, count)
        self.spare = DeviceParticles(backend, workspace.dtype, count) if kind is DeviceParticles else None
        if workspace.particles is not None:
            room.take_over(backend, workspace.particles)
        return room

    def reserve(self, workspace: Workspace, *, packed: bool) -> None:
        """Allocate all that particles of this number may need, packed or not."""
        for held in (workspace.particles, self.spare):
            if isinstance(held, DeviceParticles):
                held.make_room(packed=packed and packable(workspace.axes, workspace.dtype))

    def leave(self, before: Any, room: Any) -> None:
        """Keep the memory of the particles before, which the plan has left for ``room``."""
        if room is not before and isinstance(before, DeviceParticles):
            self.spare = before

    def _kind(self, backend: Backend) -> Any:
        if self._ordered:
            return sorted_particles.kind_on(backend)
        return DeviceParticles if backend.name != "cpu" else host_kind(self._mesh)


# ---- methods --------------------------------------------------------------------------------------------------------


class State(NamedTuple):
    """What a plan knows of its particles beside memory on the device."""

    prepared: frozenset[str]
    orders: dict[Any, Any]
    counted: Any
    block_cells: Any
    forms: tuple[bool, bool]


class PlanMethods:
    """The methods of one plan, and the plan's state as tapes see it (``backends.tapes.State``).

    Attributes
    ----------
    choice : Choice
    known : dict
        Methods by use: a direction, or a direction with what its own method lacks.
    prepared : frozenset of str
        Uses that are prepared for the present particles.
    captured : bool
        Whether set_positions or a preparation was: replays change it without notice.
    capturing : bool
        Whether the last call was captured.
    """

    def __init__(self, plan: Any, choice: Choice, tapes: Tapes) -> None:
        self._plan, self.choice, self._tapes = plan, choice, tapes
        named = [m for what, name in choice.names.items() for m in METHODS[what] if m.name == name]
        self._are_named, self._named_read_stencils = bool(named), any(m.reads_stencils for m in named)
        self.known: dict[str, Method] = {}
        self.prepared: frozenset[str] = frozenset()
        self.captured = self.capturing = False

    def problem(self) -> Problem:
        """Return the problem that methods are chosen for."""
        return self.choice.problem(self._workspace())

    def of(self, direction: str) -> Method:
        """Return the method of a direction."""
        method = self.known.get(direction)
        if method is None:
            method = self.known[direction] = self.choice.choose(self._workspace(), direction)()
        return method

    def ready(self, direction: str, order: int) -> Method:
        """Return the prepared method for derivatives of an order: the direction's, or one that has them."""
        use, method = direction, self.of(direction)
        if order > method.derivatives:
            use = f"{direction}{_DERIVATIVES}{order}"
            if use not in self.known:
                self.known[use] = self.choice.choose(self._workspace(), direction, order)()
            method = self.known[use]
        self.prepare(use, method)
        return method

    def ready_for_integers(self) -> Method:
        """Return the prepared method that sums in integers: the plan's own if that does."""
        use = "spread"
        if not self.of(use).integers:
            use = _INTEGERS
            if use not in self.known:
                able = tuple(m for m in METHODS["spread"] if m.integers)
                self.known[use] = candidates.choose(able, self.problem(), "auto")()
        self.prepare(use, self.known[use])
        return self.known[use]

    def prepare(self, use: str, method: Method) -> None:
        """Prepare a method, unless it is prepared."""
        workspace = self._workspace()
        if self.captured or use not in self.prepared:
            capturing = workspace.backend.capturing()
            # Earlier preparations are of other positions or in no graph; a graph's own is made again by each replay.
            if (self.captured or capturing) and not (capturing and self.capturing):
                workspace.forget()
                self.prepared = frozenset() if capturing else self.prepared - {use}
            self.captured, self.capturing = bool(self.captured or capturing), bool(capturing)
        if use not in self.prepared:
            if method.prepares:
                method.prepare(workspace)
            self.prepared |= {use}

    def non_finite_values(self) -> bool:
        """Return whether any method has read values of these particles that were not finite."""
        # A method that is not prepared has read no values of these particles; its record is of earlier ones.
        return any(method.non_finite_values() for use, method in self.known.items() if use in self.prepared)

    def pack(self, count: int) -> bool:
        """Return whether ``count`` particles are stored packed: if all known methods read orders only."""
        for method in self.known.values():
            if method.reads_stencils:
                return False
        # The methods that are fastest for many particles read orders.
        return not self._named_read_stencils and (self._are_named or bool(self.known) or count >= MANY)

    def without_scratch(self) -> str:
        """Return the methods that need no scratch memory, for an error."""
        if self._plan.workspace is None:
            return ""
        problem = self.problem()
        names = [
            f"{what} by {c.method.name!r}"
            for what, methods in METHODS.items()
            for c in (candidates.ask(m, problem) for m in methods)
            if c.reason is None and c.bytes == 0
        ]
        return f"; no scratch memory is needed to {' or '.join(names)}" if names else ""

    def explain(self) -> str:
        """Return a table of methods and their times, and what is said of second derivatives."""
        chosen: dict[str, type[Method] | None] = dict.fromkeys(METHODS)
        for direction in METHODS:
            with contextlib.suppress(MethodNotSuitable):  # the table has the reason
                chosen[direction] = type(self.of(direction))
        table = self.choice.explanation(self._workspace(), chosen)
        notes = {method.name: method.note(self._workspace()) for method in self.known.values()}
        table += "".join(f"\n{name} {note}" for name, note in notes.items() if note)
        return table + "".join(self._explain_second(direction, method) for direction, method in chosen.items())

    def _explain_second(self, direction: str, method: type[Method] | None) -> str:
        """Return a line about the method of second derivatives, if it is not the direction's own."""
        if method is None or method.derivatives > 1:
            return ""
        held = self.known.get(f"{direction}{_DERIVATIVES}2")
        try:
            name = held.name if held else self.choice.choose(self._workspace(), direction, 2).name
        except MethodNotSuitable as error:
            return f"\nno second derivatives to {direction}: {error}"
        return f"\nsecond derivatives: {direction} by {name!r}"

    def __str__(self) -> str:
        names = {KEYWORDS[what]: name for what, name in self.choice.names.items()}
        names |= {KEYWORDS[what]: self.known[what].name for what in METHODS if what in self.known}
        return ", ".join(f"{keyword} {name!r}" for keyword, name in names.items())

    def _workspace(self) -> Workspace:
        workspace: Workspace | None = self._plan.workspace
        assert workspace is not None
        return workspace

    # ---- the state of the plan as tapes see it ------------------------------------------------------------

    def outlast_positions(self) -> bool:
        """Return whether tapes stay valid when positions change: nothing that depends on them is kept elsewhere."""
        workspace = self._plan.workspace
        if self.captured or workspace is None or type(workspace.particles) is not DeviceParticles:
            return False
        for method in self.known.values():  # a generator would take a call for each
            if not method.prepares_orders:
                return False
        return self._plan.systems is None

    def key(self) -> tuple[Any, ...]:
        """Return what decides which kernels the next call submits, for the same method and arrays."""
        cleared = self._tapes.cleared
        if not self.outlast_positions():
            return (cleared,)
        workspace = self._plan.workspace
        particles, memory = workspace.particles, workspace.memory
        return cleared, id(particles), particles.forms, memory.counted, memory.block_cells, self.prepared

    def now(self) -> State | None:
        """Return the state, for a tape; None if tapes end with these positions."""
        if not self.outlast_positions():
            return None
        workspace = self._workspace()
        memory, orders = workspace.memory, workspace.orders.copy()
        return State(self.prepared, orders, memory.counted, memory.block_cells, workspace.particles.forms)

    def restore(self, state: State | None) -> None:
        """Return to a state."""
        if state is None:
            return
        workspace = self._workspace()
        workspace.orders.update(state.orders)
        workspace.memory.counted, workspace.memory.block_cells = state.counted, state.block_cells
        workspace.particles.forms = state.forms
        self.prepared |= state.prepared


# ---- values ---------------------------------------------------------------------------------------------------------


def spread(plan: Any, order: int, given: Any, out: Any, accumulate: bool) -> Any:
    """Take values, apply a method, and return the field."""
    if accumulate and out is None:
        raise ValueError("accumulate=True adds to out: give out=.")
    workspace, upload, mesh = plan.workspace, plan.uploads, plan.mesh
    backend, core = workspace.backend, (workspace.count, *(mesh.ndim,) * order)
    operand = operands.take(given, core, len(core), workspace.dtype, backend, INPUTS[order], upload=upload)
    with operand.kind.scope(given), backend.scope(operand.native, out):
        plan.follow()
        result = operands.give(
            out, operand, operand.batch + plan.field_shape, mesh.ndim, 3, backend, accumulate=accumulate, upload=upload
        )
        if order:
            check_slopes(plan, order)
        method = plan.methods.ready("spread", order)
        some = bool(workspace.count and operand.view.layout.channels)
        if not accumulate and not (some and method.fills and plan.stack is None):
            backend.clear(result.native)
        if some:
            values, field = operand.view, result.view
            if plan.boxes is not None and order:
                values = plan.boxes.to_mesh(workspace, values, _turns(plan))
            fresh = not accumulate
            if plan.stack is not None:
                field, fresh = plan.stack.field(workspace, result.view, operand.native.dtype), True
                if not method.fills:
                    backend.clear(field.array)
            method.apply(workspace, values, field, gradient=order == 1, hessian=order == 2, fresh=fresh)
            if plan.stack is not None:
                plan.stack.fold(workspace, field, result.view)
        backend.mark(operand.native, result.native)
        return result.finish()


def interpolate(plan: Any, orders: Sequence[int], field: Any, outs: tuple[Any, ...]) -> Any:
    """Take a field, apply a method, and return values of one order, or a tuple."""
    workspace, upload, mesh = plan.workspace, plan.uploads, plan.mesh
    backend, shape = workspace.backend, plan.field_shape
    operand = operands.take(
        field, shape, 3, workspace.dtype, backend, "field", upload=upload, channels=len(shape) - mesh.ndim
    )
    with operand.kind.scope(field), backend.scope(operand.native, *outs):
        plan.follow()
        results = {}
        for order, out in zip(orders, outs, strict=True):
            core = (workspace.count, *(mesh.ndim,) * order)
            results[_RESULTS[order]] = operands.give(
                out, operand, operand.batch + core, len(core), len(core), backend, accumulate=False, upload=upload
            )
        if orders[-1]:
            check_slopes(plan, orders[-1])
        method = plan.methods.ready("interpolate", orders[-1])
        if workspace.count and operand.view.layout.channels:
            views, nodes = {name: r.view for name, r in results.items()}, operand.view
            if plan.stack is not None:
                nodes = plan.stack.field(workspace, operand.view, operand.native.dtype)
                plan.stack.fill(workspace, operand.view, nodes)
            method.apply(workspace, nodes, views.get("values"), **{n: v for n, v in views.items() if n != "values"})
            if plan.boxes is not None:
                for name in views.keys() - {"values"}:
                    plan.boxes.from_mesh(workspace, views[name], _turns(plan))
        backend.mark(operand.native, *(result.native for result in results.values()))
        finished = tuple(result.finish() for result in results.values())
        return finished if len(finished) > 1 else finished[0]


def check_slopes(plan: Any, order: int) -> None:
    """Check that the plan's type holds derivatives of an order, per power of the user's length."""
    norms = np.linalg.norm(plan.mesh.box.matrix, axis=1)
    shortest, longest = (norms, norms) if plan.boxes is None else plan.boxes.lengths
    intervals = np.array(plan.mesh.intervals)
    for size in ((intervals / longest).min(), (intervals / shortest).max()):
        check_size(size**order, plan.dtype, f"derivatives of a field of size 1, per length{_POWERS[order]},")


def _turns(plan: Any) -> Any:
    """Return the caller's index of the particle of each value, or None if they are in the caller's order."""
    return plan.particles.order if plan.workspace.sorted else None
