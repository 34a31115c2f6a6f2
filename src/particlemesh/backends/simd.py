# SPDX-License-Identifier: BSD-3-Clause
"""Vectors of numbers and atomic integers for compiled CPU functions.

A ``Lanes`` value is one LLVM vector: it lives in registers and its operations become vector
instructions of the processor's width. The number of lanes is the length of a tuple (``WIDTHS``), a part
of the function's signature, so compiled code can be cached on disk.
"""

from __future__ import annotations

import sys
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.core.datamodel import models
from numba.extending import intrinsic, register_model

from particlemesh.backends.jit import compiled

WIDTHS = {lanes: (0,) * lanes for lanes in (4, 8, 12, 16, 20, 24, 32)}


def width_of(numbers: int, itemsize: int) -> tuple[int, ...]:
    """Return the narrowest width that holds ``numbers`` numbers of ``itemsize`` bytes.

    Twelve single precision numbers are one vector of 64 bytes: sixteen cost less than eight and four.
    """
    return next(width for lanes, width in WIDTHS.items() if lanes >= numbers and lanes * itemsize != 48)


def _pieces(count: int) -> list[int]:
    """Return the lengths of the LLVM vectors that make up ``count`` lanes: powers of two."""
    longest = 1 << count.bit_length() - 1
    return [longest] if longest == count else [longest, count - longest]


class Lanes(types.Type):
    """The type of a vector of ``count`` numbers of type ``dtype``."""

    def __init__(self, dtype: types.Type, count: int) -> None:
        self.dtype = dtype
        self.count = count
        super().__init__(name=f"Lanes({dtype}, {count})")


@register_model(Lanes)
class LanesModel(models.PrimitiveModel):
    """Lanes are one LLVM value: a vector, or two of different lengths."""

    def __init__(self, dmm: Any, fe_type: Lanes) -> None:
        number = dmm.lookup(fe_type.dtype).get_value_type()
        vectors = [ir.VectorType(number, length) for length in _pieces(fe_type.count)]
        super().__init__(dmm, fe_type, vectors[0] if len(vectors) == 1 else ir.LiteralStructType(vectors))


def _split(builder: ir.IRBuilder, value: Any) -> list[Any]:
    """Return the vectors of a value."""
    if isinstance(value.type, ir.VectorType):
        return [value]
    return [builder.extract_value(value, i) for i in range(len(value.type.elements))]


def _join(builder: ir.IRBuilder, vectors: list[Any]) -> Any:
    """Return vectors as one value."""
    if len(vectors) == 1:
        return vectors[0]
    value = ir.Constant(ir.LiteralStructType([v.type for v in vectors]), ir.Undefined)
    for i, vector in enumerate(vectors):
        value = builder.insert_value(value, vector, i)
    return value


def _each(builder: ir.IRBuilder, work: Any, *values: Any) -> Any:
    """Apply ``work`` to the vectors of ``values``, piece by piece."""
    return _join(builder, [work(*vectors) for vectors in zip(*(_split(builder, v) for v in values), strict=True)])


_BYTE, _INDEX, _LONG = ir.IntType(8), ir.IntType(32), ir.IntType(64)


def _pointer(context: Any, builder: ir.IRBuilder, array_type: types.Array, array: Any, index: Any) -> Any:
    data = cgutils.create_struct_proxy(array_type)(context, builder, array).data
    return builder.gep(data, [index])


def _size(array_type: types.Array) -> int:
    real: Any = array_type.dtype
    return real.bitwidth // 8


def _splat(builder: ir.IRBuilder, scalar: Any, count: int) -> Any:
    undefined = ir.Constant(ir.VectorType(scalar.type, count), ir.Undefined)
    first = builder.insert_element(undefined, scalar, _INDEX(0))
    return builder.shuffle_vector(first, undefined, ir.Constant(ir.VectorType(_INDEX, count), [0] * count))


def _call(builder: ir.IRBuilder, name: str, result: ir.Type, *values: Any) -> Any:
    kind = ir.FunctionType(result, [value.type for value in values])
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), values)


def _suffix(vector: ir.VectorType) -> str:
    return f"v{vector.count}f{32 if isinstance(vector.element, ir.FloatType) else 64}"


@intrinsic
def load(typing, array, index, width):
    """Return the numbers of ``array`` (one axis, contiguous) from ``index`` on."""

    def build(context, builder, signature, arguments):
        number = context.get_value_type(array.dtype)
        place = _pointer(context, builder, array, arguments[0], arguments[1])
        vectors = []
        for length in _pieces(len(width)):
            kind = ir.VectorType(number, length).as_pointer()
            vectors.append(builder.load(builder.bitcast(place, kind), align=_size(array)))
            place = builder.gep(place, [_INDEX(length)])
        return _join(builder, vectors)

    return Lanes(array.dtype, len(width))(array, types.intp, width), build


@intrinsic
def item(typing, array, index):
    """Return ``array[index]`` (one axis, contiguous); the index is not negative, and is not tested for it."""

    def build(context, builder, signature, arguments):
        return builder.load(_pointer(context, builder, array, arguments[0], arguments[1]), align=_size(array))

    return array.dtype(array, types.intp), build


@intrinsic
def put(typing, array, index, number):
    """Write ``array[index] = number`` (one axis, contiguous); the index is not negative, and is not tested for it."""

    def build(context, builder, signature, arguments):
        place = _pointer(context, builder, array, arguments[0], arguments[1])
        builder.store(arguments[2], place, align=_size(array))
        return context.get_dummy_value()

    return types.void(array, types.intp, array.dtype), build


@intrinsic
def store(typing, array, index, lanes):
    """Write ``lanes`` to ``array`` (one axis, contiguous) from ``index`` on."""

    def build(context, builder, signature, arguments):
        place = _pointer(context, builder, array, arguments[0], arguments[1])
        for vector in _split(builder, arguments[2]):
            builder.store(vector, builder.bitcast(place, vector.type.as_pointer()), align=_size(array))
            place = builder.gep(place, [_INDEX(vector.type.count)])
        return context.get_dummy_value()

    return types.void(array, types.intp, lanes), build


@intrinsic
def store_record(typing, array, index, x, y, z, integer):
    """Write three numbers and the bits of an integer with one instruction, from ``index`` on."""

    def build(context, builder, signature, arguments):
        number = context.get_value_type(array.dtype)
        bits = builder.trunc(arguments[5], _INDEX) if array.dtype.bitwidth == 32 else arguments[5]
        record = ir.Constant(ir.VectorType(number, 4), ir.Undefined)
        for lane, value in enumerate((*arguments[2:5], builder.bitcast(bits, number))):
            record = builder.insert_element(record, value, _INDEX(lane))
        place = _pointer(context, builder, array, arguments[0], arguments[1])
        builder.store(record, builder.bitcast(place, record.type.as_pointer()), align=_size(array))
        return context.get_dummy_value()

    return types.void(array, types.intp, array.dtype, array.dtype, array.dtype, types.int64), build


@intrinsic
def splat(typing, scalar, width):
    """Return ``scalar`` in every lane."""

    def build(context, builder, signature, arguments):
        return _join(builder, [_splat(builder, arguments[0], n) for n in _pieces(len(width))])

    return Lanes(scalar, len(width))(scalar, width), build


@intrinsic
def alternate(typing, even, odd, width):
    """Return ``even, odd, even, odd, ...``."""

    def build(context, builder, signature, arguments):
        vectors = []
        for length in _pieces(len(width)):
            a, b = (_splat(builder, scalar, length) for scalar in arguments[:2])
            pick = [lane + length * (lane % 2) for lane in range(length)]
            vectors.append(builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(_INDEX, length), pick)))
        return _join(builder, vectors)

    return Lanes(even, len(width))(even, even, width), build


def _number(name: str) -> Any:
    """Return the code of an LLVM function of numbers."""

    def build(context, builder, signature, arguments):
        kind = arguments[0].type
        return _call(builder, f"llvm.{name}.f{signature.return_type.bitwidth}", kind, *arguments)

    return build


@intrinsic
def fused(typing, a, b, c):
    """Return ``a * b + c`` of numbers, rounded once on every processor: exact arithmetic relies on it."""
    return a(a, a, a), _number("fma")


@intrinsic
def fuse(typing, a, b, c):
    """Return ``a * b + c`` of numbers, rounded once where the processor can: as vectors do, and kernels of GPUs."""
    return a(a, a, a), _number("fmuladd")


def _lanewise(operation: Any) -> Any:
    """Return the code of a method of LLVM's builder, lane by lane."""

    def build(context, builder, signature, arguments):
        return _each(builder, lambda *vectors: operation(builder, *vectors), *arguments)

    return build


def _multiply_add(builder: ir.IRBuilder, *vectors: Any) -> Any:
    kind = vectors[0].type
    return _call(builder, f"llvm.fmuladd.{_suffix(kind)}", kind, *vectors)


@intrinsic
def fma(typing, a, b, c):
    """Return ``a * b + c``, lane by lane."""
    return a(a, a, a), _lanewise(_multiply_add)


_MAGIC = 1.5 * 2.0**52  # a float64 below 2**51 in size is added to it as an integer: the last bits of the sum


def _tally(builder: ir.IRBuilder, a: Any, b: Any, total: Any) -> Any:
    magic = ir.Constant(a.type, [_MAGIC] * a.type.count)
    bits = builder.bitcast(_multiply_add(builder, a, b, magic), total.type)
    return builder.add(total, builder.sub(bits, builder.bitcast(magic, total.type)))


@intrinsic
def add_product(typing, a, b, total):
    """Return ``a * b + total``, lane by lane.

    If totals are int64, float64 products are rounded to integers first. They are below 2**51 in size.
    """
    whole = isinstance(total.dtype, types.Integer)
    return total(a, a, total), _lanewise(_tally if whole else _multiply_add)


@intrinsic
def mul(typing, a, b):
    """Return ``a * b``, lane by lane."""
    return a(a, a), _lanewise(ir.IRBuilder.fmul)


@intrinsic
def add(typing, a, b):
    """Return ``a + b`` of numbers or of integers, lane by lane."""
    return a(a, a), _lanewise(ir.IRBuilder.add if isinstance(a.dtype, types.Integer) else ir.IRBuilder.fadd)


@intrinsic
def sub(typing, a, b):
    """Return ``a - b``, lane by lane."""
    return a(a, a), _lanewise(ir.IRBuilder.fsub)


@intrinsic
def scaled(typing, even, odd, scale):
    """Return two numbers times two float64 as float64, or as they are if ``scale`` is None."""
    plain = isinstance(scale, types.NoneType)
    real = even if plain else types.float64

    def build(context, builder, signature, arguments):
        numbers = arguments[:2]
        if not plain:
            factors = cgutils.unpack_tuple(builder, arguments[2])
            numbers = [context.cast(builder, number, even, real) for number in numbers]
            numbers = [builder.fmul(*pair) for pair in zip(numbers, factors, strict=True)]
        return context.make_tuple(builder, signature.return_type, numbers)

    return types.UniTuple(real, 2)(even, odd, scale), build


@intrinsic
def rounded(typing, number, array):
    """Return a number as ``array`` holds it: rounded if that holds integers."""

    def build(context, builder, signature, arguments):
        if not isinstance(array.dtype, types.Integer):
            return arguments[0]
        return builder.fptosi(_call(builder, f"llvm.rint.f{number.bitwidth}", arguments[0].type, arguments[0]), _LONG)

    return array.dtype(number, array), build


@intrinsic
def keep(typing, lanes, count):
    """Return ``lanes`` with every lane from ``count`` on set to zero, even NaN."""

    def build(context, builder, signature, arguments):
        limit = builder.trunc(arguments[1], _INDEX)
        vectors, first = [], 0
        for vector in _split(builder, arguments[0]):
            length = vector.type.count
            order = ir.Constant(ir.VectorType(_INDEX, length), list(range(first, first + length)))
            inside = builder.icmp_signed("<", order, _splat(builder, limit, length))
            vectors.append(builder.select(inside, vector, ir.Constant(vector.type, None)))
            first += length
        return _join(builder, vectors)

    return lanes(lanes, types.int64), build


@intrinsic
def sums(typing, lanes):
    """Return the sum of the even lanes and the sum of the odd lanes."""

    def build(context, builder, signature, arguments):
        totals = []
        for parity in (0, 1):
            total = None
            for vector in _split(builder, arguments[0]):
                scalar = vector.type.element
                order = list(range(parity, vector.type.count, 2))
                pick = ir.Constant(ir.VectorType(_INDEX, len(order)), order)
                part = builder.shuffle_vector(vector, vector, pick)
                kind = ir.FunctionType(scalar, [scalar, part.type])
                name = f"llvm.vector.reduce.fadd.{_suffix(part.type)}"
                function = cgutils.get_or_insert_function(builder.module, kind, name)
                before = ir.Constant(scalar, -0.0) if total is None else total
                total = builder.call(function, [before, part], fastmath=("reassoc",))
            totals.append(total)
        return context.make_tuple(builder, signature.return_type, totals)

    return types.UniTuple(lanes.dtype, 2)(lanes), build


@intrinsic
def peek(typing, address, like):
    """Return the number at ``address``, which need not be aligned, of the type of ``like``.

    Arrays of any strides, writable or not, then share one compiled function.
    """

    def build(context, builder, signature, arguments):
        kind = context.get_value_type(like)
        return builder.load(builder.inttoptr(arguments[0], kind.as_pointer()), align=1)

    return like(types.int64, like), build


@intrinsic
def prefetch(typing, array, index):
    """Prefetch ``array[index]`` for a read; any index is allowed."""
    return types.void(array, types.intp), _prefetch(array, 0)


@intrinsic
def prefetch_to_write(typing, array, index):
    """Prefetch ``array[index]`` for a write; any index is allowed."""
    return types.void(array, types.intp), _prefetch(array, 1)


def _prefetch(array: types.Array, write: int) -> Any:

    def build(context, builder, signature, arguments):
        place = _pointer(context, builder, array, arguments[0], arguments[1])
        byte = builder.bitcast(place, ir.IntType(8).as_pointer())
        _call(builder, "llvm.prefetch.p0", ir.VoidType(), byte, _INDEX(write), _INDEX(3), _INDEX(1))
        return context.get_dummy_value()

    return build


def _disowned(context: Any, builder: ir.IRBuilder, kind: types.Type, value: Any) -> Any:
    if isinstance(kind, types.Array):
        array = cgutils.create_struct_proxy(kind)(context, builder, value)
        array.meminfo = cgutils.get_null_value(array.meminfo.type)
        array.parent = cgutils.get_null_value(array.parent.type)
        return array._getvalue()
    if isinstance(kind, types.BaseTuple):  # type: ignore[attr-defined]  # of numba.core.types, made at run time
        for n, part in enumerate(kind):
            inner = _disowned(context, builder, part, builder.extract_value(value, n))
            value = builder.insert_value(value, inner, n)
    return value


@intrinsic
def unowned(typing, thing):
    """Return an array, or a tuple of them, whose references are not counted.

    Counting is atomic and done at every call of a function with arrays, on memory that all threads share. It would
    cost more than a search. The caller keeps the arrays alive.
    """

    def build(context, builder, signature, arguments):
        return _disowned(context, builder, thing, arguments[0])

    return thing(thing), build


@intrinsic
def fetch_add(typing, array, index, amount):
    """Add ``amount`` to ``array[index]`` atomically and return its old value."""

    def build(context, builder, signature, arguments):
        place = _pointer(context, builder, array, arguments[0], arguments[1])
        return builder.atomic_rmw("add", place, arguments[2], "acq_rel")

    return array.dtype(array, types.intp, array.dtype), build


@intrinsic
def acquire(typing, array, index):
    """Return ``array[index]``; everything written before its release is visible afterwards."""

    def build(context, builder, signature, arguments):
        place = _pointer(context, builder, array, arguments[0], arguments[1])
        return builder.load_atomic(place, "acquire", _size(array))

    return array.dtype(array, types.intp), build


@intrinsic
def release(typing, array, index, value):
    """Write ``value`` to ``array[index]`` after everything written before."""

    def build(context, builder, signature, arguments):
        place = _pointer(context, builder, array, arguments[0], arguments[1])
        builder.store_atomic(arguments[2], place, "release", _size(array))
        return context.get_dummy_value()

    return types.void(array, types.intp, array.dtype), build


@intrinsic
def give_way(typing):
    """Yield to another thread: the one waited for may need this core."""

    def build(context, builder, signature, arguments):
        name = "SwitchToThread" if sys.platform == "win32" else "sched_yield"
        _call(builder, name, ir.IntType(32))
        return context.get_dummy_value()

    return types.void(), build


@compiled
def horner(table, offset, rows, at, width):
    """Return polynomials of one variable: row r of the table, from ``offset`` on, times ``at**(rows - 1 - r)``.

    Examples
    --------
    ``3 x**2 + 2 x + 1`` at 2:

    >>> width = WIDTHS[4]
    >>> @compiled(cached=False)
    ... def parabola(table, at, width, out):
    ...     store(out, 0, horner(table, 0, 3, at, width))
    >>> out = np.empty(4)
    >>> parabola(np.repeat([3.0, 2.0, 1.0], 4), 2.0, width, out)
    >>> out
    array([17., 17., 17., 17.])
    """
    variable = splat(at, width)
    total = load(table, offset, width)
    for row in range(1, rows):
        total = fma(total, variable, load(table, offset + row * len(width), width))
    return total


# ---- comparisons of vectors of candidates: an integer with one bit per lane -----------------------------------------


def _bits(builder: ir.IRBuilder, flags: Any) -> Any:
    """Return a vector of booleans as an integer with one bit per lane."""
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

        mine, full = (_splat(builder, builder.trunc(number, _INDEX), kind.count) for number in (mine, full))
        back = builder.sub(mine, vector)
        either = builder.or_(back, builder.and_(full, builder.sub(vector, mine)))
        return _bits(builder, builder.icmp_signed("<", either, ir.Constant(kind, [0] * kind.count)))

    if not isinstance(numbers, Lanes):
        raise TypeError(f"apart compares lanes, not {numbers}.")
    return types.int64(numbers, types.int64, types.int64), build


@intrinsic
def ones(typing, bits):
    """Return how many bits are set."""

    def build(context, builder, signature, arguments):
        return _call(builder, "llvm.ctpop.i64", _LONG, arguments[0])

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
        eight, wide = ir.VectorType(_BYTE, 8), ir.VectorType(_INDEX, 8)
        for byte in range(len(width) // 8):
            here = builder.and_(builder.lshr(bits, _LONG(8 * byte)), _LONG(255))
            row = builder.bitcast(builder.gep(places, [_INDEX(0), here]), eight.as_pointer())
            base = _splat(builder, builder.trunc(builder.add(first, _LONG(8 * byte)), _INDEX), 8)
            numbers = builder.add(builder.zext(builder.load(row, align=8), wide), base)
            target = builder.bitcast(builder.gep(data, [count]), wide.as_pointer())
            builder.store(numbers, target, align=4)
            count = builder.add(count, _call(builder, "llvm.ctpop.i64", _LONG, here))
        return count

    return types.int64(array, types.int64, types.int64, types.int64, width), build
