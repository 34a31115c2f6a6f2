# SPDX-License-Identifier: BSD-3-Clause
"""Tables in HDF5."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from particlemesh.apps.files.hdf5 import MARK, Disk
from particlemesh.apps.files.libraries import library
from particlemesh.apps.files.seal import BLOCK, seal
from particlemesh.apps.files.tables.table import Table


class HDF5(Table):
    """One dataset per column, with a checksum of the file in front."""

    suffixes = (".h5", ".hdf5")

    @classmethod
    def declines(cls) -> None:
        library("h5py", "a table .h5", "files")

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.disk = Disk(path, new=True)
        self.file = library("h5py", "a table .h5", "files").File(self.disk, "w", userblock_size=BLOCK)

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
        seal(self.path, MARK)

    def close(self) -> None:
        self.file.close()
        self.disk.close()
