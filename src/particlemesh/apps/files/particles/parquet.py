# SPDX-License-Identifier: BSD-3-Clause
"""Tables of Apache Parquet, through pyarrow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from particlemesh.apps.files.libraries import FileError
from particlemesh.apps.files.particles.reader import Column, Reader, is_column


class Parquet(Reader):
    """Columns of numbers, or of lists of one length, read by groups of rows."""

    suffixes = (".parquet",)
    module = "pyarrow.parquet"

    def open(self) -> None:
        self.file = self.library.ParquetFile(self.path)
        rows = self.file.metadata.num_rows
        names = self.file.schema_arrow.names
        for field in self.file.schema_arrow:
            width = getattr(field.type, "list_size", None)
            tail = () if width is None else (width,)
            kind = field.type if width is None else field.type.value_type
            if names.count(field.name) == 1 and _is_numeric(kind) and is_column((rows, *tail), np.dtype(float)):
                self.columns[field.name] = Column(tail, rows)

    def chunks(self, names: Sequence[str], size: int, frame: int) -> Iterator[list[np.ndarray]]:
        for batch in self.file.iter_batches(batch_size=size, columns=list(names)):
            yield [self._numbers(name, batch.column(name)) for name in names]

    def _numbers(self, name: str, column: Any) -> np.ndarray:
        tail = self.columns[name].tail
        flat = column.flatten() if tail else column
        if column.null_count or flat.null_count:
            raise FileError(f"column {name} has rows without a value")
        return np.asarray(flat.to_numpy(zero_copy_only=False)).reshape(-1, *tail)

    def close(self) -> None:
        self.file.close()


def _is_numeric(kind: Any) -> bool:
    """Return whether Arrow's type is one of real numbers."""
    try:
        return np.dtype(kind.to_pandas_dtype()).kind in "iuf"
    except (NotImplementedError, TypeError):
        return False
