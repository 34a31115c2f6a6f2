# SPDX-License-Identifier: BSD-3-Clause
"""Searches for neighbours with the arguments of pymatgen's."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from particlemesh.adapters import check
from particlemesh.adapters.points import Points
from particlemesh.grid import checks

__all__ = ["find_points_in_spheres", "get_neighbor_list"]


def find_points_in_spheres(
    all_coords: Any, center_coords: Any, r: float, pbc: Any, lattice: Any, tol: float = 1e-8, min_r: float = 1.0
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return points near others as ``pymatgen.optimization.neighbors.find_points_in_spheres``.

    Parameters
    ----------
    all_coords, center_coords : array_like (N, 3), (M, 3)
        The points, and where their neighbours are searched, in the unit of the lattice. Both may lie anywhere.
    r : number
    pbc : three bools or integers
        Which axes repeat.
    lattice : array_like (3, 3)
        Lattice vectors as rows. Those of open axes have no effect.
    tol : number
    min_r : number
        Squared distances are below ``r**2 + tol`` for r of at least ``min_r``. For smaller ones, as in pymatgen,
        distances are up to r.

    Returns
    -------
    center, point : int64 arrays (P,)
        Indices; those of the centers ascend.
    offset : float64 array (P, 3)
        How many times each lattice vector is added to a point.
    distance : float64 array (P,)

    Raises
    ------
    ValueError, TypeError
        If an argument is not allowed, or a point is not finite.

    Examples
    --------
    >>> import numpy as np
    >>> from particlemesh.adapters.pymatgen import find_points_in_spheres
    >>> x = np.array([[0.1, 0.0, 0.0], [2.9, 0.0, 0.0]])
    >>> find_points_in_spheres(x, x[:1], 1.0, [1, 1, 1], 3 * np.eye(3))[3].round(6)
    array([0. , 0.2])
    """
    reach, rows = checks.radius(r), np.asarray(lattice, np.float64)
    x, y = (np.asarray(coords, np.float64).reshape(-1, 3) for coords in (all_coords, center_coords))
    limit = reach if reach < min_r else math.sqrt(reach**2 + checks.radius(tol)) * (1 + 1e-15)
    flags = tuple(np.asarray(pbc, bool).tolist())
    if rows.shape != (3, 3) or len(flags) != 3:
        raise ValueError(f"lattice has shape {rows.shape}, pbc has length {len(flags)}; (3, 3) and 3 are needed.")
    i, j, shift, d = Points(x, rows, flags, size=limit).within(y, limit, "ijSd").values()
    if reach >= min_r:
        keep = d * d < reach**2 + tol
        i, j, shift, d = i[keep], j[keep], shift[keep], d[keep]
    return i.astype(np.int64), j.astype(np.int64), shift.astype(np.float64), d


def get_neighbor_list(
    structure: Any, r: float, sites: Any = None, numerical_tol: float = 1e-8, exclude_self: bool = True
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return the neighbours of a structure's sites as ``Structure.get_neighbor_list`` of pymatgen.

    Parameters
    ----------
    structure : pymatgen.core.Structure
    r : number
        In angstrom.
    sites : sequence of sites, optional
        Whose neighbours are returned; by default those of all sites.
    numerical_tol : number
        The ``tol`` of :func:`find_points_in_spheres`.
    exclude_self : bool
        Whether pairs of one index at a distance up to ``numerical_tol`` are left out.

    Returns
    -------
    center, point, offset, distance : arrays
        As of :func:`find_points_in_spheres`.

    Raises
    ------
    ValueError, TypeError
        If an argument is not allowed.

    Examples
    --------
    >>> from pymatgen.core import Lattice, Structure
    >>> from particlemesh.adapters.pymatgen import get_neighbor_list
    >>> caesium = Structure(Lattice.cubic(4.2), ["Cs", "Cl"], [[0, 0, 0], [0.5, 0.5, 0.5]])
    >>> get_neighbor_list(caesium, 3.8)[3].round(4)[:3]
    array([3.6373, 3.6373, 3.6373])
    """
    check(structure, ("cart_coords", "lattice", "sites"), "a Structure of pymatgen")
    x, lattice = structure.cart_coords, structure.lattice
    y = x if sites is None else np.array([site.coords for site in sites])
    results = find_points_in_spheres(x, y, r, lattice.pbc, lattice.matrix, numerical_tol)
    if not exclude_self:
        return results
    i, j, shift, d = results
    other = (i != j) | (d > numerical_tol)
    return i[other], j[other], shift[other], d[other]
