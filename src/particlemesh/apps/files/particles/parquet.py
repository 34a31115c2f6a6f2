# SPDX-License-Identifier: BSD-3-Clause
"""Tables of Apache Parquet, through pyarrow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from particlemesh.apps.files.particles.reader import Column, FileError, Reader


class Parquet(Reader):
    """Columns of numbers, read by groups of rows."""

    suffixes = (".parquet",)
    module = "pyarrow.parquet"

    def open(self) -> None:
        self.file = self.library.ParquetFile(self.path)
        rows = self.file.metadata.num_rows
        for field in self.file.schema_arrow:
            if np.dtype(field.type.to_pandas_dtype()).kind in "iuf":
                self.columns[field.name] = Column((), rows)

    def chunks(self, names: Sequence[str], size: int, frame: int) -> Iterator[list[np.ndarray]]:
        for batch in self.file.iter_batches(batch_size=size, columns=list(names)):
            for name in names:
                if batch.column(name).null_count:
                    raise FileError(f"column {name} has rows without a value")
            yield [batch.column(name).to_numpy(zero_copy_only=False) for name in names]

    def close(self) -> None:
        self.file.close()
