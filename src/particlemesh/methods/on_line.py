# SPDX-License-Identifier: BSD-3-Clause
"""What the CPU's methods take on one axis, where particles stay in the caller's order (``orders/cpu/particles.py``)."""

from __future__ import annotations

from particlemesh.methods.contract import Problem

# Seconds, EPYC, one thread: 81 problems of 10^4 to 10^6 particles, 10^3 to 10^6 nodes, supports 2 to 8.
_VECTOR = 0.25e-9  # of 32 bytes of a polynomial's terms for all nodes
_FAR = 1.5e-9  # of a stencil that is in no cache of the core
_CACHE = 1e6  # bytes of that
_NUMBER = 2e-11  # per byte of a field that is cleared


def seconds_on_line(problem: Problem, particle: float, copies: int = 0) -> tuple[float, float]:
    """Return the seconds that threads share, and those of one thread, with so many fields that are added in the end."""
    numbers = problem.components * problem.dtype.itemsize
    vectors = -(-problem.window.support * numbers // 32) * problem.window.table.shape[1]
    beyond = max(0.0, 1 - _CACHE / (problem.nodes * numbers))
    cleared = problem.nodes * numbers * _NUMBER
    return problem.count * (particle + _VECTOR * vectors + _FAR * beyond), cleared * (1 + 2 * copies)
