# SPDX-License-Identifier: BSD-3-Clause
"""Kernel sources, assembled from the files of this package."""

from __future__ import annotations

import functools
import importlib.resources
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

_INCLUDE = re.compile(r'^#include (?:"([\w/.]+)"|<[\w ]+>)$', re.MULTILINE)
_GIVEN = re.compile(r"^#include <([\w ]+)>$", re.MULTILINE)

Texts = Mapping[str, str]


class Code(NamedTuple):
    """A user's kernel file: its name in messages, its text, and the folder of the files that it includes."""

    name: str
    text: str
    folder: str | None = None

    def __str__(self) -> str:
        return self.name


File = str | Code  # a string is the path of a file of this package


def for_message(file: File, texts: Texts | None) -> Texts | None:
    """Return the users' texts of a program, by name: an error shows their lines only."""
    return {**(texts or {}), file.name: file.text} if isinstance(file, Code) else texts


def _included(file: File, name: str) -> File:
    """Return a file that another one includes: one beside a user's file, or one of this package."""
    if isinstance(file, Code) and file.folder is not None:
        beside = Path(file.folder, name)
        if beside.is_file():
            return Code(name, beside.read_text(encoding="utf-8"), file.folder)
    return name


@functools.cache
def text(file: File) -> str:
    """Return a kernel file with its includes in place, each under its own name for the compiler.

    :func:`program` fills in ``#include <name>``.
    """
    name = str(file)
    if isinstance(file, Code):
        raw = file.text
    else:
        raw = (importlib.resources.files("particlemesh") / file).read_text()
    pieces = [f'#line 1 "{name}"\n']
    end = 0
    for include in _INCLUDE.finditer(raw):
        line = raw.count("\n", 0, include.end()) + 2
        inner = include[0] if include[1] is None else text(_included(file, include[1]))
        pieces += [raw[end : include.start()], inner, f'\n#line {line} "{name}"']
        end = include.end()
    return "".join([*pieces, raw[end:]])


def program(prelude: str, file: File, defines: dict[str, Any], texts: Texts | None = None) -> str:
    """Return the complete source of a kernel file: facts, prelude, shared functions, the file itself.

    ``texts[name]`` replaces ``#include <name>``, with lines counted from 1 under that name.
    """
    head = "".join(f"#define {name} {value}\n" for name, value in defines.items())
    shared = text("backends/stencil.h") if "SUPPORT" in defines else ""
    given = texts or {}
    body = _GIVEN.sub(lambda include: f'#line 1 "{include[1]}"\n{given[include[1]]}', text(file))
    return head + text(prelude) + shared + body
