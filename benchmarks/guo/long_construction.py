# SPDX-License-Identifier: BSD-3-Clause
"""The long version's figures of construction: single mesh and group mesh, for every mesh."""

from guo.bench import Bench, Job
from guo.cases import cases
from guo.variants import forms

FIGURE = "long_construction"


def jobs(bench: Bench) -> list[Job]:
    """Return what is to be measured."""
    names = bench.those("single_mesh", "group_mesh")
    return [Job(case, *form) for form in forms(bench, names) for case in cases(FIGURE, bench.small)]
