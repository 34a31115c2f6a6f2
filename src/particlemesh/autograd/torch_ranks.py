# SPDX-License-Identifier: BSD-3-Clause
"""Spreading, interpolation and transforms over many ranks, with derivatives of torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from particlemesh.autograd import ranks
from particlemesh.autograd.torch_operators import define


def _agreed(collective: ranks.Collective, **inputs: Tensor) -> list[Tensor]:
    needs = sum(int(tensor.requires_grad) << n for n, tensor in enumerate(inputs.values()))
    collective.agree(tuple(inputs), needs if torch.is_grad_enabled() else 0)
    return list(inputs.values())


class _Linear(torch.autograd.Function):
    """A linear function on all ranks, its adjoint, and the adjoint of that."""

    @staticmethod
    def forward(ctx: Any, array: Tensor, *ways: Callable[[Tensor], Tensor]) -> Tensor:
        ctx.ways = ways
        return ways[0](array.detach().contiguous())

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:
        _, back, again = ctx.ways
        return _Linear.apply(slope, back, again, back), None, None, None


def _linear(array: Tensor, there: Any, back: Any, again: Any = None, **_: Any) -> Any:
    return _Linear.apply(array, there, back, again or there)


def like(numbers: Any, array: Tensor) -> Tensor:
    """Return a tensor of numbers with the dtype and device of another."""
    return torch.as_tensor(numbers, dtype=array.dtype, device=array.device)


def add(array: Tensor, at: Any, terms: Tensor) -> Tensor:
    """Return a tensor with terms added to some of the numbers along its last axis."""
    return array.index_add(-1, torch.as_tensor(at, device=array.device), terms)


LIBRARY = ranks.Library(
    torch, Tensor, like, add, lambda a: a.resolve_conj().contiguous(), _agreed, _linear,
    False, "{} requires grad", "Let the same inputs require grad",
)  # fmt: skip


class OverRanks(ranks.OverRanks):
    r"""Differentiable calls over the ranks of a domain: of positions, values, fields and modes of this rank.

    Every rank makes the same calls, and differentiates its share of the loss at the same time. Gradients are those of
    the sum of all shares. A share that depends on no result keeps the other ranks waiting, so add ``0 * result.sum()``.
    Inputs that require grad do so on all ranks; if they differ, every rank raises. Derivatives by positions are exact
    for the window, twice. Keep the object until all derivatives are taken.

    Parameters
    ----------
    domain : particlemesh.distributed.Domain
        With one part for each rank.
    world : particlemesh.distributed.World
        The ranks.
    window : Window or str
    **options
        Options of :class:`particlemesh.distributed.Plan`, such as ``ghosts``, ``components`` and ``deterministic``.

    Attributes
    ----------
    part : particlemesh.distributed.Part
        The nodes of this rank.
    modes : tuple of (int, int)
        The range of modes of this rank along each axis.

    Raises
    ------
    ValueError, TypeError, particlemesh.distributed.RankError
        As for :class:`particlemesh.distributed.Plan`. Also if other inputs require grad on another rank.

    Examples
    --------
    >>> import torch, particlemesh as pm
    >>> from particlemesh import distributed as pmd
    >>> from particlemesh.autograd.torch import OverRanks
    >>> world = pmd.World()
    >>> ranks = OverRanks(pmd.Domain(pm.Mesh(4, 1.0), world.size), world, "tsc")
    >>> x = torch.tensor([[0.5]], requires_grad=True)
    >>> field = ranks.spread(x, torch.tensor([2.0]))
    >>> torch.autograd.grad(field[1], x)
    (tensor([[-4.]]),)
    """

    library, transfer = LIBRARY, staticmethod(define("transfer_over_ranks", ranks.run, ranks.shape))
