# SPDX-License-Identifier: BSD-3-Clause
"""Figure 3: spreading by single mesh with compute units of 1 to 32 threads, and with what the heuristic takes."""

from guo.bench import Bench, Job
from guo.cases import cases

FIGURE = "fig3"
UNITS = (1, 2, 4, 8, 16, 32)


def jobs(bench: Bench) -> list[Job]:
    """Return what is to be measured; construction is the same for all units."""
    units = (1, 8, 32) if bench.small else UNITS
    return [
        Job(case, name, {"threads_per_row": unit, "reduction": "shuffle"}, prepare=False)
        for name in bench.those("single_mesh") for case in cases(FIGURE, bench.small) for unit in units
    ]  # fmt: skip
