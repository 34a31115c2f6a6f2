# SPDX-License-Identifier: BSD-3-Clause
"""Energies of charges as functions of torch tensors, and charges and dipoles of least energy."""

from __future__ import annotations

from operator import index
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

import particlemesh as pm
from particlemesh.apps.pme import derivatives
from particlemesh.apps.pme.batch import PMEBatch
from particlemesh.apps.pme.equilibration import ChargeEquilibration
from particlemesh.apps.pme.exclusions import Exclusions
from particlemesh.apps.pme.induced import InducedDipoles
from particlemesh.apps.pme.pme import PME
from particlemesh.apps.pme.split import Smooth, with_derivatives
from particlemesh.autograd.torch import potential

__all__ = ["energy", "equilibrated_charges", "induced_dipoles"]


def energy(
    pme: PME | PMEBatch, positions: Tensor, charges: Tensor, system: Tensor | None = None, *,
    dipoles: Tensor | None = None, quadrupoles: Tensor | None = None, widths: Tensor | None = None,
    cell: Tensor | None = None, exclusions: Any = None, factors: Any = 0.0,
) -> Tensor:  # fmt: skip
    """Return the energy of charges, or of many systems; differentiable by all tensors.

    First derivatives take the pair function of :class:`particlemesh.apps.pme.PME`. If they are differentiated in their
    turn (``create_graph=True``), the sum over pairs is made of tensors, whose memory grows with the number of pairs.
    Works under ``torch.compile(fullgraph=True)`` and ``torch.export``, with first derivatives.

    Parameters
    ----------
    pme : PME or PMEBatch
        Its cutoff, splitting, mesh, window and Coulomb constant, and a PME's exclusions. Parameters that are not given
        are chosen at the first call. The box of a PME may have open axes.
    positions : tensor (N, 3)
        Float32 or float64. Inside of the box along open axes.
    charges : tensor (N,)
        Of the same dtype and device.
    system : integer tensor (N,), optional
        For a PMEBatch of S systems: the system of each particle.
    dipoles, quadrupoles, widths : tensor (N, 3), (N, 3, 3), (N,), optional
        As for a call of a PME. Of quadrupoles the symmetric part counts. Second derivatives of Gaussians that overlap
        need float64.
    cell : tensor (3,) or (3, 3), optional
        Lengths, or lattice vectors as rows, instead of those of ``pme.box``. Gradients by it are at fixed positions.
        For a PMEBatch, those of each system: (S, 3) or (S, 3, 3). Needs three periodic axes.
    exclusions, factors
        As for a call of a PMEBatch. In a compiled function a pair of two systems makes the energy NaN.

    Returns
    -------
    tensor (), or (S,)

    Raises
    ------
    ValueError, TypeError
        If an argument is not allowed, particles lie in one place, or excluded pairs are of two systems. If a cell is
        too large for the accuracy, as for :class:`particlemesh.apps.pme.PMEBatch`.
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

    The same pair in two boxes at once:

    >>> from particlemesh.apps.pme import PMEBatch
    >>> batch, system = PMEBatch((3.0, 3.0, 3.0), systems=2, accuracy=1e-6), torch.tensor([0, 0, 1, 1])
    >>> cell = torch.tensor([[2.0, 2.0, 2.0], [3.0, 3.0, 3.0]], dtype=torch.float64)
    >>> both = energy(batch, x.repeat(2, 1), q.repeat(2), system, cell=cell)
    >>> bool(torch.isclose(both[0], energy(pme, x, q), rtol=1e-5)), both.shape
    (True, torch.Size([2]))
    """
    tensors = {"dipoles": dipoles, "quadrupoles": quadrupoles, "widths": widths, "cell": cell, "system": system}
    for name, given in {"positions": positions, "charges": charges, **tensors}.items():
        if not (isinstance(given, Tensor) or (given is None and name in tensors)):
            raise TypeError(f"{name} is of type {type(given).__name__}; give a tensor.")
    derivatives.check(pme, positions, charges, system, exclusions)
    values = derivatives.values_of(TORCH, positions, charges, dipoles, quadrupoles, widths)
    moments = values.ndim > 1
    matrix = derivatives.matrix_of(pme, cell, positions.new_tensor).to(positions.dtype)
    if not torch.compiler.is_compiling():
        given = positions, charges, None if cell is None else matrix, widths
        x, q, rows, s = (None if a is None else a.detach() for a in given)
        derivatives.choose(pme, x, q, system, rows, moments, s)
    count, name = index(positions.shape[0]), derivatives.name_of(positions)
    facts = derivatives.Facts(*_facts(pme, count, name, str(positions.device), moments))
    pairs, scales = _excluded(pme, exclusions, factors, count)
    if system is not None and len(pairs) and not torch.compiler.is_compiling():
        derivatives.check_systems(pairs, system)
    near = _pairs(positions, values, matrix, system, pairs, scales, facts.pairs)[0]
    mesh, options = derivatives.of_mesh(pme, matrix)
    sources = derivatives.moments_of(TORCH, values) * facts.times
    far = potential(positions, sources, mesh, system=system, moments=moments, **options)
    i, j, weights = (a.to(positions.device) for a in (*pairs.T, scales - 1))
    return derivatives.energy(TORCH, facts, positions, values, matrix, system, (i, j, weights), near, far)


@torch.compiler.assume_constant_result
def _facts(pme: Any, count: int, name: str, device: str, moments: bool) -> Any:
    return tuple(derivatives.facts_of(pme, count, name, torch.empty(0, device=device), moments))


@torch.compiler.assume_constant_result
def _excluded(pme: Any, exclusions: Any, factors: Any, count: int) -> list[Tensor]:
    pairs = derivatives.pairs_of(pme, exclusions, factors, count)
    return [torch.tensor(pairs.pairs), torch.tensor(pairs.factors)]


def _like(numbers: Any, array: Tensor) -> Tensor:
    return torch.as_tensor(numbers, dtype=array.dtype, device=array.device)


def _add(terms: Tensor, at: Tensor, count: int) -> Tensor:
    return terms.new_zeros((count, *terms.shape[1:])).index_add(0, at, terms)


TORCH = derivatives.Library(torch, _like, _add, torch.erfc, Tensor.detach)


class _Bent(torch.autograd.Function):
    """What n times ``-2 d / d(r**2)`` makes of a smooth part, at r**2."""

    @staticmethod
    def forward(ctx: Any, r2: Tensor, smooth: Smooth, n: int) -> Tensor:
        ctx.save_for_backward(r2)
        ctx.of, table = (smooth, n), _like(smooth.bent(n).T, r2)
        t = r2 * smooth.scale
        interval = t.long().clamp(max=table.shape[1] - 1)
        t, value = t - interval - 0.5, torch.zeros_like(t)
        for row in table.flip(0):
            value = torch.addcmul(row[interval], value, t)
        return value

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:
        smooth, n = ctx.of
        return _Bent.apply(*ctx.saved_tensors, smooth, n + 1) * slope / -2, None, None


def near_energies(text: str, between: Tensor, a: Tensor, b: Tensor, whole: Tensor) -> Tensor:
    """Return energies of pairs within the cutoff (`derivatives.pair_energies`), whose second derivatives are right."""
    cutoff, split = derivatives.split_of(text)
    smooth = with_derivatives(split, cutoff, between.dtype == torch.float32, 6)
    return derivatives.pair_energies(TORCH, lambda r2, n: _Bent.apply(r2, smooth, n), between, a, b, whole)


# ---- the sum over pairs within the cutoff ---------------------------------------------------------------


@torch.library.custom_op("particlemesh::pairs_of_charges", mutates_args=())
def _pairs(
    x: Tensor, q: Tensor, cell: Tensor, system: Tensor | None, pairs: Tensor, factors: Tensor, facts: str
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the sum of each system, or of all, and its slopes by positions, charges and cell.

    Excluded pairs (M, 2) and factors (M,) are on the host.
    """
    plain = x.detach(), q.detach(), cell.detach(), system, _known(pairs, factors, len(x))
    value, by_x, by_q, by_cell = derivatives.pair_sums(TORCH, facts, *plain, x.device.type != "cpu")
    return value, by_x, by_q.contiguous(), by_cell.contiguous()


@_pairs.register_fake
def _shapes(x: Tensor, q: Tensor, cell: Tensor, *_: Any) -> tuple[Tensor, ...]:
    return x.new_empty(cell.shape[:-2]), torch.empty_like(x), torch.empty_like(q), torch.empty_like(cell)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    *given, ctx.facts = inputs
    ctx.save_for_backward(*given, *output[1:])


def _backward(ctx: Any, slope: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
    x, q, cell, system, pairs, factors, *slopes = ctx.saved_tensors
    if torch.is_grad_enabled() and not torch.compiler.is_compiling():  # the slopes are to be differentiated
        # Views: one argument may be a function of another, and a slope by it is at the others' present values.
        views = x, q, cell = [a.view_as(a) if a.requires_grad else a.detach().requires_grad_() for a in (x, q, cell)]
        value = _by_tensors(ctx.facts, x, q, cell, system, _known(pairs, factors, len(x)))
        return *torch.autograd.grad(value, views, slope, create_graph=True), *[None] * 4
    each = slope if system is None else slope[system]
    by_cell, of_values = slope[..., None, None] * slopes[2], each if q.ndim == 1 else each[..., None]
    return each[..., None] * slopes[0], of_values * slopes[1], by_cell, *[None] * 4


_pairs.register_autograd(_backward, setup_context=_setup)


def _known(pairs: Tensor, factors: Tensor, count: int) -> Exclusions:
    return derivatives.KNOWN.of(pairs.numpy(), factors.numpy(), count)


def _by_tensors(facts: str, x: Tensor, q: Tensor, cell: Tensor, system: Tensor | None, pairs: Exclusions) -> Tensor:
    """Return the sum over pairs in tensors."""
    cutoff, (rows, box) = derivatives.split_of(facts)[0], derivatives.boxes_of(cell, facts)
    many = {} if system is None else dict(system=system, boxes=rows)
    i, j, shifts = (a.long() for a in pm.neighbour_list("ijS", x.detach(), box, cutoff, half=True, **many))
    home = None if system is None else system[i]
    between = x[j] - x[i] + (shifts.to(x.dtype)[:, None] @ (cell if home is None else cell[home]))[:, 0]
    whole = torch.ones_like(between[:, 0])
    if len(pairs):
        keys, weights = (torch.from_numpy(a).to(x.device) for a in pairs.keys(len(x)))
        codes = i * len(x) + j
        place = torch.searchsorted(keys, codes).clamp(max=len(keys) - 1)
        some = torch.where(keys[place] == codes, weights.to(x.dtype)[place], 0.0)
        whole = derivatives.wholes(TORCH, between, some, cutoff, cell)
    return TORCH.totals(near_energies(facts, between, q[i], q[j], whole), cell, home)


# ---- induced dipoles and equilibrated charges --------------------------------------------------------------------


def induced_dipoles(
    model: InducedDipoles, positions: Tensor, charges: Tensor, polarizabilities: Tensor | float, *,
    dipoles: Tensor | None = None, field: Tensor | None = None, cell: Tensor | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return energy and induced dipoles; both are differentiable once by all tensors.

    Derivatives follow from the implicit function theorem. Those of the energy need no other equations, since dipoles
    minimise it. Those of dipoles take one more solution of the equations, and nothing is recorded of the iterations.

    Parameters
    ----------
    model : InducedDipoles
        Parameters that are not given are chosen at the first call.
    positions : tensor (N, 3)
        Float32 or float64.
    charges, polarizabilities : tensor (N,)
        Of the same dtype and device. One number serves as polarizability of all.
    dipoles : tensor (N, 3), optional
    field : tensor (3,) or (N, 3), optional
    cell : tensor (3,) or (3, 3), optional
        As for :func:`energy`. Each new cell makes tables. Needs three periodic axes.

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
    outside = (positions.new_zeros(3) if field is None else field).expand_as(positions)
    alpha = _numbers(polarizabilities, "polarizabilities", positions)
    return _Solved.apply(derivatives.DipolesOf(model), positions, charges, alpha, permanent, outside, matrix)


def equilibrated_charges(
    model: ChargeEquilibration, positions: Tensor, electronegativities: Tensor, hardness: Tensor | float, *,
    widths: Any = None, total: float = 0.0, cell: Tensor | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return energy and charges of least energy; both are differentiable once by all tensors.

    Derivatives follow from the implicit function theorem, as for :func:`induced_dipoles`.

    Parameters
    ----------
    model : ChargeEquilibration
        Parameters that are not given are chosen at the first call.
    positions : tensor (N, 3)
        Float32 or float64.
    electronegativities, hardness : tensor (N,)
        Of the same dtype and device. One number serves as hardness of all.
    widths : array (N,) or float, optional
        Constant, as `total`.
    total : float
    cell : tensor (3,) or (3, 3), optional
        As for :func:`energy`. Each new cell makes tables. Needs three periodic axes.

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
    of = derivatives.ChargesOf(model, widths, total)
    return _Solved.apply(of, positions, electronegativities, _numbers(hardness, "hardness", positions), matrix)


def _matrix(model: Any, kind: Any, positions: Tensor, numbers: Tensor, cell: Tensor | None) -> Tensor:
    """Return lattice vectors as rows; check arguments and choose parameters."""
    for name, given in {"positions": positions, "the numbers": numbers, "cell": cell}.items():
        if not isinstance(given, Tensor) and not (name == "cell" and given is None):
            raise TypeError(f"{name} is of type {type(given).__name__}; give a tensor.")
    return derivatives.matrix_for(model, kind, positions, numbers, cell, positions.new_tensor).to(positions.dtype)


def _numbers(given: Any, name: str, positions: Tensor) -> Tensor:
    """Return a tensor; a number is one for all particles."""
    if not isinstance(given, (Tensor, int, float)):
        raise TypeError(f"{name} is of type {type(given).__name__}; give a tensor, or one number for all particles.")
    return given if isinstance(given, Tensor) else positions.new_full((len(positions),), given)


class _Solved(torch.autograd.Function):
    """Energy and charges or dipoles."""

    @staticmethod
    def forward(ctx: Any, of: Any, *tensors: Tensor) -> tuple[Tensor, Tensor]:
        energy, solution = of.solved(*(a.detach() for a in tensors))
        ctx.of = of
        ctx.save_for_backward(*tensors, solution)
        return torch.as_tensor(energy), solution

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_energy: Tensor, slope: Tensor) -> tuple[Tensor | None, ...]:
        tensors = (a.detach() for a in ctx.saved_tensors)
        return None, *ctx.of.slopes(torch, *tensors, of_energy, slope.contiguous())
