# SPDX-License-Identifier: BSD-3-Clause
"""HOOMD-blue's trajectories."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from particlemesh import Box
from particlemesh.apps.files.particles.reader import Column, Reader, slices


class GSD(Reader):
    """A frame at a time. The box is centred at 0 and repeats in all directions; in two dimensions z is left out."""

    suffixes = (".gsd",)
    module = "gsd.hoomd"
    scalars = ("charge", "mass", "diameter", "typeid")
    vectors = ("velocity", "moment_inertia")

    def open(self) -> None:
        self.file = self.library.open(self.path, "r")
        self.frames = len(self.file)
        if self.frames:
            shot = self.file[self.frames - 1]
            self.axes = int(shot.configuration.dimensions or 3)
            self.columns["position"] = Column((self.axes,))
            self.columns |= {name: Column() for name in self.scalars}
            self.columns |= {name: Column((3,)) for name in self.vectors}

    def box(self, frame: int) -> Box | None:
        shot = self.file[frame].configuration
        if shot.box is None:
            return None
        lx, ly, lz, xy, xz, yz = np.asarray(shot.box, np.float64)
        rows = np.array([[lx, 0, 0], [xy * ly, ly, 0], [xz * lz, yz * lz, lz]])[: self.axes, : self.axes]
        lengths = np.diagonal(rows) if not (rows - np.diag(np.diagonal(rows))).any() else rows
        return Box(lengths, origin=-rows.sum(axis=0) / 2)

    def chunks(self, names: Sequence[str], size: int, frame: int) -> Iterator[list[np.ndarray]]:
        shot = self.file[frame].particles
        found = [np.asarray(getattr(shot, name)) for name in names]
        found = [data[:, : self.axes] if name == "position" else data for name, data in zip(names, found, strict=True)]
        yield from slices(found, size)

    def close(self) -> None:
        self.file.close()
