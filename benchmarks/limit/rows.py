# SPDX-License-Identifier: BSD-3-Clause
"""The figures that are promised: one row a case, with what prototypes made, what is to be reached, what would be more.

A row is measured for walks, for the automatic choice and for the best of the other methods; ``claims.py`` puts them
side by side. ``figure`` is in the row's ``unit``: of plain calls, or of captured ones where ``by`` says ``graph``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import particlemesh as pm
from limit import cases
from limit.bench import WALK, Bench, Job, Measured
from limit.cases import Case
from particlemesh.methods.contract import Method
from place import short

FIGURE = "rows"
RATE, POINTS, MS, US, ERROR, TIMES = "G/s", "G channel-points/s", "ms", "µs", "relative l2", "times the fastest"
NEARLY = "order-nearly"
LEAST = 3_000  # particles of a small run, at most


@dataclass(frozen=True)
class Row:
    """A row of the table. NaN: nothing is promised."""

    key: str
    words: str
    case: Case
    unit: str = RATE
    prototype: float = math.nan
    reach: float = math.nan
    stretch: float = math.nan

    @property
    def captured(self) -> bool:
        """Return whether calls are replayed from a captured graph."""
        return self.unit == US

    @property
    def nearly(self) -> bool:
        """Return whether positions come sorted but for moves of 0.3 cells."""
        return self.key == NEARLY

    def __str__(self) -> str:
        return self.words


MANY, SOME, FEW = 10**7, 10**6, 10**4
DOUBLE, REAL, FOUR = {"dtype": "float64"}, {"values": "real"}, {"values": "4"}
WITHIN = (1e-6,)  # errors to be reached
_TABLE: tuple[tuple[Any, ...], ...] = (
    # key, words, direction, particles, unit, (prototype, to reach, stretch), how the case differs
    ("spread", "spread p=6 f32 complex, 10⁷, 128³", "spread", MANY, RATE, (21.2, 19, 26), {}),
    ("spread-real", "spread p=6 f32 real, 10⁷, 128³", "spread", MANY, RATE, (28.6, 26, 40), REAL),
    ("spread-p4", "spread p=4 f32 complex, 10⁷, 128³", "spread", MANY, RATE, (34, 29, 40), {"support": 4}),
    ("spread-f64", "spread p=6 f64 complex, 10⁷, 128³", "spread", MANY, RATE, (12.9, 11.5, 15), DOUBLE),
    ("spread-some", "spread p=6 f32 complex, 10⁶, 128³", "spread", SOME, RATE, (9.8, 8.5, 14), {}),
    ("spread-f64-some", "spread p=6 f64 complex, 10⁶, 128³", "spread", SOME, RATE, (4.6, 4.2, 8), DOUBLE),
    ("spread-4", "spread p=6 f32, 4 real components interleaved, 10⁷, 128³", "spread", MANY, POINTS, (59, 50, 70),
     FOUR | {"layout": "interleaved"}),
    ("spread-4-planar", "spread p=6 f32, 4 real components planar, 10⁷, 128³", "spread", MANY, POINTS, (), FOUR),
    ("interpolate", "interpolate p=6 f32 complex, 10⁷, 128³", "interpolate", MANY, RATE, (15.5, 14, 22), {}),
    ("interpolate-sorted", "interpolate p=6 f32 complex, 10⁷, 128³, in sorted order", "interpolate", MANY, RATE,
     (18.4, 16.5, 26), {"order": "sorted"}),
    ("interpolate-some", "interpolate p=6 f32 complex, 10⁶, 128³", "interpolate", SOME, RATE, (7.9, 7, 12), {}),
    ("order", "order 10⁷, 128³", "spread", MANY, MS, (0.543, 0.6, 0.35), {}),
    ("order-some", "order 10⁶, 128³", "spread", SOME, MS, (0.064, 0.07, 0.05), {}),
    (NEARLY, "order 10⁷, 128³, nearly sorted", "spread", MANY, MS, (0.29, 0.32, 0.2), {}),
    ("spread-few", "spread 10⁴, 128³, p=6 f32 real, captured", "spread", FEW, US, (12.4, 14, 9), REAL),
    ("interpolate-few", "interpolate 10⁴, 128³, p=6 f32 real, captured", "interpolate", FEW, US, (8.7, 10, 7), REAL),
    ("error-spread", "error of spread, 10⁷ uniform", "spread", MANY, ERROR, (4.6e-7, *WITHIN), {}),
    ("error-spread-clustered", "error of spread, 10⁷ in 1 % of the volume", "spread", MANY, ERROR, (5.5e-7, *WITHIN),
     {"cloud": "clustered"}),
    ("error-interpolate", "error of interpolate, 10⁷ uniform", "interpolate", MANY, ERROR, (4.6e-7, *WITHIN), {}),
    ("error-interpolate-clustered", "error of interpolate, 10⁷ in 1 % of the volume", "interpolate", MANY, ERROR,
     (math.nan, *WITHIN), {"cloud": "clustered"}),
    ("deterministic", "spread p=6 f32 complex, 10⁷, 128³, the same bits every time", "spread", MANY, TIMES, (), {}),
    ("deterministic-some", "spread p=6 f32 complex, 10⁶, 128³, the same bits every time", "spread", SOME, TIMES, (),
     {}),
)  # fmt: skip
ROWS = tuple(
    Row(key, words, Case(direction, count, 128, **more), unit, *numbers)
    for key, words, direction, count, unit, numbers, more in _TABLE
)


def jobs(bench: Bench) -> list[Row]:
    """Return the rows to be measured; in a small run with few particles."""
    return [replace(row, case=smaller(row.case)) for row in ROWS] if bench.small else list(ROWS)


def smaller(case: Case) -> Case:
    """Return a case of the same kind that takes no time."""
    return replace(case, count=min(case.count // 3000 + 100, LEAST), nodes=20)


def rows(bench: Bench, row: Row) -> list[dict[str, Any]]:
    """Measure a row and return it, once for each method."""
    if row.unit == MS:
        return list(_orders(bench, row))
    if row.unit == TIMES:
        return list(_deterministic(bench, row))
    return list(_calls(bench, row))


def _calls(bench: Bench, row: Row) -> Iterable[dict[str, Any]]:
    try:
        auto, methods = bench.rivals(row.case, most=3)
    except pm.MethodNotSuitable as reason:  # in sorted order, where plans have none
        yield columns(bench, row, Job(row.case, "auto"), Measured(note=" ".join(str(reason).split())))
        return
    for method in methods:
        job = Job(row.case, method)
        found = bench.measure(job, error=True)
        yield columns(bench, row, job, found, auto=method == auto)


def figure(row: Row, found: Measured, seconds: float) -> float:
    """Return a figure in the row's unit."""
    if row.unit == ERROR:
        return found.error
    if row.unit in (RATE, POINTS):
        return row.case.count * (row.case.reals if row.unit == POINTS else 1) / seconds / 1e9
    return seconds * (1e3 if row.unit == MS else 1e6)


def columns(
    bench: Bench, row: Row, job: Job, found: Measured, *, auto: bool = False, value: float = math.nan, by: str = ""
) -> dict[str, Any]:
    """Return the columns of a row of the CSV."""
    if not by:
        captured = row.captured and not math.isnan(found.graph_s)
        by = "graph" if captured else "calls"
        value = figure(row, found, found.graph_s if captured else found.call_s)
    return dict(
        row=row.key, words=row.words, unit=row.unit, method=job.method, options=job.chosen, auto=int(auto),
        figure=short(value), prototype=row.prototype, reach=row.reach, stretch=row.stretch, by=by,
        **row.case.columns(), **found.columns(), **bench.facts,
    )  # fmt: skip


# ---- orders -----------------------------------------------------------------------------------------------


def ordering(bench: Bench, case: Case) -> list[str]:
    """Return the walks, or where there are none the method with a preparation that predicts the shortest."""
    _, said = bench.asked(case)
    able = {n: c for n, c in said.items() if c.reason is None}
    walks = [n for n in able if n == WALK]
    others = [n for n, c in able.items() if c.method.prepare is not Method.prepare]
    return walks or sorted(others, key=lambda n: able[n].prepare)[:1]


def _orders(bench: Bench, row: Row) -> Iterable[dict[str, Any]]:
    """Yield the time from positions to where the method can be applied; ``prepare_s`` is the part after locating."""
    case = row.case
    for method in ordering(bench, case):
        job = Job(case, method)
        if not row.nearly:
            found = bench.measure(job, positions=True)
        else:
            host = nearly_sorted(bench, job)
            with bench.setup(case, method, positions=bench.place.upload(host)) as made:
                made.call()
                times = bench.seconds(made.call)  # first: once positions were captured, every call prepares anew
                both, alone, by = bench.preparing(made, case.direction)
                found = Measured(*times, both, alone, by, nbytes=made.plan.nbytes)
        yield columns(bench, row, job, found, value=figure(row, found, found.positions_s), by=found.positions_by)


def nearly_sorted(bench: Bench, job: Job) -> Any:
    """Return positions in the order that a plan would keep them in, after each moved by 0.3 cells."""
    case = job.case
    x = cases.positions(case.cloud, case.count, case.dtype)
    order = None
    try:
        with bench.setup(replace(case, order="sorted"), job.method) as made:
            order = bench.order_of(made.plan)
    except pm.MethodNotSuitable:  # no such order in this version, or not for this method
        pass
    return cases.moved(x[cases.by_block(x, case.nodes) if order is None else order], case.nodes)


# ---- determinism ------------------------------------------------------------------------------------------


def _deterministic(bench: Bench, row: Row) -> Iterable[dict[str, Any]]:
    """Yield what methods that promise the same bits take, in units of the fastest's time."""
    case = row.case
    _, methods = bench.rivals(case, most=3)
    times = [bench.measure(Job(case, m)).call_s for m in methods]
    fastest = min((t for t in times if not math.isnan(t)), default=math.nan)
    with bench.setup(case, "auto", deterministic=True) as made:
        auto = made.plan._method("spread").name
    _, said = bench.asked(case)
    sure = {n: c for n, c in said.items() if c.reason is None and c.method.deterministic and bench._fits(c.bytes)}
    near = sorted(sure, key=lambda n: sure[n].apply)[: 1 if bench.small else 3]
    for method in dict.fromkeys([auto, *near]):
        job = Job(case, method)
        found = bench.measure(job, error=True, deterministic=True)
        yield columns(bench, row, job, found, auto=method == auto, value=found.call_s / fastest, by="calls")
