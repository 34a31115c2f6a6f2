# SPDX-License-Identifier: BSD-3-Clause
"""The long version's figures of totals: preparing once and spreading 1 and 20 times; 100 and 1000 are added."""

from __future__ import annotations

from typing import Any

from guo.bench import Bench, Job, short
from guo.cases import cases
from guo.variants import forms

FIGURE = "long_totals"
TIMES = (1, 20, 100, 1000)


def jobs(bench: Bench) -> list[Job]:
    """Return what is to be measured."""
    return [Job(case, *form) for form in forms(bench, bench.names()) for case in cases(FIGURE, bench.small)]


def rows(bench: Bench, job: Job) -> list[dict[str, Any]]:
    """Return a row with the totals, and for how many spreads the automatic choice takes the method."""
    found = bench.measure(job)
    totals = {f"total_{n}_s": short(found.prepare + n * found.apply) for n in TIMES}
    auto = "" if job.options else " ".join(str(n) for n in TIMES if bench.automatic(job.case, n) == job.method)
    return [bench.row(FIGURE, job, found, **totals, auto=auto)]
