# SPDX-License-Identifier: BSD-3-Clause
"""Tables in files. ``FORMATS`` lists the formats; the ending of a file's name selects one."""

from __future__ import annotations

import contextlib
import shutil
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy

from particlemesh.apps.files import hdf5
from particlemesh.apps.files.libraries import Format, by_ending, library, listing
from particlemesh.apps.files.replacing import check_free, replacing
from particlemesh.kernels import checks

VECTORS = ("position", "gradient", "D")  # columns whose numbers belong to axes


class Table(Format):
    """A file that takes rows in parts; every part has the same columns.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> from particlemesh.apps.files import writing_table
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with writing_table(f"{folder}/squares.npz") as table:
    ...         table.append({"square": np.arange(4) ** 2})
    ...         table.append({"square": np.arange(4, 6) ** 2})
    >>> table.rows
    6
    """

    kind = "a table "

    def __init__(self, path: Path) -> None:
        self.path, self.library = path, self.load()
        self.kinds: dict[str, tuple[tuple[int, ...], np.dtype]] = {}  # of the first part
        self.rows = 0
        self.open()

    def append(self, columns: Mapping[str, Any]) -> None:
        """Append rows.

        Parameters
        ----------
        columns : mapping of str to array
            Arrays (n,), (n, c) or (n, c, d) of numbers. Names, types, c and d are those of the first call.

        Raises
        ------
        ValueError
            If lengths differ, or columns are not those of the first call.
        TypeError
            If a column has no numbers.
        """
        arrays = {name: checks.number_array(data, f"column {name}") for name, data in columns.items()}
        for name, data in arrays.items():
            if data.dtype.kind not in "iufc" or data.ndim not in (1, 2, 3):
                raise TypeError(
                    f"column {name} has dtype {data.dtype}, {data.ndim} axes; give numbers (n,), (n, c) or (n, c, d)."
                )
        lengths = {len(data) for data in arrays.values()}
        if len(lengths) != 1:
            listed = ", ".join(f"{name}: {len(data)}" for name, data in arrays.items())
            raise ValueError(f"columns have different numbers of rows, {listed or 'none'}; give equal ones.")
        kinds = {name: (data.shape[1:], data.dtype) for name, data in arrays.items()}
        if self.kinds and kinds != self.kinds:
            raise ValueError(f"columns are {', '.join(kinds)}; give those of the first part: {', '.join(self.kinds)}.")
        self.kinds = kinds
        self.put(arrays)
        self.rows += lengths.pop()

    def open(self) -> None:
        """Open the file."""

    def put(self, columns: Mapping[str, np.ndarray]) -> None:
        """Append rows that fit."""
        raise NotImplementedError

    def finish(self) -> None:
        """Complete the file, after the last part."""

    def close(self) -> None:
        """Release what is open, also after an error."""


class NPZ(Table):
    """One array per column, in NumPy's archives. Columns grow in files of their own, and are packed at the end.

    NumPy writes no array in parts. While the table is written, the folder needs twice the room.
    """

    suffixes = (".npz",)

    def open(self) -> None:
        self.parts: dict[str, tuple[Path, IO[bytes]]] = {}

    def put(self, columns: Mapping[str, np.ndarray]) -> None:
        for name, data in columns.items():
            if name not in self.parts:
                part = self.path.with_name(f"{self.path.name}.{len(self.parts)}")
                self.parts[name] = part, part.open("w+b")
            self.parts[name][1].write(np.ascontiguousarray(data).data)

    def finish(self) -> None:
        with zipfile.ZipFile(self.path, "w") as archive:
            for name, (_, file) in self.parts.items():
                tail, dtype = self.kinds[name]
                head = {"shape": (self.rows, *tail), "fortran_order": False, "descr": npy.dtype_to_descr(dtype)}
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    npy.write_array_header_1_0(member, head)
                    file.seek(0)
                    shutil.copyfileobj(file, member, 2**20)

    def close(self) -> None:
        with contextlib.ExitStack() as all_parts:  # closing fails on a full disk
            for part, file in self.parts.values():
                all_parts.callback(part.unlink, missing_ok=True)
                all_parts.callback(file.close)


class HDF5(Table):
    """One dataset per column, with a checksum of the file in front."""

    suffixes = (".h5", ".hdf5")
    module = "h5py"

    def open(self) -> None:
        self.disk = hdf5.Disk(self.path, new=True)
        self.file = self.library.File(self.disk, "w", userblock_size=hdf5.BLOCK)

    def put(self, columns: Mapping[str, np.ndarray]) -> None:
        for name, data in columns.items():
            if name not in self.file:
                self.file.create_dataset(name, data=data, maxshape=(None, *data.shape[1:]), chunks=True)
            else:
                dataset = self.file[name]
                dataset.resize(self.rows + len(data), axis=0)
                dataset[self.rows :] = data
        self.file.flush()
        self.disk.settle()

    def finish(self) -> None:
        self.close()
        hdf5.seal(self.path, hdf5.MARK)

    def close(self) -> None:
        self.file.close()
        self.disk.close()


class Text(Table):
    """Numbers between commas, a line of names first; as many digits as bring the same number back.

    NumPy writes a fixed number of digits.
    """

    suffixes = (".csv",)

    def open(self) -> None:
        self.file = self.path.open("w", encoding="utf-8", newline="\n")
        self.named = False

    def put(self, columns: Mapping[str, np.ndarray]) -> None:
        parts = single(columns)
        if not self.named:
            self.file.write(",".join(parts) + "\n")
            self.named = True
        texts = [map(str, part if part.dtype == np.float32 else part.tolist()) for part in parts.values()]
        self.file.writelines(",".join(row) + "\n" for row in zip(*texts, strict=True))

    def finish(self) -> None:
        self.file.close()

    def close(self) -> None:
        self.file.close()


class Parquet(Table):
    """One column per number of a row, through pyarrow."""

    suffixes = (".parquet",)
    module = "pyarrow.parquet"

    def open(self) -> None:
        self.writer: Any = None

    def put(self, columns: Mapping[str, np.ndarray]) -> None:
        arrow = library("pyarrow", ".parquet", "files")
        table = arrow.table({name: np.ascontiguousarray(part) for name, part in single(columns).items()})
        if self.writer is None:
            self.writer = self.library.ParquetWriter(self.path, table.schema)
        self.writer.write_table(table)

    def finish(self) -> None:
        self.close()

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()


def single(columns: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return columns of one real number each.

    Vectors become ``name_x``, ``name_y``, ..., other rows of several ``name_0``, ``name_1``, ..., complex numbers
    ``name_real`` and ``name_imag``. Rows of vectors have both: ``name_0_x``.
    """
    arrays: dict[str, np.ndarray] = {}
    for name, data in columns.items():
        parts = {name: data}
        while any(part.ndim > 1 for part in parts.values()):
            parts = {
                f"{label}_{axis}": part[:, k]
                for label, part in parts.items()
                for k, axis in enumerate(_labels(part, name in VECTORS))
            }
        for label, part in parts.items():
            if np.iscomplexobj(part):
                arrays |= {f"{label}_real": part.real, f"{label}_imag": part.imag}
            else:
                arrays[label] = part
    return arrays


def _labels(part: np.ndarray, is_vector: bool) -> Sequence[Any]:
    """Return names along the second axis: of axes if it is the last one of a vector, else numbers."""
    width = part.shape[1]
    return "xyz"[:width] if is_vector and part.ndim == 2 and width <= 3 else range(width)


FORMATS: tuple[type[Table], ...] = (NPZ, HDF5, Text, Parquet)


def check_table(path: Any, overwrite: bool = False) -> type[Table]:
    """Return the format of a table's name.

    Raises
    ------
    ImportError
        If the format's library is missing.
    ValueError
        If no format has the ending, or the file exists and may not be replaced.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> from particlemesh.apps.files import check_table, writing_table
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     form = check_table(f"{folder}/new.npz")  # before a long computation
    ...     with writing_table(f"{folder}/new.npz") as table:
    ...         table.append({"n": np.arange(3)})
    >>> isinstance(table, form), table.rows
    (True, 3)
    """
    form = by_ending(FORMATS, path, f"out is {str(path)!r}; give a name that ends in")
    form.load()
    check_free(path, overwrite)
    return form


@contextlib.contextmanager
@listing(ENDINGS=FORMATS)
def writing_table(path: Any, overwrite: bool = False) -> Iterator[Table]:
    """Yield a table that takes rows in parts, and appears as a file when it is whole: ENDINGS.

    Parameters
    ----------
    path : path-like
    overwrite : bool
        Whether to replace a file that exists.

    Yields
    ------
    Table
        ``append({"name": array, ...})`` takes arrays (n,), (n, c) or (n, c, d) of numbers, at least once.

    Raises
    ------
    ImportError, ValueError
        As for `check_table`.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> from particlemesh.apps.files import writing_table
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with writing_table(f"{folder}/squares.npz") as table:
    ...         table.append({"n": np.arange(2), "square": np.arange(2) ** 2})
    ...         table.append({"n": np.arange(2, 4), "square": np.arange(2, 4) ** 2})
    ...     squares = np.load(f"{folder}/squares.npz")["square"]
    >>> squares.tolist()
    [0, 1, 4, 9]
    """
    form = check_table(path, overwrite)
    with replacing(path, overwrite) as part:
        table = form(part)
        try:
            yield table
            if not table.kinds:
                raise ValueError("the table has no columns: append some, which may have no rows.")
            table.finish()
        finally:
            table.close()
