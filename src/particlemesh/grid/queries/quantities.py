# SPDX-License-Identifier: BSD-3-Clause
"""The letters of quantities: fields of ``Pairs``, defines of kernels, shapes and types of arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from particlemesh.grid.results import Pairs

# In the order in which kernels take the arrays.
FIELDS = {"i": "i", "j": "j", "S": "shift", "d": "distance", "D": "vector"}


def wants(letters: str) -> dict[str, int]:
    """Return the defines of what a kernel writes."""
    return {f"WANT_{field.upper()}": int(letter in letters) for letter, field in FIELDS.items()}


def array_types(
    letters: str, shape: tuple[int, ...], axes: int, real: np.dtype
) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
    """Return shape and type of the array of each quantity, by field, for ``shape`` pairs in a box of ``axes``."""
    index = np.dtype(np.int32)
    return {
        field: ((*shape, axes) if letter in "SD" else shape, real if letter in "dD" else index)
        for letter, field in FIELDS.items()
        if letter in letters
    }


def by_letter(pairs: Pairs, letters: str) -> dict[str, Any]:
    """Return the arrays of pairs by letter."""
    return {letter: getattr(pairs, FIELDS[letter]) for letter in letters}
