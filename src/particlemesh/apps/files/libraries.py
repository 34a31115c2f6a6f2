# SPDX-License-Identifier: BSD-3-Clause
"""Libraries that read and write files, imported when they are used, and their errors."""

from __future__ import annotations

import contextlib
import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

LONGEST = 300  # characters that an error takes from a library


class FileError(ValueError):
    """A file that is not what its name says, or lacks what is needed."""


def library(name: str, what: str, extra: str = "io") -> Any:
    """Return a module of an extra.

    Raises
    ------
    ImportError
        If it is missing; the message says what needs it, and how to install it.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        package = name.partition(".")[0]
        raise ImportError(f"{what} needs {package}: pip install {package}, or 'particlemesh[{extra}]'.") from error


def plain(text: Any) -> str:
    """Return text as one line without bytes of a file that are no letters: each run of these becomes "?"."""
    line = " ".join(str(text).split())
    return re.sub(r"(\\+(x[0-9a-fA-F]{0,2}|u[0-9a-fA-F]{0,4})|[^ -~\u00a1-\ud7ff])+", "?", line)


@contextlib.contextmanager
def blame(path: Path, what: str = "", frame: int | None = None) -> Iterator[None]:
    """Turn every error of a library into one that names the file: a damaged one makes libraries raise almost anything.

    Parameters
    ----------
    path : Path
    what : str
        What it was read as, in front of the ending.
    frame : int, optional
        The frame that was read.

    Raises
    ------
    FileError
    """
    at = "" if frame is None else f", frame {frame}"
    try:
        yield
    except ImportError:
        raise
    except FileError as error:  # what a reader of ours says of the file
        said = str(path).join(plain(f"-{part}-")[1:-1] for part in str(error).split(str(path))).rstrip(".")
        said = said if said.endswith("?") else f"{said}."
        raise FileError(said if str(path) in said else f"{path}{at}: {said}") from error
    except (Exception, SystemExit) as error:  # some libraries end the program
        text = _ended(plain(error)[:LONGEST] or type(error).__name__)
        raise FileError(f"{path}{at} cannot be read as {what}{path.suffix}: {text} Is the file whole?") from error


def _ended(sentence: str) -> str:
    """Return a sentence with one mark at its end."""
    sentence = sentence.rstrip(". ")
    return sentence if sentence.endswith("?") else f"{sentence}."
