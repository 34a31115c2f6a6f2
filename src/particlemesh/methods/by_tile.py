# SPDX-License-Identifier: BSD-3-Clause
"""What the CPU's methods share: particles in the order of tiles, rows of the window, what a task costs."""

from __future__ import annotations

import functools
from typing import ClassVar

import numpy as np

from particlemesh.backends.cpu import PARTICLES_PER_THREAD, available_threads
from particlemesh.methods.contract import Method, Problem
from particlemesh.orders.cpu.rows import Rows, rows_of
from particlemesh.particles.stencil import Axis
from particlemesh.particles.workspace import Workspace
from particlemesh.window import Window


def cold(problem: Problem) -> float:
    """Return how many rows of a particle's stencil nobody has read or written before it."""
    met = problem.count * problem.stencil / (problem.nodes * problem.filled)  # contributions to a node
    return float(problem.window.support ** (problem.mesh.ndim - 1) / (1 + met) ** 2)


class TileMethod(Method):
    """A method of the CPU over tiles: threads share its tasks, and the bits do not depend on their number.

    Particles come in the order of tiles from ``set_positions``, so there is nothing to prepare.
    """

    backends = frozenset({"cpu"})
    deterministic = True
    seconds: ClassVar[tuple[float, float, float]]  # of a particle, of 64 bytes of a stencil, of a node
    clears: ClassVar[bool] = False  # whether all of the field is cleared before

    def __init__(self) -> None:
        self._rows: dict[int, Rows] = {}

    @classmethod
    def cost(cls, problem: Problem) -> tuple[float, float]:
        a_particle, a_vector, a_node = cls.seconds
        used = max(1, min(available_threads(), problem.count // PARTICLES_PER_THREAD))
        vectors = -(-problem.window.support * problem.components * problem.dtype.itemsize // 64)
        rows = problem.window.support ** (problem.mesh.ndim - 1)
        each = a_particle + a_vector * vectors * rows + cold(problem) * 1.2e-7
        nodes = min(problem.nodes * problem.filled, 50 * problem.count) * problem.components
        cleared = cls.clears * problem.nodes * problem.components * problem.dtype.itemsize * 1e-10
        return 0.0, 10e-6 + (problem.count * each + a_node * nodes) / used + cleared

    def rows(self, workspace: Workspace, parts: int) -> Rows:
        """Return the window's rows for numbers of ``parts`` reals."""
        if parts not in self._rows:
            self._rows[parts] = _rows_of(workspace.window, workspace.axes, parts, workspace.dtype)
        return self._rows[parts]


@functools.lru_cache(maxsize=64)
def _rows_of(window: Window, axes: tuple[Axis, Axis, Axis], parts: int, dtype: np.dtype) -> Rows:
    return rows_of(window.table, axes, parts, dtype)
