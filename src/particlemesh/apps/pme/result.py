# SPDX-License-Identifier: BSD-3-Clause
"""What a call returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass
class Result:
    """Energy, forces and virial of sets of charges; leading axes are those of the charges.

    Parameters
    ----------
    energy : array (...,)
        In units of ``coulomb_constant * charge**2 / length``.
    energies : array (..., N)
        Of each particle: half of that of its pairs. They sum to the energy.
    forces : array (..., N, 3)
    virial : array (..., 3, 3) or None
        Derivative of the energy by a strain, with which positions and lattice vectors x become ``x + strain @ x``. Its
        trace is minus the energy of charges, and -6 times that of ``-c_i c_j / r**6`` (:class:`Dispersion`). The
        pressure's part is ``-trace(virial) / (3 volume)``.
    """

    energy: Any
    energies: Any
    forces: Any
    virial: Any = None
