# SPDX-License-Identifier: BSD-3-Clause
"""What the CSV files of ``run.py`` hold, looked up by figure, method and problem."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

OF_PAPER = ("particle", "gather", "single_mesh", "group_mesh", "hybrid_mesh")
Problem = tuple[int, int]  # K, N


class Times:
    """Rows of all figures of one device. Whatever is not there is a LookupError with its name."""

    def __init__(self, rows: Iterable[dict[str, Any]]) -> None:
        self.rows = [{name: str(value) for name, value in row.items()} for row in rows]

    @classmethod
    def read(cls, folder: Path, device: str) -> Times:
        """Return the rows of ``guo-*-DEVICE.csv``."""
        rows: list[dict[str, Any]] = []
        for file in sorted(folder.glob(f"guo-*-{device}.csv")):
            with file.open(newline="") as opened:
                rows += csv.DictReader(opened)
        return cls(rows)

    def pick(self, **values: Any) -> list[dict[str, str]]:
        """Return the rows whose columns have these values."""
        return [r for r in self.rows if all(r.get(name) == str(value) for name, value in values.items())]

    def table(self, column: str, **values: Any) -> dict[Problem, float]:
        """Return the seconds of a column by (K, N), without those that were not measured."""
        found = {(int(r["K"]), int(r["N"])): number(r, column) for r in self.pick(**values)}
        found = {key: seconds for key, seconds in found.items() if not math.isnan(seconds)}
        if not found:
            raise LookupError(", ".join(map(str, values.values())))
        return dict(sorted(found.items()))

    def methods(self, figure: str) -> list[str]:
        """Return the methods of a figure in the order of its file."""
        return list(dict.fromkeys(r["method"] for r in self.rows if r["figure"] == figure))

    def by_option(self, figure: str, option: str) -> dict[Problem, dict[str, float]]:
        """Return the times of a figure's applications by (K, N) and by the value of an option."""
        found: dict[Problem, dict[str, float]] = {}
        for row in self.pick(figure=figure):
            chosen = dict(part.split("=") for part in row["options"].split())
            if option in chosen and not math.isnan(number(row, "apply_s")):
                found.setdefault((int(row["K"]), int(row["N"])), {})[chosen[option]] = number(row, "apply_s")
        if not found:
            raise LookupError(f"{figure} by {option}")
        return found

    def asm(self, figure: str, at: Problem) -> float:
        """Return the paper's contributions per node."""
        return float(self.pick(figure=figure, K=at[0], N=at[1])[0]["asm"])

    def totals(
        self, applications: int, methods: Iterable[str] | None = None, figure: str = "long_totals"
    ) -> dict[Problem, dict[str, float]]:
        """Return the seconds of preparing once and spreading so often, by (K, N) and method."""
        found: dict[Problem, dict[str, float]] = {}
        for method in self.methods(figure) if methods is None else methods:
            try:
                column = self.table(f"total_{applications}_s", figure=figure, method=method, options="")
            except LookupError:
                continue
            for problem, seconds in column.items():
                found.setdefault(problem, {})[method] = seconds
        if not found:
            raise LookupError(f"totals of {applications}")
        return found


def heuristic(asm: float) -> int:
    """Return the paper's threads for a row: the power of two not above the average row, from 1 to 16."""
    return next((unit for unit in (16, 8, 4, 2) if asm >= unit), 1)


def number(row: dict[str, str], column: str) -> float:
    """Return a number of a row, NaN where there is none."""
    return float(row.get(column) or math.nan)


def size(count: float) -> str:
    """Return a number of particles for a reader."""
    power = round(math.log10(count), 6) if count > 0 else 0
    lead = round(10 ** (power - math.floor(power)), 1)
    return f"{'' if lead == 1 else f'{lead:g}·'}10{str(math.floor(power)).translate(HIGH)}"


def span(seconds: float) -> str:
    """Return a time for a reader."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def plain(ratio: float) -> str:
    """Return a ratio, or contributions per node, for a reader."""
    return f"{ratio:.2g}" if ratio < 99.5 else f"{ratio:,.0f}"


HIGH = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
