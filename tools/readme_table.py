#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Writes the table of methods into README.md, from METHODS: tools/readme_table.py. A test tells if it is stale."""

import inspect
import re
from pathlib import Path

from particlemesh.configuration import METHODS

README = Path(__file__).resolve().parents[1] / "README.md"
MARKED = re.compile(r"(<!-- methods: .*? -->\n).*?(<!-- /methods -->)", re.DOTALL)
DIRECTIONS = {"spread": "spreading", "interpolate": "interpolating"}


def table() -> str:
    lines = ["| direction | method | runs on | same bits | what it does |", "|---|---|---|---|---|"]
    for direction, methods in METHODS.items():
        for method in methods:
            order = "in any order of particles"
            bits = order if method.order_independent else "yes" if method.deterministic else ""
            summary = inspect.getdoc(method).partition("\n\n")[0].replace("\n", " ")
            where = ", ".join(sorted(method.backends))
            lines.append(f"| {DIRECTIONS[direction]} | `{method.name}` | {where} | {bits} | {summary} |")
    return "\n".join(lines) + "\n"


def renewed(text: str) -> str:
    """Return the README with today's table."""
    return MARKED.sub(lambda found: found[1] + table() + found[2], text)


if __name__ == "__main__":
    README.write_text(renewed(README.read_text(encoding="utf-8")), encoding="utf-8")
