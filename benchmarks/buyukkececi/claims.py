# SPDX-License-Identifier: BSD-3-Clause
"""What Büyükkeçeci, Awile and Sbalzarini (2013) found on a Tesla C2050, and what CSVs say of it today.

Reads what ``run.py`` writes; measures nothing. Their method is ``domain_copies``; where a sentence of theirs is about
GPUs rather than about the method, the fastest method counts. Sizes are those of their tables unless said otherwise.

    python benchmarks/buyukkececi/claims.py [--device nvidia-h200] [--rst docs/performance]
"""

from __future__ import annotations

import argparse
import csv
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[1]))  # the folder of benchmarks, when this file is what runs

from buyukkececi import tables
from buyukkececi.cases import DIRECTIONS, ORDERS, WINDOWS
from buyukkececi.portable import portable
from measure import RESULTS

THEIRS = "domain_copies"
RATED = (THEIRS, "particle", "ordered")  # whose kernels do all that is counted; others have weights from before
WHAT = ("convergence", "times", "breakdown", "tables", "opencl-times")
Row = dict[str, str]
Answer = tuple[str, str]


@dataclass
class Results:
    """Rows of the four files, as text."""

    convergence: list[Row] = field(default_factory=list)
    times: list[Row] = field(default_factory=list)
    breakdown: list[Row] = field(default_factory=list)
    tables: list[Row] = field(default_factory=list)
    opencl_times: list[Row] = field(default_factory=list)

    @classmethod
    def of(cls, device: str, folder: Path = RESULTS) -> Results:
        """Return what was measured on a device; files that are missing have no rows."""
        found = {}
        for what in WHAT:
            path = folder / f"buyukkececi-{what}-{device}.csv"
            if path.exists():
                with path.open(newline="") as file:
                    found[what.replace("-", "_")] = list(csv.DictReader(file))
        return cls(**found)

    def pick(self, file: str, /, **values: object) -> list[Row]:
        """Return the rows of a file whose columns have these values; a tuple holds several."""
        wanted = {k: [str(x) for x in (v if isinstance(v, tuple) else (v,))] for k, v in values.items()}
        rows = [r for r in getattr(self, file) if all(r[name] in v for name, v in wanted.items())]
        if not rows:
            told = ", ".join(str(v) for v in values.values() if not isinstance(v, tuple))
            raise LookupError(f"{file} of {told}")
        return rows

    def gpu(self, **values: object) -> list[Row]:
        """Return rows of the tables that are not the processor's."""
        return self.pick("tables", backend=("cuda", "opencl"), **values)

    def number(self, column: str, **values: object) -> float:
        """Return a number of their method in the tables."""
        values.setdefault("method", THEIRS)
        return float(self.gpu(**values)[0][column])

    def best(self, column: str, **values: object) -> tuple[float, str]:
        """Return the largest number of all methods in the tables, and the method."""
        row = max(self.gpu(**values), key=lambda r: float(r[column]))
        return float(row[column]), row["method"]


@dataclass(frozen=True)
class Claim:
    """A finding of the paper, and how to look it up today."""

    text: str
    paper: str
    look: Callable[[Results], Answer]  # what is measured, and what becomes of the claim


KINDS = [(ndim, window) for ndim in (2, 3) for window in WINDOWS]


def kind(ndim: int, window: str) -> str:
    """Return a case for a reader."""
    return f"{WINDOWS[window]} {ndim}-D"


def share(times: int, of: int) -> str:
    """Return a verdict on a sentence that is about several cases."""
    return "holds" if times == of else f"in {times} of {of} cases" if times else "does not hold"


def interpolation_faster(r: Results) -> Answer:
    ratios = {}
    for dtype in ("float32", "float64"):
        for k in KINDS:
            asked = dict(ndim=k[0], window=k[1], dtype=dtype)
            to_mesh = r.number("kernel_s", direction="spread", **asked)
            ratios[k, dtype] = to_mesh / r.number("kernel_s", direction="interpolate", **asked)
    told = f"spreading's kernel takes {min(ratios.values()):.2f} to {max(ratios.values()):.2f} times interpolation's"
    return told, share(sum(x > 1 for x in ratios.values()), len(ratios))


def best_faster(r: Results) -> Answer:
    ratios = []
    for ndim, window in KINDS:
        asked = dict(ndim=ndim, window=window, dtype="float32")
        least = {d: min(float(x["total_s"]) for x in r.gpu(direction=d, **asked)) for d in DIRECTIONS}
        ratios.append(least["spread"] / least["interpolate"])
    told = (
        f"fastest methods: spreading takes {min(ratios):.2f} to {max(ratios):.2f} times as long, preparation included"
    )
    return told, share(sum(x > 1 for x in ratios), len(ratios))


def efficiency_rises(r: Results) -> Answer:
    rises, of, parts = 0, 0, []
    for direction, arrow in DIRECTIONS.items():
        of_peak = {k: r.number("of_peak", direction=direction, ndim=k[0], window=k[1], dtype="float32") for k in KINDS}
        parts.append(f"{arrow} " + ", ".join(f"{kind(*k)} {v:.1%}" for k, v in of_peak.items()))
        rises += sum(of_peak[d, "m4prime"] > of_peak[d, "cic"] for d in (2, 3))
        rises += sum(of_peak[3, w] > of_peak[2, w] for w in WINDOWS)
        of += 4
    return "; ".join(parts), share(rises, of)


def bandwidth(r: Results) -> Answer:
    asked = dict(window="cic", ndim=3, dtype="float32")
    parts, reached = [], []
    for direction, arrow in DIRECTIONS.items():
        most, method = r.best("of_bandwidth", direction=direction, method=RATED, **asked)
        theirs = r.number("of_bandwidth", direction=direction, **asked)
        parts.append(f"{arrow} {theirs:.0%}, the most {most:.0%} ({method})")
        reached.append(theirs)
    known(reached)
    return "least bytes: " + "; ".join(parts), share(sum(x >= 0.6 for x in reached), 2)


def known(values: list[float]) -> None:
    """Raise LookupError if a number is not: peaks of a device that has none here."""
    if any(math.isnan(v) for v in values):
        raise LookupError("peaks of this device")


def of_peak(direction: str, paper: float) -> Callable[[Results], Answer]:
    def look(r: Results) -> Answer:
        asked = dict(direction=direction, window="m4prime", ndim=3, dtype="float32")
        theirs, full = r.number("of_peak", **asked), r.number("of_peak_with_dummies", **asked)
        most, method = r.best("of_peak", method=RATED, **asked)
        known([theirs])
        told = f"{theirs:.1%}, {full:.1%} with the dummies' work; the most {most:.1%} ({method})"
        verdict = "holds" if theirs >= 0.9 * paper else "with dummies" if full >= 0.9 * paper else "does not hold"
        return told, verdict

    return look


def linear_loses(r: Results) -> Answer:
    found = {(k, d): max(float(x["speedup_transfer"]) for x in r.gpu(direction=d, ndim=k, window="cic", dtype=t))
             for k in (2, 3) for t in ("float32", "float64") for d in DIRECTIONS}  # fmt: skip
    told = f"with transfers the fastest method takes {1 / max(found.values()):.2g} to {1 / min(found.values()):.2g}"
    return f"{told} of the processor's time", share(sum(x < 1 for x in found.values()), len(found))


def most_speedup(column: str, paper: float) -> Callable[[Results], Answer]:
    def look(r: Results) -> Answer:
        asked = dict(direction="interpolate", window="m4prime", ndim=3, dtype="float32")
        theirs, (most, method) = r.number(column, **asked), r.best(column)
        told = f"{theirs:.3g} in that case; the most of all {most:.3g} ({method})"
        return told, "holds" if theirs >= paper else "less" if theirs > 1 else "does not hold"

    return look


def where_most(r: Results) -> Answer:
    rows = r.gpu(method=THEIRS)
    top = max(rows, key=lambda x: float(x["speedup"]))
    told = f"{DIRECTIONS[top['direction']]} {kind(int(top['ndim']), top['window'])} {top['dtype']}"
    same = (top["direction"], top["ndim"], top["window"]) == ("interpolate", "3", "m4prime")
    return f"the most with {told}: {float(top['speedup']):.3g}", "holds" if same else "elsewhere"


def grows(r: Results) -> Answer:
    parts, rises = [], []
    for ndim, window in KINDS:
        for direction in DIRECTIONS:
            asked = dict(direction=direction, ndim=ndim, window=window, dtype="float32", order="nodes")
            ratios = {}
            for row in r.pick("times", backend=("cuda", "opencl"), method=THEIRS, **asked):
                rivals = r.pick("times", backend="cpu", N=row["N"], **asked)
                least = min(float(x["total_s"]) for x in rivals if x["threads"] != "1")
                ratios[int(row["N"])] = least / float(row["total_s"])
            small, large = min(ratios), max(ratios)
            if small < large:
                rises.append(ratios[large] > ratios[small])
                parts.append(ratios[large] / ratios[small])
    if not parts:
        raise LookupError("more than one size")
    told = f"from the smallest size to the largest {min(parts):.2g} to {max(parts):.2g} times the speedup"
    return told, share(sum(rises), len(rises))


def any_order(r: Results) -> Answer:
    ratios: dict[str, list[float]] = {THEIRS: [], "particle": []}
    for shuffled in r.pick("times", backend=("cuda", "opencl"), order="shuffled", method=tuple(ratios)):
        same = {n: shuffled[n] for n in ("direction", "ndim", "window", "dtype", "nodes", "backend", "method")}
        ordered = r.pick("times", order="nodes", **same)[0]
        ratios[shuffled["method"]].append(float(shuffled["total_s"]) / float(ordered["total_s"]))
    parts = [f"{name} {min(v):.2f} to {max(v):.2f}" for name, v in ratios.items() if v]
    verdict = "holds" if max(ratios[THEIRS], default=math.inf) < 1.25 else "costs something"
    return f"shuffled over the nodes' order: {', '.join(parts)}", verdict


def double(r: Results) -> Answer:
    ratios = [
        r.number("total_s", direction=d, ndim=k[0], window=k[1], dtype="float64")
        / r.number("total_s", direction=d, ndim=k[0], window=k[1], dtype="float32")
        for d in DIRECTIONS
        for k in KINDS
    ]
    told = f"{min(ratios):.2f} to {max(ratios):.2f} times as long"
    return told, share(sum(1.6 <= x <= 2.5 for x in ratios), len(ratios))


def kernel_share(direction: str, ndim: int, window: str, dtype: str, stage: str, paper: float) -> Callable[..., Answer]:
    def look(r: Results) -> Answer:
        asked = dict(direction=direction, ndim=ndim, window=window, dtype=dtype, method=THEIRS)
        found = {x["stage"]: float(x["share"]) for x in r.pick("breakdown", **asked)}
        found = {name: v for name, v in found.items() if v >= 0.005}
        there = found.get(stage, 0.0)
        verdict = "holds" if 0.5 * paper <= there <= 1.5 * paper else "less" if there < paper else "more"
        return ", ".join(f"{name} {v:.0%}" for name, v in found.items()), verdict

    return look


def atomics(r: Results) -> Answer:
    ratios = {}
    for dtype in ("float32", "float64"):
        for ndim, window in KINDS:
            asked = dict(direction="spread", ndim=ndim, window=window, dtype=dtype)
            ratios[dtype, ndim, window] = r.number("total_s", **asked) / r.number("total_s", method="particle", **asked)
    told = f"spreading without atomics takes {min(ratios.values()):.2g} to {max(ratios.values()):.2g} times as long"
    return f"{told} as with them (particle)", share(sum(x < 1 for x in ratios.values()), len(ratios))


def same_norms(r: Results) -> Answer:
    rows = [x for x in r.convergence if x["backend"] != "cpu" and x["what"] != "profile"]
    if not rows:
        raise LookupError("a device beside the processor")
    worst: dict[str, float] = {}
    for row in rows:
        eps = float(np.finfo(row["dtype"]).eps)
        worst[row["dtype"]] = max(worst.get(row["dtype"], 0.0), float(row["difference"]) / eps)
    told = ", ".join(f"{v:.2g} of {np.finfo(d).eps:.1e} ({d})" for d, v in worst.items())
    pairs = 0.0
    same = ("what", "ndim", "window", "dtype", "width", "nodes")
    norms = {tuple(x[n] for n in same): x["l2"] for x in r.convergence if x["backend"] == "cpu" and x["l2"]}
    for row in rows:
        twin = norms.get(tuple(row[n] for n in same))
        rounding = float(np.finfo(row["dtype"]).eps) * (float(row["nodes"]) if row["what"] == "remesh" else 1)
        if twin and row["l2"] and float(row["l2"]) > 30 * rounding:
            pairs = max(pairs, abs(float(row["l2"]) / float(twin) - 1))
    return f"results differ by at most {told}; l2 norms by {pairs:.1e} of themselves where they are not rounding", (
        "holds, to rounding" if max(worst.values()) < 100 and pairs < 0.05 else "does not hold"
    )


def orders(r: Results) -> Answer:
    parts, right = [], []
    for what, name in (("interpolate", "M→P"), ("remesh", "P→M of a lattice")):
        for window, order in ORDERS.items():
            rows = [x for x in r.pick("convergence", what=what, window=window, dtype="float64") if x["slope_l2"]]
            slopes = [float(x[f"slope_{norm}"]) for x in rows for norm in ("l2", "linf")]
            if slopes:
                right.append(max(abs(s - order) for s in slopes) < 0.3)
                parts.append(f"{name} {WINDOWS[window]} {min(slopes):.2f} to {max(slopes):.2f}")
    if not parts:
        raise LookupError("slopes")
    return ", ".join(parts), share(sum(right), len(right))


def scatter(r: Results) -> Answer:
    rows = r.pick("convergence", what="scatter", dtype="float64")
    errors = [float(x["l2"]) for x in rows]
    slopes = [float(x["slope_l2"]) for x in rows if x["slope_l2"]]
    told = f"errors of {min(errors):.2f} to {max(errors):.2f} of the function at all sizes"
    if slopes:
        told += f", slopes {min(slopes):.2f} to {max(slopes):.2f}"
    return told, "does not hold" if min(errors) > 0.1 else "holds"


def moments(r: Results) -> Answer:
    parts, right = [], []
    for window, order in ORDERS.items():
        rows = r.pick("convergence", what="moments", window=window, dtype="float64")
        kept = max(float(x["linf"]) for x in rows if int(x["degree"]) < order)
        lost = max(float(x["linf"]) for x in rows if int(x["degree"]) == order)
        right.append(kept < 1e-13 < lost)
        degree = ("", "first", "second")[order - 1]
        parts.append(f"{WINDOWS[window]} to {kept:.0e} up to the {degree}, the next is off by {lost:.0e}")
    return ", ".join(parts), share(sum(right), len(right))


def floor(r: Results) -> Answer:
    rows = r.pick("convergence", what="interpolate", window="m4prime", dtype="float32", width=15.0)
    errors = [float(x["l2"]) for x in rows]
    told = f"single precision, M'4, their function: {min(errors):.0e} to {max(errors):.0e} (l2) at all sizes"
    return told, "holds" if min(errors) > 1e-7 else "lower"


CLAIMS = (
    Claim("Linear converges with order 2, M'4 with 3", "figure 11", orders),
    Claim("In both directions, on the cloud", "in words", scatter),
    Claim("Moments are conserved: linear to the first, M'4 to the second", "in words", moments),
    Claim("Single precision does not converge below 1e-6", "figure 11", floor),
    Claim("Errors are identical on CPU and GPU", "figure 11", same_norms),
    Claim("Interpolation is faster than spreading", "figures 12, 14", interpolation_faster),
    Claim("... whatever the method", "", best_faster),
    Claim("Efficiency rises with order and dimension", "table 2", efficiency_rises),
    Claim("P→M, M'4 in 3-D, reaches 42 % of peak", "42.0 %", of_peak("spread", 0.42)),
    Claim("M→P, M'4 in 3-D, reaches 63 % of peak", "62.9 %", of_peak("interpolate", 0.629)),
    Claim("Linear kernels in 3-D sustain 70 % of bandwidth", "70 %", bandwidth),
    Claim("M→P, M'4 in 3-D: 13 times the threaded CPU", "13.0", most_speedup("speedup", 13.0)),
    Claim("... 5 times with transfers", "5.1", most_speedup("speedup_transfer", 5.1)),
    Claim("That case has the largest speedup", "table 2", where_most),
    Claim("With transfers GPUs lose for linear windows", "0.3 to 0.6", linear_loses),
    Claim("The speedup grows with the problem", "figures 12, 14", grows),
    Claim("The particles' order does not matter", "in words", any_order),
    Claim("Double precision takes twice as long", "in words", double),
    Claim("M→P, M'4 in 3-D: the kernel is 14 % of the time", "14 %",
          kernel_share("interpolate", 3, "m4prime", "float32", "kernel", 0.14)),
    Claim("P→M, linear, 2-D, double: transfers are 80 %", "80 %",
          kernel_share("spread", 2, "cic", "float64", "transfer", 0.80)),
    Claim("Atomics harm: avoiding them pays", "in words", atomics),
    Claim("CUDA instead of OpenCL would gain a bit", "in words", lambda r: portable(r.times, r.opencl_times)),
)  # fmt: skip


def answers(results: Results) -> list[tuple[str, ...]]:
    """Return claim, the paper's figure, today's and a verdict, for every claim."""
    found: list[tuple[str, ...]] = []
    for claim in CLAIMS:
        try:
            here, verdict = claim.look(results)
        except (LookupError, ValueError) as error:
            here, verdict = f"not in the files: {error}".replace("'", ""), ""
        found.append((claim.text, claim.paper, here, verdict))
    return found


def list_table(head: tuple[str, ...], widths: tuple[int, ...], rows: list[tuple[str, ...]], source: str) -> str:
    """Return a table for the documentation's pages."""
    lines = [f".. Written by benchmarks/buyukkececi/{source}.", "", ".. list-table::", "   :header-rows: 1",
             f"   :widths: {' '.join(map(str, widths))}", ""]  # fmt: skip
    for row in [head, *rows]:
        lines += [f"   {'*' if i == 0 else ' '} - {cell}".rstrip() for i, cell in enumerate(row)]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Print the table that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="nvidia-h200", help="as in the names of the CSV files")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--rst", type=Path, help="write the tables for the documentation to this folder")
    asked = parser.parse_args()
    results = Results.of(asked.device, asked.results)
    rows = answers(results)
    table = Table("claim", "paper", "here", "so it", title=f"buyukkececi, {asked.device}", width=100)
    for row in rows:
        table.add_row(*row)
    Console(width=100).print(table)
    if asked.rst:
        head = ("in the paper", "its figure", "here", "so it")
        source = f"claims.py from benchmarks/results/buyukkececi-*-{asked.device}.csv"
        text = list_table(head, (32, 13, 38, 17), rows, source)
        (asked.rst / "buyukkececi_claims.inc").write_text(text, encoding="utf-8")
        text = list_table(tables.HEAD, tables.WIDTHS, tables.printed(results.tables), source)
        (asked.rst / "buyukkececi_tables.inc").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
