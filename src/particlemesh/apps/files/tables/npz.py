# SPDX-License-Identifier: BSD-3-Clause
"""NumPy's archives, written in parts: columns grow in files of their own, and are packed at the end."""

from __future__ import annotations

import contextlib
import shutil
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO

import numpy as np
from numpy.lib import format as npy

from particlemesh.apps.files.tables.table import Table


class NPZ(Table):
    """One array per column. While it is written, the folder needs twice the room."""

    suffixes = (".npz",)

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.parts: dict[str, tuple[Path, IO[bytes]]] = {}

    def put(self, columns: Mapping[str, np.ndarray]) -> None:
        for name, data in columns.items():
            if name not in self.parts:
                part = self.path.with_name(f"{self.path.name}.{len(self.parts)}")
                self.parts[name] = part, part.open("w+b")
            self.parts[name][1].write(np.ascontiguousarray(data).data)

    def finish(self) -> None:
        with zipfile.ZipFile(self.path, "w") as archive:
            for name, (_, file) in self.parts.items():
                tail, dtype = self.kinds[name]
                head = {"shape": (self.rows, *tail), "fortran_order": False, "descr": npy.dtype_to_descr(dtype)}
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    npy.write_array_header_1_0(member, head)
                    file.seek(0)
                    shutil.copyfileobj(file, member, 2**20)

    def close(self) -> None:
        with contextlib.ExitStack() as all_parts:  # closing fails on a full disk
            for part, file in self.parts.values():
                all_parts.callback(part.unlink, missing_ok=True)
                all_parts.callback(file.close)
