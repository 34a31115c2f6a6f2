# SPDX-License-Identifier: BSD-3-Clause
"""The correction of a periodic Ewald sum for slabs: systems that repeat along two lattice vectors only."""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np

import particlemesh as pm
from particlemesh import kernels
from particlemesh.apps.pme.parameters import check_finite
from particlemesh.apps.pme.result import Result
from particlemesh.kernels import checks


def slab_correction(
    positions: Any, charges: Any, box: Any, *, axis: int = 2, coulomb_constant: float = 1.0, fields: bool = False
) -> Result:
    """Return what turns an Ewald sum of three periodic axes into that of a slab [yeh1999]_ [ballenegger2009]_.

    Add it to the result of :class:`PME`. The box must be longer along the slab's axis than the slab is thick. The error
    is about ``exp(-2 pi gap / period)``: a gap of three periods leaves 1e-8. With a net charge the result is the energy
    of the slab without a background [ballenegger2009]_.

    Parameters
    ----------
    positions : array (N, 3)
        Not folded along the slab's axis: the slab is where the coordinates say.
    charges : array (..., N)
        Leading axes are sets of charges.
    box : Box, lengths or matrix
        As for :class:`PME`, gap included.
    axis : int
        The lattice vector that does not repeat.
    coulomb_constant : float
    fields : bool
        Whether the result has potentials and fields.

    Returns
    -------
    Result
        Energies (...), energies (..., N), forces (..., N, 3) and virials (..., 3, 3). If asked for, potentials (..., N)
        and fields (..., N, 3).

    Raises
    ------
    ValueError, TypeError
        If an argument is not allowed, a number is not finite, or the slab is thicker than the box.

    Examples
    --------
    Two charged planes attract each other as in a capacitor, whose field does not depend on the gap:

    >>> import numpy as np
    >>> from particlemesh.apps.pme import PME, slab_correction
    >>> x, charges = np.array([[0.2, 0.3, 1.0], [0.6, 0.8, 3.0]]), np.array([1.0, -1.0])
    >>> forces = []
    >>> for height in (5.0, 7.0):
    ...     box = (1.0, 1.0, height)
    ...     periodic = PME(box, cutoff=0.9, splitting=6.0, shape=(24, 24, 160), window="bspline10")(x, charges)
    ...     forces.append(periodic.forces[0, 2] + slab_correction(x, charges, box).forces[0, 2])
    >>> np.round(forces, 3).tolist(), round(2 * np.pi, 3)
    ([6.283, 6.283], 6.283)
    """
    box = pm.Box.of(box)
    if box.ndim != 3:
        raise ValueError(f"the box is {box.ndim}-D; a slab needs a 3-D one.")
    checks.flag(fields, "fields")
    axis = checks.integer(axis, "axis", 0, 2)
    c = checks.positive(coulomb_constant, "coulomb_constant")
    taken = kernels.take(positions, (None, 3), "positions", batch=False, dense=False)
    kind, x, dtype = taken.kind, taken.native, taken.dtype
    if kind.home not in ("cpu", "cuda"):
        raise TypeError(f"positions are of {kind.name}; give arrays of NumPy, CuPy, torch or JAX.")
    xp: Any = np if kind.home == "cpu" else sys.modules["cupy"]
    normal = box.inverse[axis] / np.linalg.norm(box.inverse[axis])
    height, factor = 1 / float(np.linalg.norm(box.inverse[axis])), 2 * math.pi * c / box.volume
    with kind.scope(taken.user):
        q = kernels.take(charges, (len(x),), "charges", like=taken, dense=False).native
        check_finite(x, "positions", 0)
        check_finite(q, "charges")
        n = xp.asarray(normal, dtype)
        z = x @ n
        if len(x):
            thickness = float(z.max()) - float(z.min())
            if not thickness < height:
                raise ValueError(f"the slab is {thickness:g} thick and the box is {height:g} high: give a higher box.")
            z = z - (z.max() + z.min()) / 2  # the result does not depend on the origin; rounding does
        total, moment, second = (q.sum(-1)[..., None], (q * z).sum(-1)[..., None], (q * z**2).sum(-1)[..., None])
        potentials = 2 * factor * (moment * z - (total * z**2 + second) / 2 - total * (height**2 / 12))
        field = (-2 * factor * (moment - total * z))[..., None] * n
        energies, forces = q * potentials / 2, q[..., None] * field
        energy = energies.sum(-1)
        # The energy is quadratic in lengths along the normal, over the volume.
        shape = xp.asarray(2 * np.outer(normal, normal) - np.eye(3), dtype)
        if not bool(xp.isfinite(energy).all()):
            raise ValueError("the energy is not finite: charges are too large, or positions too far from each other.")
        results = (energy, energies, forces, energy[..., None, None] * shape, *((potentials, field) if fields else ()))
        # Scalars of NumPy are numbers.
        return Result(*(r[()] if isinstance(r, np.ndarray) and r.ndim == 0 else kind.wrap(r) for r in results))
