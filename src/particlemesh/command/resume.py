# SPDX-License-Identifier: BSD-3-Clause
"""Runs that Ctrl-C ends with a checkpoint, and that a later run continues: what ``dem`` and ``brownian`` share."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from particlemesh.apps.files.libraries import library
from particlemesh.apps.interrupts import deferred
from particlemesh.command import consoles


def checkpoint_of(options: Mapping[str, Any], given: set[str], stored: Collection[str]) -> Path | None:
    """Return the checkpoint that a run writes, or None without h5py, once all outputs can be written.

    ``given`` are the options that do not have their default, and ``stored`` those that a checkpoint holds.
    """
    missing = find_spec("h5py") is None
    if missing and given & {"checkpoint", "checkpoint_every", "restart"}:
        library("h5py", "a checkpoint")
    excess = sorted(given.intersection(stored))
    if options["restart"] is not None and excess:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in excess)
        raise ValueError(f"{names} cannot be given with --restart: the checkpoint contains them.")
    path = options["checkpoint"] if options["restart"] is None or "checkpoint" in given else options["restart"]
    written = {"--out": options["out"], "--trajectory": options.get("trajectory")}
    consoles.check_outputs((options["restart"],), written)  # the checkpoint may take the place of the one read
    consoles.check_outputs((), written | {"--checkpoint": None if missing else path})
    return None if missing else path


class Saving:
    """Checkpoints of a simulation with ``step`` and ``save(path)``, at multiples of ``every`` steps and at the end."""

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
    def stoppable(self, command: str, last: int) -> Iterator[Callable[[], bool]]:
        """Yield a function that says whether Ctrl-C was pressed; at the end write the checkpoint.

        After Ctrl-C, `Stopped` says how to continue up to the step ``last``.
        """
        try:
            with deferred() as interrupted:
                yield interrupted
                self.now()
        except KeyboardInterrupt:
            said = f"interrupted at step {self.simulation.step:,}"
            if self.path is None:
                raise consoles.Stopped(f"{said}; no checkpoint, since h5py is missing: pip install h5py") from None
            left = last - self.simulation.step
            how = f"Continue with: particlemesh {command} --restart {self.path} --steps {left}"
            raise consoles.Stopped(
                f"{said}; the checkpoint is {self.path}. {how if left else 'All steps are done.'}"
            ) from None
