# SPDX-License-Identifier: BSD-3-Clause
"""Atoms of MDAnalysis: positions and box of a frame, in angstrom or another unit."""

from __future__ import annotations

from typing import Any

import numpy as np

from particlemesh.adapters import PositionsInBox, check, library
from particlemesh.box import Box

__all__ = ["particles"]

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
