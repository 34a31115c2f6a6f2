# SPDX-License-Identifier: BSD-3-Clause
"""VTK's image data, which ParaView and PyVista show."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from particlemesh import Mesh
from particlemesh.apps.files.fields.field import Field, Format
from particlemesh.apps.files.libraries import library
from particlemesh.apps.files.replacing import replacing


class VTI(Format):
    """Values at the nodes of a rectangular mesh; complex values are two arrays, components one array each."""

    suffixes = (".vti",)
    reads = False

    @classmethod
    def declines(cls, mesh: Mesh, batch: tuple[int, ...], dtype: np.dtype) -> str | None:
        library("pyevtk.hl", "a field .vti", "files")
        if not mesh.box.orthorhombic:
            return "a field .vti has a rectangular mesh, and this box is triclinic: write .h5 or .npz."
        return None

    @classmethod
    def write(cls, path: Path, field: Field, overwrite: bool) -> None:
        pyevtk = library("pyevtk.hl", "a field .vti", "files")
        mesh, more = field.mesh, 3 - field.mesh.ndim
        origin = mesh.box.origin + np.array(mesh.offset) * mesh.spacing
        arrays = _arrays(field)
        with replacing(path, overwrite) as part:
            pyevtk.imageToVTK(
                str(part.with_suffix("")), (*origin.tolist(), *(0.0,) * more),
                (*mesh.spacing.tolist(), *(1.0,) * more), pointData=arrays,
            )  # fmt: skip


def _arrays(field: Field) -> dict[str, Any]:
    """Return arrays of three axes by name."""
    mesh = field.mesh
    batch = field.values.shape[: field.values.ndim - mesh.ndim]
    nodes = (*mesh.shape, *(1,) * (3 - mesh.ndim))
    flat = field.values.reshape(math.prod(batch), *nodes)
    arrays: dict[str, Any] = {}
    for number, part in enumerate(flat):
        name = f"{field.name}_{number}" if batch else field.name
        if np.iscomplexobj(part):
            arrays |= {f"{name}_real": part.real.copy(), f"{name}_imag": part.imag.copy()}
        else:
            arrays[name] = part
    return {name: np.asfortranarray(array) for name, array in arrays.items()}
