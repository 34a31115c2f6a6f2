# SPDX-License-Identifier: BSD-3-Clause
"""Runs that Ctrl-C ends with a checkpoint, and that a later run continues: what ``dem`` and ``brownian`` share."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import typer

from particlemesh.apps.files.libraries import library
from particlemesh.apps.interrupts import deferred
from particlemesh.command import consoles

CODE = 130  # as shells have it: 128 + SIGINT


class Stopped(Exception):  # noqa: N818 - a wish of the user
    """Ctrl-C has ended the run; the message says how to go on."""


def checkpoint_of(options: Mapping[str, Any], given: set[str], stored: Collection[str]) -> Path | None:
    """Return the checkpoint that a run writes, or None without h5py, once all outputs can be written.

    Parameters
    ----------
    options : mapping
        Those of the command by name, with ``checkpoint`` and ``restart``.
    given : set of str
        Names of those that do not have their default.
    stored : collection of str
        Names of those that a checkpoint holds.

    Raises
    ------
    ImportError
        If h5py is missing and a checkpoint is asked for.
    ValueError
        If an option is given beside ``restart`` that its file holds, or an output cannot be written.
    """
    missing = find_spec("h5py") is None
    if missing and given & {"checkpoint", "checkpoint_every", "restart"}:
        library("h5py", "a checkpoint")
    if options["restart"] is not None:
        excess = sorted(given.intersection(stored))
        if excess:
            names = ", ".join(f"--{name.replace('_', '-')}" for name in excess)
            raise ValueError(f"{names} and --restart: the file has them. Leave them out.")
    path = options["checkpoint"] if options["restart"] is None or "checkpoint" in given else options["restart"]
    written = {"--out": options["out"], "--trajectory": options.get("trajectory")}
    consoles.check_outputs((options["restart"],), written)  # the checkpoint may take the place of the one read
    consoles.check_outputs((), written | {"--checkpoint": None if missing else path})
    return None if missing else path


class Saving:
    """Checkpoints of a simulation, which has ``step`` and ``save(path)``.

    Parameters
    ----------
    simulation : object
    path : Path or None
        None for no checkpoints.
    every : int
        They are written at steps that are multiples of this; 0 for none on the way.
    """

    def __init__(self, simulation: Any, path: Path | None, every: int) -> None:
        self.simulation, self.path = simulation, path
        self.every = 0 if path is None else every

    def now(self) -> None:
        """Write the checkpoint, if there is one."""
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.simulation.save(self.path)

    def due(self) -> None:
        """Write it, if the present step has one."""
        if self.every and self.simulation.step % self.every == 0:
            self.now()


@contextlib.contextmanager
def stoppable(command: str, saving: Saving, last: int) -> Iterator[Callable[[], bool]]:
    """Yield a function that says whether Ctrl-C was pressed; at the end write the checkpoint.

    Parameters
    ----------
    command : str
        Name of the command.
    saving : Saving
    last : int
        The step at which the run would end.

    Raises
    ------
    Stopped
        After Ctrl-C, once the checkpoint is written.
    """
    try:
        with deferred() as interrupted:
            yield interrupted
            saving.now()
    except KeyboardInterrupt:
        raise Stopped(_how_to_go_on(command, saving, last)) from None


def _how_to_go_on(command: str, saving: Saving, last: int) -> str:
    """Return what happened, and the command that makes the steps that are left."""
    step, path = saving.simulation.step, saving.path
    said = f"interrupted at step {step:,}"
    if path is None:
        return f"{said}; no checkpoint, since h5py is missing: pip install h5py"
    left = last - step
    go_on = f"particlemesh {command} --restart {path} --steps {left}" if left else "all steps were made"
    return f"{said}; the checkpoint is {path}. Go on with: {go_on}"


@contextlib.contextmanager
def reported(command: str) -> Iterator[None]:
    """Print what ends a run as one line, and exit: with 130 after Ctrl-C, and with 2 after an error."""
    with consoles.reporting(command):
        try:
            yield
        except Stopped as stopped:
            consoles.complain(command, stopped, "yellow")
            raise typer.Exit(CODE) from None
