# SPDX-License-Identifier: BSD-3-Clause
"""Kernel sources, assembled from the files of this package."""

from __future__ import annotations

import functools
import importlib.resources
import re
from collections.abc import Mapping
from typing import Any

_INCLUDE = re.compile(r'^#include (?:"([\w/.]+)"|<[\w ]+>)$', re.MULTILINE)
_GIVEN = re.compile(r"^#include <([\w ]+)>$", re.MULTILINE)

Texts = Mapping[str, str]


@functools.cache
def text(file: str) -> str:
    """Return a kernel file with its includes in place, each under its own name for the compiler.

    :func:`program` fills in ``#include <name>``.
    """
    raw = (importlib.resources.files("particlemesh") / file).read_text()
    pieces = [f'#line 1 "{file}"\n']
    end = 0
    for include in _INCLUDE.finditer(raw):
        line = raw.count("\n", 0, include.end()) + 2
        inner = include[0] if include[1] is None else text(include[1])
        pieces += [raw[end : include.start()], inner, f'\n#line {line} "{file}"']
        end = include.end()
    return "".join([*pieces, raw[end:]])


def program(prelude: str, file: str, defines: dict[str, Any], texts: Texts | None = None) -> str:
    """Return the complete source of a kernel file: facts, prelude, shared functions, the file itself.

    ``texts[name]`` replaces ``#include <name>``, with lines counted from 1 under that name.
    """
    head = "".join(f"#define {name} {value}\n" for name, value in defines.items())
    shared = text("backends/stencil.h") if "SUPPORT" in defines else ""
    given = texts or {}
    body = _GIVEN.sub(lambda include: f'#line 1 "{include[1]}"\n{given[include[1]]}', text(file))
    return head + text(prelude) + shared + body
