# SPDX-License-Identifier: BSD-3-Clause
"""A bar on the terminal that shows how far a simulation is."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any


@contextlib.contextmanager
def bar(title: str, steps: int | None, console: Any = None, done: int = 0) -> Iterator[Callable[..., None]]:
    """Yield a function that moves a progress bar on.

    Parameters
    ----------
    title : str
    steps : int or None
        At the end; None if it is unknown.
    console : rich.console.Console, optional
        Where a bar is shown, and erased at the end, if it is a terminal. By default standard error.
    done : int
        Steps made before.

    Yields
    ------
    callable
        Takes the number of steps made since the last call, 1 by default, and a text that is shown at the end.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"), BarColumn(8), MofNCompleteColumn(), TimeRemainingColumn(),
        TextColumn("{task.fields[text]}"),
    )  # fmt: skip
    shown = dict(console=Console(stderr=True)) if console is None else dict(console=console, transient=True)
    with Progress(*columns, **shown, disable=console is not None and not console.is_terminal) as progress:
        task = progress.add_task(title, total=steps, completed=done, text="")

        def advance(made: int = 1, text: str | None = None) -> None:
            fields: dict[str, Any] = {} if text is None else {"text": text}
            progress.update(task, advance=made, **fields)

        yield advance


def quantity(number: float) -> str:
    """Return a number with three digits and k, M or G.

    Examples
    --------
    >>> quantity(12_345_678), quantity(950)
    ('12.3 M', '950')
    """
    for size, letter in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if number >= size:
            return f"{number / size:.3g}{letter}"
    return f"{number:.3g}"
