# SPDX-License-Identifier: BSD-3-Clause
"""Tables of Apache Parquet, through pyarrow."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from particlemesh.apps.files.libraries import library
from particlemesh.apps.files.tables.table import Table, single


class Parquet(Table):
    """One column per number of a row."""

    suffixes = (".parquet",)

    @classmethod
    def declines(cls) -> None:
        library("pyarrow.parquet", "a table .parquet", "files")

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.arrow, self.library = (
            library("pyarrow", ".parquet", "files"),
            library("pyarrow.parquet", ".parquet", "files"),
        )
        self.writer: Any = None

    def put(self, columns: Mapping[str, np.ndarray]) -> None:
        table = self.arrow.table({name: np.ascontiguousarray(part) for name, part in single(columns).items()})
        if self.writer is None:
            self.writer = self.library.ParquetWriter(self.path, table.schema)
        self.writer.write_table(table)

    def finish(self) -> None:
        self.writer.close()

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()
