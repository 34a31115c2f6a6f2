# SPDX-License-Identifier: BSD-3-Clause
"""The way of values in a plan: from users' arrays through a method to the result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from particlemesh.arrays import operands
from particlemesh.arrays.positions import check_size

INPUTS = "values", "vectors", "tensors"  # by the order of the derivative
_POWERS = "", "", "**2"
_RESULTS = "values", "gradient", "hessian"


def spread(plan: Any, order: int, given: Any, out: Any, accumulate: bool) -> Any:
    """Take values, apply a method, and return the field."""
    if accumulate and out is None:
        raise ValueError("accumulate=True adds to out: give out=.")
    workspace, upload, mesh = plan.workspace, plan.uploads, plan.mesh
    backend, core = workspace.backend, (workspace.count, *(mesh.ndim,) * order)
    operand = operands.take(given, core, len(core), workspace.dtype, backend, INPUTS[order], upload=upload)
    with operand.kind.scope(given), backend.scope(operand.native, out):
        plan.follow()
        result = operands.give(
            out, operand, operand.batch + plan.field_shape, mesh.ndim, 3, backend, accumulate=accumulate, upload=upload
        )
        if order:
            check_slopes(plan, order)
        method = plan.methods.ready("spread", order)
        some = bool(workspace.count and operand.view.layout.channels)
        if not accumulate and not (some and method.fills and plan.stack is None):
            backend.clear(result.native)
        if some:
            values, field = operand.view, result.view
            if plan.boxes is not None and order:
                values = plan.boxes.to_mesh(workspace, values, _turns(plan))
            fresh = not accumulate
            if plan.stack is not None:
                field, fresh = plan.stack.field(workspace, result.view, operand.native.dtype), True
                if not method.fills:
                    backend.clear(field.array)
            method.apply(workspace, values, field, gradient=order == 1, hessian=order == 2, fresh=fresh)
            if plan.stack is not None:
                plan.stack.fold(workspace, field, result.view)
        backend.mark(operand.native, result.native)
        return result.finish()


def interpolate(plan: Any, orders: Sequence[int], field: Any, outs: tuple[Any, ...]) -> Any:
    """Take a field, apply a method, and return values of one order, or a tuple."""
    workspace, upload, mesh = plan.workspace, plan.uploads, plan.mesh
    backend, shape = workspace.backend, plan.field_shape
    operand = operands.take(
        field, shape, 3, workspace.dtype, backend, "field", upload=upload, channels=len(shape) - mesh.ndim
    )
    with operand.kind.scope(field), backend.scope(operand.native, *outs):
        plan.follow()
        results = {}
        for order, out in zip(orders, outs, strict=True):
            core = (workspace.count, *(mesh.ndim,) * order)
            results[_RESULTS[order]] = operands.give(
                out, operand, operand.batch + core, len(core), len(core), backend, accumulate=False, upload=upload
            )
        if orders[-1]:
            check_slopes(plan, orders[-1])
        method = plan.methods.ready("interpolate", orders[-1])
        if workspace.count and operand.view.layout.channels:
            views, nodes = {name: r.view for name, r in results.items()}, operand.view
            if plan.stack is not None:
                nodes = plan.stack.field(workspace, operand.view, operand.native.dtype)
                plan.stack.fill(workspace, operand.view, nodes)
            method.apply(workspace, nodes, views.get("values"), **{n: v for n, v in views.items() if n != "values"})
            if plan.boxes is not None:
                for name in views.keys() - {"values"}:
                    plan.boxes.from_mesh(workspace, views[name], _turns(plan))
        backend.mark(operand.native, *(result.native for result in results.values()))
        finished = tuple(result.finish() for result in results.values())
        return finished if len(finished) > 1 else finished[0]


def check_slopes(plan: Any, order: int) -> None:
    """Check that the plan's type holds derivatives of an order, per power of the user's length."""
    rows = plan.mesh.box.matrix[None] if plan.boxes is None else plan.boxes.rows
    slopes = np.array(plan.mesh.intervals) / np.linalg.norm(rows, axis=2)
    for size in (slopes.min(), slopes.max()):
        check_size(size**order, plan.dtype, f"derivatives of a field of size 1, per length{_POWERS[order]},")


def _turns(plan: Any) -> Any:
    """Return the caller's index of the particle of each value, or None if they are in the caller's order."""
    return plan.particles.order if plan.workspace.sorted else None
