# SPDX-License-Identifier: BSD-3-Clause
"""Operators of torch with two directions, each the other's adjoint, whose derivatives are calls of them again.

One direction spreads: from particles to a field. The other interpolates. Both take points (N, d), an array, an order
of derivative and a text with all facts.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from operator import index
from typing import Any

import torch
from torch import Tensor


def constant(numbers: Any) -> Any:
    """Return a dictionary or sequence whose integers are constants: compilation makes symbols of those that change."""
    if isinstance(numbers, dict):
        return {name: index(value) if type(value) is int else value for name, value in numbers.items()}
    return tuple(index(number) for number in numbers)


def real_name(array: Tensor) -> str:
    """Return the name of the real type of an array's numbers."""
    return str(array.dtype.to_real()).removeprefix("torch.")


def by_positions(particles: Tensor, slopes: Tensor, order: int) -> Tensor:
    """Return the derivative (N, d) by positions: slopes (..., N, d, ...) weighted by what the particles carry."""
    weighted = particles.conj().unsqueeze(-1) * slopes
    weighted = weighted.real if weighted.is_complex() else weighted
    batch = particles.ndim - 1 - order
    axes = (*range(batch), *range(batch + 1, batch + 1 + order))
    return weighted.sum(axes) if axes else weighted


def define(
    name: str, run: Callable[..., Tensor], shape: Callable[..., tuple[int, ...]],
    call: Callable[..., Tensor] | None = None, slopes: Callable[..., list[Tensor | None]] | None = None, sets: int = 1,
) -> Callable[..., Tensor]:  # fmt: skip
    """Define ``torch.ops.particlemesh.<name>``; return the function ``(spreads, *points, array, order, facts)``.

    It also works under ``torch.func.grad``.

    Parameters
    ----------
    name : str
    run : callable
        ``run(spreads, *points, array, order, facts)`` computes the result.
    shape : callable
        Returns the result's shape for the same arguments, or raises an error.
    call : callable, optional
        The same function for the next order, which derivatives by points call, where it is made of other calls.
    slopes : callable, optional
        ``slopes(spreads, points, array, slope, facts, needs)`` returns the derivatives by each of the points from that
        by the result, where these are not the next order.
    sets : int
        How many sets of points there are. Derivatives of the next order are by the first one.
    """
    points_of_schema = "".join(f"Tensor points{n}, " for n in range(sets))
    schema = f"({points_of_schema}Tensor array, bool spreads, int order, str facts) -> Tensor"

    def bind(spreads: bool, *arguments: Any) -> Tensor:
        *tensors, order, facts = arguments
        apply = operator if torch.compiler.is_compiling() else function.apply
        return apply(*tensors, spreads, order, facts)

    derive = bind if call is None else call

    def forward(*arguments: Any) -> Tensor:
        *tensors, spreads, order, facts = arguments
        return run(spreads, *(tensor.detach() for tensor in tensors), order, facts)

    def shaped(*arguments: Any) -> Tensor:
        *tensors, spreads, order, facts = arguments
        return tensors[-1].new_empty(shape(spreads, *tensors, order, facts))

    def setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        *points, array, ctx.spreads, ctx.order, ctx.facts = inputs
        # The array is needed by derivatives by points only.
        ctx.save_for_backward(*points, array if any(ctx.needs_input_grad[:sets]) else None)

    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:
        *points, array = ctx.saved_tensors
        needs, spreads, order, facts = ctx.needs_input_grad, ctx.spreads, ctx.order, ctx.facts
        by_points: list[Tensor | None] = [None] * sets
        if slopes is not None:
            by_points = slopes(spreads, points, array, slope, facts, needs[:sets])
        elif needs[0]:
            particles, field = (array, slope) if spreads else (slope, array)
            turned = by_positions(particles, derive(False, *points, field, order + 1, facts), order)
            by_points[0] = turned.to(points[0].dtype)
        by_array = bind(not spreads, *points, slope, order, facts) if needs[sets] else None
        return *by_points, by_array, None, None, None

    def batched(info: Any, axes: Any, *arguments: Any) -> tuple[Tensor, int]:
        *tensors, spreads, order, facts = arguments
        if all(axis is None for axis in axes[:sets]):
            return bind(spreads, *tensors[:sets], tensors[sets].movedim(axes[sets], 0), order, facts), 0
        given = list(zip(tensors, axes, strict=False))
        if not info.batch_size:
            one = (a if axis is None else a.new_empty(a.movedim(axis, 0).shape[1:]) for a, axis in given)
            return tensors[-1].new_empty((0, *shape(spreads, *one, order, facts))), 0
        many = ([a] * info.batch_size if axis is None else a.unbind(axis) for a, axis in given)
        return torch.stack([bind(spreads, *one, order, facts) for one in zip(*many, strict=True)]), 0

    operator: Any = torch.library.custom_op(f"particlemesh::{name}", forward, mutates_args=(), schema=schema)
    operator.register_fake(shaped)
    operator.register_autograd(backward, setup_context=setup)
    operator.register_vmap(batched)
    # torch.func.grad supports functions only, compilation is made for operators.
    rules = dict(forward=operator, setup_context=setup, backward=backward, vmap=batched)
    members = {key: staticmethod(rule) for key, rule in rules.items()}
    function: Any = types.new_class(name, (torch.autograd.Function,), exec_body=lambda body: body.update(members))
    return bind
