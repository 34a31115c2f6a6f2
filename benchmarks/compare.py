# SPDX-License-Identifier: BSD-3-Clause
"""Compare fresh CSV files with the committed ones: the ratio of the times of every row, and their median by file.

    python benchmarks/compare.py out/fresh [--results benchmarks/results] [--tolerance 0.02] [--only limit-rows] [--all]

A ratio is the fresh figure over the committed one, or its reciprocal for rates: above 1 the fresh run is slower. Rows
are matched by the columns that name the case; rows of one file only are listed. The process ends with status 1 if a
fresh row is slower than the tolerance allows; a table shows rows that differ by more in either direction.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from harness.tables import RESULTS, Row, number, read, show

TIMED = {  # the first part of a file's name: columns that name a row, and its figure: the first that is known
    "limit-rows": (("row", "method", "options"), "figure"),
    "limit-opencl-rows": (("row", "method", "options"), "figure"),
    "limit-peer": (("direction", "dtype", "p", "K", "N", "method"), "graph_s call_s"),
    "limit-density": (("direction", "p", "K", "N", "method", "options"), "seconds"),
    "limit-roofline": (("direction", "dtype", "values", "p", "N", "method"), "seconds"),
    "grid-build": (("group", "builder", "storage", "stable", "cloud", "ndim", "cells", "N"), "graph_s"),
    "grid-pairs": (("group", "list", "order", "cloud", "periodic", "ndim", "dtype", "quantities", "N"), "both_s"),
    "grid-cpu": (("group", "what", "storage", "stable", "cloud", "periodic", "N", "threads"), "ours_s"),
    "guo": (("figure", "method", "options", "N", "K", "p", "dtype", "values", "cloud"), "apply_s"),
    "buyukkececi-times": (("direction", "ndim", "window", "dtype", "nodes", "order", "method", "threads"), "total_s"),
    "cpu": (("operation", "dtype", "width", "cloud", "N", "K", "threads"), "ours_s"),
}  # fmt: skip
RATES = ("G/s", "G channel-points/s")  # units of limit-rows in which more is better
ERROR = "relative l2"


class Compared(NamedTuple):
    """A row of both files."""

    row: str
    committed: float
    fresh: float
    ratio: float  # of times


def figure(row: Row, kind: str) -> float:
    """Return a row's figure, NaN if none is known."""
    numbers = (number(row, column) for column in TIMED[kind][1].split())
    return next((x for x in numbers if not math.isnan(x)), math.nan)


def named(rows: list[Row], kind: str) -> dict[tuple[str, ...], Row]:
    """Return the rows with a time by their names; rows of one name are numbered."""
    names, _ = TIMED[kind]
    table: dict[tuple[str, ...], Row] = {}
    seen: Counter[tuple[str, ...]] = Counter()
    for row in rows:
        if row.get("source", "measured") == "measured" and row.get("unit") != ERROR and figure(row, kind) > 0:
            key = tuple(str(row[name]) for name in names)
            seen[key] += 1
            table[(*key, f"#{seen[key]}" if seen[key] > 1 else "")] = row
    return table


def compared(committed: list[Row], fresh: list[Row], kind: str) -> tuple[list[Compared], list[str]]:
    """Return the rows of both files, and the names of rows that only one has."""
    tables = [named(rows, kind) for rows in (committed, fresh)]
    both = []
    for key in (k for k in tables[0] if k in tables[1]):
        before, now = (figure(table[key], kind) for table in tables)
        ratio = before / now if tables[0][key].get("unit") in RATES else now / before
        both.append(Compared(" ".join(filter(None, key)), before, now, ratio))
    return both, [" ".join(filter(None, key)) for key in tables[0].keys() ^ tables[1].keys()]


def kind_of(file: Path) -> str | None:
    """Return the entry of ``TIMED`` for a file, or None."""
    return max((kind for kind in TIMED if file.name.startswith(f"{kind}-")), key=len, default=None)


def main() -> None:
    """Compare the files that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("fresh", type=Path, help="folder of the fresh files")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the committed files")
    parser.add_argument("--tolerance", type=float, default=0.02)
    parser.add_argument("--only", nargs="+", default=[""], help="beginnings of file names")
    parser.add_argument("--all", action="store_true", help="show all rows")
    asked = parser.parse_args()
    slower, files = [], 0
    for file in sorted(asked.fresh.glob("*.csv")):
        kind = kind_of(file)
        if kind is None or not file.name.startswith(tuple(asked.only)) or not (asked.results / file.name).exists():
            continue
        both, single = compared(read(asked.results / file.name), read(file), kind)
        files += 1
        rows = [c for c in both if asked.all or abs(math.log(c.ratio)) > math.log1p(asked.tolerance)]
        slower += [c for c in both if c.ratio > 1 + asked.tolerance]
        median = statistics.median(c.ratio for c in both) if both else math.nan
        print(f"{file.name}: {len(both)} rows, median ratio {median:.3f}, {len(rows)} shown")
        if rows:
            lines = [(c.row, f"{c.committed:.4g}", f"{c.fresh:.4g}", f"{c.ratio:.3f}") for c in rows]
            show("", ("row", "committed", "fresh", "ratio"), lines)
        if single:
            print(f"In one file only: {'; '.join(sorted(single)[:20])}{' ...' if len(single) > 20 else ''}")
    if not files:
        raise SystemExit(f"{asked.fresh} has no CSV file that {asked.results} has under the same name.")
    if slower:
        raise SystemExit(f"Slower by more than {asked.tolerance:.0%}: {len(slower)} of the rows.")
    print(f"No row is slower by more than {asked.tolerance:.0%}.")


if __name__ == "__main__":
    main()
