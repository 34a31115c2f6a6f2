# SPDX-License-Identifier: BSD-3-Clause
"""Variants of the particle method for figure 6: plain additions, or plain stores, in place of atomic additions.

Both return wrong fields and exist for this figure only. Their kernel is beside this file and differs from the library's
by one function. Backends take an absolute path as a kernel file.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from particlemesh.methods.launches import field_record, groups, kernel, values_record, vector
from particlemesh.spread.particle import LANES, Particle

FILE = str(Path(__file__).with_name("particle_plain.c"))


class PlainAdds(Particle):
    """The particle method with loads, additions and stores that are not atomic."""

    name = "particle, plain adds"
    stores: ClassVar[int] = 0

    def build(self, workspace: Any, kind: int, field: Any, *values: Any) -> list[Any]:
        """Return the launches of the particle method, with the other kernel."""
        most = 4 if workspace.dtype.itemsize == 4 else 1
        built = []
        for group in groups(field):
            width = vector(group, field, workspace.dtype.itemsize, most)
            more = dict(GRADIENT=kind, STORES=self.stores, **LANES)
            run = kernel(workspace, FILE, "spread_particle", group, width, **more)
            built.append((run, values_record(group, values[0]), field_record(group, field, workspace.axes)))
        return built


class PlainStores(PlainAdds):
    """The particle method that stores what it has to add: the paper's variant."""

    name = "particle, plain stores"
    stores = 1
