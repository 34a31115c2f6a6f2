# SPDX-License-Identifier: BSD-3-Clause
"""The consoles that commands print to: results on standard output, errors and warnings on standard error."""

from __future__ import annotations

from typing import Any

WIDTH = 80  # columns of every table


def console(*, stderr: bool = False) -> Any:
    """Return a console of `WIDTH` columns; rich is loaded here."""
    from rich.console import Console

    return Console(width=WIDTH, highlight=False, stderr=stderr)


def complain(command: str, what: Any, style: str = "red") -> None:
    """Print an error or a warning of a command as one line on standard error."""
    text = " ".join(str(what).split()) or "there is not enough memory."  # what a MemoryError does not say
    console(stderr=True).print(f"particlemesh {command}: {text}", style=style, markup=False, soft_wrap=True)
