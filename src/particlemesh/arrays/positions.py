# SPDX-License-Identifier: BSD-3-Clause
"""Users' positions on their way to the kernels that locate them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from particlemesh.arrays.kinds import NUMPY, kind_of
from particlemesh.arrays.operands import adopt, converted, real_dtype, to_backend
from particlemesh.backends.base import Backend, Record


@dataclass
class Coordinates:
    """Positions along each axis of a box: native 1-D arrays of one type, any stride."""

    arrays: tuple[Any, ...]
    offsets: tuple[int, ...]  # of the first coordinate, in coordinates, from the kernel's pointer
    strides: tuple[int, ...]
    dtype: np.dtype
    count: int

    def arguments(self) -> tuple[Any, ...]:
        """Return the kernels' x0, x1, x2."""
        return (self.arrays[0],) * (3 - len(self.arrays)) + self.arrays

    def record(self) -> Record:
        """Return ``Strides``."""
        pad = (0,) * (3 - len(self.arrays))
        return Record("=6q", *pad, *self.offsets, *pad, *self.strides)


def coordinates(
    positions: Any, ndim: int, backend: Backend | None, *, upload: bool, least: np.dtype | None = None
) -> tuple[Any, ...]:
    """Check positions: ``(N, d)``, a tuple of d arrays, or ``(N,)`` in 1-D; make them of type ``least`` or wider.

    Returns the kind, the backend, and the :class:`Coordinates`.
    """
    by_axis = isinstance(positions, tuple) and len(positions) == ndim
    if by_axis and all(kind_of(x) is not None and x.ndim == 1 for x in positions):
        pairs = [adopt(x, "positions") for x in positions]
        if len({tuple(a.shape) for _, a in pairs}) > 1:
            shapes = ", ".join(str(tuple(a.shape)) for _, a in pairs)
            raise ValueError(f"positions are arrays of shapes {shapes}; one length is needed.")
        if len({k.name for k, _ in pairs}) > 1:
            raise TypeError(f"positions are of several kinds: {', '.join(k.name for k, _ in pairs)}; use one.")
    else:
        kind, array = adopt(positions, "positions")
        if kind is NUMPY and array.size == 0 and array.ndim == 1:
            array = array.reshape(0, ndim)  # an empty sequence has no particles
        shape = tuple(array.shape)
        if ndim == 1 and len(shape) == 1:
            pairs = [(kind, array)]
        elif len(shape) == 2 and shape[1] == ndim:
            pairs = [(kind, array)] * ndim
        else:
            also = " or (n,)" if ndim == 1 else ""
            raise ValueError(
                f"positions has shape {shape}; there are {ndim} axes, so (n, {ndim}){also} "
                f"or a tuple of {ndim} arrays (n,) is needed."
            )
    kind = pairs[0][0]
    types = [real_dtype(a, k) for k, a in pairs]
    wide = max(types if least is None else [*types, least], key=lambda t: t.itemsize)
    for k, a in pairs:
        if k.dtype(a).kind == "c":
            raise TypeError(f"positions have dtype {k.dtype(a)}; real numbers are needed.")
    if backend is None:
        backend = kind.backend(pairs[0][1])
    cache: dict[int, Any] = {}
    natives = []
    for k, a in pairs:
        if id(a) not in cache:
            native = to_backend(
                k, a, backend, "positions", upload=upload, promoted=lambda host: host.astype(wide, copy=False)
            )
            if native.dtype != wide:
                native = converted(native, wide, "positions")
                backend.untaped()  # the copy will not be made again
            if any(s % wide.itemsize for s in native.strides):
                dense = backend.empty(native.shape, wide)
                backend.copy(dense, native)
                native = dense
            cache[id(a)] = native
        natives.append(cache[id(a)])
    count = int(natives[0].shape[0])
    step = wide.itemsize
    columns = [0] * ndim if natives[0].ndim == 1 else [a * (natives[a].strides[1] // step) for a in range(ndim)]
    if backend.name == "cpu":  # a column of its own; other backends take an offset
        natives = [x if x.ndim == 1 else x[:, a] for a, x in enumerate(natives)]
        columns = [0] * ndim
    offsets = tuple(getattr(x, "offset", 0) // step + c for x, c in zip(natives, columns, strict=True))
    strides = tuple(x.strides[0] // step for x in natives)
    return kind, backend, Coordinates(tuple(natives), offsets, strides, wide, count)
