# SPDX-License-Identifier: BSD-3-Clause
"""What a run leaves beside its state: frames of a trajectory, and a bar that shows how far it is."""

from __future__ import annotations

import contextlib
import math
import time
from typing import Any

import particlemesh as pm
from particlemesh.apps.dem.given import to_host
from particlemesh.apps.files.trajectory import Frame, Writer, writer
from particlemesh.apps.progress import bar, quantity

PAUSE = 1.0  # seconds between two updates of energy and contacts, about


def box_of(simulation: Any) -> pm.Box | None:
    """Return the box of a simulation, or None if an axis has no end."""
    domain = simulation.domain
    if not all(map(math.isfinite, domain.lengths)):
        return None
    return pm.Box(domain.lengths, origin=domain.origin, periodic=domain.periodic)


def frame(simulation: Any) -> Frame:
    """Return the present state for a trajectory."""
    positions, velocities, spins = (to_host(getattr(simulation, x), x) for x in ("positions", "velocities", "spins"))
    return Frame(
        simulation.step, simulation.time, positions, box_of(simulation), simulation.radii, velocities, spins,
    )  # fmt: skip


class Recorder(contextlib.AbstractContextManager):
    """Files and the bar of one run.

    Parameters
    ----------
    simulation : Simulation
    steps, every, trajectory, progress
        As for :meth:`Simulation.run`.
    """

    def __init__(self, simulation: Any, steps: int, every: int, trajectory: Any, progress: bool) -> None:
        self.simulation, self.end, self.every = simulation, simulation.step + steps, every
        self._open = contextlib.ExitStack()
        self._file: Writer | None = None
        self._writes = trajectory is not None
        if self._writes:
            self._begin(trajectory, self._frame())
        self._advance = self._open.enter_context(bar("steps", steps)) if progress else None
        self._updated, self._steps = time.perf_counter(), 0

    def _begin(self, trajectory: Any, first: Frame) -> None:
        """Open the file."""
        self._file = self._open.enter_context(writer(trajectory, first))

    def _frame(self) -> Frame:
        return frame(self.simulation)

    def __exit__(self, *what: object) -> None:
        self._open.__exit__(*what)  # type: ignore[arg-type]  # the three that Python gives

    @property
    def left(self) -> int:
        """Steps until there is something to write, or the run ends."""
        step = self.simulation.step
        stop = self.end if not self._writes else min(self.end, step - step % self.every + self.every)
        return stop - step

    def write(self) -> None:
        """Write a frame, if one is due."""
        if self._file is not None and self.simulation.step % self.every == 0:
            self._file.write(self._frame())

    def update_progress(self, steps: int) -> None:
        """Advance the progress bar."""
        if self._advance is None:
            return
        self._steps += steps
        text, seconds = None, time.perf_counter() - self._updated
        if seconds >= PAUSE:
            text = report(self.simulation, self._steps / seconds)
            self._updated, self._steps = time.perf_counter(), 0
        self._advance(steps, text)


def report(simulation: Any, rate: float) -> str:
    """Return the speed of a simulation in particles per second, its energy and its contacts in words.

    Parameters
    ----------
    simulation : Simulation
    rate : float
        Steps per second.
    """
    energy, contacts = simulation.energy.total, len(simulation.contacts.i)
    return f"{quantity(rate * len(simulation))} particles/s, E {energy:.4g}, {contacts:,} contacts"
