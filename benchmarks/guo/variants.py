# SPDX-License-Identifier: BSD-3-Clause
"""Forms of methods that the paper measures beside their defaults."""

from __future__ import annotations

from typing import Any

from guo.bench import Bench

# The paper's way to build single mesh (count, scan, collect) beside the library's, which sorts particles.
PAPER = {"single_mesh": ({}, {"construction": "paper"})}


def forms(bench: Bench, names: list[str]) -> list[tuple[str, dict[str, Any]]]:
    """Return (method, options) of the named methods, each in all forms that differ in construction."""
    return [(name, options) for name in names for options in PAPER.get(name, ({},))]
