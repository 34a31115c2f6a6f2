# SPDX-License-Identifier: BSD-3-Clause
"""Repeated calls of a plan on a GPU: the tapes of its calls stay valid when positions change.

A tape submits kernels by the addresses of arrays. New positions of as many particles in the same memory need the same
kernels again: those that locate, prepare a method and apply it. So a time step whose
arrays stay in place is replayed as a whole. What such a call would change in the plan is restored from the tape.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from particlemesh import checks
from particlemesh.arrays.positions import Coordinates
from particlemesh.particles.located import DeviceParticles
from particlemesh.particles.systems import Boxes
from particlemesh.particles.workspace import Workspace


class Located(NamedTuple):
    """What :meth:`particlemesh.Plan.set_positions` needs to know of positions that are located from a tape."""

    kind: Any
    packed: bool
    counting: Any


class Placed(NamedTuple):
    """Particles that are located, before the plan takes them."""

    located: Located
    token: Any
    x: Coordinates
    boxes: Boxes | None
    bare: Workspace
    room: Any
    workspace: Workspace
    stays: bool  # whether tapes stay valid


class Prepared(NamedTuple):
    """What a plan knows of its particles beside memory on the device."""

    prepared: frozenset[str]  # directions
    orders: dict[Any, Any]
    counted: Any
    block_cells: Any
    forms: tuple[bool, bool]


class PlanState:
    """The state of a plan as tapes see it (``backends.tapes.State``)."""

    def __init__(self, plan: Any) -> None:
        self._plan = plan

    def key(self) -> tuple[Any, ...]:
        """Return what decides which kernels the next call submits, for the same method and arrays."""
        if not repeatable(self._plan):
            return ()
        workspace = self._plan._working()
        particles, memory = workspace.particles, workspace.memory
        return id(particles), particles.forms, memory.counted, memory.block_cells, frozenset(self._plan._prepared)

    def now(self) -> Prepared | None:
        if not repeatable(self._plan):
            return None
        workspace = self._plan._working()
        memory, orders = workspace.memory, workspace.orders.copy()
        forms = workspace.particles.forms
        return Prepared(frozenset(self._plan._prepared), orders, memory.counted, memory.block_cells, forms)

    def restore(self, state: Prepared | None) -> None:
        if state is None:
            return
        workspace = self._plan._working()
        workspace.orders.update(state.orders)
        workspace.memory.counted, workspace.memory.block_cells = state.counted, state.block_cells
        workspace.particles.forms = state.forms
        self._plan._prepared |= state.prepared


def repeatable(plan: Any) -> bool:
    """Return whether tapes of a plan outlast its positions: nothing that depends on them is kept elsewhere."""
    workspace = plan.workspace
    return bool(
        workspace is not None and type(workspace.particles) is DeviceParticles and plan._systems is None
        and not plan._captured and plan._methods and all(method.prepares_orders for method in plan._methods.values())
    )  # fmt: skip


def stay(plan: Any, room: Any, count: int) -> bool:
    """Return whether tapes stay valid for ``count`` particles in ``room``.

    They are as many as before, in memory that the plan had before.
    """
    workspace = plan.workspace
    known = workspace is not None and (room is workspace.particles or room is plan._spare)
    return known and plan.count == count and repeatable(plan)


def _columns(positions: Any) -> tuple[Any, ...]:
    return positions if isinstance(positions, tuple) else (positions,)


def _what(plan: Any, room: Any) -> tuple[Any, ...]:
    """Return what decides how as many positions as before are located in ``room``."""
    return "positions", id(room), plan._working().memory.block_cells, plan._packs(plan.count)


def again_in(
    plan: Any, room: Any, positions: Any, x: Coordinates, locate: Callable[[], Located]
) -> Located:  # fmt: skip
    """Locate positions in ``room``, on tape from the second time on."""
    columns = _columns(positions)
    # Kernels on a tape read the caller's memory: it has no converted copies.
    read = all(any(array is column for column in columns) for array in x.arrays)
    if not read or plan.backend.capturing():
        return locate()
    located: Located = plan._tapes.again(plan, _what(plan, room), columns, locate)
    return located


def set_again(plan: Any, positions: Any, *, check: bool) -> bool:
    """Set positions that lie where earlier ones did, from a tape; return whether there is one."""
    bare = plan.workspace
    room = None if bare is None else plan._spare if check else bare.particles
    if bare is None or room is None or room.rows < bare.count or not repeatable(plan):
        return False
    backend, columns = bare.backend, _columns(positions)
    entry = plan._tapes.find(plan, _what(plan, room), columns)
    if not entry or backend.capturing():
        return False
    tape, located = entry
    with backend.scope(*columns):
        token = backend.follow(plan._token)
        tape.play(token, *columns)
        backend.mark(*columns)
        workspace = bare.over(room, bare.count)
        workspace.memory.counted = None
        room.took(bare.count, workspace.axes, packed=located.packed)
        if check:
            good(plan, room.read_status(backend), positions)
        plan._capturing = False
        plan._adopt(workspace, located, token, None, bare)
    return True


def good(plan: Any, status: Any, positions: Any) -> None:
    """Raise the error of bad positions."""
    if status.not_finite or status.outside:
        raise checks.bad_positions(status, positions, plan.mesh, systems=plan.systems)
