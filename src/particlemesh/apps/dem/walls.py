# SPDX-License-Identifier: BSD-3-Clause
"""Walls: planes, and the faces of a box."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from particlemesh.kernels import checks

MOST = 20  # walls: which ones a particle touches is one bit each of an integer that float32 holds


@dataclass(frozen=True)
class Plane:
    """An infinite wall; particles are on the side to which its normal points.

    Parameters
    ----------
    point : 3 numbers
        Any point of the plane.
    normal : 3 numbers
        Direction of the normal, of any length but zero.

    Raises
    ------
    ValueError, TypeError
        If these are not such numbers.

    Examples
    --------
    >>> from particlemesh.apps.dem import Plane
    >>> Plane((0, 0, 1), (0, 0, 2))
    Plane(point=(0.0, 0.0, 1.0), normal=(0.0, 0.0, 1.0))
    """

    point: Sequence[float]
    normal: Sequence[float]

    def __post_init__(self) -> None:
        point, normal = checks.per_axis(self.point, 3, "point"), np.array(checks.per_axis(self.normal, 3, "normal"))
        length = np.abs(normal).max()
        if length == 0:
            raise ValueError(f"normal is {self.normal!r}; a vector of nonzero length is needed.")
        if abs(math.hypot(*normal) - 1) > 1e-15:  # a normal of length 1 keeps its bits: a restart needs them
            normal = normal / length  # first, so that no square overflows
            normal = normal / np.linalg.norm(normal)
        object.__setattr__(self, "point", point)
        object.__setattr__(self, "normal", tuple((normal + 0.0).tolist()))

    @property
    def offset(self) -> float:
        """Distance of the plane from the origin of coordinates, along the normal."""
        return float(np.dot(self.point, self.normal))


def walls_of(given: Any, box_walls: list[Plane]) -> tuple[Plane, ...]:
    """Return the planes given and those of a box, checked one by one."""
    if isinstance(given, Plane) or not isinstance(given, Iterable):
        given = (given,)
    planes = (*given, *box_walls)
    for n, wall in enumerate(planes):
        if not isinstance(wall, Plane):
            raise TypeError(f"walls[{n}] is a {type(wall).__name__}; give Plane(point, normal).")
    if len(planes) > MOST:
        raise ValueError(f"there are {len(planes)} walls, those of the box included; up to {MOST} are possible.")
    rows = table(planes)
    for n in range(len(planes)):
        same = np.abs(rows[:n] - rows[n]).max(1) <= 1e-12 * max(1.0, abs(rows[n, 3])) if n else np.zeros(0, bool)
        if same.any():
            raise ValueError(
                f"walls {int(np.argmax(same))} and {n} are the same plane, {planes[n]}: its force would count twice. "
                "Faces of the box are walls where the box is not periodic."
            )
    return planes


def table(planes: Iterable[Plane]) -> np.ndarray:
    """Return normals and offsets of planes, (P, 4)."""
    return np.array([(*plane.normal, plane.offset) for plane in planes], np.float64).reshape(-1, 4)


def check_room(planes: tuple[Plane, ...], radius: float) -> None:
    """Check that a sphere of a radius fits between the walls.

    Raises
    ------
    ValueError
        If walls overlap so far that it does not.
    """
    if not planes:
        return
    from scipy.optimize import linprog

    rows = table(planes)
    # Seen from the middle of the walls' points: rounding shall not grow with the distance from the origin.
    points = np.array([plane.point for plane in planes], np.float64)
    offsets = ((points - points.mean(0)) * rows[:, :3]).sum(1)
    scale = max(radius, float(np.abs(offsets).max()))
    # The largest sphere on the right side of all planes, in units of the scale, up to the radius.
    bounds = [(None, None)] * 3 + [(None, radius / scale)]
    matrix = np.hstack([-rows[:, :3], np.ones((len(rows), 1))])
    solution = linprog((0, 0, 0, -1), A_ub=matrix, b_ub=-offsets / scale, bounds=bounds)
    room = float(solution.x[3]) * scale
    if room < radius * (1 - 1e-9):
        there = "no room at all" if room <= 0 else f"room for a sphere of radius {room:g}"
        raise ValueError(
            f"walls overlap: they leave {there}, and the largest particle has radius {radius:g}. Move the walls apart; "
            "normals point to the side of the particles."
        )


def check_inside(planes: tuple[Plane, ...], positions: np.ndarray) -> None:
    """Check that every centre is on the right side of every wall.

    Raises
    ------
    ValueError
        If one is not; the message names the first.
    """
    for n, (x, y, z, offset) in enumerate(table(planes)):
        behind = positions @ (x, y, z) < offset
        if behind.any():
            first = int(np.argmax(behind))
            raise ValueError(
                f"{int(behind.sum())} particles are behind wall {n}, {planes[n]}; the first is particle {first} at "
                f"{tuple(positions[first].tolist())}. The normal points to the side of the particles."
            )
