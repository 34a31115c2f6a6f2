# SPDX-License-Identifier: BSD-3-Clause
"""The contract of a method: one algorithm, in one direction.

A method is one Python file, one kernel file of the same stem beside it (none on the CPU), its name in
the folder's ``METHODS`` tuple and its citation. Everything that lists methods (tests, benchmarks,
``explain()``, the documentation's table, the automatic choice) reads that tuple.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from particlemesh.mesh import Mesh
from particlemesh.window import Window

if TYPE_CHECKING:
    from particlemesh.backends.base import Backend
    from particlemesh.plan import Plan


@dataclass(frozen=True)
class Problem:
    """What a method is asked about before anything is allocated."""

    mesh: Mesh
    window: Window
    dtype: np.dtype  # real type of the values
    components: int  # reals per particle
    applications: int
    count: int
    deterministic: bool
    backend: Backend


class Method:
    """One algorithm, in one direction. Subclasses state facts and fill in ``apply``.

    An instance belongs to one plan. ``prepare`` runs once per particle configuration and may keep what
    it builds on ``self``; ``apply`` runs once per set of values and must not synchronise. Scratch
    memory comes from ``plan.scratch(name, shape, dtype)``, which keeps it for the next call.
    """

    name: ClassVar[str]
    cite: ClassVar[str] = ""  # key into reference.bib
    backends: ClassVar[frozenset[str]]
    deterministic: ClassVar[bool] = False  # same call, same bits
    order_independent: ClassVar[bool] = False  # any permutation of the particles, same bits

    @classmethod
    def declines(cls, problem: Problem) -> str | None:
        """Return why this method cannot serve ``problem``, or None."""
        return None

    @classmethod
    def scratch_bytes(cls, problem: Problem) -> int:
        """Return the bytes of memory it takes beside positions, values and field."""
        return 0

    @classmethod
    def cost(cls, problem: Problem) -> tuple[float, float]:
        """Return the predicted seconds of ``prepare`` and of one ``apply``."""
        raise NotImplementedError

    def non_finite_values(self) -> bool:
        """Return whether unchecked values that were not finite came since the last configuration."""
        return False

    def reserve(self, plan: Plan) -> None:
        """Allocate what ``prepare`` and ``apply`` will take for ``plan.capacity`` particles."""

    def prepare(self, plan: Plan) -> None:
        """Do what depends on the positions only."""

    def apply(self, plan: Plan, *arrays: Any, **kind: Any) -> None:
        """Spread: ``apply(plan, values, field)`` adds to the field. Interpolate: ``apply(plan, field, values)``.

        Both arrays are views (``arrays.View``): ``values`` of shape (channels, particles, parts), ``field``
        (channels, nx, ny, nz, parts), both real; parts is 2 for complex numbers. Spreading takes
        ``gradient=True`` for the adjoint of the gradient: ``values`` is then (channels, particles, axes, parts).
        Interpolation takes ``gradient=View`` of that shape, and ``values`` may be None: value, gradient, or
        both in one pass.
        """
        raise NotImplementedError
