# SPDX-License-Identifier: BSD-3-Clause
"""Single transforms: the nine functions `nufft1d1` to `nufft3d3`."""

from __future__ import annotations

import inspect
import math
import numbers
from collections.abc import Callable
from typing import Any

import numpy as np

from particlemesh.apps.nufft import shapes
from particlemesh.apps.nufft.plan import Plan
from particlemesh.apps.nufft.shapes import ArgumentError

_COMPLEX = {np.dtype(np.float32): "complex64", np.dtype(np.float64): "complex128"}
_SUMS = {
    1: "Return modes of strengths at points: ``f[k] = sum_j c[j] exp(i isign k . x_j)``.",
    2: "Return sums of modes at points: ``c[j] = sum_k f[k] exp(i isign k . x_j)``.",
    3: "Return sums at frequencies of strengths at points: ``f[k] = sum_j c[j] exp(i isign s_k . x_j)``.",
}
_PARAMETERS = {
    "xyz": "Coordinates of the points.",
    "c": "Strengths.",
    "n_modes": "Modes per axis; by default those of `out`.",
    "f": "Modes.",
    "stu": "Coordinates of the frequencies.",
    "out": "Memory of the result.",
    "eps": "Relative l2 error to reach.",
    "isign": "Sign of the exponent.",
    "**opts": "Options of `Plan`.",
}


def transform(ndim: int, nufft_type: int) -> Callable[..., Any]:
    """Return the function of a number of axes and a type, with FINUFFT's arguments."""
    points = list("xyz"[:ndim])
    first = {1: [*points, "c"], 2: [*points, "f"], 3: [*points, "c", *"stu"[:ndim]]}[nufft_type]
    defaults: dict[str, Any] = {"n_modes": None} if nufft_type == 1 else {}
    defaults |= {"out": None, "eps": 1e-6, "isign": -1 if nufft_type == 2 else 1}
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    signature = inspect.Signature([
        *(inspect.Parameter(name, kind) for name in first),
        *(inspect.Parameter(name, kind, default=default) for name, default in defaults.items()),
        inspect.Parameter("opts", inspect.Parameter.VAR_KEYWORD),
    ])  # fmt: skip

    def call(*arguments: Any, **options: Any) -> Any:
        bound = signature.bind(*arguments, **options)
        bound.apply_defaults()
        given = bound.arguments
        return _once(
            nufft_type, [given[name] for name in points], given["f" if nufft_type == 2 else "c"],
            [given[name] for name in "stu"[:ndim]] if nufft_type == 3 else [], given.get("n_modes"), given["out"],
            given["eps"], given["isign"], given.get("opts", {}),
        )  # fmt: skip

    call.__name__ = call.__qualname__ = f"nufft{ndim}d{nufft_type}"
    call.__module__ = "particlemesh.apps.nufft"
    call.__signature__ = signature  # type: ignore[attr-defined]
    lines = [_SUMS[nufft_type], "", "Parameters", "----------"]
    for name in [*first, *defaults, "**opts"]:
        text = next(text for key, text in _PARAMETERS.items() if name == key or (len(name) == 1 and name in key))
        lines += [name, f"    {text}"]
    call.__doc__ = "\n".join(lines)
    return call


def _once(
    nufft_type: int, points: list[Any], data: Any, frequencies: list[Any], n_modes: Any, out: Any, eps: float,
    isign: int, options: dict[str, Any],
) -> Any:  # fmt: skip
    ndim, given = len(points), shapes.kind(points[0], "x").dtype(points[0])
    if given not in _COMPLEX:
        raise ArgumentError(f"x dtype should be float64 for double precision or float32 for single; it is {given}.")
    for name, array in (("f" if nufft_type == 2 else "c", data), *([] if out is None else [("out", out)])):
        shapes.kind(array, name)
    if nufft_type == 2:
        n_trans, n_modes = _split(data, ndim, None, None)
    else:
        count, size = math.prod(points[0].shape), math.prod(data.shape)
        n_trans = size // count if count else (data.shape[0] if data.ndim > 1 else 1)
        if n_trans * count != size:
            raise ArgumentError(f"c.size must be divisible by x.size; they are {size} and {count}.")
    if nufft_type == 1:
        n_modes = _n_modes(n_modes, ndim)
        if n_modes is None and out is None:
            raise ArgumentError("type 1 input must supply n_modes or output vector, or both.")
        if out is not None:
            n_trans, n_modes = _split(out, ndim, n_trans, n_modes)
    plan = Plan(nufft_type, ndim if nufft_type == 3 else n_modes, n_trans, eps, isign, _COMPLEX[given], **options)
    missing = [None] * (3 - ndim)
    plan.setpts(*points, *missing, *frequencies)
    return plan.execute(data, out)


def _n_modes(n_modes: Any, ndim: int) -> tuple[int, ...] | None:
    if n_modes is None:
        return None
    if isinstance(n_modes, numbers.Integral):
        return (int(n_modes),) * ndim
    if not isinstance(n_modes, tuple):
        raise ArgumentError(f"input n_modes must be a tuple or an integer; it is {n_modes!r}.")
    if len(n_modes) != ndim:
        raise ArgumentError(f"input n_modes dimension does not match problem dimension: {n_modes} in {ndim}-D.")
    if not all(isinstance(n, numbers.Integral) for n in n_modes):
        raise ArgumentError(f"all elements of input n_modes must be integer; they are {n_modes}.")
    return tuple(int(n) for n in n_modes)


def _split(modes: Any, ndim: int, n_trans: int | None, n_modes: tuple[int, ...] | None) -> tuple[int, tuple[int, ...]]:
    """Return the number of vectors and the modes of an array, compared with what is known."""
    shape = tuple(modes.shape)
    if len(shape) not in (ndim, ndim + 1):
        raise ArgumentError(
            "type 1 output dimension or type 2 input dimension must be either dim (n_trans==1) or dim+1 (n_trans>=1): "
            f"the array has shape {shape}, and the transform is {ndim}-D."
        )
    vectors = shape[0] if len(shape) > ndim else 1
    if n_trans is not None and vectors != n_trans:
        raise ArgumentError(f"input n_trans and output n_trans do not match: {n_trans} and {vectors}.")
    if n_modes is not None and shape[-ndim:] != n_modes:
        raise ArgumentError(f"input n_modes and output n_modes do not match: {n_modes} and {shape[-ndim:]}.")
    return vectors, shape[-ndim:]
