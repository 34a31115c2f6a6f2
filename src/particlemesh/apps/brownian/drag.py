# SPDX-License-Identifier: BSD-3-Clause
"""The mobility of spheres without hydrodynamic interactions."""

from __future__ import annotations

import functools
import math
from typing import Any, Self

import numpy as np

from particlemesh import Box
from particlemesh.apps.brownian.arrays import module_of
from particlemesh.kernels import Fixed, checks


class Settled(Fixed):
    """An object that its ``settings()`` make again: copies and pickles do."""

    box: Any  # a Box, or None

    def __reduce__(self) -> tuple[Any, ...]:
        return functools.partial(type(self), **self.settings()), ()

    def settings(self) -> dict[str, Any]:
        """Return the arguments that make an equal object."""
        raise NotImplementedError

    def in_box(self, box: Any) -> Self:
        """Return an equal object in another box, such as one that shear has deformed.

        Parameters
        ----------
        box : Box, lengths or matrix

        Examples
        --------
        >>> from particlemesh.apps.brownian import WCA
        >>> WCA((8.0, 8.0, 8.0)).in_box([[8.0, 0.0, 0.0], [1.0, 8.0, 0.0], [0.0, 0.0, 8.0]]).box.matrix[1]
        array([1., 8., 0.])
        """
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other.__dict__.pop("_made", None)  # until the end of its construction
        other._enter(Box.of(box))
        other._made = self._made
        return other

    def _enter(self, box: Box | None) -> None:
        """Take a box; objects with what depends on it make that anew."""
        self.box = box


class Drag(Settled):
    """Spheres that move through a fluid at rest: every sphere has Stokes' drag, and none feels the others.

    The mobility is ``1 / (6 pi viscosity radius)`` times the identity. With the default viscosity a sphere of radius 1
    has mobility 1.

    Parameters
    ----------
    radius : number or array (N,)
        Radii of the spheres.
    viscosity : number
        Of the fluid.
    box : Box, lengths or matrix, optional
        The periodic domain, for :attr:`BrownianDynamics.folded` and for trajectories. It changes no result.

    Attributes
    ----------
    divergence_free : bool
        True: the mobility does not depend on the positions.

    Raises
    ------
    ValueError
        If a radius or the viscosity is not positive.

    References
    ----------
    [ermak_mccammon1978]_ has the dynamics with this mobility as its simplest case.

    Examples
    --------
    >>> import numpy as np
    >>> from particlemesh.apps.brownian import Drag
    >>> drag = Drag(radius=2.0)
    >>> drag.set_positions(np.zeros((1, 3)))
    >>> drag.velocity(np.array([[1.0, 0.0, 0.0]])).round(12)
    array([[0.5, 0. , 0. ]])
    """

    divergence_free = True

    def __init__(self, radius: Any = 1.0, viscosity: float = 1 / (6 * math.pi), box: Any = None) -> None:
        self.radius = radii(radius)
        self.viscosity = checks.positive(viscosity, "viscosity")
        self._enter(None if box is None else Box.of(box))
        self._mobility = 1 / (6 * math.pi * self.viscosity * np.asarray(self.radius)[..., None])
        self._factors: dict[Any, Any] = {}  # on a device, by type and power

    @property
    def radii(self) -> np.ndarray:
        """Radii, NumPy array (1,) or (N,)."""
        return np.atleast_1d(np.asarray(self.radius, np.float64))

    def settings(self) -> dict[str, Any]:
        """Return the arguments that make an equal mobility, for checkpoints."""
        return {"radius": self.radius, "viscosity": self.viscosity, "box": self.box}

    def set_positions(self, positions: Any) -> None:
        """Check that there is a radius for each particle; the mobility depends on nothing else.

        Parameters
        ----------
        positions : array (N, 3)
            Of NumPy or CuPy.

        Raises
        ------
        ValueError
            If the number of radii is another one.
        """
        if len(self._mobility) not in (1, len(positions)):
            raise ValueError(f"there are {len(self._mobility)} radii for {len(positions)} particles: give one each.")

    def velocity(self, forces: Any) -> Any:
        """Return the velocities that forces cause.

        Parameters
        ----------
        forces : array (..., N, 3)
            Of NumPy or CuPy.

        Returns
        -------
        array (..., N, 3)
        """
        return forces * self._factor(forces, 1.0)

    def square_root(self, z: Any) -> Any:
        """Return the square root of the mobility times ``z``, an array (..., N, 3)."""
        return z * self._factor(z, 0.5)

    def _factor(self, like: Any, power: float) -> Any:
        xp = module_of(like)
        key = xp.__name__, like.dtype, power
        if key not in self._factors:
            self._factors[key] = xp.asarray(self._mobility**power, dtype=like.dtype)
        return self._factors[key]


def radii(given: Any, what: str = "radius") -> Any:
    """Return a positive number, or a read-only array (N,) of them."""
    if np.ndim(given) == 0:
        return checks.positive(given, what)
    array = np.array(checks.number_array(given, what, real=True), np.float64)
    bad = np.argwhere(~((array > 0) & np.isfinite(array)))
    if array.ndim != 1 or not len(array) or len(bad):
        reason = f"{what} has shape {array.shape}"
        if array.ndim == 1 and len(bad):
            reason = f"the {what} of sphere {bad[0, 0]} is {array[bad[0, 0]]}"
        raise ValueError(f"{reason}; give one positive number, or one for each sphere.")
    array.setflags(write=False)
    return array
