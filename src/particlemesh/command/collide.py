# SPDX-License-Identifier: BSD-3-Clause
"""The output of ``particlemesh dem``: a row of numbers now and then, checkpoints, a trajectory and a picture."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from particlemesh.apps.dem import Simulation
from particlemesh.apps.dem.record import frame, quantity, report
from particlemesh.apps.files.trajectory import Writer, writer
from particlemesh.apps.progress import bar
from particlemesh.command import granular
from particlemesh.command.going_on import Saving, stoppable

ROWS, LOOKS = 10, 60  # rows that are printed, points of the curves of energy
PIECE = 100  # steps between two looks at the clock
LOOK = 0.5  # seconds between two looks at energy and contacts, for the progress bar
HEAD = f"{'step':>10}{'time / s':>12}{'kinetic / J':>13}{'total / J':>13}{'contacts':>12}{'particles/s':>14}"


class Album:
    """The picture of a run: its renderings and its energies."""

    def __init__(self, path: Path, simulation: Simulation, title: str, steps: int) -> None:
        self.path, self.title = path, title
        self.energies: list[Any] = []
        self.shots: list[Any] = []
        self.steps: set[int] = set()  # with a rendering
        self.looks = {simulation.step + round(steps * n / LOOKS) for n in range(LOOKS + 1)}
        if find_spec("matplotlib") is not None:
            from particlemesh.command import granular_figure as figure

            self.steps = {simulation.step + step for step in figure.moments(path, steps)}
            self.camera = figure.camera(path, simulation, granular.fastest(simulation))

    def look(self, simulation: Simulation) -> None:
        """Take the energy and a rendering, if the present step has them."""
        if simulation.step in self.looks:
            self.energies.append((simulation.time, simulation.energy))
        if simulation.step in self.steps:
            self.shots.append(self.camera.shoot(simulation))

    def draw(self) -> str:
        """Draw the picture of what there is, and return what became of it."""
        if not self.steps:
            return "picture: none, matplotlib is missing: pip install matplotlib"
        from particlemesh.command import granular_figure as figure

        self.path.parent.mkdir(parents=True, exist_ok=True)
        figure.draw(self.path, self.camera, self.shots, self.energies, self.title)
        return f"picture: {escape(str(self.path))}"


class Run:
    """Steps of a simulation, and all that is done between them.

    Parameters
    ----------
    console : Console
    simulation : Simulation
    album : Album
    steps : int
    saving : Saving
    file : Writer or None
    frames : int
        Frames are written at multiples of this.
    """

    def __init__(
        self, console: Console, simulation: Simulation, album: Album, steps: int, saving: Saving, file: Writer | None,
        frames: int,
    ) -> None:  # fmt: skip
        self.console, self.simulation, self.album, self.file = console, simulation, album, file
        self.first, self.last = simulation.step, simulation.step + steps
        self.saving = saving
        self.frames = frames if file is not None else 0
        self.rows = {self.first + round(steps * n / ROWS) for n in range(1, ROWS + 1)}
        self._seconds, self._row = 0.0, (0.0, self.first)  # within steps; those and the step of the last row

    def go(self, interrupted: Callable[[], bool]) -> None:
        """Make the steps, or those until Ctrl-C."""
        simulation = self.simulation
        looked, steps, text = 0.0, 0, ""
        with bar("steps", self.last - self.first, self.console) as advance:
            self._between()
            while simulation.step < self.last and not interrupted():
                before, clock = simulation.step, time.perf_counter()
                simulation.run(min(PIECE, self._next() - before))
                self._seconds += time.perf_counter() - clock
                steps += simulation.step - before
                if self._seconds - looked > LOOK:
                    text = report(simulation, steps / (self._seconds - looked))
                    looked, steps = self._seconds, 0
                advance(simulation.step - before, text)
                self._between()

    def _next(self) -> int:
        """Return the next step with something to do."""
        step = self.simulation.step
        later = [n for n in self.rows | self.album.steps | self.album.looks if n > step]
        return min([*later, self.last, *(step - step % n + n for n in (self.saving.every, self.frames) if n)])

    def _between(self) -> None:
        """Do what is due between two steps."""
        simulation, step = self.simulation, self.simulation.step
        if self.file is not None and step % self.frames == 0:
            self.file.write(frame(simulation))
        self.album.look(simulation)
        if step in self.rows:
            seconds, before = self._row
            rate = (step - before) * len(simulation) / max(self._seconds - seconds, 1e-9)
            self._row = self._seconds, step
            self.console.print(_row(simulation, rate))
        if step > self.first:
            self.saving.due()


def collide(
    console: Console, simulation: Simulation, title: str, out: Path, steps: int, *, checkpoint: Path | None,
    checkpoint_every: int, trajectory: Path | None, every: int,
) -> None:  # fmt: skip
    """Run a simulation, print what it does, and draw it.

    Parameters
    ----------
    console : Console
    simulation : Simulation
    title : str
    out : Path
        The picture.
    steps : int
    checkpoint : Path or None
        Written at the end, and after Ctrl-C.
    checkpoint_every : int
        It is also written at steps that are multiples of this, unless 0.
    trajectory : Path or None
    every : int
        Frames are written at steps that are multiples of this.

    Raises
    ------
    Stopped
        After Ctrl-C, once the checkpoint is written.
    FloatingPointError
        If a number is not finite any more.
    ValueError
        If the trajectory is refused.
    """
    console.print(f"{title}\n{steps:,} steps of {simulation.time_step:.4g} s on {simulation.backend}\n")
    with contextlib.ExitStack() as stack:
        file = None
        if trajectory is not None:
            trajectory.parent.mkdir(parents=True, exist_ok=True)
            file = stack.enter_context(writer(trajectory, frame(simulation)))
        album = Album(out, simulation, title, steps)
        saving = Saving(simulation, checkpoint, checkpoint_every)
        run = Run(console, simulation, album, steps, saving, file, every)
        console.print(HEAD, style="bold")
        with stoppable("dem", saving, run.last) as interrupted:
            run.go(interrupted)
    if checkpoint is not None:
        console.print(f"\ncheckpoint: {escape(str(checkpoint))}", soft_wrap=True)
    console.print(album.draw(), soft_wrap=True)


def _row(simulation: Simulation, rate: float) -> str:
    energy = simulation.energy
    kinetic = energy.translation + energy.rotation
    return (
        f"{simulation.step:>10,}{simulation.time:>12.4g}{kinetic:>13.4g}{energy.total:>13.4g}"
        f"{len(simulation.contacts.i):>12,}{quantity(rate):>14}"
    )
