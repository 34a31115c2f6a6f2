# SPDX-License-Identifier: BSD-3-Clause
"""HOOMD-blue's trajectories."""

from __future__ import annotations

from typing import Any

import numpy as np

from particlemesh.apps.files.boxes import Cell
from particlemesh.apps.files.libraries import FileError
from particlemesh.apps.files.particles.reader import FrameReader

LOG, PERIODIC, ORIGIN = "particles/", "box/periodic", "box/origin"
GROUPS = ("particles", "bonds", "angles", "dihedrals", "impropers", "constraints", "pairs")
COLUMNS = ("charge", "mass", "diameter", "typeid", "velocity", "moment_inertia")


class GSD(FrameReader):
    """A frame at a time. The box is centred at 0; in two dimensions z is left out.

    It repeats along all axes, as in HOOMD-blue, unless the log of the frame has ``box/periodic`` and ``box/origin``,
    as files of ours do. Then positions and the box are at their own place.
    """

    suffixes = (".gsd",)
    module = "gsd.hoomd"

    def start(self) -> int:
        self.file = self.library.open(self.path, "r")
        self.axes = 3
        if len(self.file):
            shot = self.frame(len(self.file) - 1)
            self.axes = int(shot.configuration.dimensions or 3) if _edges(shot).any() else 3
        return len(self.file)

    def read(self, frame: int) -> Any:
        """Return a frame. The library would fill memory with what a damaged number of particles asks for."""
        raw, most = self.file.file, self.path.stat().st_size
        for index in (0, frame):
            for group in GROUPS:
                if raw.chunk_exists(frame=index, name=f"{group}/N"):
                    count = int(raw.read_chunk(frame=index, name=f"{group}/N").ravel()[0])
                    if count > most:
                        raise FileError(f"frame {index} has {count:,} {group}, and the file {most:,} bytes")
        return self.file[frame]

    def box(self, frame: int) -> Cell | None:
        shot = self.frame(frame)
        rows, periodic, origin = self._rows(shot), shot.log.get(PERIODIC), shot.log.get(ORIGIN)
        if not rows.any():
            return None
        flags = [True] * 3 if periodic is None else np.ravel(periodic).tolist()
        corner = -rows.sum(axis=0) / 2 if origin is None else np.ravel(origin)[: self.axes]
        return Cell(rows, tuple(bool(flag) for flag in flags[: self.axes]), corner)

    def _rows(self, shot: Any) -> np.ndarray:
        lx, ly, lz, xy, xz, yz = _edges(shot)
        return np.array([[lx, 0, 0], [xy * ly, ly, 0], [xz * lz, yz * lz, lz]])[: self.axes, : self.axes]

    def arrays(self, frame: int) -> dict[str, np.ndarray]:
        shot = self.frame(frame)
        position = np.asarray(shot.particles.position)[:, : self.axes]
        if len(position) != shot.particles.N:  # the library repeats what the first frame has
            raise FileError(f"frame {frame} has {shot.particles.N} particles and {len(position)} rows of position")
        if ORIGIN in shot.log:
            shift = np.ravel(shot.log[ORIGIN])[: self.axes] + self._rows(shot).sum(axis=0) / 2
            position = position + shift if shift.any() else position
        arrays = {"position": position, **{name: np.asarray(getattr(shot.particles, name)) for name in COLUMNS}}
        return arrays | {name: np.asarray(data) for name, data in shot.log.items() if name.startswith(LOG)}

    def close(self) -> None:
        self.file.close()


def _edges(shot: Any) -> np.ndarray:
    """Return lengths and tilts of a frame; zeros if it has no box."""
    box = shot.configuration.box
    return np.zeros(6) if box is None else np.asarray(box, np.float64)
