# SPDX-License-Identifier: BSD-3-Clause
"""The totals of ``long_totals`` with four nodes along an axis, the long version's other interpolation order."""

from __future__ import annotations

from typing import Any

from guo import long_totals
from guo.bench import Bench, Job
from guo.cases import cases
from guo.variants import forms

FIGURE = "long_totals_p4"


def jobs(bench: Bench) -> list[Job]:
    """Return what is to be measured."""
    return [Job(case, *form) for form in forms(bench, bench.names()) for case in cases(FIGURE, bench.small)]


def rows(bench: Bench, job: Job) -> list[dict[str, Any]]:
    """Return a row as ``long_totals`` has them."""
    return [{**row, "figure": FIGURE} for row in long_totals.rows(bench, job)]
