# SPDX-License-Identifier: BSD-3-Clause
"""Fields of many ranks in HDF5: each rank writes a file of its own, and one file shows all as a single field.

That one has virtual datasets, which HDF5's library reads as any others. So every program that reads openPMD reads it.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from particlemesh.apps.files import hdf5
from particlemesh.apps.files.fields import OpenPMD, check_field
from particlemesh.apps.files.libraries import FileError, errors_name_file
from particlemesh.apps.files.openpmd import components_of, mesh_of, put_mesh, start, values_of
from particlemesh.apps.files.replacing import replacing
from particlemesh.kernels import checks

if TYPE_CHECKING:  # files of one process do not load it
    import particlemesh.distributed as pmd


def _given(path: Any) -> Path:
    path = Path(path)
    if path.suffix.lower() not in OpenPMD.suffixes:
        raise ValueError(f"path is {str(path)!r}; fields of many ranks are in .h5: give a name that ends so.")
    return path


def _beside(path: Path, rank: int, size: int) -> Path:
    return path.with_name(f"{path.stem}.{rank}-of-{size}{path.suffix}")


def write_field_parts(
    path: Any, field: Any, domain: pmd.Domain, world: pmd.World, *, name: str = "field", overwrite: bool = False
) -> None:
    r"""Write a field of many ranks, all at the same time; every rank calls.

    Each rank writes its nodes to a file beside ``path``: ``density.0-of-4.h5`` beside ``density.h5``. The first rank
    then writes ``path``, in which these are one field. `read_field` reads it, and `read_field_parts` on any number of
    ranks. Keep the files in one folder, which all ranks share.

    Parameters
    ----------
    path : path-like
        A file .h5 that does not exist, unless `overwrite`; the same on every rank.
    field : NumPy array (..., \*part), or tuple with one for each part of this rank
        In one dtype on all ranks.
    domain : particlemesh.distributed.Domain
        Which rank owns which nodes.
    world : particlemesh.distributed.World
    name : str
        Name of the field in the file: letters, digits, underscores.
    overwrite : bool
        Whether to replace files that exist. After an error the older field is lost.

    Raises
    ------
    ImportError
        If h5py is missing: ``pip install 'particlemesh[files]'``.
    ValueError, TypeError
        If a file exists, the ending is another one, or a field has not the shape of its part.
    particlemesh.distributed.RankError
        If another rank raised, or gives another dtype or other leading axes.

    Examples
    --------
    >>> import tempfile, numpy as np, particlemesh as pm
    >>> from particlemesh import distributed as pmd
    >>> from particlemesh.apps.files import read_field, write_field_parts
    >>> world = pmd.World()
    >>> domain = pmd.Domain(pm.Mesh((4, 4), (1.0, 2.0)), world.size)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_field_parts(f"{folder}/field.h5", np.ones((4, 4)), domain, world)
    ...     total = read_field(f"{folder}/field.h5").values.sum()
    >>> float(total)
    16.0
    """
    size = world.size

    def accepted() -> tuple[str, tuple[Path, list[np.ndarray], tuple[int, ...]]]:
        out, parts = _given(path), domain.parts(world.rank)
        several = field if isinstance(field, tuple) and len(parts) > 1 else (field,)
        if len(several) != len(parts):
            raise ValueError(f"field has {len(several)} arrays; this rank has {len(parts)} parts: give one for each.")
        arrays = [np.ascontiguousarray(checks.number_array(one, "field")) for one in several]
        batch = arrays[0].shape[: max(0, arrays[0].ndim - domain.mesh.ndim)]
        for array, part in zip(arrays, parts, strict=True):
            if array.shape != (*batch, *part.shape) or array.dtype.kind not in "iufc":
                raise ValueError(
                    f"field has shape {array.shape} and dtype {array.dtype}; numbers of shape {(*batch, *part.shape)} "
                    "are needed."
                )
        if not name.isidentifier():
            raise ValueError(f"name is {name!r}; give letters, digits and underscores.")
        check_field(out, domain.mesh, batch, arrays[0].dtype, overwrite)
        return f"write_field_parts({str(path)!r}, {arrays[0].dtype} {batch}, {domain!r}, {name})", (out, arrays, batch)

    out, arrays, batch = world.alike(accepted)
    count = math.prod(batch)
    h5py = OpenPMD.load()
    with world.agreement("removing an older file"):
        if world.rank == 0:
            out.unlink(missing_ok=True)
    with (
        world.agreement("a part of a field"), replacing(_beside(out, world.rank, size), overwrite) as mine,
        hdf5.sealing(h5py, mine, hdf5.MARK) as file,
    ):  # fmt: skip
        for n, array in enumerate(arrays):
            file.create_dataset(str(n), data=array.reshape(count, *array.shape[len(batch) :]))
    with world.agreement("a field of parts"):
        if world.rank == 0:

            def virtual(meshes: Any, label: str, component: int) -> Any:
                layout = h5py.VirtualLayout(domain.mesh.shape, arrays[0].dtype)
                for rank in range(size):
                    beside = _beside(out, rank, size).name
                    for n, part in enumerate(domain.parts(rank)):
                        if part.size:
                            source = h5py.VirtualSource(beside, str(n), (count, *part.shape), arrays[0].dtype)
                            layout[tuple(map(slice, part.lower, part.upper))] = source[component]
                return meshes.create_virtual_dataset(label, layout)

            with replacing(out, overwrite) as whole, hdf5.sealing(h5py, whole, hdf5.MARK) as file:
                put_mesh(start(file), name, batch, domain.mesh, virtual)


def read_field_parts(path: Any, domain: pmd.Domain, world: pmd.World) -> Any:
    r"""Read each rank's nodes of a field in HDF5, written on any number of ranks; every rank calls.

    Parameters
    ----------
    path : path-like
        A file .h5 of `write_field_parts`, `write_field` or another program that writes openPMD.
    domain : particlemesh.distributed.Domain
        Of the field's mesh, cut in any way.
    world : particlemesh.distributed.World

    Returns
    -------
    NumPy array (..., \*part), or tuple with one for each part of this rank

    Raises
    ------
    ImportError
        If h5py is missing.
    ValueError
        If there is no such file, it is damaged, or its mesh has other nodes than the domain's.
    particlemesh.distributed.RankError
        If another rank raised.

    Examples
    --------
    >>> import tempfile, numpy as np, particlemesh as pm
    >>> from particlemesh import distributed as pmd
    >>> from particlemesh.apps.files import read_field_parts, write_field
    >>> world, mesh = pmd.World(), pm.Mesh((4, 4), (1.0, 2.0))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_field(f"{folder}/field.h5", np.arange(16.0).reshape(4, 4), mesh)
    ...     part = read_field_parts(f"{folder}/field.h5", pmd.Domain(mesh, world.size), world)
    >>> float(part[-1, -1])
    15.0
    """
    with world.agreement("read_field_parts"):
        file_path = _given(path)
        if not file_path.is_file():
            raise ValueError(f"{file_path} does not exist, or is no file.")
        OpenPMD.load()
        with errors_name_file(file_path, "a field "):
            if world.rank == 0:  # looks at the file, and at those beside it, for all
                hdf5.opened(file_path).close()
    with world.agreement(f"reading {domain!r}"), errors_name_file(file_path, "a field "):
        h5py = OpenPMD.load()
        with h5py.File(file_path, "r") as file:
            record, _ = OpenPMD.record(file)
            mesh, axes = mesh_of(record)
            if mesh.shape != domain.mesh.shape:
                raise FileError(f"it has nodes {mesh.shape}; the domain has {domain.mesh.shape}")
            components = components_of(record)
            batch = () if components[0] is record else OpenPMD.batch(record, components)
            parts = [_part(components, axes, part, batch) for part in domain.parts(world.rank)]
    return parts[0] if len(parts) == 1 else tuple(parts)


def _part(components: list[Any], axes: tuple[int, ...], part: pmd.Part, batch: tuple[int, ...]) -> np.ndarray:
    """Return the nodes of one part, in the order x, y, z."""
    if not part.size:
        return np.zeros((*batch, *part.shape), components[0].dtype)
    where = dict(zip(axes, map(slice, part.lower, part.upper), strict=True))
    here = tuple(where[axis] for axis in range(len(axes)))
    some = [values_of(component, here).transpose(axes) for component in components]
    return np.stack(some).reshape(*batch, *part.shape)
