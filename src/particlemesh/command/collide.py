# SPDX-License-Identifier: BSD-3-Clause
"""The output of ``particlemesh dem``: a row of numbers now and then, checkpoints, a trajectory and a picture."""

from __future__ import annotations

import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from particlemesh import backends
from particlemesh.apps.dem import Energy, Simulation
from particlemesh.apps.dem.interrupts import deferred
from particlemesh.apps.progress import bar
from particlemesh.command import granular

ROWS = 10
LOOK = 0.5  # seconds between two looks at energy and contacts for the progress bar, about
HEAD = f"{'step':>12}{'time / s':>11}{'kinetic / J':>13}{'total / J':>13}{'contacts':>11}{'particles/s':>14}"


class Stopped(Exception):  # noqa: N818 - a user's wish
    """Ctrl-C has ended the run; the message says how to go on."""


class Plan:
    """What to do at which step: everything that a run does between steps, by the step of its next time."""

    def __init__(self, first: int, last: int) -> None:
        self.first, self.last = first, last
        self.fixed: dict[str, list[int]] = {}
        self.every: dict[str, int] = {}

    def due(self, what: str, step: int) -> bool:
        """Return whether something is to be done at a step."""
        return step in self.fixed.get(what, ()) or (what in self.every and step % self.every[what] == 0)

    def until(self, step: int) -> int:
        """Return the next step at which there is something to do."""
        later = [n for steps in self.fixed.values() for n in steps if n > step]
        later += [step - step % every + every for every in self.every.values()]
        return min([*later, self.last])


def collide(
    console: Console, simulation: Simulation, title: str, out: Path, steps: int, *, checkpoint: Path | None,
    checkpoint_every: int | None, trajectory: Path | None, every: int,
) -> None:  # fmt: skip
    """Run a simulation, print what it does, and draw it.

    Raises
    ------
    Stopped
        After Ctrl-C, once the checkpoint is written.
    FloatingPointError
        If a number is not finite any more.
    """
    console.print(title)
    if checkpoint is not None and find_spec("h5py") is None:
        console.print("checkpoints: none, h5py is missing: pip install 'particlemesh\\[io]'")
        checkpoint = None
    album = Album(out, simulation, title, steps)
    plan = Plan(simulation.step, simulation.step + steps)
    plan.fixed["row"] = [plan.first + round(steps * n / ROWS) for n in range(1, ROWS + 1)]
    plan.fixed["picture"] = [plan.first + step for step in album.steps]
    if checkpoint is not None and checkpoint_every:
        plan.every["checkpoint"] = checkpoint_every
    if trajectory is not None:
        plan.every["trajectory"] = every
        trajectory.parent.mkdir(parents=True, exist_ok=True)
    try:
        with deferred() as interrupted:
            _loop(console, simulation, plan, album, checkpoint, trajectory, interrupted)
            if interrupted() and checkpoint is not None:
                _save(simulation, checkpoint)
    except KeyboardInterrupt:
        raise Stopped(_how_to_go_on(simulation, plan.last, checkpoint)) from None
    if checkpoint is not None:
        _save(simulation, checkpoint)
        console.print(f"checkpoint: {escape(str(checkpoint))}", soft_wrap=True)
    album.write(console)
