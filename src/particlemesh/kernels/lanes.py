# SPDX-License-Identifier: BSD-3-Clause
"""Vectors of numbers in compiled loops: each stays in registers, and each operation is one vector instruction.

The length of a vector is that of a tuple, an entry of ``WIDTHS``, so that compiled code is kept on disk. Nothing tests
bounds: arrays are contiguous, have one axis, and are long enough.

Examples
--------
>>> import numpy as np
>>> from particlemesh.kernels import cpu, lanes
>>> @cpu.compiled(cached=False)
... def scaled(x, factor, y, width):
...     for at in range(0, x.size, len(width)):
...         lanes.store(y, at, lanes.mul(lanes.splat(factor, width), lanes.load(x, at, width)))
>>> y = np.empty(8)
>>> scaled(np.arange(8.0), 2.0, y, lanes.WIDTHS[4])
>>> y
array([ 0.,  2.,  4.,  6.,  8., 10., 12., 14.])
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.extending import intrinsic

from particlemesh.backends.simd import (
    WIDTHS,
    _call,
    _lanewise,
    _suffix,
    add,
    alternate,
    fma,
    fused,
    horner,
    item,
    keep,
    load,
    mul,
    put,
    splat,
    store,
    sub,
    sums,
)
from particlemesh.checks import integer, real_type
from particlemesh.methods.by_tile import Rows, rows_of
from particlemesh.particles.stencil import MISSING, Axis
from particlemesh.window import Window, window_of

__all__ = [
    "WIDTHS",
    "Rows",
    "add",
    "alternate",
    "below",
    "div",
    "fma",
    "fused",
    "horner",
    "item",
    "keep",
    "load",
    "mul",
    "put",
    "root",
    "splat",
    "store",
    "sub",
    "sums",
    "window_rows",
]


def window_rows(window: Window, ndim: int, parts: int, dtype: Any) -> Rows:
    """Return a window as rows of lanes, from which :func:`horner` makes the weights of a particle.

    Parameters
    ----------
    window : Window
    ndim : int
        Axes of the mesh, 1 to 3; missing ones come first.
    parts : int
        Reals of a value: 2 of complex numbers, whose weights stand side by side along the last axis.
    dtype : {"float32", "float64"}

    Returns
    -------
    Rows

    Raises
    ------
    TypeError, ValueError
        If an argument is not allowed.

    Examples
    --------
    >>> from particlemesh import bspline
    >>> from particlemesh.kernels import cpu
    >>> rows = window_rows(bspline(4), 3, 1, "float64")
    >>> @cpu.compiled(cached=False)
    ... def weights(table, axis, terms, at, width, out):
    ...     store(out, 0, horner(table, axis * terms * len(width), terms, at, width))
    >>> out = np.empty(len(rows.width))
    >>> weights(rows.table, 2, rows.terms, 0.25, rows.width, out)
    >>> out[:4].round(4), bspline(4).weights(0.25).round(4)
    (array([0.0026, 0.3151, 0.612 , 0.0703]), array([0.0026, 0.3151, 0.612 , 0.0703]))
    """
    window, ndim, parts = window_of(window), integer(ndim, "ndim", 1, 3), integer(parts, "parts", 1, 2)
    axis = Axis(2, True, 0, 2, window.support, 2, 0.0)  # of any size: the rows know its support only
    rows = rows_of(window, (MISSING,) * (3 - ndim) + (axis,) * ndim, parts, real_type(dtype))
    return rows._replace(table=rows.table.copy())  # the library keeps its own


@intrinsic
def div(typing, a, b):
    """Return ``a / b``, lane by lane."""
    return a(a, a), _lanewise(ir.IRBuilder.fdiv)


@intrinsic
def root(typing, a):
    """Return the square root of ``a``, lane by lane."""
    return a(a), _lanewise(lambda builder, v: _call(builder, f"llvm.sqrt.{_suffix(v.type)}", v.type, v))


@intrinsic
def below(typing, a, b, yes, no):
    """Return ``yes`` where ``a < b``, else ``no``, lane by lane."""
    return a(a, a, a, a), _lanewise(lambda builder, a, b, *v: builder.select(builder.fcmp_ordered("<", a, b), *v))
