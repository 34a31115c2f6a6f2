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

from particlemesh import Window
from particlemesh import distributed as pmd
from particlemesh.autograd.pool import verb
from particlemesh.autograd.torch_operators import define
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
        self._plan = pmd.Plan(domain, world, window, **options)
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

    def wavenumbers(self) -> tuple[np.ndarray, ...]:
        """Return the wave vectors of this rank's modes, as :meth:`particlemesh.distributed.FFT.wavenumbers` does."""
        return self._fft.wavenumbers()


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
