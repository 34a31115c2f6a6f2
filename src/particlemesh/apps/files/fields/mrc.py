# SPDX-License-Identifier: BSD-3-Clause
"""Maps of electron microscopy, which ChimeraX, VMD and PyMOL show."""

from __future__ import annotations

import math
import warnings
from pathlib import Path

import numpy as np

from particlemesh import Box, Mesh
from particlemesh.apps.files.fields.field import Field, Format
from particlemesh.apps.files.lattice import lattice
from particlemesh.apps.files.libraries import library
from particlemesh.apps.files.replacing import replacing

LABEL = "particlemesh mesh"  # before a flag and an offset for each axis


class MRC(Format):
    """One field of three axes in single precision; lengths are Å to its readers.

    The cell is that of nodes times spacing. A reader turns any triclinic cell so that a is along x and b in the plane
    of x and y. So only such boxes are written. A label has which axes repeat and where the first node is; of files
    without it all axes repeat.
    """

    suffixes = (".mrc", ".map")

    @classmethod
    def declines(cls, mesh: Mesh, batch: tuple[int, ...], dtype: np.dtype) -> str | None:
        library("mrcfile", "a field .mrc", "files")
        if mesh.ndim != 3 or batch:
            components = f" and {math.prod(batch)} components" if batch else ""
            return f"a field .mrc has 3 axes and one value per node, this one {mesh.ndim} axes{components}: write .h5."
        rows = mesh.box.matrix
        if np.triu(rows, 1).any() or (np.diagonal(rows) <= 0).any():
            return "a field .mrc has a along x and b in the plane of x and y: turn the box, or write .h5."
        return None

    @classmethod
    def write(cls, path: Path, field: Field, overwrite: bool) -> None:
        mrcfile = library("mrcfile", "a field .mrc", "files")
        mesh = field.mesh
        steps = mesh.box.matrix / np.linalg.norm(mesh.box.matrix, axis=1)[:, None] * mesh.spacing[:, None]
        origin = mesh.box.origin + np.array(mesh.offset) @ steps
        with np.errstate(over="ignore"):
            values = field.values.astype(np.complex64 if np.iscomplexobj(field.values) else np.float32)
        if not np.isfinite(values).all():
            most = abs(field.values).max()
            raise ValueError(
                f"a field .mrc has finite numbers in single precision, this one up to {most:.3g}: write .h5"
            )
        with replacing(path, overwrite) as part, mrcfile.new(part) as file:
            file.set_data(np.ascontiguousarray(values.T))  # x is fastest
            file.set_volume()
            a, b, c = steps * np.array(mesh.shape)[:, None]
            file.header.cella = tuple(np.linalg.norm((a, b, c), axis=1))
            file.header.cellb = tuple(_angle(u, v) for u, v in ((b, c), (a, c), (a, b)))
            file.header.origin = tuple(origin)
            file.add_label(f"{LABEL} {' '.join(f'{p:d} {at:.6g}' for p, at in zip(mesh.periodic, mesh.offset))}")  # noqa: B905

    @classmethod
    def read(cls, path: Path) -> Field:
        mrcfile = library("mrcfile", "a field .mrc", "files")
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # what is wrong with a file is an error here
            with mrcfile.open(path, mode="r") as file:
                if not file.is_volume():
                    raise ValueError("it is no volume")
                head = file.header
                if (head.mapc, head.mapr, head.maps) != (1, 2, 3):
                    raise ValueError(
                        f"its axes are in the order {head.mapc}, {head.mapr}, {head.maps}; 1, 2, 3 is read"
                    )
                values = np.ascontiguousarray(file.data.T)
                lengths = np.array([head.cella.x, head.cella.y, head.cella.z], np.float64)
                sampling = np.array([head.mx, head.my, head.mz], np.float64)
                angles = np.array([head.cellb.alpha, head.cellb.beta, head.cellb.gamma], np.float64)
                origin = np.array([head.origin.x, head.origin.y, head.origin.z], np.float64)
                first = np.array([head.nxstart, head.nystart, head.nzstart], np.float64)
                labels = [label.decode("ascii", "replace").split() for label in head.label]
        flags = [words[2:] for words in labels if words[:2] == LABEL.split()]
        said = np.array(flags[0] if flags else (1, 0) * 3, np.float64).reshape(3, 2)
        periodic, offset = said[:, 0].astype(bool), said[:, 1]
        matrix = lattice(lengths * values.shape / sampling, angles)
        corner = origin + ((first - offset) / values.shape) @ matrix
        spaces = np.array(values.shape) - (~periodic & (offset == 0))  # an open axis may have nodes on both faces
        matrix *= (spaces / values.shape)[:, None]
        box = np.diagonal(matrix) if not (matrix - np.diag(np.diagonal(matrix))).any() else matrix
        mesh = Mesh(values.shape, Box(box, origin=corner, periodic=periodic.tolist()), offset=offset.tolist())
        return Field(values, mesh, path.stem)


def _angle(u: np.ndarray, v: np.ndarray) -> float:
    return math.degrees(math.acos(np.clip(u @ v / np.linalg.norm(u) / np.linalg.norm(v), -1, 1)))
