# SPDX-License-Identifier: BSD-3-Clause
"""Claims of Barbieri, Cardellini and Filippone (2013) on their simulation, as numbers of today's file.

Times are those of the column of ``barbieri_column.py`` in 64^3 cells. Designs ``storage NAME`` are the paper's: a
build, a kernel of forces over the builder's storage, a kernel of motion.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from harness.claims import Claim, Files, Look, Row, Values, against, by_case, greatest, ratio, value
from harness.tables import number, plain

FILE = "barbieri-column"
K, M = 2**10, 2**20
LOOSE, PACKED, TIGHT = "storage linked_list_loose", "storage linked_list_packed", "storage linked_list_tight"
FIXED, ROW_MAJOR, SORT = "storage fixed", "storage fixed row", "storage sort"
PAPER = (LOOSE, PACKED, TIGHT, FIXED, SORT)  # the curves of the paper's figures
RIVALS = [{"design": name} for name in PAPER]
BASE = {"cells": 64}


def up_to(most: int) -> dict[str, object]:
    """Return the selection of sizes up to one."""
    return {"where": lambda row: int(row["N"]) <= most}


def beyond(least: int) -> dict[str, object]:
    """Return the selection of sizes beyond one."""
    return {"where": lambda row: int(row["N"]) > least}


def over(top: str, bottom: str, column: str = "step_s", **more: object) -> Look:
    """Return the expression of one design's time over another's, by size."""
    return ratio(FILE, column, {"design": top}, {"design": bottom}, ("N",), **{**BASE, **more})  # type: ignore[arg-type]


def of_best(design: str, rivals: Sequence[dict[str, str]], column: str = "step_s", **more: object) -> Look:
    """Return the expression of a design's time over that of the best of several, by size."""
    return against(FILE, column, {"design": design}, rivals, ("N",), **{**BASE, **more})  # type: ignore[arg-type]


def peak(design: str) -> Look:
    """Return the expression of the size, in K, at which a design updates most particles per second."""

    def look(files: Files) -> Values:
        rates = by_case(files.rows(FILE, design=design, **BASE), "mpups", ("N",), max)
        return {(): int(max(rates, key=lambda case: rates[case])[0]) / K} if rates else {}

    return look


def crossover(files: Files) -> Values:
    """Return the smallest size, in K, from which on sorting is the fastest of the paper's designs."""
    times = by_case(files.rows(FILE, design=PAPER, **BASE), "step_s", ("design", "N"))
    sizes = sorted({int(n) for _, n in times})
    best = [min(PAPER, key=lambda d, n=n: times.get((d, str(n)), math.inf)) == SORT for n in sizes]
    return {(): min((n for k, n in enumerate(sizes) if all(best[k:])), default=math.inf) / K} if sizes else {}


def fused(files: Files) -> Values:
    """Return the time of the best of the paper's designs over that of the automatic choice, by size."""
    ours = by_case(files.rows(FILE, design="fused auto", **BASE), "step_s", ("N",))
    paper = by_case(files.rows(FILE, design=PAPER, **BASE), "step_s", ("N",))
    return {case: paper[case] / seconds for case, seconds in ours.items() if case in paper}


def chosen(files: Files) -> Values:
    """Return the time of the automatic choice over that of the best fused design, by size."""
    rows = [row for row in files.rows(FILE, **BASE) if row["part"] == "fused"]
    ours = by_case([row for row in rows if row["design"] == "fused auto"], "step_s", ("N",))
    best = by_case(rows, "step_s", ("N",))
    return {case: seconds / best[case] for case, seconds in ours.items()}


def rate(count: int) -> Look:
    """Return the expression of the best rate of particle updates at a size."""
    return value(FILE, _updates, best=max, N=count, **BASE)  # type: ignore[arg-type]


def _updates(row: Row) -> float:
    return 1e6 * number(row, "mpups")


CLAIMS = (
    Claim("The packed list is more than twice as fast as the loose one in the whole step", "more than 2",
          "loose time over packed", greatest(over(LOOSE, PACKED)), 2),
    Claim("... at every size it is at least as fast", "figure 2", "loose time over packed", over(LOOSE, PACKED), 0.98),
    Claim("The packed list is the fastest of the methods with atomics", "figure 2", "time over the fastest's",
          of_best(PACKED, [{"design": name} for name in PAPER if name != SORT]), high=1.02),
    Claim("Sorting is the fastest above 512 K", "over 512 K", "time over the fastest's",
          of_best(SORT, RIVALS, **beyond(512 * K)), high=1.02),
    Claim("... the size from which on it is", "512 K", "size in K", crossover, 256, 1024),
    Claim("For few particles the packed list is up to 7 times as fast as sorting", "almost 7", "largest ratio",
          greatest(over(SORT, PACKED, **up_to(64 * K))), 3.5, 14),
    Claim("The tight list is never better than the loose one", "at all sizes", "tight time over loose",
          over(TIGHT, LOOSE), 1),
    Claim("Column-major cells are up to 15 % faster", "up to 15 %", "row-major time over column-major",
          over(ROW_MAJOR, FIXED), 1, 1.2),
    Claim("Sorting is slowest to insert, in the slowest step", "up to 17 times", "largest time over the fastest's",
          greatest(of_best(SORT, RIVALS, "slowest_build_s")), 8.5, 34),
    Claim("The packed list inserts more slowly than the loose one", "figure 3", "packed time over loose, slowest step",
          over(PACKED, LOOSE, "slowest_build_s"), 1),
    *(Claim(f"{words} is fastest with {size} K particles", f"{size} K", "size in K", peak(design), size / 2, 2 * size)
      for words, design, size in (("The packed list", PACKED, 64), ("The loose list", LOOSE, 64),
                                  ("The fixed grid", FIXED, 64), ("Sorting", SORT, 512), ("The tight list", TIGHT, 8))),
    Claim("Added: fused steps against the best of the paper's designs", "", "time over fused", fused, 1),
    Claim("Added: the automatic choice against the best fused design", "", "time over the best's", chosen, high=1.1),
    *(Claim(f"Added: the best rate with {count // K} K particles", "", "updates", rate(count), goal, unit="G/s")
      for count, goal in ((16 * K, 2.0e9), (64 * K, 3.3e9), (128 * K, 4.1e9), (256 * K, 4.7e9), (512 * K, 4.3e9),
                          (M, 3.3e9))),
)  # fmt: skip

# ---- the rates themselves ----------------------------------------------------------------------------------------

HEAD = ("particles", "fused", "list, loose", "list, packed", "list, tight", "fixed", "sort", "in reach")
WIDTHS = (12, 12, 12, 12, 12, 12, 12, 12)
_COLUMNS = ("fused auto", LOOSE, PACKED, TIGHT, FIXED, SORT)


def rates(rows: Sequence[Row], column: str = "mpups", scale: float = 1.0) -> list[tuple[str, ...]]:
    """Return the table of a column by size and design: whole steps (figure 2), or insertions (figure 3)."""
    numbers = by_case([row for row in rows if row["cells"] == "64"], column, ("N", "design"), max)
    near = by_case([row for row in rows if row["cells"] == "64"], "in_reach", ("N",), max)
    sizes = sorted({int(n) for n, _ in numbers})
    return [
        (f"{n:,}", *(plain(scale * numbers[str(n), d]) if (str(n), d) in numbers else "" for d in _COLUMNS),
         plain(near.get((str(n),), math.nan)))
        for n in sizes
    ]  # fmt: skip
