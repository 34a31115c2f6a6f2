# SPDX-License-Identifier: BSD-3-Clause
"""What a calculation returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np


@dataclass(repr=False)
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
        Derivative of the energy by a strain: positions and periodic lattice vectors x become ``x + strain @ x``. Its
        trace is minus the energy of charges, but in wires with a net charge. It is -6 times that of
        ``-c_i c_j / r**6`` (:class:`Dispersion`). The pressure's part is ``-trace(virial) / (3 volume)``.
    potentials : array (..., N) or None
        Derivative of the energy by a charge, in units of ``coulomb_constant * charge / length``, if asked for. The
        particle's own charge and its excluded partners are left out. Scaled partners are scaled. Further images of all
        are included. A charge of zero is a probe, which others do not see.
    fields : array (..., N, 3) or None
        Force on a unit charge in the place of the particle, from the same charges.

    Attributes
    ----------
    error : float, NumPy array (...) or None
        Root-mean-square error of the forces over a typical one, measured, if asked for: see `error` of
        :meth:`PME.__call__`.

    Examples
    --------
    >>> import numpy as np
    >>> from particlemesh.apps.pme import PME
    >>> atoms = np.array([[0.1, 0.5, 0.5], [0.6, 0.5, 0.5]])
    >>> result = PME((2.0, 2.0, 2.0), accuracy=1e-6)(atoms, np.array([1.0, -1.0]))
    >>> round(float(result.energies.sum() / result.energy), 6), round(float(np.trace(result.virial) / result.energy), 6)
    (1.0, -1.0)
    """

    energy: Any
    energies: Any
    forces: Any
    virial: Any = None
    potentials: Any = None
    fields: Any = None
    error: ClassVar[Any] = None  # of a result that was asked for it

    def __repr__(self) -> str:
        """Return one line for each field that there is; arrays on devices are not read."""
        lines = [f"  {name}: {_described(value)}" for name, value in vars(self).items() if value is not None]
        return "\n".join([f"<{type(self).__name__}", *lines]) + ">"


def _described(value: Any) -> str:
    """Return a number, or shape and dtype of an array."""
    if isinstance(value, (int, float, np.number)) or (isinstance(value, np.ndarray) and value.ndim == 0):
        return f"{value:.8g}"
    return f"array {tuple(value.shape)}, {str(value.dtype).removeprefix('torch.')}"
