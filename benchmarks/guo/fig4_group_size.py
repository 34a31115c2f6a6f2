# SPDX-License-Identifier: BSD-3-Clause
"""Figure 4: spreading by group mesh with groups of 16 to 256 nodes."""

from guo.bench import Bench, Job
from guo.cases import cases

FIGURE = "fig4"
SIZES = (16, 32, 64, 128, 256)


def jobs(bench: Bench) -> list[Job]:
    """Return what is to be measured."""
    sizes = (16, 64) if bench.small else SIZES
    return [
        Job(case, name, {"group_size": size}, prepare=False)
        for name in bench.those("group_mesh") for case in cases(FIGURE, bench.small) for size in sizes
    ]  # fmt: skip
