# SPDX-License-Identifier: BSD-3-Clause
"""Comparisons of vectors of candidates.

The result of a comparison is an integer with one bit per lane.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from particlemesh.backends.simd import Lanes

_BYTE, _WORD, _LONG = ir.IntType(8), ir.IntType(32), ir.IntType(64)
PAD = 16  # numbers that may be read past the end of what vectors are loaded from: the widest vector's


def _bits(builder: ir.IRBuilder, flags: Any) -> Any:
    """Return a vector of booleans as an integer."""
    return builder.zext(builder.bitcast(flags, ir.IntType(flags.type.count)), _LONG)


@intrinsic
def at_most(typing, a, b):
    """Return where ``a <= b``; nowhere for NaN."""

    def build(context, builder, signature, arguments):
        return _bits(builder, builder.fcmp_ordered("<=", *arguments))

    return types.int64(a, a), build


@intrinsic
def size_at_most(typing, a, b):
    """Return where ``abs(a) <= b``."""

    def build(context, builder, signature, arguments):
        value, limit = arguments
        negative = builder.fneg(value)
        larger = builder.select(builder.fcmp_ordered(">", negative, value), negative, value)
        return _bits(builder, builder.fcmp_ordered("<=", larger, limit))

    return types.int64(a, a), build


@intrinsic
def apart(typing, numbers, mine, full):
    """Return where a number differs from ``mine`` (full = -1) or is beyond it (full = 0)."""

    def build(context, builder, signature, arguments):
        vector, mine, full = arguments
        kind = vector.type

        def splat(scalar):
            first = builder.insert_element(ir.Constant(kind, ir.Undefined), builder.trunc(scalar, _WORD), _WORD(0))
            return builder.shuffle_vector(first, first, ir.Constant(kind, [0] * kind.count))

        back = builder.sub(splat(mine), vector)
        either = builder.or_(back, builder.and_(splat(full), builder.sub(vector, splat(mine))))
        return _bits(builder, builder.icmp_signed("<", either, ir.Constant(kind, [0] * kind.count)))

    if not isinstance(numbers, Lanes):
        raise TypeError(f"apart compares lanes, not {numbers}.")
    return types.int64(numbers, types.int64, types.int64), build


def _ones(builder: ir.IRBuilder, bits: Any) -> Any:
    kind = ir.FunctionType(_LONG, [_LONG])
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, "llvm.ctpop.i64"), [bits])


@intrinsic
def ones(typing, bits):
    """Return how many bits are set."""

    def build(context, builder, signature, arguments):
        return _ones(builder, arguments[0])

    return types.int64(types.int64), build


# The places of the bits of every byte, in order: what a byte without a branch for each bit is unpacked with.
_PLACES = [
    ([bit for bit in range(8) if byte >> bit & 1] + [0] * 8)[:8] for byte in range(256)
]  # fmt: skip


@intrinsic
def unpack(typing, array, count, first, bits, width):
    """Write ``first`` plus the place of each bit that is set to ``array`` from ``count`` on; return the new count.

    The array holds int32. Up to seven numbers past the new count are overwritten.
    """

    def build(context, builder, signature, arguments):
        _, count, first, bits, _ = arguments
        data = cgutils.create_struct_proxy(array)(context, builder, arguments[0]).data
        rows = ir.ArrayType(_BYTE, 8)
        table = ir.Constant(ir.ArrayType(rows, 256), [ir.Constant(rows, row) for row in _PLACES])
        places = cgutils.global_constant(builder, "places_of_bits", table)
        eight, wide = ir.VectorType(_BYTE, 8), ir.VectorType(_WORD, 8)
        for byte in range(len(width) // 8):
            here = builder.and_(builder.lshr(bits, _LONG(8 * byte)), _LONG(255))
            row = builder.bitcast(builder.gep(places, [_WORD(0), here]), eight.as_pointer())
            offset = builder.trunc(builder.add(first, _LONG(8 * byte)), _WORD)
            base = builder.insert_element(ir.Constant(wide, ir.Undefined), offset, _WORD(0))
            base = builder.shuffle_vector(base, base, ir.Constant(wide, [0] * 8))
            numbers = builder.add(builder.zext(builder.load(row, align=8), wide), base)
            target = builder.bitcast(builder.gep(data, [count]), wide.as_pointer())
            builder.store(numbers, target, align=4)
            count = builder.add(count, _ones(builder, here))
        return count

    return types.int64(array, types.int64, types.int64, types.int64, width), build
