# SPDX-License-Identifier: BSD-3-Clause
"""Non-uniform Fourier transforms of torch tensors, with derivatives of any order.

Types 1 and 2 are the two directions of one operator: ``f[k] = sum_j c[j] exp(i sign k x_j)`` and its adjoint. A
derivative by points multiplies modes by -ik and is the operator again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from particlemesh.autograd.nufft_facts import check_types, facts_of, shape_of, sums, text_of, with_axes
from particlemesh.autograd.torch import POOL
from particlemesh.autograd.torch_operators import constant, define


def run(spreads: bool, *given: Any) -> Tensor:
    """Return the sums of a plan for points, an array, an order and facts; operators call it."""
    (*sets, array, _, facts), shape = given, shape_of(spreads, *given)
    if not (array.numel() and math.prod(shape)):
        return array.new_zeros(shape)
    turned = facts_of(facts)[2] < 0  # the plan has exp(+ikx); the other sign is the complex conjugate
    dense = (array.conj() if turned else array).resolve_conj().contiguous()
    result = sums(POOL, facts, spreads, tuple(sets), dense, array.device).reshape(shape)
    return result.conj().resolve_conj() if turned else result


def slopes_of(
    transform: Callable[..., Tensor], axes: Sequence[Tensor], sign: int, points: Tensor, array: Tensor, facts: str
) -> Tensor:
    """Return the slopes (..., N, d) at points of the sums of modes, whose numbers along each axis are given."""
    weights = torch.stack(torch.meshgrid(*(k.to(points.device, points.dtype) for k in axes), indexing="ij"))
    slopes = -1j * sign * weights * array.unsqueeze(-1 - len(axes))
    return transform(False, points, slopes, 0, facts).transpose(-1, -2)


def _slopes(spreads: bool, points: Tensor, array: Tensor, order: int, facts: str) -> Tensor:
    n_modes, _, sign, _ = facts_of(facts)
    axes = [torch.arange(-(n // 2), (n + 1) // 2) for n in n_modes]
    return slopes_of(_transform, axes, sign, points, array, facts)


_transform: Callable[..., Tensor] = define("nufft", run, shape_of, _slopes)


constant_text = torch.compiler.assume_constant_result(text_of)


def as_complex(array: Tensor) -> Tensor:
    """Return complex numbers: real ones with the imaginary part 0."""
    return array if array.is_complex() else torch.complex(array, torch.zeros_like(array))


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
    sizes = constant([n_modes] if isinstance(n_modes, int) else n_modes)
    facts = constant_text(sizes, eps, isign, constant(options))
    return _transform(True, with_axes(points, len(sizes)), as_complex(strengths), 0, facts)


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
    # Sums at points are the adjoint of the transform with the other sign.
    facts = constant_text(constant(modes.shape[modes.ndim - axes :]), eps, 1 if isign < 0 else -1, constant(options))
    return _transform(False, with_axes(points, axes), as_complex(modes), 0, facts)
