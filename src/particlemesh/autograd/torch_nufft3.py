# SPDX-License-Identifier: BSD-3-Clause
"""Non-uniform Fourier transforms of type 3 of torch tensors, with derivatives of any order.

One operator has both directions: ``f[k] = sum_j c[j] exp(i sign s_k . x_j)`` and its adjoint. A derivative by points
multiplies by -is, one by frequencies by ix, and is the operator again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from particlemesh.autograd.nufft_facts import both_sets, facts_of, shape_of
from particlemesh.autograd.torch_nufft import as_complex, constant_text, run
from particlemesh.autograd.torch_operators import constant, define


def slopes_of(
    transform: Callable[..., Tensor], sign: int, spreads: bool, sets: list[Tensor], array: Tensor, slope: Tensor,
    facts: str, needs: tuple[bool, ...],
) -> list[Tensor | None]:  # fmt: skip
    """Return the derivatives by points and frequencies: what a set carries times the transform of the other's."""
    carried, turn = (array, slope) if spreads else (slope, array), -1j * sign
    results: list[Tensor | None] = [None, None]
    for mine in range(2):
        if not needs[mine]:
            continue
        theirs, i = 1 - mine, turn if mine == 0 else -turn
        moments = i * sets[theirs].T * carried[theirs].unsqueeze(-2)  # (..., d, N)
        products = (carried[mine].conj().unsqueeze(-2) * transform(mine == 1, *sets, moments, 0, facts)).real
        results[mine] = products.sum(tuple(range(products.ndim - 2))).T if products.ndim > 2 else products.T
    return results


def _slopes(*given: Any) -> list[Tensor | None]:
    return slopes_of(_transform, facts_of(given[4])[2], *given)


_transform: Callable[..., Tensor] = define("nufft3", run, shape_of, slopes=_slopes, sets=2)


def nufft3(
    points: Tensor, strengths: Tensor, frequencies: Tensor, *, eps: float = 1e-6, isign: int = 1, **options: Any
) -> Tensor:
    """Type 3: sums at frequencies of strengths at points, ``f[k] = sum_j c[j] exp(i isign s_k . x_j)``.

    Differentiable by points, strengths and frequencies, in any order.

    Parameters
    ----------
    points : tensor (N, d), or (N,) in 1-D
        Of the precision of the strengths.
    strengths : tensor (..., N)
        Complex or real.
    frequencies : tensor (M, d), or (M,) in 1-D
        In radians per length of the points.
    eps, isign, **options
        As for :func:`particlemesh.autograd.torch_nufft.nufft1`.

    Returns
    -------
    complex tensor (..., M)

    Raises
    ------
    ValueError, TypeError, RuntimeError
        If an argument is not allowed.

    Examples
    --------
    >>> import torch
    >>> from particlemesh.autograd.torch_nufft3 import nufft3
    >>> x = torch.tensor([0.5], dtype=torch.float64, requires_grad=True)
    >>> s = torch.tensor([1.5, -2.25], dtype=torch.float64)
    >>> sums = nufft3(x, torch.ones(1, dtype=torch.float64), s, eps=1e-9)
    >>> bool(torch.allclose(sums, torch.exp(1j * s * x)))
    True
    >>> round(torch.autograd.grad(sums[0].real, x)[0].item(), 6)  # -1.5 sin(0.75)
    -1.022458
    """
    points, frequencies = both_sets(points, strengths, frequencies)
    facts = constant_text(constant([points.shape[1]]), eps, isign, constant(options))
    return _transform(True, points, frequencies, as_complex(strengths), 0, facts)
