# SPDX-License-Identifier: BSD-3-Clause
"""What a run leaves beside its state: frames of a trajectory, and a bar that shows how far it is."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from types import TracebackType
from typing import Any

from particlemesh.apps.files.replacing import together
from particlemesh.apps.files.trajectory import Frame, Writer, writer
from particlemesh.apps.progress import bar
from particlemesh.kernels import checks


def checked(steps: Any, every: Any, trajectory: Any, progress: Any) -> tuple[int, int, bool]:
    """Return steps, the steps between frames and whether there is a bar, as a run was given them."""
    numbers = checks.integer(steps, "steps", 0, 2**62), checks.integer(every, "every", 1, 2**62)
    if numbers[1] > 1 and trajectory is None:
        raise ValueError(f"every is {every}, the steps between frames of a trajectory: give trajectory=, too.")
    return *numbers, checks.flag(progress, "progress")


class Recorder(contextlib.AbstractContextManager):
    """The file and the bar of one run. Over ranks the first one has them, and frames have the particles of all.

    Parameters
    ----------
    simulation : object
        Has a ``step``, and ``world`` if it is over ranks.
    frame : callable
        Returns the present state, on all ranks.
    title : str
        Of the bar.
    steps, every : int
        Steps of the run, and between frames.
    trajectory : path, optional
    progress : bool or rich.console.Console
        Whether, or where, a bar is shown.
    """

    def __init__(
        self, simulation: Any, frame: Callable[[], Frame], title: str, steps: int, every: int, trajectory: Any,
        progress: Any,
    ) -> None:  # fmt: skip
        self.simulation, self.end, self.every, self._frame = simulation, simulation.step + steps, every, frame
        self.world, self._writes = getattr(simulation, "world", None), trajectory is not None
        first = self.world is None or not self.world.rank
        self._open = contextlib.ExitStack()
        self._file: Writer | None = None
        if self._writes:
            now = frame()
            with together(self.world, "opening a trajectory"):
                self._file = self._open.enter_context(writer(trajectory, now)) if first else None
        console = None if progress is True else progress
        shown = bar(title, steps, console) if progress and first else contextlib.nullcontext()
        self._advance = self._open.enter_context(shown)

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._open.__exit__(kind, error, trace)

    @property
    def left(self) -> int:
        """Steps until there is something to write, or the run ends."""
        step = self.simulation.step
        stop = self.end if not self._writes else min(self.end, step - step % self.every + self.every)
        return stop - step

    def write(self) -> None:
        """Write a frame, if one is due."""
        if self._writes and self.simulation.step % self.every == 0:
            now = self._frame()
            with together(self.world, "a frame"):
                if self._file is not None:
                    self._file.write(now)

    def update_progress(self, steps: int, text: str | None = None) -> None:
        """Advance the bar."""
        if self._advance is not None:
            self._advance(steps, text)
