# SPDX-License-Identifier: BSD-3-Clause
"""The rows of the limit: rates, times and errors of walks, of the automatic choice and of the best other methods.

``figure`` is in the row's ``unit``: of plain calls, or of captured ones where ``by`` says ``graph``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from harness import clouds, inside
from harness.bench import WALK, Bench, Measured
from harness.cases import Case, Job
from harness.tables import short

FIGURE = "rows"
RATE, POINTS, MS, US, ERROR, TIMES = "G/s", "G channel-points/s", "ms", "µs", "relative l2", "times the fastest"
NEARLY = "order-nearly"
LEAST = 3_000  # particles of a small run, at most


@dataclass(frozen=True)
class Row:
    """A row of the table."""

    key: str
    words: str
    case: Case
    unit: str = RATE

    @property
    def captured(self) -> bool:
        """Return whether calls are replayed from a captured graph."""
        return self.unit == US

    @property
    def nearly(self) -> bool:
        """Return whether positions come sorted except for moves of 0.3 cells."""
        return self.key == NEARLY

    def __str__(self) -> str:
        return self.words


MANY, SOME, FEW = 10**7, 10**6, 10**4
SPREAD, READ = "spread", "interpolate"
DOUBLE, REAL, FOUR = {"dtype": "float64"}, {"values": "real"}, {"values": "4"}
SORTED, CLUSTERED = {"order": "sorted"}, {"cloud": "clustered"}
_TABLE: tuple[tuple[str, str, str, int, str, dict[str, Any]], ...] = (
    # key, words, direction, particles, unit, how the case differs from p = 6, float32, complex
    ("spread", "spread p=6 f32 complex, 10⁷, 128³", SPREAD, MANY, RATE, {}),
    ("spread-real", "spread p=6 f32 real, 10⁷, 128³", SPREAD, MANY, RATE, REAL),
    ("spread-p4", "spread p=4 f32 complex, 10⁷, 128³", SPREAD, MANY, RATE, {"support": 4}),
    ("spread-f64", "spread p=6 f64 complex, 10⁷, 128³", SPREAD, MANY, RATE, DOUBLE),
    ("spread-some", "spread p=6 f32 complex, 10⁶, 128³", SPREAD, SOME, RATE, {}),
    ("spread-f64-some", "spread p=6 f64 complex, 10⁶, 128³", SPREAD, SOME, RATE, DOUBLE),
    ("spread-4", "spread p=6 f32, 4 real components interleaved, 10⁷, 128³", SPREAD, MANY, POINTS,
     FOUR | {"layout": "interleaved"}),
    ("spread-4-planar", "spread p=6 f32, 4 real components planar, 10⁷, 128³", SPREAD, MANY, POINTS, FOUR),
    ("interpolate", "interpolate p=6 f32 complex, 10⁷, 128³", READ, MANY, RATE, {}),
    ("interpolate-sorted", "interpolate p=6 f32 complex, 10⁷, 128³, in sorted order", READ, MANY, RATE, SORTED),
    ("interpolate-some", "interpolate p=6 f32 complex, 10⁶, 128³", READ, SOME, RATE, {}),
    ("order", "order 10⁷, 128³", SPREAD, MANY, MS, {}),
    ("order-some", "order 10⁶, 128³", SPREAD, SOME, MS, {}),
    (NEARLY, "order 10⁷, 128³, nearly sorted", SPREAD, MANY, MS, {}),
    ("spread-few", "spread 10⁴, 128³, p=6 f32 real, captured", SPREAD, FEW, US, REAL),
    ("interpolate-few", "interpolate 10⁴, 128³, p=6 f32 real, captured", READ, FEW, US, REAL),
    ("error-spread", "error of spread, 10⁷ uniform", SPREAD, MANY, ERROR, {}),
    ("error-spread-clustered", "error of spread, 10⁷ in 1 % of the volume", SPREAD, MANY, ERROR, CLUSTERED),
    ("error-interpolate", "error of interpolate, 10⁷ uniform", READ, MANY, ERROR, {}),
    ("error-interpolate-clustered", "error of interpolate, 10⁷ in 1 % of the volume", READ, MANY, ERROR, CLUSTERED),
    ("deterministic", "spread p=6 f32 complex, 10⁷, 128³, reproducible", SPREAD, MANY, TIMES, {}),
    ("deterministic-some", "spread p=6 f32 complex, 10⁶, 128³, reproducible", SPREAD, SOME, TIMES, {}),
)  # fmt: skip
ROWS = tuple(
    Row(key, words, Case(direction, count, 128, **more), unit) for key, words, direction, count, unit, more in _TABLE
)


def jobs(bench: Bench) -> list[Row]:
    """Return the rows to measure; a small run has few particles."""
    return [replace(row, case=smaller(row.case)) for row in ROWS] if bench.small else list(ROWS)


def smaller(case: Case) -> Case:
    """Return a tiny case of the same kind."""
    return replace(case, count=min(case.count // 3000 + 100, LEAST), nodes=20)


def rows(bench: Bench, row: Row) -> Iterable[dict[str, Any]]:
    """Measure a row and return it once per method."""
    return {MS: _orders, TIMES: _deterministic}.get(row.unit, _calls)(bench, row)


def _calls(bench: Bench, row: Row) -> Iterable[dict[str, Any]]:
    auto, methods = bench.rivals(row.case, most=3)
    for method in methods:
        job = Job(row.case, method)
        yield columns(bench, row, job, bench.measure(job, error=True), auto=method == auto)


def figure(row: Row, times: Measured, seconds: float) -> float:
    """Return a figure in the row's unit."""
    if row.unit == ERROR:
        return times.error
    if row.unit in (RATE, POINTS):
        return row.case.count * (row.case.reals if row.unit == POINTS else 1) / seconds / 1e9
    return seconds * (1e3 if row.unit == MS else 1e6)


def columns(
    bench: Bench, row: Row, job: Job, times: Measured, *, auto: bool = False, value: float = math.nan, by: str = ""
) -> dict[str, Any]:
    """Return the columns of a row of the CSV file."""
    if not by:
        captured = row.captured and not math.isnan(times.graph_s)
        by = "graph" if captured else "calls"
        value = figure(row, times, times.graph_s if captured else times.call_s)
    return dict(
        row=row.key, words=row.words, unit=row.unit, method=job.method, options=job.chosen, auto=int(auto),
        figure=short(value), by=by, **row.case.columns(), **times.columns(), **bench.facts,
    )  # fmt: skip


# ---- orders -----------------------------------------------------------------------------------------------


def ordering(bench: Bench, case: Case) -> list[str]:
    """Return the walks; without any, the method that predicts the shortest preparation."""
    able = {n: c for n, c in bench.asked(case)[1].items() if c.reason is None}
    others = [n for n, c in able.items() if inside.prepares(c.method)]
    return [n for n in able if n == WALK] or sorted(others, key=lambda n: able[n].prepare)[:1]


def _orders(bench: Bench, row: Row) -> Iterable[dict[str, Any]]:
    """Yield the time from new positions to a prepared method; ``prepare_s`` is the part after locating."""
    case = row.case
    for method in ordering(bench, case):
        job = Job(case, method)
        if not row.nearly:
            times = bench.measure(job, positions=True)
        else:
            with bench.setup(job, positions=bench.place.upload(nearly_sorted(bench, job))) as made:
                made.call()
                seconds = bench.seconds(made.call)  # first: after a capture of positions every call prepares anew
                both, alone, by = bench.preparing(made, case.direction)
                times = Measured(*seconds, both, alone, by, nbytes=made.plan.nbytes)
        yield columns(bench, row, job, times, value=figure(row, times, times.positions_s), by=times.positions_by)


def nearly_sorted(bench: Bench, job: Job) -> Any:
    """Return positions in the order in which a plan keeps them, after each particle moved by 0.3 cells."""
    case = job.case
    with bench.setup(replace(job, case=replace(case, order="sorted"))) as made:
        order = inside.order_of(made.plan)
    return clouds.moved(clouds.positions(case.cloud, case.count, case.dtype)[order], case.nodes)


# ---- reproducible methods ---------------------------------------------------------------------------------


def _deterministic(bench: Bench, row: Row) -> Iterable[dict[str, Any]]:
    """Yield the times of reproducible methods, in units of the fastest method's time."""
    case = row.case
    times = [bench.measure(Job(case, m)).call_s for m in bench.rivals(case, most=3)[1]]
    fastest = min((t for t in times if not math.isnan(t)), default=math.nan)
    with bench.setup(Job(case, "auto"), deterministic=True) as made:
        auto = inside.method_of(made.plan, "spread").name
    candidates = bench.asked(case)[1]
    able = {n: c for n, c in candidates.items() if c.reason is None and c.method.deterministic and bench.fits(c.bytes)}
    near = sorted(able, key=lambda n: able[n].apply)[: 1 if bench.small else 3]
    for method in dict.fromkeys([auto, *near]):
        job = Job(case, method)
        result = bench.measure(job, error=True, deterministic=True)
        yield columns(bench, row, job, result, auto=method == auto, value=result.call_s / fastest, by="calls")
