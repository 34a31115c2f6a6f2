# SPDX-License-Identifier: BSD-3-Clause
"""How particles get into cells: one file for each builder, its kernel beside it, its name in ``METHODS``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from particlemesh.backends.memory import check_room
from particlemesh.choosing import candidates
from particlemesh.grid.builders.builder import Builder, Built
from particlemesh.grid.builders.fixed import Fixed
from particlemesh.grid.builders.job import Problem
from particlemesh.grid.builders.linked_list_loose import LinkedListLoose
from particlemesh.grid.builders.linked_list_packed import LinkedListPacked
from particlemesh.grid.builders.linked_list_tight import LinkedListTight
from particlemesh.grid.builders.scan import Scan
from particlemesh.grid.builders.sort import Sort

METHODS: tuple[type[Builder], ...] = (Fixed, Scan, Sort, LinkedListLoose, LinkedListTight, LinkedListPacked)
_METHODS: Any = METHODS  # candidates are written for another Problem
_SMALL = 10**6  # particles and cells that memory is not in doubt for


class BuilderChoice:
    """The choice of one grid, by a builder's name or "auto".

    Attributes
    ----------
    capacity : int
        Particles that memory is reserved for: as many have the builder of before.
    """

    def __init__(self, name: str, options: Mapping[str, Any]) -> None:
        self.name, self._options = name, options
        self.capacity = 0
        self._builder: Builder | None = None
        self._problem: Problem | None = None  # that it was chosen for

    def choose(self, problem: Problem) -> Builder:
        """Return the builder that serves ``problem``: the one before, if nothing has changed by much."""
        self._check_memory(problem)
        known, before = self._builder, self._problem
        alike = before is not None and replace(problem, count=before.count) == before
        reserved = problem.count <= self.capacity
        near = before is not None and before.count / 2 <= problem.count <= before.count * 2
        if known is not None and alike and (near or reserved):
            return known
        chosen: Any = candidates.choose(_METHODS, problem, self.name)  # type: ignore[arg-type]  # the same interface
        self._builder = known if type(known) is chosen else chosen(**self._options)
        self._problem = problem
        return self._builder  # type: ignore[return-value]  # just made

    def explain(self, built: Built) -> str:
        """Return each builder's estimate for a build, or why it declines."""
        problem: Any = built.problem
        table = [candidates.ask(builder, problem) for builder in _METHODS]
        method: Any = type(built.method)
        return candidates.table("grid", table, problem, method, ("build", "for queries"))

    def forget(self) -> None:
        """Drop the builder, and what it has learned."""
        self._builder = None

    def _check_memory(self, problem: Problem) -> None:
        """Raise a MemoryError if no builder that can serve has the memory on the CPU."""
        if problem.gpu or problem.count + problem.cells < _SMALL:
            return
        serving = [m for m in METHODS if self.name in ("auto", m.name) and m.declines(problem) is None]
        if serving:
            least = min(m.scratch_bytes(problem) for m in serving)
            check_room(least, f"a grid of {problem.cells:,} cells and {problem.count:,} particles")
