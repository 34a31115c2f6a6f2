# SPDX-License-Identifier: BSD-3-Clause
"""Neighbour lists with the arguments of vesin's."""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np

from particlemesh import checks as common
from particlemesh.adapters import check
from particlemesh.adapters.points import completed, on_host
from particlemesh.box import Box
from particlemesh.grid import checks
from particlemesh.grid.neighbour_list import neighbour_list as search

__all__ = ["NeighborList", "ase_neighbor_list"]


class NeighborList(common.Fixed):
    """Neighbour lists with the arguments, results and meaning of ``vesin.NeighborList``.

    Parameters
    ----------
    cutoff : number
        Pairs have a distance below it, in the user's unit.
    full_list : bool
        Whether pairs are listed from both sides. If not, ``i`` is below ``j``; for a point and its image, the first
        shift that is not zero is positive.
    sorted : bool
        Lists are always sorted by ``i``.
    algorithm : {"auto", "brute_force", "cell_list"}
        Of vesin; no effect here.
    skin : number
        Of vesin, which keeps lists; no effect on the result in either.
    n_threads : int
        0 for as many as the machine has.

    Raises
    ------
    ValueError, TypeError
        If an argument is not allowed.

    Examples
    --------
    >>> import numpy as np
    >>> from particlemesh.adapters.vesin import NeighborList
    >>> made = NeighborList(cutoff=0.5, full_list=False)
    >>> points = np.array([[0.1, 0.0, 0.0], [0.9, 0.0, 0.0]])
    >>> pairs, d = made.compute(points, box=np.eye(3), periodic=True, quantities="Pd")
    >>> pairs.tolist(), d.round(6)
    ([[0, 1]], array([0.2]))
    """

    def __init__(
        self, *, cutoff: float, full_list: bool, sorted: bool = False,  # noqa: A002 - vesin's name
        algorithm: str = "auto", skin: float = 0.0, n_threads: int = 0,
    ) -> None:  # fmt: skip
        self.cutoff = checks.radius(cutoff)
        if not self.cutoff:
            raise ValueError("cutoff is 0; a positive number is needed.")
        self.full_list, self.sorted = common.flag(full_list, "full_list"), common.flag(sorted, "sorted")
        self.algorithm = common.one_of(algorithm, "algorithm", ("auto", "brute_force", "cell_list"))
        self.skin, self.n_threads = checks.radius(skin), common.integer(n_threads, "n_threads", 0, 2**31 - 1)

    def compute(
        self, points: Any, box: Any, periodic: Any, quantities: str = "ij", copy: bool = True
    ) -> tuple[Any, ...]:
        """Return the neighbours of points.

        Parameters
        ----------
        points : array_like (N, 3)
            Of NumPy, CuPy or torch. They are searched in float64, as in vesin.
        box : array_like (3, 3)
            Lattice vectors as rows. Those of open axes have no effect and may be zero.
        periodic : bool or three bools
            Which axes repeat.
        quantities : str
            Letters: "i", "j" (P,) and "P" (P, 2), both in one, are uint64. "S" (P, 3) is int32. "d" (P,) and "D"
            (P, 3) have the type of the points.
        copy : bool
            Of vesin; no effect, arrays always stay valid.

        Returns
        -------
        tuple of arrays
            One for each letter, of the kind of the points.

        Raises
        ------
        ValueError, TypeError
            If an argument is not allowed, or a point is not finite.
        """
        x = points if hasattr(points, "__dlpack__") else np.asarray(points)
        rows, flags = np.asarray(on_host(box), np.float64), np.asarray(on_host(periodic))
        if x.shape[1:] != (3,) or rows.shape != (3, 3) or flags.shape not in ((), (3,)):
            shapes = f"{tuple(x.shape)}, {rows.shape} and {flags.shape}"
            raise ValueError(f"points, box, periodic have the shapes {shapes}; allowed are (n, 3), (3, 3), () or (3,).")
        if not isinstance(quantities, str) or set(quantities) - set("ijPSdD"):
            raise ValueError(f"quantities is {quantities!r}; letters of 'ijPSdD' are allowed.")
        if getattr(x, "requires_grad", False):
            raise ValueError("points require derivatives, which this list does not have: give points.detach().")
        axes = tuple(np.broadcast_to(flags.astype(bool), 3).tolist())
        place, below = Box(completed(rows, axes), periodic=axes), math.nextafter(self.cutoff, 0.0)
        letters = "ij" + "".join(letter for letter in "SdD" if letter in quantities)
        options: dict[str, Any] = {"half": not self.full_list, "threads": self.n_threads or None}
        listed = dict(zip(letters, search(letters, _cast(x, "float64"), place, below, **options), strict=True))
        name = str(x.dtype).rpartition(".")[2]
        real = name if name.startswith("float") else "float64"
        types = {"i": "uint64", "j": "uint64", "S": "int32", "d": real, "D": real}
        listed = {letter: _cast(array, types[letter]) for letter, array in listed.items()}
        if "P" in quantities:
            listed["P"] = sys.modules[type(x).__module__.partition(".")[0]].stack((listed["i"], listed["j"]), -1)
        return tuple(listed[letter] for letter in quantities)


def ase_neighbor_list(
    quantities: str, a: Any, cutoff: float, self_interaction: bool = False, max_nbins: float = 0
) -> tuple[Any, ...]:
    """Return neighbours with the arguments and results of ``vesin.ase_neighbor_list``.

    Parameters
    ----------
    quantities : str
        Letters of :meth:`NeighborList.compute`.
    a : ase.Atoms
    cutoff : number
        Pairs have a distance below it.
    self_interaction : {False}
        An atom is not its own neighbour; its images are.
    max_nbins : number
        Of ASE; no effect.

    Returns
    -------
    tuple of arrays
        Of :meth:`NeighborList.compute`, from both sides and sorted by ``i``.

    Raises
    ------
    ValueError, TypeError
        If an argument is not allowed.

    Examples
    --------
    >>> from ase.build import bulk
    >>> from particlemesh.adapters.vesin import ase_neighbor_list
    >>> len(ase_neighbor_list("ij", bulk("Cu", cubic=True), 2.6)[0])
    48
    """
    check(a, ("cell", "pbc", "positions"), "an ase.Atoms")
    if self_interaction:
        raise ValueError("self_interaction is True; only False is allowed. adapters.ase.neighbor_list takes True.")
    made = NeighborList(cutoff=cutoff, full_list=True, sorted=True)
    return made.compute(a.positions, a.cell[:], a.pbc, quantities)


def _cast(array: Any, name: str) -> Any:
    """Return an array of NumPy, CuPy or torch in another type."""
    return array.to(getattr(sys.modules["torch"], name)) if hasattr(array, "detach") else array.astype(name)
