# SPDX-License-Identifier: BSD-3-Clause
"""Fields in files. ``FORMATS`` lists the formats; the ending of a file's name selects one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from particlemesh import Mesh
from particlemesh.apps.files.fields.field import Field as Field
from particlemesh.apps.files.fields.field import Format
from particlemesh.apps.files.fields.mrc import MRC
from particlemesh.apps.files.fields.npz import NPZ
from particlemesh.apps.files.fields.openpmd import OpenPMD
from particlemesh.apps.files.fields.vti import VTI
from particlemesh.apps.files.libraries import FileError, blame
from particlemesh.apps.files.replacing import check_free
from particlemesh.kernels import checks

FORMATS: tuple[type[Format], ...] = (NPZ, OpenPMD, VTI, MRC)


def format_of(path: Any, what: str = "out") -> type[Format]:
    """Return the format of a name.

    Raises
    ------
    ValueError
        If no format has its ending.
    """
    suffix = Path(path).suffix.lower()
    for form in FORMATS:
        if suffix in form.suffixes:
            return form
    known = ", ".join(s for form in FORMATS for s in form.suffixes)
    raise ValueError(f"{what} is {str(path)!r}; give a name that ends in {known}.")


def check_field(
    path: Any, mesh: Mesh, batch: tuple[int, ...] = (), dtype: Any = float, overwrite: bool = False
) -> None:
    """Raise what `write_field` would raise for such a field, before there is one.

    Parameters
    ----------
    path : path-like
    mesh : Mesh
    batch : tuple of int
        Batch axes of the field.
    dtype : numpy.dtype
    overwrite : bool

    Raises
    ------
    ImportError, ValueError
        As for `write_field`.
    """
    form = format_of(path)
    if any(any(ends) for ends in mesh.ghosts) or mesh.is_part:
        raise ValueError("the mesh has ghosts or is a part of another one: fold ghosts, and write the whole mesh.")
    reason = form.declines(mesh, tuple(batch), np.dtype(dtype))
    if reason is not None:
        raise ValueError(reason)
    check_free(path, overwrite)


def write_field(path: Any, field: Any, mesh: Mesh, *, name: str = "field", overwrite: bool = False) -> None:
    """Write a field in the format of the file's ending: .npz, .h5 (openPMD), .vti or .mrc.

    The file appears as a whole. After an error there is none, and an older one is as it was.

    Parameters
    ----------
    path : path-like
        A file that does not exist, unless `overwrite`.
    field : NumPy array (..., *mesh.shape)
        Real or complex. Formats .vti and .mrc hold less than the others; .mrc has single precision.
    mesh : Mesh
        Without ghosts.
    name : str
        Name of the field in the file: letters, digits, underscores.
    overwrite : bool
        Whether to replace a file that exists.

    Raises
    ------
    ImportError
        If the format's library is missing: ``pip install 'particlemesh[files]'``.
    ValueError
        If the file exists, no format has its ending, or the format cannot hold the field.
    TypeError
        If the values are no numbers.

    Examples
    --------
    >>> import tempfile, numpy as np, particlemesh as pm
    >>> from particlemesh.apps.files import read_field, write_field
    >>> mesh = pm.Mesh((4, 4), (1.0, 2.0), periodic=(True, False))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_field(f"{folder}/field.npz", np.ones((4, 4)), mesh)
    ...     field = read_field(f"{folder}/field.npz")
    >>> field.mesh == mesh, field.name, float(field.values.sum())
    (True, 'field', 16.0)
    """
    values = checks.number_array(field, "field")
    if values.dtype.kind not in "iufc":
        raise TypeError(f"field has dtype {values.dtype}; numbers are needed.")
    if values.shape[max(0, values.ndim - mesh.ndim) :] != mesh.shape:
        raise ValueError(f"field has shape {values.shape}; (..., {', '.join(map(str, mesh.shape))}) is needed.")
    if not name.isidentifier():
        raise ValueError(f"name is {name!r}; give letters, digits and underscores.")
    check_field(path, mesh, values.shape[: values.ndim - mesh.ndim], values.dtype, overwrite)
    format_of(path).write(Path(path), Field(values, mesh, name), overwrite)


def read_field(path: Any) -> Field:
    """Return the field of a file that `write_field` or another program has written: .npz, .h5 (openPMD) or .mrc.

    Parameters
    ----------
    path : path-like

    Returns
    -------
    Field
        With ``values (..., *mesh.shape)``, ``mesh`` and ``name``. Axes repeat if the file does not say whether they do.

    Raises
    ------
    ImportError
        If the format's library is missing.
    ValueError
        If there is no such file, it is damaged, or it has no field.
    """
    path = Path(path)
    form = format_of(path, "field")
    if not form.reads:
        known = ", ".join(s for form in FORMATS if form.reads for s in form.suffixes)
        raise ValueError(f"{path} is for programs that show it; fields are read from {known}.")
    if not path.is_file():
        raise ValueError(f"{path} does not exist, or is no file.")
    with blame(path, "a field "):
        field = form.read(path)
        values, nodes = np.asarray(field.values), field.mesh.shape
        if values.dtype.kind not in "iufc" or values.shape[-len(nodes) :] != nodes:
            raise FileError(f"it has values {values.shape} of {values.dtype} on nodes {nodes}")
    return field
