# SPDX-License-Identifier: BSD-3-Clause
"""Tables in files. ``FORMATS`` lists the formats; the ending of a file's name selects one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from particlemesh.apps.files.replacing import check_free, replacing
from particlemesh.apps.files.tables.hdf5 import HDF5
from particlemesh.apps.files.tables.npz import NPZ
from particlemesh.apps.files.tables.parquet import Parquet
from particlemesh.apps.files.tables.table import Table as Table
from particlemesh.apps.files.tables.text import Text

FORMATS: tuple[type[Table], ...] = (NPZ, HDF5, Text, Parquet)


def check_table(path: Any, overwrite: bool = False) -> type[Table]:
    """Return the format of a table's name.

    Raises
    ------
    ImportError
        If the format's library is missing.
    ValueError
        If no format has the ending, or the file exists and may not be replaced.
    """
    suffix = Path(path).suffix.lower()
    form = next((form for form in FORMATS if suffix in form.suffixes), None)
    if form is None:
        known = ", ".join(s for f in FORMATS for s in f.suffixes)
        raise ValueError(f"out is {str(path)!r}; give a name that ends in {known}.")
    form.declines()
    check_free(path, overwrite)
    return form


@contextlib.contextmanager
def writing_table(path: Any, overwrite: bool = False) -> Iterator[Table]:
    """Yield a table that takes rows in parts, and appears as a file when it is whole.

    Formats by ending: .npz, .h5, .csv, .parquet.

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
            table.complete()
        finally:
            table.close()
