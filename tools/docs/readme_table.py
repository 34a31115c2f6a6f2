#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Write the table of methods and builders into README.md: ``make readme``. A test fails when the table is stale."""

import inspect
import re
from pathlib import Path

from particlemesh.choosing.choice import METHODS
from particlemesh.command.survey import reproducible
from particlemesh.grid.builders import METHODS as BUILDERS

README = Path(__file__).resolve().parents[2] / "README.md"
MARKED = re.compile(r"(<!-- methods: .*? -->\n).*?(<!-- /methods -->)", re.DOTALL)
PURPOSES = {"spread": "spreading", "interpolate": "interpolating", "grid": "grids"}


def table() -> str:
    lines = ["| for | method | backends | reproducible | algorithm |", "|---|---|---|---|---|"]
    for purpose, methods in {**METHODS, "grid": BUILDERS}.items():
        for method in methods:
            summary = inspect.getdoc(method).partition("\n\n")[0].replace("\n", " ").replace("``", "`")
            where = ", ".join(sorted(method.backends))
            lines.append(f"| {PURPOSES[purpose]} | `{method.name}` | {where} | {reproducible(method)} | {summary} |")
    return "\n".join(lines) + "\n"


def renewed(text: str) -> str:
    """Return the README with today's table."""
    return MARKED.sub(lambda marks: marks[1] + table() + marks[2], text)


if __name__ == "__main__":
    README.write_text(renewed(README.read_text(encoding="utf-8")), encoding="utf-8")
