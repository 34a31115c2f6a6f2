# SPDX-License-Identifier: BSD-3-Clause
"""Local arrays of a distributed field: what a rank gives and gets."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from particlemesh.distributed.layouts import Layout, Part, shape_of
from particlemesh.distributed.transfer import Form


def layout_of(domain: Any, world: Any) -> Layout:
    """Return the parts of all ranks of a domain.

    Raises
    ------
    ValueError
        If the domain was made for another number of ranks.
    """
    if domain.size != world.size:
        raise ValueError(f"the domain is cut for {domain.size} ranks and the world has {world.size}: use world.size.")
    parts = tuple(tuple(ranges(part) for part in domain.parts(rank)) for rank in range(domain.size))
    return Layout(tuple(domain.mesh.shape), parts)


def ranges(part: Any) -> Part:
    """Return a domain's part as one range per axis."""
    return tuple((start, start + nodes) for start, nodes in zip(part.lower, part.shape, strict=True))


def namespace(array: Any) -> Any:
    """Return NumPy or CuPy; None for arrays of other kinds."""
    if isinstance(array, np.ndarray):
        return np
    name = type(array).__module__.partition(".")[0]
    return sys.modules[name] if name == "cupy" else None


def fields_of(given: Any, parts: tuple[Part, ...], what: str) -> tuple[list[Any], Form]:
    """Return a rank's arrays, one per part, and what they have in common.

    Parameters
    ----------
    given : array or sequence of arrays
        A sequence where the rank has several parts.
    parts : tuple of parts
        The rank's.
    what : str
        Name of the argument, for messages.

    Raises
    ------
    ValueError, TypeError
        If an array has another shape than its part, or they differ in kind, dtype or leading axes.
    """
    several = isinstance(given, (list, tuple)) and all(namespace(array) is not None for array in given)
    arrays = list(given) if several else [given]
    if len(arrays) != len(parts):
        raise ValueError(f"{what} has {len(arrays)} arrays; this rank has {len(parts)} parts, with one array each.")
    forms = []
    for n, (array, part) in enumerate(zip(arrays, parts, strict=True)):
        if (xp := namespace(array)) is None:
            raise TypeError(f"{what} is of type {type(array).__name__}; give an array of NumPy or CuPy.")
        if array.dtype.kind in "biu":
            arrays[n] = array = array.astype(np.float64)
        if array.dtype.char not in "fdFD":
            raise TypeError(f"{what} has dtype {array.dtype}; float32, float64, complex64 or complex128 is needed.")
        shape, core = tuple(array.shape), shape_of(part)
        if shape[max(0, len(shape) - len(core)) :] != core:
            raise ValueError(f"{what} has shape {shape}; this rank's nodes have shape (..., {str(core)[1:-1]}).")
        forms.append(Form(xp, shape[: len(shape) - len(core)], array.dtype))
    if not forms:
        return [], Form(np, (), np.dtype(np.float64))
    if any(form != forms[0] for form in forms):
        raise ValueError(f"the arrays of {what} differ in kind, dtype or leading axes; they are parts of one field.")
    return arrays, forms[0]


def unwrapped(arrays: list[Any], per_rank: int) -> Any:
    """Return the array of a rank with one part, else the list."""
    return arrays[0] if per_rank == 1 else arrays
