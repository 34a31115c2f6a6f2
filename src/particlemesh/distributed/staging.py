# SPDX-License-Identifier: BSD-3-Clause
"""Users' arrays as arrays that can be cut and sent: those of NumPy or CuPy; and back."""

from __future__ import annotations

from typing import Any

import numpy as np

from particlemesh import checks
from particlemesh.arrays import operands
from particlemesh.arrays.kinds import Kind, kind_of
from particlemesh.arrays.operands import COMPLEX, overlaps_itself

DTYPES = tuple(map(np.dtype, ("f4", "f8", "c8", "c16")))  # by the number that ranks agree on


class Staged:
    """One array of the caller: its kind, and the same numbers for NumPy or CuPy.

    Arrays of PyOpenCL are copied to the host, and results of their kind back to their queue's device.
    """

    def __init__(self, array: Any, what: str) -> None:
        self.kind: Kind
        self.kind, self.user = operands.adopt(array, what)
        self.native = self.kind.native(self.user)
        if self.kind.home == "opencl":
            self.native = self.kind.backend(self.user).download(self.native)

    def promoted(self, dtype: np.dtype, what: str, out: Any = None) -> Any:
        """Return the numbers as reals or complex numbers of a real type.

        An array without numbers has no dtype to keep: it gets that of ``out``, which the call is to write.
        """
        if self.native.size:
            return operands.in_precision(self.native, dtype, what)
        kind = kind_of(out)
        if kind is not None and kind.dtype(out) in DTYPES:
            return self.native.astype(kind.dtype(out))
        return self.native.astype(COMPLEX[dtype] if self.native.dtype.kind == "c" else dtype)

    @property
    def memory(self) -> str:
        """Where the numbers are: the same on all ranks, because transports do not send from one to the other."""
        return "the host" if isinstance(self.native, np.ndarray) else "a device"

    def like(self, native: Any) -> Any:
        """Return an array of the caller's kind."""
        if self.kind.home == "opencl":
            backend = self.kind.backend(self.user)
            with backend.scope(self.user):
                return self.kind.wrap(backend.upload(np.ascontiguousarray(native)))
        return self.kind.wrap(native)

    def scope(self) -> Any:
        """Enter the stream of the array's library."""
        return self.kind.scope(self.user)


class Target:
    """An output that the caller gave, checked before anything is sent."""

    def __init__(self, out: Any, like: Staged, shape: tuple[int, ...], dtype: np.dtype) -> None:
        self.kind, self.out = operands.adopt(out, "out")
        if self.out is not out or self.kind.home != like.kind.home:
            raise TypeError(f"out is of type {type(out).__name__}; give an array of the input's kind.")
        if tuple(out.shape) != shape:
            raise ValueError(
                f"out has shape {tuple(out.shape)}; this call writes {shape}: give an array of this shape."
            )
        if self.kind.dtype(out) != dtype:
            raise TypeError(
                f"out has dtype {self.kind.dtype(out)}; this call writes {dtype}: give an array of this dtype."
            )
        self.native = self.kind.target(out)
        if overlaps_itself(self.native):
            raise ValueError("elements of out share memory; give an array in which each has its own.")

    def write(self, native: Any, *, accumulate: bool = False) -> Any:
        """Write numbers, or add them, and return the caller's array."""
        if self.kind.home == "opencl":
            backend = self.kind.backend(self.out)
            with backend.scope(self.out):
                host = backend.download(self.native) + native if accumulate else native
                backend.copy(self.native, backend.upload(np.ascontiguousarray(host)))
        elif accumulate:
            self.native[...] += native
        else:
            self.native[...] = native
        return self.out


def several(given: Any, count: int, what: str) -> list[Any]:
    """Return one array for each part of this rank: an array if there is one part, else a tuple."""
    if count == 1:
        return [given]
    if not isinstance(given, (tuple, list)) or len(given) != count:
        got = f"{len(given)} arrays" if isinstance(given, (tuple, list)) else f"of type {type(given).__name__}"
        raise ValueError(f"{what} is {got}; this rank has {count} parts: give a tuple with an array for each.")
    return list(given)


def batch_of(shape: tuple[int, ...], core: tuple[int, ...], what: str) -> tuple[int, ...]:
    """Return the batch axes of an array, checked to end with ``core``."""
    checks.trailing_shape(shape, core, what)
    return tuple(shape)[: len(shape) - len(core)]
