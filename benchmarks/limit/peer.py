# SPDX-License-Identifier: BSD-3-Clause
"""All cases of cuFINUFFT's file: our best method against the best of its methods, call against call.

The stricter rival is its kernel time: what its kernels and the clearing of its mesh take on the GPU, without launches
and the host. Ours is a captured call with the clearing inside. ``ratio`` is its kernel time over our captured time, so
above 1 is faster. ``call_ratio`` compares plain calls, ``total_ratio`` one call with all from new positions on. Its
window is another one of the same width.

Our best method may be a stored matrix, whose building (``prepare_s``) is in none of these but ``total_ratio``. So two
methods that need no matrix are measured in every case, and there are means without matrices.
"""

from __future__ import annotations

import csv
import itertools
import math
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from limit.bench import WALK, Bench, Job
from limit.bounds import bound
from limit.cases import Case
from particlemesh.choosing.choice import METHODS
from place import short

FIGURE = "peer"
FILE = Path(__file__).parents[1] / "peers" / "cufinufft-2.5.1.nvidia-h200.csv"
OPERATIONS = {"spread": "spread", "interp": "interpolate"}
ALWAYS = ("particle", "ordered")  # measured in every case, as walks are
MATRICES = {method.name for methods in METHODS.values() for method in methods if method.stores_weights}
Times = dict[str, dict[str, float]]  # setpts_s, call_s and kernel_s by method


@cache
def table() -> dict[Case, Times]:
    """Return the peer's times by case, in the order of particles, so that ours need few positions."""
    found: dict[Case, Times] = {}
    with FILE.open(newline="") as file:
        for row in csv.DictReader(line for line in file if not line.startswith("#")):
            case = Case(
                OPERATIONS[row["operation"]], int(row["N"]), int(row["K"]), int(row["width"]), row["real_dtype"]
            )
            times = {name: float(row[name]) for name in ("setpts_s", "call_s", "kernel_s")}
            found.setdefault(case, {})[row["method"]] = times
    order = sorted(found, key=lambda c: (c.dtype, c.count, c.nodes, c.support, c.direction != "spread"))
    return {case: found[case] for case in order}


def best(times: Times, *columns: str) -> tuple[str, float]:
    """Return the peer's method with the least sum of columns, and the sum."""
    sums = {method: sum(by[column] for column in columns) for method, by in times.items()}
    method = min(sums, key=lambda m: sums[m])
    return method, sums[method]


def jobs(bench: Bench) -> list[Case]:
    """Return the cases; in a small run two of them."""
    if bench.small:
        return [Case(d, 10**4, 64, 4) for d in OPERATIONS.values()]
    return list(table())


def rows(bench: Bench, case: Case) -> Iterable[dict[str, Any]]:
    """Measure a case and yield a row for each method worth measuring."""
    auto, methods = bench.rivals(case, factor=3.0, most=3)
    methods += [name for name in ALWAYS if name in bench.names(case.direction) and name not in methods]
    times = table()[case]
    theirs = dict(zip(("peer_method", "peer_kernel_s"), best(times, "kernel_s"), strict=True))
    call, total = best(times, "call_s")[1], best(times, "setpts_s", "kernel_s")[1]
    limit, seconds = bound(case, bench.ceilings)
    for method in methods:
        found = bench.measure(Job(case, method), positions=True)
        yield dict(
            method=method, auto=int(method == auto), **case.columns(), **found.columns(), **theirs, peer_call_s=call,
            peer_total_s=total, ratio=short(theirs["peer_kernel_s"] / found.least),
            call_ratio=short(call / found.call_s), total_ratio=short(total / (found.positions_s + found.least)),
            bound=limit, bound_s=short(seconds), **bench.facts,
        )  # fmt: skip


# ---- what the rows say --------------------------------------------------------------------------------------


def key(row: dict[str, Any]) -> tuple[Any, ...]:
    """Return what tells the case of a row from others."""
    return tuple(row[name] for name in ("direction", "dtype", "p", "K", "N"))


def without_matrices(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of methods that store no weights."""
    return [row for row in found if row["method"] not in MATRICES]


def fastest(found: list[dict[str, Any]], column: str = "ratio") -> list[dict[str, Any]]:
    """Return the row of each case whose ratio is the greatest."""
    by_case: dict[Any, dict[str, Any]] = {}
    for row in found:
        at = key(row)
        value = float(row[column])
        if not math.isnan(value) and (at not in by_case or value > float(by_case[at][column])):
            by_case[at] = row
    return list(by_case.values())


def geometric_mean(ratios: Iterable[float]) -> float:
    """Return the geometric mean, NaN of nothing."""
    logs = [math.log(r) for r in ratios]
    return math.exp(sum(logs) / len(logs)) if logs else math.nan


def means(found: list[dict[str, Any]]) -> dict[tuple[str, str], tuple[float, float, int]]:
    """Return geometric mean, least ratio and number of cases by direction and column of ratios.

    Others stand for the column ``ratio``: ``auto`` of what the automatic choice takes, ``walk`` of walks, ``without``
    of the best without stored matrices.
    """
    said = {}
    for direction, column in itertools.product(
        OPERATIONS.values(), ("ratio", "auto", "walk", "without", "call_ratio", "total_ratio")
    ):
        those = [r for r in found if r["direction"] == direction]
        if column == "auto":
            picked = [float(r["ratio"]) for r in those if str(r["auto"]) == "1"]
        elif column == "walk":
            picked = [float(r["ratio"]) for r in fastest([r for r in those if r["method"] == WALK])]
        elif column == "without":
            picked = [float(r["ratio"]) for r in fastest(without_matrices(those))]
        else:
            picked = [float(r[column]) for r in fastest(those, column)]
        picked = [ratio for ratio in picked if not math.isnan(ratio)]
        if picked:
            said[direction, column] = geometric_mean(picked), min(picked), len(picked)
    return said


def below(found: list[dict[str, Any]], least: float = 1.0) -> list[dict[str, Any]]:
    """Return the cases in which no method reaches a ratio, the worst first."""
    return sorted((r for r in fastest(found) if float(r["ratio"]) < least), key=lambda r: float(r["ratio"]))


def won_by_matrices(found: list[dict[str, Any]]) -> list[tuple[dict[str, Any], dict[str, Any] | None]]:
    """Return the best row of the cases in which that is a stored matrix, and the best without; spreading first."""
    others = {key(row): row for row in fastest(without_matrices(found))}
    won = [(row, others.get(key(row))) for row in fastest(found) if row["method"] in MATRICES]
    return sorted(won, key=lambda pair: pair[0]["direction"] != "spread")
