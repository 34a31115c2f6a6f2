# SPDX-License-Identifier: BSD-3-Clause
"""Which method serves a problem: ask every candidate, take the cheapest, say why."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from particlemesh.method import Method, Option, Problem


class MethodNotSuitable(ValueError):
    """A method was asked for by name and cannot serve the problem; the message says why."""


@dataclass(frozen=True)
class Candidate:
    """What one method says of a problem."""

    method: type[Method]
    reason: str | None  # why it declines
    prepare: float = 0.0  # predicted seconds
    apply: float = 0.0
    bytes: int = 0

    def total(self, applications: int) -> float:
        return self.prepare + applications * self.apply


def ask(method: type[Method], problem: Problem) -> Candidate:
    """Return what ``method`` says of ``problem``: its reason to decline, or its estimates."""
    if problem.backend.name not in method.backends:
        return Candidate(method, f"runs on {', '.join(sorted(method.backends))}")
    if problem.deterministic and not method.deterministic:
        return Candidate(method, "not deterministic")
    reason = method.declines(problem)
    if reason is not None:
        return Candidate(method, reason)
    wanted = method.scratch_bytes(problem)
    free = problem.backend.free_bytes() if wanted else 0
    if wanted > free:
        return Candidate(method, f"needs {wanted:,} bytes, {free:,} are free", bytes=wanted)
    return Candidate(method, None, *method.cost(problem), wanted)


def choose(methods: tuple[type[Method], ...], problem: Problem, wanted: str) -> type[Method]:
    """Return the method named ``wanted``, or for ``"auto"`` the one that predicts the least time.

    Raises
    ------
    ValueError
        If there is no method of that name.
    MethodNotSuitable
        If the method, or every method, declines.
    """
    names = [m.name for m in methods]
    if wanted != "auto" and wanted not in names:
        raise ValueError(f"method {wanted!r} is unknown; choose 'auto' or one of {', '.join(names)}.")
    asked = [ask(m, problem) for m in methods if wanted in ("auto", m.name)]
    able = [c for c in asked if c.reason is None]
    if not able:
        reasons = "; ".join(f"{c.method.name}: {c.reason}" for c in asked)
        raise MethodNotSuitable(f"no method can serve this problem on {problem.backend.name!r} ({reasons}).")
    if wanted == "auto":
        # Slopes may take twice as much again, and the user has plans for the rest.
        free = problem.backend.free_bytes() if any(c.bytes for c in able) else 0
        able = [c for c in able if 3 * c.bytes <= free] or able
    return min(able, key=lambda c: c.total(problem.applications)).method


def options_of(
    given: Mapping[str, Mapping[str, Any]] | None, directions: Iterable[tuple[type[Method], ...]]
) -> dict[str, dict[str, Any]]:
    """Check the options of methods that a user gave, and return a copy.

    Raises
    ------
    ValueError, TypeError
        If a method has no such name, or no such option, or the value is not allowed.
    """
    known: dict[str, dict[str, Option]] = {}
    for methods in directions:
        for method in methods:
            known.setdefault(method.name, {}).update(method.options)
    if given is None:
        return {}
    if not isinstance(given, Mapping) or not all(isinstance(v, Mapping) for v in given.values()):
        raise TypeError(f"options is {given!r}; give a dict by method, {{'single_mesh': {{'threads_per_row': 8}}}}.")
    for name, chosen in given.items():
        if name not in known:
            raise ValueError(f"options names the method {name!r}, which is unknown; methods are {', '.join(known)}.")
        for option, given_value in chosen.items():
            value = _plain(given_value)
            if option not in known[name]:
                has = f"it has {', '.join(known[name])}" if known[name] else "it has none"
                raise ValueError(f"{name!r} has no option {option!r}; {has}.")
            if not known[name][option].suits(value):
                raise ValueError(f"option {option!r} of {name!r} is {value!r}; give {known[name][option].told()}.")
    return {name: {option: _plain(v) for option, v in chosen.items()} for name, chosen in given.items()}


def _plain(value: Any) -> Any:
    """Return a value with NumPy's integers as Python's, which do not overflow."""
    if isinstance(value, tuple):
        return tuple(_plain(v) for v in value)
    return int(value) if isinstance(value, np.integer) else value


def table(
    title: str, methods: tuple[type[Method], ...], problem: Problem, chosen: type[Method] | None,
    phases: tuple[str, str] = ("prepare", "apply"),
) -> str:  # fmt: skip
    """Return the candidates as a table that fits a terminal."""
    wide = max(13, *(len(m.name) for m in methods))
    first, second = phases
    lines = [f"{title:<{wide + 2}} {first:>10} {second:>11} {'memory':>11}   N = {problem.count:,}"]
    for candidate in (ask(m, problem) for m in methods):
        mark = "*" if candidate.method is chosen else " "
        head = f"{mark} {candidate.method.name:<{wide}}"
        if candidate.reason is not None:
            lines.append(f"{head} declined: {candidate.reason}")
        else:
            memory = f"{candidate.bytes / 2**20:.1f} MiB"
            lines.append(f"{head} {_time(candidate.prepare):>10} {_time(candidate.apply):>11} {memory:>11}")
    return "\n".join(lines)


def _time(seconds: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return "0" if seconds == 0 else f"{seconds / 1e-6:.2g} us"
