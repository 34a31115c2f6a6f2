# SPDX-License-Identifier: BSD-3-Clause
"""Non-uniform Fourier transforms of type 3 of torch tensors, with derivatives of any order.

One operator has both directions: ``f[k] = sum_j c[j] exp(i s_k . x_j)`` and its adjoint. A derivative by points
multiplies by -is, one by frequencies by ix, and is the operator again.
"""

from __future__ import annotations

import json
import math
import types
from typing import Any

import torch
from torch import Tensor

from particlemesh.apps import nufft
from particlemesh.autograd.nufft_facts import check_types
from particlemesh.autograd.torch import POOL
from particlemesh.autograd.torch_nufft import _complex, _constant_text
from particlemesh.autograd.torch_operators import constant

_SCHEMA = "(Tensor points, Tensor frequencies, Tensor array, bool forward, str facts) -> Tensor"


def _shape(points: Tensor, frequencies: Tensor, array: Tensor, forward: bool) -> tuple[int, ...]:
    sets = (points, frequencies) if forward else (frequencies, points)
    return (*array.shape[:-1], sets[1].shape[0])


def _run(points: Tensor, frequencies: Tensor, array: Tensor, forward: bool, facts: str) -> Tensor:
    points, frequencies, array = points.detach(), frequencies.detach(), array.detach()
    shape, (count, axes) = _shape(points, frequencies, array, forward), points.shape
    if not (array.numel() and math.prod(shape)):
        return array.new_zeros(shape)
    _, eps, _, options = json.loads(facts)
    vectors = array.reshape(-1, array.shape[-1]).resolve_conj().contiguous()
    number, dtype = len(vectors), str(array.dtype).removeprefix("torch.")

    def create() -> nufft.Plan:
        return nufft.Plan(3, axes, number, eps, 1, dtype, **options)

    def place(plan: nufft.Plan, both: Tensor) -> None:
        columns = both.T.contiguous()
        missing = [None] * (3 - axes)
        plan.setpts(*columns[:, :count], *missing, *columns[:, count:])

    both = torch.cat([points, frequencies])
    with POOL.borrow_plan((facts, 3, count, number, dtype, array.device), both, create, place) as plan:
        return (plan.execute if forward else plan.execute_adjoint)(vectors).reshape(shape)


def _fake(points: Tensor, frequencies: Tensor, array: Tensor, forward: bool, facts: str) -> Tensor:
    return array.new_empty(_shape(points, frequencies, array, forward))


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    points, frequencies, array, ctx.forward, ctx.facts = inputs
    ctx.save_for_backward(points, frequencies, array if any(ctx.needs_input_grad[:2]) else None)


def _slopes(coordinates: Tensor, array: Tensor, i: complex) -> Tensor:
    """Return ``i * coordinates * array``, shape (..., d, N)."""
    return i * coordinates.T * array.unsqueeze(-2)


def _weighted(carried: Tensor, slopes: Tensor) -> Tensor:
    """Return the derivative (N, d) by coordinates: slopes (..., d, N) weighted by what the set carries."""
    products = (carried.conj().unsqueeze(-2) * slopes).real
    return products.sum(tuple(range(products.ndim - 2))).T if products.ndim > 2 else products.T


def _backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None, None]:
    points, frequencies, array = ctx.saved_tensors
    by_points, by_frequencies, by_array = None, None, None

    def call(array: Tensor, forward: bool) -> Tensor:
        return _transform(points, frequencies, array, forward, ctx.facts)

    at_points, at_frequencies = (array, slope) if ctx.forward else (slope, array)
    if ctx.needs_input_grad[0]:
        by_points = _weighted(at_points, call(_slopes(frequencies, at_frequencies, -1j), False))
    if ctx.needs_input_grad[1]:
        by_frequencies = _weighted(at_frequencies, call(_slopes(points, at_points, 1j), True))
    if ctx.needs_input_grad[2]:
        by_array = call(slope, not ctx.forward)
    return by_points, by_frequencies, by_array, None, None


def _batched(
    info: Any, axes: Any, points: Tensor, frequencies: Tensor, array: Tensor, forward: bool, facts: str
) -> tuple[Tensor, int]:
    if axes[0] is None and axes[1] is None:
        return _transform(points, frequencies, array.movedim(axes[2], 0), forward, facts), 0
    given = (points, axes[0]), (frequencies, axes[1]), (array, axes[2])
    if not info.batch_size:
        x, s, v = (a if axis is None else a.new_empty(a.movedim(axis, 0).shape[1:]) for a, axis in given)
        return array.new_empty((0, *_shape(x, s, v, forward))), 0
    many = ([a] * info.batch_size if axis is None else a.unbind(axis) for a, axis in given)
    return torch.stack([_transform(*one, forward, facts) for one in zip(*many, strict=True)]), 0


_operator: Any = torch.library.custom_op("particlemesh::nufft3", _run, mutates_args=(), schema=_SCHEMA)
_operator.register_fake(_fake)
_operator.register_autograd(_backward, setup_context=_setup)
_operator.register_vmap(_batched)
# torch.func.grad supports functions only, compilation is made for operators.
_RULES = dict(forward=_operator, setup_context=_setup, backward=_backward, vmap=_batched)
_Function: Any = types.new_class(
    "nufft3", (torch.autograd.Function,),
    exec_body=lambda body: body.update({name: staticmethod(rule) for name, rule in _RULES.items()}),
)  # fmt: skip


def _transform(*arguments: Any) -> Tensor:
    return _operator(*arguments) if torch.compiler.is_compiling() else _Function.apply(*arguments)


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
    check_types("strengths", strengths, points=points, frequencies=frequencies)
    points = points.unsqueeze(-1) if points.ndim == 1 else points
    frequencies = frequencies.unsqueeze(-1) if frequencies.ndim == 1 else frequencies
    if points.ndim != 2 or frequencies.ndim != 2 or points.shape[1] != frequencies.shape[1]:
        raise ValueError(
            f"points have shape {tuple(points.shape)} and frequencies {tuple(frequencies.shape)}; (n, d) and (m, d) "
            "are needed."
        )
    if strengths.shape[-1:] != points.shape[:1]:
        raise ValueError(f"strengths has shape {tuple(strengths.shape)}; its last axis must be ({points.shape[0]},).")
    facts = _constant_text(constant([points.shape[1]]), eps, 1, constant(options))
    array = _complex(strengths)
    if isign < 0:
        return _transform(points, frequencies, array.conj(), True, facts).conj()
    return _transform(points, frequencies, array, True, facts)
