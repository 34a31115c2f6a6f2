# SPDX-License-Identifier: BSD-3-Clause
"""Claims of Barbieri, Cardellini and Filippone (2013) on insertion, who measured a GTX 660, as numbers of today's file.

Times are those of whole builds in captured graphs, of uniform particles and 64^3 cells unless said otherwise. Sizes end
at 1 M, as in the paper.
"""

from __future__ import annotations

from typing import Any

from harness.claims import Claim, Files, Look, Row, Values, against, by_case, greatest, ratio, value
from harness.tables import number

FILE = "grid-build"
LOOSE, TIGHT, PACKED = "linked_list_loose", "linked_list_tight", "linked_list_packed"
FIXED, ROW_MAJOR, SCAN, SORT, MORTON = "fixed column", "fixed row", "scan", "sort linear", "sort morton"
ALL = [{"builder": name} for name in (FIXED, SCAN, SORT, LOOSE, TIGHT, PACKED)]
K, M = 2**10, 2**20
GROUPS = ("size", "cloud", "refined")
BASE: dict[str, Any] = {"group": GROUPS, "ndim": 3, "storage": "ids", "stable": 0, "source": "measured"}
UNIFORM = {**BASE, "cloud": "uniform", "cells": 64}


def up_to_1m(row: Row) -> bool:
    """Return whether a size is one of the paper's."""
    return int(row["N"]) <= M


def clearing(row: Row) -> float:
    """Return the share of the clearing in a build."""
    return 1 - number(row, "insert_s") / number(row, "graph_s")


def builders(top: str, bottom: str, by: tuple[str, ...] = ("N",), **selection: Any) -> Look:
    """Return the expression of one builder's time over another's."""
    return ratio(FILE, "graph_s", {"builder": top}, {"builder": bottom}, by, where=up_to_1m, **UNIFORM | selection)


def cells(builder: str | tuple[str, ...], count: int, many: int, few: int) -> Look:
    """Return the expression of the time with many cells per axis over that with few."""
    chosen = {**UNIFORM, "builder": builder, "N": count}
    del chosen["cells"]
    return ratio(FILE, "graph_s", {"cells": many}, {"cells": few}, ("builder",), **chosen)


def clustered(*names: str) -> Look:
    """Return the expression of the time for clustered particles over that for uniform ones, at 1 M."""
    chosen = {**BASE, "cells": 64, "N": M, "builder": names}
    return ratio(FILE, "graph_s", {"cloud": "clustered"}, {"cloud": "uniform"}, ("builder",), **chosen)


def catches_up(files: Files) -> Values:
    """Return the size at which sorting inserts as fast as the slowest other builder does at 16 K."""
    times = by_case(files.rows(FILE, up_to_1m, **UNIFORM), "graph_s", ("builder", "N"))
    rates = {case: int(case[1]) / seconds for case, seconds in times.items()}
    others = {name: rates[name, str(16 * K)] for (name, n) in rates if n == str(16 * K) and name in _UNSORTED}
    slowest = min(others, key=lambda name: others[name], default="")
    sizes = [int(n) for name, n in rates if name == SORT and slowest and rates[name, n] >= others[slowest]]
    return {(slowest,): min(sizes, default=float("inf")) / K} if slowest else {}


_UNSORTED = (FIXED, SCAN, LOOSE, TIGHT, PACKED)
OVER = "time over {}'s".format
CLAIMS = (
    Claim("Linked lists take 2 G insertions/s at 1 M", "2 G/s", "rate",
          value(FILE, "rate", **UNIFORM, N=M, builder=LOOSE), 2e9, unit="G/s"),
    Claim("The linked list inserts fastest of all", "figure 3", "time over the fastest's",
          against(FILE, "graph_s", {"builder": LOOSE}, ALL, ("N",), where=up_to_1m, **UNIFORM), high=1.02),
    Claim("A fixed grid is faster column-major than row-major", "up to 15 %", "row-major time over column-major",
          builders(ROW_MAJOR, FIXED, ("N", "cells"), cells=(64, 128)), 1),
    Claim("Sorting inserts much more slowly than the best", "17 times", "largest time over the fastest's",
          greatest(against(FILE, "graph_s", {"builder": SORT}, ALL, ("N",), where=up_to_1m, **UNIFORM)), 8.5, 34),
    Claim("At 512 K sorting reaches the rate of the slowest other at 16 K", "near 512 K", "size in K", catches_up,
          256, 1024),
    Claim("The packed list inserts more slowly than the loose one", "in words", OVER("the loose list"),
          builders(PACKED, LOOSE), 1),
    Claim("The tight list makes up to 8 entries and is slower at all sizes", "8 entries", OVER("the loose list"),
          builders(TIGHT, LOOSE), 1.02),
    Claim("The scan grows with the grid: severe on refined grids", "in words", "time of 256³ over 64³ cells, 16 K",
          cells(SCAN, 16 * K, 256, 64), 2),
    Claim("... beside it, other builders", "", "time of 256³ over 64³ cells, 16 K",
          cells((LOOSE, SORT), 16 * K, 256, 64)),
    Claim("Sorting does not depend on the number of cells", "in words", "time of 256³ over 32³ cells, 1 M",
          cells(SORT, M, 256, 32), 0.9, 1.1),
    Claim("Sorting does not depend on the distribution", "in words", "clustered over uniform, 1 M", clustered(SORT),
          0.9, 1.1),
    Claim("Atomic builders do: collisions slow them down", "in words", "clustered over uniform, 1 M",
          clustered(LOOSE, FIXED, SCAN, TIGHT), 1.1),
    Claim("A space-filling curve matters only where particles are sorted", "in words",
          "time of sorting along it over the linear order's", builders(MORTON, SORT, (), N=M)),
    Claim("The order within cells changes from run to run", "in words", "identical builds of 10",
          value(FILE, "rate", ("builder",), group="repeat", stable=0, builder=(FIXED, SCAN, LOOSE, PACKED)), high=9),
    Claim("Only sorting gives an order that repeats", "in words", "reproducible records over sorted records, 1 M",
          ratio(FILE, "graph_s", {"builder": "auto", "stable": 1}, {"builder": SORT, "stable": 0}, N=M, group=GROUPS,
                ndim=3, storage="records", cloud="uniform", cells=64), 0.95),
    Claim("Lists take less memory than fixed grids", "in words", "fixed grid's bytes over the list's, 1 M",
          ratio(FILE, "nbytes", {"builder": FIXED}, {"builder": LOOSE}, **UNIFORM, N=M), 1),
    Claim("The grid is cleared in every step", "in words", "clearing's share of the build, loose list",
          value(FILE, clearing, ("N",), **UNIFORM, builder=LOOSE, where=up_to_1m), unit="%"),
)  # fmt: skip
