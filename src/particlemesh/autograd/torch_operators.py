# SPDX-License-Identifier: BSD-3-Clause
"""Pairs of adjoint operators of torch, whose derivatives by positions are operators of the same pair.

One operator of a pair spreads: from particles to a field. The other interpolates. Both take points (N, d), an array, an
order of derivative and a text with all facts.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from operator import index
from typing import Any

import torch
from torch import Tensor

_SCHEMA = "(Tensor points, Tensor array, int order, str facts) -> Tensor"


def constant(numbers: Any) -> Any:
    """Return a dictionary or sequence whose integers are constants: compilation makes symbols of those that change."""
    if isinstance(numbers, dict):
        return {name: index(value) if type(value) is int else value for name, value in numbers.items()}
    return tuple(index(number) for number in numbers)


def real_name(array: Tensor) -> str:
    """Return the name of the real type of an array's numbers."""
    return str(array.dtype.to_real()).removeprefix("torch.")


def _by_positions(particles: Tensor, slopes: Tensor, order: int) -> Tensor:
    """Return the derivative (N, d) by positions: slopes (..., N, d, ...) weighted by what the particles carry."""
    weighted = particles.conj().unsqueeze(-1) * slopes
    weighted = weighted.real if weighted.is_complex() else weighted
    batch = particles.ndim - 1 - order
    axes = (*range(batch), *range(batch + 1, batch + 1 + order))
    return weighted.sum(axes) if axes else weighted


def pulled_back(
    call: Callable[[bool, Tensor, int], Tensor], spreads: bool, order: int, array: Tensor | None, slope: Tensor,
    needs: tuple[bool, bool],
) -> tuple[Tensor | None, Tensor | None]:  # fmt: skip
    """Return the derivatives of a loss by positions and by the array, from that by the result (``slope``).

    ``call(spreads, array, order)`` applies an operator with the positions of the call.
    """
    by_positions, by_array = None, None
    if needs[0]:
        assert array is not None
        particles, field = (array, slope) if spreads else (slope, array)
        by_positions = _by_positions(particles, call(False, field, order + 1), order)
    if needs[1]:
        by_array = call(not spreads, slope, order)
    return by_positions, by_array


def define(
    name: str, spreads: bool, run: Callable[..., Tensor], shape: Callable[..., tuple[int, ...]],
    call: Callable[..., Tensor],
) -> Callable[..., Tensor]:  # fmt: skip
    """Define ``torch.ops.particlemesh.<name>``; return a function that also works under ``torch.func.grad``.

    Parameters
    ----------
    name : str
    spreads : bool
        Which of the pair the operator is.
    run : callable
        ``run(spreads, points, array, order, facts)`` computes the result.
    shape : callable
        Returns the result's shape for the same arguments.
    call : callable
        Applies either operator of the pair, differentiably, for the same arguments.
    """

    def apply(points: Tensor, array: Tensor, order: int, facts: str) -> Tensor:
        return run(spreads, points.detach(), array.detach(), order, facts)

    def shaped(points: Tensor, array: Tensor, order: int, facts: str) -> Tensor:
        return array.new_empty(shape(spreads, points, array, order, facts))

    def setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        points, array, ctx.order, ctx.facts = inputs
        # The array is needed by derivatives by positions only.
        ctx.save_for_backward(points, array if ctx.needs_input_grad[0] else None)

    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        points, array = ctx.saved_tensors

        def at_points(spreads: bool, array: Tensor, order: int) -> Tensor:
            return call(spreads, points, array, order, ctx.facts)

        by_points, by_array = pulled_back(at_points, spreads, ctx.order, array, slope, ctx.needs_input_grad[:2])
        return (None if by_points is None else by_points.to(points.dtype)), by_array, None, None

    def batched(info: Any, axes: Any, points: Tensor, array: Tensor, order: int, facts: str) -> tuple[Tensor, int]:
        if axes[0] is None:
            return call(spreads, points, array.movedim(axes[1], 0), order, facts), 0
        arrays = [array] * info.batch_size if axes[1] is None else array.unbind(axes[1])
        pairs = zip(points.unbind(axes[0]), arrays, strict=True)
        return torch.stack([call(spreads, *pair, order, facts) for pair in pairs]), 0

    operator: Any = torch.library.custom_op(f"particlemesh::{name}", apply, mutates_args=(), schema=_SCHEMA)
    operator.register_fake(shaped)
    operator.register_autograd(backward, setup_context=setup)
    operator.register_vmap(batched)
    # torch.func.grad supports functions only, compilation is made for operators.
    rules = dict(forward=operator, setup_context=setup, backward=backward, vmap=batched)
    members = {key: staticmethod(rule) for key, rule in rules.items()}
    function: Any = types.new_class(name, (torch.autograd.Function,), exec_body=lambda body: body.update(members))

    def differentiable(*arguments: Any) -> Tensor:
        return operator(*arguments) if torch.compiler.is_compiling() else function.apply(*arguments)

    return differentiable
