# SPDX-License-Identifier: BSD-3-Clause
"""Variants of the particle method for figure 6: plain additions, or plain stores, in place of atomic additions.

Both return wrong fields and exist for this figure only. Their kernel is beside this file and differs from the library's
by one function. Backends take an absolute path as a kernel file.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from particlemesh.spread.particle import Particle, adding

FILE = str(Path(__file__).with_name("particle_plain.c"))


class PlainAdds(Particle):
    """The particle method with loads, additions and stores that are not atomic."""

    name = "particle, plain adds"
    stores: ClassVar[int] = 0

    def compile(self, workspace: Any, form: Any, group: Any, field: Any, *values: Any) -> tuple[Any, ...]:
        """Return the particle method's kernel with plain memory accesses."""
        return (adding(workspace, form, group, field, FILE, STORES=self.stores),)


class PlainStores(PlainAdds):
    """The particle method that stores what it has to add: the paper's variant."""

    name = "particle, plain stores"
    stores = 1
