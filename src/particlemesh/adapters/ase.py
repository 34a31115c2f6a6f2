# SPDX-License-Identifier: BSD-3-Clause
"""Atoms of ASE: positions and box, and ASE's functions and objects for neighbours by our search."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import scipy.sparse

from particlemesh import checks as common
from particlemesh.adapters import PositionsInBox, check
from particlemesh.adapters.points import completed
from particlemesh.box import Box
from particlemesh.grid import checks
from particlemesh.grid.neighbour_list import neighbour_list as search

__all__ = [
    "NeighborList",
    "NewPrimitiveNeighborList",
    "PrimitiveNeighborList",
    "first_neighbors",
    "neighbor_list",
    "neighbour_list",
    "particles",
    "primitive_neighbor_list",
]


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
    _repeated(rows, periodic)
    complete = np.array(atoms.cell.complete()[:])
    return PositionsInBox(np.array(atoms.positions), Box(complete, periodic=periodic))


def neighbour_list(
    quantities: str, a: Any, cutoff: Any, self_interaction: bool = False, max_nbins: float = 1e6, **options: Any
) -> Any:
    """Return neighbours with the arguments, letters and meaning of ``ase.neighborlist.neighbor_list``.

    Parameters
    ----------
    quantities : str
        Letters of "ijdDS", each at most once.
    a : ase.Atoms
    cutoff : number, array (N,) or dict
        A distance, a radius for each atom (their sum counts), or a distance for each pair of elements:
        ``{("H", "O"): 1.2}``, or with atomic numbers. Pairs of other elements are not listed.
    self_interaction : bool
        Whether each atom is its own neighbour; with a dict only if that has its element twice, as in ASE. Images of an
        atom are listed in any case.
    max_nbins : number
        Of ASE; no effect here: cells are never many more than atoms.
    **options
        Of :func:`particlemesh.neighbour_list`: ``half``, ``backend``, ``threads``.

    Returns
    -------
    array or tuple of arrays
        As of :func:`particlemesh.neighbour_list`, sorted by ``i``, with ``i``, ``j`` and ``S`` of int64 as in ASE.
        Distances are below the cutoff.

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
    check(a, ("cell", "pbc", "positions", "numbers"), "an ase.Atoms")
    given = a.pbc, a.cell[:], a.positions, cutoff, a.numbers
    return primitive_neighbor_list(quantities, *given, self_interaction, max_nbins=max_nbins, **options)


neighbor_list = neighbour_list  # as ASE and American English spell it


def primitive_neighbor_list(
    quantities: str, pbc: Any, cell: Any, positions: Any, cutoff: Any, numbers: Any = None,
    self_interaction: bool = False, use_scaled_positions: bool = False, max_nbins: float = 1e6, **options: Any,
) -> Any:  # fmt: skip
    """Return neighbours with the arguments and meaning of ``ase.neighborlist.primitive_neighbor_list``.

    Parameters
    ----------
    quantities, cutoff, self_interaction, max_nbins, **options
        Of :func:`neighbour_list`.
    pbc : three bools
        Which axes repeat.
    cell : array (3, 3)
        Lattice vectors as rows. Those of axes that do not repeat have no effect and may be zero.
    positions : array_like (N, 3)
        In the unit of the cell; with ``use_scaled_positions`` in units of the lattice vectors.
    numbers : int array (N,), optional
        Atomic numbers; needed for a dict of cutoffs.
    use_scaled_positions : bool

    Returns
    -------
    array or tuple of arrays
        As of :func:`neighbour_list`.

    Raises
    ------
    ValueError, TypeError
        If an argument is not allowed.

    Examples
    --------
    >>> import numpy as np
    >>> from particlemesh.adapters.ase import primitive_neighbor_list
    >>> primitive_neighbor_list("d", [True] * 3, np.eye(3), [[0.1, 0, 0], [0.9, 0, 0]], 0.5).round(6)
    array([0.2, 0.2])
    """
    checks.letters(quantities)
    if not quantities:
        raise ValueError("quantities is ''; give at least one letter of 'ijdDS'.")
    common.flag(self_interaction, "self_interaction")
    rows, periodic = np.array(cell, np.float64), [bool(flag) for flag in pbc]
    x = np.asarray(positions, np.float64).reshape(-1, 3)
    if common.flag(use_scaled_positions, "use_scaled_positions"):
        x = x @ rows
    _repeated(rows, periodic)
    reach, limit = _limits(cutoff, numbers)
    asked = quantities + "ij" * bool(limit or self_interaction) + "d" * bool(limit) + "s" * self_interaction
    asked = "".join(dict.fromkeys(asked))
    results = search(asked, x, Box(completed(rows, tuple(periodic)), periodic=periodic), reach, **options)
    arrays = dict(zip(asked, results if len(asked) > 1 else (results,), strict=True))
    if self_interaction:  # before an atom's other pairs
        starts, atoms = arrays.pop("s")[:-1], np.arange(len(x))
        selves = {"i": atoms, "j": atoms}
        arrays = {name: np.insert(array, starts, selves.get(name, 0), axis=0) for name, array in arrays.items()}
    if limit is not None:
        keep = arrays["d"] < limit(arrays["i"], arrays["j"])
        arrays = {name: array[keep] for name, array in arrays.items()}
    # ASE's integers: codes such as i * n + j hold in them.
    results = tuple(arrays[name].astype(np.int64) if name in "ijS" else arrays[name] for name in quantities)
    return results if len(results) > 1 else results[0]


def _flag(name: str, doc: str) -> property:
    """Return a property of a list that is a bool; the list is made anew after it was changed."""

    def change(self: Any, value: bool) -> None:
        if common.flag(value, name) != getattr(self, f"_{name}"):
            self._of = self._pairs = ()
        setattr(self, f"_{name}", value)

    return property(lambda self: getattr(self, f"_{name}"), change, doc=doc)


def first_neighbors(natoms: int, first_atom: Any) -> np.ndarray:
    """Return where the pairs of each atom begin, as ``ase.neighborlist.first_neighbors``.

    Parameters
    ----------
    natoms : int
    first_atom : int array (P,)
        The first atom of each pair, ascending.

    Returns
    -------
    int64 array (natoms + 1,)
        The pairs of atom k have the indices from ``seed[k]`` to ``seed[k + 1] - 1``.

    Examples
    --------
    >>> from particlemesh.adapters.ase import first_neighbors
    >>> first_neighbors(3, [0, 0, 2])
    array([0, 2, 2, 3])
    """
    return np.searchsorted(np.asarray(first_atom, np.int64), np.arange(natoms + 1)).astype(np.int64)


class PrimitiveNeighborList(common.Fixed):
    """A list that is renewed when atoms have moved, as ``ase.neighborlist.PrimitiveNeighborList``.

    It also has what ``NewPrimitiveNeighborList`` has, which is another name of it.

    Parameters
    ----------
    cutoffs : array (N,)
        A radius for each atom; pairs are closer than the sum of both, skins included.
    skin : number
        It is added to each radius. The list is renewed once an atom has moved farther.
    sorted : bool
        Whether the neighbours of an atom are sorted by index, then by offset.
    self_interaction : bool
        Whether each atom is its own neighbour. May be set; the next update makes the list anew.
    bothways : bool
        Whether pairs are listed for both atoms; by default for one of them. May be set, too.
    use_scaled_positions : bool
        Whether positions are in units of the lattice vectors.

    Attributes
    ----------
    nupdates : int
        How often the list was made.
    pair_first, pair_second : int64 arrays (P,)
    offset_vec : int64 array (P, 3)
    first_neigh : int64 array (N + 1,)
        Where the pairs of each atom begin.
    neighbors, displacements : lists of N arrays
        The neighbours of each atom and their offsets.

    Raises
    ------
    ValueError, TypeError
        If an argument is not allowed.

    Notes
    -----
    If not ``bothways``, pairs have ``i < j``. For an atom and its own image the first offset that is not zero is
    positive. ASE's two classes list other ends of some pairs.

    Examples
    --------
    >>> from ase.build import bulk
    >>> from particlemesh.adapters.ase import PrimitiveNeighborList
    >>> copper = bulk("Cu", cubic=True)
    >>> made = PrimitiveNeighborList([1.3] * 4, skin=0.1, self_interaction=False, bothways=True)
    >>> made.update(copper.pbc, copper.cell, copper.positions)
    True
    >>> indices, offsets = made.get_neighbors(0)
    >>> len(indices), made.update(copper.pbc, copper.cell, copper.positions + 0.01)
    (12, False)
    """

    def __init__(
        self, cutoffs: Any, skin: float = 0.3, sorted: bool = False,  # noqa: A002 - ASE's name
        self_interaction: bool = True, bothways: bool = False, use_scaled_positions: bool = False,
    ) -> None:  # fmt: skip
        self.skin = checks.radius(skin)
        self.cutoffs = np.asarray(cutoffs, np.float64) + self.skin
        self.sorted = common.flag(sorted, "sorted")
        self._self_interaction = common.flag(self_interaction, "self_interaction")
        self._bothways = common.flag(bothways, "bothways")
        self.use_scaled_positions = common.flag(use_scaled_positions, "use_scaled_positions")
        self._updates = 0
        self._of: tuple[np.ndarray, ...] = ()
        self._pairs: tuple[np.ndarray, ...] = ()

    def update(self, pbc: Any, cell: Any, positions: Any, numbers: Any = None) -> bool:
        """Renew the list if cell or pbc have changed, or an atom has moved farther than the skin.

        Returns
        -------
        bool
            Whether it was renewed.
        """
        new = np.array(pbc, bool), np.array(cell, np.float64), np.array(positions, np.float64).reshape(-1, 3)
        if self._of and all(np.array_equal(a, b) for a, b in zip(self._of[:2], new[:2], strict=True)):
            old, x = self._of[2], new[2]
            if old.shape == x.shape and ((old - x) ** 2).sum(1).max(initial=0) <= self.skin**2:
                return False
        self.build(pbc, cell, positions, numbers)
        return True

    def build(self, pbc: Any, cell: Any, positions: Any, numbers: Any = None) -> None:
        """Make the list."""
        of = np.array(pbc, bool), np.array(cell, np.float64), np.array(positions, np.float64).reshape(-1, 3)
        if len(self.cutoffs) != len(of[2]):
            raise ValueError(
                f"Wrong number of cutoff radii: {len(self.cutoffs)} for {len(of[2])} atoms; give one each."
            )
        given = *of, self.cutoffs, numbers, self.self_interaction, self.use_scaled_positions
        i, j, shift = primitive_neighbor_list("ijS", *given, half=not self.bothways)
        if self.sorted:
            order = np.lexsort((*shift.T[::-1], j, i))
            i, j, shift = i[order], j[order], shift[order]
        self._of, self._pairs = of, (i, j, shift, first_neighbors(len(of[2]), i))
        self._updates += 1

    def get_neighbors(self, a: int) -> tuple[np.ndarray, np.ndarray]:
        """Return indices (n,) and offsets (n, 3) of the neighbours of atom ``a``, in cells.

        Raises
        ------
        RuntimeError
            Before the first update.
        IndexError
            If there is no such atom.
        """
        starts = self.first_neigh
        if not -len(starts) < a < len(starts) - 1:
            raise IndexError(f"a is {a}; there are {len(starts) - 1} atoms.")
        here = slice(*starts[a % (len(starts) - 1) :][:2])
        return self.pair_second[here], self.offset_vec[here]

    def get_connectivity_matrix(self, sparse: bool = True) -> Any:
        """Return an int8 matrix (N, N) that is 1 for neighbours: a sparse one (``dok_matrix``), or an array."""
        matrix = np.zeros((len(self.cutoffs),) * 2, np.int8) if not common.flag(sparse, "sparse") else None
        if matrix is not None:
            matrix[self.pair_first, self.pair_second] = 1
            return matrix
        ones = np.ones(len(self.pair_first), bool)  # a sum of bools is at most True
        pairs = (ones, (self.pair_first, self.pair_second))
        return scipy.sparse.coo_matrix(pairs, (len(self.cutoffs),) * 2).todok().astype(np.int8)

    self_interaction = _flag("self_interaction", "Whether each atom is its own neighbour, from the next update on.")
    bothways = _flag("bothways", "Whether pairs are listed for both atoms, from the next update on.")
    nupdates = property(lambda self: self._updates)
    pair_first = property(lambda self: self._made_pairs(0))
    pair_second = property(lambda self: self._made_pairs(1))
    offset_vec = property(lambda self: self._made_pairs(2))
    first_neigh = property(lambda self: self._made_pairs(3))
    neighbors = property(lambda self: _split(self.pair_second, self.first_neigh))
    displacements = property(lambda self: _split(self.offset_vec, self.first_neigh))

    @property
    def nneighbors(self) -> int:
        """How many pairs there are, each counted once, without atoms with themselves."""
        count = len(self.pair_first) - self.self_interaction * len(self.cutoffs)
        return count // 2 if self.bothways else count

    @property
    def npbcneighbors(self) -> int:
        """How many of these pairs have an offset."""
        count = int(self.offset_vec.any(1).sum())
        return count // 2 if self.bothways else count

    def _made_pairs(self, number: int) -> np.ndarray:
        if not self._pairs:
            raise RuntimeError("Must call update(atoms) first: there is no list yet.")
        return self._pairs[number]


NewPrimitiveNeighborList = PrimitiveNeighborList  # one search serves both


class NeighborList(common.Fixed):
    """A list for atoms that is renewed when they have moved, as ``ase.neighborlist.NeighborList``.

    Parameters
    ----------
    cutoffs, skin, sorted, self_interaction, bothways
        Of :class:`PrimitiveNeighborList`.
    primitive : class
        What makes the lists.

    Attributes
    ----------
    nl : PrimitiveNeighborList
        The list. Its other attributes are also those of this object.

    Examples
    --------
    >>> from ase.build import molecule
    >>> from particlemesh.adapters.ase import NeighborList
    >>> made = NeighborList([0.76, 0.66], self_interaction=False)
    >>> made.update(molecule("CO")), made.get_neighbors(0)
    (True, (array([1]), array([[0, 0, 0]])))
    """

    def __init__(
        self, cutoffs: Any, skin: float = 0.3, sorted: bool = False,  # noqa: A002 - ASE's name
        self_interaction: bool = True, bothways: bool = False, primitive: Any = PrimitiveNeighborList,
    ) -> None:  # fmt: skip
        self.nl = primitive(cutoffs, skin, sorted, self_interaction=self_interaction, bothways=bothways)

    def update(self, atoms: Any) -> bool:
        """Renew the list of an ``ase.Atoms`` if needed; return whether it was."""
        check(atoms, ("cell", "pbc", "positions"), "an ase.Atoms")
        return self.nl.update(atoms.pbc, atoms.get_cell(complete=True), atoms.positions)

    def get_neighbors(self, a: int) -> tuple[np.ndarray, np.ndarray]:
        """Return indices (n,) and offsets (n, 3) of the neighbours of atom ``a``."""
        return self.nl.get_neighbors(a)

    def get_connectivity_matrix(self, sparse: bool = True) -> Any:
        """Return the matrix of :meth:`PrimitiveNeighborList.get_connectivity_matrix`."""
        return self.nl.get_connectivity_matrix(sparse)

    nupdates = property(lambda self: self.nl.nupdates)
    nneighbors = property(lambda self: self.nl.nneighbors)
    npbcneighbors = property(lambda self: self.nl.npbcneighbors)


def _split(array: np.ndarray, starts: np.ndarray) -> list[np.ndarray]:
    return [array[here:there] for here, there in itertools.pairwise(starts)]


def _repeated(rows: np.ndarray, periodic: list[bool]) -> None:
    """Check that the axes that repeat have lattice vectors."""
    if rows.shape != (3, 3) or len(periodic) != 3:
        raise ValueError(f"cell has shape {rows.shape}, pbc has length {len(periodic)}; (3, 3) and 3 are needed.")
    empty = [axis for axis in range(3) if periodic[axis] and not rows[axis].any()]
    if empty:
        raise ValueError(f"pbc is {periodic}, but lattice vector {empty[0]} is zero: set atoms.cell or atoms.pbc.")


def _limits(cutoff: Any, numbers: Any) -> tuple[Any, Callable[[Any, Any], Any] | None]:
    """Return the radius of a search, and below which distance a pair (i, j) is listed, if that is not said by it."""
    if isinstance(cutoff, Mapping):
        if numbers is None:
            raise TypeError("cutoff is a dict of elements, but numbers is missing: give the atomic numbers.")
        kinds, table = np.asarray(numbers), _table(cutoff, int(np.max(numbers, initial=0)))
        return float(table.max()), lambda i, j: table[kinds[i], kinds[j]]
    if np.ndim(cutoff):
        radii = np.asarray(cutoff, np.float64)
        return radii, lambda i, j: radii[i] + radii[j]
    reach = checks.radius(cutoff)
    return (float(np.nextafter(reach, 0)), None) if reach else (0.0, lambda i, j: 0.0)


def _table(cutoff: Mapping[Any, Any], largest: int) -> np.ndarray:
    """Return the cutoff of each pair of atomic numbers up to the largest one."""
    from ase.data import atomic_numbers

    table = np.zeros((largest + 1,) * 2)
    for names, distance in cutoff.items():
        if not isinstance(names, tuple) or len(names) != 2:
            raise ValueError(f"cutoff has the key {names!r}; keys are pairs of elements, such as ('H', 'O').")
        unknown = [name for name in names if isinstance(name, str) and name not in atomic_numbers]
        if unknown:
            raise ValueError(f"cutoff has the element {unknown[0]!r}, which ASE does not know.")
        pair = [atomic_numbers[name] if isinstance(name, str) else int(name) for name in names]
        reach = checks.radius(distance)
        if max(pair) <= largest:
            table[pair, pair[::-1]] = reach
    return table
