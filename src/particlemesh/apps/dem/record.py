# SPDX-License-Identifier: BSD-3-Clause
"""What a run leaves beside its state: frames of a trajectory, and words of how far it is."""

from __future__ import annotations

import math
import time
from typing import Any

import particlemesh as pm
from particlemesh.apps.dem.given import to_host
from particlemesh.apps.files import recording
from particlemesh.apps.files.trajectory import Frame
from particlemesh.apps.progress import quantity

PAUSE = 1.0  # seconds between two updates of energy and contacts, about


def frame(simulation: Any) -> Frame:
    """Return the present state for a trajectory, with the particles of all ranks."""
    of_all, domain = getattr(simulation, "gathered", lambda rows: rows), simulation.domain
    x, v, w = (of_all(to_host(getattr(simulation, name), name)) for name in ("positions", "velocities", "spins"))
    ends = all(map(math.isfinite, domain.lengths))
    box = pm.Box(domain.lengths, origin=domain.origin, periodic=domain.periodic) if ends else None
    return Frame(simulation.step, simulation.time, x, box, of_all(simulation.radii), v, w)


class Recorder(recording.Recorder):
    """The file and the bar of one run.

    Parameters
    ----------
    simulation : Simulation
    steps, every, trajectory, progress
        As for :meth:`Simulation.run`; ``progress`` may be a console.
    """

    def __init__(self, simulation: Any, steps: int, every: int, trajectory: Any, progress: Any) -> None:
        super().__init__(simulation, lambda: frame(simulation), "steps", steps, every, trajectory, progress)
        self._updated, self._steps = time.perf_counter(), 0

    def update_progress(self, steps: int, text: str | None = None) -> None:
        """Advance the bar, with words about the simulation from time to time, unless other ranks have to help."""
        self._steps += steps
        seconds = time.perf_counter() - self._updated
        if seconds >= PAUSE and self._advance is not None and self.world is None:
            simulation = self.simulation
            rate, energy = self._steps / seconds * len(simulation), simulation.energy.total
            text = f"{quantity(rate)} particles/s, E {energy:.4g}, {len(simulation.contacts.i):,} contacts"
            self._updated, self._steps = time.perf_counter(), 0
        super().update_progress(steps, text)
