# SPDX-License-Identifier: BSD-3-Clause
"""Positions of which a plan on a part of a mesh takes its own, where they are; for plans over many ranks."""

from __future__ import annotations

from typing import Any

from particlemesh.arrays.positions import coordinates
from particlemesh.particles import strays
from particlemesh.plan import Plan


class Residents:
    """Located positions that a plan has not taken yet: until :meth:`take` it keeps the particles that it has.

    Particles of other parts get zero weight. A GPU lists them in the same pass; nothing else is done about them.

    Parameters
    ----------
    plan : Plan
        On a part of a mesh; its own memory holds what is located. Make no other call of it in between.
    positions : array (N, d) or tuple of d arrays (N,)
    """

    def __init__(self, plan: Plan, positions: Any) -> None:
        self._plan = plan
        kind, backend, x = coordinates(positions, plan.mesh.ndim, plan.backend, upload=plan._named is not None)
        self.backend, self._user, self._arrays = backend, x.user, x.arrays
        self._kind = kind
        with kind.scope(x.user), backend.scope(*x.arrays):
            room = None if backend.name == "cpu" else strays.room(backend, x.count, plan._strays)
            plan._strays = self._room = room
            self._located = plan._located(kind, backend, x, None, None, True, room)

    def strays(self) -> tuple[int, Any] | None:
        """Return how many particles are bad or elsewhere, and their entries; None on the CPU, which lists none.

        Entries are uint64 (4 n,): for each its index, and the first node of its stencil along three axes, missing ones
        first. Nodes are int64, counted as the part's, and -2**31 for bad particles. Without room there are None.
        """
        if self._room is None:
            return None
        with self._kind.scope(self._user), self.backend.scope(*self._arrays):
            return strays.listed(self.backend, self._room)

    def memory(self) -> Any:
        """Return the memory of the list, uint64, or None: four numbers of which the first counts, then the entries."""
        return self._room

    def take(self, check: bool) -> None:
        """Take these particles; with ``check`` their arrangement may be sampled to choose methods, which waits."""
        with self._kind.scope(self._user), self.backend.scope(*self._arrays):
            self._plan._take(self._located, check)
