# SPDX-License-Identifier: BSD-3-Clause
"""Spreading and interpolation of JAX arrays under ``jit``, ``grad``, ``jvp`` and ``vmap``.

One primitive in two directions takes fractional coordinates, as :mod:`particlemesh.autograd.torch` explains. Compiled
programs call back into Python with the memory of their arrays, on CPUs and on CUDA devices.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from particlemesh import Mesh, Window, checks
from particlemesh.autograd import potentials
from particlemesh.autograd.frame import Frame, numbers_of
from particlemesh.autograd.jax_lists import kept_list, neighbour_list
from particlemesh.autograd.jax_operators import POOL, alike, define, in_place, real_name
from particlemesh.autograd.jax_ranks import LIBRARY, OverRanks
from particlemesh.autograd.pool import nodes_of, text_of, verb
from particlemesh.window import DEFAULT

__all__ = [
    "OverRanks", "alike", "gradient", "in_place", "interpolate", "kept_list", "neighbour_list", "potential", "spread",
    "spread_gradient",
]  # fmt: skip


def _run(spreads: bool, *arguments: Any) -> None:
    *points, array, order, mesh, device, out = arguments
    with POOL.plan(mesh, real_name(array), device, *points) as plan:
        getattr(plan, verb(spreads, order))(array, out=out)


def _shape(spreads: bool, *arguments: Any) -> tuple[int, ...]:
    fractions, *_, array, order, mesh = arguments
    verb(spreads, order)  # raises for third derivatives
    nodes, (count, axes) = nodes_of(mesh), fractions.shape
    core = (count, *(axes,) * order) if spreads else nodes
    if array.shape[array.ndim - len(core) :] != core:
        what = "values" if spreads else "field"
        raise ValueError(f"{what} has shape {array.shape}; it must end with {core}.")
    batch = array.shape[: array.ndim - len(core)]
    return (*batch, *nodes) if spreads else (*batch, count, *(axes,) * order)


_transfer = define("particlemesh", _run, _shape)
_LIBRARY = potentials.Library(
    jnp, _transfer, define("particlemesh_of_systems", _run, _shape, sets=2),
    LIBRARY.add, potentials.tables, potentials.texts,
)  # fmt: skip


# ---- functions ------------------------------------------------------------------------------------------


def _frame(positions: Any, array: Any, mesh: Mesh, cell: Any, system: Any = None) -> tuple[Frame, Any]:
    cell, array = None if cell is None else jnp.asarray(cell), jnp.asarray(array)
    checks.real_type(real_name(array))
    return Frame(jnp.asarray(positions), numbers_of(mesh), cell, LIBRARY.like, jnp.linalg, system), array


def spread(
    positions: Any, values: Any, mesh: Mesh, *, window: Window | str = DEFAULT, cell: Any = None, **options: Any
) -> Any:
    """Spread values onto a mesh; differentiable by positions, values and cell.

    Mesh, window and options are constants of compiled functions: close over them.

    Parameters
    ----------
    positions : array (N, d), or (N,) in 1-D
        Float32 or float64, in the user's length unit. Finite, and inside open axes: a bad position fails the compiled
        program, and JAX raises a ``jax.errors.JaxRuntimeError`` or ValueError with our message in it.
    values : array (..., N)
        Real or complex. Their precision is that of the computation.
    mesh, window, cell, **options
        As for :func:`particlemesh.autograd.torch.spread`.

    Returns
    -------
    jax.Array (..., *mesh.field_shape)

    Raises
    ------
    ValueError, TypeError
        If a shape, an option or a dtype is not allowed.
    NotImplementedError
        If third derivatives by positions are needed.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, particlemesh as pm
    >>> from particlemesh.autograd.jax import spread
    >>> mesh, x, q = pm.Mesh(4, 1.0), jnp.array([0.5]), jnp.array([2.0])
    >>> jax.jit(lambda x, q: spread(x, q, mesh, window="tsc"))(x, q)
    Array([0.  , 0.25, 1.5 , 0.25], dtype=float32)
    >>> jax.grad(lambda x: spread(x, q, mesh, window="tsc")[1])(x)
    Array([-4.], dtype=float32)
    """
    frame, values = _frame(positions, values, mesh, cell)
    return _transfer(True, frame.fractions, values, 0, text_of(mesh, window, options))


def interpolate(
    field: Any, positions: Any, mesh: Mesh, *, window: Window | str = DEFAULT, cell: Any = None, **options: Any
) -> Any:
    """Interpolate a field at particles; differentiable by field, positions and cell.

    Parameters
    ----------
    field : array (..., *mesh.field_shape)
        Real or complex.
    positions, mesh, window, cell, **options
        As for :func:`spread`.

    Returns
    -------
    jax.Array (..., N)

    Examples
    --------
    >>> import jax.numpy as jnp, particlemesh as pm
    >>> from particlemesh.autograd.jax import interpolate
    >>> interpolate(jnp.array([0.0, 1.0, 2.0, 1.0]), jnp.array([0.375]), pm.Mesh(4, 1.0), window="cic")
    Array([1.5], dtype=float32)
    """
    frame, field = _frame(positions, field, mesh, cell)
    return _transfer(False, frame.fractions, field, 0, text_of(mesh, window, options))


def gradient(
    field: Any, positions: Any, mesh: Mesh, *, window: Window | str = DEFAULT, cell: Any = None, **options: Any
) -> Any:
    """Interpolate a field's gradient at particles; differentiable by field, positions and cell.

    Parameters
    ----------
    field, positions, mesh, window, cell, **options
        As for :func:`interpolate`.

    Returns
    -------
    jax.Array (..., N, d)
        Per user length unit.

    Examples
    --------
    >>> import jax.numpy as jnp, particlemesh as pm
    >>> from particlemesh.autograd.jax import gradient
    >>> gradient(jnp.array([0.0, 1.0, 2.0, 1.0]), jnp.array([0.375]), pm.Mesh(4, 1.0), window="cic")
    Array([[4.]], dtype=float32)
    """
    frame, field = _frame(positions, field, mesh, cell)
    return frame.per_length(_transfer(False, frame.fractions, field, 1, text_of(mesh, window, options)))


def spread_gradient(
    positions: Any, vectors: Any, mesh: Mesh, *, window: Window | str = DEFAULT, cell: Any = None, **options: Any
) -> Any:
    """Spread vectors with the window's derivative, the adjoint of :func:`gradient`; differentiable as that.

    Parameters
    ----------
    vectors : array (..., N, d)
        Real or complex, per user length unit.
    positions, mesh, window, cell, **options
        As for :func:`spread`.

    Returns
    -------
    jax.Array (..., *mesh.field_shape)

    Examples
    --------
    >>> import jax.numpy as jnp, particlemesh as pm
    >>> from particlemesh.autograd.jax import spread_gradient
    >>> spread_gradient(jnp.array([0.375]), jnp.array([[1.0]]), pm.Mesh(4, 1.0), window="cic")
    Array([ 0., -4.,  4.,  0.], dtype=float32)
    """
    frame, vectors = _frame(positions, vectors, mesh, cell)
    return _transfer(True, frame.fractions, frame.per_cell(vectors), 1, text_of(mesh, window, options))


def potential(
    positions: Any, values: Any, mesh: Mesh, *, window: Window | str = DEFAULT, cell: Any = None,
    green: Any = "poisson", kappa: Any = None, alpha: Any = None, zero: Any = None,
    compensation: str | None = "auto", interlaced: bool = False, system: Any = None, moments: bool = False,
    **options: Any,
) -> Any:  # fmt: skip
    """Potential at particles of the density that they carry; differentiable by positions, values, cell, kappa, alpha.

    Derivatives by positions are exact, as of a solver with ``gradient="window"``. Each particle pulls itself, unless
    the Green function is smooth on the mesh. For point charges ("poisson", "yukawa") this force grows as the inverse
    square of the spacing in three dimensions. Then use ``Solver(gradient="ik")`` or :class:`particlemesh.apps.pme.PME`.

    Parameters
    ----------
    positions, values, mesh, window, cell, **options
        As for :func:`spread`.
    green, kappa, alpha, zero, compensation, interlaced, system, moments
        As for :func:`particlemesh.autograd.torch.potential`.

    Returns
    -------
    jax.Array (..., N)

    Examples
    --------
    >>> import jax, jax.numpy as jnp, particlemesh as pm
    >>> from particlemesh.autograd.jax import potential
    >>> x, charges, mesh = jnp.array([[0.3, 0.5], [0.5, 0.5]]), jnp.array([1.0, -1.0]), pm.Mesh((16, 16), (1.0, 1.0))
    >>> energy = lambda x: 0.5 * charges @ potential(x, charges, mesh, green="ewald", alpha=8.0)
    >>> jnp.sign(-jax.grad(energy)(x))[:, 0]  # they attract each other
    Array([ 1., -1.], dtype=float32)
    """
    system = None if system is None else jnp.asarray(system)
    frame, values = _frame(positions, values, mesh, cell, system)
    return potentials.potential(
        _LIBRARY, frame, mesh, values, window, cell, system, compensation, interlaced, options, moments,
        green=green, kappa=kappa, alpha=alpha, zero=zero,
    )  # fmt: skip
