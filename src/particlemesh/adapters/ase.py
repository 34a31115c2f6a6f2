# SPDX-License-Identifier: BSD-3-Clause
"""Atoms of ASE: positions and box, and ASE's ``neighbor_list`` by our search."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from particlemesh import checks as common
from particlemesh.adapters import PositionsInBox, check
from particlemesh.box import Box
from particlemesh.grid import checks
from particlemesh.grid.neighbour_list import neighbour_list as search

__all__ = ["neighbor_list", "neighbour_list", "particles"]


def particles(atoms: Any) -> PositionsInBox:
    """Return positions and box of atoms, in angstrom.

    Parameters
    ----------
    atoms : ase.Atoms
        Their ``pbc`` says which axes repeat. Along the other axes, lattice vectors that are zero are completed.

    Returns
    -------
    PositionsInBox
        The positions are a copy.

    Raises
    ------
    ValueError
        If an axis repeats along a lattice vector that is zero.
    TypeError
        If these are no atoms of ASE.

    Examples
    --------
    >>> from ase.build import bulk
    >>> from particlemesh.adapters.ase import particles
    >>> copper = particles(bulk("Cu", cubic=True))
    >>> copper.positions.shape, copper.box
    ((4, 3), Box((3.61, 3.61, 3.61)))
    """
    check(atoms, ("cell", "pbc", "positions"), "an ase.Atoms")
    rows, periodic = np.array(atoms.cell[:]), [bool(flag) for flag in atoms.pbc]
    empty = [axis for axis in range(3) if periodic[axis] and not rows[axis].any()]
    if empty:
        raise ValueError(f"pbc is {periodic}, but lattice vector {empty[0]} is zero: set atoms.cell or atoms.pbc.")
    complete = np.array(atoms.cell.complete()[:])
    return PositionsInBox(np.array(atoms.positions), Box(complete, periodic=periodic))


def neighbour_list(quantities: str, a: Any, cutoff: Any, self_interaction: bool = False, **options: Any) -> Any:
    """Return neighbours with the arguments, letters and meaning of ``ase.neighborlist.neighbor_list``.

    Parameters
    ----------
    quantities : str
        Letters of "ijdDS".
    a : ase.Atoms
    cutoff : number, array (N,) or dict
        A distance, a radius for each atom (their sum counts), or a distance for each pair of elements:
        ``{("H", "O"): 1.2}``, or with atomic numbers. Pairs of other elements are not listed.
    self_interaction : bool
        Whether each atom is its own neighbour; with a dict only if that has its element twice, as in ASE. Images of an
        atom are listed in any case.
    **options
        Of :func:`particlemesh.neighbour_list`: ``half``, ``backend``, ``threads``.

    Returns
    -------
    array or tuple of arrays
        As of :func:`particlemesh.neighbour_list`, sorted by ``i``, with ``i``, ``j`` and ``S`` of int64 as in ASE.
        ASE lists distances below the cutoff; this function also lists those equal to it, for every kind of cutoff.

    Raises
    ------
    ValueError, TypeError
        If an argument is not allowed.

    Examples
    --------
    >>> import numpy as np
    >>> from ase.build import bulk
    >>> from particlemesh.adapters.ase import neighbor_list
    >>> i, d = neighbor_list("id", bulk("Cu", cubic=True), 2.6)
    >>> np.bincount(i), d.max().round(4)
    (array([12, 12, 12, 12]), np.float64(2.5527))
    """
    checks.letters(quantities)
    if not quantities:
        raise ValueError("quantities is ''; give at least one letter of 'ijdDS'.")
    common.flag(self_interaction, "self_interaction")
    given = particles(a)
    pairs = _pairs(cutoff, a) if isinstance(cutoff, Mapping) else None
    reach = cutoff if pairs is None else max(pairs.values(), default=0.0)
    plain = pairs is None and not self_interaction
    needed = quantities + "".join(letter for letter in "ijd" if not plain and letter not in quantities)
    results = search(needed, *given, reach, **options)
    arrays = dict(zip(needed, results if len(needed) > 1 else (results,), strict=True))
    if self_interaction:
        arrays = _with_selves(arrays, len(a))
    if pairs is not None:
        arrays = _of_elements(arrays, pairs, np.asarray(a.numbers))
    # ASE's integers: codes such as i * n + j hold in them.
    results = tuple(arrays[letter].astype(np.int64) if letter in "ijS" else arrays[letter] for letter in quantities)
    return results if len(results) > 1 else results[0]


neighbor_list = neighbour_list  # as ASE and American English spell it


def _pairs(cutoff: Mapping[Any, Any], atoms: Any) -> dict[tuple[int, int], float]:
    """Return the distance of each pair of atomic numbers, the smaller number first."""
    from ase.data import atomic_numbers

    reaches: dict[tuple[int, int], float] = {}
    for names, distance in cutoff.items():
        if not isinstance(names, tuple) or len(names) != 2:
            raise ValueError(f"cutoff has the key {names!r}; keys are pairs of elements, such as ('H', 'O').")
        unknown = [name for name in names if isinstance(name, str) and name not in atomic_numbers]
        if unknown:
            raise ValueError(f"cutoff has the element {unknown[0]!r}, which ASE does not know.")
        first, second = sorted(atomic_numbers[name] if isinstance(name, str) else int(name) for name in names)
        reaches[first, second] = checks.radius(distance)
    return reaches


def _of_elements(arrays: dict[str, Any], pairs: dict[tuple[int, int], float], numbers: Any) -> dict[str, Any]:
    """Keep the pairs that are within the distance of their elements."""
    reaches = np.full((int(numbers.max(initial=0)) + 1,) * 2, -1.0)
    for (first, second), distance in pairs.items():
        if second < len(reaches):
            reaches[first, second] = reaches[second, first] = distance
    keep = arrays["d"] <= reaches[numbers[arrays["i"]], numbers[arrays["j"]]]
    return {letter: array[keep] for letter, array in arrays.items()}


def _with_selves(arrays: dict[str, Any], count: int) -> dict[str, Any]:
    """Add the pair of each atom with itself, before its other pairs."""
    atoms = np.arange(count, dtype=arrays["i"].dtype)
    order = np.argsort(np.concatenate([atoms, arrays["i"]]), kind="stable")
    selves = {"i": atoms, "j": atoms}
    return {
        letter: np.concatenate([selves.get(letter, np.zeros((count, *array.shape[1:]), array.dtype)), array])[order]
        for letter, array in arrays.items()
    }
