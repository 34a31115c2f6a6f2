# SPDX-License-Identifier: BSD-3-Clause
"""The files that decide a method's times: its own, those of this package that it imports, and their kernels.

A table of times keeps a fingerprint for each method, so a change of one method leaves the times of others valid.
"""

from __future__ import annotations

import functools
import hashlib
import re
from pathlib import Path

PACKAGE = Path(__file__).parents[1]
METHODS_IN = ("spread", "interpolate")  # folders
_IMPORT = re.compile(
    r"^( *)(?:from (particlemesh[\w.]*) import (\([^)]*\)|[^\n#]*)|import (particlemesh[\w.]*))", re.MULTILINE
)
_FOR_TYPES = re.compile(r"^if TYPE_CHECKING:\n(?:[ \t].*\n|\n)*", re.MULTILINE)
_KERNEL = re.compile(r'"([\w/]+\.[ch])"')


def files(backend: str, direction: str, method: str) -> list[Path]:
    """Return the files that decide a method's times on a backend; none for a method from outside this package."""
    start = PACKAGE / direction / f"{method}.py"
    if not start.exists():
        return []
    visited: set[Path] = set()
    waiting = [start, PACKAGE / "backends" / f"{backend}.py"]
    while waiting:
        path = waiting.pop()
        if path not in visited:
            visited.add(path)
            waiting += _named(path)
    return sorted(visited)


@functools.cache
def _named(path: Path) -> tuple[Path, ...]:
    """Return the files of this package that a file imports or includes, or whose kernels it names."""
    text = path.read_text(encoding="utf-8")
    named = [file for name in _KERNEL.findall(text) if (file := PACKAGE / name).is_file()]
    for indent, package, names, module in _IMPORT.findall(_FOR_TYPES.sub("", text)) if path.suffix == ".py" else ():
        if indent and path.parent.name not in METHODS_IN:
            continue  # for another backend or purpose; only methods import their CPU part late
        modules = [_module(f"{package}.{name}") for name in re.findall(r"\w+", names)]
        if module or None in modules:
            modules.append(_module(module or package))
        named += filter(None, modules)
    return tuple(named)


def _module(name: str) -> Path | None:
    """Return the file of a module of this package by its dotted name, if there is one; None for the package itself."""
    path = PACKAGE.joinpath(*name.split(".")[1:])
    candidates = (path.with_suffix(".py"), path / "__init__.py") if path != PACKAGE else ()
    return next((file for file in candidates if file.is_file()), None)


@functools.cache
def _digest(path: Path) -> bytes:
    return hashlib.sha256(path.read_bytes()).digest()


@functools.cache
def fingerprint(backend: str, direction: str, method: str) -> str:
    """Return a fingerprint of the files that decide a method's times on a backend, independent of their location."""
    return hashlib.sha256(b"".join(sorted(map(_digest, files(backend, direction, method))))).hexdigest()[:12]
