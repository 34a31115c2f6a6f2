# SPDX-License-Identifier: BSD-3-Clause
"""Fields in files. ``FORMATS`` lists the formats; the ending of a file's name selects one."""

from __future__ import annotations

import math
import warnings
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from particlemesh import Box, Mesh
from particlemesh.apps.files import hdf5
from particlemesh.apps.files.boxes import lattice
from particlemesh.apps.files.libraries import (
    FileError,
    Format,
    by_ending,
    endings,
    errors_name_file,
    listing,
)  # fmt: skip
from particlemesh.apps.files.openpmd import components_of, groups, mesh_of, put_mesh, start, values_of
from particlemesh.apps.files.replacing import check_free, replacing
from particlemesh.kernels import checks


class Field(NamedTuple):
    """A field and its nodes.

    Examples
    --------
    >>> import numpy as np, particlemesh as pm
    >>> from particlemesh.apps.files import Field
    >>> field = Field(np.full((2, 3), 4.0), pm.Mesh((2, 3), (1.0, 1.0)))
    >>> field.name, float(field.values.sum())
    ('field', 24.0)
    """

    values: np.ndarray  # (..., *mesh.shape)
    mesh: Mesh
    name: str = "field"


class FieldFormat(Format):
    """A format of fields. What it cannot hold, ``declines`` says before anything is computed."""

    kind = "a field "
    reads: ClassVar[bool] = True

    @classmethod
    def declines(cls, mesh: Mesh, batch: tuple[int, ...]) -> str | None:
        """Return why the format cannot hold such a field, and what to do; None if it can."""
        return None

    @classmethod
    def write(cls, path: Path, field: Field) -> None:
        """Write a field to a new file."""
        raise NotImplementedError

    @classmethod
    def read(cls, path: Path) -> Field:
        """Return the first field of a file."""
        raise NotImplementedError


class NPZ(FieldFormat):
    """NumPy's archives hold everything: the field under its name, and the arguments of its mesh."""

    suffixes = (".npz",)
    settings = ("shape", "box", "origin", "periodic", "offset")

    @classmethod
    def write(cls, path: Path, field: Field) -> None:
        mesh, box = field.mesh, field.mesh.box
        values = (mesh.shape, box.matrix, box.origin, box.periodic, mesh.offset)
        name = f"field_{field.name}" if field.name in (*cls.settings, "file") else field.name
        arrays: dict[str, Any] = {name: field.values, **dict(zip(cls.settings, values, strict=True))}
        np.savez(path, **arrays)

    @classmethod
    def read(cls, path: Path) -> Field:
        # NumPy leaves a file open that it cannot read.
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            missing = [name for name in cls.settings if name not in arrays.files]
            if missing:
                raise ValueError(f"it lacks {', '.join(missing)}, which fields have: was it written by write_field?")
            shape, rows, origin, periodic, offset = settings = [arrays[name] for name in cls.settings]
            if any(array.size > 64 for array in settings):
                raise ValueError("shape, box, origin, periodic or offset has more than 64 numbers")
            mesh = Mesh([int(n) for n in shape], Box(rows, origin, [bool(p) for p in periodic]), offset=offset)
            names = [name for name in arrays.files if name not in cls.settings]
            if len(names) != 1:
                raise ValueError(f"it has {', '.join(names) or 'nothing'} beside its mesh; one field is needed")
            return Field(arrays[names[0]], mesh, names[0])


class OpenPMD(FieldFormat):
    """openPMD 1.1 in HDF5 holds everything; components of a batch are datasets of their own."""

    suffixes = (".h5", ".hdf5")
    module = "h5py"
    note = "openPMD"

    @classmethod
    def write(cls, path: Path, field: Field) -> None:
        with hdf5.sealing(cls.load(), path, hdf5.MARK) as file:
            batch = field.values.shape[: field.values.ndim - field.mesh.ndim]
            flat = field.values.reshape(-1, *field.mesh.shape)
            put_mesh(
                start(file), field.name, batch, field.mesh, lambda at, label, n: at.create_dataset(label, data=flat[n])
            )

    @classmethod
    def read(cls, path: Path) -> Field:
        with hdf5.opened(path) as file:
            record, name = cls.record(file)
            (mesh, axes), components = mesh_of(record), components_of(record)
            parts = [np.ascontiguousarray(values_of(part).transpose(axes)) for part in components]
            if any(part.shape != mesh.shape for part in parts):
                raise FileError(f"the components of {name} have different shapes")
            scalar = components[0] is record
            values = parts[0] if scalar else np.stack(parts).reshape(*cls.batch(record, parts), *mesh.shape)
            return Field(values, mesh, name)

    @staticmethod
    def record(file: Any) -> tuple[Any, str]:
        """Return the first mesh of the last iteration, and its name."""
        if "openPMD" not in file.attrs or not len(file["data"]):
            raise FileError("it is no file of openPMD, as fields are: was it written by write_field?")
        meshes = groups(file, -1).get("meshes", {})
        if not len(meshes):
            raise FileError("its last iteration has no meshes")
        name = next(iter(meshes))
        places = {tuple(np.ravel(part.attrs.get("position", 0.0))) for part in components_of(meshes[name])}
        if len(places) > 1:
            raise FileError(f"the components of {name} are at different places of a cell; one mesh has one place")
        return meshes[name], name

    @staticmethod
    def batch(record: Any, components: list[Any]) -> tuple[int, ...]:
        """Return the batch axes of a field with several components."""
        return tuple(int(n) for n in record.attrs.get("particlemesh_batch", [len(components)]))


class VTI(FieldFormat):
    """VTK's image data, which ParaView and PyVista show: a rectangular mesh.

    Complex values are two arrays, components one array each.
    """

    suffixes = (".vti",)
    module = "pyevtk.hl"
    reads = False

    @classmethod
    def declines(cls, mesh: Mesh, batch: tuple[int, ...]) -> str | None:
        if not mesh.box.orthorhombic:
            return "a field .vti has a rectangular mesh, and this box is triclinic: write .h5 or .npz."
        return None

    @classmethod
    def write(cls, path: Path, field: Field) -> None:
        mesh, more = field.mesh, 3 - field.mesh.ndim
        origin = mesh.box.origin + np.array(mesh.offset) * mesh.spacing
        arrays: dict[str, np.ndarray] = {}
        is_scalar = field.values.ndim == mesh.ndim
        for number, part in enumerate(field.values.reshape(-1, *mesh.shape, *(1,) * more)):
            name = field.name if is_scalar else f"{field.name}_{number}"
            if np.iscomplexobj(part):
                arrays |= {f"{name}_real": part.real.copy(), f"{name}_imag": part.imag.copy()}
            else:
                arrays[name] = part
        cls.load().imageToVTK(
            str(path.with_suffix("")), (*origin.tolist(), *(0.0,) * more), (*mesh.spacing.tolist(), *(1.0,) * more),
            pointData={name: np.asfortranarray(array) for name, array in arrays.items()},
        )  # fmt: skip


class MRC(FieldFormat):
    """Maps of electron microscopy, which ChimeraX, VMD and PyMOL show: 3 axes, single precision, lengths in Å.

    The cell is that of nodes times spacing. A reader turns any triclinic cell so that a is along x and b in the plane
    of x and y. So only such boxes are written. A label has which axes repeat and where the first node is; of files
    without it all axes repeat.
    """

    suffixes = (".mrc", ".map")
    module = "mrcfile"
    label = "particlemesh mesh"  # before a flag and an offset for each axis

    @classmethod
    def declines(cls, mesh: Mesh, batch: tuple[int, ...]) -> str | None:
        if mesh.ndim != 3 or batch:
            components = f" and {math.prod(batch)} components" if batch else ""
            return f"a field .mrc has 3 axes and one value per node, this one {mesh.ndim} axes{components}: write .h5."
        rows = mesh.box.matrix
        if np.triu(rows, 1).any() or (np.diagonal(rows) <= 0).any():
            return "a field .mrc has a along x and b in the plane of x and y: turn the box, or write .h5."
        return None

    @classmethod
    def write(cls, path: Path, field: Field) -> None:
        mesh = field.mesh
        steps = mesh.box.matrix / np.linalg.norm(mesh.box.matrix, axis=1)[:, None] * mesh.spacing[:, None]
        with np.errstate(over="ignore"):
            values = field.values.astype(np.complex64 if np.iscomplexobj(field.values) else np.float32)
        if not np.isfinite(values).all():
            most = abs(field.values).max()
            raise ValueError(
                f"a field .mrc has finite numbers in single precision, this one up to {most:.3g}: write .h5"
            )
        with cls.load().new(path) as file:
            file.set_data(np.ascontiguousarray(values.T))  # x is fastest
            file.set_volume()
            a, b, c = steps * np.array(mesh.shape)[:, None]
            file.header.cella = tuple(np.linalg.norm((a, b, c), axis=1))
            file.header.cellb = tuple(_angle(u, v) for u, v in ((b, c), (a, c), (a, b)))
            file.header.origin = tuple(mesh.box.origin + np.array(mesh.offset) @ steps)
            axes = zip(mesh.periodic, mesh.offset, strict=True)
            file.add_label(f"{cls.label} {' '.join(f'{repeats:d} {at:.6g}' for repeats, at in axes)}")

    @classmethod
    def read(cls, path: Path) -> Field:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # what is wrong with a file is an error here
            with cls.load().open(path, mode="r") as file:
                if not file.is_volume():
                    raise ValueError("it is no volume")
                head = file.header
                if (head.mapc, head.mapr, head.maps) != (1, 2, 3):
                    raise ValueError(
                        f"its axes are in the order {head.mapc}, {head.mapr}, {head.maps}; 1, 2, 3 is read"
                    )
                values = np.ascontiguousarray(file.data.T)
                lengths, angles, origin = (np.array(head[name].tolist()) for name in ("cella", "cellb", "origin"))
                sampling = np.array([head.mx, head.my, head.mz], np.float64)
                first = np.array([head.nxstart, head.nystart, head.nzstart], np.float64)
                labels = [label.decode("ascii", "replace").split() for label in head.label]
        flags = [words[2:] for words in labels if words[:2] == cls.label.split()]
        by_axis = np.array(flags[0] if flags else (1, 0) * 3, np.float64).reshape(3, 2)
        periodic, offset = by_axis[:, 0].astype(bool), by_axis[:, 1]
        matrix = lattice(lengths * values.shape / sampling, angles)
        corner = origin + ((first - offset) / values.shape) @ matrix
        spaces = np.array(values.shape) - (~periodic & (offset == 0))  # an open axis may have nodes on both faces
        matrix *= (spaces / values.shape)[:, None]
        box = np.diagonal(matrix) if not (matrix - np.diag(np.diagonal(matrix))).any() else matrix
        mesh = Mesh(values.shape, Box(box, origin=corner, periodic=periodic.tolist()), offset=offset.tolist())
        return Field(values, mesh, path.stem)


def _angle(u: np.ndarray, v: np.ndarray) -> float:
    return math.degrees(math.acos(np.clip(u @ v / np.linalg.norm(u) / np.linalg.norm(v), -1, 1)))


FORMATS: tuple[type[FieldFormat], ...] = (NPZ, OpenPMD, VTI, MRC)
READ = tuple(form for form in FORMATS if form.reads)


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

    Examples
    --------
    >>> import tempfile, numpy as np, particlemesh as pm
    >>> from particlemesh.apps.files import check_field, read_field, write_field
    >>> mesh = pm.Mesh((4, 4), (1.0, 2.0))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     check_field(f"{folder}/field.npz", mesh)  # before a long computation
    ...     write_field(f"{folder}/field.npz", np.ones((4, 4)), mesh)
    ...     total = read_field(f"{folder}/field.npz").values.sum()
    >>> total
    np.float64(16.0)
    """
    form = by_ending(FORMATS, path, f"out is {str(path)!r}; give a name that ends in")
    if any(any(ends) for ends in mesh.ghosts) or mesh.is_part:
        raise ValueError("the mesh has ghosts or is a part of another one: fold ghosts, and write the whole mesh.")
    form.load()
    reason = form.declines(mesh, tuple(batch))
    if reason is not None:
        raise ValueError(reason)
    check_free(path, overwrite)


@listing(ENDINGS=FORMATS)
def write_field(path: Any, field: Any, mesh: Mesh, *, name: str = "field", overwrite: bool = False) -> None:
    """Write a field in the format of the file's ending: ENDINGS.

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
    with replacing(path, overwrite) as part:
        by_ending(FORMATS, path, "").write(part, Field(values, mesh, name))


@listing(ENDINGS=READ)
def read_field(path: Any) -> Field:
    """Return the field of a file that `write_field` or another program has written: ENDINGS.

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

    Examples
    --------
    >>> import tempfile, numpy as np, particlemesh as pm
    >>> from particlemesh.apps.files import read_field, write_field
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_field(f"{folder}/field.npz", np.arange(4.0), pm.Mesh(4, 2.0))
    ...     field = read_field(f"{folder}/field.npz")
    >>> field.values, field.mesh.box.lengths
    (array([0., 1., 2., 3.]), array([2.]))
    """
    path = Path(path)
    form = by_ending(FORMATS, path, f"field is {str(path)!r}; give a name that ends in")
    if not form.reads:
        raise ValueError(f"{path} is for programs that show it; fields are read from {endings(READ)}.")
    if not path.is_file():
        raise ValueError(f"{path} does not exist, or is no file.")
    form.load()
    with errors_name_file(path, "a field "):
        field = form.read(path)
        values, nodes = np.asarray(field.values), field.mesh.shape
        if values.dtype.kind not in "iufc" or values.shape[-len(nodes) :] != nodes:
            raise FileError(f"it has values {values.shape} of {values.dtype} on nodes {nodes}")
    return field
