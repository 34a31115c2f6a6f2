# SPDX-License-Identifier: BSD-3-Clause
"""Quotients, roots and choices of the vectors of ``simd.py``."""

from __future__ import annotations

from llvmlite import ir
from numba.extending import intrinsic

from particlemesh.backends.simd import _call, _lanewise, _suffix


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
