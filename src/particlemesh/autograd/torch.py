# SPDX-License-Identifier: BSD-3-Clause
"""Spreading and interpolation of torch tensors, with derivatives.

One operator with two directions takes fractional coordinates, so that derivatives by positions and by the box follow
from torch's own products. Each direction is the other's derivative by values: spreading with the window's n-th
derivatives is the adjoint of interpolating n-th derivatives. A derivative by positions raises the order by one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from particlemesh import Mesh, Window
from particlemesh.autograd import potentials
from particlemesh.autograd.frame import Frame, numbers_of
from particlemesh.autograd.pool import Pool, nodes_of, text_of, verb
from particlemesh.autograd.torch_lists import neighbour_list
from particlemesh.autograd.torch_operators import constant, define, real_name
from particlemesh.autograd.torch_ranks import OverRanks, add, like
from particlemesh.window import DEFAULT

__all__ = ["OverRanks", "gradient", "interpolate", "neighbour_list", "potential", "spread", "spread_gradient"]


def _equal(a: Tensor, b: Tensor) -> bool:
    # On the CPU, torch's threads would compete with those of the plan.
    return np.array_equal(a.numpy(), b.numpy()) if a.device.type == "cpu" else torch.equal(a, b)


POOL = Pool(_equal, torch.clone, torch.where)


# ---- operators ------------------------------------------------------------------------------------------


def _run(spreads: bool, *arguments: Any) -> Tensor:
    *points, array, order, mesh = arguments
    name = verb(spreads, order)  # raises for third derivatives
    with POOL.plan(mesh, real_name(array), array.device, *points) as plan:
        return getattr(plan, name)(array)


def _shape(spreads: bool, *arguments: Any) -> tuple[int, ...]:
    fractions, *_, array, order, mesh = arguments
    nodes, (count, axes) = nodes_of(mesh), fractions.shape
    if spreads:
        return (*array.shape[: array.ndim - 1 - order], *nodes)
    return (*array.shape[: array.ndim - len(nodes)], count, *(axes,) * order)


_transfer = define("transfer", _run, _shape)
_transfer_of_systems = define("transfer_of_systems", _run, _shape, sets=2)


# ---- functions ------------------------------------------------------------------------------------------


_constant_text = torch.compiler.assume_constant_result(text_of)


def _text(mesh: Mesh, window: Window | str, options: dict[str, Any]) -> str:
    return _constant_text(mesh, window, constant(options))


_texts = torch.compiler.assume_constant_result(potentials.texts)
_numbers = torch.compiler.assume_constant_result(numbers_of)


def _frame(positions: Tensor, array: Tensor, mesh: Mesh, cell: Tensor | None, system: Tensor | None = None) -> Frame:
    others = {name: given for name, given in (("cell", cell), ("system", system)) if given is not None}
    for name, given in {"positions": positions, "the array": array, **others}.items():
        if not isinstance(given, Tensor):
            raise TypeError(f"{name} is of type {type(given).__name__}; give a tensor.")
    if array.device != positions.device:
        raise ValueError(f"positions are on {positions.device} and the array is on {array.device}; give one device.")
    frame = Frame(positions, _numbers(mesh), cell, like, torch.linalg, system)
    kind = positions.device.type
    if frame.has_vectors and torch.is_autocast_enabled(kind):  # derivatives by them are products of matrices
        raise TypeError(
            f"torch.autocast would round derivatives by lattice vectors to {torch.get_autocast_dtype(kind)}; call this "
            f"under torch.autocast({kind!r}, enabled=False), or give lengths."
        )
    return frame


def spread(
    positions: Tensor, values: Tensor, mesh: Mesh, *, window: Window | str = DEFAULT, cell: Tensor | None = None,
    **options: Any,
) -> Tensor:  # fmt: skip
    """Spread values onto a mesh; differentiable by positions, values and cell.

    Works under ``torch.func.vmap``, ``torch.func.grad`` and, from PyTorch 2.13 on, ``torch.compile(fullgraph=True)``.

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
    frame = _frame(positions, values, mesh, cell)
    return _transfer(True, frame.fractions, values, 0, _text(mesh, window, options))


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
    frame = _frame(positions, field, mesh, cell)
    return _transfer(False, frame.fractions, field, 0, _text(mesh, window, options))


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
    frame = _frame(positions, field, mesh, cell)
    return frame.per_length(_transfer(False, frame.fractions, field, 1, _text(mesh, window, options)))


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
    frame = _frame(positions, vectors, mesh, cell)
    return _transfer(True, frame.fractions, frame.per_cell(vectors), 1, _text(mesh, window, options))


@torch.compiler.assume_constant_result
def _tables(*given: Any) -> tuple[tuple[int, ...], list[Tensor]]:
    nodes, tables = potentials.tables(*given)
    return nodes, [torch.from_numpy(table) for table in tables]


_LIBRARY = potentials.Library(torch, _transfer, _transfer_of_systems, add, _tables, _texts)


def potential(
    positions: Tensor, values: Tensor, mesh: Mesh, *, window: Window | str = DEFAULT, cell: Tensor | None = None,
    green: Any = "poisson", kappa: Any = None, alpha: Any = None, zero: Any = None,
    compensation: str | None = "auto", interlaced: bool = False, system: Tensor | None = None, moments: bool = False,
    **options: Any,
) -> Tensor:  # fmt: skip
    """Potential at particles of the density that they carry, as :class:`particlemesh.fourier.Solver` computes it.

    Differentiable by positions, values, cell, kappa and alpha. Along open axes the field is padded, as a solver's. Then
    derivatives are by positions and values only: cell and system are left out, and kappa and alpha are floats.

    Derivatives by positions are exact, as of a solver with ``gradient="window"``. Each particle pulls itself, unless
    the Green function is smooth on the mesh. For point charges ("poisson", "yukawa") this force grows as the inverse
    square of the spacing in three dimensions. Then use ``Solver(gradient="ik")`` or :class:`particlemesh.apps.pme.PME`.

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
    compensation : {"auto", "continuous", "discrete", None}
        Transform of the window whose square divides the modes. The default "auto" is none for "poisson" and
        "yukawa", and "continuous" for all others.
    interlaced : bool
        Average over two meshes, as :class:`particlemesh.fourier.Solver` does.
    system : integer tensor (N,), optional
        The system of each particle, of many in one call, which do not see each other. Then ``cell`` has the lattice
        vectors of all systems (S, d, d).
    moments : bool
        Values (m, N) are charges, dipoles and quadrupoles of the particles, and so are results. See
        :meth:`particlemesh.fourier.Solver.moment_fields`. Open axes have a `margin` of 8.

    Returns
    -------
    tensor (..., N)
        With `moments` (m, N): the potential, its slopes and its second derivatives.

    Raises
    ------
    ValueError, TypeError
        If an argument is not allowed.

    Examples
    --------
    Forces are minus the slopes of the energy:

    >>> import torch, particlemesh as pm
    >>> from particlemesh.autograd.torch import potential
    >>> x = torch.tensor([[0.3, 0.5], [0.5, 0.5]], requires_grad=True)
    >>> charges, mesh = torch.tensor([1.0, -1.0]), pm.Mesh((16, 16), (1.0, 1.0))
    >>> energy = 0.5 * charges @ potential(x, charges, mesh, green="ewald", alpha=8.0)
    >>> (-torch.autograd.grad(energy, x)[0]).sign()[:, 0]  # they attract each other
    tensor([ 1., -1.])
    """
    frame = _frame(positions, values, mesh, cell, system)
    return potentials.potential(
        _LIBRARY, frame, mesh, values, window, cell, system, compensation, interlaced, constant(options), moments,
        green=green, kappa=kappa, alpha=alpha, zero=zero,
    )  # fmt: skip
