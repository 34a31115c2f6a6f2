# SPDX-License-Identifier: BSD-3-Clause
"""The files that decide a method's times: its own, those of this package that it imports, and their kernels.

Modules that only describe a problem, or check arguments, do not count: no method runs slower for a new message.
For a GPU the modules in folders `cpu` do not count either.

A table of times keeps a fingerprint for each method, so a change of one method leaves the times of others valid.
Comments, docstrings and blank lines do not count: a change of words leaves all times valid.
"""

from __future__ import annotations

import functools
import hashlib
import io
import re
import tokenize
from pathlib import Path

PACKAGE = Path(__file__).parents[1]
METHODS_IN = ("spread", "interpolate")  # folders
DESCRIBE = ("box.py", "checks.py", "ghosts.py", "mesh.py")
_IMPORT = re.compile(
    r"^( *)(?:from (particlemesh[\w.]*) import (\([^)]*\)|[^\n#]*)|import (particlemesh[\w.]*))", re.MULTILINE
)
_FOR_TYPES = re.compile(r"^if TYPE_CHECKING:\n(?:[ \t].*\n|\n)*", re.MULTILINE)
_KERNEL = re.compile(r'"([\w/]+\.[ch])"')
_C_WORDS = re.compile(r"""("(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')|//[^\n]*|/\*.*?\*/|[ \t]+""", re.DOTALL)
_BEFORE_STATEMENT = {tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}


def files(backend: str, direction: str, method: str) -> list[Path]:
    """Return the files that decide a method's times on a backend; none for a method from outside this package."""
    start = PACKAGE / direction / f"{method}.py"
    if not start.exists():
        return []
    apart = {PACKAGE / name for name in DESCRIBE}
    visited = set(apart)
    waiting = [start, PACKAGE / "backends" / f"{backend}.py"]
    while waiting:
        path = waiting.pop()
        if path not in visited and (backend == "cpu" or "cpu" not in path.parts[len(PACKAGE.parts) : -1]):
            visited.add(path)
            waiting += _named(path)
    return sorted(visited - apart)


@functools.cache
def code(path: Path) -> str:
    """Return a file's text without comments, docstrings, blank lines and, in C, without repeated spaces.

    The result does not depend on Python's version, as an `ast.dump` would.
    """
    text = path.read_text(encoding="utf-8")
    text = _python_code(text) if path.suffix == ".py" else _C_WORDS.sub(lambda match: match[1] or " ", text)
    lines = (line.rstrip() if path.suffix == ".py" else line.strip() for line in text.splitlines())
    return "\n".join(filter(None, lines))


def _python_code(text: str) -> str:
    """Return Python source with comments and statements that are a string cut out."""
    lines = text.splitlines(keepends=True)
    tokens = [t for t in tokenize.generate_tokens(io.StringIO(text).readline) if t.type != tokenize.NL]
    statement = True  # whether the next token begins one
    words = []
    for token, after in zip(tokens, tokens[1:] + tokens[-1:], strict=True):
        if token.type == tokenize.COMMENT:
            words.append(token)
            continue
        if token.type == tokenize.STRING and statement and after.type in {tokenize.NEWLINE, tokenize.COMMENT}:
            words.append(token)
        statement = token.type in _BEFORE_STATEMENT
    for token in reversed(words):
        (row, column), (end, stop) = token.start, token.end
        lines[row - 1 : end] = [lines[row - 1][:column] + lines[end - 1][stop:]]
    return "".join(lines)


@functools.cache
def _named(path: Path) -> tuple[Path, ...]:
    """Return the files of this package that a file imports or includes, or whose kernels it names."""
    text = code(path)
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
    return hashlib.sha256(code(path).encode()).digest()


@functools.cache
def fingerprint(backend: str, direction: str, method: str) -> str:
    """Return a fingerprint of the files that decide a method's times on a backend, independent of their location."""
    return hashlib.sha256(b"".join(sorted(map(_digest, files(backend, direction, method))))).hexdigest()[:12]
