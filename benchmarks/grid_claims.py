# SPDX-License-Identifier: BSD-3-Clause
"""What Barbieri, Cardellini and Filippone (2013) found of insertion on a GTX 660, and what a CSV says of it today.

Reads ``results/grid-build-DEVICE.csv``, which ``grid_build.py`` writes; measures nothing. Times are those of whole
builds in captured graphs, uniform particles and 64^3 cells unless said otherwise. Sizes end at 1 M, as in the paper.

    python benchmarks/grid_claims.py [CSV] [--rst FILE]
"""

from __future__ import annotations

import argparse
import csv
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from measure import RESULTS

LOOSE, TIGHT, PACKED = "linked_list_loose", "linked_list_tight", "linked_list_packed"
FIXED, ROW_MAJOR, SCAN, SORT, MORTON = "fixed column", "fixed row", "scan", "sort linear", "sort morton"
ALL = (FIXED, SCAN, SORT, LOOSE, TIGHT, PACKED)
K, M = 2**10, 2**20


class Times:
    """Seconds of a build by what was built."""

    def __init__(self, file: Path) -> None:
        with file.open(newline="") as opened:
            self.rows = list(csv.DictReader(opened))

    def row(self, builder: str, count: int, cells: int = 64, cloud: str = "uniform", storage: str = "ids",
            stable: bool = False, ndim: int = 3) -> dict[str, str]:  # fmt: skip
        """Return the row of a build; raises LookupError if the file has none."""
        asked = dict(builder=builder, N=str(count), cells=str(cells), cloud=cloud, storage=storage,
                     stable=str(int(stable)), ndim=str(ndim), source="measured")  # fmt: skip
        for row in self.rows:
            if row["group"] not in ("peer", "repeat") and all(row[name] == value for name, value in asked.items()):
                return row
        raise LookupError(f"{builder}, {count:,}, {cells}, {cloud}")

    def seconds(self, builder: str, count: int, cells: int = 64, cloud: str = "uniform", storage: str = "ids",
                stable: bool = False) -> float:  # fmt: skip
        """Return the seconds of a build in a graph."""
        found = float(self.row(builder, count, cells, cloud, storage, stable)["graph_s"])
        if math.isnan(found):
            raise LookupError(f"{builder}, {count:,}: not captured")
        return found

    def sizes(self, *builders: str, cells: int = 64) -> list[int]:
        """Return the sizes up to the paper's largest at which all of these were measured."""
        counts = sorted({int(row["N"]) for row in self.rows if row["N"] and row["source"] == "measured"})
        return [n for n in counts if n <= M and all(self._has(b, n, cells) for b in builders)]

    def _has(self, builder: str, count: int, cells: int) -> bool:
        try:
            self.seconds(builder, count, cells)
        except LookupError:
            return False
        return True

    def alike(self, builder: str, stable: bool) -> int:
        """Return in how many of 10 repeated builds every particle had its first place."""
        for row in self.rows:
            if (row["group"], row["builder"], row["stable"]) == ("repeat", builder, str(int(stable))):
                return int(float(row["rate"]))
        raise LookupError(f"repeated builds of {builder}")


@dataclass(frozen=True)
class Claim:
    """A finding of the paper, and how to look it up today."""

    text: str
    paper: str
    look: Callable[[Times], tuple[str, str]]  # what is measured, and what becomes of the claim


def label(builder: str) -> str:
    """Return a builder's name for a reader."""
    return builder.replace("linked_list_", "") + " list" if builder.startswith("linked_list_") else builder


def size(count: int) -> str:
    """Return a size as the paper writes it."""
    return f"{count // M} M" if count >= M else f"{count // K} K"


def list_rate(t: Times) -> tuple[str, str]:
    rate = M / t.seconds(LOOSE, M)
    return f"{rate / 1e9:.1f} G/s, {rate / 2e9:.0f} times as many", "holds" if rate >= 2e9 else "does not hold"


def column_major(t: Times) -> tuple[str, str]:
    gains = {(n, c): t.seconds(ROW_MAJOR, n, c) / t.seconds(FIXED, n, c)
             for c in (64, 128) for n in t.sizes(ROW_MAJOR, FIXED, cells=c)}  # fmt: skip
    if not gains:
        raise LookupError("fixed grids")
    (n, c), most = max(gains.items(), key=lambda item: item[1])
    least = min(gains.values())
    told = f"{least - 1:+.0%} to {most - 1:+.0%}, the most at {size(n)} in {c}^3"
    return told, "holds" if 1.02 < most <= 1.15 else "holds, and more" if most > 1.15 else "no difference"


def list_fastest(t: Times) -> tuple[str, str]:
    sizes = t.sizes(*ALL)
    wins = [n for n in sizes if t.seconds(LOOSE, n) <= 1.02 * min(t.seconds(b, n) for b in ALL)]
    if not sizes:
        raise LookupError("all builders")
    last = sizes[-1]
    rest = ", ".join(f"{t.seconds(b, last) / t.seconds(LOOSE, last):.1f} {label(b)}" for b in (FIXED, SCAN, SORT))
    verdict = "holds" if wins == sizes else f"at {len(wins)} of {len(sizes)} sizes"
    return f"others take, at {size(last)}, times as long: {rest}", verdict


def sort_slower(t: Times) -> tuple[str, str]:
    ratios = {n: t.seconds(SORT, n) / min(t.seconds(b, n) for b in ALL) for n in t.sizes(*ALL)}
    if not ratios:
        raise LookupError("all builders")
    n, most = max(ratios.items(), key=lambda item: item[1])
    last = max(ratios)
    told = f"up to {most:.1f} times, at {size(n)}; {ratios[last]:.1f} at {size(last)}"
    return told, "holds" if 8.5 <= most <= 34 else "holds, less so" if most > 2 else "does not hold"


def sort_reaches(t: Times) -> tuple[str, str]:
    n0 = 16 * K
    others = {b: n0 / t.seconds(b, n0) for b in ALL if b != SORT}
    slowest = min(others, key=lambda b: others[b])
    for n in t.sizes(SORT):
        if n / t.seconds(SORT, n) >= others[slowest]:
            told = f"at {size(n)} ({others[slowest] / 1e9:.2f} G/s, {label(slowest)})"
            return told, "holds" if 256 * K <= n <= M else "earlier"
    return f"not up to 1 M ({others[slowest] / 1e9:.2f} G/s, {label(slowest)})", "later"


def packed_slower(t: Times) -> tuple[str, str]:
    ratios = [t.seconds(PACKED, n) / t.seconds(LOOSE, n) for n in t.sizes(PACKED, LOOSE)]
    at = t.seconds(PACKED, M) / t.seconds(LOOSE, M)
    told = f"{min(ratios):.2f} to {max(ratios):.2f} of the time, {at:.2f} at 1 M"
    return told, "holds" if at > 1.02 else "does not hold"


def tight_slower(t: Times) -> tuple[str, str]:
    ratios = {n: t.seconds(TIGHT, n) / t.seconds(LOOSE, n) for n in t.sizes(TIGHT, LOOSE)}
    told = f"{min(ratios.values()):.1f} to {max(ratios.values()):.1f} times the loose list's time"
    return f"{told}; {8 * M / t.seconds(TIGHT, M) / 1e9:.0f} G entries/s at 1 M", (
        "holds" if min(ratios.values()) > 1.02 else "not at all sizes"
    )


def refined_scan(t: Times) -> tuple[str, str]:
    parts = []
    growth = {}
    for builder in (SCAN, LOOSE, SORT):
        coarse, fine = t.seconds(builder, 16 * K, 64), t.seconds(builder, 16 * K, 256)
        growth[builder] = fine / coarse
        parts.append(f"{label(builder)} {coarse * 1e6:.0f} to {fine * 1e6:.0f} us")
    return "16 K, 64^3 to 256^3: " + ", ".join(parts), "holds" if growth[SCAN] > 2 else "does not hold"


def sort_and_cells(t: Times) -> tuple[str, str]:
    ratio = t.seconds(SORT, M, 256) / t.seconds(SORT, M, 32)
    return f"256^3 takes {ratio:.2f} of 32^3, at 1 M", "holds" if ratio < 1.1 else "does not hold here"


def distribution(builders: tuple[str, ...], affected: bool) -> Callable[[Times], tuple[str, str]]:
    def look(t: Times) -> tuple[str, str]:
        ratios = {b: t.seconds(b, M, cloud="clustered") / t.seconds(b, M) for b in builders}
        told = ", ".join(f"{label(b)} {r:.2f}" for b, r in ratios.items())
        changed = max(ratios.values()) > 1.1 or min(ratios.values()) < 0.9
        return f"clustered over uniform, 1 M: {told}", "holds" if changed == affected else "does not hold"

    return look


def curve(t: Times) -> tuple[str, str]:
    ratio = t.seconds(MORTON, M) / t.seconds(SORT, M)
    return f"sorting along it takes {ratio:.2f} of the time", "costs nothing" if ratio < 1.05 else "costs something"


def nondeterministic(t: Times) -> tuple[str, str]:
    alike = {b: t.alike(b, False) for b in (FIXED, SCAN, LOOSE, PACKED)}
    told = ", ".join(f"{label(b)} {n}" for b, n in alike.items())
    return f"of 10 builds alike: {told}; deterministic {t.alike('auto', True)}", (
        "holds" if max(alike.values()) < 10 else "does not hold for all"
    )


def price_of_order(t: Times) -> tuple[str, str]:
    stable = t.seconds("auto", M, storage="records", stable=True)
    ratio, by_sort = stable / t.seconds(SCAN, M, storage="records"), stable / t.seconds(SORT, M, storage="records")
    told = f"deterministic records at 1 M take {ratio:.2f} of scan's time, {by_sort:.2f} of sort's"
    return told, "holds" if by_sort > 0.95 else "does not hold"


def memory(t: Times) -> tuple[str, str]:
    ratio = float(t.row(FIXED, M)["nbytes"]) / float(t.row(LOOSE, M)["nbytes"])
    return f"the fixed grid takes {ratio:.1f} times the list's, at 1 M", "holds" if ratio > 1 else "does not hold"


def reset(t: Times) -> tuple[str, str]:
    parts = []
    for n in (16 * K, M):
        inserted = float(t.row(LOOSE, n)["insert_s"])
        if math.isnan(inserted):
            raise LookupError("insertion without reset")
        parts.append(f"{1 - inserted / t.seconds(LOOSE, n):.0%} of the build at {size(n)}")
    return f"{' and '.join(parts)} in 64^3", "counted here"


CLAIMS = (
    Claim("Linked lists take 2 G insertions/s at 1 M", "2 G/s", list_rate),
    Claim("The linked list inserts fastest of all", "figure 3", list_fastest),
    Claim("A fixed grid is faster column-major than row-major", "up to 15 %", column_major),
    Claim("Sorting inserts much more slowly than the best", "up to 17 times", sort_slower),
    Claim("Sorting comes late to what the slowest other has at 16 K", "near 512 K", sort_reaches),
    Claim("The packed list inserts more slowly than the loose one", "in words", packed_slower),
    Claim("The tight list makes up to 8 entries, and is slower at all sizes", "8 entries", tight_slower),
    Claim("The scan grows with the grid: severe on refined grids", "in words", refined_scan),
    Claim("Sorting does not depend on the number of cells", "in words", sort_and_cells),
    Claim("Sorting does not depend on where particles are", "in words", distribution((SORT,), affected=False)),
    Claim("Atomic builders do: collisions slow them down", "in words",
          distribution((LOOSE, FIXED, SCAN, TIGHT), affected=True)),
    Claim("A space-filling curve matters only where particles are sorted", "in words", curve),
    Claim("The order within cells changes from run to run", "in words", nondeterministic),
    Claim("Only sorting gives an order that repeats", "in words", price_of_order),
    Claim("Lists take less memory than fixed grids", "in words", memory),
    Claim("The grid is cleared in every step", "in words", reset),
)  # fmt: skip


def answers(file: Path) -> list[tuple[str, str, str, str]]:
    """Return claim, the paper's figure, today's and a verdict, for every claim."""
    times, found = Times(file), []
    for claim in CLAIMS:
        try:
            here, verdict = claim.look(times)
        except (LookupError, ValueError) as error:
            here, verdict = f"not in the file: {error}".replace("'", ""), ""
        found.append((claim.text, claim.paper, here, verdict))
    return found


def restructured(rows: list[tuple[str, str, str, str]], file: Path) -> str:
    """Return the table for the documentation's pages."""
    lines = [f".. Written by benchmarks/grid_claims.py from benchmarks/results/{file.name}.", "",
             ".. list-table::", "   :header-rows: 1", "   :widths: 32 13 38 17", ""]  # fmt: skip
    for row in [("in the paper", "its figure", "here", "so it"), *rows]:
        lines += [f"   {'*' if i == 0 else ' '} - {cell}" for i, cell in enumerate(row)]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Print the table that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("csv", type=Path, nargs="?", default=RESULTS / "grid-build-nvidia-h200.csv")
    parser.add_argument("--rst", type=Path, help="write the table for the documentation to this file")
    asked = parser.parse_args()
    rows = answers(asked.csv)
    table = Table("claim", "paper", "here", "so it", title=str(asked.csv.name), width=100)
    for row in rows:
        table.add_row(*row)
    Console(width=100).print(table)
    if asked.rst:
        asked.rst.write_text(restructured(rows, asked.csv), encoding="utf-8")


if __name__ == "__main__":
    main()
