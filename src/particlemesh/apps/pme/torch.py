# SPDX-License-Identifier: BSD-3-Clause
"""Energies of charges as functions of torch tensors, and charges and dipoles of least energy."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

import particlemesh as pm
from particlemesh.apps.pme import derivatives
from particlemesh.apps.pme.equilibration import ChargeEquilibration
from particlemesh.apps.pme.induced import InducedDipoles
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


# ---- induced dipoles and equilibrated charges --------------------------------------------------------------------


def induced_dipoles(
    model: InducedDipoles, positions: Tensor, charges: Tensor, polarizabilities: Tensor, *,
    dipoles: Tensor | None = None, field: Tensor | None = None, cell: Tensor | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return energy and induced dipoles; both are differentiable once by all tensors.

    Derivatives follow from the implicit function theorem. Those of the energy need no other equations, since dipoles
    minimise it. Those of dipoles take one more solution of the equations, and nothing is recorded of the iterations.

    Parameters
    ----------
    model : InducedDipoles
        Its box is periodic. Parameters that are not given are chosen at the first call.
    positions : tensor (N, 3)
        Float32 or float64.
    charges, polarizabilities : tensor (N,)
        Of the same dtype and device.
    dipoles : tensor (N, 3), optional
    field : tensor (3,) or (N, 3), optional
    cell : tensor (3,) or (3, 3), optional
        As for :func:`energy`. Each new cell makes tables.

    Returns
    -------
    energy : tensor ()
    induced : tensor (N, 3)

    Raises
    ------
    ValueError, TypeError, RuntimeError
        As for :class:`particlemesh.apps.pme.InducedDipoles`.

    Examples
    --------
    How the dipoles' length depends on polarizabilities:

    >>> import torch
    >>> from particlemesh.apps.pme import PME, InducedDipoles
    >>> from particlemesh.apps.pme.torch import induced_dipoles
    >>> x = torch.tensor([[1.0, 2.0, 2.0], [3.0, 2.0, 2.0]], dtype=torch.float64)
    >>> alpha = torch.tensor([0.2, 0.0], dtype=torch.float64, requires_grad=True)
    >>> model = InducedDipoles(PME((4.0, 4.0, 4.0), 1e-6), 1e-8)
    >>> field = torch.tensor([0.0, 1.0, 0.0], dtype=torch.float64)
    >>> energy, induced = induced_dipoles(model, x, torch.zeros(2, dtype=torch.float64), alpha, field=field)
    >>> bool(torch.autograd.grad(induced[0, 1], alpha)[0][0] > 1)  # images help
    True
    """
    matrix = _matrix(model, InducedDipoles, positions, charges, cell)
    permanent = torch.zeros_like(positions) if dipoles is None else dipoles
    outside = positions.new_zeros(3) if field is None else field
    return _Induced.apply(model, positions, charges, polarizabilities, permanent, outside.expand_as(positions), matrix)


def equilibrated_charges(
    model: ChargeEquilibration, positions: Tensor, electronegativities: Tensor, hardness: Tensor, *,
    widths: Any = None, total: float = 0.0, cell: Tensor | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return energy and charges of least energy; both are differentiable once by all tensors.

    Derivatives follow from the implicit function theorem, as for :func:`induced_dipoles`.

    Parameters
    ----------
    model : ChargeEquilibration
        Its box is periodic. Parameters that are not given are chosen at the first call.
    positions : tensor (N, 3)
        Float32 or float64.
    electronegativities, hardness : tensor (N,)
        Of the same dtype and device.
    widths : array (N,) or float, optional
        Constant, as `total`.
    total : float
    cell : tensor (3,) or (3, 3), optional
        As for :func:`energy`. Each new cell makes tables.

    Returns
    -------
    energy : tensor ()
    charges : tensor (N,)

    Raises
    ------
    ValueError, TypeError, RuntimeError
        As for :class:`particlemesh.apps.pme.ChargeEquilibration`.

    Examples
    --------
    >>> import torch
    >>> from particlemesh.apps.pme import PME, ChargeEquilibration
    >>> from particlemesh.apps.pme.torch import equilibrated_charges
    >>> x = torch.tensor([[1.0, 2.0, 2.0], [3.0, 2.0, 2.0]], dtype=torch.float64)
    >>> chi = torch.tensor([-1.0, 1.0], dtype=torch.float64, requires_grad=True)
    >>> model = ChargeEquilibration(PME((4.0, 4.0, 4.0), 1e-6), 1e-8)
    >>> energy, charges = equilibrated_charges(model, x, chi, torch.full((2,), 10.0, dtype=torch.float64))
    >>> slope = torch.autograd.grad(energy, chi)[0]
    >>> bool(torch.allclose(slope, charges))  # the energy's slope by an electronegativity is the charge
    True
    """
    matrix = _matrix(model, ChargeEquilibration, positions, electronegativities, cell)
    return _Equilibrated.apply(model, widths, total, positions, electronegativities, hardness, matrix)


def _matrix(model: Any, kind: Any, positions: Tensor, numbers: Tensor, cell: Tensor | None) -> Tensor:
    """Return lattice vectors as rows; check arguments and choose parameters."""
    derivatives.check_model(model, kind)
    for name, given in (
        ("positions", positions),
        ("the numbers", numbers),
        ("cell", positions if cell is None else cell),
    ):
        if not isinstance(given, Tensor):
            raise TypeError(f"{name} is of type {type(given).__name__}; give a tensor.")
    derivatives.parameters_of(model._pme, positions, numbers)
    return derivatives.matrix_of(model._pme, cell, positions.new_tensor, torch.diag).to(positions.dtype)


def _boxed(model: Any, matrix: Tensor) -> Any:
    return model.in_box(matrix.detach().cpu().numpy())


class _Induced(torch.autograd.Function):
    """Energy and induced dipoles."""

    @staticmethod
    def forward(
        ctx: Any, model: InducedDipoles, x: Tensor, q: Tensor, alpha: Tensor, m: Tensor, field: Tensor, cell: Tensor
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        plain = [a.detach() for a in (x, q, alpha)]
        result = _boxed(model, cell)(*plain, dipoles=m.detach(), field=field.detach(), virial=False)
        ctx.model = model
        ctx.save_for_backward(x, q, alpha, m, field, cell, result.induced)
        return torch.as_tensor(result.energy), result.induced

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_energy: Tensor, slope: Tensor) -> tuple[Tensor | None, ...]:
        x, q, alpha, m, field, cell, induced = ctx.saved_tensors
        model = _boxed(ctx.model, cell)
        slopes = derivatives.slopes_of_dipoles(
            torch, model, x, q, alpha, m, field, cell, induced, of_energy, slope.contiguous()
        )
        return None, *slopes


class _Equilibrated(torch.autograd.Function):
    """Energy and charges."""

    @staticmethod
    def forward(
        ctx: Any, model: ChargeEquilibration, widths: Any, total: float, x: Tensor, chi: Tensor, eta: Tensor,
        cell: Tensor,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        result = _boxed(model, cell)(
            x.detach(), chi.detach(), eta.detach(), widths=widths, total=total, virial=False
        )  # fmt: skip
        ctx.model, ctx.more = model, (widths, total)
        ctx.save_for_backward(x, chi, eta, cell, result.charges)
        return torch.as_tensor(result.energy), result.charges

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_energy: Tensor, slope: Tensor) -> tuple[Tensor | None, ...]:
        x, chi, eta, cell, q = ctx.saved_tensors
        model = _boxed(ctx.model, cell)
        widths, total = ctx.more
        slopes = derivatives.slopes_of_charges(
            torch, model, widths, total, x, chi, eta, cell, q, of_energy, slope.contiguous()
        )
        return None, None, None, *slopes
