# SPDX-License-Identifier: BSD-3-Clause
"""Flat pictures of fields: which numbers lie in the plane of the paper, and where."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

import particlemesh as pm

AXES = ("x", "y", "z")
LATTICE = ("a", "b", "c")


@dataclass
class Plane:
    """Values in a parallelogram: ``corner + s rows[0] + t rows[1]`` for fractions s and t of the box from 0 to 1."""

    values: np.ndarray  # (K1, K2), one for each node
    centres: tuple[np.ndarray, np.ndarray]  # fractions of the nodes along both axes, ascending
    periodic: tuple[bool, bool]
    corner: np.ndarray  # (2,)
    rows: np.ndarray  # (2, 2), lattice vectors in the plane of the paper
    labels: tuple[str, str]
    what: str  # the values, in words
    integrated: bool = False  # along the line of sight


def axis_of(mesh: pm.Mesh, axis: int | str) -> int:
    """Return the number of an axis, given by its number or by its name: x, y, z, or a, b, c.

    Raises
    ------
    ValueError
        If the mesh has no such axis.
    """
    for names in (AXES, LATTICE):
        if axis in names[: mesh.ndim]:
            return names.index(str(axis))
    if isinstance(axis, (int, np.integer)) and not isinstance(axis, bool) and -mesh.ndim <= axis < mesh.ndim:
        return int(axis) % mesh.ndim
    known = ", ".join(name_of(mesh, n) for n in range(mesh.ndim))
    raise ValueError(f"axis is {axis!r}; this mesh has the axes {known}.")


def name_of(mesh: pm.Mesh, axis: int) -> str:
    """Return the name of an axis: that of a coordinate, or of a lattice vector in a triclinic box."""
    return (AXES if mesh.box.orthorhombic else LATTICE)[axis]


def fractions(mesh: pm.Mesh, axis: int) -> np.ndarray:
    """Return the places of an axis's nodes in units of its lattice vector, from the origin."""
    index = mesh.start[axis] + np.arange(mesh.shape[axis])
    return np.asarray((index + mesh.offset[axis]) / mesh.intervals[axis])


def flat(mesh: pm.Mesh, field: np.ndarray, kind: str, axis: int, at: float | None) -> Plane:
    """Return a projection or a slice of a field in 3-D, or a field in 2-D as it is.

    A projection is the integral along the lattice vector ``axis``, seen along it. A slice is the layer of nodes nearest
    to ``at``, by default in the middle. ``at`` is a coordinate, or in a triclinic box a distance from its origin along
    that vector.
    """
    box = mesh.box
    if mesh.ndim == 2:
        return _plane(mesh, field, (0, 1), box.origin, box.matrix, ("x", "y"), "")
    one, two = (n for n in range(3) if n != axis)
    name, straight = name_of(mesh, axis), box.orthorhombic
    if kind == "projection":
        values = field.sum(axis=axis) * mesh.spacing[axis]
        sight = box.matrix[axis] / box.lengths[axis]
        rows = box.matrix[[one, two]] - np.outer(box.matrix[[one, two]] @ sight, sight)
        integral, origin = f"integral along {name}", box.origin - (box.origin @ sight) * sight
    else:
        nodes = mesh.nodes(axis)
        low = box.origin[axis] if straight else 0.0
        place = low + box.lengths[axis] / 2 if at is None else float(at)
        if not low <= place <= low + box.lengths[axis]:
            raise ValueError(f"at is {at}; {name} goes from {low:g} to {low + box.lengths[axis]:g}.")
        away = nodes - place
        if mesh.periodic[axis]:
            away -= np.rint(away / box.lengths[axis]) * box.lengths[axis]
        layer = int(np.abs(away).argmin())
        values, rows = np.take(field, layer, axis=axis), box.matrix[[one, two]]
        integral = f"{name} = {nodes[layer]:.4g}"
        origin = box.origin + fractions(mesh, axis)[layer] * box.matrix[axis]
    if straight:
        labels, corner, flattened = (AXES[one], AXES[two]), box.origin[[one, two]], rows[:, [one, two]]
    else:
        flattened, turn = _in_the_paper(rows)
        corner = origin @ turn.T
        usual = np.allclose(turn, np.eye(3)[:2], atol=1e-12)
        along = LATTICE[one]
        labels = ("x", "y") if usual else (f"along {along}", f"across {along}")
        corner = corner if usual else np.zeros(2)
    plane = _plane(mesh, values, (one, two), corner, flattened, labels, integral)
    plane.integrated = kind == "projection"
    return plane


def _plane(
    mesh: pm.Mesh, values: np.ndarray, axes: tuple[int, int], corner: Any, rows: Any, labels: tuple[str, str], what: str
) -> Plane:
    one, two = axes
    centres = fractions(mesh, one), fractions(mesh, two)
    repeats = mesh.periodic[one], mesh.periodic[two]
    return Plane(np.asarray(values), centres, repeats, np.asarray(corner), np.asarray(rows), labels, what)


def _in_the_paper(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return two vectors in coordinates of their plane, the first along the first, and the plane's basis (2, 3)."""
    first = rows[0] / np.linalg.norm(rows[0])
    across = rows[1] - (rows[1] @ first) * first
    turn = np.stack([first, across / np.linalg.norm(across)])
    return rows @ turn.T, turn


def filled(plane: Plane, most: int) -> tuple[np.ndarray, tuple[float, float, float, float]]:
    """Return values that cover the box, and the fractions (s0, s1, t0, t1) of the edges of their pixels.

    Each node is the centre of a pixel. Along a periodic axis nodes are repeated until the pixels reach both faces. More
    than ``most`` pixels along an axis are averaged.
    """
    values = plane.values
    edges: list[float] = []
    for axis, (centres, repeats) in enumerate(zip(plane.centres, plane.periodic, strict=True)):
        count = len(centres)
        step = 1 / count if repeats else (centres[-1] - centres[0]) / max(count - 1, 1) or 1.0
        low = centres[0] - step / 2
        first, last = 0, count
        if repeats:  # pixels are numbered from that of node 0
            first, last = math.floor(-low * count + 1e-9), math.ceil((1 - low) * count - 1e-9)
            values = np.take(values, np.arange(first, last) % count, axis=axis)
        many = -(-(last - first) // most)
        if many > 1:
            starts = np.arange(0, last - first, many)
            sizes = np.diff([*starts, last - first])
            shape = (-1, 1) if axis == 0 else (1, -1)
            values = np.add.reduceat(values, starts, axis=axis) / sizes.reshape(shape)
            # The last pixel may average fewer nodes; it is drawn as wide as the others, and cut off at the face.
            edges += [low + first * step, low + (first + many * len(starts)) * step]
        else:
            edges += [low + first * step, low + last * step]
    return values, (edges[0], edges[1], edges[2], edges[3])
