# SPDX-License-Identifier: BSD-3-Clause
"""Primitives of JAX: pairs of operators, each the transpose of the other, with rules for all transformations.

One operator of a pair spreads: from particles to a field. The other interpolates. Both take points (N, d), an array, an
order of derivative and a text with all facts.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
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


def define(
    name: str, run: Callable[..., None], shape: Callable[..., tuple[int, ...]], call: Callable[..., Any] | None = None,
    change: Callable[..., Any] | None = None, sets: int = 1,
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
        ``change(spreads, points, moved, array, facts)`` returns the result's change with the points, where that is not
        the next order.
    sets : int
        How many sets of points there are. All but the first are integers, which nothing is differentiated by.
    """
    primitive: Any = jax.extend.core.Primitive(name)

    def bind(spreads: bool, *arguments: Any) -> Any:
        *arrays, order, facts = arguments
        return primitive.bind(*arrays, spreads=spreads, order=order, facts=facts)

    derive = bind if call is None else call

    def called(*arrays: Any, spreads: bool, order: int, facts: str) -> Any:
        result, array = shape(spreads, *arrays, order, facts), arrays[-1]
        if 0 in (*result, *array.shape):
            return jnp.zeros(result, array.dtype)

        def work(context: Any, out: Any, *arrays: Any) -> None:
            device, number = out.__dlpack_device__()
            scope: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
            native: Any = np.asarray
            if device != _CPU:
                import cupy

                scope, native = cuda_stream(context.stream, number), cupy.asarray
            with scope:
                run(spreads, *map(native, arrays), order, facts, (device, number), native(out))

        return buffer_callback(work, jax.ShapeDtypeStruct(result, array.dtype))(*arrays)

    @functools.lru_cache(maxsize=256)
    def compiled(**static: Any) -> Any:
        return jax.jit(functools.partial(called, **static))

    def abstract(*arrays: Any, spreads: bool, order: int, facts: str) -> Any:
        return jax.core.ShapedArray(shape(spreads, *arrays, order, facts), arrays[-1].dtype)

    def forward(primals: Any, tangents: Any, *, spreads: bool, order: int, facts: str) -> tuple[Any, Any]:
        """Return the result, and its change with the points and the array."""
        (*points, array), (moved, *_, changed) = primals, tangents
        result, changes = bind(spreads, *points, array, order, facts), []
        if type(changed) is not ad.Zero:
            changes.append(bind(spreads, *points, changed, order, facts))
        if type(moved) is not ad.Zero and change is not None:
            changes.append(change(spreads, *points, moved, array, facts))
        elif type(moved) is not ad.Zero:
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

    primitive.def_impl(lambda *arrays, **static: compiled(**static)(*arrays))
    primitive.def_abstract_eval(abstract)
    mlir.register_lowering(primitive, mlir.lower_fun(called, multiple_results=False))
    ad.primitive_jvps[primitive] = forward
    ad.primitive_transposes[primitive] = backward
    batching.primitive_batchers[primitive] = batched
    return bind
