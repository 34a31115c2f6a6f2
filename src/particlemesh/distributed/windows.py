# SPDX-License-Identifier: BSD-3-Clause
"""The meshes of local plans: parts with ghosts for ghost nodes, and parts alone for ghost particles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from particlemesh.distributed.domain import Domain, Part
from particlemesh.distributed.staging import module_of
from particlemesh.distributed.world import World
from particlemesh.mesh import Mesh


def reach_of(support: int, ndim: int) -> list[tuple[int, int]]:
    """Return how many nodes a stencil has below and above its particle's cell, per axis."""
    return [((support - 1) // 2, support // 2)] * ndim


def mesh_of(mesh: Mesh, part: Part, start: tuple[int, ...], shape: tuple[int, ...]) -> Mesh | None:
    """Return the mesh of a window: that of a part and its ghosts, or None if the part is empty."""
    if not all(shape):
        return None
    first, stop, ghosts = [], [], []
    for axis, nodes in enumerate(mesh.shape):
        whole = start[axis] == 0 and shape[axis] == nodes
        first.append(0 if whole else part.lower[axis])
        stop.append(nodes if whole else part.upper[axis])
        ghosts.append((first[-1] - start[axis], start[axis] + shape[axis] - stop[-1]))
    return mesh.part(first, stop, ghosts)


class Crops:
    """Windows of ghost particles: parts without ghosts.

    A particle may reach a part from both sides of a periodic axis, if that has few nodes beyond the part. Then the
    window has the whole axis, and a particle is in it once. Nothing is exchanged. Same members as :class:`Halo`.
    """

    def __init__(self, domain: Domain, world: World, support: int) -> None:
        self._parts = domain.parts(world.rank)
        self.shapes, self.starts = [], []
        for part in self._parts:
            shape, start = [], []
            for axis, nodes in enumerate(part.shape):
                whole = domain.mesh.periodic[axis] and nodes and nodes + support - 1 > domain.mesh.shape[axis]
                shape.append(domain.mesh.shape[axis] if whole else nodes)
                start.append(0 if whole else part.lower[axis])
            self.shapes.append(tuple(shape) if all(shape) else (0,) * len(shape))
            self.starts.append(tuple(start))
        self.nbytes = 0

    def nodes(self) -> int:
        """Return the number of nodes that are exchanged."""
        return 0

    def fill(self, fields: list[Any], batch: tuple[int, ...]) -> Callable[[], list[Any]]:
        """As :meth:`Halo.fill`, but nodes of other parts are zero."""
        windows = []
        for field, part, start, shape in zip(fields, self._parts, self.starts, self.shapes, strict=True):
            window = field
            if shape != part.shape:
                window = module_of(field).zeros((*batch, *shape), field.dtype)
                window[(..., *_inside(part, start))] = field
            windows.append(window)
        return lambda: windows

    def fold(self, windows: list[Any], batch: tuple[int, ...]) -> Callable[[], list[Any]]:
        """As :meth:`Halo.fold`, but nodes of other parts are left out."""
        fields = [
            module_of(window).ascontiguousarray(window[(..., *_inside(part, start))])
            for window, part, start in zip(windows, self._parts, self.starts, strict=True)
        ]
        return lambda: fields


def _inside(part: Part, start: tuple[int, ...]) -> tuple[slice, ...]:
    return tuple(slice(a - b, a - b + n) for a, b, n in zip(part.lower, start, part.shape, strict=True))


def copies(domain: Domain, cells: tuple[Any, ...], parts: Any, support: int) -> tuple[Any, Any]:
    """Return every part that each particle's stencil reaches, its own among them: two arrays, of parts and particles.

    Parameters
    ----------
    cells : d int arrays (N,)
    parts : (N,) int array
        The part that owns each particle.
    """
    xp, mesh = module_of(parts), domain.mesh
    before, _ = reach = reach_of(support, mesh.ndim)[0]
    first = [cell.astype(np.int64) - before for cell in cells]
    rows, goals = [], []
    for part in xp.unique(parts).tolist():
        owned = xp.flatnonzero(parts == part)
        for goal in domain.neighbours(part, [reach] * mesh.ndim):
            if goal == part:
                some = owned
            else:
                reached, box = xp.ones(owned.shape[0], bool), domain.parts()[goal]
                for axis in range(mesh.ndim):
                    reached &= _reaches(first[axis][owned], support, box.lower[axis], box.upper[axis], mesh, axis)
                some = owned[reached]
            rows.append(some)
            goals.append(xp.full(some.shape[0], goal, np.int64))
    none = xp.empty(0, np.int64)
    return xp.concatenate([none, *goals]), xp.concatenate([none, *rows])


def _reaches(first: Any, support: int, lower: int, upper: int, mesh: Mesh, axis: int) -> Any:
    """Return whether stencils from ``first`` on have a node from ``lower`` up to ``upper``."""
    if not mesh.periodic[axis]:
        return (first < upper) & (first + support > lower)
    nodes = mesh.shape[axis]
    return ((first - lower) % nodes < upper - lower) | ((lower - first) % nodes < support)
