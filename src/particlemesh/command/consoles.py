# SPDX-License-Identifier: BSD-3-Clause
"""What commands share: their consoles, how errors end them, which options were given, and names of outputs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import typer

WIDTH = 80  # columns of every table


def console(*, stderr: bool = False) -> Any:
    """Return a console of `WIDTH` columns; rich is loaded here."""
    from rich.console import Console

    return Console(width=WIDTH, highlight=False, stderr=stderr)


def complain(command: str, what: Any, style: str = "red") -> None:
    """Print an error or a warning of a command as one line on standard error."""
    text = " ".join(str(what).split()) or "there is not enough memory."  # what a MemoryError does not say
    console(stderr=True).print(f"particlemesh {command}: {text}", style=style, markup=False, soft_wrap=True)


@contextlib.contextmanager
def reporting(command: str) -> Iterator[Any]:
    """Yield a console; an error becomes one line on standard error, and the exit code 2."""
    try:
        yield console()
    except (ValueError, TypeError, ImportError, OSError, MemoryError, FloatingPointError) as error:
        notes = "".join(f" ({note})" for note in getattr(error, "__notes__", ()))
        complain(command, f"{error}{notes}")
        raise typer.Exit(2) from None


def given(context: typer.Context, names: Mapping[str, Any]) -> tuple[dict[str, Any], set[str]]:
    """Return the options of a command by name, and the names of those that do not have their default.

    ``names`` are the command's local names: some versions of Typer keep paths as text in the context.
    """
    options = {name: names[name] for name in context.params}
    return options, {n for n in options if context.get_parameter_source(n).name != "DEFAULT"}  # type: ignore[union-attr]


def refuse_idle(stated: set[str], names: str, acts: bool, why: str) -> None:
    """Raise an error if an option was given that would change nothing.

    Parameters
    ----------
    stated : set of str
        Names of the options that do not have their default, from `given`.
    names : str
        Options that depend on a condition, with blanks between them.
    acts : bool
        The condition.
    why : str
        What the options need.

    Raises
    ------
    ValueError
        If the condition does not hold and one of the options was given.
    """
    idle = [f"--{name.replace('_', '-')}" for name in names.split() if name in stated]
    if idle and not acts:
        raise ValueError(f"{', '.join(idle)} would change nothing: {why}.")


def check_picture(out: Path, *endings: str) -> None:
    """Raise an error unless a picture has one of these endings, which say what it is.

    Raises
    ------
    ValueError
        With the endings.
    """
    if out.suffix.lower() not in endings:
        raise ValueError(f"--out is {str(out)!r}; give a name that ends in {' or '.join(endings)}.")


def check_outputs(read: Iterable[Path | None], written: Mapping[str, Path | None], overwrite: bool = True) -> None:
    """Raise an error unless every output has a name of its own and can be written.

    Parameters
    ----------
    read : paths or None
        Inputs, which are never replaced.
    written : mapping of str to Path or None
        Outputs by the option that names them.
    overwrite : bool
        Whether an output may replace a file.

    Raises
    ------
    ValueError
        If an output is an input, two outputs are one file, or one cannot be written.
    """
    from particlemesh.apps.files import check_free

    places: dict[Path, str] = {}
    inputs = {path.resolve() for path in read if path is not None}
    for option, path in written.items():
        if path is None:
            continue
        place = path.resolve()
        if place in inputs or (path.exists() and any(other.exists() and path.samefile(other) for other in inputs)):
            raise ValueError(f"{path} is an input: give the output another name.")
        if place in places:
            raise ValueError(f"{places[place]} and {option} are both {path}: give each output its own name.")
        places[place] = option
        check_free(path, overwrite)
