# SPDX-License-Identifier: BSD-3-Clause
"""The tables of ``limit-*.csv`` for the documentation: rows, cuFINUFFT, OpenCL beside CUDA, and bounds on errors."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from core import peer
from core.rows import ERROR, MS, POINTS, RATE, ROWS, TIMES, Row
from harness.bench import WALK
from harness.claims import Claim, Files, value
from harness.tables import geometric_mean, number

Rows = list[dict[str, Any]]
DEVICE = "nvidia-h100-80gb-hbm3"  # whose figures the documentation has
MISSING = "not measured"
RATIO = "ratio"
HEAD = ("case", "unit", "walk", "best", "automatic", "error")
BELOW = ("slower than cuFINUFFT", "method", "ours", "its kernels", "ratio", "nearest lower bound")
MATRICES = ("won by a stored matrix", "method", "building it", "ours", "ratio", "best without", "its ratio")
SPARSE = ("p = 6, complex", "particles", "nodes", "float32", "ratio", "float64", "ratio")
OPENCL = ("OpenCL beside CUDA", "method", "CUDA's time over OpenCL's")
# Rates of wrong results are worth nothing, so errors have bounds.
CLAIMS = tuple(
    Claim(f"Walks in {dtype} are accurate", "", "relative l2 error of the rows",
          value("limit-rows", "error", ("row",), best=max, method=WALK, dtype=dtype),
          high=high)
    for dtype, high in (("float32", 1e-6), ("float64", 1e-12))
)  # fmt: skip


@dataclass(frozen=True)
class Line:
    """A line of the first table, with the numbers that it shows."""

    words: str
    unit: str
    walk: float = math.nan
    best: float = math.nan
    best_by: str = ""
    auto: float = math.nan
    auto_by: str = ""
    error: float = math.nan
    more: str = ""  # beside the best

    def cells(self) -> tuple[str, ...]:
        """Return the line as text."""
        best = named(self.best, self.best_by, self.unit) + (f", {self.more}" if self.more else "")
        return (self.words, self.unit, figure(self.walk, self.unit), best or MISSING,
                named(self.auto, self.auto_by, self.unit), figure(self.error, ERROR))  # fmt: skip


def figure(value: float, unit: str) -> str:
    """Return a figure as text; NaN is empty."""
    if math.isnan(value):
        return ""
    return f"{value:.1e}".replace("e-0", "e-") if unit == ERROR else f"{value:.3g}"


def named(value: float, method: str, unit: str) -> str:
    """Return a figure with its method."""
    return f"{figure(value, unit)} ({method})" if not math.isnan(value) and method else figure(value, unit)


def of_rows(rows: Rows) -> dict[str, Line]:
    """Return a line for each row of ``core.rows``, by its key."""
    return {row.key: _line(row, [r for r in rows if r["row"] == row.key]) for row in ROWS}


def _line(row: Row, rows: Rows) -> Line:
    measured = [r for r in rows if not math.isnan(number(r, "figure"))]
    if not measured:
        return Line(row.words, row.unit)
    walks = [r for r in measured if r["method"] == WALK]
    considered = (walks or measured) if row.unit == ERROR else measured
    # The largest rate, the shortest time; of errors the largest counts.
    pick = max if row.unit in (RATE, POINTS, ERROR) else min
    best = pick(considered, key=lambda r: number(r, "figure"))
    walk = number(pick(walks, key=lambda r: number(r, "figure")), "figure") if walks else math.nan
    auto = next((r for r in rows if str(r["auto"]) == "1"), {})
    more = f"{figure(number(best, 'prepare_s') * 1e3, MS)} of it after locating" if row.unit == MS else ""
    return Line(row.words, row.unit, walk, number(best, "figure"), best["method"], number(auto, "figure"),
                auto.get("method", ""), number(best, "error"), more)  # fmt: skip


# ---- cuFINUFFT --------------------------------------------------------------------------------------------


def against_peer(rows: Rows) -> list[Line]:
    """Return the lines about cuFINUFFT: geometric means and least ratios of all cases, also without matrices."""
    means, lines = peer.means(rows), []
    for direction in peer.OPERATIONS.values():
        mean, least, of = ({p: means.get((direction, p), (math.nan,) * 3)[i] for p in peer.PICKS} for i in range(3))
        count = 0 if math.isnan(of["ratio"]) else int(of["ratio"])
        more = f"{mean['call_ratio']:.2f} by plain calls, {mean['total_ratio']:.2f} from positions on" if count else ""
        words = f"{direction}, cuFINUFFT's kernel time over ours, geometric mean of {count} cases"
        lines += [
            Line(words, RATIO, mean["walk"], mean["ratio"], "", mean["auto"], more=more),
            Line(f"{direction}, the least ratio of these", RATIO, least["walk"], least["ratio"], "", least["auto"]),
            Line(f"{direction}, without stored matrices, geometric mean", RATIO, best=mean["without"]),
            Line(f"{direction}, without stored matrices, least ratio", RATIO, best=least["without"]),
        ]
    return lines


def below(rows: Rows) -> list[tuple[str, ...]]:
    """Return the cases in which cuFINUFFT is faster, with the nearest lower bound."""
    lines = []
    for row in peer.below(rows):
        bound, ours, theirs = number(row, "bound_s"), _ours(row), number(row, "peer_kernel_s")
        limit = "unknown" if math.isnan(bound) else f"{row['bound']}: {bound * 1e6:.1f} µs, {bound / ours:.0%} of ours"
        lines.append((_case(row), row["method"], f"{ours * 1e6:.1f} µs", f"{theirs * 1e6:.1f} µs",
                      f"{number(row, 'ratio'):.2f}", limit))  # fmt: skip
    return lines


def matrices(rows: Rows) -> list[tuple[str, ...]]:
    """Return the cases that stored matrices win: the time to build one, and the best method without."""
    lines = []
    for row, other in peer.won_by_matrices(rows):
        best = ("", "")
        if other:
            best = f"{other['method']}, {_ours(other) * 1e6:.1f} µs", f"{number(other, 'ratio'):.2f}"
        lines.append((_case(row), row["method"], f"{number(row, 'prepare_s') * 1e6:,.0f} µs",
                      f"{_ours(row) * 1e6:.1f} µs", f"{number(row, 'ratio'):.2f}", *best))  # fmt: skip
    return lines


def sparse(rows: Rows, support: int = 6, densest: float = 0.6) -> list[tuple[str, ...]]:
    """Return the fastest method and its time in cases of few particles per node, with cuFINUFFT's time over it."""
    best: dict[tuple[str, int, int], dict[str, dict[str, Any]]] = {}
    for row in peer.fastest(rows):
        count, nodes = int(row["N"]), int(row["K"])
        if int(row["p"]) == support and count <= densest * nodes**3:
            best.setdefault((row["direction"], nodes, count), {})[row["dtype"]] = row
    lines = []
    for direction in peer.OPERATIONS.values():
        for (_, nodes, count), by_type in sorted((k, v) for k, v in best.items() if k[0] == direction):
            cells = [
                (f"{_ours(row) * 1e6:.1f} µs ({row['method']})", f"{number(row, 'ratio'):.2f}") if row else ("", "")
                for row in (by_type.get("float32"), by_type.get("float64"))
            ]
            lines.append((direction, f"{count:,}", f"{nodes}³", *cells[0], *cells[1]))
    return lines


def _case(row: dict[str, Any]) -> str:
    return f"{row['direction']} p={row['p']} {row['dtype']}, K={row['K']}, N={int(row['N']):,}"


def _ours(row: dict[str, Any]) -> float:
    captured = number(row, "graph_s")
    return number(row, "call_s") if math.isnan(captured) else captured


def words(rows: Rows, source: str, device: str) -> str:
    """Return substitutions for the documentation: mean and least ratios by direction."""
    means = peer.means(rows)
    lines = [f".. Written by benchmarks/report.py from {source}.", "",
             f".. |peer_cases| replace:: {len(peer.table(device)) // len(peer.OPERATIONS)}"]  # fmt: skip
    for direction in peer.OPERATIONS.values():
        for pick in ("ratio", "without"):
            values = means.get((direction, pick), (math.nan,) * 2)
            for name, number_ in zip((pick, f"{pick}_least"), values, strict=False):
                text = f"({MISSING})" if math.isnan(number_) else f"{number_:.2f}"
                lines.append(f".. |{direction}_{name}| replace:: {text}")
    return "\n".join([*lines, ""])


# ---- OpenCL -----------------------------------------------------------------------------------------------


def beside_cuda(cuda: Rows, opencl: Rows) -> list[tuple[Row, float]]:
    """Return rows with CUDA's time over OpenCL's, each by its own choice; calls are plain, CUDA captures orders."""
    ratios = []
    for row in ROWS:
        column = "positions_s" if row.unit == MS else "call_s"
        times = [
            [number(r, column) for r in rows if r["row"] == row.key and (r["auto"] == "1" or row.unit == MS)]
            for rows in (cuda, opencl)
        ]
        if row.unit not in (ERROR, TIMES) and all(times):
            ratios.append((row, times[0][0] / times[1][0]))
    return [(row, ratio) for row, ratio in ratios if not math.isnan(ratio)]


def _choices(rows: Rows, row: Row) -> str:
    """Return the method of a row's figure, the walk where it is the time of ordering."""
    return next((r["method"] for r in rows if r["row"] == row.key and r["auto"] == "1"), WALK)


def of_opencl(ratios: list[tuple[Row, float]]) -> Line:
    """Return the line about OpenCL: mean and least ratio of rates; shorter calls wait for the host."""
    rates = [ratio for row, ratio in ratios if row.unit in (RATE, POINTS)]
    words = "through OpenCL, 10⁶ particles and more: CUDA's time over OpenCL's, the least"
    more = f"{geometric_mean(rates):.2f} on average" if rates else ""
    return Line(words, RATIO, best=min(rates, default=math.nan), more=more)


# ---- all tables -------------------------------------------------------------------------------------------


def tables(files: Files) -> dict[str, tuple[str, tuple[str, ...], tuple[int, ...], list[tuple[str, ...]]]]:
    """Return source, head, widths and lines of each table by its name."""
    rows, against, opencl = (files.all_rows(f"limit-{part}") for part in ("rows", "peer", "opencl-rows"))
    ratios = beside_cuda(rows, opencl)
    lines = [*of_rows(rows).values(), *against_peer(against), of_opencl(ratios)]
    source, of_peer = f"benchmarks/results/limit-{{}}-{files.device}.csv".format, "peer"
    return {
        "limit_rows": (source("*"), HEAD, (34, 10, 10, 20, 16, 10), [line.cells() for line in lines]),
        "limit_below": (source(of_peer), BELOW, (30, 12, 10, 12, 8, 28), below(against)),
        "limit_matrices": (source(of_peer), MATRICES, (30, 12, 12, 10, 8, 20, 8), matrices(against)),
        "limit_sparse": (source(of_peer), SPARSE, (14, 12, 8, 22, 8, 22, 8), sparse(against)),
        "limit_opencl": (source("*rows"), OPENCL, (50, 25, 25),
                         [(row.words, _choices(opencl, row), f"{ratio:.2f}") for row, ratio in ratios]),
    }  # fmt: skip
