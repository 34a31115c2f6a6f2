# SPDX-License-Identifier: BSD-3-Clause
"""The layout of openPMD, version 1.1, in HDF5: root, iterations, and meshes.

Attributes ``particlemesh_*`` have what the standard has no word for: lattice vectors and which axes repeat.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from particlemesh import Box, Mesh
from particlemesh.apps.files.libraries import FileError

LABELS = ("x", "y", "z", "r", "t")  # of axes, in the order of components
BOUNDARIES = ("particleBoundary", "fieldBoundary")


def text(value: Any) -> str:
    """Return text that HDF5 has as bytes or as characters."""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def texts(values: Any) -> list[str]:
    """Return several texts, or one, without what pads them."""
    return [text(value).strip("\0 ") for value in np.ravel(values)]


def groups(file: Any, iteration: int) -> dict[str, Any]:
    """Return the groups ``meshes`` and ``particles`` of an iteration, those that are there."""
    names = sorted(file["data"], key=lambda name: (int(name) if name.isdecimal() else -1, name))
    here = file["data"][names[iteration]]
    by_kind = {}
    for kind in ("meshes", "particles"):
        path = text(file.attrs.get(f"{kind}Path", kind)).strip("/")
        if path in here:
            by_kind[kind] = here[path]
    return by_kind


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


def put_mesh(
    meshes: Any, name: str, batch: tuple[int, ...], mesh: Mesh, put: Callable[[Any, str, int], Any]
) -> None:  # fmt: skip
    """Write a field; batch axes become components, and ``put(group, label, n)`` makes the dataset of each."""
    if batch:
        record = meshes.create_group(name)
        count = math.prod(batch)
        labels = LABELS[:count] if count == mesh.ndim else tuple(map(str, range(count)))
        components = [put(record, label, n) for n, label in enumerate(labels)]
    else:
        record = put(meshes, name, 0)
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
    meshes.attrs["fieldBoundary"] = [word for p in box.periodic for word in ("periodic" if p else "open",) * 2]
    if batch:
        record.attrs["particlemesh_batch"] = batch
    if not box.orthorhombic:
        record.attrs["geometryParameters"] = "triclinic: particlemesh_box has the lattice vectors"


def components_of(record: Any) -> list[Any]:
    """Return the components of a record in the order of axes or of their numbers; a scalar is its own component."""
    if not hasattr(record, "keys") or "value" in record.attrs:
        return [record]

    def place(name: str) -> tuple[int, str]:
        return (LABELS.index(name) if name in LABELS else int(name) if name.isdecimal() else len(LABELS), name)

    return [record[name] for name in sorted(record, key=place)]


def shape_of(component: Any) -> tuple[int, ...]:
    """Return the shape of a component; one that is a group has the same value at all nodes."""
    return tuple(map(int, component.attrs["shape"])) if hasattr(component, "keys") else component.shape


def values_of(component: Any, here: Any = ()) -> np.ndarray:
    """Return the values of a component, or some of them, in SI units; those without a unit in their own type."""
    unit = float(component.attrs.get("unitSI", 1.0))
    constant = hasattr(component, "keys")
    values = np.full(shape_of(component), component.attrs["value"])[here] if constant else component[here]
    return values if unit == 1 else values * unit


def mesh_of(record: Any) -> tuple[Mesh, tuple[int, ...]]:
    """Return the mesh of a record, and the axes of its datasets in the order x, y, z."""
    has, shape = record.attrs, shape_of(_first(record))
    if "particlemesh_box" in has:
        return Mesh(shape, _own_box(has), offset=has["particlemesh_offset"]), tuple(range(len(shape)))
    grid = _grid(record, "fieldBoundary")
    ends = [0 if repeats or at else 1 for repeats, at in zip(grid.periodic, grid.offset, strict=True)]
    lengths = grid.spacing * (np.array(grid.nodes) - ends)  # an open axis may have nodes on both faces
    return Mesh(grid.nodes, Box(lengths, origin=grid.corner, periodic=grid.periodic), offset=grid.offset), grid.axes


def box_of(record: Any) -> tuple[Box, bool]:
    """Return the box of the cells of a mesh with the boundaries of particles, and whether the file says these."""
    if "particlemesh_box" in record.attrs:
        return _own_box(record.attrs), True
    grid = _grid(record, "particleBoundary")
    box = Box(grid.spacing * grid.nodes, origin=grid.corner, periodic=grid.periodic)
    return box, any(name in thing.attrs for thing in (record, record.parent) for name in BOUNDARIES)


def _own_box(has: Any) -> Box:
    periodic = [bool(p) for p in has["particlemesh_periodic"]]
    matrix = np.reshape(has["particlemesh_box"], (len(periodic),) * 2)
    return Box(matrix, origin=has["particlemesh_origin"], periodic=periodic)


def _first(record: Any) -> Any:
    """Return the first component of a mesh."""
    components = components_of(record)
    if not components:
        raise FileError("a mesh has no components")
    return components[0]


class _Grid(NamedTuple):
    """What a mesh says of its nodes, by axis in the order x, y, z."""

    nodes: tuple[int, ...]
    spacing: np.ndarray
    corner: np.ndarray
    offset: np.ndarray
    periodic: list[bool]
    axes: tuple[int, ...]  # of the datasets


def _grid(record: Any, boundary: str) -> _Grid:
    """Return the nodes of a Cartesian mesh.

    Axes repeat unless a boundary is not periodic: the named attribute, or the other one if that is not there. In files
    of Fortran programs attributes are in the opposite order of the datasets' axes.
    """
    has, first = record.attrs, _first(record)
    shape = shape_of(first)
    geometry, order = text(has["geometry"]), text(has.get("dataOrder", "C"))
    if geometry != "cartesian" or order not in ("C", "F"):
        raise FileError(f"a mesh has geometry {geometry} and data order {order}; cartesian and C or F are needed")
    step = -1 if order == "F" else 1
    labels = texts(has.get("axisLabels", LABELS[: len(shape)]))[::step]
    if len(labels) != len(shape) or len(set(labels)) < len(labels):
        raise FileError(f"a mesh has the axes {', '.join(labels)} and {len(shape)} dimensions")
    axes = tuple(sorted(range(len(labels)), key=labels.__getitem__))

    def ordered(numbers: Any) -> np.ndarray:
        row = np.ravel(np.asarray(numbers, np.float64))
        if row.size == 1:  # one number stands for all axes
            row = np.full(len(shape), row[0])
        if row.size != len(shape):
            raise FileError(f"a mesh has {row.size} numbers for its {len(shape)} axes")
        return row[::step][list(axes)]

    if "gridUnitDimension" in has and (np.reshape(has["gridUnitDimension"], (-1, 7)) != np.eye(7)[0]).any():
        raise FileError("a mesh has an axis that is no length")
    unit = ordered(has.get("gridUnitSI", 1.0))
    return _Grid(
        nodes=tuple(shape[axis] for axis in axes), axes=axes, spacing=unit * ordered(has["gridSpacing"]),
        corner=unit * ordered(has["gridGlobalOffset"]), offset=ordered(first.attrs.get("position", 0.0)),
        periodic=ordered(_repeats(record, boundary, len(shape))).astype(bool).tolist(),
    )  # fmt: skip


def _repeats(record: Any, boundary: str, ndim: int) -> list[bool]:
    """Return which axes repeat, in the order of the attributes."""
    for name in sorted(BOUNDARIES, key=lambda name: name != boundary):
        for thing in (record, record.parent):
            if name in thing.attrs:
                ends = [word.lower() == "periodic" for word in texts(thing.attrs[name])]
                pairs = list(zip(ends[::2], ends[1::2], strict=False))
                if len(ends) != 2 * ndim or any(low != high for low, high in pairs):
                    said = ", ".join(texts(thing.attrs[name]))
                    raise FileError(f"{name} is {said}; two ends per axis are needed, of which both repeat or none")
                return [low for low, _ in pairs]
    return [True] * ndim
