# SPDX-License-Identifier: BSD-3-Clause
"""Added: crowded clouds, lattices, float64, complex numbers, 3 and 8 values a particle, and p = 4."""

from guo.bench import Bench, Job
from guo.cases import cases

FIGURE = "added_clouds"


def jobs(bench: Bench) -> list[Job]:
    """Return what is to be measured; the first problem is the paper's own."""
    some = cases(FIGURE, bench.small)
    return [Job(case, name) for case in (some[:3] if bench.small else some) for name in bench.names()]
