# SPDX-License-Identifier: BSD-3-Clause
"""The methods of a plan: each is chosen at its first use, and prepared once for each configuration.

On a GPU repeated calls are played from tapes (``backends/tapes.py``), which submit kernels by the addresses of arrays.
New positions of as many particles in the same memory need the same kernels again: those that locate, prepare a method
and apply it. So a time step whose arrays stay in place is replayed as a whole. What such a call would change in the
plan is restored from the tape.
"""

from __future__ import annotations

import contextlib
from typing import Any, NamedTuple

from particlemesh.choosing import candidates
from particlemesh.choosing.candidates import MethodNotSuitable
from particlemesh.choosing.choice import KEYWORDS, METHODS, Choice
from particlemesh.methods.contract import Method, Problem
from particlemesh.particles.located import DeviceParticles
from particlemesh.particles.workspace import Workspace

MANY = 100_000  # particles
_DERIVATIVES = ", derivatives of order "
_INTEGERS = "spread, integers"


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

    def __init__(self, plan: Any, choice: Choice) -> None:
        self._plan, self.choice = plan, choice
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
        if not self.outlast_positions():
            return ()
        workspace = self._plan.workspace
        particles, memory = workspace.particles, workspace.memory
        return id(particles), particles.forms, memory.counted, memory.block_cells, self.prepared

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
