# SPDX-License-Identifier: BSD-3-Clause
"""The energy of charges as a function of torch tensors, differentiable twice by positions, charges and cell."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

import particlemesh as pm
from particlemesh.apps.pme import derivatives
from particlemesh.apps.pme.pme import PME
from particlemesh.apps.pme.split import Split
from particlemesh.autograd.torch import potential


def energy(pme: PME, positions: Tensor, charges: Tensor, *, cell: Tensor | None = None) -> Tensor:
    """Return the energy of periodic charges; differentiable by positions, charges and cell.

    First derivatives take the pair function of :class:`particlemesh.apps.pme.PME`. If they are differentiated in their
    turn (``create_graph=True``), the sum over pairs is made of tensors, whose memory grows with the number of pairs.

    Parameters
    ----------
    pme : PME
        Its cutoff, splitting, mesh, window, Coulomb constant and exclusions. Parameters that are not given are chosen
        at the first call.
    positions : tensor (N, 3)
        Float32 or float64.
    charges : tensor (N,)
        Of the same dtype and device.
    cell : tensor (3,) or (3, 3), optional
        Lengths, or lattice vectors as rows, instead of those of ``pme.box``. Gradients by it are at fixed positions.

    Returns
    -------
    tensor ()

    Raises
    ------
    ValueError, TypeError
        If an argument is not allowed, or particles lie in one place.
    NotImplementedError
        If third derivatives by positions are needed.

    Examples
    --------
    >>> import torch
    >>> from particlemesh.apps.pme import PME
    >>> from particlemesh.apps.pme.torch import energy
    >>> x = torch.tensor([[0.1, 0.5, 0.5], [0.6, 0.5, 0.5]], dtype=torch.float64, requires_grad=True)
    >>> q = torch.tensor([1.0, -1.0], dtype=torch.float64)
    >>> pme = PME((2.0, 2.0, 2.0), accuracy=1e-6)
    >>> force = -torch.autograd.grad(energy(pme, x, q), x)[0]
    >>> force[:, 0].sign().tolist()  # they attract each other
    [1.0, -1.0]
    """
    for name, given in (("positions", positions), ("charges", charges), ("cell", positions if cell is None else cell)):
        if not isinstance(given, Tensor):
            raise TypeError(f"{name} is of type {type(given).__name__}; give a tensor.")
    p = derivatives.parameters_of(pme, positions, charges)
    matrix = derivatives.matrix_of(pme, cell, positions.new_tensor, torch.diag).to(positions.dtype)
    split = p.split
    near = _Pairs.apply(p.cutoff, split, positions, charges, matrix)
    far = potential(
        positions, charges * split.mesh, pm.Mesh(p.shape, pme.box), window=p.window, cell=matrix, **split.green(True)
    )
    return derivatives.energy(torch, pme, split, positions, charges, matrix, near, far, _like)


def _like(numbers: Any, array: Tensor) -> Tensor:
    return torch.as_tensor(numbers, dtype=array.dtype, device=array.device)


class _Pairs(torch.autograd.Function):
    """The sum over pairs within the cutoff."""

    @staticmethod
    def forward(ctx: Any, cutoff: float, split: Split, x: Tensor, q: Tensor, cell: Tensor) -> Tensor:
        box = cell.detach().cpu().numpy().astype(np.float64)
        plain = x.detach(), q.detach(), cell.detach()
        value, *slopes = derivatives.pair_sums(torch, cutoff, split, *plain, x.device.type != "cpu")
        ctx.facts = cutoff, split, box
        ctx.save_for_backward(x, q, cell, *slopes)
        return torch.as_tensor(value)

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:
        x, q, cell, *slopes = ctx.saved_tensors
        if torch.is_grad_enabled():  # the slopes are to be differentiated
            # Views: one argument may be a function of another, and a slope by it is at the others' present values.
            views = [a.view_as(a) if a.requires_grad else a.detach().requires_grad_() for a in (x, q, cell)]
            slopes = torch.autograd.grad(_by_tensors(*ctx.facts, *views), views, create_graph=True)
        return None, None, *(slope * s for s in slopes)


def _by_tensors(cutoff: float, split: Split, box: np.ndarray, x: Tensor, q: Tensor, cell: Tensor) -> Tensor:
    """Return the sum over pairs in tensors."""
    i, j, shifts = (a.long() for a in pm.neighbour_list("ijS", x.detach(), box, cutoff, half=True))
    r = (x[j] - x[i] + shifts.to(x.dtype) @ cell).norm(dim=1)
    return (q[i] * q[j] * split.sharp(r, torch.erfc)).sum()
