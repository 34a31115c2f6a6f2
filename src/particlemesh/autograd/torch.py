# SPDX-License-Identifier: BSD-3-Clause
"""Spreading and interpolation of torch tensors, with derivatives.

The two operators take fractional coordinates, so that derivatives by positions and by the box follow from torch's own
products. Each is the other's derivative by values: spreading with the window's n-th derivatives is the adjoint of
interpolating n-th derivatives. A derivative by positions raises the order by one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from particlemesh import Mesh, Window
from particlemesh.autograd import potentials
from particlemesh.autograd.frame import Frame, numbers_of
from particlemesh.autograd.pool import Pool, facts_of, text_of, verb
from particlemesh.window import DEFAULT

POOL = Pool(torch.equal, torch.clone, torch.where)
_SCHEMA = "(Tensor fractions, Tensor array, int order, str mesh) -> Tensor"


# ---- derivatives ----------------------------------------------------------------------------------------


def _by_positions(particles: Tensor, slopes: Tensor, order: int) -> Tensor:
    """Return the derivative (N, d) by positions: slopes (..., N, d, ...) weighted by what the particles carry."""
    weighted = particles.conj().unsqueeze(-1) * slopes
    weighted = weighted.real if weighted.is_complex() else weighted
    batch = particles.ndim - 1 - order
    axes = (*range(batch), *range(batch + 1, batch + 1 + order))
    return weighted.sum(axes) if axes else weighted


def pulled_back(
    call: Callable[[bool, Tensor, int], Tensor], spreads: bool, order: int, array: Tensor | None, slope: Tensor,
    needs: tuple[bool, bool],
) -> tuple[Tensor | None, Tensor | None]:  # fmt: skip
    """Return the derivatives of a loss by positions and by the array, from that by the result (``slope``).

    ``call(spreads, array, order)`` applies an operator with the positions of the call.
    """
    by_positions, by_array = None, None
    if needs[0]:
        assert array is not None
        particles, field = (array, slope) if spreads else (slope, array)
        by_positions = _by_positions(particles, call(False, field, order + 1), order)
    if needs[1]:
        by_array = call(not spreads, slope, order)
    return by_positions, by_array


# ---- operators ------------------------------------------------------------------------------------------


def _operator(name: str, spreads: bool) -> Any:
    """Define ``torch.ops.particlemesh.<name>``; return a function that also works under ``torch.func.grad``."""

    def apply(fractions: Tensor, array: Tensor, order: int, mesh: str) -> Tensor:
        fractions, array = fractions.detach(), array.detach()
        real = str(array.real.dtype if array.is_complex() else array.dtype).removeprefix("torch.")
        with POOL.plan(mesh, real, array.device, fractions) as plan:
            return getattr(plan, verb(spreads, order))(array)

    def shaped(fractions: Tensor, array: Tensor, order: int, mesh: str) -> Tensor:
        nodes, (count, axes) = facts_of(mesh)[0].field_shape, fractions.shape
        if spreads:
            return array.new_empty((*array.shape[: array.ndim - 1 - order], *nodes))
        return array.new_empty((*array.shape[: array.ndim - axes], count, *(axes,) * order))

    def setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        fractions, array, ctx.order, ctx.mesh = inputs
        # The array is needed by derivatives by positions only.
        ctx.save_for_backward(fractions, array if ctx.needs_input_grad[0] else None)

    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        fractions, array = ctx.saved_tensors

        def call(spreads: bool, array: Tensor, order: int) -> Tensor:
            verb(spreads, order)  # raises for third derivatives
            return _APPLY[spreads](fractions, array, order, ctx.mesh)

        pulled = pulled_back(call, spreads, ctx.order, array, slope, ctx.needs_input_grad[:2])
        return (None if pulled[0] is None else pulled[0].to(fractions.dtype)), pulled[1], None, None

    def batched(info: Any, axes: Any, fractions: Tensor, array: Tensor, order: int, mesh: str) -> tuple[Tensor, int]:
        if axes[0] is None:
            return _APPLY[spreads](fractions, array.movedim(axes[1], 0), order, mesh), 0
        arrays = [array] * info.batch_size if axes[1] is None else array.unbind(axes[1])
        pairs = zip(fractions.unbind(axes[0]), arrays, strict=True)
        return torch.stack([_APPLY[spreads](*pair, order, mesh) for pair in pairs]), 0

    operator: Any = torch.library.custom_op(f"particlemesh::{name}", apply, mutates_args=(), schema=_SCHEMA)
    operator.register_fake(shaped)
    operator.register_autograd(backward, setup_context=setup)
    operator.register_vmap(batched)
    # torch.func.grad supports functions only, compilation is made for operators.
    rules = dict(forward=operator, setup_context=setup, backward=backward, vmap=batched)
    function: Any = type(name, (torch.autograd.Function,), {key: staticmethod(rule) for key, rule in rules.items()})

    def call(*arguments: Any) -> Tensor:
        return operator(*arguments) if torch.compiler.is_compiling() else function.apply(*arguments)

    return call


_APPLY = {True: _operator("spread", True), False: _operator("interpolate", False)}


# ---- functions ------------------------------------------------------------------------------------------


@torch.compiler.assume_constant_result
def _text(mesh: Mesh, window: Window | str, options: dict[str, Any]) -> str:
    return text_of(mesh, window, options)


_numbers = torch.compiler.assume_constant_result(numbers_of)


def _like(numbers: Any, array: Tensor) -> Tensor:
    return torch.as_tensor(numbers, dtype=array.dtype, device=array.device)


def _frame(positions: Tensor, mesh: Mesh, cell: Tensor | None) -> Frame:
    return Frame(positions, _numbers(mesh), cell, _like, torch.linalg)


def spread(
    positions: Tensor, values: Tensor, mesh: Mesh, *, window: Window | str = DEFAULT, cell: Tensor | None = None,
    **options: Any,
) -> Tensor:  # fmt: skip
    """Spread values onto a mesh; differentiable by positions, values and cell.

    Works under ``torch.compile(fullgraph=True)``, ``torch.func.vmap`` and ``torch.func.grad``.

    Parameters
    ----------
    positions : tensor (N, d), or (N,) in 1-D
        Float32 or float64, in the user's length unit, on the device of the values. Finite, and inside open axes.
    values : tensor (..., N)
        Real or complex. Their precision is that of the computation.
    mesh : Mesh
    window : Window or str
        A window has as many continuous derivatives as its ``smoothness`` says.
    cell : tensor (d,) or (d, d), optional
        Lengths, or lattice vectors as rows, instead of those of the mesh's box. Gradients by it are at fixed positions.
    **options
        Options of :class:`particlemesh.Plan`: ``method``, ``interpolation``, ``applications``, ``components``,
        ``deterministic``, ``threads``, ``options``.

    Returns
    -------
    tensor (..., *mesh.field_shape)
        Of the dtype and device of ``values``.

    Raises
    ------
    ValueError, TypeError
        If a shape, a position, an option or a dtype is not allowed.
    NotImplementedError
        If third derivatives by positions are needed.

    Examples
    --------
    >>> import torch, particlemesh as pm
    >>> from particlemesh.autograd.torch import spread
    >>> x = torch.tensor([0.5], requires_grad=True)
    >>> field = spread(x, torch.tensor([2.0]), pm.Mesh(4, 1.0), window="tsc")
    >>> field.detach()
    tensor([0.0000, 0.2500, 1.5000, 0.2500])
    >>> torch.autograd.grad(field[1], x)
    (tensor([-4.]),)
    """
    frame = _frame(positions, mesh, cell)
    return _APPLY[True](frame.fractions, values, 0, _text(mesh, window, options))


def interpolate(
    field: Tensor, positions: Tensor, mesh: Mesh, *, window: Window | str = DEFAULT, cell: Tensor | None = None,
    **options: Any,
) -> Tensor:  # fmt: skip
    """Interpolate a field at particles; differentiable by field, positions and cell.

    Parameters
    ----------
    field : tensor (..., *mesh.field_shape)
        Real or complex.
    positions, mesh, window, cell, **options
        As for :func:`spread`.

    Returns
    -------
    tensor (..., N)

    Examples
    --------
    >>> import torch, particlemesh as pm
    >>> from particlemesh.autograd.torch import interpolate
    >>> interpolate(torch.tensor([0.0, 1.0, 2.0, 1.0]), torch.tensor([0.375]), pm.Mesh(4, 1.0), window="cic")
    tensor([1.5000])
    """
    frame = _frame(positions, mesh, cell)
    return _APPLY[False](frame.fractions, field, 0, _text(mesh, window, options))


def gradient(
    field: Tensor, positions: Tensor, mesh: Mesh, *, window: Window | str = DEFAULT, cell: Tensor | None = None,
    **options: Any,
) -> Tensor:  # fmt: skip
    """Interpolate a field's gradient at particles; differentiable by field, positions and cell.

    Parameters
    ----------
    field, positions, mesh, window, cell, **options
        As for :func:`interpolate`.

    Returns
    -------
    tensor (..., N, d)
        Per user length unit.

    Examples
    --------
    >>> import torch, particlemesh as pm
    >>> from particlemesh.autograd.torch import gradient
    >>> gradient(torch.tensor([0.0, 1.0, 2.0, 1.0]), torch.tensor([0.375]), pm.Mesh(4, 1.0), window="cic")
    tensor([[4.]])
    """
    frame = _frame(positions, mesh, cell)
    return frame.per_length(_APPLY[False](frame.fractions, field, 1, _text(mesh, window, options)))


def spread_gradient(
    positions: Tensor, vectors: Tensor, mesh: Mesh, *, window: Window | str = DEFAULT, cell: Tensor | None = None,
    **options: Any,
) -> Tensor:  # fmt: skip
    """Spread vectors with the window's derivative, the adjoint of :func:`gradient`; differentiable as that.

    Parameters
    ----------
    vectors : tensor (..., N, d)
        Real or complex, per user length unit.
    positions, mesh, window, cell, **options
        As for :func:`spread`.

    Returns
    -------
    tensor (..., *mesh.field_shape)

    Examples
    --------
    >>> import torch, particlemesh as pm
    >>> from particlemesh.autograd.torch import spread_gradient
    >>> spread_gradient(torch.tensor([0.375]), torch.tensor([[1.0]]), pm.Mesh(4, 1.0), window="cic")
    tensor([ 0., -4.,  4.,  0.])
    """
    frame = _frame(positions, mesh, cell)
    return _APPLY[True](frame.fractions, frame.per_cell(vectors), 1, _text(mesh, window, options))


@torch.compiler.assume_constant_result
def _tables(mesh: Mesh, window: Window | str, compensation: str | None) -> list[Tensor]:
    return [torch.from_numpy(table) for table in potentials.tables(mesh, window, compensation)]


def potential(
    positions: Tensor, values: Tensor, mesh: Mesh, *, window: Window | str = DEFAULT, cell: Tensor | None = None,
    green: Any = "poisson", kappa: Any = None, alpha: Any = None, zero: Any = None,
    compensation: str | None = "continuous", **options: Any,
) -> Tensor:  # fmt: skip
    """Potential at particles of the density that they carry, as :class:`particlemesh.fourier.Solver` computes it.

    Differentiable by positions, values, cell, kappa and alpha. Every axis is periodic.

    Parameters
    ----------
    positions, mesh, window, cell, **options
        As for :func:`spread`. The mesh has no ghosts.
    values : tensor (..., N)
        Real.
    green : {"poisson", "yukawa", "ewald"} or callable
        ``1 / k**2``, ``1 / (k**2 + kappa**2)``, ``exp(-k**2 / (4 alpha**2)) / k**2``, or a function of a tensor
        ``k**2``.
    kappa, alpha : float or tensor
        Inverse screening length for "yukawa", inverse width of the Gaussians for "ewald".
    zero : float or tensor, optional
        Value at k = 0. By default 0, a neutralising background, and ``1 / kappa**2`` for "yukawa". A function needs it.
    compensation : {"continuous", "discrete", None}
        Transform of the window whose square divides the modes.

    Returns
    -------
    tensor (..., N)

    Raises
    ------
    ValueError, TypeError
        If an argument is not allowed, or an axis is open.

    Examples
    --------
    Forces are minus the slopes of the energy:

    >>> import torch, particlemesh as pm
    >>> from particlemesh.autograd.torch import potential
    >>> x = torch.tensor([[0.3, 0.5], [0.5, 0.5]], requires_grad=True)
    >>> charges, mesh = torch.tensor([1.0, -1.0]), pm.Mesh((16, 16), (1.0, 1.0))
    >>> energy = 0.5 * charges @ potential(x, charges, mesh, green="ewald", alpha=8.0)
    >>> (-torch.autograd.grad(energy, x)[0]).sign()  # they attract each other along x
    tensor([[ 1.,  0.],
            [-1.,  0.]])
    """
    frame, text = _frame(positions, mesh, cell), _text(mesh, window, options)
    numbers, factors = (_like(table, values) for table in _tables(mesh, window, compensation))

    def transfer(spreads: bool, array: Tensor) -> Tensor:
        return _APPLY[spreads](frame.fractions, array, 0, text)

    return potentials.potential(
        torch, frame, transfer, mesh, values, numbers, factors, green=green, kappa=kappa, alpha=alpha, zero=zero
    )
