# SPDX-License-Identifier: BSD-3-Clause
"""What all formats share: their facts, the libraries that read and write them, and errors that name a file."""

from __future__ import annotations

import contextlib
import importlib
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, ClassVar, TypeVar

LONGEST = 300  # characters that an error takes from a library


class FileError(ValueError):
    """A file that is not what its name says, or lacks what is needed."""


class Format:
    """The facts of a format, from which lists, pages, errors and the command's help derive."""

    suffixes: ClassVar[tuple[str, ...]]
    module: ClassVar[str | None] = None  # library
    extra: ClassVar[str] = "files"  # that has it
    kind: ClassVar[str] = ""  # of files, in front of the ending
    note: ClassVar[str] = ""  # behind the first ending in the help

    @classmethod
    def load(cls, suffix: str | None = None) -> Any:
        """Return the format's library, or None; an ImportError says that it is missing."""
        what = cls.kind + (cls.suffixes[0] if suffix is None else suffix)
        return None if cls.module is None else library(cls.module, what, cls.extra)


F = TypeVar("F", bound=Format)
C = TypeVar("C", bound=Callable[..., Any])


def endings(formats: Iterable[type[Format]], notes: bool = False, last: str = ", ") -> str:
    """Return the endings of formats as text."""
    each = [f"{s} ({f.note})" if notes and f.note and not n else s for f in formats for n, s in enumerate(f.suffixes)]
    return last.join([*filter(None, [", ".join(each[:-1])]), each[-1]])


def by_ending(formats: Iterable[type[F]], path: Any, refusal: str) -> type[F]:
    """Return the format of a name; else raise a ValueError, a refusal in front of the endings."""
    suffix = Path(path).suffix.lower()
    for form in formats:
        if suffix in form.suffixes:
            return form
    raise ValueError(f"{refusal} {endings(formats)}.")


def listing(**formats: Iterable[type[Format]]) -> Callable[[C], C]:
    """Return a decorator that puts the endings of formats into a docstring, where it has these words."""

    def fill(function: C) -> C:
        for word, some in formats.items():
            function.__doc__ = (function.__doc__ or "").replace(word, endings(some, notes=True, last=" or "))
        return function

    return fill


def library(name: str, what: str, extra: str = "io") -> Any:
    """Return a module of an extra; an ImportError says what needs it, and how to install it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        package = name.partition(".")[0]
        raise ImportError(f"{what} needs {package}: pip install {package}, or 'particlemesh[{extra}]'.") from error


def isolated(program: str, *arguments: str) -> list[str]:
    """Return the command of a Python program for a library that may crash; it imports nothing from this folder.

    It finds libraries where this process does and in the same order, also by ``PYTHONPATH`` and from
    ``pip install --user``.
    """
    folders = [path for path in sys.path if path and Path(path).exists() and not Path(path).samefile(".")]
    path = f"import sys; there = {folders!r}; sys.path[:] = there + [p for p in sys.path if p not in there]"
    return [sys.executable, "-I", "-c", f"{path}\n{program}", *arguments]


def plain(text: Any) -> str:
    """Return text as one line without bytes of a file that are no letters: each run of these becomes "?"."""
    line = " ".join(str(text).split())
    return re.sub(r"(\\+(x[0-9a-fA-F]{0,2}|u[0-9a-fA-F]{0,4})|[^ -~\u00a1-\ud7ff])+", "?", line)


@contextlib.contextmanager
def errors_name_file(path: Path, what: str = "", frame: int | None = None) -> Iterator[None]:
    """Turn every error into a FileError that names the file: a damaged one makes libraries raise almost anything.

    Parameters
    ----------
    path : Path
    what : str
        What it was read as, in front of the ending.
    frame : int, optional
        The frame that was read.
    """
    at = "" if frame is None else f", frame {frame}"
    try:
        yield
    except ImportError:
        raise
    except FileError as error:  # what a reader of ours says of the file
        text = _ended(str(path).join(plain(f"-{part}-")[1:-1] for part in str(error).split(str(path))))
        raise FileError(text if str(path) in text else f"{path}{at}: {text}") from error
    except (Exception, SystemExit) as error:  # some libraries end the program
        ended = any(isinstance(e, (StopIteration, EOFError)) for e in (error, error.__cause__))
        text = "it ends early." if ended else _ended(plain(error)[:LONGEST] or type(error).__name__)
        raise FileError(f"{path}{at} cannot be read as {what}{path.suffix}: {text} Is the file whole?") from error


def _ended(sentence: str) -> str:
    """Return a sentence with one mark at its end."""
    sentence = sentence.rstrip(". ")
    return sentence if sentence.endswith("?") else f"{sentence}."
