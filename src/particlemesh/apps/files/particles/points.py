# SPDX-License-Identifier: BSD-3-Clause
"""Points of VTK, through meshio."""

from __future__ import annotations

import contextlib
import importlib
import io
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from particlemesh.apps.files.libraries import FileError
from particlemesh.apps.files.particles.boxes import Cell, cell_of
from particlemesh.apps.files.particles.reader import Column, Reader, is_column, slices


class Points(Reader):
    """Points with their data, a file per frame; ``NAME.vtu.series`` lists the frames of ParaView.

    The box is that of files of ours: arrays ``box``, ``origin`` and ``periodic`` of the whole file.
    """

    suffixes = (".vtu", ".vtk", ".series")
    module = "meshio"

    def open(self) -> None:
        self._files = [self.path]
        if self.path.suffix.lower() == ".series":
            listed = json.loads(self.path.read_text(encoding="utf-8"))["files"]
            self._files = [self.path.with_name(Path(file["name"]).name) for file in listed]
            missing = [file.name for file in self._files if not file.is_file()]
            if missing or not self._files:
                raise FileError(f"it lists {', '.join(missing[:4]) or 'no files'}, which are missing")
        self.frames = len(self._files)
        self._now: tuple[int, Any] = (-1, None)
        self.columns = {name: Column(data.shape[1:]) for name, data in self._arrays(self.frames - 1).items()}

    def _mesh(self, frame: int) -> Any:
        """Return the points of a frame; those of the last call are kept."""
        if self._now[0] != frame:
            file = self._files[frame]
            # The library's own function for all formats ends the program where it cannot read.
            form = importlib.import_module("meshio.vtu" if file.suffix.lower() == ".vtu" else "meshio.vtk")
            with contextlib.redirect_stderr(io.StringIO()):  # it warns of cells, which are not read
                self._now = (frame, form.read(str(file)))
        return self._now[1]

    def _arrays(self, frame: int) -> dict[str, np.ndarray]:
        mesh = self._mesh(frame)
        arrays = {**mesh.point_data, "positions": mesh.points}
        return {name: data for name, data in arrays.items() if is_column(data.shape, data.dtype)}

    def box(self, frame: int) -> Cell | None:
        fields = self._mesh(frame).field_data
        if not {"box", "origin", "periodic"} <= set(fields):
            return None
        box, origin, periodic = (np.ravel(fields[name]) for name in ("box", "origin", "periodic"))
        return cell_of(box.reshape(len(origin), -1), self.ndim, origin, periodic)

    def chunks(self, names: Sequence[str], size: int, frame: int) -> Iterator[list[np.ndarray]]:
        arrays = self._arrays(frame)
        missing = [name for name in names if name not in arrays]
        if missing:
            raise FileError(f"it has no {', '.join(missing)}")
        yield from slices([arrays[name] for name in names], size)
