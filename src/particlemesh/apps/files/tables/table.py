# SPDX-License-Identifier: BSD-3-Clause
"""The contract of a format of tables."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import numpy as np


class Table:
    """A file that takes rows in parts; every part has the same columns."""

    suffixes: ClassVar[tuple[str, ...]]

    @classmethod
    def declines(cls) -> None:
        """Raise an ImportError if the format's library is missing."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, columns: Mapping[str, np.ndarray]) -> None:
        """Append rows: arrays (n,) or (n, c) by name."""
        raise NotImplementedError

    def finish(self) -> None:
        """Complete the file, after the last part."""

    def close(self) -> None:
        """Release what is open, after an error too."""


VECTORS = ("position", "gradient", "D")  # columns whose numbers belong to axes


def single(columns: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return columns of one real number each.

    Vectors become ``name_x``, ``name_y``, ..., other rows of several ``name_0``, ``name_1``, ..., complex numbers
    ``name_real`` and ``name_imag``.
    """
    found: dict[str, np.ndarray] = {}
    for name, data in columns.items():
        axes = "xyz" if name in VECTORS else ""
        parts = {name: data}
        if data.ndim > 1:
            parts = {f"{name}_{axes[k] if k < len(axes) else k}": data[:, k] for k in range(data.shape[1])}
        for label, part in parts.items():
            if np.iscomplexobj(part):
                found |= {f"{label}_real": part.real, f"{label}_imag": part.imag}
            else:
                found[label] = part
    return found
