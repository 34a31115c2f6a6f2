# SPDX-License-Identifier: BSD-3-Clause
"""How a plan comes to its methods: what predicts their times, when they are timed, and what is told of them."""

from __future__ import annotations

import contextlib
import copy
import functools
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from particlemesh.arrays.geometry import Coordinates
from particlemesh.backends.base import Backend
from particlemesh.choosing import arrangement, candidates, trial
from particlemesh.choosing.predict import known
from particlemesh.interpolate import METHODS as INTERPOLATE_METHODS
from particlemesh.methods.contract import Method
from particlemesh.spread import METHODS as SPREAD_METHODS

if TYPE_CHECKING:
    from particlemesh.plan import Plan

METHODS: dict[str, tuple[type[Method], ...]] = {"spread": SPREAD_METHODS, "interpolate": INTERPOLATE_METHODS}
KEYWORDS = {"spread": "method", "interpolate": "interpolation"}  # of a plan
BY_ITSELF = ("auto", "measure")  # instead of a method's name


class Choice:
    """What a plan's choices stand on; ``wanted`` are methods, or one of :data:`BY_ITSELF`, by direction."""

    def __init__(self, wanted: dict[str, str]) -> None:
        self.wanted = wanted
        self.arrangement = arrangement.Arrangement()  # of particles, as far as it is known
        self._measured: dict[str, list[candidates.Candidate]] = {}  # by direction

    def look(self, plan: Plan, backend: Backend, x: Coordinates) -> None:
        """Find out how particles lie, where it is worth knowing for a choice; waits for the device."""
        chooses = any(name in BY_ITSELF for name in self.wanted.values())
        self.look_away()
        if chooses and arrangement.worth(backend, x.count, plan.applications):
            self.arrangement = arrangement.look(backend, plan.mesh, x)

    def look_away(self) -> None:
        """Take particles to lie anywhere: to look takes waiting, and how others lay says nothing."""
        self.arrangement = arrangement.Arrangement()

    def check_reserve(self, count: int) -> None:
        """Refuse to reserve memory for methods that cannot be chosen yet, as ``count`` particles are there."""
        if "measure" in self.wanted.values() and not count:
            raise ValueError("'measure' times methods on positions: call set_positions before reserve.")

    def choose(self, plan: Plan, what: str) -> type[Method]:
        """Return the method of a direction; ``"measure"`` times several, and waits."""
        wanted, problem = self.wanted[what], plan.problem()
        cost = self._cost(plan, what) if wanted in BY_ITSELF else candidates.modelled
        self._measured.pop(what, None)
        if wanted != "measure":
            return candidates.choose(METHODS[what], problem, wanted, cost)
        if not plan.count:
            return candidates.choose(METHODS[what], problem, "auto", cost)
        if plan.backend.capturing():
            raise RuntimeError(
                f"'measure' has to time methods to {what}, and waits, which a capture cannot: {what} once before it."
            )
        chosen, self._measured[what] = candidates.measure(
            METHODS[what], problem, functools.partial(time, plan, what), cost
        )
        return chosen

    def told(self, plan: Plan, chosen: Mapping[str, type[Method] | None]) -> str:
        """Return for each direction a table of what methods take, and what predictions stand on."""
        problem, tables = plan.problem(), []
        for what, methods in METHODS.items():
            cost = self._cost(plan, what)
            asked = self._measured.get(what) or [candidates.ask(m, problem, cost) for m in methods]
            tables.append(candidates.table(what, asked, replace(problem, count=plan.count), chosen[what]))
        times = known(plan.backend)
        return "\n".join([*tables, f"predictions: {times.source}", *filter(None, [times.hint])])

    def _cost(self, plan: Plan, what: str) -> candidates.Cost:
        return functools.partial(known(plan.backend).predict, what)


def time(plan: Plan, what: str, method: type[Method]) -> tuple[float, float]:
    """Return the seconds of ``prepare`` and ``apply`` of a method for a plan with particles; waits."""
    with _alone(plan, what, method) as alone:
        return trial.seconds(alone, what)


def compile_for(plan: Plan, what: str, method: type[Method]) -> None:
    """Compile what a method runs for a plan with particles; waits."""
    with _alone(plan, what, method) as alone:
        trial.once(alone, what)


@contextlib.contextmanager
def _alone(plan: Plan, what: str, method: type[Method]) -> Iterator[Plan]:
    """Yield a plan of its own for a method, over the same particles: its memory is given back."""
    make, (kind, mesh, window, options) = plan.__reduce__()
    with make(kind, mesh, window, {**options, KEYWORDS[what]: method.name}) as alone:
        alone.backend, alone.token, alone._kind = plan.backend, plan.token, plan._kind
        # A copy: stencils that the plan keeps packed, and this method wants spelt out, go with it.
        alone.particles, alone._chosen_for = copy.copy(plan.particles), plan._chosen_for
        yield alone
