# SPDX-License-Identifier: BSD-3-Clause
"""Print all tables and claims of a device's CSV files, and write them for the documentation. Measures nothing.

    python benchmarks/report.py [--device NAME] [--only guo_claims limit_rows] [--results DIR] [--docs docs]

``--docs`` writes each table over the ``NAME.inc`` in that folder or below it; a new one goes to the folder itself.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # studies of papers

from core import counters
from core import report as limit
from harness.claims import HEAD, WIDTHS, Claim, Files, answers
from harness.tables import RESULTS, list_table, show
from studies.barbieri import claims as column
from studies.barbieri import insertion_claims as barbieri
from studies.buyukkececi import claims as buyukkececi
from studies.buyukkececi import tables as buyukkececi_tables
from studies.guo import added, times
from studies.guo import claims as guo

Table = tuple[str, Sequence[str], Sequence[int], Sequence[Sequence[str]]]  # source, head, widths, rows


def _claims(claims: Sequence[Claim], pattern: str) -> Callable[[Files], Table]:
    return lambda files: (_source(files, pattern), HEAD, WIDTHS, answers(claims, files))


def _source(files: Files, pattern: str) -> str:
    return f"benchmarks/results/{pattern}-{files.device}.csv"


TABLES: dict[str, Callable[[Files], Table]] = {
    "guo_claims": _claims(guo.CLAIMS, "guo-*"),
    "guo_added": lambda files: (_source(files, "guo-*"), added.HEAD, added.WIDTHS,
                                added.answers(times.Times.read(files.folder, files.device))),
    "buyukkececi_claims": _claims(buyukkececi.CLAIMS, "buyukkececi-*"),
    "buyukkececi_tables": lambda files: (
        _source(files, "buyukkececi-tables"), buyukkececi_tables.HEAD, buyukkececi_tables.WIDTHS,
        buyukkececi_tables.printed(files.all_rows("buyukkececi-tables"))),
    "grid_claims": _claims(barbieri.CLAIMS, "grid-build"),
    "column_claims": _claims(column.CLAIMS, "barbieri-*"),
    "column_rates": lambda files: (_source(files, "barbieri-*"), column.HEAD, column.WIDTHS,
                                   column.rates(files.all_rows(column.FILE))),
    "column_insertions": lambda files: (_source(files, "barbieri-*"), column.HEAD, column.WIDTHS,
                                        column.rates(files.all_rows(column.FILE), "insertions", 1e-6)),
    **{name: lambda files, name=name: limit.tables(files)[name]
       for name in ("limit_rows", "limit_below", "limit_matrices", "limit_sparse", "limit_opencl")},
    "limit_claims": _claims(limit.CLAIMS, "limit-rows"),
    "limit_counters": lambda files: (_source(files, "limit-counters"), counters.HEAD, counters.WIDTHS,
                                     [counters.cells(row) for row in files.all_rows("limit-counters")]),
}  # fmt: skip
RATIOS = "limit_ratios"  # substitutions, not a table
PRINTED_ONLY = ("limit_claims",)


def device_of(name: str) -> str:
    """Return the device whose figures a table of the documentation has."""
    return limit.DEVICE if name.startswith("limit") else "nvidia-h200"


def page(name: str, files: Files) -> str:
    """Return a table, or the substitutions, as the documentation includes it."""
    if name == RATIOS:
        return limit.words(files.all_rows("limit-peer"), _source(files, "limit-peer"), files.device)
    return list_table(*TABLES[name](files))


def pages() -> list[str]:
    """Return the names of all that is written for the documentation."""
    return [*(name for name in TABLES if name not in PRINTED_ONLY), RATIOS]


def place_of(name: str, docs: Path) -> Path:
    """Return the path of a table in the documentation."""
    return next(docs.rglob(f"{name}.inc"), docs / f"{name}.inc")


def main() -> None:
    """Print and write what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", help="as in the names of the CSV files; by default that of the pages")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--only", nargs="+", choices=[*TABLES, RATIOS], default=[*TABLES, RATIOS], metavar="TABLE")
    parser.add_argument("--docs", type=Path, help="folder of the documentation")
    asked = parser.parse_args()
    for name in asked.only:
        files = Files(asked.device or device_of(name), asked.results)
        if name in TABLES:
            _, head, _, rows = TABLES[name](files)
            show(f"{name}, {files.device}", head, rows)
        if asked.docs and name in pages():
            place_of(name, asked.docs).write_text(page(name, files), encoding="utf-8")


if __name__ == "__main__":
    main()
