# SPDX-License-Identifier: BSD-3-Clause
"""HOOMD-blue's trajectories."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from particlemesh import Box
from particlemesh.apps.files.particles.reader import Column, FileError, Reader, is_column, slices

LOG = "particles/"
GROUPS = ("particles", "bonds", "angles", "dihedrals", "impropers", "constraints", "pairs")


class GSD(Reader):
    """A frame at a time. The box is centred at 0 and repeats in all directions; in two dimensions z is left out."""

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

    def box(self, frame: int) -> Box | None:
        lx, ly, lz, xy, xz, yz = edges = _edges(self._frame(frame))
        if not edges.any():
            return None
        rows = np.array([[lx, 0, 0], [xy * ly, ly, 0], [xz * lz, yz * lz, lz]])[: self.axes, : self.axes]
        lengths = np.diagonal(rows) if not (rows - np.diag(np.diagonal(rows))).any() else rows
        return Box(lengths, origin=-rows.sum(axis=0) / 2)

    def chunks(self, names: Sequence[str], size: int, frame: int) -> Iterator[list[np.ndarray]]:
        shot = self._frame(frame)
        arrays = [
            np.asarray(shot.log[name] if name.startswith(LOG) else getattr(shot.particles, name)) for name in names
        ]
        for name, data in zip(names, arrays, strict=True):
            if len(data) != shot.particles.N:  # the library repeats what the first frame has
                raise FileError(f"frame {frame} has {shot.particles.N} particles and {len(data)} rows of {name}")
        arrays = [
            data[:, : self.axes] if name == "position" else data for name, data in zip(names, arrays, strict=True)
        ]
        yield from slices(arrays, size)

    def close(self) -> None:
        self.file.close()


def _edges(shot: Any) -> np.ndarray:
    """Return lengths and tilts of a frame; zeros if it has no box."""
    box = shot.configuration.box
    return np.zeros(6) if box is None else np.asarray(box, np.float64)
