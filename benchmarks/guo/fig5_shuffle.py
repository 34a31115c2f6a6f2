# SPDX-License-Identifier: BSD-3-Clause
"""Figure 5: spreading by single mesh, rows summed through registers (warp shuffle) and through shared memory."""

from guo.bench import Bench, Job
from guo.cases import cases

FIGURE = "fig5"


def jobs(bench: Bench) -> list[Job]:
    """Return what is to be measured; the compute unit is that of the heuristic."""
    return [
        Job(case, name, {"reduction": how}, prepare=False)
        for name in bench.those("single_mesh") for case in cases(FIGURE, bench.small) for how in ("shuffle", "local")
    ]  # fmt: skip
