# SPDX-License-Identifier: BSD-3-Clause
"""Lists of neighbours in torch and JAX: a search without derivatives, and vectors and distances that have them.

Indices and images are constants. ``D = x[j] - x[i] + S @ cell`` is then an expression of the library itself, so that
derivatives of any order follow. Where shapes may not depend on numbers, a list has a ``capacity``: what is left of it
has ``i = j = 0`` and an infinite distance.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from particlemesh import Box, checks
from particlemesh.adapters.points import on_host
from particlemesh.grid import checks as of_grids
from particlemesh.grid import forms
from particlemesh.grid.neighbour_list import neighbour_list

MOST = 2**31 - 1


def text_of(
    quantities: Any, box: Any, radius: Any, periodic: Any, half: Any, capacity: Any, options: dict[str, Any],
    *, array: bool,
) -> str:  # fmt: skip
    """Return all of a search but its arrays, as a text: the box unless it is an ``array``, the radius unless None."""
    forms.needed(quantities, "i", None)
    if capacity is not None and set(quantities) & set(forms.COUNTS):
        raise ValueError(f"quantities is {quantities!r}, and capacity pads the list: n and s need one that is not.")
    checks.flag(half, "half")
    if options.get("of") is not None:
        options = options | {"of": np.asarray(on_host(options["of"])).tolist()}
    facts: dict[str, Any] = {"half": bool(half), "options": options}
    if radius is not None:
        facts["radius"] = of_grids.radius(radius)
    if capacity is not None:
        facts["capacity"] = checks.integer(capacity, "capacity", 1, MOST)
    if np.ndim(periodic) == 2:  # axes of each system
        facts["each"], periodic = np.asarray(periodic).tolist(), None
    if array:
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


def search(
    text: str, positions: Any, cell: Any, boxes: Any, system: Any, radii: Any, radius: float | None = None
) -> tuple[Any, Any, Any]:
    """Return i, j and S of all pairs, of the kind of the positions. ``radii`` may be one number."""
    facts = json.loads(text)
    options = facts["options"] | {"half": facts["half"], "system": system, "boxes": boxes}
    if "each" in facts:
        options["periodic"] = np.array(facts["each"])
        box: Any = facts["matrix"] if cell is None else on_host(cell)
    elif cell is not None:
        box = of_grids.box_of(on_host(cell), facts["periodic"])
    else:
        box = Box(np.array(facts["matrix"]), facts["origin"], facts["periodic"])
    reach = facts.get("radius", radius) if radii is None else radii if radii.ndim else float(on_host(radii))
    pairs: tuple[Any, Any, Any] = neighbour_list("ijS", positions, box, reach, **options)
    return pairs


def answers(
    quantities: str, xp: Any, cast: Callable[[Any, Any], Any], wide: Any, pairs: tuple[Any, Any, Any, Any],
    positions: Any, cell: Any, system: Any, more: dict[str, Any] | None = None,
) -> Any:  # fmt: skip
    """Return what letters name, differentiable by positions and ``cell``, and the number of pairs of a padded list.

    ``cell`` has lengths (d,) or lattice vectors (d, d), or those of each system. Sums are of the type ``wide``:
    positions may be far outside of the box, and a narrow type would lose digits of differences. ``more`` has arrays of
    letters. The number of pairs is None unless the list is padded.
    """
    i, j, images, number = pairs
    narrow = positions.dtype if "float" in str(positions.dtype) else wide
    x = cast(positions, wide)
    x = x if x.ndim == 2 else x[:, None]
    turned, cell = cast(images, wide), cast(cell, wide)
    cell = cell if system is None else cell[system[i]] if x.shape[0] else cell[:1]
    if cell.shape[-2:] == (x.shape[1],) * 2 and cell.ndim == (2 if system is None else 3):
        turned = sum(turned[:, a, None] * cell[..., a, :] for a in range(x.shape[1]))
    else:
        turned = turned * cell
    vectors = x[j] - x[i] + turned if x.shape[0] else turned  # what is left of a capacity points to the first particle
    square = (vectors * vectors).sum(-1)
    there = square > 0  # coincident particles: the distance has no derivative, and zero is as good as any
    d = xp.where(there, xp.sqrt(xp.where(there, square, 1.0)), 0.0)
    if number is not None:
        d = xp.where(xp.cumsum(xp.ones_like(i), 0) <= number, d, math.inf)
    arrays = {"i": i, "j": j, "S": images, "D": cast(vectors, narrow), "d": cast(d, narrow)} | (more or {})
    results = *(arrays[letter] for letter in quantities), *([] if number is None else [number])
    return results if len(results) > 1 else results[0]
