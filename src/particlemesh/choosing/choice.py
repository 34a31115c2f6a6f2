# SPDX-License-Identifier: BSD-3-Clause
"""A plan's selection of methods: by prediction or by measurement, and the report of it."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from particlemesh.arrays.positions import Coordinates
from particlemesh.backends import NAMES
from particlemesh.choosing import arrangement, candidates, trial
from particlemesh.choosing.predict import OWN_MODELS, known
from particlemesh.interpolate import METHODS as INTERPOLATE_METHODS
from particlemesh.methods.contract import Method, Option, Problem
from particlemesh.particles.workspace import Sizes, Workspace
from particlemesh.spread import METHODS as SPREAD_METHODS

METHODS: dict[str, tuple[type[Method], ...]] = {"spread": SPREAD_METHODS, "interpolate": INTERPOLATE_METHODS}
KEYWORDS = {"spread": "method", "interpolate": "interpolation"}  # of a plan
BY_ITSELF = ("auto", "measure")  # instead of a method's name: the plan selects
# The most contributions and nodes of a problem on the CPU whose choice is cached: choosing would take longer than the
# work, and no method needs so much memory that free memory decides.
_SMALL = 2**20
_MOST_CHOICES = 256
_choices: dict[Any, type[Method]] = {}


def register(direction: str, method: type[Method]) -> type[Method]:
    """Add a method of your own to those that plans know, in this process.

    Then ``Plan(method=name)`` takes it, ``plan.explain()`` lists it, and the automatic choice asks for its ``cost``.

    Parameters
    ----------
    direction : {"spread", "interpolate"}
        What the method does.
    method : subclass of Method
        The contract is ``particlemesh.methods.Method`` (:doc:`/developers/add_a_method`). A class that is
        registered already is replaced by one of the same names and module: cells of a notebook run again.

    Returns
    -------
    subclass of Method
        ``method``, so that ``functools.partial(register, "spread")`` decorates a class.

    Raises
    ------
    TypeError
        If ``method`` is no subclass of ``Method``.
    ValueError
        If there is no such direction, or the method lacks a ``name`` or ``backends``, or the name is taken.

    Examples
    --------
    >>> import numpy as np
    >>> import particlemesh as pm
    >>> from particlemesh.methods import Method
    >>> class OneByOne(Method):
    ...     '''One particle after the other, in Python.'''
    ...     name, backends, derivatives = "one_by_one", frozenset({"cpu"}), 0
    ...     def apply(self, workspace, values, field, **form):
    ...         mesh, located = workspace.mesh, workspace.particles
    ...         weights = workspace.window.weights(located.fraction[-1, : workspace.count])
    ...         for n, node in enumerate(located.node[-1, : workspace.count]):
    ...             nodes = (node + np.arange(weights.shape[1])) % mesh.shape[0]
    ...             field.array.reshape(-1)[nodes] += values.array.reshape(-1)[n] * weights[n]
    >>> pm.register("spread", OneByOne).name
    'one_by_one'
    >>> plan = pm.Plan(pm.Mesh(4, 1.0), "cic", method="one_by_one").set_positions(np.array([0.25, 0.5]))
    >>> plan.spread(np.array([1.0, 2.0]))
    array([0., 1., 2., 0.])
    """
    if not (isinstance(method, type) and issubclass(method, Method)):
        raise TypeError(f"method is {method!r}: it must be a subclass of particlemesh.methods.Method.")
    if not isinstance(direction, str) or direction not in METHODS:
        raise ValueError(f"direction is {direction!r}; choose one of {', '.join(METHODS)}.")
    name, backends = getattr(method, "name", None), getattr(method, "backends", None)
    if not (isinstance(name, str) and name.isidentifier()) or name in BY_ITSELF:
        raise ValueError(f"{method.__name__}.name is {name!r}: it must be an identifier, and none of {BY_ITSELF}.")
    if not isinstance(backends, frozenset) or not backends or not backends <= set(NAMES):
        raise ValueError(f"{method.__name__}.backends is {backends!r}: it must be a frozenset of some of {NAMES}.")
    unsuitable = {key: o for key, o in method.options.items() if not isinstance(o, Option)}
    if unsuitable:
        raise TypeError(f"{method.__name__}.options has {unsuitable}: its values must be particlemesh.methods.Option.")
    place = method.__module__, method.__qualname__, name
    others = tuple(m for m in METHODS[direction] if (m.__module__, m.__qualname__, m.name) != place)
    if any(m.name == name for m in others):
        raise ValueError(f"there is a method {name!r} to {direction} already: give {method.__name__} another name.")
    METHODS[direction] = (*others, method)
    return method


def _is_small(problem: Problem) -> bool:
    return problem.backend.name == "cpu" and problem.count * problem.stencil + problem.nodes <= _SMALL


class Choice:
    """The selection of one plan; ``names`` maps a direction to a method's name or one of :data:`BY_ITSELF`."""

    def __init__(self, names: dict[str, str], deterministic: bool) -> None:
        if deterministic and "measure" in names.values():
            raise ValueError(
                "deterministic=True with method 'measure': measured times differ from run to run, and with them the "
                "method and the last bits. Use 'auto', or name a method."
            )
        self.names = names
        self._deterministic = deterministic
        self.arrangement = arrangement.Arrangement()  # of particles; uniform unless sampled
        self._measured: dict[str, list[candidates.Candidate]] = {}  # by direction

    def sample_arrangement(self, workspace: Workspace, x: Coordinates) -> None:
        """Estimate the arrangement of particles where it pays for a selection; waits for the device."""
        chooses = any(name in BY_ITSELF for name in self.names.values()) and not self._deterministic
        self.assume_uniform()
        if chooses and arrangement.worth(workspace.backend, x.count, workspace.applications):
            self.arrangement = arrangement.sample(workspace.backend, workspace.mesh, x)

    def assume_uniform(self) -> None:
        """Assume uniform particles: sampling waits, and the previous particles' arrangement says nothing."""
        self.arrangement = arrangement.Arrangement()

    def check_reserve(self, count: int) -> None:
        """Refuse to reserve memory for methods that cannot be measured yet: ``count`` is the number of particles."""
        if "measure" in self.names.values() and not count:
            raise ValueError("'measure' times methods on positions: call set_positions before reserve.")

    def problem(self, workspace: Workspace) -> Problem:
        """Return the problem that methods are asked about: the plan's particles or, without any, its capacity.

        A reproducible choice follows from the plan's arguments alone. It assumes one particle for every four
        nodes, whatever the plan's past and present particles.
        """
        sizes = {f.name: getattr(workspace, f.name) for f in fields(Sizes)}
        if self._deterministic:
            sizes["count"] = max(1, workspace.nodes // 4)
        else:
            sizes["count"] = workspace.count or workspace.capacity
        return Problem(**sizes, **self.arrangement._asdict())

    def choose(self, workspace: Workspace, what: str, derivatives: int = 0) -> type[Method]:
        """Return the method of a direction, or one for derivatives of an order, which that method has not.

        ``"measure"`` times several methods, and waits. Derivatives are not timed: of the methods that have them, the
        prediction of values decides.
        """
        name, problem = self.names[what], self.problem(workspace)
        if derivatives:
            able = tuple(m for m in METHODS[what] if m.derivatives >= derivatives)
            if name not in (*BY_ITSELF, *(m.name for m in able)):
                others = ", ".join(m.name for m in able if problem.backend.name in m.backends)
                raise candidates.MethodNotSuitable(
                    f"{KEYWORDS[what]} {name!r} has no {('first', 'second')[derivatives - 1]} derivatives; choose "
                    f"'auto' or one of {others}."
                )
            name = "auto" if name == "measure" else name
            return candidates.choose(able, problem, name, self._cost(workspace, what))
        self._measured.pop(what, None)
        if name == "auto" and not self._deterministic and _is_small(problem):
            return self._choose_small(workspace, what, problem)
        cost = self._cost(workspace, what)
        if name != "measure":
            return candidates.choose(METHODS[what], problem, name, cost)
        if not workspace.count:
            return candidates.choose(METHODS[what], problem, "auto", cost)
        if workspace.backend.capturing():
            raise RuntimeError(
                f"'measure' has to time methods to {what} and waits; a capture cannot: {what} once before it."
            )

        def time(method: type[Method]) -> tuple[float, float]:
            return trial.seconds(workspace, what, method)

        chosen, self._measured[what] = candidates.measure(METHODS[what], problem, time, cost)
        return chosen

    def _choose_small(self, workspace: Workspace, what: str, problem: Problem) -> type[Method]:
        """Choose automatically, or return this process's choice for an equal problem."""
        key = what, METHODS[what], known(workspace.backend), problem
        chosen = _choices.get(key)
        if chosen is None:
            chosen = candidates.choose(METHODS[what], problem, "auto", self._cost(workspace, what))
            if len(_choices) >= _MOST_CHOICES:
                _choices.clear()
            _choices[key] = chosen
        return chosen

    def explanation(self, workspace: Workspace, chosen: Mapping[str, type[Method] | None]) -> str:
        """Return a table of methods and their times for each direction, and the source of predictions."""
        problem, tables = self.problem(workspace), []
        for what, methods in METHODS.items():
            cost = self._cost(workspace, what)
            answers = self._measured.get(what) or [candidates.ask(m, problem, cost) for m in methods]
            tables.append(candidates.table(what, answers, replace(problem, count=workspace.count), chosen[what]))
        if self._deterministic:
            return "\n".join(
                [*tables, f"predictions: {OWN_MODELS}, for one particle per four nodes: a reproducible choice"]
            )
        times = known(workspace.backend)
        return "\n".join([*tables, f"predictions: {times.source()}", *filter(None, [times.hint])])

    def _cost(self, workspace: Workspace, what: str) -> candidates.Cost:
        if self._deterministic or self.names[what] not in BY_ITSELF:
            return candidates.modelled
        return functools.partial(known(workspace.backend).predict, what)
