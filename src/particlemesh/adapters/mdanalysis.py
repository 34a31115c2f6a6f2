# SPDX-License-Identifier: BSD-3-Clause
"""Atoms of MDAnalysis: positions and box of a frame, and its capped distances by our search."""

from __future__ import annotations

from typing import Any

import numpy as np

from particlemesh import checks as common
from particlemesh.adapters import PositionsInBox, check, library
from particlemesh.adapters.points import Points
from particlemesh.box import Box
from particlemesh.grid import checks

__all__ = ["capped_distance", "particles", "self_capped_distance"]

_ANGSTROM = {"angstrom": 1.0, "nm": 0.1, "bohr": 1 / 0.529177210544}  # CODATA 2022


def particles(atoms: Any, *, unit: str = "angstrom", periodic: Any = True) -> PositionsInBox:
    """Return positions and box of an AtomGroup or a Universe, in the present frame.

    Parameters
    ----------
    atoms : MDAnalysis.AtomGroup or MDAnalysis.Universe
        Charges are ``atoms.charges``, in units of e and in the same order.
    unit : {"angstrom", "nm", "bohr"}
        The unit of the result. MDAnalysis itself uses angstrom.
    periodic : bool or three bools
        Which axes repeat; a frame does not say so.

    Returns
    -------
    PositionsInBox
        The positions are float32, as MDAnalysis has them, and a copy: the next frame does not change them. The box is
        triclinic where the frame's is.

    Raises
    ------
    ImportError
        If MDAnalysis is not installed.
    ValueError
        If the frame has no box, or the unit is unknown.
    TypeError
        If these are no atoms of MDAnalysis.

    Examples
    --------
    >>> import MDAnalysis, numpy as np, particlemesh as pm
    >>> from particlemesh.adapters.mdanalysis import particles
    >>> water = MDAnalysis.Universe.empty(2, trajectory=True)
    >>> water.atoms.positions = [[1.0, 1.0, 1.0], [9.5, 1.0, 1.0]]
    >>> water.dimensions = [10.0, 10.0, 10.0, 90.0, 90.0, 90.0]
    >>> pm.neighbour_list("ijd", *particles(water, unit="nm"), 0.3)[2].round(4)
    array([0.15, 0.15], dtype=float32)
    """
    mathematics = library("MDAnalysis.lib.mdamath", "MDAnalysis", "an AtomGroup")
    if unit not in _ANGSTROM:
        raise ValueError(f"unit is {unit!r}; allowed are {', '.join(map(repr, _ANGSTROM))}.")
    check(atoms, ("atoms", "universe"), "an AtomGroup or a Universe of MDAnalysis")
    group = atoms.atoms
    dimensions = group.universe.dimensions
    if dimensions is None or not np.all(np.asarray(dimensions)[:3] > 0):
        raise ValueError("this frame has no box: set universe.dimensions, or take atoms.positions and a box of yours.")
    factor = _ANGSTROM[unit]
    rows = np.asarray(mathematics.triclinic_vectors(dimensions, dtype=np.float64))
    if not rows.any():
        raise ValueError(f"dimensions are {np.asarray(dimensions).tolist()}; no box has these lengths and angles.")
    lengths = np.asarray(dimensions[:3], np.float64) if np.all(np.asarray(dimensions)[3:] == 90) else rows
    return PositionsInBox(group.positions * np.float32(factor), Box(lengths * factor, periodic=periodic))


def capped_distance(
    reference: Any, configuration: Any, max_cutoff: float, min_cutoff: float | None = None, box: Any = None,
    method: str | None = None, return_distances: bool = True, backend: str = "serial",
) -> Any:  # fmt: skip
    """Return pairs of two sets of points with the arguments of ``MDAnalysis.lib.distances.capped_distance``.

    Parameters
    ----------
    reference, configuration : array (N, 3), (M, 3) or (3,), or AtomGroup
        In the unit of the box. Points may lie outside of it, and are rounded to float32, as in MDAnalysis.
    max_cutoff, min_cutoff : number
        Distances are up to the first and, if it is given, above the second.
    box : array (6,), optional
        Lengths and angles in degrees; an axis of length 0 does not repeat. A point counts once, at its nearest image.
    method, backend
        Of MDAnalysis; no effect.
    return_distances : bool

    Returns
    -------
    pairs : int64 array (P, 2)
        Indices of the two points; the first ascends.
    distances : float64 array (P,)
        Only with ``return_distances``.

    Raises
    ------
    ImportError
        If MDAnalysis is not installed.
    ValueError, TypeError
        If an argument is not allowed, or a point is not finite.

    Examples
    --------
    >>> import numpy as np
    >>> from particlemesh.adapters.mdanalysis import capped_distance
    >>> x, y = np.array([[0.5, 0.0, 0.0]]), np.array([[9.5, 0.0, 0.0], [5.0, 0.0, 0.0]])
    >>> pairs, distances = capped_distance(x, y, 2.0, box=[10, 10, 10, 90, 90, 90])
    >>> pairs.tolist(), distances
    ([[0, 0]], array([1.]))
    """
    near = _capped((reference, configuration), max_cutoff, min_cutoff, box, method)
    return _listed(near, return_distances)


def self_capped_distance(
    reference: Any, max_cutoff: float, min_cutoff: float | None = None, box: Any = None, method: str | None = None,
    return_distances: bool = True, backend: str = "serial",
) -> Any:  # fmt: skip
    """Return pairs of points as ``MDAnalysis.lib.distances.self_capped_distance``, each once, the smaller index first.

    Parameters
    ----------
    reference, max_cutoff, min_cutoff, box, method, return_distances, backend
        As for :func:`capped_distance`.

    Returns
    -------
    pairs, distances
        As of :func:`capped_distance`.

    Raises
    ------
    ImportError
        If MDAnalysis is not installed.
    ValueError, TypeError
        If an argument is not allowed, or a point is not finite.

    Examples
    --------
    >>> import numpy as np
    >>> from particlemesh.adapters.mdanalysis import self_capped_distance
    >>> x = np.array([[0.5, 0.0, 0.0], [9.5, 0.0, 0.0], [5.0, 0.0, 0.0]])
    >>> self_capped_distance(x, 2.0, box=[10, 10, 10, 90, 90, 90], return_distances=False)
    array([[0, 1]])
    """
    i, j, d = _capped((reference, reference), max_cutoff, min_cutoff, box, method)
    once = i < j
    return _listed((i[once], j[once], d[once]), return_distances)


def _capped(groups: tuple[Any, Any], most: Any, least: Any, box: Any, method: Any) -> tuple[Any, Any, Any]:
    """Return indices and distances of pairs."""
    if method is not None:
        common.one_of(str(method).lower(), "method", ("bruteforce", "nsgrid", "pkdtree"))
    reach = checks.radius(most)
    y, x = (np.atleast_2d(np.asarray(getattr(group, "positions", group), np.float32)) for group in groups)
    if x.shape[1:] != (3,) or y.shape[1:] != (3,):
        raise ValueError(f"the points have the shapes {y.shape} and {x.shape}; (n, 3) or (3,) is needed.")
    rows, flags = np.eye(3), (False,) * 3
    if box is not None:
        sides = np.asarray(box, np.float32)
        if sides.shape != (6,):
            raise ValueError(f"box has shape {sides.shape}; six numbers are needed: lengths, then angles in degrees.")
        flags = tuple((sides[:3] > 0).tolist())
        rows = np.diag(sides[:3]).astype(np.float64)
        if np.any(sides[3:] != 90) and any(flags):
            mathematics = library("MDAnalysis.lib.mdamath", "MDAnalysis", "a triclinic box")
            rows = np.asarray(mathematics.triclinic_vectors(sides), np.float64)
            if not rows.any():
                raise ValueError(f"box is {sides.tolist()}; no box has these lengths and angles.")
    points = Points(x.astype(np.float64), rows, flags, size=reach, once=True)
    i, j, d = points.within(y.astype(np.float64), reach, "ijd").values()
    keep = d > (-1.0 if least is None else float(least))
    return i[keep], j[keep], d[keep]


def _listed(near: tuple[Any, Any, Any], return_distances: bool) -> Any:
    pairs = np.stack(near[:2], axis=-1).astype(np.int64)
    return (pairs, near[2]) if common.flag(return_distances, "return_distances") else pairs
