# SPDX-License-Identifier: BSD-3-Clause
"""All cases of cuFINUFFT's file: our best method against the best of its methods.

cuFINUFFT's kernel time is that of its kernels and of clearing its mesh, without launches and the host. Ours is a
captured call, which clears the field. ``ratio`` is its kernel time over our captured time: above 1 ours is faster.
``call_ratio`` compares plain calls, ``total_ratio`` one call with all work from new positions on. The windows differ
and have the same width.

Our best method may be a stored matrix. Only ``total_ratio`` contains its building (``prepare_s``). So two methods
without a matrix are measured in every case, and there are means without matrices.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from functools import cache
from typing import Any

from core.bounds import bound
from harness.bench import WALK, Bench
from harness.cases import Case, Job
from harness.inside import METHODS
from harness.tables import PEERS, geometric_mean, number, read, short, slug

FIGURE = "peer"
FILE, ELSEWHERE = "cufinufft-2.5.1-{}.csv", "nvidia-h200"  # whose times are compared with where there are none
OPERATIONS = {"spread": "spread", "interp": "interpolate"}
ALWAYS = ("particle", "ordered")  # measured in every case, as are walks
MATRICES = {method.name for methods in METHODS.values() for method in methods if method.stores_weights}
Times = dict[str, dict[str, float]]  # setpts_s, call_s and kernel_s by method


@cache
def table(device: str) -> dict[Case, Times]:
    """Return the peer's times by case; cases with the same particles are neighbours."""
    cases: dict[Case, Times] = {}
    for row in read(PEERS / FILE.format(slug(device))) or read(PEERS / FILE.format(ELSEWHERE)):
        case = Case(OPERATIONS[row["operation"]], int(row["N"]), int(row["K"]), int(row["width"]), row["real_dtype"])
        times = {name: float(row[name]) for name in ("setpts_s", "call_s", "kernel_s")}
        cases.setdefault(case, {})[row["method"]] = times
    order = sorted(cases, key=lambda c: (c.dtype, c.count, c.nodes, c.support, c.direction != "spread"))
    return {case: cases[case] for case in order}


def best(times: Times, *columns: str) -> tuple[str, float]:
    """Return the peer's method with the least sum of columns, and the sum."""
    sums = {method: sum(by[column] for column in columns) for method, by in times.items()}
    method = min(sums, key=lambda m: sums[m])
    return method, sums[method]


def jobs(bench: Bench) -> list[Case]:
    """Return the cases; in a small run two of them."""
    if bench.small:
        return [Case(d, 10**4, 64, 4) for d in OPERATIONS.values()]
    return list(table(bench.place.device))


def rows(bench: Bench, case: Case) -> Iterable[dict[str, Any]]:
    """Measure a case and yield a row for each method near the best."""
    auto, methods = bench.rivals(case, factor=3.0, most=3)
    methods += [name for name in ALWAYS if name in bench.names(case.direction) and name not in methods]
    times = table(bench.place.device)[case]
    theirs = dict(zip(("peer_method", "peer_kernel_s"), best(times, "kernel_s"), strict=True))
    call, total = best(times, "call_s")[1], best(times, "setpts_s", "kernel_s")[1]
    limit, seconds = bound(case, bench.ceilings)
    for method in methods:
        ours = bench.measure(Job(case, method), positions=True)
        yield dict(
            method=method, auto=int(method == auto), **case.columns(), **ours.columns(), **theirs, peer_call_s=call,
            peer_total_s=total, ratio=short(theirs["peer_kernel_s"] / ours.least),
            call_ratio=short(call / ours.call_s), total_ratio=short(total / (ours.positions_s + ours.least)),
            bound=limit, bound_s=short(seconds), **bench.facts,
        )  # fmt: skip


# ---- what the rows say --------------------------------------------------------------------------------------

PICKS: dict[str, tuple[str, Any]] = {  # a column of ratios, and the rows that count
    "ratio": ("ratio", lambda row: True),
    "auto": ("ratio", lambda row: str(row["auto"]) == "1"),
    "walk": ("ratio", lambda row: row["method"] == WALK),
    "without": ("ratio", lambda row: row["method"] not in MATRICES),
    "call_ratio": ("call_ratio", lambda row: True),
    "total_ratio": ("total_ratio", lambda row: True),
}


def key(row: dict[str, Any]) -> tuple[str, ...]:
    """Return the case of a row."""
    return tuple(str(row[name]) for name in ("direction", "dtype", "p", "K", "N"))


def fastest(rows: Iterable[dict[str, Any]], pick: str = "ratio") -> list[dict[str, Any]]:
    """Return the row of each case with the greatest ratio, among those that ``pick`` counts."""
    column, counts = PICKS[pick]
    by_case: dict[Any, dict[str, Any]] = {}
    for row in filter(counts, rows):
        best = by_case.get(key(row))
        if not math.isnan(number(row, column)) and (best is None or number(row, column) > number(best, column)):
            by_case[key(row)] = row
    return list(by_case.values())


def means(rows: list[dict[str, Any]]) -> dict[tuple[str, str], tuple[float, float, int]]:
    """Return geometric mean, least ratio and number of cases by direction and pick, where there are cases."""
    made = {}
    for direction, (pick, (column, _)) in itertools.product(OPERATIONS.values(), PICKS.items()):
        ratios = [number(r, column) for r in fastest([r for r in rows if r["direction"] == direction], pick)]
        if ratios:
            made[direction, pick] = geometric_mean(ratios), min(ratios), len(ratios)
    return made


def below(rows: list[dict[str, Any]], least: float = 1.0) -> list[dict[str, Any]]:
    """Return the cases in which no method reaches a ratio, the lowest first."""
    return sorted((r for r in fastest(rows) if number(r, "ratio") < least), key=lambda r: number(r, "ratio"))


def won_by_matrices(rows: list[dict[str, Any]]) -> list[tuple[dict[str, Any], dict[str, Any] | None]]:
    """Return the best row of each case that a stored matrix wins, and the best row without; spreading first."""
    others = {key(row): row for row in fastest(rows, "without")}
    won = [(row, others.get(key(row))) for row in fastest(rows) if row["method"] in MATRICES]
    return sorted(won, key=lambda pair: pair[0]["direction"] != "spread")
