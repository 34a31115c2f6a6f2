# SPDX-License-Identifier: BSD-3-Clause
"""Primitives of JAX: pairs of operators, each the transpose of the other, with rules for all transformations.

One operator of a pair spreads: from particles to a field. The other interpolates. Both take points (N, d), an array, an
order of derivative and a text with all facts.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.extend
import jax.numpy as jnp
import numpy as np
from jax.experimental.buffer_callback import buffer_callback
from jax.interpreters import ad, batching, mlir

from particlemesh.arrays.kinds import cuda_stream
from particlemesh.autograd.pool import Pool

POOL = Pool(lambda a, b: bool((a == b).all()), lambda a: a.copy(), np.where)  # of NumPy and CuPy
_CPU = 1  # a device type of DLPack


def real_name(array: Any) -> str:
    """Return the name of the real type of an array's numbers."""
    return np.empty(0, array.dtype).real.dtype.name


def written(
    run: Callable[..., None], results: Sequence[tuple[Any, Any]], *arrays: Any, vmap_method: str | None = None
) -> list[Any]:
    """Return arrays of these shapes and dtypes that ``run`` writes where the given ones are.

    ``run(device, outs, *arrays)`` gets arrays of NumPy or CuPy. Nothing is copied.
    """

    def work(context: Any, outs: Any, *given: Any) -> None:
        device, number = outs[0].__dlpack_device__()
        scope: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
        native: Any = np.asarray
        if device != _CPU:
            import cupy

            scope, native = cuda_stream(context.stream, number), cupy.asarray
        with scope:
            run((device, number), list(map(native, outs)), *map(native, given))

    types = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in results]
    return list(buffer_callback(work, types, vmap_method=vmap_method)(*arrays))


def in_place(function: Callable[..., Any], results: Sequence[tuple[Any, Any]], *arrays: Any) -> list[Any]:
    """Return arrays that a function of NumPy or CuPy arrays returns; compiled programs call it where their arrays are.

    Under ``vmap`` it is called for one after the other. In ``shard_map`` results differ between devices as arrays do.

    Parameters
    ----------
    function : callable
        ``function(xp, *arrays)`` returns an array for each result. Arrays are those of ``xp``, which is NumPy or CuPy;
        they are read only.
    results : sequence of pairs
        The shape and the dtype of each result.
    *arrays : jax.Array
        On one device.

    Returns
    -------
    list of jax.Array

    Examples
    --------
    >>> import jax, jax.numpy as jnp
    >>> from particlemesh.autograd.jax import in_place
    >>> def largest(xp, x):
    ...     return [xp.abs(x).max()]
    >>> jax.jit(lambda x: in_place(largest, [((), x.dtype)], x)[0])(jnp.array([1.0, -3.0]))
    Array(3., dtype=float32)
    """

    def write(device: Any, outs: list[Any], *given: Any) -> None:
        xp = sys.modules[type(outs[0]).__module__.partition(".")[0]]
        for out, result in zip(outs, function(xp, *given), strict=True):
            out[...] = xp.asarray(result, out.dtype)

    return alike([*written(write, results, *arrays, vmap_method="sequential"), *arrays])[: len(results)]


# ---- axes of `shard_map` along which arrays differ -------------------------------------------------------------------


def _varying(kind: Any) -> frozenset[str]:
    """Return the axes along which arrays of a type differ."""
    return frozenset(kind.vma if hasattr(kind, "vma") else kind.mat.varying)


def alike(arrays: Sequence[Any]) -> list[Any]:
    """Return arrays that differ along all axes of ``shard_map`` along which one of them does.

    Primitives, and functions with derivatives of your own, need such arguments.

    Parameters
    ----------
    arrays : sequence of jax.Array

    Returns
    -------
    list of jax.Array

    Examples
    --------
    >>> import jax, jax.numpy as jnp
    >>> from particlemesh.autograd.jax import alike
    >>> parts = jax.sharding.Mesh(jax.devices()[:1], ("i",)), jax.sharding.PartitionSpec("i")
    >>> def total(x):
    ...     return sum(alike([x, jnp.ones(2)]))
    >>> jax.shard_map(total, mesh=parts[0], in_specs=parts[1], out_specs=parts[1])(jnp.arange(2.0))
    Array([1., 2.], dtype=float32)
    """
    axes = frozenset[str]().union(*(_varying(jax.typeof(a)) for a in arrays))
    cast = functools.partial(jax.lax.pcast, to="varying") if hasattr(jax.lax, "pcast") else jax.lax.pvary
    missing = [tuple(sorted(axes - _varying(jax.typeof(a)))) for a in arrays]
    return [cast(a, names) if names else a for a, names in zip(arrays, missing, strict=True)]


def type_of(shape: tuple[int, ...], array: Any) -> Any:
    """Return the type of an array of another shape that differs along the axes along which one of this type does."""
    if not _varying(array):
        return jax.core.ShapedArray(shape, array.dtype)
    sharding = array.sharding.update(spec=jax.sharding.PartitionSpec(*(None,) * len(shape)))
    return array.update(shape=shape, weak_type=False, sharding=sharding)


# ---- calls over ranks ------------------------------------------------------------------------------------------------


def refuse(*_: Any, **__: Any) -> Any:
    """Raise an error that says why a compiled program has no calls over ranks."""
    raise NotImplementedError(
        "calls over ranks send messages, and a message inside of a compiled program may wait for a program that has "
        "not begun. Compile the parts between the calls, and differentiate outside of jit, vmap and shard_map."
    )


def uncompiled(primitive: Any, run: Callable[..., Any], refused: Callable[..., Any] = refuse) -> None:
    """Let a primitive call a function of concrete arrays, and ``refused``, which raises, where JAX compiles it."""
    primitive.def_impl(lambda *arrays, **static: run(*map(jnp.asarray, arrays), **static))
    mlir.register_lowering(primitive, refused)
    batching.primitive_batchers[primitive] = refused


# ---- pairs of operators ----------------------------------------------------------------------------------------------


def define(
    name: str, run: Callable[..., None], shape: Callable[..., tuple[int, ...]], call: Callable[..., Any] | None = None,
    change: Callable[..., Any] | None = None, sets: int = 1, over_ranks: bool = False,
) -> Callable[..., Any]:  # fmt: skip
    """Return the function ``(spreads, *points, array, order, facts)`` of a new pair.

    Parameters
    ----------
    name : str
    run : callable
        ``run(spreads, *points, array, order, facts, device, out)`` writes the result to ``out``; arrays are NumPy's or
        CuPy's.
    shape : callable
        Returns the result's shape for ``(spreads, *points, array, order, facts)``, or raises an error.
    call : callable, optional
        The same function for the next order, which derivatives by points call, where it is made of other calls.
    change : callable, optional
        ``change(spreads, *points, moves, array, facts)`` returns the result's change with the points, where that is not
        the next order. ``moves`` has one change for each set of points, or None.
    sets : int
        How many sets of points there are. Without ``change`` nothing is differentiated by all but the first.
    over_ranks : bool
        Whether the call sends messages. Then ``run(spreads, *points, array, order, facts)`` returns the result.
    """
    primitive: Any = jax.extend.core.Primitive(name)

    def bind(spreads: bool, *arguments: Any) -> Any:
        *arrays, order, facts = arguments
        return primitive.bind(*alike(arrays), spreads=spreads, order=order, facts=facts)

    derive = bind if call is None else call

    def called(*arrays: Any, spreads: bool, order: int, facts: str) -> Any:
        result, array = shape(spreads, *arrays, order, facts), arrays[-1]
        if 0 in (*result, *array.shape):
            return jnp.zeros(result, array.dtype)

        def write(device: Any, outs: list[Any], *arrays: Any) -> None:
            run(spreads, *arrays, order, facts, device, *outs)

        return written(write, [(result, array.dtype)], *arrays)[0]

    @functools.lru_cache(maxsize=256)
    def compiled(**static: Any) -> Any:
        return jax.jit(functools.partial(called, **static))

    def abstract(*arrays: Any, spreads: bool, order: int, facts: str) -> Any:
        return type_of(shape(spreads, *arrays, order, facts), arrays[-1])

    def forward(primals: Any, tangents: Any, *, spreads: bool, order: int, facts: str) -> tuple[Any, Any]:
        """Return the result, and its change with the points and the array."""
        (*points, array), (*moves, changed) = primals, tangents
        result, changes = bind(spreads, *points, array, order, facts), []
        if type(changed) is not ad.Zero:
            changes.append(bind(spreads, *points, changed, order, facts))
        moves = [None if type(each) is ad.Zero else each for each in moves]
        if change is not None and any(each is not None for each in moves):
            changes.append(change(spreads, *points, moves, array, facts))
        elif change is None and (moved := moves[0]) is not None:
            count, axes = moved.shape
            steps = moved.astype(array.dtype).reshape(count, *(1,) * order, axes)
            if spreads:
                changes.append(derive(True, *points, array[..., None] * steps, order + 1, facts))
            else:
                changes.append((derive(False, *points, array, order + 1, facts) * steps).sum(-1))
        return result, functools.reduce(jnp.add, changes) if changes else jnp.zeros_like(result)

    def backward(slope: Any, *arrays: Any, spreads: bool, order: int, facts: str) -> tuple[Any, ...]:
        """Return the derivative by the array: the transpose of one operator is the other."""
        *points, array = arrays
        if type(slope) is ad.Zero:
            return *(None for _ in points), ad.Zero(array.aval)
        return *(None for _ in points), bind(not spreads, *points, slope, order, facts)

    def batched(arguments: Any, axes: Any, **static: Any) -> tuple[Any, int]:
        *points, array = arguments
        if all(axis is None for axis in axes[:sets]):
            return primitive.bind(*points, jnp.moveaxis(array, axes[sets], 0), **static), 0
        given = list(zip(arguments, axes, strict=True))

        def one(many: list[Any]) -> Any:
            rest = iter(many)
            return primitive.bind(*(a if axis is None else next(rest) for a, axis in given), **static)

        return jax.lax.map(one, [jnp.moveaxis(a, axis, 0) for a, axis in given if axis is not None]), 0

    primitive.def_abstract_eval(abstract)
    ad.primitive_jvps[primitive] = forward
    ad.primitive_transposes[primitive] = backward
    if over_ranks:
        uncompiled(primitive, lambda *arrays, spreads, order, facts: run(spreads, *arrays, order, facts))
    else:
        primitive.def_impl(lambda *arrays, **static: compiled(**static)(*arrays))
        mlir.register_lowering(primitive, mlir.lower_fun(called, multiple_results=False))
        batching.primitive_batchers[primitive] = batched
    return bind
