# SPDX-License-Identifier: BSD-3-Clause
"""Energies of the charges of many ranks as functions of torch tensors."""

from __future__ import annotations

import functools

from torch import Tensor

from particlemesh.apps.pme import derivatives, shares
from particlemesh.apps.pme.ranks import DistributedPME
from particlemesh.apps.pme.torch import TORCH, near_energies
from particlemesh.autograd.torch import OverRanks

__all__ = ["energy"]

_near = functools.partial(shares.near_sum, TORCH, near_energies)
_KIND = shares.Kind(TORCH, OverRanks, _near, derivatives.excluded, lambda count: count)


def energy(pme: DistributedPME, positions: Tensor, charges: Tensor, *, cell: Tensor | None = None) -> Tensor:
    """Return this rank's share of the energy of periodic charges; differentiable by positions, charges and cell, twice.

    The sum of all shares is the energy. Every rank differentiates its share at the same time, and gets the derivatives
    of the sum by its own arrays, as with :class:`particlemesh.autograd.torch.OverRanks`. Those by the cell are the same
    on every rank. The sum over pairs is made of tensors, whose memory grows with a rank's number of pairs.

    Parameters
    ----------
    pme : DistributedPME
        Its cutoff, splitting, mesh, window, Coulomb constant and exclusions. Parameters that are not given are chosen
        at the first call. Keep it until all derivatives are taken.
    positions : tensor (N, 3)
        Of this rank's particles, float32 or float64.
    charges : tensor (N,)
        Of the same dtype and device.
    cell : tensor (3,) or (3, 3), optional
        Lengths, or lattice vectors as rows, instead of those of ``pme.box``; the same on every rank. Gradients by it
        are at fixed positions.

    Returns
    -------
    tensor ()

    Raises
    ------
    ValueError, TypeError
        If an argument is not allowed, particles lie in one place, or other tensors require grad on another rank.
    particlemesh.distributed.RankError
        If another rank raised.
    NotImplementedError
        If third derivatives by positions are needed.

    Examples
    --------
    >>> import torch
    >>> from particlemesh import distributed as pmd
    >>> from particlemesh.apps.pme import DistributedPME
    >>> from particlemesh.apps.pme.torch_ranks import energy
    >>> x = torch.tensor([[0.1, 0.5, 0.5], [0.6, 0.5, 0.5]], dtype=torch.float64, requires_grad=True)
    >>> q = torch.tensor([1.0, -1.0], dtype=torch.float64)
    >>> pme = DistributedPME(pmd.World(), (2.0, 2.0, 2.0), accuracy=1e-6)
    >>> force = -torch.autograd.grad(energy(pme, x, q), x)[0]
    >>> force[:, 0].sign().tolist()  # they attract each other
    [1.0, -1.0]
    """
    result: Tensor = shares.share(_KIND, pme, positions, charges, cell)
    return result
