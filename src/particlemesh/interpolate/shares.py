# SPDX-License-Identifier: BSD-3-Clause
"""How lanes share a particle's stencil (``shares.h``), and how long reading stencils takes."""

from __future__ import annotations

from dataclasses import dataclass

from particlemesh.methods.contract import Problem
from particlemesh.particles.stencil import Axis


@dataclass(frozen=True)
class Lanes:
    """How the lanes of a warp share a particle's stencil, as stencil.h divides it.

    Attributes
    ----------
    z, y : int
        Lanes along z, and rows that lanes read at a time.
    reals : int
        What one lane reads at a time.
    each, rows : int
        How many reads of a row a lane has, and rows of a level.
    in_turn : bool
        Whether rows are dealt to lanes in turn, through all levels.
    """

    z: int
    y: int
    reals: int
    each: int
    rows: int
    in_turn: bool = False

    @classmethod
    def of(
        cls, axes: tuple[Axis, Axis, Axis], parts: int, lanes: int, reals: int, most: int = 8, *, turns: bool = False
    ) -> Lanes:
        """Return how ``lanes``, ``most`` of them along z, share a stencil of nodes with ``parts`` reals.

        With ``turns`` rows may be dealt in turn.
        """
        row, slack = axes[2].support * parts, max(0, reals - parts)
        slots = -(-(row + slack) // reals)
        z = min(8 if slots > 4 else 4 if slots > 2 else slots, lanes, most)
        y = 1 if axes[1].support == 1 else lanes // z
        # Nodes of 16 bytes in rows of 5 or 6: of eight lanes along z some would read none.
        if turns and lanes == 8 and z == 8 and slots in (5, 6) and axes[1].support == slots and reals == parts:
            return cls(2, 4, reals, -(-slots // 2), -(-axes[1].support // 4), in_turn=True)
        return cls(z, y, reals, -(-slots // z), -(-axes[1].support // y))

    @property
    def all(self) -> int:
        """Lanes of a particle."""
        return self.z * self.y

    @property
    def span(self) -> int:
        """Reals that lanes read of a row."""
        return self.z * self.each * self.reals

    def reads(self, axes: tuple[Axis, Axis, Axis]) -> int:
        """Return the reals that lanes read of a particle's stencil, with those that are not the stencil's."""
        x, y = axes[0].support, axes[1].support
        rows = -(-x * y // self.y) * self.y if self.in_turn else x * self.rows * self.y
        return rows * self.span

    def beside(self, size: int, threads: int) -> int:
        """Return the bytes of local memory for the particles of a group, with reals of ``size`` bytes."""
        return 0 if self.all == 1 else threads * (4 * size + 4)


def reading(
    problem: Problem, row: float, byte: float, far: float, *, shared: bool = False, latency: float = 1.9e-7
) -> float:
    """Return the seconds in which all stencils are read.

    Each row of a stencil takes ``row`` seconds, each of its bytes ``byte``. Memory beyond the second-level cache is
    read at ``far`` bytes per second, with 32 bytes more per row than the row has. If neighbours have ``shared`` rows,
    it is read once at most. The ``latency`` of the first stencil's rows is added.
    """
    size = problem.components * problem.dtype.itemsize
    rows, width = problem.stencil / problem.window.support, problem.window.support * size
    field = problem.nodes * problem.filled * size
    fetched = problem.count * rows * (32 + width)
    missed = problem.beyond_cache * (min(fetched, field) if shared else fetched)
    return latency * rows + problem.count * rows * (row + byte * width) + missed / far
