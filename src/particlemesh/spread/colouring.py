# SPDX-License-Identifier: BSD-3-Clause
"""Spreading by tiles in private memory: the loops of `particlemesh.spread.cpu.adding` on numbers."""

from __future__ import annotations

import functools
from typing import Any

from particlemesh.arrays.operands import View
from particlemesh.particles.workspace import Workspace
from particlemesh.spread.cpu.adding import Adding, add_channel


class Colouring(Adding):
    """Tiles of the mesh in private memory, added in a fixed order: no atomics, reproducible for any threads.

    On one axis a tile would save nothing: particles are added in the order given.
    """

    name = "colouring"
    cite = "liu2014"
    fills = True

    def apply(
        self, workspace: Workspace, values: View, field: View, gradient: bool = False, hessian: bool = False,
        fresh: bool = False, **_: Any,
    ) -> None:  # fmt: skip
        order = 2 if hessian else int(gradient)
        for source, target in zip(values.numpy(), field.numpy(), strict=True):
            add_channel(workspace, functools.partial(self.rows, workspace), source, order, target, fresh=fresh)
