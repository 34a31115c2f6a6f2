# SPDX-License-Identifier: BSD-3-Clause
"""The parameters of a kernel, parsed from its source, and a check of arguments against them.

Kernels take arguments by position. A wrong array would give a wrong field, and a wrong record a crash. So the first
launch of each compiled kernel is checked: number of arguments, element type of each array, size of each record. Records
come last, since CUDA's launches pack them behind all other arguments.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from particlemesh.backends import source
from particlemesh.backends.base import Unread

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_STRUCT = re.compile(r"typedef\s+struct\s*\{([^{}]*)\}\s*(\w+)\s*;")
_TYPEDEF = re.compile(r"typedef\s+((?:\w+\s+)+)(\w+)\s*;")
_KERNEL = re.compile(r"\bKERNEL\s+(\w+)\s*\(([^)]*)\)")
_MEMBERS = re.compile(r"((?:\w+\s+)+)(.*)", re.DOTALL)
_LENGTH = re.compile(r"\[([^\]]*)\]")
_NAME = re.compile(r"[A-Za-z_]\w*")
_DEFINED = re.compile(r"\bdefined\s*(?:\(\s*(\w+)\s*\)|(\w+))")
_QUALIFIERS = {"const", "volatile", "restrict", "__restrict__", "__global", "__private"}
_TOKEN = re.compile(r"\d\w*|\w+|<<|>>|<=|>=|==|!=|&&|\|\||\S")
_SIGNS: dict[str, Callable[[int], Any]] = {
    "-": operator.neg, "+": operator.pos, "~": operator.invert, "!": operator.not_,
}  # fmt: skip
_LEVELS: tuple[dict[str, Callable[[int, int], Any]], ...] = (  # of operators, the loosest first
    {"||": lambda a, b: bool(a or b)}, {"&&": lambda a, b: bool(a and b)}, {"|": operator.or_}, {"^": operator.xor},
    {"&": operator.and_}, {"==": operator.eq, "!=": operator.ne},
    {"<": operator.lt, ">": operator.gt, "<=": operator.le, ">=": operator.ge},
    {"<<": operator.lshift, ">>": operator.rshift}, {"+": operator.add, "-": operator.sub},
    {"*": operator.mul, "/": operator.floordiv, "%": operator.mod},
)  # fmt: skip
_C_TYPES = {
    "float": "float32", "double": "float64", "int": "int32", "uint": "uint32", "unsigned int": "uint32",
    "long": "int64", "ulong": "uint64", "long long": "int64", "unsigned long long": "uint64",
}  # fmt: skip


_COMPLEX = {np.dtype("float32"): np.dtype("complex64"), np.dtype("float64"): np.dtype("complex128")}


class ArgumentError(TypeError):
    """The arguments of a launch do not fit the kernel's parameters."""


@dataclass(frozen=True)
class Parameter:
    """One parameter of a kernel: an array of ``dtype``, a 64-bit integer, or a record of ``size`` bytes."""

    name: str
    type: str  # as the kernel names it, without qualifiers
    kind: str  # "array", "integer", "record"; "pool": local memory, a launch gives its size
    dtype: np.dtype | None = None
    size: int = 0

    def refuses(self, argument: Any) -> str | None:
        """Return a description of an argument that does not fit, or None if it fits."""
        if self.kind == "integer":
            return None if isinstance(argument, int) else _described(argument)
        if self.kind == "record":
            fits = isinstance(argument, bytes) and len(argument) == self.size
        elif isinstance(argument, Unread):
            fits = True
        else:  # a complex number is two reals
            dtype = getattr(argument, "dtype", None)
            fits = dtype is not None and dtype in (self.dtype, _COMPLEX.get(self.dtype))
        return None if fits else _described(argument)

    def described(self) -> str:
        """Return what the parameter needs."""
        if self.kind == "integer":
            return "an integer"
        if self.kind == "record":
            return f"a record of {self.size} bytes ({self.type})"
        return f"an array of {self.dtype} ({self.type})"


def _described(argument: Any) -> str:
    if isinstance(argument, bytes):
        return f"a record of {len(argument)} bytes"
    if isinstance(argument, int):
        return f"the integer {argument}"
    dtype = getattr(argument, "dtype", None)
    return f"{argument!r}" if dtype is None else f"an array of {np.dtype(dtype)}"


class Signatures:
    """The kernels of one program, by name; the source is parsed at the first look-up.

    Takes the arguments of :func:`source.program`. Users' C code in ``texts`` declares no kernel and is not parsed.
    """

    def __init__(
        self, prelude: str, file: source.File, defines: dict[str, Any], texts: source.Texts | None = None
    ) -> None:
        self._program = prelude, file, defines, dict.fromkeys(texts or (), "")
        self._known: dict[str, tuple[Parameter, ...]] = {}

    def __getitem__(self, name: str) -> tuple[Parameter, ...]:
        if not self._known:
            self._known = parameters(source.program(*self._program))
        return self._known[name]

    def kernel(self, name: str, create: Callable[[str], Any]) -> Any:
        """Return the compiled kernel that ``create`` makes; an error lists the kernels, if none has this name.

        Raises
        ------
        ValueError
        """
        try:
            return create(name)
        except Exception as error:
            self._known = self._known or parameters(source.program(*self._program))
            if name in self._known:
                raise
            known = ", ".join(map(repr, self._known)) or "none"
            raise ValueError(f"there is no kernel {name!r} in {self._program[1]}; its kernels: {known}.") from error

    def check(self, name: str, arguments: tuple[Any, ...]) -> None:
        """Refuse arguments that do not fit the kernel ``name``; local memory is not among them.

        Raises
        ------
        ArgumentError
            With the kernel, the parameter, the argument, and what the parameter needs.
        """
        expected = [p for p in self[name] if p.kind != "pool"]
        late = behind_a_record(expected)
        if late is not None:
            record, other = late
            raise ArgumentError(
                f"kernel {name!r} has the parameter {other.name!r} behind the record {record.name!r}; records come "
                f"last. Move {other.name!r} before {record.name!r}, in the kernel and in its launch."
            )
        if len(arguments) != len(expected):
            names = ", ".join(p.name for p in expected)
            raise ArgumentError(f"kernel {name!r} takes {len(expected)} arguments ({names}); got {len(arguments)}.")
        for n, (parameter, argument) in enumerate(zip(expected, arguments, strict=True), 1):
            refused = parameter.refuses(argument)
            if refused is not None:
                raise ArgumentError(
                    f"argument {n} of kernel {name!r}, {parameter.name!r}, is {refused}; "
                    f"give {parameter.described()}, or `As(array, dtype)` to read the same memory as another type."
                )


def behind_a_record(expected: Sequence[Parameter]) -> tuple[Parameter, Parameter] | None:
    """Return the first record that another argument follows, and this one; None if records come last."""
    record = None
    for parameter in expected:
        if parameter.kind == "record":
            record = record or parameter
        elif record is not None and parameter.kind != "pool":  # local memory is no argument of a launch
            return record, parameter
    return None


def parameters(code: str) -> dict[str, tuple[Parameter, ...]]:
    """Return the parameters of every kernel of a complete source."""
    text, macros = _preprocessed(code)
    structs = {name: body for body, name in _STRUCT.findall(text)}
    types = {name: " ".join(old.split()) for old, name in _TYPEDEF.findall(text)}

    def scalar(name: str) -> str | None:
        while name in types:
            name = types[name]
        return _C_TYPES.get(name)

    def parameter(declaration: str) -> Parameter:
        pointer = "*" in declaration
        words = [w for w in _NAME.findall(declaration) if w not in _QUALIFIERS]
        if "__local" in words:
            return Parameter(words[-1], words[1], "pool")
        name, kind = words[-1], " ".join(words[:-1])
        if pointer:
            element = scalar(kind)
            if element is None:
                raise ValueError(f"{declaration.strip()!r} is an array of an unknown type")
            return Parameter(name, kind, "array", np.dtype(element))
        if kind in structs:
            return Parameter(name, kind, "record", size=_size(structs[kind], scalar, macros))
        if scalar(kind) != "int64":
            raise ValueError(f"{declaration.strip()!r} is not an array, an i64, or a struct")
        return Parameter(name, kind, "integer")

    return {
        name: tuple(parameter(d) for d in _expanded(declared, macros).split(","))
        for name, declared in _KERNEL.findall(text)
    }


def _size(body: str, scalar: Any, macros: Mapping[str, str]) -> int:
    """Return the bytes of a struct of numbers, each at a multiple of its own size."""
    end, widest = 0, 1
    for declaration in filter(None, map(str.strip, body.split(";"))):
        match = _MEMBERS.match(declaration)
        dtype = None if match is None else scalar(" ".join(match[1].split()))
        if match is None or dtype is None:
            raise ValueError(f"{declaration!r}, in a struct by value, is not of a known number type")
        size = np.dtype(dtype).itemsize
        for member in match[2].split(","):
            lengths = [_value(length, macros) for length in _LENGTH.findall(member)]
            end += -end % size + size * math.prod(lengths)
        widest = max(widest, size)
    return end + -end % widest


def _preprocessed(code: str) -> tuple[str, dict[str, str]]:
    """Return the active lines without directives, and the macros; those with parameters stay names."""
    macros: dict[str, str] = {}
    active: list[str] = []
    stack: list[tuple[bool, bool]] = []  # per open condition: whether its lines are active, whether a branch was taken
    for line in _COMMENT.sub(" ", code.replace("\\\n", " ")).splitlines():
        stripped = line.lstrip()
        live = all(counts for counts, _ in stack)
        if not stripped.startswith("#"):
            if live:
                active.append(line)
            continue
        directive, _, rest = stripped[1:].lstrip().partition(" ")
        rest = rest.strip()
        if directive in ("if", "ifdef", "ifndef"):
            holds = live and _holds(directive, rest, macros)
            stack.append((holds, holds))
        elif directive == "elif":
            _, taken = stack.pop()
            outside = all(counts for counts, _ in stack)
            holds = outside and not taken and _holds("if", rest, macros)
            stack.append((holds, taken or holds))
        elif directive == "else":
            _, taken = stack.pop()
            stack.append((not taken, True))
        elif directive == "endif":
            stack.pop()
        elif live and directive == "define":
            name = _NAME.match(rest)
            assert name is not None
            with_parameters = rest[name.end() : name.end() + 1] == "("  # no condition uses their value
            macros[name[0]] = name[0] if with_parameters else rest[name.end() :].strip()
        elif live and directive == "undef":
            macros.pop(rest, None)
    return "\n".join(active), macros


def _holds(directive: str, condition: str, macros: Mapping[str, str]) -> bool:
    if directive == "if":
        return bool(_value(condition, macros))
    return (condition in macros) == (directive == "ifdef")


def _expanded(text: str, macros: Mapping[str, str]) -> str:
    """Return a text with macros expanded; they may refer to each other, not to themselves."""
    for _ in range(20):
        after = _NAME.sub(lambda name: macros.get(name[0], name[0]), text)
        if after == text:
            return text
        text = after
    raise ValueError(f"the expansion of macros in {text!r} does not end")


def _value(expression: str, macros: Mapping[str, str]) -> int:
    """Return the value of an integer expression of C; names without a value are 0."""
    text = _DEFINED.sub(lambda name: str(int((name[1] or name[2]) in macros)), expression)
    tokens = _TOKEN.findall(_expanded(text, macros))[::-1]
    value = _ternary(tokens)
    if tokens:
        raise ValueError(f"{expression!r} is not an integer expression: {tokens[-1]!r} is not expected there")
    return value


def _ternary(tokens: list[str]) -> int:
    value = _binary(tokens, 0)
    if not tokens or tokens[-1] != "?":
        return value
    tokens.pop()
    first = _ternary(tokens)
    tokens.pop()  # the colon
    second = _ternary(tokens)
    return first if value else second


def _binary(tokens: list[str], level: int) -> int:
    if level == len(_LEVELS):
        return _unary(tokens)
    value = _binary(tokens, level + 1)
    while tokens and tokens[-1] in _LEVELS[level]:
        apply = _LEVELS[level][tokens.pop()]
        value = int(apply(value, _binary(tokens, level + 1)))
    return value


def _unary(tokens: list[str]) -> int:
    token = tokens.pop()
    if token == "(":
        value = _ternary(tokens)
        tokens.pop()  # the closing one
        return value
    if token in _SIGNS:
        return int(_SIGNS[token](_unary(tokens)))
    return int(token.rstrip("uUlL"), 0) if token[0].isdigit() else 0
