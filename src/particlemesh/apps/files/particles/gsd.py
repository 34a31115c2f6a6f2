# SPDX-License-Identifier: BSD-3-Clause
"""HOOMD-blue's trajectories."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from particlemesh.apps.files.libraries import FileError
from particlemesh.apps.files.particles.boxes import Cell
from particlemesh.apps.files.particles.reader import Column, Reader, is_column, slices

LOG, PERIODIC, ORIGIN = "particles/", "box/periodic", "box/origin"
GROUPS = ("particles", "bonds", "angles", "dihedrals", "impropers", "constraints", "pairs")


class GSD(Reader):
    """A frame at a time. The box is centred at 0; in two dimensions z is left out.

    It repeats along all axes, as in HOOMD-blue, unless the log of the frame has ``box/periodic`` and ``box/origin``,
    as files of ours do. Then positions and the box are at their own place.
    """

    suffixes = (".gsd",)
    module = "gsd.hoomd"
    scalars = ("charge", "mass", "diameter", "typeid")
    vectors = ("velocity", "moment_inertia")

    def open(self) -> None:
        self.file = self.library.open(self.path, "r")
        self.frames = len(self.file)
        if not self.frames:
            raise FileError("it has no frames")
        shot = self._frame(self.frames - 1)
        self.axes = int(shot.configuration.dimensions or 3) if _edges(shot).any() else 3
        self.columns["position"] = Column((self.axes,))
        self.columns |= {name: Column() for name in self.scalars}
        self.columns |= {name: Column((3,)) for name in self.vectors}
        for name, data in shot.log.items():  # what simulations add for every particle
            if name.startswith(LOG) and len(data) == shot.particles.N and is_column(np.shape(data), data.dtype):
                self.columns[name] = Column(data.shape[1:])

    def _frame(self, number: int) -> Any:
        """Return a frame. The library would fill memory with what a damaged number of particles asks for."""
        raw, most = self.file.file, self.path.stat().st_size
        for index in (0, number):
            for group in GROUPS:
                if raw.chunk_exists(frame=index, name=f"{group}/N"):
                    count = int(raw.read_chunk(frame=index, name=f"{group}/N").ravel()[0])
                    if count > most:
                        raise FileError(f"frame {index} has {count:,} {group}, and the file {most:,} bytes")
        return self.file[number]

    def box(self, frame: int) -> Cell | None:
        shot = self._frame(frame)
        rows, periodic, origin = self._rows(shot), shot.log.get(PERIODIC), shot.log.get(ORIGIN)
        if not rows.any():
            return None
        flags = [True] * 3 if periodic is None else np.ravel(periodic).tolist()
        corner = -rows.sum(axis=0) / 2 if origin is None else np.ravel(origin)[: self.axes]
        return Cell(rows, tuple(bool(flag) for flag in flags[: self.axes]), corner)

    def _rows(self, shot: Any) -> np.ndarray:
        lx, ly, lz, xy, xz, yz = _edges(shot)
        return np.array([[lx, 0, 0], [xy * ly, ly, 0], [xz * lz, yz * lz, lz]])[: self.axes, : self.axes]

    def chunks(self, names: Sequence[str], size: int, frame: int) -> Iterator[list[np.ndarray]]:
        shot = self._frame(frame)
        arrays = [
            np.asarray(shot.log[name] if name.startswith(LOG) else getattr(shot.particles, name)) for name in names
        ]
        for name, data in zip(names, arrays, strict=True):
            if len(data) != shot.particles.N:  # the library repeats what the first frame has
                raise FileError(f"frame {frame} has {shot.particles.N} particles and {len(data)} rows of {name}")
        if "position" in names:
            at = names.index("position")
            arrays[at] = arrays[at][:, : self.axes]
            if ORIGIN in shot.log:
                shift = np.ravel(shot.log[ORIGIN])[: self.axes] + self._rows(shot).sum(axis=0) / 2
                arrays[at] = arrays[at] + shift if shift.any() else arrays[at]
        yield from slices(arrays, size)

    def close(self) -> None:
        self.file.close()


def _edges(shot: Any) -> np.ndarray:
    """Return lengths and tilts of a frame; zeros if it has no box."""
    box = shot.configuration.box
    return np.zeros(6) if box is None else np.asarray(box, np.float64)
