# SPDX-License-Identifier: BSD-3-Clause
"""A bar on the terminal that shows how far a simulation is."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any


@contextlib.contextmanager
def bar(title: str, steps: int, console: Any = None, done: int = 0) -> Iterator[Callable[..., None]]:
    """Yield a function that moves a progress bar on.

    Parameters
    ----------
    title : str
    steps : int
        At the end.
    console : rich.console.Console, optional
        By default standard error.
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
        TextColumn("{task.description}"), BarColumn(16), MofNCompleteColumn(), TimeRemainingColumn(),
        TextColumn("{task.fields[text]}"),
    )  # fmt: skip
    with Progress(*columns, console=console or Console(stderr=True), transient=console is not None) as progress:
        task = progress.add_task(title, total=steps, completed=done, text="")

        def advance(made: int = 1, text: str | None = None) -> None:
            progress.update(task, advance=made, **({} if text is None else {"text": text}))

        yield advance
