# SPDX-License-Identifier: BSD-3-Clause
"""Figure 9: the time of preparing, by all methods that prepare something."""

from guo.bench import Bench, Job
from guo.cases import cases
from guo.variants import forms

FIGURE = "fig9"


def jobs(bench: Bench) -> list[Job]:
    """Return what is to be measured."""
    names = [name for name in bench.names() if name != "particle"]
    return [Job(case, *form) for form in forms(bench, names) for case in cases(FIGURE, bench.small)]
