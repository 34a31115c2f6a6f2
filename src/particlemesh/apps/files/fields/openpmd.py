# SPDX-License-Identifier: BSD-3-Clause
"""Fields in HDF5 by the layout of openPMD, which its viewers and analysis programs read."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from particlemesh import Mesh
from particlemesh.apps.files import hdf5
from particlemesh.apps.files.fields.field import Field, Format
from particlemesh.apps.files.libraries import FileError, library
from particlemesh.apps.files.openpmd import components_of, groups, mesh_of, put_mesh, start, values_of


class OpenPMD(Format):
    """openPMD 1.1: any axes, boxes, batch axes and types; components of a batch are datasets of their own."""

    suffixes = (".h5", ".hdf5")

    @classmethod
    def declines(cls, mesh: Mesh, batch: tuple[int, ...], dtype: np.dtype) -> str | None:
        library("h5py", "a field .h5", "files")
        return None

    @classmethod
    def write(cls, path: Path, field: Field, overwrite: bool) -> None:
        with hdf5.writing(path, overwrite) as file:
            put_mesh(start(file), field.name, field.values, field.mesh)

    @classmethod
    def read(cls, path: Path) -> Field:
        with hdf5.opened(path) as file:
            if "openPMD" not in file.attrs or not len(file["data"]):
                raise FileError("it is no file of openPMD, as fields are: was it written by write_field?")
            meshes = groups(file, -1).get("meshes", {})
            if not len(meshes):
                raise FileError("its last iteration has no meshes")
            name = next(iter(meshes))
            record = meshes[name]
            mesh, axes = mesh_of(record)
            if len({tuple(np.ravel(part.attrs.get("position", 0.0))) for part in components_of(record)}) > 1:
                raise FileError(f"the components of {name} are at different places of a cell; one mesh has one place")
            parts = [np.ascontiguousarray(values_of(part).transpose(axes)) for part in components_of(record)]
            if any(part.shape != mesh.shape for part in parts):
                raise FileError(f"the components of {name} have different shapes")
            batch = tuple(int(n) for n in record.attrs.get("particlemesh_batch", [len(parts)]))
            scalar = not hasattr(record, "keys") or "value" in record.attrs
            values = parts[0] if scalar else np.stack(parts).reshape(*batch, *mesh.shape)
            return Field(values, mesh, name)
