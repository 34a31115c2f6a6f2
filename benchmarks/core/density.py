# SPDX-License-Identifier: BSD-3-Clause
"""Particles per second against particles per cell, for every method and the peer: float32, complex, 128^3 nodes."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

from core import peer
from harness.bench import WALK, Bench
from harness.cases import DIRECTIONS, Case, Job
from harness.tables import short

FIGURE = "density"
NODES = 128
SIZES = (10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000, 10_000_000, 30_000_000)
SUPPORTS = (4, 6)
MATRIX = "matrix"  # the form of walks where the device has matrix instructions
FAR = 40.0  # times the least prediction: slower methods are not measured


def jobs(bench: Bench) -> list[Case]:
    """Return the cases, the same particles one after the other."""
    if bench.small:
        return [Case(d, n, 16, 4) for n in (50, 500) for d in DIRECTIONS]
    return [Case(d, n, NODES, p) for n, p, d in itertools.product(SIZES, SUPPORTS, DIRECTIONS)]


def forms(bench: Bench, case: Case) -> list[Job]:
    """Return walks in each of their forms, and all other methods near the best prediction."""
    methods = bench.rivals(case, factor=FAR, most=99)[1]
    jobs = [Job(case, method) for method in methods]
    if not bench.small and WALK in methods:
        forms_of = other_values(bench, case, WALK, "form")
        jobs += [Job(case, WALK, {"form": form}) for form in forms_of if form != MATRIX]
    return jobs


def other_values(bench: Bench, case: Case, method: str, option: str) -> list[Any]:
    """Return the values of a method's option beside its default; none if there is no such option."""
    known = next(m for m in bench.place.methods(case.direction) if m.name == method).options.get(option)
    if known is None or not isinstance(known.allowed, tuple):
        return []
    return [value for value in known.allowed if value != known.default]


def rows(bench: Bench, case: Case) -> Iterable[dict[str, Any]]:
    """Yield a row for each method, and one for the peer where its file has the case."""
    for job in forms(bench, case):
        times = bench.measure(job)
        yield _row(bench, case, job.method, job.chosen, times.least, times.note)
    times = peer.table(bench.place.device)
    if case in times and bench.place.name != "cpu":
        method, seconds = peer.best(times[case], "kernel_s")
        yield _row(bench, case, "cuFINUFFT", f"method={method}", seconds, "")


def _row(bench: Bench, case: Case, method: str, options: str, seconds: float, note: str) -> dict[str, Any]:
    return dict(
        method=method, options=options, **case.columns(), density=short(case.density), seconds=short(seconds),
        rate=short(case.count / seconds / 1e9), note=note, **bench.facts,
    )  # fmt: skip
