# SPDX-License-Identifier: BSD-3-Clause
"""How kernels that read orders find the particles without weight, which are in no order: their values are zero."""

from __future__ import annotations

from typing import Any

from particlemesh.backends.base import Unread
from particlemesh.particles.workspace import Workspace

# How the kernel finds them (weightless.h): it reads all stencils, all packed stencils, or the end of the order.
FACTS = (
    {"PACKED": 0, "WEIGHTLESS_LAST": 0},
    {"PACKED": 1, "WEIGHTLESS_LAST": 0},
    {"PACKED": 0, "WEIGHTLESS_LAST": 1},
)


def weightless(workspace: Workspace) -> tuple[int, Any, Any, Any]:
    """Return which of ``FACTS`` hold, and the kernel's ``located``, ``node`` and ``fraction``.

    Sorted particles keep their stencils in their order: spelling them out would allocate memory.
    """
    if (order := workspace.particles.by_block) is not None:
        return 2, *(Unread(order.start),) * 3
    packed, located, fraction = workspace.particles.located()
    if packed:
        return 1, located, Unread(located), Unread(located)
    return 0, Unread(located), located, fraction
