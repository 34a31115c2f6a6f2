# SPDX-License-Identifier: BSD-3-Clause
"""Kernel sources: one text a kernel, from the files of this package."""

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

    What stands between ``<`` and ``>`` is for :func:`program` to fill in.
    """
    raw = (importlib.resources.files("particlemesh") / file).read_text()
    pieces = [f'#line 1 "{file}"\n']
    end = 0
    for found in _INCLUDE.finditer(raw):
        line = raw.count("\n", 0, found.end()) + 2
        inner = found[0] if found[1] is None else text(found[1])
        pieces += [raw[end : found.start()], inner, f'\n#line {line} "{file}"']
        end = found.end()
    return "".join([*pieces, raw[end:]])


def program(prelude: str, file: str, defines: dict[str, Any], texts: Texts | None = None) -> str:
    """Return the complete source of a kernel file: facts, prelude, shared functions, the file itself.

    Where the file says ``#include <name>`` stands ``texts[name]``, lines counted from 1 under that name.
    """
    head = "".join(f"#define {name} {value}\n" for name, value in defines.items())
    shared = text("backends/stencil.h") if "SUPPORT" in defines else ""
    given = texts or {}
    own = _GIVEN.sub(lambda found: f'#line 1 "{found[1]}"\n{given[found[1]]}', text(file))
    return head + text(prelude) + shared + own
