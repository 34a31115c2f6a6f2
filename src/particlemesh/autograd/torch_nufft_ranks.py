# SPDX-License-Identifier: BSD-3-Clause
"""Non-uniform Fourier transforms over many ranks, with derivatives of torch of any order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from particlemesh.autograd import nufft_ranks
from particlemesh.autograd.nufft_facts import shape_of
from particlemesh.autograd.torch_nufft import as_complex, slopes_of
from particlemesh.autograd.torch_nufft3 import slopes_of as slopes_of_3
from particlemesh.autograd.torch_operators import define
from particlemesh.autograd.torch_ranks import LIBRARY


def _slopes(spreads: bool, points: Tensor, array: Tensor, order: int, text: str) -> Tensor:
    return slopes_of(_transform, *nufft_ranks.axes_of(text), points, array, text)


def _slopes_3(*given: Any) -> list[Tensor | None]:
    return slopes_of_3(_transform_3, nufft_ranks.facts_of(given[4])[1], *given)


_transform: Callable[..., Tensor] = define("nufft_over_ranks", nufft_ranks.run, nufft_ranks.shape, _slopes)
_transform_3: Callable[..., Tensor] = define("nufft3_over_ranks", nufft_ranks.run_3, shape_of, slopes=_slopes_3, sets=2)


class NUFFTOverRanks(nufft_ranks.NUFFTOverRanks):
    r"""Differentiable non-uniform Fourier transforms of the points, modes and frequencies of many ranks.

    Every rank makes the same calls, and differentiates its share of a loss at the same time, as for
    :class:`~particlemesh.autograd.torch.OverRanks`. Derivatives are of any order. Keep the object until all are taken.

    Parameters
    ----------
    world : particlemesh.distributed.World
    n_modes : int or tuple of d ints
        Modes per axis, from ``-(n // 2)`` to ``(n - 1) // 2``.
    eps : float
        Relative l2 error to reach.
    **options
        Options of :class:`particlemesh.apps.nufft.DistributedPlan`, without ``modeord``, ``spreadinterponly`` and
        ``real``. The same on every rank.

    Attributes
    ----------
    part : tuple of (int, int)
        The range of this rank's modes along each axis, in ascending order of their numbers.
    shape : tuple of int
        Their number.
    numbers : tuple of tensors
        The numbers of this rank's modes along each axis.

    Raises
    ------
    ValueError, TypeError, particlemesh.distributed.RankError
        As for :class:`particlemesh.apps.nufft.DistributedPlan`. Calls raise if other inputs require grad on another
        rank.

    Examples
    --------
    >>> import torch
    >>> from particlemesh import distributed as pmd
    >>> from particlemesh.autograd.torch_nufft_ranks import NUFFTOverRanks
    >>> transform = NUFFTOverRanks(pmd.World(), 5, eps=1e-9)
    >>> x = torch.tensor([0.5], dtype=torch.float64, requires_grad=True)
    >>> modes = transform.nufft1(x, torch.ones(1, dtype=torch.float64))
    >>> torch.autograd.grad(modes[4].real, x)[0].round(decimals=6)  # -2 sin(2 x)
    tensor([-1.6829], dtype=torch.float64)
    """

    library, as_complex = LIBRARY, staticmethod(as_complex)
    transfer, transfer_3 = staticmethod(_transform), staticmethod(_transform_3)
