# SPDX-License-Identifier: BSD-3-Clause
"""Energies of the charges of many ranks as functions of torch tensors."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

import particlemesh as pm
from particlemesh import distributed as pmd
from particlemesh.apps.pme import derivatives
from particlemesh.apps.pme.ranks import DistributedPME
from particlemesh.apps.pme.torch import TORCH, near_energies, wholes
from particlemesh.autograd.torch import OverRanks

__all__ = ["energy"]

_MESHES: weakref.WeakKeyDictionary[DistributedPME, tuple[Any, OverRanks]] = weakref.WeakKeyDictionary()


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
    if not isinstance(pme, DistributedPME):
        raise TypeError(f"pme is of type {type(pme).__name__}; give a particlemesh.apps.pme.DistributedPME.")
    world = pme.world

    def accepted() -> tuple[str, Tensor]:
        for name, given in {"positions": positions, "charges": charges, "cell": cell}.items():
            if not isinstance(given, Tensor) and not (name == "cell" and given is None):
                raise TypeError(f"{name} is of type {type(given).__name__}; give a tensor.")
        derivatives.check(pme, positions, charges, None, None)
        matrix = derivatives.matrix_of(pme, cell, positions.new_tensor).to(positions.dtype)
        return f"energy over ranks of {positions.dtype} in {matrix.tolist()}", matrix

    matrix = world.alike(accepted)
    ranks = _ranks_of(pme, positions, charges)
    inputs = {"positions": positions, "charges": charges} | ({} if cell is None else {"cell": matrix})
    with ranks.needing(**inputs):
        ranks.alike()
    facts = derivatives.facts_of(pme, 0, derivatives.name_of(positions), positions)
    options = derivatives.of_mesh(pme)[1]
    options.pop("window")
    far = ranks.potential(positions, charges * facts.times, cell=matrix, **options)
    whole = ranks.shared(matrix)
    near = _pairs(pme._core, positions, charges, whole, facts.pairs)
    nothing = (np.zeros(0, int),) * 3
    share = derivatives.energy(TORCH, facts, positions, charges, whole, None, nothing, near, far)
    return share + facts.constant * _excluded(pme._core, positions, charges, whole, facts.near)


def _ranks_of(pme: DistributedPME, positions: Tensor, charges: Tensor) -> OverRanks:
    """Return the mesh of a PME over ranks, whose parameters a step chooses if it has none."""
    if pme._core is None:
        pme(positions.detach(), charges.detach(), virial=False)
    core = pme._core
    if _MESHES.get(pme, (None, None))[0] is not core:
        _MESHES[pme] = core, OverRanks(core.domain, pme.world, core.parameters.window, threads=pme._threads)
    return _MESHES[pme][1]


class _Linear(torch.autograd.Function):
    """A linear function of rows on all ranks, and its adjoint."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, there: Callable[[Tensor], Tensor], back: Callable[[Tensor], Tensor]) -> Tensor:
        ctx.back, ctx.there = back, there
        return there(rows.detach().contiguous())

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:
        return _Linear.apply(slope, ctx.back, ctx.there), None, None


def _pairs(core: Any, x: Tensor, q: Tensor, cell: Tensor, text: str) -> Tensor:
    """Return the sum over the pairs within the cutoff that this rank's grid has."""
    world, domain, partners = core.world, core.domain, core.partners(len(x))
    cutoff = derivatives.split_of(text)[0]
    box = derivatives.boxes_of(cell, text)[1]
    grid = pmd.UniformGrid(domain.on(pm.Mesh(domain.mesh.shape, box)), world, cutoff)
    pairs = grid.build(x.detach()).pairs(half=True, order="local", format="coo", quantities="ijS")
    i, j, shifts = (a.long() for a in (pairs.i, pairs.j, pairs.shift))
    places, numbers = _Linear.apply(_rows(x, q), grid.at_places, grid.from_places).split((3, 1), 1)
    between = places[j] - places[i] + shifts.to(x.dtype) @ cell
    known, whole = core.names, torch.ones_like(between[:, 0])
    names = None if partners is None else grid.at_places(torch.from_numpy(partners.names).to(x.device))
    with world.agreement("pairs of charges"):
        if names is not None:
            whole = wholes(between, names[i], names[j], known.pairs, len(known.particles) + 1, cutoff, cell)
        if bool(((between == 0).all(1) & (whole != 0)).any()):
            raise ValueError("particles lie on top of each other: move one of them, or exclude the pair.")
    return near_energies(text, between, numbers[i, 0], numbers[j, 0], whole).sum()


def _rows(x: Tensor, q: Tensor) -> Tensor:
    """Return positions and charges as rows: torch takes (0,) for no part of a sum, and this rank would leave others."""
    return torch.cat([x, q[:, None]], 1)


def _excluded(core: Any, x: Tensor, q: Tensor, cell: Tensor, near: float) -> Any:
    """Return what the excluded pairs add whose first particle is on this rank."""
    partners = core.partners(len(x))
    if partners is None:
        return 0.0
    rows, route, mine = _rows(x, q), partners.route, partners.mine
    places, numbers = torch.cat([rows, _Linear.apply(rows, route.send, route.back)]).split((3, 1), 1)
    listed = *partners.pairs.pairs[mine].T, partners.pairs.factors[mine] - 1
    pairs = tuple(torch.from_numpy(np.ascontiguousarray(a)).to(x.device) for a in listed)
    return derivatives.excluded(TORCH, places, numbers[:, 0], cell, None, pairs, near)
