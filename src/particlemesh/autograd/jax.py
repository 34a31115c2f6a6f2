# SPDX-License-Identifier: BSD-3-Clause
"""Spreading and interpolation of JAX arrays under ``jit``, ``grad``, ``jvp`` and ``vmap``.

One primitive in two directions takes fractional coordinates, as :mod:`particlemesh.autograd.torch` explains. Compiled
programs call back into Python with the memory of their arrays, on CPUs and on CUDA devices.
"""

from __future__ import annotations

import contextlib
import functools
from typing import Any

import jax
import jax.extend
import jax.numpy as jnp
import numpy as np
from jax.experimental.buffer_callback import buffer_callback
from jax.interpreters import ad, batching, mlir

from particlemesh import Mesh, Window
from particlemesh.autograd import potentials
from particlemesh.autograd.frame import Frame, numbers_of
from particlemesh.autograd.pool import Pool, facts_of, text_of, verb
from particlemesh.window import DEFAULT

POOL = Pool(lambda a, b: bool((a == b).all()), lambda a: a.copy(), np.where)  # of NumPy and CuPy
_CPU = 1  # a device type of DLPack
_transfer: Any = jax.extend.core.Primitive("particlemesh")


# ---- the primitive --------------------------------------------------------------------------------------


def _shape(fractions: Any, array: Any, spreads: bool, order: int, mesh: str) -> tuple[int, ...]:
    nodes, (count, axes) = facts_of(mesh)[0].field_shape, fractions.shape
    core = (count, *(axes,) * order) if spreads else nodes
    if array.shape[array.ndim - len(core) :] != core:
        what = "values" if spreads else "field"
        raise ValueError(f"{what} has shape {array.shape}; its last {len(core)} axes must be {core}.")
    batch = array.shape[: array.ndim - len(core)]
    return (*batch, *nodes) if spreads else (*batch, count, *(axes,) * order)


def _call(fractions: Any, array: Any, *, spreads: bool, order: int, mesh: str) -> Any:
    name = verb(spreads, order)
    shape = _shape(fractions, array, spreads, order, mesh)
    if 0 in (*shape, *array.shape):
        return jnp.zeros(shape, array.dtype)
    real = np.empty(0, array.dtype).real.dtype.name

    def work(context: Any, out: Any, fractions: Any, array: Any) -> None:
        device, number = out.__dlpack_device__()
        if device == _CPU:
            scope: Any = contextlib.nullcontext()
            native = np.asarray
        else:
            import cupy

            scope, native = cupy.cuda.ExternalStream(context.stream, number), cupy.asarray
        with scope, POOL.plan(mesh, real, (device, number), native(fractions)) as plan:
            getattr(plan, name)(native(array), out=native(out))

    return buffer_callback(work, jax.ShapeDtypeStruct(shape, array.dtype))(fractions, array)


@functools.lru_cache(maxsize=256)
def _compiled(**facts: Any) -> Any:
    return jax.jit(functools.partial(_call, **facts))


def _abstract(fractions: Any, array: Any, *, spreads: bool, order: int, mesh: str) -> Any:
    return jax.core.ShapedArray(_shape(fractions, array, spreads, order, mesh), array.dtype)


def _forward(primals: Any, tangents: Any, *, spreads: bool, order: int, mesh: str) -> tuple[Any, Any]:
    """Return the result, and its change with the fractions and the array."""
    (fractions, array), (moved, changed) = primals, tangents
    apply = functools.partial(_transfer.bind, spreads=spreads, mesh=mesh)
    result = apply(fractions, array, order=order)
    changes = []
    if type(changed) is not ad.Zero:
        changes.append(apply(fractions, changed, order=order))
    if type(moved) is not ad.Zero:
        verb(spreads, order + 1)  # raises for third derivatives
        count, axes = moved.shape
        steps = moved.astype(array.dtype).reshape(count, *(1,) * order, axes)
        if spreads:
            changes.append(apply(fractions, array[..., None] * steps, order=order + 1))
        else:
            changes.append((apply(fractions, array, order=order + 1) * steps).sum(-1))
    return result, functools.reduce(jnp.add, changes) if changes else jnp.zeros_like(result)


def _backward(slope: Any, fractions: Any, array: Any, *, spreads: bool, order: int, mesh: str) -> tuple[Any, Any]:
    """Return the derivative by the array: the adjoint of one direction is the other."""
    if type(slope) is ad.Zero:
        return None, ad.Zero(array.aval)
    return None, _transfer.bind(fractions, slope, spreads=not spreads, order=order, mesh=mesh)


def _batched(arguments: Any, axes: Any, **facts: Any) -> tuple[Any, int]:
    fractions, array = arguments
    if axes[0] is None:
        return _transfer.bind(fractions, jnp.moveaxis(array, axes[1], 0), **facts), 0
    fractions = jnp.moveaxis(fractions, axes[0], 0)
    if axes[1] is None:
        return jax.lax.map(lambda one: _transfer.bind(one, array, **facts), fractions), 0
    both = (fractions, jnp.moveaxis(array, axes[1], 0))
    return jax.lax.map(lambda one: _transfer.bind(*one, **facts), both), 0


_transfer.def_impl(lambda *arrays, **facts: _compiled(**facts)(*arrays))
_transfer.def_abstract_eval(_abstract)
mlir.register_lowering(_transfer, mlir.lower_fun(_call, multiple_results=False))
ad.primitive_jvps[_transfer] = _forward
ad.primitive_transposes[_transfer] = _backward
batching.primitive_batchers[_transfer] = _batched


# ---- functions ------------------------------------------------------------------------------------------


def _like(numbers: Any, array: Any) -> Any:
    return jnp.asarray(numbers, array.dtype)


def _frame(positions: Any, mesh: Mesh, cell: Any) -> Frame:
    cell = None if cell is None else jnp.asarray(cell)
    return Frame(jnp.asarray(positions), numbers_of(mesh), cell, _like, jnp.linalg)


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
    frame, values = _frame(positions, mesh, cell), jnp.asarray(values)
    return _transfer.bind(frame.fractions, values, spreads=True, order=0, mesh=text_of(mesh, window, options))


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
    frame, field = _frame(positions, mesh, cell), jnp.asarray(field)
    return _transfer.bind(frame.fractions, field, spreads=False, order=0, mesh=text_of(mesh, window, options))


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
    frame, field = _frame(positions, mesh, cell), jnp.asarray(field)
    slopes = _transfer.bind(frame.fractions, field, spreads=False, order=1, mesh=text_of(mesh, window, options))
    return frame.per_length(slopes)


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
    frame, vectors = _frame(positions, mesh, cell), jnp.asarray(vectors)
    text = text_of(mesh, window, options)
    return _transfer.bind(frame.fractions, frame.per_cell(vectors), spreads=True, order=1, mesh=text)


def potential(
    positions: Any, values: Any, mesh: Mesh, *, window: Window | str = DEFAULT, cell: Any = None,
    green: Any = "poisson", kappa: Any = None, alpha: Any = None, zero: Any = None,
    compensation: str | None = "continuous", **options: Any,
) -> Any:  # fmt: skip
    """Potential at particles of the density that they carry; differentiable by positions, values, cell, kappa, alpha.

    Parameters
    ----------
    positions, values, mesh, window, cell, **options
        As for :func:`spread`.
    green, kappa, alpha, zero, compensation
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
    frame, values, text = _frame(positions, mesh, cell), jnp.asarray(values), text_of(mesh, window, options)
    numbers, factors = (_like(table, values.real) for table in potentials.tables(mesh, window, compensation))

    def transfer(spreads: bool, array: Any) -> Any:
        return _transfer.bind(frame.fractions, array, spreads=spreads, order=0, mesh=text)

    return potentials.potential(
        jnp, frame, transfer, mesh, values, numbers, factors, green=green, kappa=kappa, alpha=alpha, zero=zero
    )
