# SPDX-License-Identifier: BSD-3-Clause
"""Structures and trajectories of molecular dynamics, through MDAnalysis."""

from __future__ import annotations

import contextlib
import importlib
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

from particlemesh.apps.files.boxes import Cell, cell_of
from particlemesh.apps.files.libraries import FileError
from particlemesh.apps.files.particles.reader import FrameReader


class Molecules(FrameReader):
    """A frame at a time, in Å. A trajectory takes charges and masses from its topology."""

    suffixes = (".pdb", ".gro", ".xtc", ".trr", ".dcd")
    module = "MDAnalysis"
    alone = True
    takes_topology = True
    unit = "Å"
    structures = (".pdb", ".gro")  # which need no topology
    scalars = ("charges", "masses", "radii", "tempfactors", "occupancies")

    def start(self) -> int:
        ending = self.path.suffix.lower()
        if self.topology is None and ending not in self.structures:
            raise FileError(
                f"{self.path} has no topology: give --topology FILE (topology=), such as a .pdb, .gro, .tpr or .psf."
            )
        if ending == ".gro":
            self._one_frame()
        files = [self.path] if self.topology is None else [self.topology, self.path]
        with _quiet():
            self.universe = self.library.Universe(*map(str, files), **self._format())
        return len(self.universe.trajectory)

    def _format(self) -> dict[str, Any]:
        """Return a reader of .xtc and .trr that neither reads nor writes files of offsets beside the trajectory."""
        name = self.path.suffix[1:].upper()
        if name not in ("XTC", "TRR"):
            return {}
        form = getattr(importlib.import_module(f"MDAnalysis.coordinates.{name}"), f"{name}Reader")

        def read(reader: Any, store: bool = False) -> None:
            form._read_offsets(reader, store=False)

        return {"format": type(name, (form,), {"_load_offsets": read, "_read_offsets": read})}

    def _one_frame(self) -> None:
        """Refuse what MDAnalysis would leave out: the frames of a .gro behind the first one."""
        with self.path.open(encoding="utf-8", errors="replace") as lines:
            next(lines, "")
            count = next(lines, "").strip()
            if not count.isdecimal():
                raise FileError(f"its second line is {count[:60]!r}; a number of atoms is needed")
            if sum(1 for _ in zip(range(int(count) + 1), lines, strict=False)) <= int(count):
                raise FileError("it ends early: atoms or the line of the box are missing")
            if any(line.strip() for line in lines):
                raise FileError("it has more than one frame, or lines behind it: give a file with one, or an .xtc")

    def read(self, frame: int) -> Any:
        """Return the state of a frame, which the universe then has."""
        with _quiet():
            if self.universe.trajectory.frame != frame:
                self.universe.trajectory[frame]
            return self.universe.trajectory.ts

    def arrays(self, frame: int) -> dict[str, np.ndarray]:
        step, atoms = self.frame(frame), self.universe.atoms
        names = ["positions", *self.scalars]
        names += [name for name in ("velocities", "forces") if getattr(step, f"has_{name}")]
        arrays = {}
        with _quiet():
            for name in names:
                with contextlib.suppress(AttributeError, self.library.exceptions.NoDataError):
                    arrays[name] = np.array(getattr(atoms, name))
        return arrays

    def box(self, frame: int) -> Cell | None:
        with _quiet():
            dimensions = self.frame(frame).dimensions
        return None if dimensions is None or not dimensions.any() else cell_of(dimensions, 3, periodic=True)

    def close(self) -> None:
        self.universe.trajectory.close()


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep MDAnalysis from warning of what files do not have."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
