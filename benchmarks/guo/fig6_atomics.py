# SPDX-License-Identifier: BSD-3-Clause
"""Figure 6: what atomic additions cost the particle method, against plain additions and plain stores in their place.

The two variants give wrong fields and exist for this figure only. Their kernel lies beside this file and is the
library's own but for one function: an absolute path is a kernel file to the backends as well.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from guo.bench import Bench, Job
from guo.cases import cases
from particlemesh.spread.particle import Particle, adding

FIGURE = "fig6"
FILE = str(Path(__file__).with_name("particle_plain.c"))


class PlainAdds(Particle):
    """The particle method that reads, adds and writes without atomics."""

    name = "particle, plain adds"
    stores: ClassVar[int] = 0

    def compile(self, workspace: Any, form: Any, group: Any, field: Any, *values: Any) -> tuple[Any, ...]:
        """Return the other kernel."""
        return (adding(workspace, form, group, field, FILE, STORES=self.stores),)


class PlainStores(PlainAdds):
    """The particle method that writes what it would have to add: the paper's variant."""

    name = "particle, plain stores"
    stores = 1


def jobs(bench: Bench) -> list[Job]:
    """Return what is to be measured."""
    return [
        Job(case, name, variant=variant, prepare=False)
        for name in bench.those("particle") for case in cases(FIGURE, bench.small)
        for variant in (None, PlainAdds, PlainStores)
    ]  # fmt: skip
