# SPDX-License-Identifier: BSD-3-Clause
"""The user's arrays at the ends of a transform: values at points, modes, and values at frequencies."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from particlemesh.apps.nufft import shapes
from particlemesh.apps.nufft.shapes import ArgumentError
from particlemesh.kernels import Kind


class Space(NamedTuple):
    """Arrays (n_trans, *shape) of one dtype."""

    name: str  # "points", "modes" or "frequencies"
    shape: tuple[int, ...]
    dtype: np.dtype


class Spaces:
    """Between arrays of the user's library and native arrays (n_trans, *shape).

    Parameters
    ----------
    kind : Kind
        Library of the points.
    backend : Backend
        Device of the points.
    n_trans : int
        Vectors.
    ends : Space
        What values may belong to.
    """

    def __init__(self, kind: Kind, backend: Any, n_trans: int, *ends: Space) -> None:
        self.kind, self.backend, self.n_trans = kind, backend, n_trans
        self.ends = {space.name: space for space in ends}

    def taken(self, data: Any, end: str) -> tuple[Any, tuple[int, ...]]:
        """Return data as a native array of any strides, and their batch axes."""
        batch = self._checked(data, "data", end)
        return self.kind.native(data), batch

    def dense(self, native: Any, end: str) -> Any:
        """Return a native array as a dense one (n_trans, *shape)."""
        return shapes.dense(native, "data", self.backend).reshape(self.n_trans, *self.ends[end].shape)

    def result(self, out: Any, end: str) -> Any:
        """Return the native memory of an output, or new memory."""
        space = self.ends[end]
        if out is None:
            return self.empty(end)
        self._checked(out, "out", end)
        return shapes.writeable(out, self.kind).reshape(self.n_trans, *space.shape)

    def empty(self, end: str, *more: int) -> Any:
        """Return a native array (n_trans, *shape, *more)."""
        space = self.ends[end]
        return self.backend.empty((self.n_trans, *space.shape, *more), space.dtype)

    def given(self, native: Any, batch: tuple[int, ...]) -> Any:
        """Return a native array as the user's, with the batch axes of the data."""
        return self.kind.wrap(native.reshape(batch + tuple(native.shape[1:])))

    def _checked(self, array: Any, name: str, end: str) -> tuple[int, ...]:
        kind, space = shapes.kind(array, name), self.ends[end]
        shapes.check_dtype(array, name, space.dtype)
        shape = tuple(array.shape)
        if kind is not self.kind or not kind.on(array, self.backend):
            raise ArgumentError(
                f"Argument `{name}` is an array of {kind.name}; the points are an array of {self.kind.name} on "
                f"{self.backend.name}: give arrays of one library and device."
            )
        if end == "modes":
            return shapes.check_modes(shape, space.shape, self.n_trans)
        return shapes.check_values(shape, space.shape[0], self.n_trans, "c" if end == "points" else "f")
