# SPDX-License-Identifier: BSD-3-Clause
"""Non-uniform Fourier transforms of torch tensors, with derivatives of any order.

Types 1 and 2 are one pair of adjoint operators: ``f[k] = sum_j c[j] exp(i k x_j)`` and its adjoint. The other
sign is the complex conjugate. A derivative by points multiplies modes by -ik and is an operator of the pair again.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from particlemesh.apps import nufft
from particlemesh.autograd.nufft_facts import check_types, facts_of, text_of, with_axes
from particlemesh.autograd.torch import POOL
from particlemesh.autograd.torch_operators import constant, define


def _run(spreads: bool, points: Tensor, array: Tensor, order: int, facts: str) -> Tensor:
    shape = _shape(spreads, points, array, order, facts)
    if not (array.numel() and math.prod(shape)):
        return array.new_zeros(shape)
    n_modes, eps, _, options = facts_of(facts)
    core = array.shape[array.ndim - (1 if spreads else len(n_modes)) :]
    vectors = array.reshape(-1, *core).resolve_conj().contiguous()
    count, dtype = len(vectors), str(array.dtype).removeprefix("torch.")

    def create() -> nufft.Plan:
        return nufft.Plan(1, n_modes, count, eps, 1, dtype, **options)

    def place(plan: nufft.Plan, points: Tensor) -> None:
        plan.setpts(*points.T.contiguous())

    with POOL.borrow_plan((facts, count, dtype, array.device), points, create, place) as plan:
        return (plan.execute if spreads else plan.execute_adjoint)(vectors).reshape(shape)


def _shape(spreads: bool, points: Tensor, array: Tensor, order: int, facts: str) -> tuple[int, ...]:
    n_modes = facts_of(facts)[0]
    core = (points.shape[0],) if spreads else n_modes
    batch = array.ndim - len(core)
    if batch < 0 or tuple(array.shape[batch:]) != core:
        what = "strengths" if spreads else "modes"
        raise ValueError(f"{what} has shape {tuple(array.shape)}; its last axes must be {core}.")
    return (*array.shape[:batch], *(n_modes if spreads else (points.shape[0],)))


def _apply(spreads: bool, points: Tensor, array: Tensor, order: int, facts: str) -> Tensor:
    if not order:
        return _OPERATORS[spreads](points, array, 0, facts)
    # Slopes (..., N, d) of the sums at points.
    n_modes = facts_of(facts)[0]
    axes = [torch.arange(-(n // 2), (n + 1) // 2, device=array.device, dtype=points.dtype) for n in n_modes]
    weights = torch.stack(torch.meshgrid(*axes, indexing="ij"))
    slopes = -1j * weights * array.unsqueeze(-1 - len(n_modes))
    return _OPERATORS[False](points, slopes, 0, facts).transpose(-1, -2)


_OPERATORS = {
    spreads: define(name, spreads, _run, _shape, _apply) for spreads, name in ((True, "modes"), (False, "sums"))
}


_constant_text = torch.compiler.assume_constant_result(text_of)


def _text(n_modes: Any, eps: float, options: dict[str, Any]) -> str:
    return _constant_text(constant([n_modes] if isinstance(n_modes, int) else n_modes), eps, 1, constant(options))


def _complex(array: Tensor) -> Tensor:
    return array if array.is_complex() else torch.complex(array, torch.zeros_like(array))


def _signed(spreads: bool, points: Tensor, array: Tensor, facts: str, conjugate: bool) -> Tensor:
    if not conjugate:
        return _OPERATORS[spreads](points, array, 0, facts)
    return _OPERATORS[spreads](points, array.conj(), 0, facts).conj()


def nufft1(
    points: Tensor, strengths: Tensor, n_modes: int | tuple[int, ...], *, eps: float = 1e-6, isign: int = 1,
    **options: Any,
) -> Tensor:  # fmt: skip
    """Type 1: modes of strengths at points, ``f[k] = sum_j c[j] exp(i isign k . x_j)``.

    Differentiable by points and strengths, in any order. For points in a box, give ``2 pi`` times their fractions:
    derivatives by the box follow.

    Parameters
    ----------
    points : tensor (N, d), or (N,) in 1-D
        In radians, of the precision of the strengths. Any finite number is folded.
    strengths : tensor (..., N)
        Complex or real.
    n_modes : int or tuple of d ints
        Modes per axis, from ``-(n // 2)`` to ``(n - 1) // 2``.
    eps : float
        Relative l2 error to reach. Derivatives have an error of this size, relative to the modes times k.
    isign : int
        Sign of the exponent.
    **options
        Options of :class:`particlemesh.apps.nufft.Plan`, without ``modeord``, ``spreadinterponly`` and ``real``.

    Returns
    -------
    complex tensor (..., *n_modes)

    Raises
    ------
    ValueError, TypeError, RuntimeError
        If an argument is not allowed.

    Examples
    --------
    >>> import torch
    >>> from particlemesh.autograd.torch_nufft import nufft1
    >>> x = torch.tensor([0.5], dtype=torch.float64, requires_grad=True)
    >>> modes = nufft1(x, torch.ones(1, dtype=torch.float64), 5, eps=1e-9)
    >>> bool(torch.allclose(modes[4], torch.exp(2j * x[0])))
    True
    >>> torch.autograd.grad(modes[4].real, x)[0].round(decimals=6)  # -2 sin(2 x)
    tensor([-1.6829], dtype=torch.float64)
    """
    check_types("strengths", strengths, points=points)
    facts = _text(n_modes, eps, options)
    axes = 1 if isinstance(n_modes, int) else len(n_modes)
    return _signed(True, with_axes(points, axes), _complex(strengths), facts, isign < 0)


def nufft2(points: Tensor, modes: Tensor, *, eps: float = 1e-6, isign: int = -1, **options: Any) -> Tensor:
    """Type 2: sums of modes at points, ``c[j] = sum_k f[k] exp(i isign k . x_j)``.

    Differentiable by points and modes, in any order.

    Parameters
    ----------
    points : tensor (N, d), or (N,) in 1-D
    modes : tensor (..., n1, ..., nd)
        Complex or real. The points have as many axes as the last axes that are taken as modes.
    eps, isign, **options
        As for :func:`nufft1`.

    Returns
    -------
    complex tensor (..., N)

    Examples
    --------
    >>> import torch
    >>> from particlemesh.autograd.torch_nufft import nufft2
    >>> x, modes = torch.tensor([0.5, 1.0]), torch.tensor([0.0, 0.0, 1.0])  # of k = -1, 0, 1
    >>> bool(torch.allclose(nufft2(x, modes), torch.exp(-1j * x), atol=1e-5))
    True
    """
    check_types("modes", modes, points=points)
    points = points.unsqueeze(-1) if points.ndim == 1 else points
    axes = points.shape[-1]
    facts = _text(modes.shape[modes.ndim - axes :], eps, options)
    return _signed(False, with_axes(points, axes), _complex(modes), facts, isign > 0)
