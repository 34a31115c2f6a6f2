# SPDX-License-Identifier: BSD-3-Clause
"""Points of VTK, through meshio."""

from __future__ import annotations

import contextlib
import importlib
import io
import json
from pathlib import Path
from typing import Any

import numpy as np

from particlemesh.apps.files.boxes import Cell, cell_of
from particlemesh.apps.files.libraries import FileError
from particlemesh.apps.files.particles.reader import FrameReader


class Points(FrameReader):
    """Points with their data, a file per frame; ``NAME.vtu.series`` lists the frames of ParaView.

    The box is that of files of ours: arrays ``box``, ``origin`` and ``periodic`` of the whole file.
    """

    suffixes = (".vtu", ".vtk", ".series")
    module = "meshio"

    def start(self) -> int:
        self._files = [self.path]
        if self.path.suffix.lower() == ".series":
            listed = json.loads(self.path.read_text(encoding="utf-8"))["files"]
            self._files = [self.path.with_name(Path(file["name"]).name) for file in listed]
            missing = [file.name for file in self._files if not file.is_file()]
            if missing or not self._files:
                raise FileError(f"it lists {', '.join(missing[:4]) or 'no files'}, which are missing")
        return len(self._files)

    def read(self, frame: int) -> Any:
        file = self._files[frame]
        # The library's own function for all formats ends the program where it cannot read.
        form = importlib.import_module("meshio.vtu" if file.suffix.lower() == ".vtu" else "meshio.vtk")
        with contextlib.redirect_stderr(io.StringIO()):  # it warns of cells, which are not read
            return form.read(str(file))

    def arrays(self, frame: int) -> dict[str, np.ndarray]:
        mesh = self.frame(frame)
        return {"positions": mesh.points, **{k: v for k, v in mesh.point_data.items() if k != "positions"}}

    def box(self, frame: int) -> Cell | None:
        fields = self.frame(frame).field_data
        if not {"box", "origin", "periodic"} <= set(fields):
            return None
        box, origin, periodic = (np.ravel(fields[name]) for name in ("box", "origin", "periodic"))
        return cell_of(box.reshape(len(origin), -1), self.ndim, origin, periodic)
