# SPDX-License-Identifier: BSD-3-Clause
"""The rows of ``guo-*.csv``, by figure, method and problem."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from harness.tables import number, read, size

__all__ = ["Problem", "Times", "heuristic", "number", "size"]
Problem = tuple[int, int]  # K, N


class Times:
    """Rows of all figures of one device. Missing rows raise LookupError."""

    def __init__(self, rows: Iterable[dict[str, Any]]) -> None:
        self.rows = [{name: str(value) for name, value in row.items()} for row in rows]

    @classmethod
    def read(cls, folder: Path, device: str) -> Times:
        """Return the rows of ``guo-*-DEVICE.csv``."""
        return cls(row for file in sorted(folder.glob(f"guo-*-{device}.csv")) for row in read(file))

    def pick(self, **values: Any) -> list[dict[str, str]]:
        """Return the rows whose columns have these values."""
        return [r for r in self.rows if all(r.get(name) == str(value) for name, value in values.items())]

    def table(self, column: str, **values: Any) -> dict[Problem, float]:
        """Return the seconds of a column by (K, N), without NaN."""
        seconds = {(int(r["K"]), int(r["N"])): number(r, column) for r in self.pick(**values)}
        seconds = {key: s for key, s in sorted(seconds.items()) if not math.isnan(s)}
        if not seconds:
            raise LookupError(", ".join(map(str, values.values())))
        return seconds

    def methods(self, figure: str) -> list[str]:
        """Return the methods of a figure in the order of its file."""
        return list(dict.fromkeys(r["method"] for r in self.rows if r["figure"] == figure))

    def totals(self, applications: int, figure: str = "long_totals") -> dict[Problem, dict[str, float]]:
        """Return the seconds of preparing once and spreading ``applications`` times, by (K, N) and method."""
        totals: dict[Problem, dict[str, float]] = {}
        for method in self.methods(figure):
            try:
                column = self.table(f"total_{applications}_s", figure=figure, method=method, options="")
            except LookupError:
                continue
            for problem, seconds in column.items():
                totals.setdefault(problem, {})[method] = seconds
        if not totals:
            raise LookupError(f"totals of {applications}")
        return totals


def heuristic(asm: float) -> int:
    """Return the paper's threads per row: the power of two not above the average row, from 1 to 16."""
    return next((unit for unit in (16, 8, 4, 2) if asm >= unit), 1)
