# SPDX-License-Identifier: BSD-3-Clause
"""The layout of openPMD, version 1.1, in HDF5: root, iterations, and meshes.

Attributes ``particlemesh_*`` have what the standard has no word for: lattice vectors and which axes repeat.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from particlemesh import Box, Mesh

LABELS = ("x", "y", "z")


def text(value: Any) -> str:
    """Return text that HDF5 has as bytes or as characters."""
    return value.decode() if isinstance(value, bytes) else str(value)


def groups(file: Any, iteration: int) -> dict[str, Any]:
    """Return the groups ``meshes`` and ``particles`` of an iteration, those that are there."""
    names = sorted(file["data"], key=lambda name: (int(name) if name.isdecimal() else -1, name))
    here = file["data"][names[iteration]]
    found = {}
    for kind in ("meshes", "particles"):
        path = text(file.attrs.get(f"{kind}Path", kind)).strip("/")
        if path in here:
            found[kind] = here[path]
    return found


def start(file: Any) -> Any:
    """Write the root and one iteration; return the group of its meshes."""
    import particlemesh

    file.attrs.update(
        openPMD="1.1.0", openPMDextension=np.uint32(0), basePath="/data/%T/", meshesPath="meshes/",
        iterationEncoding="groupBased", iterationFormat="/data/%T/", software="particlemesh",
        softwareVersion=particlemesh.__version__,
    )  # fmt: skip
    iteration = file.create_group("data/0")
    iteration.attrs.update(time=0.0, dt=1.0, timeUnitSI=1.0)
    return iteration.create_group("meshes")


def put_mesh(meshes: Any, name: str, values: np.ndarray, mesh: Mesh) -> None:
    """Write a field (..., *mesh.shape); batch axes become components."""
    batch = values.shape[: values.ndim - mesh.ndim]
    if batch:
        record = meshes.create_group(name)
        count = math.prod(batch)
        labels = LABELS[:count] if count == mesh.ndim else tuple(map(str, range(count)))
        flat = values.reshape(count, *mesh.shape)
        components = [record.create_dataset(label, data=part) for label, part in zip(labels, flat, strict=True)]
    else:
        record = meshes.create_dataset(name, data=values)
        components = [record]
    whole = np.floor(mesh.offset)  # the standard's positions within a cell are 0 to 1
    for component in components:
        component.attrs.update(unitSI=1.0, position=np.array(mesh.offset) - whole)
    box = mesh.box
    record.attrs.update(
        geometry="cartesian" if box.orthorhombic else "other", dataOrder="C", axisLabels=list(LABELS[: mesh.ndim]),
        gridSpacing=mesh.spacing, gridGlobalOffset=box.origin + whole * mesh.spacing, gridUnitSI=1.0,
        unitDimension=np.zeros(7), timeOffset=np.float64(0),
        particlemesh_box=box.matrix.ravel(), particlemesh_origin=box.origin,
        particlemesh_periodic=np.array(box.periodic, np.uint8),
        particlemesh_offset=mesh.offset,
    )  # fmt: skip
    if batch:
        record.attrs["particlemesh_batch"] = batch
    if not box.orthorhombic:
        record.attrs["geometryParameters"] = "triclinic: particlemesh_box has the lattice vectors"


def components_of(record: Any) -> list[Any]:
    """Return the datasets of a mesh; those of a vector in the order of its axes, or of their numbers."""
    if not hasattr(record, "keys"):
        return [record]
    labels = [text(label) for label in record.attrs.get("axisLabels", ())]

    def place(name: str) -> tuple[int, str]:
        return (labels.index(name) if name in labels else int(name) if name.isdecimal() else len(labels), name)

    return [record[name] for name in sorted(record, key=place)]


def mesh_of(record: Any) -> Mesh:
    """Return the mesh of a record; axes repeat if the file does not say whether they do.

    Raises
    ------
    ValueError, KeyError
        If its geometry is not known here, or an attribute is missing.
    """
    first, has = components_of(record)[0], record.attrs
    if "particlemesh_box" in has:
        periodic = [bool(p) for p in has["particlemesh_periodic"]]
        matrix = np.reshape(has["particlemesh_box"], (len(periodic),) * 2)
        box = Box(matrix, origin=has["particlemesh_origin"], periodic=periodic)
        return Mesh(first.shape, box, offset=has["particlemesh_offset"])
    geometry, order = text(has["geometry"]), text(has.get("dataOrder", "C"))
    if geometry != "cartesian" or order != "C":
        raise ValueError(f"a mesh has geometry {geometry} and data order {order}; cartesian and C are needed")
    labels = [text(label) for label in np.ravel(has.get("axisLabels", []))]
    if labels != sorted(labels):
        raise ValueError(f"a mesh has the axes {', '.join(labels)}; x, y, z in this order are needed")
    unit = float(has.get("gridUnitSI", 1.0))
    spacing, corner = unit * np.asarray(has["gridSpacing"]), unit * np.asarray(has["gridGlobalOffset"])
    offset = np.ravel(first.attrs.get("position", 0.0))  # one number stands for all axes
    return Mesh(first.shape, spacing * first.shape, origin=corner, offset=offset if offset.size > 1 else offset[0])
