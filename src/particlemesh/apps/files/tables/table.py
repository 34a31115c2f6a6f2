# SPDX-License-Identifier: BSD-3-Clause
"""The contract of a format of tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from particlemesh.kernels import checks


class Table:
    """A file that takes rows in parts; every part has the same columns."""

    suffixes: ClassVar[tuple[str, ...]]

    @classmethod
    def declines(cls) -> None:
        """Raise an ImportError if the format's library is missing."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.kinds: dict[str, tuple[tuple[int, ...], np.dtype]] = {}  # of the first part
        self.rows = 0

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

    def put(self, columns: Mapping[str, np.ndarray]) -> None:
        """Append rows that fit."""
        raise NotImplementedError

    def complete(self) -> None:
        """Complete the file, after the last part.

        Raises
        ------
        ValueError
            If there was no part.
        """
        if not self.kinds:
            raise ValueError("the table has no columns: append some, which may have no rows.")
        self.finish()

    def finish(self) -> None:
        """Complete the file of a format."""

    def close(self) -> None:
        """Release what is open, also after an error."""


VECTORS = ("position", "gradient", "D")  # columns whose numbers belong to axes


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
