# SPDX-License-Identifier: BSD-3-Clause
"""Particles that begin too deep in each other: refused, or moved apart before."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

import particlemesh as pm
from particlemesh.apps.dem.contact import LinearSpring
from particlemesh.apps.dem.domain import Domain
from particlemesh.apps.dem.given import rows_of, to_host
from particlemesh.apps.dem.results import Contacts
from particlemesh.apps.dem.walls import apart, table, walls_of
from particlemesh.kernels import checks

DEEPEST = 0.5  # overlap of the smaller radius
_PUSH = 0.4  # of an overlap, for each of two


def check_overlaps(
    contacts: Contacts, radii: np.ndarray, new: np.ndarray | None = None, names: np.ndarray | None = None
) -> None:
    """Check that no particle, or none of the ``new`` ones, is too deep in another one or in a wall.

    ``names`` are the numbers of particles in the message, by default their indices.

    Raises
    ------
    ValueError
        If one is; the message names the deepest.
    """
    i, j = contacts.i, contacts.j
    names = np.arange(len(radii)) if names is None else names
    asked = np.ones(len(radii), bool) if new is None else new
    smaller = np.where(j < 0, radii[i], np.minimum(radii[i], radii[np.maximum(j, 0)]))
    depth = np.where(asked[i] | (j >= 0) & asked[np.maximum(j, 0)], contacts.overlap / smaller, 0)
    if not (depth > DEEPEST).any():
        return
    n = int(np.argmax(depth))
    what = f"particles {names[i[n]]} and {names[j[n]]}" if j[n] >= 0 else f"particle {names[i[n]]} and wall {-1 - j[n]}"
    raise ValueError(
        f"{int((depth > DEEPEST).sum())} contacts are deeper than {DEEPEST:g} of the smaller radius, and would burst "
        f"apart; the deepest is that of {what} with {depth[n]:.3g}. Move particles apart by relaxed_positions(...), or "
        "give overlaps='allow'."
    )


def relaxed_positions(
    positions: Any, radii: Any, *, walls: Any = (), box: Any = None, periodic: Any = False, overlap: float = 0.01,
    most: int = 2000,
) -> np.ndarray:  # fmt: skip
    """Return positions of which no two particles overlap by much, near those given: a start for a simulation.

    Each pass moves particles out of those that they overlap, and out of walls.

    Parameters
    ----------
    positions : array (N, 3)
    radii : number or array (N,)
    walls, box, periodic
        As for :class:`Simulation`.
    overlap : number
        Largest overlap that may be left, of the smaller radius.
    most : int
        Most passes.

    Returns
    -------
    (N, 3) float64 ndarray

    Raises
    ------
    ValueError
        If an argument is not allowed, or particles are still too deep after the last pass: they lack room.

    Examples
    --------
    >>> import numpy as np
    >>> from particlemesh.apps.dem import relaxed_positions
    >>> crowd = np.random.default_rng(1).random((200, 3))
    >>> places = relaxed_positions(crowd, 0.06, box=(1.0, 1.0, 1.0))
    >>> apart = np.linalg.norm(places[:, None] - places, axis=2) + np.eye(200)
    >>> apart.min().round(2), places.min().round(2)  # a diameter and a radius
    (np.float64(0.12), np.float64(0.06))
    """
    x = np.array(to_host(positions, "positions"), np.float64)
    if x.ndim != 2 or x.shape[1] != 3 or not np.isfinite(x).all():
        raise ValueError(f"positions have shape {x.shape}; (N, 3) finite numbers are needed.")
    sizes = rows_of(radii, "radii", len(x), np.dtype(np.float64), 0)
    overlap, most = checks.positive(overlap, "overlap"), checks.integer(most, "most", 1, 2**31)
    domain = Domain.of(box, periodic)
    shapes = [replace(wall, contact=None) for wall in walls_of(walls, domain.walls)]
    planes = table(shapes, LinearSpring(1.0).numbers())
    deepest = 0.0
    for _ in range(most):
        i, j, between = pm.neighbour_list("ijD", x, domain.box, sizes)
        # Of places that are the same, the one with the higher number goes up.
        same = ~between.any(1)
        between[same, 2] = np.where(i[same] < j[same], 1e-9, -1e-9)
        length = np.linalg.norm(between, axis=1)
        depth = np.maximum(sizes[i] + sizes[j] - length, 0)
        deepest = float((depth / np.minimum(sizes[i], sizes[j])).max(initial=0.0))
        push = np.zeros_like(x)
        np.add.at(push, i, -(_PUSH * depth / length)[:, None] * between)
        for plane in planes:
            distance, normal = apart(np.broadcast_to(plane, (len(x), len(plane))), x)
            inside = np.maximum(sizes - distance, 0)
            deepest = max(deepest, float((inside / sizes).max(initial=0.0)))
            push += inside[:, None] * normal
        if deepest <= overlap:
            return x
        x = domain.fold(x + push)
    raise ValueError(
        f"after {most} passes particles overlap by up to {deepest:.3g} of the smaller radius, more than {overlap:g}: "
        "they lack room. Give fewer or smaller ones, or a larger box."
    )
