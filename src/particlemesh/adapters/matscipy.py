# SPDX-License-Identifier: BSD-3-Clause
"""The neighbour list with the arguments of matscipy's."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np

from particlemesh.adapters import check
from particlemesh.adapters.ase import primitive_neighbor_list

__all__ = ["neighbour_list"]


def neighbour_list(
    quantities: str, atoms: Any = None, cutoff: Any = None, positions: Any = None, cell: Any = None, pbc: Any = None,
    numbers: Any = None, cell_origin: Any = None,
) -> Any:  # fmt: skip
    """Return neighbours with the arguments and meaning of ``matscipy.neighbours.neighbour_list``.

    Parameters
    ----------
    quantities : str
        Letters of "ijdDS", each at most once.
    atoms : ase.Atoms, optional
        Instead of them, ``positions``, ``cell``, ``pbc`` and ``numbers`` may be given.
    cutoff : number, array (N,) or dict
        A distance, a radius for each atom (their sum counts), or a distance for each pair of elements, which needs ASE.
        A ``defaultdict`` stands for its default, as in matscipy.
    positions : array_like (N, 3), optional
        In the unit of the cell. Atoms may lie outside of it.
    cell : array_like (3, 3), optional
        Lattice vectors as rows; by default a box around the atoms.
    pbc : three bools, optional
        Which axes repeat; by default none.
    numbers : int array_like (N,), optional
        Atomic numbers, 1 by default.
    cell_origin
        Of matscipy; no effect, as neighbours do not depend on it.

    Returns
    -------
    array or tuple of arrays
        As of :func:`particlemesh.neighbour_list`, in int32 and float64, sorted by ``i``. Distances are below the
        cutoff.

    Raises
    ------
    ValueError, TypeError
        If an argument is missing, given twice, or not allowed.

    Examples
    --------
    >>> import numpy as np
    >>> from particlemesh.adapters.matscipy import neighbour_list
    >>> x = [[0.1, 0.0, 0.0], [0.9, 0.0, 0.0]]
    >>> neighbour_list("d", positions=x, cell=np.eye(3), pbc=[True] * 3, cutoff=0.5).round(6)
    array([0.2, 0.2])
    """
    parts = {"positions": positions, "cell": cell, "pbc": pbc, "numbers": numbers, "cell_origin": cell_origin}
    given = [name for name, part in parts.items() if part is not None]
    if cutoff is None:
        raise ValueError("cutoff is missing: give a number, a radius for each atom, or a dict of elements.")
    if (atoms is None) == (positions is None) or (atoms is not None and given):
        several = ", ".join([*(["atoms"] if atoms is not None else []), *given]) or "neither"
        raise ValueError(f"given are {several}: give atoms alone, or positions with cell, pbc and numbers.")
    if atoms is not None:
        check(atoms, ("cell", "pbc", "positions", "numbers"), "an ase.Atoms")
        positions, cell, pbc, numbers = atoms.positions, atoms.cell[:], atoms.pbc, atoms.numbers
    x = np.asarray(positions, np.float64).reshape(-1, 3)
    rows = np.diag(np.ptp(x, axis=0) if len(x) else np.zeros(3)) if cell is None else cell
    flags = [False] * 3 if pbc is None else pbc
    kinds = np.ones(len(x), np.int64) if numbers is None else numbers
    reach = cutoff.default_factory() if isinstance(cutoff, defaultdict) and cutoff.default_factory else cutoff
    if np.ndim(reach) and np.shape(reach) != (len(x),):
        raise TypeError(f"cutoff has shape {np.shape(reach)}; give one number, or one for each of {len(x)} atoms.")
    result = primitive_neighbor_list(quantities, flags, rows, x, reach, kinds)
    arrays = result if isinstance(result, tuple) else (result,)
    arrays = tuple(array if array.dtype == np.float64 else array.astype(np.int32) for array in arrays)
    return arrays if len(arrays) > 1 else arrays[0]
