# SPDX-License-Identifier: BSD-3-Clause
"""Selection of a method for a problem: ask every candidate, take the cheapest, report why."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from particlemesh import backends
from particlemesh.methods.contract import Method, Option, Problem

# Seconds of `prepare` and of one `apply` of a method on a problem.
Cost = Callable[[type[Method], Problem], tuple[float, float]]
FAR = 5  # times the best predicted total: slower predictions are not tried
WON = 0.95  # of the best time so far: a method tried later must take less to replace it


class MethodNotSuitable(ValueError):
    """No method, or not the named one, can serve the problem; the message says why.

    Examples
    --------
    >>> import particlemesh as pm
    >>> pm.Plan(pm.Mesh(8, 1.0), method="owner", backend="cpu")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    particlemesh...MethodNotSuitable: method 'owner' runs on cuda, opencl, not on backend 'cpu'; choose 'auto' or ...
    """


@dataclass(frozen=True)
class Candidate:
    """One method's estimates for a problem, or its measured times."""

    method: type[Method]
    reason: str | None  # why it declines
    prepare: float = 0.0  # seconds
    apply: float = 0.0
    bytes: int = 0
    measured: bool = False

    def total(self, applications: int) -> float:
        return self.prepare + applications * self.apply


def modelled(method: type[Method], problem: Problem) -> tuple[float, float]:
    """Return the prediction of the method's own model."""
    seconds = method.cost(problem)
    if not isinstance(seconds, tuple) or len(seconds) != 2:
        raise TypeError(
            f"{method.__name__}.cost returned {seconds!r}: return two numbers, the seconds of prepare and of one apply."
        )
    return seconds


def ask(method: type[Method], problem: Problem, cost: Cost = modelled) -> Candidate:
    """Return the answer of ``method`` to ``problem``: its reason to decline, or its estimates."""
    if problem.backend.name not in method.backends:
        return Candidate(method, f"runs on {_listed(method)}")
    if problem.deterministic and not method.deterministic:
        return Candidate(method, "not deterministic")
    if problem.in_parts and not method.cut_independent:
        return Candidate(method, "its last bits depend on how the mesh is cut")
    reason = method.declines(problem)
    if reason is not None:
        return Candidate(method, reason)
    needed = method.scratch_bytes(problem)
    # A reproducible choice ignores free memory, which differs from process to process.
    free = problem.backend.free_bytes() if needed and not problem.deterministic else needed
    if needed > free:
        return Candidate(method, f"needs {needed:,} bytes, {free:,} are free", bytes=needed)
    return Candidate(method, None, *cost(method, problem), needed)


def check_backend(methods: Sequence[Any], name: str, keyword: str, backend: str) -> None:
    """Refuse a named method that never runs on the named backend.

    Raises
    ------
    MethodNotSuitable
        With the methods that run there.
    """
    backends.module(backend)  # raises for an unknown name
    for method in methods:
        if method.name == name and backend not in method.backends:
            able = ", ".join(m.name for m in methods if backend in m.backends)
            raise MethodNotSuitable(
                f"{keyword} {name!r} runs on {_listed(method)}, not on backend {backend!r}; "
                f"choose 'auto' or one of {able}."
            )


def _listed(method: Any) -> str:
    return ", ".join(sorted(method.backends))


def choose(methods: tuple[type[Method], ...], problem: Problem, name: str, cost: Cost = modelled) -> type[Method]:
    """Return the method called ``name``, or for ``"auto"`` the one with the least predicted time.

    A method without a model and measurements predicts an infinite time: it is chosen only if no other can serve.

    Raises
    ------
    ValueError
        If there is no method of that name.
    MethodNotSuitable
        If the method, or every method, declines.
    """
    names = [m.name for m in methods]
    if name != "auto" and name not in names:
        raise ValueError(f"method {name!r} is unknown; choose 'auto' or one of {', '.join(names)}.")
    answers = [ask(m, problem, cost) for m in methods if name in ("auto", m.name)]
    able = _able(answers, problem, frugal=name == "auto" and not problem.deterministic, named=name != "auto")
    return min(able, key=lambda c: c.total(problem.applications)).method


def _able(answers: Sequence[Candidate], problem: Problem, *, frugal: bool, named: bool = False) -> list[Candidate]:
    """Return the candidates that do not decline; with ``frugal`` those that need little memory, if there are any."""
    able = [c for c in answers if c.reason is None]
    if not able:
        reasons = "; ".join(f"{c.method.name}: {c.reason}" for c in answers)
        if named:
            name, where = answers[0].method.name, problem.backend.name
            raise MethodNotSuitable(
                f"method {name!r} cannot serve this problem on {where!r}: {answers[0].reason}; name another, or 'auto'."
            )
        raise MethodNotSuitable(f"no method can serve this problem on {problem.backend.name!r} ({reasons}).")
    if not frugal:
        return able
    # Slopes may need twice as much again, and the user needs the rest.
    free = problem.backend.free_bytes() if any(c.bytes for c in able) else 0
    return [c for c in able if 3 * c.bytes <= free] or able


def measure(
    methods: tuple[type[Method], ...],
    problem: Problem,
    time: Callable[[type[Method]], tuple[float, float]],
    cost: Cost = modelled,
) -> tuple[type[Method], list[Candidate]]:
    """Return the method that ``time`` measures as fastest, and all candidates.

    Methods are tried in the order of their predicted totals. Those :data:`FAR` from the best prediction are not tried,
    nor those without memory for a trial. A method predicted to be slower must win clearly (:data:`WON`).

    Raises
    ------
    MethodNotSuitable
        If every method declines, or there was no memory to try any.
    """
    answers = {m: ask(m, problem, cost) for m in methods}
    applications = problem.applications
    able = sorted(_able([*answers.values()], problem, frugal=True), key=lambda c: c.total(applications))
    best: Candidate | None = None
    for candidate in able:
        if candidate.total(applications) > FAR * able[0].total(applications):
            break
        try:
            prepare, apply = time(candidate.method)
        except MemoryError as error:
            answers[candidate.method] = replace(candidate, reason=f"no memory to try it: {error}")
            continue
        tried = answers[candidate.method] = replace(candidate, prepare=prepare, apply=apply, measured=True)
        if best is None or tried.total(applications) < WON * best.total(applications):
            best = tried
    if best is None:
        best = min(_able([*answers.values()], problem, frugal=False), key=lambda c: c.total(applications))
    return best.method, [*answers.values()]


def options_of(
    options: Mapping[str, Mapping[str, Any]] | None, directions: Iterable[tuple[type[Method], ...]]
) -> Mapping[str, Mapping[str, Any]]:
    """Check the user's options of methods, and return a copy that cannot be changed.

    Raises
    ------
    ValueError, TypeError
        If no method has such a name, or a method has no such option, or a value is not allowed.
    """
    known: dict[str, dict[str, Option]] = {}
    for methods in directions:
        for method in methods:
            known.setdefault(method.name, {}).update(method.options)
    if options is None:
        return MappingProxyType({})
    if not isinstance(options, Mapping) or not all(isinstance(v, Mapping) for v in options.values()):
        raise TypeError(f"options is {options!r}; give a dict by method, {{'single_mesh': {{'threads_per_row': 8}}}}.")
    for name, chosen in options.items():
        if name not in known:
            raise ValueError(f"options names the method {name!r}, which is unknown; methods are {', '.join(known)}.")
        for option, raw in chosen.items():
            value = _plain(raw)
            if option not in known[name]:
                has = f"it has {', '.join(known[name])}" if known[name] else "it has none"
                raise ValueError(f"{name!r} has no option {option!r}; {has}.")
            if not known[name][option].suits(value):
                raise ValueError(
                    f"option {option!r} of {name!r} is {value!r}; give {known[name][option].allowed_words()}."
                )
    plain = {name: {option: _plain(v) for option, v in chosen.items()} for name, chosen in options.items()}
    return MappingProxyType({name: MappingProxyType(chosen) for name, chosen in plain.items()})


def _plain(value: Any) -> Any:
    """Return a value with NumPy integers and booleans converted to Python's."""
    if isinstance(value, tuple):
        return tuple(_plain(v) for v in value)
    return value.item() if isinstance(value, (np.integer, np.bool_)) else value


def table(
    title: str, answers: Sequence[Candidate], problem: Problem, chosen: type[Method] | None,
    phases: tuple[str, str] = ("prepare", "apply"),
) -> str:  # fmt: skip
    """Return the candidates as a table that fits a terminal."""
    wide = max(13, *(len(c.method.name) for c in answers))
    times = problem.applications
    total = f"total of {times:,}" if times > 1 else "total"
    widths = 10, 11, max(13, len(total))
    columns = f"{phases[0]:>10} {phases[1]:>11} {total:>{widths[2]}} {'memory':>13}"
    lines = [f"{title:<{wide + 2}} {columns}   N = {problem.count:,}"]
    for candidate in answers:
        head = f"{'*' if candidate.method is chosen else ' '} {candidate.method.name:<{wide}}"
        if candidate.reason is not None:
            margin = " " * (len(head) + 1)
            reason = textwrap.wrap(f"declined: {candidate.reason}", WIDTH - len(margin))
            lines.append(f"{head} " + f"\n{margin}".join(reason))
        else:
            seconds = (candidate.prepare, candidate.apply, candidate.total(times))
            if math.isinf(seconds[2]):
                lines.append(f"{head} no model, no measurements: chosen last; `particlemesh tune` measures it")
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
