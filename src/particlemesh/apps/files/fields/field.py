# SPDX-License-Identifier: BSD-3-Clause
"""The contract of a format of fields."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np

from particlemesh import Mesh


class Field(NamedTuple):
    """A field and its nodes."""

    values: np.ndarray  # (..., *mesh.shape)
    mesh: Mesh
    name: str = "field"


class Format:
    """A format of fields; what it cannot hold, ``declines`` says before anything is computed."""

    suffixes: ClassVar[tuple[str, ...]]
    reads: ClassVar[bool] = True

    @classmethod
    def declines(cls, mesh: Mesh, batch: tuple[int, ...], dtype: np.dtype) -> str | None:
        """Return why the format cannot hold such a field, and what to do; None if it can."""
        return None

    @classmethod
    def write(cls, path: Path, field: Field, overwrite: bool) -> None:
        """Write a field as a whole, or not at all."""
        raise NotImplementedError

    @classmethod
    def read(cls, path: Path) -> Field:
        """Return the first field of a file."""
        raise NotImplementedError
