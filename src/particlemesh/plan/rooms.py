# SPDX-License-Identifier: BSD-3-Clause
"""Located particles of a plan, and memory for them."""

from __future__ import annotations

from typing import Any, NamedTuple

from particlemesh.arrays.kinds import Kind
from particlemesh.backends.base import Backend
from particlemesh.mesh import Mesh
from particlemesh.orders import sorted_particles
from particlemesh.orders.cpu.particles import host_kind
from particlemesh.particles.located import DeviceParticles, packable
from particlemesh.particles.systems import Boxes
from particlemesh.particles.workspace import Workspace


class Tracked(tuple[Any, ...]):
    """Positions that derivatives are taken by; another object for each configuration."""

    __slots__ = ()


class Located(NamedTuple):
    """Particles that are located, before the plan takes them."""

    workspace: Workspace
    kind: Kind
    packed: bool
    counting: Any  # the blocks by which they are counted
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
