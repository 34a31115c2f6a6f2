# SPDX-License-Identifier: BSD-3-Clause
"""How the kernels that read orders find the particles that are in none, having no weight: their values are zero."""

from __future__ import annotations

from typing import Any

from particlemesh.backends.base import Unread
from particlemesh.particles.workspace import Workspace

# What lost.h must know: particles are to be looked at, as they are or packed; or those without weight come last.
FACTS = ({"PACKED": 0, "LOST_LAST": 0}, {"PACKED": 1, "LOST_LAST": 0}, {"PACKED": 0, "LOST_LAST": 1})


def lost_among(workspace: Workspace) -> tuple[int, Any, Any, Any]:
    """Return which of ``FACTS`` hold, and what the kernel reads as ``located`` or ``node``, and as ``fraction``.

    Sorted particles are not asked for stencils, which they would have to spell out in memory that nobody has reserved.
    """
    if (found := workspace.particles.by_block) is not None:
        return 2, *(Unread(found.start),) * 3
    packed, located, fraction = workspace.particles.located()
    if packed:
        return 1, located, Unread(located), Unread(located)
    return 0, Unread(located), located, fraction
