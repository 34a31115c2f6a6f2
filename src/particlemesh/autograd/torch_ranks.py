# SPDX-License-Identifier: BSD-3-Clause
"""Spreading, interpolation and transforms over many ranks, with derivatives of torch.

A result of one rank depends on arrays of all, so that the derivative of a call is a call of all ranks, too. The adjoint
of an exchange is the reverse exchange. Each rank differentiates its share of a loss, which is the sum of all shares.
"""

from __future__ import annotations

import contextlib
import itertools
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from particlemesh import Mesh, Window
from particlemesh import distributed as pmd
from particlemesh.autograd import potentials
from particlemesh.autograd.frame import Frame, numbers_of
from particlemesh.autograd.pool import verb
from particlemesh.autograd.torch_operators import define
from particlemesh.fourier.compensation import chosen
from particlemesh.window import DEFAULT

_ALL: weakref.WeakValueDictionary[str, Collective] = weakref.WeakValueDictionary()  # by the text that operators take
_NUMBERS = itertools.count()


def named(name: str) -> Any:
    """Return the object of a text that an operator got."""
    ranks = _ALL.get(name)
    if ranks is None:
        raise RuntimeError(
            "the object that made this result over ranks is gone: keep it until all derivatives are taken."
        )
    return ranks


class Collective:
    """What makes results over ranks: all ranks make the same calls, and need the same derivatives.

    Attributes
    ----------
    world : particlemesh.distributed.World
    name : str
        The text for operators, which finds this object as long as it lives.
    """

    def __init__(self, world: pmd.World) -> None:
        self.world, self.name = world, str(next(_NUMBERS))
        self._needs = 0  # a bit for each input of the present call that requires grad
        self._names: tuple[str, ...] = ()  # of these inputs
        _ALL[self.name] = self

    @contextlib.contextmanager
    def needing(self, **inputs: Tensor) -> Iterator[None]:
        """Note which inputs of a call require grad; derivatives of calls that agreed are alike."""
        self._names = tuple(inputs)
        needs = sum(int(tensor.requires_grad) << n for n, tensor in enumerate(inputs.values()))
        self._needs = needs if torch.is_grad_enabled() else 0
        try:
            yield
        finally:
            self._needs = 0

    def alike(self, *known: tuple[Tensor | None, Tensor]) -> bool:
        """Return whether all ranks have the same arrays as before; raise if they need other derivatives.

        Ranks with more derivatives would wait for the others. ``known`` are pairs of the array before and now.
        """
        same = all(
            a is not None and a.shape == b.shape and a.dtype == b.dtype and bool(torch.equal(a, b)) for a, b in known
        )
        mine = np.array([same, self._needs, -self._needs], np.int64)
        result, low, high = self.world.allreduce(mine, "min").tolist()
        if low == -high:
            return bool(result)
        every = [
            " and ".join(name for n, name in enumerate(names) if needs >> n & 1) or "nothing"
            for names, needs in self.world.allgather((self._names, self._needs))
        ]
        other = next(rank for rank, text in enumerate(every) if text != every[0])
        raise ValueError(
            f"on rank 0 {every[0]} requires grad, and on rank {other} {every[other]}: each rank would wait for "
            "derivatives of the other. Let the same inputs require grad on all ranks, also without particles."
        )


def _run(spreads: bool, positions: Tensor, array: Tensor, order: int, name: str) -> Tensor:
    method = verb(spreads, order)  # raises for third derivatives
    result: Tensor = getattr(named(name).at(positions), method)(array)
    return result


def _shape(spreads: bool, positions: Tensor, array: Tensor, order: int, name: str) -> tuple[int, ...]:
    nodes, (count, axes) = named(name).part.shape, positions.shape
    if spreads:
        return (*array.shape[: array.ndim - 1 - order], *nodes)
    return (*array.shape[: array.ndim - len(nodes)], count, *(axes,) * order)


_transfer = define("transfer_over_ranks", _run, _shape)


class OverRanks(Collective):
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

    def __init__(self, domain: pmd.Domain, world: pmd.World, window: Window | str = DEFAULT, **options: Any) -> None:
        with world.agreement("OverRanks"):
            if domain.per_rank != 1:
                raise ValueError(f"the domain has {domain.per_rank} parts for each rank; give one with per_rank=1.")
        super().__init__(world)
        self._plan, self._options = pmd.Plan(domain, world, window, **options), options
        self._unit: OverRanks | None = None  # of a box of unit lengths, for derivatives by the cell
        self._fft = pmd.FFT(domain, world, deterministic=options.get("deterministic", False))
        self.part, self.modes = domain.parts(world.rank)[0], self._fft.part
        self._at: Tensor | None = None  # positions of the plan
        last, (first, end) = domain.mesh.shape[-1], self.modes[-1]
        numbers = np.arange(first, end)
        # How often a mode is in the field: with its conjugate, unless that is itself.
        self._times = torch.from_numpy(np.where((numbers == 0) | (2 * numbers == last), 1.0, 2.0))
        self._nodes = float(np.prod(domain.mesh.shape))

    def at(self, positions: Tensor) -> pmd.Plan:
        """Return the plan at positions (N, d) of this rank: particles travel if those of any rank are others."""
        if not self.alike((self._at, positions)):
            self._at = None
            self._plan.set_positions(positions)
            self._at = positions.clone()
        return self._plan

    def _call(self, spreads: bool, positions: Tensor, array: Tensor, order: int) -> Tensor:
        with self.needing(positions=positions, **{"values" if spreads else "field": array}):
            return _transfer(spreads, positions, array, order, self.name)

    def _transform(self, array: Tensor, forward: bool) -> Tensor:
        with self.needing(**{"field" if forward else "modes": array}):
            self.alike()
        result: Tensor = _Transform.apply(array, self, forward)
        return result

    # ---- calls ----------------------------------------------------------------------------------------

    def spread(self, positions: Tensor, values: Tensor) -> Tensor:
        """Spread values of all ranks; differentiable by positions and values.

        Parameters
        ----------
        positions : tensor (N, d)
            Of this rank's particles, in any part.
        values : tensor (..., N)

        Returns
        -------
        tensor (..., *part.shape)
        """
        return self._call(True, positions, values, 0)

    def spread_gradient(self, positions: Tensor, vectors: Tensor) -> Tensor:
        """Spread vectors (..., N, d) with the window's derivative, the adjoint of :meth:`gradient`."""
        return self._call(True, positions, vectors, 1)

    def interpolate(self, field: Tensor, positions: Tensor) -> Tensor:
        """Interpolate a field; differentiable by field and positions.

        Parameters
        ----------
        field : tensor (..., *part.shape)
            The nodes of this rank.
        positions : tensor (N, d)

        Returns
        -------
        tensor (..., N)
            At this rank's particles.
        """
        return self._call(False, positions, field, 0)

    def gradient(self, field: Tensor, positions: Tensor) -> Tensor:
        """Interpolate a field's gradient (..., N, d), per user length unit; arguments are those of `interpolate`."""
        return self._call(False, positions, field, 1)

    def forward(self, field: Tensor) -> Tensor:
        """Return this rank's modes of a real field, as :meth:`particlemesh.distributed.FFT.forward` does."""
        return self._transform(field, True)

    def inverse(self, modes: Tensor) -> Tensor:
        """Return this rank's nodes of a real field from its modes."""
        return self._transform(modes, False)

    def potential(
        self, positions: Tensor, values: Tensor, *, cell: Tensor | None = None, green: Any = "poisson",
        kappa: Any = None, alpha: Any = None, zero: Any = None, compensation: str | None = "auto",
    ) -> Tensor:  # fmt: skip
        """Potential at this rank's particles of the density that all carry, as a Solver over ranks returns it.

        Differentiable by positions, values, cell, kappa and alpha. The last three are the same on all ranks, and so
        are the derivatives by them: those of the sum of all shares.

        Parameters
        ----------
        positions : tensor (N, d)
        values : tensor (..., N)
            Real.
        cell : tensor (d,) or (d, d), optional
            Lengths or lattice vectors as rows, instead of those of the mesh.
        green, kappa, alpha, zero, compensation
            As for :func:`particlemesh.autograd.torch.potential`.

        Returns
        -------
        tensor (..., N)
        """
        tensors = {name: t for name, t in (("cell", cell), ("kappa", kappa), ("alpha", alpha)) if isinstance(t, Tensor)}
        with self.needing(positions=positions, values=values, **tensors):
            self.alike()
        cell, kappa, alpha = (self.shared(t) if isinstance(t, Tensor) else t for t in (cell, kappa, alpha))
        mesh, window = self._plan.domain.mesh, self._plan.window
        if self._unit is None:
            unit = Mesh(mesh.shape, (1.0,) * mesh.ndim, offset=mesh.offset)
            self._unit = OverRanks(self._plan.domain.on(unit), self.world, window, **self._options)
        frame, ranks = Frame(positions, numbers_of(mesh), cell, _like, torch.linalg), self._unit
        *tables, highest = (
            torch.from_numpy(table)
            for table in potentials.tables(mesh, window, chosen(compensation, green), self.modes)
        )
        tables = [*(_like(table, values) for table in tables), highest.to(values.device)]

        def transfer(spreads: bool, array: Tensor) -> Tensor:
            return ranks.spread(frame.fractions, array) if spreads else ranks.interpolate(array, frame.fractions)

        result: Tensor = potentials.potential(
            torch, frame, [transfer], mesh, values, tables, lambda array, at, terms: array.index_add(-1, at, terms),
            green=green, kappa=kappa, alpha=alpha, zero=zero, transforms=(ranks.forward, ranks.inverse),
        )  # fmt: skip
        return result

    def total(self, share: Tensor) -> Tensor:
        """Return the sum of tensors of one shape over all ranks, on every rank; differentiable."""
        result: Tensor = _Total.apply(share, self)
        return result

    def shared(self, tensor: Tensor) -> Tensor:
        """Return a tensor that all ranks have alike: derivatives by it are those of the sum of all shares."""
        result: Tensor = _Shared.apply(tensor, self)
        return result

    def wavenumbers(self) -> tuple[np.ndarray, ...]:
        """Return the wave vectors of this rank's modes, as :meth:`particlemesh.distributed.FFT.wavenumbers` does."""
        return self._fft.wavenumbers()


def _like(numbers: Any, array: Tensor) -> Tensor:
    return torch.as_tensor(numbers, dtype=array.dtype, device=array.device)


class _Total(torch.autograd.Function):
    """A sum over ranks, which is its own adjoint."""

    @staticmethod
    def forward(ctx: Any, share: Tensor, ranks: OverRanks) -> Tensor:
        ctx.ranks = ranks
        total = ranks.world.allreduce(share.detach().reshape(-1).cpu().numpy())
        return _like(total, share).reshape(share.shape)

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:
        return ctx.ranks.total(slope), None


class _Shared(torch.autograd.Function):
    """A tensor that all ranks have, whose derivative is the sum of those on all ranks."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, ranks: OverRanks) -> Tensor:
        ctx.ranks = ranks
        return tensor.detach().clone()

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:
        return ctx.ranks.total(slope), None


class _Transform(torch.autograd.Function):
    """A transform over ranks, whose derivative is the other one with weights."""

    @staticmethod
    def forward(ctx: Any, array: Tensor, ranks: OverRanks, forward: bool) -> Tensor:
        ctx.ranks, ctx.forward = ranks, forward
        transform = ranks._fft.forward if forward else ranks._fft.inverse
        result: Tensor = transform(array.detach().contiguous())
        return result

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:
        ranks = ctx.ranks
        times = (ranks._times / ranks._nodes).to(slope.device, slope.dtype.to_real())
        if ctx.forward:
            return ranks.inverse(slope / times), None, None
        return ranks.forward(slope) * times, None, None
