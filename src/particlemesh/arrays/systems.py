# SPDX-License-Identifier: BSD-3-Clause
"""What users say of systems: to which one each particle belongs, and the box of each."""

from __future__ import annotations

from typing import Any

import numpy as np

from particlemesh import checks
from particlemesh.arrays.operands import adopt, converted, to_backend
from particlemesh.backends.base import Backend

INDEX = np.dtype(np.int32)


def indices(system: Any, count: int, systems: int, backend: Backend, *, upload: bool, what: str = "particle") -> Any:
    """Return the system of each of ``count`` particles as int32 on the backend; those on the host are checked.

    Parameters
    ----------
    system : int array (N,)
        Of any library. Arrays of int32 on the backend are returned as they are.
    count, systems : int
    backend : Backend
    upload : bool
        Whether arrays of the host are copied there.
    what : str
        Whose systems they are, for messages.

    Raises
    ------
    TypeError, ValueError
        If they are no integers, too few, or on the host and out of range; the first wrong one is named.

    Examples
    --------
    >>> from particlemesh.kernels import backend
    >>> indices([0, 2, 1], 3, 3, backend("cpu"), upload=False)
    array([0, 2, 1], dtype=int32)
    """

    def checked(host: np.ndarray) -> np.ndarray:
        """Return a copy as int32, to which no caller writes."""
        wrong = np.flatnonzero((host < 0) | (host >= systems))
        if len(wrong):
            raise ValueError(
                f"system: {len(wrong)} of {len(host)} are no index of a system; the first is that of {what} "
                f"{wrong[0]}, {host[wrong[0]]}. Allowed are 0 to {systems - 1}."
            )
        return host.astype(INDEX)

    kind, array = adopt(system, "system")
    if kind.dtype(array).kind not in "iu" and array.shape != (0,):
        raise TypeError(f"system has dtype {kind.dtype(array)}; integers are needed, the index of each system.")
    if tuple(array.shape) != (count,):
        raise ValueError(f"system has shape {tuple(array.shape)}; one index per {what} is needed: ({count},).")
    native = to_backend(kind, array, backend, "system", upload=upload, promoted=checked)
    if isinstance(native, np.ndarray):
        native = checked(native)
    if native.strides != (native.dtype.itemsize,):  # PyOpenCL converts dense arrays only
        dense = backend.empty((count,), native.dtype)
        backend.copy(dense, native)
        native = dense
    return native if native.dtype == INDEX else converted(native, INDEX, "system")


def lattices(boxes: Any, count: int, d: int) -> np.ndarray:
    """Return lattice vectors of several boxes, on the host and in double precision.

    Parameters
    ----------
    boxes : array (B, d) or (B, d, d)
        Lengths, or lattice vectors as rows.
    count : int
        Number B of boxes.
    d : int
        Axes.

    Returns
    -------
    NumPy array (B, d, d)

    Raises
    ------
    ValueError, TypeError
        If they are no boxes, or of another number; the first wrong one is named.

    Examples
    --------
    >>> lattices([[1.0, 2.0], [3.0, 3.0]], 2, 2)[0]
    array([[1., 0.],
           [0., 2.]])
    """
    kind, array = adopt(boxes, "boxes")
    native = kind.native(array)
    host = native if isinstance(native, np.ndarray) else kind.backend(array).download(native)
    checks.number_type(np.dtype(host.dtype), "boxes")
    given = host.shape
    if host.dtype.kind == "c" or given not in ((count, d), (count, d, d)):
        raise ValueError(
            f"boxes has shape {given} and dtype {host.dtype}; real lengths ({count}, {d}) or lattice vectors as rows "
            f"({count}, {d}, {d}) are needed."
        )
    host = host.astype(np.float64)
    rows = host if host.ndim == 3 else np.where(np.eye(d, dtype=bool), host[:, :, None], 0.0)
    with np.errstate(all="ignore"):
        norms = np.linalg.norm(rows, axis=2)
        flat = np.abs(np.linalg.det(np.where(norms[..., None] > 0, rows / norms[..., None], 0)))
    good = np.isfinite(rows).all((1, 2)) & (flat > 1e-12) & ((host > 0).all(1) if host.ndim == 2 else True)
    if not good.all():
        wrong = int(np.flatnonzero(~good)[0])
        raise ValueError(
            f"boxes[{wrong}] is {host[wrong].tolist()}; positive finite lengths or independent lattice vectors are "
            "needed."
        )
    return rows
