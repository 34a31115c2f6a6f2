# SPDX-License-Identifier: BSD-3-Clause
"""Green's forces between spheres, and the start of the collapsing column.

Lengths are diameters of a sphere, and every mass is one. A cell of the grid is one diameter wide.
"""

from __future__ import annotations

import math
from dataclasses import astuple, dataclass

import numpy as np

from particlemesh import PairFunction
from particlemesh.kernels import Record

RADIUS = 0.5
COINCIDENT = 1e-12  # squared distance below which a pair has no direction
OFFSET = 0.05  # most random displacement at the start, along each axis


@dataclass(frozen=True)
class Green:
    """Coefficients of the forces [green2008]_, in diameters and units of time.

    Let d be the vector between two centres, n its direction, w the relative velocity and w' its part across n. In one
    step a sphere's velocity changes by ``-spring (1 - |d|) n + dashpot w + shear w'`` for each sphere that it overlaps.

    Parameters
    ----------
    spring : float
        Repulsion, per diameter of overlap.
    dashpot, shear : float
        Friction against the relative velocity, and against its part across the contact.
    restitution : float
        Factor of the velocity across a wall that a sphere hits, -1 to 0.
    time_step : float
        Time of a step.
    gravity : float
        Acceleration against the second axis. Green's 3e-4 in a box of edge 2 are 0.0096 diameters here.
    most_speed : float
        Faster spheres are slowed down to this speed. The explicit friction is unstable above about 20 contacts.

    Raises
    ------
    ValueError
        If a coefficient is not finite, or has the wrong sign.

    Examples
    --------
    >>> from studies.barbieri.green import Green
    >>> Green(gravity=0.02).spring
    0.5
    """

    spring: float = 0.5
    dashpot: float = 0.02
    shear: float = 0.1
    restitution: float = -0.5
    time_step: float = 0.5
    gravity: float = 0.0096
    most_speed: float = 0.8

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            low, high = (-1.0, 0.0) if name == "restitution" else (0.0, math.inf)
            if not (math.isfinite(value) and low <= value <= high):
                allowed = "a number from -1 to 0" if high == 0 else "a finite number of at least 0"
                raise ValueError(f"{name} is {value!r}; {allowed} is needed.")
        if not 0 < self.most_speed * self.time_step <= RADIUS:
            raise ValueError(
                f"most_speed * time_step is {self.most_speed * self.time_step:g} diameters; it must be above 0 and at "
                f"most {RADIUS:g}: a sphere must not cross a cell in two steps."
            )

    def numbers(self, dtype: np.dtype) -> np.ndarray:
        """Return the coefficients in the order of the struct in green.h."""
        return np.array(astuple(self), dtype)

    def record(self, dtype: np.dtype) -> Record:
        """Return the struct ``Green`` of green.h."""
        return Record(f"={len(astuple(self))}{dtype.char}", *astuple(self))

    def pair_function(self) -> PairFunction:
        """Return the forces for :meth:`particlemesh.UniformGrid.stream`, with the velocities as values."""
        return PairFunction(_SOURCE, _contact, 3, 3, (self.spring, self.dashpot, self.shear, COINCIDENT))


_SOURCE = """
if (r2 < 1 && r2 > p[3]) {
    const real r = sqrt(r2);
    real along = 0;
    for (int axis = 0; axis < 3; axis++) along += (b[axis] - a[axis]) * d[axis];
    const real pull = (-p[0] * (1 - r) - p[2] * along / r) / r;
    for (int axis = 0; axis < 3; axis++) sum[axis] += pull * d[axis] + (p[1] + p[2]) * (b[axis] - a[axis]);
}
"""


def _contact(r2, d, i, j, a, b, p, total):
    if r2 < 1 and r2 > p[3]:
        r = r2**0.5
        along = (b[0] - a[0]) * d[0] + (b[1] - a[1]) * d[1] + (b[2] - a[2]) * d[2]
        pull = (-p[0] * (1 - r) - p[2] * along / r) / r
        for axis in range(3):
            total[axis] += pull * d[axis] + (p[1] + p[2]) * (b[axis] - a[axis])


def left_half(count: int, cells: int, dtype: np.dtype, seed: int) -> np.ndarray:
    """Return centres (count, 3) that fill the half of the box with the smaller first coordinate evenly.

    They lie on a lattice, of which evenly chosen places stay empty, with a small random offset each.
    """
    across = max(1, round((count / 4) ** (1 / 3)))
    along = math.ceil(math.sqrt(count / across))
    places = np.arange(count, dtype=np.int64) * (across * along * along) // max(count, 1)
    index = np.stack([places // along**2, places // along % along, places % along], 1)
    room = np.array([cells / 2 - 2 * RADIUS, cells - 2 * RADIUS, cells - 2 * RADIUS])
    x = RADIUS + (index + 0.5) * room / (across, along, along)
    x += np.random.default_rng(seed).uniform(-OFFSET, OFFSET, x.shape)
    return np.clip(x, RADIUS, cells - RADIUS).astype(dtype)
