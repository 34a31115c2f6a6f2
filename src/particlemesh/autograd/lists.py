# SPDX-License-Identifier: BSD-3-Clause
"""Lists of neighbours in torch and JAX: a search without derivatives, and vectors and distances that have them.

Indices and images are constants. ``D = x[j] - x[i] + S @ cell`` is then an expression of the library itself, so that
derivatives of any order follow. Where shapes may not depend on numbers, a list has a ``capacity``: what is left of it
has ``i = j = 0`` and an infinite distance.
"""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np

from particlemesh import Box, checks
from particlemesh.adapters.points import on_host
from particlemesh.grid import checks as of_grids
from particlemesh.grid.neighbour_list import neighbour_list

MOST = 2**31 - 1


def text_of(
    quantities: str, box: Any, radius: Any, periodic: Any, half: Any, capacity: Any, options: dict[str, Any],
    *, tensor: bool, radii: bool,
) -> str:  # fmt: skip
    """Return all of a search but its arrays, as a text: the box if it is no ``tensor``, the radius unless ``radii``."""
    of_grids.letters(quantities)
    if not quantities:
        raise ValueError("quantities is ''; give at least one letter of 'ijdDS'.")
    checks.flag(half, "half")
    facts: dict[str, Any] = {
        "half": bool(half),
        "options": options,
        "radius": None if radii else of_grids.radius(radius),
    }
    if capacity is not None:
        facts["capacity"] = checks.integer(capacity, "capacity", 1, MOST)
    if np.ndim(periodic) == 2:  # axes of each system
        facts["each"], periodic = np.asarray(periodic).tolist(), None
    if tensor:
        facts["periodic"] = True if periodic is None else np.asarray(periodic).tolist()
    else:
        made = of_grids.box_of(box, periodic)
        facts |= {"matrix": made.matrix.tolist(), "origin": made.origin.tolist(), "periodic": [*made.periodic]}
    return json.dumps(facts)


def matrix_of(text: str) -> Any:
    """Return the lattice vectors of a box that is no tensor."""
    return json.loads(text)["matrix"]


def capacity_of(text: str) -> int | None:
    """Return the pairs that there is room for, or None if results are as long as there are pairs."""
    capacity: int | None = json.loads(text).get("capacity")
    return capacity


def search(text: str, positions: Any, cell: Any, boxes: Any, system: Any, radii: Any) -> tuple[Any, Any, Any]:
    """Return i, j and S of all pairs, of the kind of the positions."""
    facts = json.loads(text)
    options = facts["options"] | {"half": facts["half"], "system": system, "boxes": boxes}
    if "each" in facts:
        options["periodic"] = np.array(facts["each"])
        box: Any = facts["matrix"] if cell is None else on_host(cell)
    elif cell is not None:
        box = of_grids.box_of(on_host(cell), facts["periodic"])
    else:
        box = Box(np.array(facts["matrix"]), facts["origin"], facts["periodic"])
    radius = facts["radius"] if radii is None else radii
    pairs: tuple[Any, Any, Any] = neighbour_list("ijS", positions, box, radius, **options)
    return pairs


def answers(
    xp: Any, quantities: str, pairs: tuple[Any, Any, Any, Any], positions: Any, cell: Any, system: Any, padded: bool
) -> Any:
    """Return what letters name, and with ``padded`` lists the number of pairs.

    ``cell`` has lengths (d,) or lattice vectors (d, d), or those of each system.
    """
    i, j, images, number = pairs
    arrays = {"i": i, "j": j, "S": images}
    if "d" in quantities or "D" in quantities:
        x = positions if positions.ndim == 2 else positions[:, None]
        turned, cell = xp.asarray(images, dtype=x.dtype), cell if system is None else cell[system[i]]
        if cell.shape[-2:] == (x.shape[1],) * 2 and cell.ndim == (2 if system is None else 3):
            turned = sum(turned[:, a, None] * cell[..., a, :] for a in range(x.shape[1]))
        else:
            turned = turned * cell
        vectors = x[j] - x[i] + turned
        square = (vectors * vectors).sum(-1)
        there = square > 0  # coincident particles: the distance has no derivative, and zero is as good as any
        d = xp.where(there, xp.sqrt(xp.where(there, square, 1.0)), 0.0)
        if padded:
            d = xp.where(xp.cumsum(xp.ones_like(i), 0) <= number, d, math.inf)
        arrays |= {"D": vectors, "d": d}
    results = tuple(arrays[letter] for letter in quantities) + ((number,) if padded else ())
    return results if len(results) > 1 else results[0]
