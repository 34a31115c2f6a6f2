# SPDX-License-Identifier: BSD-3-Clause
"""How kernels that read orders find the particles without weight, which are in no order: their values are zero."""

from __future__ import annotations

from typing import Any

from particlemesh.particles.workspace import Workspace

# How the kernel finds them (weightless.h): it reads all stencils, all packed stencils, or the end of the order.
FACTS = (
    {"PACKED": 0, "WEIGHTLESS_LAST": 0},
    {"PACKED": 1, "WEIGHTLESS_LAST": 0},
    {"PACKED": 0, "WEIGHTLESS_LAST": 1},
)


def weightless(workspace: Workspace) -> tuple[int, Any, Any]:
    """Return which of ``FACTS`` hold, and what the kernel reads as ``located`` or ``node``, and as ``fraction``.

    Sorted particles keep their stencils in their order: spelling them out would allocate memory.
    """
    if (order := workspace.particles.by_block) is not None:
        return 2, order.start, order.start  # neither is read
    packed, node, fraction = workspace.particles.located()
    return int(packed), node, fraction
