# SPDX-License-Identifier: BSD-3-Clause
"""A calculator of ASE for the electrostatics of point charges. Needs the package ase."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from ase.calculators.calculator import Calculator, all_changes
from ase.units import Bohr, Hartree

from particlemesh.apps.pme.pme import PME
from particlemesh.apps.pme.result import Result
from particlemesh.apps.pme.slab import slab_correction

__all__ = ["PMECalculator"]

_CHANGE = 0.05  # of a cell, up to which parameters are kept


class PMECalculator(Calculator):
    """Energy, forces and stress of point charges, in eV and angstrom.

    The charges are those of ``atoms.get_initial_charges()``, in units of e. Periodic along three axes, or along two
    with a gap along the third: then the correction for slabs is added. Parameters are chosen in the first cell. They
    are chosen again when lattice vectors have changed by 5 %.

    Parameters
    ----------
    accuracy : float
        Root mean square error of the forces, over a typical one.
    charges : array (N,), optional
        Instead of those of the atoms.
    **options
        Of :class:`PME`, such as ``exclusions``.

    Raises
    ------
    ValueError
        If the atoms are not periodic along at least two axes, or have no charges.

    Examples
    --------
    The lattice energy of rock salt, by Madelung's constant 1.74756459:

    >>> from ase.build import bulk
    >>> from particlemesh.apps.pme.calculator import PMECalculator
    >>> salt = bulk("NaCl", "rocksalt", a=5.64, cubic=True)
    >>> salt.set_initial_charges([1, -1] * 4)
    >>> salt.calc = PMECalculator(accuracy=1e-8)
    >>> round(salt.get_potential_energy() / 4, 4), round(-1.74756459 * 14.399645 / 2.82, 4)
    (-8.9235, -8.9235)
    """

    implemented_properties: ClassVar[list[str]] = ["energy", "free_energy", "energies", "forces", "stress"]

    def __init__(self, accuracy: float = 1e-6, *, charges: Any = None, **options: Any) -> None:
        super().__init__()
        self._charges = None if charges is None else np.asarray(charges, np.float64)
        options.setdefault("coulomb_constant", Hartree * Bohr)
        self._options = {"accuracy": accuracy, **options}
        self.pme: PME | None = None
        self._first = np.zeros((3, 3))  # the cell in which its parameters were chosen

    def calculate(
        self, atoms: Any = None, properties: Any = ("energy",), system_changes: Any = tuple(all_changes)
    ) -> None:
        """Calculate all properties of the atoms; ASE calls this."""
        super().calculate(atoms, properties, system_changes)
        atoms = self.atoms
        open_axes = np.flatnonzero(~atoms.pbc)
        if len(open_axes) > 1:
            raise ValueError(f"pbc is {atoms.pbc.tolist()}; give at least two periodic axes, and a cell with a gap.")
        cell = np.array(atoms.cell[:])
        charges = atoms.get_initial_charges() if self._charges is None else self._charges
        if not charges.any():
            raise ValueError("the atoms have no charges: call atoms.set_initial_charges, or give charges.")
        if self.pme is None or not np.array_equal(self.pme.box.matrix, cell):
            self.pme = self._in(cell)
        results = [self.pme(atoms.positions, charges)]
        if len(open_axes):
            constant = self.pme.coulomb_constant
            results.append(
                slab_correction(atoms.positions, charges, cell, axis=int(open_axes[0]), coulomb_constant=constant)
            )
        total = Result(*(sum(getattr(r, name) for r in results) for name in ("energy", "energies", "forces", "virial")))
        stress = total.virial / atoms.get_volume()
        self.results = {
            "energy": float(total.energy),
            "free_energy": float(total.energy),
            "energies": total.energies,
            "forces": total.forces,
            "stress": stress[[0, 1, 2, 1, 0, 0], [0, 1, 2, 2, 2, 1]],
        }

    def _in(self, cell: np.ndarray) -> PME:
        """Return a PME in another cell, with the parameters of the last one if the cell has changed little."""
        chosen = None if self.pme is None else self.pme.parameters
        if chosen is None or np.linalg.norm(cell - self._first, 2) > _CHANGE * np.linalg.norm(self._first, -2):
            self._first = cell
            return PME(cell, **self._options)
        split = {"splitting": chosen.splitting} if chosen.bandwidth is None else {"bandwidth": chosen.bandwidth}
        same = {"splitting": None, "cutoff": chosen.cutoff, "shape": chosen.shape, "window": chosen.window, **split}
        return PME(cell, **{**self._options, **same})
