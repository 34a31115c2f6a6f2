# SPDX-License-Identifier: BSD-3-Clause
"""Kernel sources, assembled from the files of this package and of users."""

from __future__ import annotations

import functools
import importlib.resources
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

_INCLUDE = re.compile(
    r'^[ \t]*#[ \t]*include[ \t]*(?:"([^"\n]+)"|<([\w ]+)>)[ \t]*(?://.*|/\*.*\*/[ \t]*)?$', re.MULTILINE
)
_GIVEN = re.compile(r"^#include <([\w ]+)>$", re.MULTILINE)
_COMMENT = re.compile(r'"(?:\\.|[^"\\\n])*"|//[^\n]*|/\*.*?\*/', re.DOTALL)  # or a string, which may hold "//"
_MACRO = re.compile(r"^[ \t]*#[ \t]*(?:define|undef)[ \t]+(\w+)", re.MULTILINE)
_GUARDED = re.compile(r"\s*(?:#[ \t]*pragma[ \t]+once\b|#[ \t]*ifndef[ \t]+(\w+)\s+#[ \t]*define[ \t]+\1\b)")

Texts = Mapping[str, str]


class Code(NamedTuple):
    """A user's kernel file: its name in messages, its text, and the texts of the user's files that it includes.

    ``expanded`` is the text with those files in place, so that equal codes are equal programs.
    """

    name: str
    text: str
    expanded: str
    included: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        return self.name


File = str | Code  # a string is the path of a file of this package


def code_of(text: str, name: str = "kernel") -> Code:
    """Return C code that lies in no file; it includes files of this package only."""
    return Code(name, text, _expanded(name, text, None, (), {}))


def read(path: Path) -> Code:
    """Return a user's kernel file, read now; its includes lie beside it, or are files of this package."""
    raw = path.read_text(encoding="utf-8")
    included: dict[str, str] = {}
    expanded = _expanded(path.name, raw, path.resolve(), (path.resolve(),), included)
    return Code(path.name, raw, expanded, tuple(included.items()))


def for_message(file: File, texts: Texts | None) -> Texts | None:
    """Return the users' texts of a program, by name: an error shows their lines only."""
    return {**(texts or {}), file.name: file.text, **dict(file.included)} if isinstance(file, Code) else texts


def _active(raw: str) -> Iterator[re.Match[str]]:
    """Find the includes of a file, without those in comments."""
    comments = [c.span() for c in _COMMENT.finditer(raw) if c[0].startswith("/*")] if "/*" in raw else []
    for include in _INCLUDE.finditer(raw):
        if not any(begin < include.start() < end for begin, end in comments):
            yield include


def _expanded(name: str, raw: str, path: Path | None, stack: tuple[Path, ...], included: dict[str, str]) -> str:
    """Return a user's text with its includes in place; ``stack`` has the files being read, the user's first."""
    pieces, end = [f'#line 1 "{name}"\n'], 0
    for include in _active(raw):
        if include[1] is None:  # `program` fills it in
            continue
        line = raw.count("\n", 0, include.end()) + 1
        inner = _inner(include[1], f"{name}, line {line}", path, stack, included)
        pieces += [raw[end : include.start()], inner, f'\n#line {line + 1} "{name}"']
        end = include.end()
    return "".join([*pieces, raw[end:]])


def _inner(wanted: str, where: str, path: Path | None, stack: tuple[Path, ...], included: dict[str, str]) -> str:
    """Return the text of a file that a user's file includes."""
    folders = [] if path is None else list(dict.fromkeys((path.parent, stack[0].parent)))
    beside = next((folder / wanted for folder in folders if (folder / wanted).is_file()), None)
    if beside is None:
        if (importlib.resources.files("particlemesh") / wanted).is_file():
            return text(wanted)
        hint = f"in {' and '.join(map(str, folders))}" if folders else "beside code in a string: give a Path"
        raise FileNotFoundError(
            f'{where}: #include "{wanted}" names no file of particlemesh, and there is none {hint}.'
        )
    found, raw = beside.resolve(), beside.read_text(encoding="utf-8")
    once = _GUARDED.match(_COMMENT.sub(" ", raw))
    shown = found.name if not found.is_relative_to(stack[0].parent) else found.relative_to(stack[0].parent).as_posix()
    if found in stack or (once and once[1] is None and shown in included):
        if once:
            return ""
        circle = " includes ".join(repr(file.name) for file in (*stack[stack.index(found) :], found))
        raise ValueError(f"{where}: includes go in a circle: {circle}. Give one of these files an include guard.")
    included[shown] = raw
    return _expanded(shown, raw, found, (*stack, found), included)


@functools.cache
def _of_package(name: str) -> str:
    """Return a kernel file of this package with its includes in place, each under its own name for the compiler."""
    raw = (importlib.resources.files("particlemesh") / name).read_text()
    pieces, end = [f'#line 1 "{name}"\n'], 0
    for include in _INCLUDE.finditer(raw):
        line = raw.count("\n", 0, include.end()) + 2
        inner = include[0] if include[1] is None else text(include[1])
        pieces += [raw[end : include.start()], inner, f'\n#line {line} "{name}"']
        end = include.end()
    return "".join([*pieces, raw[end:]])


def text(file: File) -> str:
    """Return a kernel file with its includes in place; :func:`program` fills in ``#include <name>``."""
    return file.expanded if isinstance(file, Code) else _of_package(file)


def program(prelude: str, file: File, defines: dict[str, Any], texts: Texts | None = None) -> str:
    """Return the complete source of a kernel file: facts, prelude, shared functions, the file itself.

    ``texts[name]`` replaces ``#include <name>``, with lines counted from 1 under that name.
    """
    head = "".join(f"#define {name} {value}\n" for name, value in defines.items())
    shared = text("particles/stencil.h") if "SUPPORT" in defines else ""
    rest = head + text(prelude) + shared
    given = {name: _enclosed(name, raw, rest + text(file)) for name, raw in (texts or {}).items()}
    return rest + _GIVEN.sub(lambda include: f'#line 1 "{include[1]}"\n{given[include[1]]}', text(file))


def _enclosed(name: str, raw: str, rest: str) -> str:
    """Return a user's text, at whose end its macros end; a ValueError if the rest of the program has their names."""
    macros = list(dict.fromkeys(_MACRO.findall(bare(raw))))
    if taken := [macro for macro in macros if re.search(rf"\b{macro}\b", _COMMENT.sub(" ", rest))]:
        raise ValueError(f"the {name} defines {', '.join(taken)}, which the library's kernels use: give other names.")
    return "".join([raw, *(f"\n#undef {macro}" for macro in macros)])


def bare(raw: str) -> str:
    """Return C code as its preprocessor sees it: without comments and line splices, and with # for %:."""
    return _COMMENT.sub(" ", raw.replace("\\\n", "")).replace("%:", "#")
