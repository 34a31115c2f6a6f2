# SPDX-License-Identifier: BSD-3-Clause
"""Kernel sources: one text a kernel, from the files of this package."""

from __future__ import annotations

import functools
import importlib.resources
import re
from typing import Any

_INCLUDE = re.compile(r'^#include "([\w/.]+)"$', re.MULTILINE)


@functools.cache
def text(file: str) -> str:
    """Return a kernel file with its includes in place, each under its own name for the compiler."""
    raw = (importlib.resources.files("particlemesh") / file).read_text()
    pieces = [f'#line 1 "{file}"\n']
    end = 0
    for found in _INCLUDE.finditer(raw):
        line = raw.count("\n", 0, found.end()) + 2
        pieces += [raw[end : found.start()], text(found[1]), f'\n#line {line} "{file}"']
        end = found.end()
    return "".join([*pieces, raw[end:]])


def program(prelude: str, file: str, defines: dict[str, Any]) -> str:
    """Return the complete source of a kernel file: facts, prelude, shared functions, the file itself."""
    head = "".join(f"#define {name} {value}\n" for name, value in defines.items())
    shared = text("backends/stencil.h") if "SUPPORT" in defines else ""
    return head + text(prelude) + shared + text(file)
