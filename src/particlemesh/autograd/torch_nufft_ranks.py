# SPDX-License-Identifier: BSD-3-Clause
"""Non-uniform Fourier transforms over many ranks, with derivatives of torch of any order.

Slopes are those of one device: modes times -ik, frequencies times ix, and the transform again. Each rank multiplies the
modes or frequencies that it has.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from particlemesh import distributed as pmd
from particlemesh.apps import nufft
from particlemesh.autograd.nufft_facts import both_sets, check_types, with_axes
from particlemesh.autograd.torch_nufft import as_complex
from particlemesh.autograd.torch_nufft3 import shape_of, slopes_of
from particlemesh.autograd.torch_operators import define
from particlemesh.autograd.torch_ranks import Collective, named


def _facts(text: str) -> tuple[Any, int]:
    name, sign = json.loads(text)
    return named(name), sign


def _shape(spreads: bool, points: Tensor, array: Tensor, order: int, text: str) -> tuple[int, ...]:
    ranks, _ = _facts(text)
    core, result = ((len(points),), ranks.shape) if spreads else (ranks.shape, (len(points),))
    batch = array.ndim - len(core)
    if batch < 0 or tuple(array.shape[batch:]) != core:
        what = "strengths" if spreads else "modes"
        raise ValueError(f"{what} has shape {tuple(array.shape)}; its last axes must be {core}.")
    return (*array.shape[:batch], *result)


def _run(spreads: bool, points: Tensor, array: Tensor, order: int, text: str) -> Tensor:
    ranks, sign = _facts(text)
    result: Tensor = ranks.sums(1, sign, spreads, (points,), array, _shape(spreads, points, array, order, text))
    return result


def _slopes(spreads: bool, points: Tensor, array: Tensor, order: int, text: str) -> Tensor:
    """Return the slopes (..., N, d) of the sums at points."""
    ranks, sign = _facts(text)
    axes = [k.to(points.device, points.dtype) for k in ranks.numbers]
    weights = torch.stack(torch.meshgrid(*axes, indexing="ij"))
    slopes = -1j * sign * weights * array.unsqueeze(-1 - len(axes))
    return _transform(False, points, slopes, 0, text).transpose(-1, -2)


def _run_3(spreads: bool, points: Tensor, frequencies: Tensor, array: Tensor, order: int, text: str) -> Tensor:
    ranks, sign = _facts(text)
    shape = shape_of(spreads, points, frequencies, array, order, text)
    result: Tensor = ranks.sums(3, sign, spreads, (points, frequencies), array, shape)
    return result


def _slopes_3(*given: Any) -> list[Tensor | None]:
    return slopes_of(_transform_3, _facts(given[4])[1], *given)


_transform: Callable[..., Tensor] = define("nufft_over_ranks", _run, _shape, _slopes)
_transform_3: Callable[..., Tensor] = define("nufft3_over_ranks", _run_3, shape_of, slopes=_slopes_3, sets=2)


class NUFFTOverRanks(Collective):
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

    def __init__(self, world: pmd.World, n_modes: int | tuple[int, ...], *, eps: float = 1e-6, **options: Any) -> None:
        with world.agreement("NUFFTOverRanks"):
            for name in ("modeord", "spreadinterponly", "real"):
                if name in options:
                    raise TypeError(f"option {name!r} is not allowed here; modes ascend, and values are complex.")
        super().__init__(world)
        self._sizes = (n_modes,) if isinstance(n_modes, int) else tuple(n_modes)
        self._eps, self._options = eps, options
        self._plans: dict[Any, tuple[Any, list[Tensor | None]]] = {}  # with their points
        nowhere = torch.zeros((0, len(self._sizes)), dtype=torch.float64)
        self.part: tuple[tuple[int, int], ...] = self._at(1, 1, torch.complex128, (nowhere,)).part
        self.shape = tuple(stop - start for start, stop in self.part)
        self.numbers = tuple(
            torch.arange(start, stop) - n // 2 for n, (start, stop) in zip(self._sizes, self.part, strict=True)
        )

    def _at(self, kind: int, number: int, dtype: torch.dtype, points: tuple[Tensor, ...]) -> Any:
        """Return the plan of a type at points; they travel if those of any rank are others."""
        key, none = (kind, number, dtype), [None] * len(points)
        plan, known = self._plans.get(key, (None, none))
        if not self.alike(*zip(known, points, strict=True)):
            if plan is None:
                sizes: Any = self._sizes if kind == 1 else len(self._sizes)
                name = str(dtype).removeprefix("torch.")
                plan = nufft.DistributedPlan(self.world, kind, sizes, number, self._eps, 1, name, **self._options)
            self._plans[key] = plan, none
            columns = [side.T.contiguous() for side in points]
            missing = [None] * (3 - len(self._sizes))
            plan.setpts(*columns[0], *(missing if kind == 3 else ()), *(columns[1] if kind == 3 else ()))
            if kind == 1 and plan.part != getattr(self, "part", plan.part):
                raise RuntimeError("so many points cut the modes anew: give upsampfac, which keeps the mesh.")
            self._plans[key] = plan, [side.clone() for side in points]
        return plan

    def sums(
        self, kind: int, sign: int, spreads: bool, points: tuple[Tensor, ...], array: Tensor, shape: tuple[int, ...]
    ) -> Tensor:
        """Return the sums of a plan, of this shape; operators call it."""
        core = 1 if spreads or kind == 3 else len(self._sizes)
        inner = array.shape[array.ndim - core :]
        number = math.prod(array.shape[: array.ndim - core])
        if not number:
            return array.new_zeros(shape)
        dense = (array.conj() if sign < 0 else array).resolve_conj().contiguous().reshape(number, *inner)
        plan = self._at(kind, number, array.dtype, points)
        result: Tensor = (plan.execute if spreads else plan.execute_adjoint)(dense).reshape(shape)
        return result.conj().resolve_conj() if sign < 0 else result

    def nufft1(self, points: Tensor, strengths: Tensor, *, isign: int = 1) -> Tensor:
        """Type 1: this rank's modes of the strengths of all ranks, ``f[k] = sum_j c[j] exp(i isign k . x_j)``.

        Parameters
        ----------
        points : tensor (N, d), or (N,) in 1-D
            Of this rank, in radians.
        strengths : tensor (..., N)
            Complex or real, with the same leading axes on all ranks.
        isign : int
            Sign of the exponent.

        Returns
        -------
        complex tensor (..., *shape)
        """
        check_types("strengths", strengths, points=points)
        points, text = with_axes(points, len(self._sizes)), json.dumps([self.name, -1 if isign < 0 else 1])
        with self.needing(points=points, strengths=strengths):
            return _transform(True, points, as_complex(strengths), 0, text)

    def nufft2(self, points: Tensor, modes: Tensor, *, isign: int = -1) -> Tensor:
        """Type 2: sums of the modes of all ranks at this rank's points, ``c[j] = sum_k f[k] exp(i isign k . x_j)``.

        Parameters
        ----------
        points : tensor (N, d), or (N,) in 1-D
        modes : tensor (..., *shape)
            Those of this rank, complex or real.
        isign : int

        Returns
        -------
        complex tensor (..., N)
        """
        check_types("modes", modes, points=points)
        # Sums at points are the adjoint of the transform with the other sign.
        points, text = with_axes(points, len(self._sizes)), json.dumps([self.name, 1 if isign < 0 else -1])
        with self.needing(points=points, modes=modes):
            return _transform(False, points, as_complex(modes), 0, text)

    def nufft3(self, points: Tensor, strengths: Tensor, frequencies: Tensor, *, isign: int = 1) -> Tensor:
        """Type 3: sums at this rank's frequencies, ``f[k] = sum_j c[j] exp(i isign s_k . x_j)``, of all strengths.

        Parameters
        ----------
        points : tensor (N, d), or (N,) in 1-D
        strengths : tensor (..., N)
        frequencies : tensor (M, d), or (M,) in 1-D
            Of this rank, in radians per length of the points. The modes of the object do not matter.
        isign : int

        Returns
        -------
        complex tensor (..., M)
        """
        points, frequencies = both_sets(points, strengths, frequencies)
        with self.needing(points=points, strengths=strengths, frequencies=frequencies):
            return _transform_3(
                True, points, frequencies, as_complex(strengths), 0, json.dumps([self.name, -1 if isign < 0 else 1])
            )
