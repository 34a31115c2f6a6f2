# SPDX-License-Identifier: BSD-3-Clause
"""What plans and lists of neighbours do with tensors that require grad: differentiable calls."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from particlemesh import Plan
from particlemesh.autograd.pool import INTERPOLATE, SPREAD, verb
from particlemesh.autograd.torch_lists import kept_list, neighbour_list
from particlemesh.autograd.torch_operators import by_positions

__all__ = ["kept_list", "neighbour_list", "record", "track"]


def track(plan: Plan, positions: Any, *, boxes: Any = None, **options: Any) -> None:
    """Set positions that derivatives are taken by: one tensor, or one per axis."""
    if isinstance(boxes, Tensor) and boxes.requires_grad:
        raise TypeError(
            "boxes require grad, and a plan has no derivatives by them: use particlemesh.autograd.torch with cell=, or "
            "pass boxes.detach()."
        )
    with torch.no_grad():
        plan.set_positions(positions, boxes=boxes, **options)
    plan.track(positions)


def record(plan: Plan, what: Any, array: Any, *outs: Any) -> Any:
    """Make a call whose result is differentiable by the array and by tracked positions."""
    name = what if isinstance(what, str) else what[0]
    if not isinstance(array, Tensor):
        raise TypeError(
            f"the positions require grad, and this array is a {type(array).__name__}: give a tensor, "
            "or set positions.detach()."
        )
    if any(out is not None for out in outs):
        raise TypeError(
            "out= and accumulate= are not differentiable, and a tensor here requires grad: leave them out, "
            "or call it under torch.no_grad()."
        )
    if len(outs) > 1:  # value and gradient, and the hessian
        return tuple(record(plan, each, array) for each in INTERPOLATE[: len(outs)])
    columns = plan.tracked
    if columns and plan.workspace is not None and plan.workspace.sorted:
        # The plan's order is its memory, which the next positions overwrite.
        order = plan.order.to(torch.int64, copy=True)
        columns = [column[order] for column in columns]
    return _Call.apply(plan, name, array, *columns)


class _Call(torch.autograd.Function):
    """A plan's call, with the same plan's calls as derivatives."""

    @staticmethod
    def forward(ctx: Any, plan: Plan, name: str, array: Tensor, *columns: Tensor) -> Tensor:
        ctx.plan, ctx.name, ctx.tracked = plan, name, plan.tracked
        ctx.shapes = [(column.shape, column.dtype) for column in columns]
        ctx.save_for_backward(array if any(ctx.needs_input_grad[3:]) else None)
        return getattr(plan, name)(array)

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:
        plan, name = ctx.plan, ctx.name
        if plan.tracked is not ctx.tracked:
            raise RuntimeError(
                f"the plan has new positions since {name}(): derivatives need the old ones. Call backward() before "
                "set_positions(), use one plan per configuration, or use particlemesh.autograd.torch."
            )

        spreads = name in SPREAD
        order = (SPREAD if spreads else INTERPOLATE).index(name)
        (array,), (_, _, by_array, *by_columns) = ctx.saved_tensors, ctx.needs_input_grad
        pulled = getattr(plan, verb(not spreads, order))(slope) if by_array else None
        slopes = None
        if any(by_columns):
            particles, field = (array, slope) if spreads else (slope, array)
            slopes = by_positions(particles, getattr(plan, verb(False, order + 1))(field), order)
        if slopes is None:
            return None, None, pulled, *(None for _ in by_columns)
        parts = [slopes] if len(by_columns) == 1 else slopes.unbind(-1)
        given = zip(parts, ctx.shapes, by_columns, strict=True)
        return None, None, pulled, *(p.reshape(s).to(t) if needed else None for p, (s, t), needed in given)
