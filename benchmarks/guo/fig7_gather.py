# SPDX-License-Identifier: BSD-3-Clause
"""Figure 7: the particle method against the Gather algorithm, and its successor with lists in the place of one slot.

The paper counts placement as a part of Gather where spreading happens once; both times are in the rows.
"""

from guo.bench import Bench, Job
from guo.cases import cases

FIGURE = "fig7"


def jobs(bench: Bench) -> list[Job]:
    """Return what is to be measured."""
    return [
        Job(case, name)
        for name in bench.those("particle", "gather", "gather_list") for case in cases(FIGURE, bench.small)
    ]  # fmt: skip
