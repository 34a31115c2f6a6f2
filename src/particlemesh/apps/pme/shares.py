# SPDX-License-Identifier: BSD-3-Clause
"""Energies of the charges of many ranks: what derivatives of torch and JAX share."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import particlemesh as pm
from particlemesh import distributed as pmd
from particlemesh.apps.pme import derivatives
from particlemesh.apps.pme.ranks import DistributedPME
from particlemesh.kernels import kind_of

_MESHES: weakref.WeakKeyDictionary[DistributedPME, dict[Any, tuple[Any, Any]]] = weakref.WeakKeyDictionary()


class Kind(NamedTuple):
    """What a library is asked for.

    Attributes
    ----------
    library : derivatives.Library
    mesh : type
        Its ``OverRanks``.
    near : callable
        ``near(text, rows, cell, table, weights)`` is `near_sum`.
    excluded : callable
        This is `derivatives.excluded`.
    room : callable
        Returns the number of rows that arrays have where so many are needed.
    """

    library: derivatives.Library
    mesh: Any
    near: Callable[..., tuple[Any, Any]]
    excluded: Callable[..., Any]
    room: Callable[[int], int]


def share(of: Kind, pme: Any, positions: Any, charges: Any, cell: Any) -> Any:
    """Return this rank's share of the energy; see `particlemesh.apps.pme.torch_ranks.energy`."""
    if not isinstance(pme, DistributedPME):
        raise TypeError(f"pme is of type {type(pme).__name__}; give a particlemesh.apps.pme.DistributedPME.")
    library, given = of.library, {"positions": positions, "charges": charges, "cell": cell}

    def accepted() -> tuple[str, Any]:
        for name, array in given.items():
            if not isinstance(array, of.mesh.library.kind) and not (name == "cell" and array is None):
                raise TypeError(f"{name} is of type {type(array).__name__}; give a tensor.")
        of.mesh.outside(positions, charges, cell)
        derivatives.check(pme, positions, charges, None, None, over_ranks=True)
        matrix = library.like(derivatives.matrix_of(pme, cell, lambda rows: library.like(rows, positions)), positions)
        numbers = library.constant(matrix).tolist()
        return f"energy over ranks of {positions.dtype} in {numbers}", matrix

    matrix = pme.world.alike(accepted)
    ranks = _ranks_of(of, pme, library.constant(positions), library.constant(charges))
    if cell is None:
        x, q = of.mesh.library.agreed(ranks, positions=positions, charges=charges)
    else:
        x, q, matrix = of.mesh.library.agreed(ranks, positions=positions, charges=charges, cell=matrix)
    facts = derivatives.facts_of(pme, 0, derivatives.name_of(x), library.constant(x))
    options = derivatives.of_mesh(pme, matrix)[1]
    options.pop("window")
    far = ranks.potential(x, q * facts.times, **options)
    whole = ranks.shared(matrix)
    near = _pairs(of, pme._core, x, q, whole, facts.pairs)
    energy = derivatives.energy(library, facts, x, q, whole, None, ((),) * 3, near, far)
    return energy + facts.constant * _excluded(of, pme._core, x, q, whole, facts.near)


def _ranks_of(of: Kind, pme: DistributedPME, positions: Any, charges: Any) -> Any:
    """Return the mesh of a PME over ranks, whose parameters a step chooses if it has none."""
    if pme._core is None:
        pme(positions, charges, virial=False)
    core, known = pme._core, _MESHES.setdefault(pme, {})
    if known.get(of.mesh, (None, None))[0] is not core:
        known[of.mesh] = core, of.mesh(core.domain, pme.world, core.parameters.window, threads=pme._threads)
    return known[of.mesh][1]


def _pairs(of: Kind, core: Any, x: Any, q: Any, cell: Any, text: str) -> Any:
    """Return the sum over the pairs within the cutoff that this rank's grid has."""
    world, here, partners = core.world, of.library.constant(x), core.partners(x.shape[0])
    kind: Any = kind_of(here)
    mesh = pm.Mesh(core.domain.mesh.shape, derivatives.boxes_of(of.library.constant(cell), text)[1])
    with kind.scope(here):
        grid = pmd.UniformGrid(core.domain.on(mesh), world, derivatives.split_of(text)[0]).build(kind.native(here))
        pairs = grid.pairs(half=True, order="local", format="coo", quantities="ijS")
        xp, weights = _module(pairs.i), None
        table = kind.wrap(_filled(of, xp.column_stack([pairs.i, pairs.j, pairs.shift]).astype(np.int32), -1))
        if partners is not None:
            names, count = grid.at_places(xp.asarray(partners.names)), len(core.names.particles) + 1
            keys, factors = map(xp.asarray, core.names.pairs.keys(count))
            codes = names[pairs.i] * count + names[pairs.j]
            place = xp.searchsorted(keys, codes).clip(max=len(keys) - 1)
            some = xp.where(keys[place] == codes, factors[place], 0).astype(derivatives.name_of(here))
            weights = kind.wrap(_filled(of, some, 0))
    rows = _brought(of, _rows(of, x, q), here, grid.at_places, grid.from_places, grid.positions.shape[0] + grid.ghosts)
    total, touching = of.near(text, rows, cell, table, weights)
    with world.agreement("pairs of charges"):
        if bool(touching):
            raise ValueError("particles lie on top of each other: move one of them, or exclude the pair.")
    return total


def near_sum(
    library: derivatives.Library, energies: Callable[..., Any], text: str, rows: Any, cell: Any, table: Any,
    weights: Any,
) -> tuple[Any, Any]:  # fmt: skip
    """Return the sum over pairs, and whether particles of one lie in one place.

    Parameters
    ----------
    energies : callable
        ``energies(text, between, a, b, whole)``: see `derivatives.pair_energies`.
    rows : array (N, 4)
        Positions and charges by place.
    table : integers (M, 5)
        Places i and j, and the shift of j in cells. Rows of -1 are no pairs.
    weights : array (M,) or None
        Factors of excluded pairs minus 1, and 0 for others.
    """
    i, j, shifts, some = table[:, 0], table[:, 1], library.like(table[:, None, 2:], rows), table[:, 0] >= 0
    between = rows[j, :3] - rows[i, :3] + (shifts @ cell)[:, 0]
    whole = library.like(some, rows)
    if weights is not None:
        whole = whole * derivatives.wholes(library, between, weights, derivatives.split_of(text)[0], cell)
    terms = library.xp.where(some, energies(text, between, rows[i, 3], rows[j, 3], whole), 0.0)
    return terms.sum(), ((between == 0).all(1) & (whole != 0)).any()


def _module(array: Any) -> Any:
    """Return NumPy or CuPy."""
    return sys.modules[type(array).__module__.partition(".")[0]]


def _filled(of: Kind, rows: Any, value: float) -> Any:
    """Return so many rows as the library likes: those after the given ones have a value."""
    whole = _module(rows).full((of.room(len(rows)), *rows.shape[1:]), value, rows.dtype)
    whole[: len(rows)] = rows
    return whole


def _rows(of: Kind, x: Any, q: Any) -> Any:
    """Return positions and charges as rows: torch takes (0,) for no part of a sum, and this rank would leave others."""
    return of.library.xp.concatenate([x, q[:, None]], 1)


def _brought(of: Kind, rows: Any, like: Any, there: Any, back: Any, count: int) -> Any:
    """Return rows elsewhere, so many and some of zeros; there and back are for arrays of NumPy or CuPy."""
    kind: Any = kind_of(like)

    def natively(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def call(rows: Any) -> Any:
            with kind.scope(like):
                return kind.wrap(function(kind.native(rows)))

        return call

    ways = natively(lambda rows: _filled(of, there(rows), 0)), natively(lambda rows: back(rows[:count]))
    return of.mesh.library.linear(rows, *ways, shape=(of.room(count), 4))


def _excluded(of: Kind, core: Any, x: Any, q: Any, cell: Any, near: float) -> Any:
    """Return what the excluded pairs add whose first particle is on this rank."""
    partners = core.partners(x.shape[0])
    if partners is None:
        return 0.0
    rows, route, mine = _rows(of, x, q), partners.route, partners.mine
    others = _brought(of, rows, of.library.constant(x), route.send, route.back, route.arrived)
    ends = _filled(of, partners.pairs.pairs[mine], 0).T.ravel()
    whole = of.library.xp.concatenate([rows, others])[ends]  # a program serves any numbers of particles
    pairs = *np.arange(len(ends)).reshape(2, -1), _filled(of, partners.pairs.factors[mine] - 1, 0)
    return of.excluded(of.library, whole[:, :3], whole[:, 3], cell, None, pairs, near)
