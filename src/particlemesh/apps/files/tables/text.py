# SPDX-License-Identifier: BSD-3-Clause
"""Tables in text."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from particlemesh.apps.files.tables.table import Table, single


class Text(Table):
    """Numbers between commas, a line of names first; as many digits as bring the same number back."""

    suffixes = (".csv",)

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.file = path.open("w", encoding="utf-8", newline="\n")
        self.named = False

    def put(self, columns: Mapping[str, np.ndarray]) -> None:
        parts = single(columns)
        if not self.named:
            self.file.write(",".join(parts) + "\n")
            self.named = True
        rows = zip(*(part.tolist() if part.dtype != np.float32 else map(str, part) for part in parts.values()))  # noqa: B905
        self.file.writelines(",".join(map(str, row)) + "\n" for row in rows)

    def finish(self) -> None:
        self.file.close()

    def close(self) -> None:
        self.file.close()
