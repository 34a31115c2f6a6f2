# SPDX-License-Identifier: BSD-3-Clause
"""The library's tuned constants, each with other values, in cases where it decides.

A value holds while a plan is made and measured; then the shipped value holds again. A plan and its kernels are made
anew for each value, since plans keep their decisions. ``value`` is the constant's; of a function it is a factor of its
result (``chunk_of``), or a summand (``resident``). ``seconds`` is the time of a call. Where ``what`` is ``order``, it
is the time from new positions to a prepared method.

    python benchmarks/core/run.py --backend cuda --only thresholds
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

import particlemesh as pm
from harness.bench import WALK, Bench, Measured, reason
from harness.cases import Case, Job
from harness.tables import geometric_mean, short
from particlemesh.interpolate import ordered as reading_ordered
from particlemesh.interpolate import particle as reading
from particlemesh.orders import block_order
from particlemesh.spread import particle as spreading
from particlemesh.walk import patch

FIGURE = "thresholds"
APPLY, ORDER = "apply", "order"
SHIPPED_CHUNK_OF, SHIPPED_RESIDENT = patch.chunk_of, patch.resident
SMALLER = 16  # times fewer nodes along an axis in a small run, with as many particles per cell


# ---- replacements of functions and tables --------------------------------------------------------------


def chunks(factor: float) -> Callable[..., int]:
    """Return ``patch.chunk_of`` with its result multiplied, in whole batches."""

    def chunk_of(*asked: Any, **more: Any) -> int:
        return max(32, round(factor * SHIPPED_CHUNK_OF(*asked, **more) / 32) * 32)

    return chunk_of


def groups(more: int) -> Callable[..., int]:
    """Return ``patch.resident`` with groups added."""
    return lambda *asked: max(1, SHIPPED_RESIDENT(*asked) + more)


def lanes(numbers: tuple[int, int]) -> dict[str, int]:
    """Return lanes per particle and per row, as defines of kernels."""
    return dict(zip(("LANES_ALL", "LANES_ROW"), numbers, strict=True))


# ---- the table -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Constant:
    """A constant, the values to try, and jobs in which it decides."""

    name: str
    owner: Any  # a module or a class; or a dict with the value
    attribute: str
    shipped: Any
    values: tuple[Any, ...]
    jobs: tuple[Job, ...]
    made: Callable[[Any], Any] = lambda value: value  # the object for a value
    what: tuple[str, ...] = (APPLY,)

    def text(self, value: Any) -> str:
        """Return a value as a CSV file has it."""
        return " ".join(f"{n:.7g}" for n in (value if isinstance(value, tuple) else (value,)))


@dataclass(frozen=True)
class Scan:
    """A constant in one case."""

    constant: Constant
    job: Job

    def smaller(self, times: int) -> Scan:
        """Return it with fewer nodes along each axis and as many particles per cell."""
        return replace(self, job=replace(self.job, case=self.job.case.smaller(times)))

    def __str__(self) -> str:
        return f"{self.constant.name}: {self.job}"


def _jobs(method: str, *cases: tuple[Any, ...], **more: Any) -> tuple[Job, ...]:
    return tuple(Job(Case(*case, **more), method) for case in cases)


def _staged(size: int, sorting: bool, values: tuple[float, ...], *cases: tuple[Any, ...]) -> Constant:
    """Return the number of particles from which an order takes two steps, for reals of a size."""
    table, key = block_order.STAGED_FROM, (size, sorting)
    jobs = _jobs(WALK, *cases, order="sorted" if sorting else "caller")
    name = f"block_order.STAGED_FROM, {size} bytes{', sorting' if sorting else ''}"
    return Constant(name, table, "", table[key], values, jobs, lambda value: {key: value}, (ORDER,))


SPREAD, READ, DOUBLE = "spread", "interpolate", "float64"
MILLION, NEVER = 10**6, 2**62
CONSTANTS = (
    Constant("patch.CACHED", patch, "CACHED", patch.CACHED, (20e6, 40e6, 80e6), _jobs(
        WALK, (SPREAD, 10 * MILLION, 160), (SPREAD, 10 * MILLION, 192), (READ, 10 * MILLION, 192))),
    Constant("patch._CROWDED", patch, "_CROWDED", patch._CROWDED, (4.5, 9, 18), _jobs(
        WALK, (SPREAD, 1_500_000, 128), (SPREAD, 3 * MILLION, 128), (READ, 3 * MILLION, 128)), what=(APPLY, ORDER)),
    Constant("patch._FEW", patch, "_FEW", patch._FEW, (1.5, 3, 6), _jobs(
        WALK, (SPREAD, 150_000, 128), (SPREAD, 300_000, 128), (SPREAD, 150_000, 128, 6, DOUBLE))),
    Constant("patch.chunk_of", patch, "chunk_of", 1, (0.5, 1, 2), _jobs(
        WALK, (SPREAD, 10 * MILLION, 128), (READ, 10 * MILLION, 128), (SPREAD, 10 * MILLION, 128, 6, DOUBLE),
        (READ, 100_000, 128)), chunks),
    Constant("walks.chunk_of beyond the cache", patch, "chunk_of", 1, (0.5, 1, 2), _jobs(
        WALK, (SPREAD, 10 * MILLION, 256), (READ, 10 * MILLION, 256)), chunks),
    Constant("patch.resident", patch, "resident", 0, (-1, 0, 1), _jobs(
        WALK, (SPREAD, 10 * MILLION, 128), (SPREAD, 10 * MILLION, 128, 4), (SPREAD, MILLION, 128)), groups),
    Constant("spread.particle.LANES", spreading.LANES, "", tuple(spreading.LANES.values()),
             ((8, 8), (8, 4), (8, 2), (4, 4)), (
                 *_jobs("particle", (SPREAD, MILLION, 128), (SPREAD, MILLION, 128, 6, DOUBLE)),
                 *_jobs("ordered", (SPREAD, MILLION, 256, 4))), lanes),
    Constant("interpolate.particle.LANES", reading.LANES, "", tuple(reading.LANES.values()),
             ((4, 2), (4, 4), (8, 4), (2, 2)), (
                 *_jobs("particle", (READ, MILLION, 128), (READ, MILLION, 128, 4, DOUBLE)),
                 *_jobs("ordered", (READ, 100_000, 256, 4))), lanes),
    Constant("interpolate.ordered.NARROW", reading_ordered, "NARROW", reading_ordered.NARROW,
             ((1, 2**16, 32), (2, 2**16, 32), (1, NEVER, 32)), _jobs(
                 "ordered", (READ, 100_000, 64, 4), (READ, MILLION, 128, 4), (READ, MILLION, 256, 4),
                 (READ, 3 * MILLION, 256, 5))),
    Constant("interpolate.ordered.NARROW where few", reading_ordered, "NARROW", reading_ordered.NARROW,
             ((1, 2**16, 32), (1, 2**15, 256)), _jobs("ordered", (READ, 50_000, 48, 4), (READ, 100_000, 256, 4))),
    Constant("interpolate.ordered.WIDE", reading_ordered, "WIDE", reading_ordered.WIDE,
             ((2, 2**17, 4), (1, 2**17, 4), (2, NEVER, 4)), _jobs(
                 "ordered", (READ, 200_000, 64), (READ, MILLION, 128), (READ, MILLION, 128, 8),
                 (READ, MILLION, 128, 6, DOUBLE))),
    Constant("interpolate.ordered.WIDE where few", reading_ordered, "WIDE", reading_ordered.WIDE,
             ((2, 2**17, 4), (2, 2**16, 32)), _jobs(
                 "ordered", (READ, 100_000, 64), (READ, 200_000, 128), (READ, MILLION, 256),
                 (READ, MILLION, 256, 6, DOUBLE))),
    _staged(4, False, (MILLION, 1_250_000, 4 * MILLION),
            (SPREAD, 1_200_000, 128), (SPREAD, 2 * MILLION, 128), (SPREAD, 3 * MILLION, 128),
            (SPREAD, 2 * MILLION, 256)),
    _staged(8, False, (MILLION, math.inf), (SPREAD, MILLION, 128, 6, DOUBLE), (SPREAD, 10 * MILLION, 128, 6, DOUBLE),
            (SPREAD, 10 * MILLION, 256, 6, DOUBLE),
            (SPREAD, 10 * MILLION, 128, 6, DOUBLE, "complex", "planar", "clustered")),
    _staged(4, True, (500_000, MILLION, 4 * MILLION), (SPREAD, 750_000, 128), (SPREAD, 1_500_000, 128),
            (SPREAD, 3 * MILLION, 128)),
    _staged(8, True, (MILLION, 2_500_000, 4 * MILLION), (SPREAD, 2 * MILLION, 128, 6, DOUBLE),
            (SPREAD, 3 * MILLION, 128, 6, DOUBLE), (SPREAD, 2 * MILLION, 256, 6, DOUBLE)),
)  # fmt: skip


@contextlib.contextmanager
def in_effect(constant: Constant, value: Any) -> Iterator[None]:
    """Let a value hold inside; restore the shipped one afterwards, errors included."""
    made = constant.made(value)
    if isinstance(constant.owner, dict):  # other modules hold the same dict
        patched: Any = mock.patch.dict(constant.owner, made)
    else:
        patched = mock.patch.object(constant.owner, constant.attribute, made)
    with patched:
        yield


# ---- measuring -------------------------------------------------------------------------------------------------


def jobs(bench: Bench) -> list[Scan]:
    """Return constants by cases of methods that run here; a small run has one small case of each."""
    scans = [Scan(c, job) for c in CONSTANTS for job in c.jobs if job.method in bench.names(job.case.direction)]
    if not bench.small:
        return scans
    first = {scan.constant.name: scan for scan in reversed(scans)}
    return [s.smaller(SMALLER) for s in reversed(first.values())]


def rows(bench: Bench, scan: Scan) -> Iterable[dict[str, Any]]:
    """Measure a case and yield a row for each value; a small run has the shipped value and one other."""
    constant, values = scan.constant, scan.constant.values
    if bench.small:
        values = constant.shipped, next(v for v in values if v != constant.shipped)
    for value in values:
        try:
            with in_effect(constant, value):
                times = measured(bench, scan)
        except (pm.MethodNotSuitable, MemoryError) as declined:
            times = Measured(note=reason(declined))
        bench.tidy()
        captured = not math.isnan(times.graph_s)
        for what in constant.what:
            seconds, by = (times.least, "graph" if captured else "calls") if what == APPLY else (
                times.positions_s, times.positions_by)  # fmt: skip
            yield dict(
                constant=constant.name, value=constant.text(value), shipped=int(value == constant.shipped), what=what,
                method=scan.job.method, **scan.job.case.columns(), seconds=short(seconds), by=by, note=times.note,
                **bench.facts,
            )  # fmt: skip


def measured(bench: Bench, scan: Scan) -> Measured:
    """Return the times of a new plan. (``Bench.measure`` would return those with another value.)"""
    with bench.setup(scan.job) as made:
        made.call()
        times = Measured(*bench.seconds(made.call)) if APPLY in scan.constant.what else Measured()
        if ORDER in scan.constant.what:
            both, alone, by = bench.preparing(made, scan.job.case.direction)
            times = replace(times, positions_s=both, prepare_s=alone, positions_by=by)
        return times


# ---- what the rows say -----------------------------------------------------------------------------------------


def summary(table: list[dict[str, Any]]) -> list[str]:
    """Return a line for each constant: the shipped value's time over the best one's, mean and worst case."""
    lines = []
    for name in dict.fromkeys(row["constant"] for row in table):
        rows = [row for row in table if row["constant"] == name]
        times: dict[Any, dict[str, float]] = {}
        for row in rows:
            case = tuple(str(row[c]) for c in ("what", "method", "direction", "N", "K", "p", "dtype", "values"))
            times.setdefault(case, {})[row["value"]] = float(row["seconds"])
        shipped = next(row["value"] for row in rows if str(row["shipped"]) == "1")
        values = [v for v in dict.fromkeys(r["value"] for r in rows) if _all_known(times.values(), v)]
        if shipped not in values:
            lines.append(f"{name} = {shipped}: not measured")
            continue
        means = {v: geometric_mean(by[v] / by[shipped] for by in times.values()) for v in values}
        best = min(means, key=lambda v: means[v])
        worst = max(by[shipped] / min(by[v] for v in values) for by in times.values())
        lines.append(f"{name} = {shipped}: {1 / means[best]:.3f} times the time of the best value ({best}), "
                     f"{len(times)} cases; {worst:.3f} in the worst")  # fmt: skip
    return lines


def _all_known(times: Iterable[dict[str, float]], value: str) -> bool:
    return not any(math.isnan(by.get(value, math.nan)) for by in times)
