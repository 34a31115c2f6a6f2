# SPDX-License-Identifier: BSD-3-Clause
"""What a simulation reports: its contacts and its energy."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Contacts(NamedTuple):
    """What touches now, in NumPy arrays; each pair once, with i < j, in ascending order.

    Parameters
    ----------
    i : (C,) int64
        First particle.
    j : (C,) int64
        Second particle; ``-1 - w`` is wall ``w`` of ``Simulation.walls``.
    overlap : (C,)
        How deep the two are in each other, a length.
    normal : (C, 3)
        Unit vectors from the second to the first.
    tangential : (C, 3)
        Elastic tangential force on the first particle, of the last step.
    stiffness : (C,)
        Tangential stiffness in the last step, a force per length.
    force : (C, 3)
        Whole force on the first particle, of the last step, dampers included. `normal_force` and `tangential_force` are
        its parts. The force on the second particle is minus this.

    Examples
    --------
    >>> import numpy as np
    >>> from particlemesh.apps.dem import LinearSpring, Simulation
    >>> spheres = Simulation(
    ...     np.array([[0.0, 0.0, 0.0], [1.9, 0.0, 0.0]]), 1.0, density=1.0, contact=LinearSpring(stiffness=100.0)
    ... )
    >>> touching = spheres.contacts
    >>> touching.i, touching.j, touching.overlap.round(12)
    (array([0]), array([1]), array([0.1]))
    """

    i: np.ndarray
    j: np.ndarray
    overlap: np.ndarray
    normal: np.ndarray
    tangential: np.ndarray
    stiffness: np.ndarray
    force: np.ndarray

    @property
    def normal_force(self) -> np.ndarray:
        """The part of `force` along the normal (C, 3)."""
        return (self.force * self.normal).sum(1)[:, None] * self.normal

    @property
    def tangential_force(self) -> np.ndarray:
        """The part of `force` across the normal (C, 3)."""
        return self.force - self.normal_force


class WallForces(NamedTuple):
    """What particles exert on walls, in NumPy arrays, with a row for each of ``Simulation.walls``.

    Parameters
    ----------
    force : (W, 3)
        Of the last step.
    torque : (W, 3)
        About the wall's point, or the middle of a rectangle.

    Examples
    --------
    >>> import numpy as np
    >>> from particlemesh.apps.dem import LinearSpring, Plane, Simulation
    >>> floor = Plane((0, 0, 0), (0, 0, 1))
    >>> ball = Simulation(np.array([[0.0, 0.0, 0.99]]), 1.0, density=1.0, contact=LinearSpring(100.0), walls=floor)
    >>> ball.wall_forces.force.round(6).tolist()
    [[0.0, 0.0, -1.0]]
    """

    force: np.ndarray
    torque: np.ndarray


class Energy(NamedTuple):
    """Energy by its kinds; all are Python floats, in units of mass length²/time².

    Parameters
    ----------
    translation, rotation : float
        Kinetic energy of the centres and of the spins.
    gravity : float
        Potential energy, zero at the origin of coordinates.
    normal, tangential : float
        Elastic energy in the contacts.

    Examples
    --------
    >>> from particlemesh.apps.dem import Energy
    >>> Energy(1.0, 0.5, -0.25, 0.0, 0.0).total
    1.25
    """

    translation: float
    rotation: float
    gravity: float
    normal: float
    tangential: float

    @property
    def total(self) -> float:
        """The sum of all kinds."""
        return float(sum(self))
