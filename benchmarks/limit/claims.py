# SPDX-License-Identifier: BSD-3-Clause
"""What was promised, and what the CSV files of ``run.py`` say of it.

Measures nothing. A verdict follows from the figures alone: a row is judged by the best of its methods. Files of OpenCL
on the same device are compared with CUDA's where both are there.

    python benchmarks/limit/claims.py [--device nvidia-h200] [--results DIR] [--docs docs/performance]
"""

from __future__ import annotations

import argparse
import csv
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[1]))

from limit import peer, thresholds
from limit.bench import WALK
from limit.rows import ERROR, MS, POINTS, RATE, ROWS, TIMES, Row
from measure import RESULTS

Rows = list[dict[str, Any]]
OPENCL = 0.8  # of CUDA's rate, to be reached by walks through OpenCL
PEER = {"spread": (3.0, 5.0), "interpolate": (1.5, 3.0)}  # to reach and more, of the geometric mean
NONE_BELOW, LISTED = 0.7, 1.0
HEAD = ("case", "unit", "prototype", "to reach", "stretch", "walk", "best", "automatic", "error", "so")
RATIO = "ratio"
WITHOUT = "without stored matrices"
WRITTEN = ".. Written by benchmarks/limit/claims.py from benchmarks/results/{}."
MISSING = "not measured"
RIGHT = {"float32": 1e-6, "float64": 1e-12}  # errors beyond which a rate is worth nothing


@dataclass(frozen=True)
class Told:
    """A row of the table, with the numbers that it was made from."""

    words: str
    unit: str
    prototype: float = math.nan
    reach: float = math.nan
    stretch: float = math.nan
    walk: float = math.nan
    best: float = math.nan
    best_by: str = ""
    auto: float = math.nan
    auto_by: str = ""
    error: float = math.nan
    allowed: float = math.inf
    more: str = ""  # beside the best
    note: str = ""

    @property
    def verdict(self) -> str:
        """Return what follows."""
        if math.isnan(self.best):
            return f"{MISSING}: {self.note}" if self.note else MISSING
        if self.error > self.allowed:
            return f"wrong: the error is {figure(self.error, ERROR)}"
        return judged(self.best, self.reach, self.stretch, lower(self.unit))

    def cells(self) -> tuple[str, ...]:
        """Return the row as text."""
        best = named(self.best, self.best_by, self.unit) + (f", {self.more}" if self.more else "")
        return (
            self.words, self.unit, figure(self.prototype, self.unit), figure(self.reach, self.unit),
            figure(self.stretch, self.unit), figure(self.walk, self.unit), best,
            named(self.auto, self.auto_by, self.unit), figure(self.error, ERROR), self.verdict,
        )  # fmt: skip


def lower(unit: str) -> bool:
    """Return whether less is better."""
    return unit not in (RATE, POINTS, RATIO)


def judged(value: float, reach: float, stretch: float, less: bool) -> str:
    """Return the verdict on a figure: the ratio is what it is of what is to be reached, more than 1 is better."""
    if math.isnan(reach):
        return ""
    better = (lambda limit: value <= limit) if less else (lambda limit: value >= limit)
    if not math.isnan(stretch) and better(stretch):
        return "stretch"
    if better(reach):
        return "reached"
    return f"missed, at {reach / value if less else value / reach:.2f} of it"


def figure(value: float, unit: str) -> str:
    """Return a figure for a reader, empty where there is none."""
    if math.isnan(value):
        return ""
    if unit == ERROR:
        return f"{value:.1e}".replace("e-0", "e-")
    return f"{value:.3g}"


def named(value: float, method: str, unit: str) -> str:
    """Return a figure with the method that made it."""
    return f"{figure(value, unit)} ({method})" if not math.isnan(value) and method else figure(value, unit)


def number(row: dict[str, Any], column: str) -> float:
    """Return a number of a row, NaN where there is none."""
    return float(row.get(column) or math.nan)


def read(folder: Path, part: str, device: str) -> Rows:
    """Return the rows of a file, none if it is not there."""
    file = folder / f"limit-{part}-{device}.csv"
    if not file.exists():
        return []
    with file.open(newline="") as opened:
        return list(csv.DictReader(opened))


# ---- the promised figures ---------------------------------------------------------------------------------


def promised(found: Rows) -> list[Told]:
    """Return each row of the table with what was measured for it."""
    return [_told(row, [r for r in found if r["row"] == row.key]) for row in ROWS]


def _told(row: Row, found: Rows) -> Told:
    plain = dict(words=row.words, unit=row.unit, prototype=row.prototype, reach=row.reach, stretch=row.stretch)
    able = [r for r in found if not math.isnan(number(r, "figure"))]
    if not able:
        return Told(**plain, note=next((r["note"] for r in found if r.get("note")), ""))
    able = [r for r in able if row.unit != ERROR or r["method"] == WALK] or able
    # Of errors the largest counts: that of walks, if there are any.
    pick: Callable[..., dict[str, Any]] = min if lower(row.unit) and row.unit != ERROR else max
    best = pick(able, key=lambda r: number(r, "figure"))
    walks = [r for r in able if r["method"] == WALK]
    walk = number(pick(walks, key=lambda r: number(r, "figure")), "figure") if walks else math.nan
    auto = next((r for r in found if str(r["auto"]) == "1"), {})
    more = f"{figure(number(best, 'prepare_s') * 1e3, MS)} of it after locating" if row.unit == MS else ""
    allowed = math.inf if row.unit == ERROR else RIGHT[row.case.dtype]
    return Told(**plain, walk=walk, best=number(best, "figure"), best_by=best["method"], auto=number(auto, "figure"),
                auto_by=auto.get("method", ""), error=number(best, "error"), allowed=allowed, more=more)  # fmt: skip


# ---- the peer ---------------------------------------------------------------------------------------------


def against_peer(found: Rows) -> list[Told]:
    """Return the rows about the peer: geometric means, and the least of all cases; both also without matrices."""
    means = peer.means(found)
    told = []
    for direction, (reach, stretch) in PEER.items():
        words = f"{direction}, cuFINUFFT's kernel time over ours, geometric mean"
        count = means.get((direction, "ratio"), (0, 0, 0))[2]
        names = ("ratio", "walk", "auto", "without")
        values, least = ({n: means.get((direction, n), (math.nan,) * 2)[i] for n in names} for i in (0, 1))
        others = {name: means.get((direction, f"{name}_ratio"), (math.nan,))[0] for name in ("call", "total")}
        more = f"{others['call']:.2f} by plain calls, {others['total']:.2f} from positions on" if count else ""
        told.append(
            Told(f"{words} of {count} cases", RATIO, reach=reach, stretch=stretch, walk=values["walk"],
                 best=values["ratio"], auto=values["auto"], more=more)
        )  # fmt: skip
        told.append(
            Told(f"{direction}, the least ratio of these", RATIO, math.nan, NONE_BELOW, LISTED, walk=least["walk"],
                 best=least["ratio"], auto=least["auto"])
        )  # fmt: skip
        told.append(Told(f"{direction}, {WITHOUT}, the geometric mean", RATIO, best=values["without"]))
        told.append(Told(f"{direction}, {WITHOUT}, the least ratio", RATIO, best=least["without"]))
    return told


def listed(found: Rows) -> list[tuple[str, ...]]:
    """Return the cases that are slower than the peer, and what limits them."""
    lines = []
    for row in peer.below(found, LISTED):
        bound, ours, theirs = number(row, "bound_s"), _ours(row), number(row, "peer_kernel_s")
        limit = (
            "not known" if math.isnan(bound) else f"{row['bound']}: {bound * 1e6:.1f} µs, {bound / ours:.0%} of ours"
        )
        lines.append((_words(row), row["method"], f"{ours * 1e6:.1f} µs", f"{theirs * 1e6:.1f} µs",
                      f"{number(row, 'ratio'):.2f}", limit))  # fmt: skip
    return lines


def matrices(found: Rows) -> list[tuple[str, ...]]:
    """Return the cases won by stored matrices: what building one takes, and the best method without."""
    lines = []
    for row, other in peer.won_by_matrices(found):
        best = (
            (f"{other['method']}, {_ours(other) * 1e6:.1f} µs", f"{number(other, 'ratio'):.2f}") if other else ("", "")
        )
        lines.append((_words(row), row["method"], f"{number(row, 'prepare_s') * 1e6:,.0f} µs",
                      f"{_ours(row) * 1e6:.1f} µs", f"{number(row, 'ratio'):.2f}", *best))  # fmt: skip
    return lines


def _words(row: dict[str, Any]) -> str:
    return f"{row['direction']} p={row['p']} {row['dtype']}, K={row['K']}, N={int(row['N']):,}"


def _ours(row: dict[str, Any]) -> float:
    """Return the seconds that a ratio is of."""
    captured = number(row, "graph_s")
    return number(row, "call_s") if math.isnan(captured) else captured


def words(found: Rows, source: str) -> str:
    """Return substitutions for the documentation's pages: means of the peer's time over ours, by direction."""
    means = peer.means(found)
    lines = [WRITTEN.format(source), "", f".. |peer_cases| replace:: {len(peer.table()) // len(peer.OPERATIONS)}"]
    for direction in PEER:
        for name in ("ratio", "without"):
            mean, least = means.get((direction, name), (math.nan,) * 2)[:2]
            for what, value in ((name, mean), (f"{name}_least", least)):
                told = f"({MISSING})" if math.isnan(value) else f"{value:.2f}"
                lines.append(f".. |{direction}_{what}| replace:: {told}")
    return "\n".join([*lines, ""])


# ---- OpenCL -----------------------------------------------------------------------------------------------


def portable(cuda: Rows, opencl: Rows) -> list[tuple[Row, str, float]]:
    """Return row, method and CUDA's time over OpenCL's, of walks; by plain calls, which both can make.

    Orders are compared by what positions and preparation take together, which is captured on CUDA alone.
    """
    found = []
    for row in ROWS:
        if row.unit in (ERROR, TIMES):
            continue
        column = "positions_s" if row.unit == MS else "call_s"
        times = [
            {r["method"]: number(r, column) for r in rows if r["row"] == row.key and r["method"] == WALK}
            for rows in (cuda, opencl)
        ]
        for method, ours in times[0].items():
            theirs = times[1].get(method, math.nan)
            if not math.isnan(ours) and not math.isnan(theirs):
                found.append((row, method, ours / theirs))
    return found


def through_opencl(ratios: list[tuple[Row, str, float]]) -> Told:
    """Return the row about OpenCL: the least of CUDA's time over OpenCL's, of walks where rates are promised.

    Shorter calls wait for the host.
    """
    least = min((ratio for row, _, ratio in ratios if row.unit in (RATE, POINTS)), default=math.nan)
    words = "walks through OpenCL, rates of 10⁶ particles and more: CUDA's time over theirs, the least"
    return Told(words, RATIO, math.nan, OPENCL, best=least)


# ---- pages ------------------------------------------------------------------------------------------------


def restructured(source: str, head: tuple[str, ...], widths: str, rows: list[tuple[str, ...]]) -> str:
    """Return a table for the documentation's pages."""
    lines = [WRITTEN.format(source), "", ".. list-table::", "   :header-rows: 1", f"   :widths: {widths}", ""]
    for row in [head, *rows]:
        lines += [f"   {'*' if i == 0 else ' '} - {cell}".rstrip() for i, cell in enumerate(row)]
    return "\n".join(lines) + "\n"


class Shown(NamedTuple):
    """A table: for a terminal, and for the documentation as NAME.inc."""

    name: str
    source: str  # CSV
    head: tuple[str, ...]
    widths: str
    cells: list[tuple[str, ...]]


def shown(results: Path, device: str) -> tuple[list[Told], list[Shown], dict[str, str]]:
    """Return the rows that are judged, all tables, and what is written for the documentation by file."""
    rows, ours, opencl = (read(results, part, device) for part in ("rows", "peer", "opencl-rows"))
    ratios = portable(rows, opencl)
    told = [*promised(rows), *against_peer(ours), through_opencl(ratios)]
    slower = ("slower than the peer", "method", "ours", "its kernels", "ratio", "what limits it at least")
    stored = ("won by a stored matrix", "method", "building it", "ours", "ratio", "the best without", "its ratio")
    both = ("through OpenCL", "method", "CUDA's time over OpenCL's")
    of_peer = f"limit-peer-{device}.csv"
    tables = [
        Shown("limit_rows", f"limit-*-{device}.csv", HEAD, "22 8 8 7 7 7 15 12 7 10", [t.cells() for t in told]),
        Shown("limit_below", of_peer, slower, "30 12 10 12 8 28", listed(ours)),
        Shown("limit_matrices", of_peer, stored, "30 12 12 10 8 20 8", matrices(ours)),
        Shown("limit_opencl", f"limit-*rows-{device}.csv", both, "50 25 25",
              [(row.words, method, f"{ratio:.2f}") for row, method, ratio in ratios]),
    ]  # fmt: skip
    pages = {}
    for name, source, head, widths, cells in tables:
        none = [("none", *[""] * (len(head) - 1))]
        pages[f"{name}.inc"] = restructured(source, head, widths, cells or none)
    return told, tables, pages | {"limit_ratios.inc": words(ours, of_peer)}


def main() -> None:
    """Print the tables, and write them for the documentation if asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="nvidia-h200", help="as in the names of the CSV files")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--docs", type=Path, help="write limit_*.inc into this folder")
    asked = parser.parse_args()
    told, tables, pages = shown(asked.results, asked.device)
    for name, _, head, _, cells in tables:
        table = Table(*head, title=f"{asked.device}: {name}", width=150, show_lines=True)
        for row in cells:
            table.add_row(*row)
        Console(width=150).print(table)
    for name, text in pages.items() if asked.docs else ():
        (asked.docs / name).write_text(text, encoding="utf-8")
    for line in thresholds.summary(read(asked.results, "thresholds", asked.device)):
        print(line)
    missed = [f"{t.words}: {t.verdict}" for t in told if t.verdict.startswith(("missed", MISSING))]
    print(*(missed or ["All figures are reached."]), sep="\n")


if __name__ == "__main__":
    main()
