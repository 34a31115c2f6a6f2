# SPDX-License-Identifier: BSD-3-Clause
"""Figure 8: the time of spreading alone, by all methods."""

from guo.bench import Bench, Job
from guo.cases import cases

FIGURE = "fig8"


def jobs(bench: Bench) -> list[Job]:
    """Return what is to be measured: the paper's methods and all others."""
    return [Job(case, name) for name in bench.names() for case in cases(FIGURE, bench.small)]
