# SPDX-License-Identifier: BSD-3-Clause
"""NumPy's archives: the field under its name, and the arguments of its mesh."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from particlemesh import Box, Mesh
from particlemesh.apps.files.fields.field import Field, Format
from particlemesh.apps.files.replacing import replacing

SETTINGS = ("shape", "box", "origin", "periodic", "offset")


class NPZ(Format):
    """Everything: any axes, boxes, batch axes and types."""

    suffixes = (".npz",)

    @classmethod
    def write(cls, path: Path, field: Field, overwrite: bool) -> None:
        mesh, box = field.mesh, field.mesh.box
        settings = {"shape": mesh.shape, "box": box.matrix, "origin": box.origin, "periodic": box.periodic}
        name = f"field_{field.name}" if field.name in (*SETTINGS, "file") else field.name
        with replacing(path, overwrite) as part:
            np.savez(part, **{name: field.values}, **settings, offset=mesh.offset)  # type: ignore[arg-type]

    @classmethod
    def read(cls, path: Path) -> Field:
        # NumPy leaves a file open that it cannot read.
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            missing = [name for name in SETTINGS if name not in arrays.files]
            if missing:
                raise ValueError(f"it lacks {', '.join(missing)}, which fields have: was it written by write_field?")
            settings = {name: arrays[name] for name in SETTINGS}
            if any(array.size > 64 for array in settings.values()):
                raise ValueError("shape, box, origin, periodic or offset has more than 64 numbers")
            box = Box(settings["box"], settings["origin"], [bool(p) for p in settings["periodic"]])
            mesh = Mesh([int(n) for n in settings["shape"]], box, offset=settings["offset"])
            names = [name for name in arrays.files if name not in SETTINGS]
            if len(names) != 1:
                raise ValueError(f"it has {', '.join(names) or 'nothing'} beside its mesh; one field is needed")
            return Field(arrays[names[0]], mesh, names[0])
