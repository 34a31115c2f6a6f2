# SPDX-License-Identifier: BSD-3-Clause
"""Which method serves a problem: ask every candidate, take the cheapest, say why."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from particlemesh import backends
from particlemesh.methods.contract import Method, Option, Problem

# Seconds of `prepare` and of one `apply` of a method on a problem.
Cost = Callable[[type[Method], Problem], tuple[float, float]]
FAR = 5  # times the best predicted total: what is beyond is not tried
WON = 0.95  # of the best time so far: a method tried later must be that fast to take its place


class MethodNotSuitable(ValueError):
    """A method was asked for by name and cannot serve the problem; the message says why."""


@dataclass(frozen=True)
class Candidate:
    """What one method says of a problem, or what it was measured to take."""

    method: type[Method]
    reason: str | None  # why it declines
    prepare: float = 0.0  # seconds
    apply: float = 0.0
    bytes: int = 0
    measured: bool = False

    def total(self, applications: int) -> float:
        return self.prepare + applications * self.apply


def modelled(method: type[Method], problem: Problem) -> tuple[float, float]:
    """Return what the method's own model predicts."""
    return method.cost(problem)


def ask(method: type[Method], problem: Problem, cost: Cost = modelled) -> Candidate:
    """Return what ``method`` says of ``problem``: its reason to decline, or its estimates."""
    if problem.backend.name not in method.backends:
        return Candidate(method, f"runs on {_listed(method)}")
    if problem.deterministic and not method.deterministic:
        return Candidate(method, "not deterministic")
    reason = method.declines(problem)
    if reason is not None:
        return Candidate(method, reason)
    needed = method.scratch_bytes(problem)
    # Of a reproducible choice free memory is no part: it is another in the next process.
    free = problem.backend.free_bytes() if needed and not problem.deterministic else needed
    if needed > free:
        return Candidate(method, f"needs {needed:,} bytes, {free:,} are free", bytes=needed)
    return Candidate(method, None, *cost(method, problem), needed)


def check_backend(methods: Sequence[Any], wanted: str, keyword: str, backend: str) -> None:
    """Refuse a method by name that never runs on the backend that is named with it; others are not looked at.

    Raises
    ------
    MethodNotSuitable
        With the methods that run there.
    """
    backends.module(backend)  # is there one of that name
    for method in methods:
        if method.name == wanted and backend not in method.backends:
            able = ", ".join(m.name for m in methods if backend in m.backends)
            raise MethodNotSuitable(
                f"{keyword} {wanted!r} runs on {_listed(method)}, not on backend {backend!r}; "
                f"choose 'auto' or one of {able}."
            )


def _listed(method: Any) -> str:
    return ", ".join(sorted(method.backends))


def choose(methods: tuple[type[Method], ...], problem: Problem, wanted: str, cost: Cost = modelled) -> type[Method]:
    """Return the method named ``wanted``, or for ``"auto"`` the one that predicts the least time.

    Methods of which nothing is known predict infinite times: one of them is chosen only where no other can serve.

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
    asked = [ask(m, problem, cost) for m in methods if wanted in ("auto", m.name)]
    able = _able(asked, problem, frugal=wanted == "auto" and not problem.deterministic, named=wanted != "auto")
    return min(able, key=lambda c: c.total(problem.applications)).method


def _able(asked: Sequence[Candidate], problem: Problem, *, frugal: bool, named: bool = False) -> list[Candidate]:
    """Return those who do not decline; the ``frugal`` among them, if there are any. Others may not have been asked."""
    able = [c for c in asked if c.reason is None]
    if not able:
        reasons = "; ".join(f"{c.method.name}: {c.reason}" for c in asked)
        if named:
            name, where = asked[0].method.name, problem.backend.name
            raise MethodNotSuitable(
                f"method {name!r} cannot serve this problem on {where!r}: {asked[0].reason}; name another, or 'auto'."
            )
        raise MethodNotSuitable(f"no method can serve this problem on {problem.backend.name!r} ({reasons}).")
    if not frugal:
        return able
    # Slopes may take twice as much again, and the user has plans for the rest.
    free = problem.backend.free_bytes() if any(c.bytes for c in able) else 0
    return [c for c in able if 3 * c.bytes <= free] or able


def measure(
    methods: tuple[type[Method], ...],
    problem: Problem,
    time: Callable[[type[Method]], tuple[float, float]],
    cost: Cost = modelled,
) -> tuple[type[Method], list[Candidate]]:
    """Return the method that ``time`` finds fastest, and what was learned of all.

    They are tried in the order of their predicted totals. Those :data:`FAR` from the best prediction are not; nor are
    those for whose trial there is no memory. One that was predicted to be slower must win clearly (:data:`WON`).

    Raises
    ------
    MethodNotSuitable
        If every method declines, or there was no memory to try any.
    """
    learned = {m: ask(m, problem, cost) for m in methods}
    applications = problem.applications
    able = sorted(_able([*learned.values()], problem, frugal=True), key=lambda c: c.total(applications))
    best: Candidate | None = None
    for candidate in able:
        if candidate.total(applications) > FAR * able[0].total(applications):
            break
        try:
            prepare, apply = time(candidate.method)
        except MemoryError as error:
            learned[candidate.method] = replace(candidate, reason=f"no memory to try it: {error}")
            continue
        tried = learned[candidate.method] = replace(candidate, prepare=prepare, apply=apply, measured=True)
        if best is None or tried.total(applications) < WON * best.total(applications):
            best = tried
    if best is None:
        best = min(_able([*learned.values()], problem, frugal=False), key=lambda c: c.total(applications))
    return best.method, [*learned.values()]


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
    """Return a value with NumPy's integers as Python's, which do not overflow, and its booleans."""
    if isinstance(value, tuple):
        return tuple(_plain(v) for v in value)
    return value.item() if isinstance(value, (np.integer, np.bool_)) else value


def table(
    title: str, asked: Sequence[Candidate], problem: Problem, chosen: type[Method] | None,
    phases: tuple[str, str] = ("prepare", "apply"),
) -> str:  # fmt: skip
    """Return the candidates as a table that fits a terminal."""
    wide = max(13, *(len(c.method.name) for c in asked))
    times = problem.applications
    total = f"total of {times:,}" if times > 1 else "total"
    widths = 10, 11, max(13, len(total))
    columns = f"{phases[0]:>10} {phases[1]:>11} {total:>{widths[2]}} {'memory':>13}"
    lines = [f"{title:<{wide + 2}} {columns}   N = {problem.count:,}"]
    for candidate in asked:
        head = f"{'*' if candidate.method is chosen else ' '} {candidate.method.name:<{wide}}"
        if candidate.reason is not None:
            margin = " " * (len(head) + 1)
            told = textwrap.wrap(f"declined: {candidate.reason}", WIDTH - len(margin))
            lines.append(f"{head} " + f"\n{margin}".join(told))
        else:
            seconds = (candidate.prepare, candidate.apply, candidate.total(times))
            if math.isinf(seconds[2]):
                lines.append(f"{head} neither a model nor measurements: chosen last; `particlemesh tune` measures it")
                continue
            cells = "".join(f" {_time(s):>{width}}" for s, width in zip(seconds, widths, strict=True))
            how = "measured" if candidate.measured else "predicted"
            lines.append(f"{head}{cells} {candidate.bytes / 2**20:>9,.1f} MiB   {how}")
    return "\n".join(lines)


WIDTH = 100  # of a table


def _time(seconds: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return "0" if seconds == 0 else f"{seconds / 1e-6:.2g} us"
