# SPDX-License-Identifier: BSD-3-Clause
"""Fields with labels: xarray's DataArray with the coordinates of the nodes, and back to a mesh."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from particlemesh.adapters import check, library
from particlemesh.box import Box
from particlemesh.mesh import Mesh

__all__ = ["from_xarray", "to_xarray"]

_CARTESIAN, _LATTICE = ("x", "y", "z"), ("a", "b", "c")


def to_xarray(
    mesh: Mesh,
    field: Any,
    *,
    name: str | None = None,
    units: str | None = None,
    length_units: str | None = None,
    dims: Sequence[str] = (),
) -> Any:
    """Return a field as a DataArray whose coordinates are those of the nodes.

    Axes are called x, y and z. In a triclinic box they are called a, b and c, and their coordinates are distances along
    the lattice vectors. The attributes hold the box, so that :func:`from_xarray` returns the mesh.

    Parameters
    ----------
    mesh : Mesh
        If the field has ghosts, they are labelled. A part of a mesh has the coordinates of its nodes, but cannot
        be read back as a mesh.
    field : array (..., *mesh.shape) or (..., *mesh.field_shape)
        Of NumPy, or of a library that xarray wraps. It is not copied.
    name, units, length_units : str, optional
        The name and the unit of the field, and the unit of lengths. xarray and its plots show them.
    dims : sequence of str
        Names of the batch axes, which come first; by default batch0, batch1, ...

    Returns
    -------
    xarray.DataArray

    Raises
    ------
    ImportError
        If xarray is not installed.
    ValueError
        If the field has not the mesh's shape, or the names are not those of its batch axes.

    Examples
    --------
    >>> import numpy as np, particlemesh as pm
    >>> from particlemesh.adapters.xarray import from_xarray, to_xarray
    >>> mesh = pm.Mesh((2, 3), (1.0, 3.0))
    >>> field = to_xarray(mesh, np.arange(6.0).reshape(2, 3), name="density", units="e/nm²", length_units="nm")
    >>> field.sel(y=1.0).values, field.y.attrs["units"]
    (array([1., 4.]), 'nm')
    >>> back, values = from_xarray(field.T)
    >>> back == mesh, values[1]
    (True, array([3., 4., 5.]))
    """
    xarray = library("xarray", "xarray", "a DataArray")
    shape = tuple(np.shape(field))
    core = shape[max(0, len(shape) - mesh.ndim) :]
    ghosts = core != mesh.shape
    if core not in (mesh.shape, mesh.field_shape):
        raise ValueError(f"field has shape {shape}; its last axes must be {mesh.shape}, the nodes of {mesh!r}.")
    batch = shape[: len(shape) - mesh.ndim]
    given = tuple(dims) or tuple(f"batch{n}" for n in range(len(batch)))
    labels = (_CARTESIAN if mesh.box.orthorhombic else _LATTICE)[: mesh.ndim]
    if len(given) != len(batch) or len({*given, *labels}) != len(given) + len(labels):
        raise ValueError(f"dims is {given}; give {len(batch)} names of batch axes, all different and none of {labels}.")
    along = {"units": length_units} if length_units else {}
    coordinates = {
        label: (label, mesh.nodes(axis, ghosts=ghosts), {**along, "periodic": int(mesh.periodic[axis])})
        for axis, label in enumerate(labels)
    }
    attributes: dict[str, Any] = {} if units is None else {"units": units}
    if not mesh.is_part and not ghosts:
        attributes |= _description(mesh)
    return xarray.DataArray(field, coordinates, (*given, *labels), name=name, attrs=attributes)


def from_xarray(array: Any) -> tuple[Mesh, Any]:
    """Return the mesh and the field of a DataArray, or of a Dataset with one variable.

    One of :func:`to_xarray` holds its mesh in its attributes. Of any other, the coordinates must be evenly spaced, and
    the box is then open with nodes at the centres of cells. Coordinates in float32 are rounded, and so is this box: its
    origin and spacing have seven digits.

    Parameters
    ----------
    array : xarray.DataArray or xarray.Dataset
        In any order of its axes. Axes called x, y, z or a, b, c are those of the mesh, in alphabetical order. If no
        axis has such a name, all axes with coordinates are, in their order.

    Returns
    -------
    mesh : Mesh
        Without ghosts.
    field : array (..., *mesh.shape)
        A view of the array's data where its axes are in this order.

    Raises
    ------
    ValueError
        If an axis has no evenly spaced coordinates, the attributes describe other nodes than the coordinates, or a
        Dataset has not one variable.
    TypeError
        If it is neither a DataArray nor a Dataset.

    Examples
    --------
    >>> import numpy as np
    >>> import xarray
    >>> from particlemesh.adapters.xarray import from_xarray
    >>> rows = xarray.DataArray(np.ones((2, 4)), {"depth": [10.0, 20.0], "east": [0.0, 1.0, 2.0, 3.0]})
    >>> mesh, field = from_xarray(rows)
    >>> mesh
    Mesh((2, 4), Box((20.0, 4.0), origin=(5.0, -0.5), periodic=(False, False)), offset=(0.5, 0.5))
    """
    array = _variable(array)
    names = [name for name in (*_CARTESIAN, *_LATTICE) if name in array.dims]
    names = names or [name for name in array.dims if name in array.coords]
    if not 1 <= len(names) <= 3:
        raise ValueError(f"the array has dims {array.dims}; one to three axes with coordinates are needed.")
    nodes = [np.asarray(array.coords[name].values) if name in array.coords else np.empty(0) for name in names]
    ordered = array.transpose(*(name for name in array.dims if name not in names), *names)
    if "mesh_box" in array.attrs:
        mesh = _described(array.attrs, tuple(ordered.shape[-len(names) :]))
        same = all(_same(mesh.nodes(axis), x, mesh.box.lengths[axis]) for axis, x in enumerate(nodes))
    else:
        mesh, same = _of_coordinates(names, nodes), True
    if not same:
        raise ValueError(
            "the coordinates are not those of the mesh in the attributes: delete the attribute 'mesh_box'."
        )
    return mesh, ordered.data


def _variable(array: Any) -> Any:
    """Return a DataArray, or the only variable of a Dataset."""
    variables = getattr(array, "data_vars", None)
    if variables is not None:
        if len(variables) != 1:
            listed = ", ".join(map(repr, variables)) or "none"
            raise ValueError(f"the Dataset has {len(variables)} variables ({listed}): give one of them, dataset[name].")
        return next(iter(variables.values()))
    check(array, ("dims", "coords", "transpose", "attrs"), "an xarray.DataArray or Dataset")
    return array


def _same(nodes: np.ndarray, x: np.ndarray, length: float) -> bool:
    return x.shape == nodes.shape and np.allclose(nodes, x, rtol=0, atol=1e-9 * length + _rounding(x))


def _rounding(x: np.ndarray) -> float:
    """Return a bound of the rounding of coordinates in their type."""
    if x.dtype.kind != "f" or not x.size:
        return 0.0
    return 4 * float(np.finfo(x.dtype).eps) * float(np.abs(x).max())


# Attributes of netCDF are numbers and rows of numbers.
def _description(mesh: Mesh) -> dict[str, Any]:
    return {
        "mesh_box": mesh.box.matrix.ravel().tolist(),
        "mesh_origin": mesh.box.origin.tolist(),
        "mesh_periodic": [int(flag) for flag in mesh.periodic],
        "mesh_offset": list(mesh.offset),
        "mesh_shape": list(mesh.shape),
    }


def _described(attributes: Any, shape: tuple[int, ...]) -> Mesh:
    d = len(shape)
    rows, origin, periodic, offset = (
        np.atleast_1d(attributes.get(f"mesh_{name}", [])) for name in ("box", "origin", "periodic", "offset")
    )
    if (len(rows), len(origin), len(periodic), len(offset)) != (d * d, d, d, d):
        raise ValueError(f"the attributes mesh_box, ... are not those of a {d}-D mesh: delete 'mesh_box'.")
    if "mesh_shape" in attributes and tuple(np.atleast_1d(attributes["mesh_shape"])) != shape:
        raise ValueError(f"the attributes describe a mesh {attributes['mesh_shape']}, not {shape}: delete 'mesh_box'.")
    box = Box(rows.reshape(d, d), origin, [bool(flag) for flag in periodic])
    return Mesh(shape, box, offset=[float(x) for x in offset])


def _of_coordinates(names: list[Any], nodes: list[np.ndarray]) -> Mesh:
    origin, lengths = [], []
    for name, x in zip(names, nodes, strict=True):
        error = _rounding(x)
        x = np.asarray(x, np.float64) if x.dtype.kind in "iuf" and x.ndim == 1 and len(x) else np.zeros(1)
        step = float(x[-1] - x[0]) / max(1, len(x) - 1)
        even = step > 4 * error and np.isfinite(x).all()
        if not (even and np.allclose(np.diff(x), step, rtol=1e-6, atol=2 * error)):
            raise ValueError(f"coordinate {name!r} is not of two or more numbers that ascend in equal steps.")
        origin.append(float(x[0]) - step / 2)
        lengths.append(step * len(x))
    shape = tuple(len(x) for x in nodes)
    return Mesh(shape, Box(lengths, origin, periodic=False), offset=0.5)
