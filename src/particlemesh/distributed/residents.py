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
    memory : array, optional
        That of earlier positions, for the list.

    Attributes
    ----------
    memory : array or None
        Memory of the list, uint64: four numbers of which the first counts, then the entries.
    """

    def __init__(self, plan: Plan, positions: Any, memory: Any = None) -> None:
        self._plan = plan
        kind, backend, x = coordinates(positions, plan.mesh.ndim, plan.backend, upload=plan.uploads)
        self.backend, self._kind, self._x = backend, kind, x
        with kind.scope(x.user), backend.scope(*x.arrays):
            self.memory = None if backend.name == "cpu" else strays.room(backend, x.count, memory)
            self._located = plan.locate(kind, backend, x, None, None, check=True, strays=self.memory)

    def strays(self) -> tuple[int, Any] | None:
        """Return how many particles are bad or elsewhere, and their entries; None on the CPU, which lists none.

        Entries are uint64 (4 n,): for each its index, and the first node of its stencil along three axes, missing ones
        first. Nodes are int64, counted as the part's, and -2**31 for bad particles. Without room there are None.
        """
        if self.memory is None:
            return None
        with self._kind.scope(self._x.user), self.backend.scope(*self._x.arrays):
            return strays.listed(self.backend, self.memory)

    def take(self, check: bool) -> None:
        """Take these particles; with ``check`` their arrangement may be sampled to choose methods, which waits."""
        with self._kind.scope(self._x.user), self.backend.scope(*self._x.arrays):
            self._plan.take(self._located, self._x, check=check)
