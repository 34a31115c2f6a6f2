# SPDX-License-Identifier: BSD-3-Clause
"""Local arrays of a distributed field: what a rank gives and gets."""

from __future__ import annotations

from typing import Any

import numpy as np

from particlemesh.distributed.layouts import Part, Partition, shape_of
from particlemesh.distributed.staging import Staged, batch_of, module_of, several
from particlemesh.distributed.transfer import Form


def layout_of(domain: Any, world: Any) -> Partition:
    """Return the parts of all ranks of a domain.

    Raises
    ------
    ValueError
        If the domain was made for another number of ranks.
    """
    if domain.size != world.size:
        raise ValueError(f"the domain is cut for {domain.size} ranks and the world has {world.size}: use world.size.")
    parts = tuple(tuple(ranges(part) for part in domain.parts(rank)) for rank in range(domain.size))
    return Partition(tuple(domain.mesh.shape), parts)


def ranges(part: Any) -> Part:
    """Return a domain's part as one range per axis."""
    return tuple((start, start + nodes) for start, nodes in zip(part.lower, part.shape, strict=True))


def fields_of(
    given: Any, parts: tuple[Part, ...], what: str, *, promotes: bool = True
) -> tuple[list[Any], Form, Staged]:
    """Return a rank's arrays of NumPy or CuPy, one per part, what they have in common, and their kind.

    Parameters
    ----------
    given : array, or tuple with one for each part of this rank
    parts : tuple of parts
        The rank's.
    what : str
        Name of the argument, for messages.
    promotes : bool
        Integers become float64, as for SciPy; else all numbers stay what they are.

    Raises
    ------
    ValueError, TypeError
        If an array has another shape than its part, or they differ in kind, dtype or leading axes.
    """
    staged = [Staged(one, what) for one in several(given, len(parts), what)]
    arrays = [one.native for one in staged]
    forms = []
    for n, (array, part) in enumerate(zip(arrays, parts, strict=True)):
        batch = batch_of(tuple(array.shape), shape_of(part), what)
        if promotes and array.dtype.kind in "biu":
            arrays[n] = array = array.astype(np.float64)
        if array.dtype.char not in "fdFD" and (promotes or array.dtype.kind not in "biu"):
            raise TypeError(f"{what} has dtype {array.dtype}; float32, float64, complex64 or complex128 is needed.")
        forms.append(Form(module_of(array), batch, array.dtype))
    if any(form != forms[0] for form in forms):
        raise ValueError(f"the arrays of {what} differ in kind, dtype or leading axes; they are parts of one field.")
    return arrays, forms[0], staged[0]


def finished(kind: Staged, arrays: list[Any]) -> Any:
    """Return an array of the caller's kind, or a tuple where the rank has several parts."""
    results = [kind.like(array) for array in arrays]
    return results[0] if len(results) == 1 else tuple(results)
