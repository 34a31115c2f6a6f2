# SPDX-License-Identifier: BSD-3-Clause
"""Boxes in a linear shear flow along x that grows with y, and what has such boxes."""

from __future__ import annotations

import math
from typing import Any

from particlemesh import Box
from particlemesh.apps.brownian.forces import Sum


def leaning(box: Box, strain: float) -> Box:
    """Return a box after a strain, as Lees and Edwards deform it [lees_edwards1972]_.

    Its second lattice vector leans by the strain times its height. Whole first vectors are taken off, so that it leans
    by half of one at most: the images are the same. A box that does not repeat along y stays.

    Examples
    --------
    >>> leaning(Box((4.0, 4.0, 4.0)), 0.75).matrix[1]
    array([-1.,  4.,  0.])
    """
    rows = box.matrix.copy()
    if rows[0, 1] or rows[0, 2] or rows[2, 1]:
        raise ValueError(
            f"the box has lattice vectors {rows.tolist()}; shear needs the first along x and the third without y: "
            "turn the box."
        )
    if not box.periodic[1]:
        return box
    if not box.periodic[0]:
        raise ValueError("the box repeats along y, and not along x: with shear its images would move out of it.")
    lean = rows[1, 0] + strain * rows[1, 1]
    rows[1, 0] = lean - math.floor(lean / rows[0, 0] + 0.5) * rows[0, 0]
    return Box(rows, box.origin, box.periodic)


def sheared(thing: Any, strain: float) -> Any:
    """Return a mobility or force with its box after a strain, or the thing itself if it has no box."""
    if isinstance(thing, Sum):
        return Sum(*(sheared(force, strain) for force in thing.forces))
    if getattr(thing, "box", None) is None:
        return thing
    if not callable(getattr(thing, "in_box", None)):
        raise TypeError(
            f"a {type(thing).__name__} has a box, which shear deforms, and no in_box(box): add this method."
        )
    box = leaning(thing.box, strain)
    return thing if box is thing.box else thing.in_box(box)


def prepared(mobility: Any, positions: Any) -> Any:
    """Return a mobility that chooses its parameters at these positions, in the box that leans most."""
    box = getattr(mobility, "box", None)
    if box is None or not callable(getattr(mobility, "in_box", None)):
        return mobility
    rows = box.matrix
    widest = sheared(mobility, (rows[0, 0] / 2 - rows[1, 0]) / rows[1, 1])
    widest.set_positions(positions)
    return widest.in_box(box)
