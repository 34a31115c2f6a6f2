# SPDX-License-Identifier: BSD-3-Clause
"""What the CPU's methods share: particles in the order of tiles, rows of the window, what a task costs."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from particlemesh.backends.cpu import threads_for
from particlemesh.methods.contract import Method, Problem
from particlemesh.orders.cpu.tiles import Rows, rows_of
from particlemesh.particles.stencil import Axis
from particlemesh.particles.workspace import Workspace
from particlemesh.window import Window

CALL = 5e-5  # seconds of a call, whatever it is for


_LINE = 64  # bytes
_CACHE = 32e6  # bytes of the last cache of a common processor; beyond it a line takes twice as long


def cold(problem: Problem) -> float:
    """Return how many lines of a particle's stencil no other particle has read or written just before.

    Lines beyond the last cache count twice.
    """
    met = problem.count * problem.stencil / (problem.nodes * problem.filled)  # contributions to a node
    number = problem.components * problem.dtype.itemsize
    beyond = max(0.0, 1 - _CACHE / (problem.nodes * problem.filled * number))
    lines = problem.window.support ** (problem.mesh.ndim - 1) * (1 + (problem.window.support * number - 1) / _LINE)
    return float(lines * (1 + beyond) / (1 + met / 0.6))


def matrix_seconds(problem: Problem, entry: float, add: float) -> tuple[float, float]:
    """Return the seconds of building a stored matrix, ``entry`` each, and of applying it, ``add`` each and real.

    What its rows take comes on top. Constants are of one thread, as those of tiles.
    """
    entries, used = problem.count * problem.stencil, threads_for(problem.threads, problem.count)
    built = CALL + (problem.count * 1.5e-7 + entries * entry) / used
    return built, 3 * CALL + (problem.count * 1.1e-8 + entries * problem.components * add) / used


class TileMethod(Method):
    """A method of the CPU over tiles: threads share its tasks, and results are reproducible for any number of threads.

    Particles come in the order of tiles from ``set_positions``, so there is nothing to prepare.
    """

    backends = frozenset({"cpu"})
    deterministic = True
    derivatives = 2
    # Of a particle, of a row of its stencil, of 32 bytes of that, of a line touched for the first time, of a node.
    seconds: ClassVar[tuple[float, float, float, float, float]]
    clears: ClassVar[bool] = False  # whether all of the field is cleared before

    def __init__(self) -> None:
        self._rows: dict[tuple[int, int | None], Rows] = {}

    @classmethod
    def cost(cls, problem: Problem) -> tuple[float, float]:
        a_particle, a_row, a_vector, a_line, a_node = cls.seconds
        rows = problem.window.support ** (problem.mesh.ndim - 1)
        vectors = -(-problem.window.support * problem.components * problem.dtype.itemsize // 32)
        each = a_particle + (a_row + a_vector * vectors) * rows
        each += a_line * cold(problem) * (0.3 if problem.mesh.ndim < 3 else 1.0)
        nodes = min(problem.nodes * problem.filled, 50 * problem.count) * problem.components
        cleared = cls.clears * problem.nodes * problem.components * problem.dtype.itemsize * 7e-11
        used = threads_for(problem.threads, problem.count)
        # Tiles of one and two axes are longer, and their nodes are walked faster; EPYC, one thread, 81 problems each.
        a_node *= (0.25, 0.4, 1.0)[problem.mesh.ndim - 1]
        return 0.0, CALL + (problem.count * each + a_node * nodes) / used + cleared

    def rows(self, workspace: Workspace, parts: int, along: int | None = None) -> Rows:
        """Return the window's rows for numbers of ``parts`` reals, or those of its derivative along an axis."""
        key = parts, along
        if key not in self._rows:
            self._rows[key] = _rows_of(workspace.window, workspace.axes, parts, workspace.dtype, along)
        return self._rows[key]

    def derived(self, workspace: Workspace, parts: int) -> Iterator[tuple[Rows, np.ndarray]]:
        """Yield for each axis the rows of the window's derivative along it, and its slopes in user coordinates.

        Second derivatives are gradients of these first ones, one axis after the other.
        """
        for axis in range(3 - workspace.mesh.ndim, 3):
            yield self.rows(workspace, parts, axis), workspace.jacobian[axis]


@functools.lru_cache(maxsize=64)
def _rows_of(
    window: Window, axes: tuple[Axis, Axis, Axis], parts: int, dtype: np.dtype, along: int | None = None
) -> Rows:
    return rows_of(window.table, axes, parts, dtype, along)


# ---- one axis, where particles stay in the caller's order (orders/cpu/particles.py) ---------------------------------

# Seconds, EPYC, one thread: 81 problems of 10^4 to 10^6 particles, 10^3 to 10^6 nodes, supports 2 to 8.
_VECTOR = 0.25e-9  # of 32 bytes of a polynomial's terms for all nodes
_FAR = 1.5e-9  # of a stencil that is in no cache of the core
_CORE_CACHE = 1e6  # bytes of that
_NUMBER = 2e-11  # per byte of a field that is cleared


def seconds_on_line(problem: Problem, particle: float, copies: int = 0) -> tuple[float, float]:
    """Return the seconds that threads share, and those of one thread, with so many fields that are added in the end."""
    numbers = problem.components * problem.dtype.itemsize
    vectors = -(-problem.window.support * numbers // 32) * problem.window.table.shape[1]
    beyond = max(0.0, 1 - _CORE_CACHE / (problem.nodes * numbers))
    cleared = problem.nodes * numbers * _NUMBER
    return problem.count * (particle + _VECTOR * vectors + _FAR * beyond), cleared * (1 + 2 * copies)
